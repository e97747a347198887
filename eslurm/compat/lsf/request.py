"""From bsub's options to those of essubmit.

Invariant: what is not understood raises `OptionError`; nothing that would change what a job means is left out.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.lsf.resources import Needs, memory_of, read_gpu, read_requirement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    NumberOf = Callable[[str], int]
    Given = Sequence[tuple[str, str, str]]

LEAST_LIMIT_MIB = 64
"""A limit of `-M` below this, in the unit that LSF assumes, is a mistake about the unit."""
_KINDS = {"done": "afterok", "ended": "afterany", "exit": "afternotok", "started": "after"}
_DIGITS = 9
_PLAIN = (
    ("q", "partition"),
    ("P", "account"),
    ("jd", "comment"),
    ("U", "reservation"),
    ("u", "mail-user"),
    ("i", "input"),
)
_FLAGS = (("H", "hold"), ("x", "exclusive"))


class Request:
    """The options of essubmit by their names: (value, spelling of the option that gives it)."""

    __slots__ = ("is_waited_for", "options")

    def __init__(self) -> None:
        self.options: dict[str, tuple[str, str]] = {}
        self.is_waited_for = False

    def put(self, long: str, value: str, spelling: str) -> None:
        """Set an option of essubmit."""
        self.options[long] = (value, spelling)


def read_request(
    given: Given, name: str, environ: Mapping[str, str], number_of: NumberOf, today: tuple[int, int, int]
) -> Request:
    """The request of options (name, value, spelling), of which later ones win, but for `-R`. Raises OptionError.

    `name` is the job's without `-J`, `today` the year, month and day of the submission. `number_of` is the id of the user's
    latest job of a name.
    """
    last = {option: (value, spelling) for option, value, spelling in given}
    found = Request()
    found.is_waited_for = "K" in last
    for option, long in _PLAIN:
        if option in last:
            found.put(long, *last[option])
    for option, long in _FLAGS:
        if option in last:
            found.put(long, "", last[option][1])
    _read_name(found, *last.get("J", (name, "-J")))
    found.put("requeue" if "r" in last and "rn" not in last else "no-requeue", "", "-r")
    found.put("export", export_of(*last["env"]) if "env" in last else "ALL", "-env")
    if "W" in last:
        found.put("time", limit_of(*last["W"]), last["W"][1])
    if "b" in last:
        found.put("begin", begin_of(*last["b"], today), last["b"][1])
    if "w" in last:
        found.put("dependency", dependencies_of(*last["w"], number_of), last["w"][1])
    if "cwd" in last:
        found.put("chdir", *last["cwd"])
    events = [word for option, word in (("B", "BEGIN"), ("N", "END"), ("Ne", "FAIL")) if option in last]
    if events:
        found.put("mail-type", ",".join(events), "-N")
    _read_files(found, last)
    _read_resources(found, given, last, environ)
    return found


def _read_name(found: Request, text: str, spelling: str) -> None:
    """`name`, or `name[1-10:2,15]%3`: an array."""
    name, bracket, rest = text.partition("[")
    if bracket:
        tasks, closing, limit = rest.partition("]")
        if not closing or (limit and not limit.startswith("%")):
            raise OptionError(spelling, text, "is no array", 'write e.g. -J "sweep[1-10:2]%3"')
        found.put("array", tasks.replace(" ", "") + limit, spelling)
    found.put("job-name", name.strip() or "job", spelling)


def limit_of(text: str, spelling: str) -> str:
    """A limit `[hours:]minutes` in Slurm's words; a host for which it is meant does not count. Raises OptionError."""
    bare = text.partition("/")[0]
    hours, colon, minutes = bare.rpartition(":")
    numbers = whole_number(hours, _DIGITS) if colon else 0, whole_number(minutes, _DIGITS)
    if min(numbers) < 0 or not sum(numbers):
        raise OptionError(spelling, text, "is no time limit", "write minutes, or e.g. -W 2:30")
    return f"{numbers[0] + numbers[1] // 60}:{numbers[1] % 60:02d}:00"


def begin_of(text: str, spelling: str, today: tuple[int, int, int]) -> str:
    """A moment `[[[year:]month:]day:]hour:minute` in Slurm's words. Raises OptionError."""
    parts = [whole_number(part, 4) for part in text.split(":")]
    if not 2 <= len(parts) <= 5 or min(parts) < 0 or parts[-2] > 23 or parts[-1] > 59:
        raise OptionError(spelling, text, "is not [[month:]day:]hour:minute", "write e.g. -b 24:20:00")
    clock = f"{parts[-2]:02d}:{parts[-1]:02d}"
    if len(parts) == 2:
        return f"{clock}:00"
    days = [*today[: 5 - len(parts)], *parts[:-2]]
    return f"{days[0]:04d}-{days[1]:02d}-{days[2]:02d}T{clock}"


def dependencies_of(text: str, spelling: str, number_of: NumberOf) -> str:
    """Conditions `done(1) && ended("name")` in Slurm's words. Raises OptionError."""
    joints = [sign for sign in ("&&", "||") if sign in text]
    if len(joints) > 1 or "!" in text:
        raise OptionError(spelling, text, "mixes && with || or !", "use one of && and || for all conditions")
    found = []
    for condition in text.split(joints[0] if joints else "&&"):
        bare = condition.strip()
        kind, bracket, job = bare.partition("(")
        if not bracket:
            kind, job = "done", f"{bare})"
        if kind.strip() not in _KINDS or not job.rstrip().endswith(")") or not job.rstrip()[:-1].strip():
            raise OptionError(
                spelling,
                bare,
                f"is not one of {', '.join(_KINDS)} and a job",
                'write e.g. -w "done(17) && ended(18)"',
            )
        found.append(f"{_KINDS[kind.strip()]}:{_job(job.rstrip()[:-1].strip(), spelling, number_of)}")
    return ("," if "||" not in joints else "?").join(found)


def _job(text: str, spelling: str, number_of: NumberOf) -> str:
    quoted = text.startswith(('"', "'"))
    bare = text.strip("\"'")
    if not quoted and bare[:1].isdecimal():
        return job_of(bare, spelling)
    if not bare or any(char in bare for char in '*[]()"'):
        raise OptionError(
            spelling, text, "is no job", "name a job by its id, a task as 17[3], or a whole name"
        )
    number = number_of(bare)
    if not number:
        raise OptionError(spelling, text, "is none of your jobs", "name a job by its id")
    return str(number)


def job_of(text: str, spelling: str) -> str:
    """A job in Slurm's words: `17`, or `17_3` for `17[3]`, `17_[1-3]` for `17[1-3]`. Raises OptionError."""
    number, bracket, rest = text.partition("[")
    tasks = rest.removesuffix("]")
    if whole_number(number, 10) < 1 or (bracket and (not rest.endswith("]") or not tasks)):
        raise OptionError(spelling, text, "is no job id", "write e.g. 17, 17[3] or 17[1-3]")
    if not bracket:
        return number
    return f"{number}_{tasks}" if tasks.isdecimal() else f"{number}_[{tasks}]"


def export_of(text: str, spelling: str) -> str:
    """`all, A=1`: the variables of a job as `--export` has them. Raises OptionError."""
    words = [word.strip() for word in text.split(",")]
    if any(word.startswith("~") for word in words):
        raise OptionError(
            spelling, text, "takes variables away, which is not supported", "name those that it gets"
        )
    return ",".join({"all": "ALL", "none": "NONE"}.get(word, word) for word in words)


def _read_files(found: Request, last: Mapping[str, tuple[str, str]]) -> None:
    """Files of outputs. Without one, LSF mails the output; here it goes to a file."""
    modes = {option for option in ("o", "oo", "e", "eo") if option in last}
    if {"o", "oo"} <= modes or {"e", "eo"} <= modes or modes in ({"o", "eo"}, {"oo", "e"}):
        spelling = last[sorted(modes)[0]][1]
        raise OptionError(
            spelling, last[sorted(modes)[0]][0], "appends and overwrites", "use -o and -e, or -oo and -eo"
        )
    is_array = "array" in found.options
    default = "lsf-%A-%a.out" if is_array else "lsf-%j.out"
    for options, long in ((("o", "oo"), "output"), (("e", "eo"), "error")):
        option = next((one for one in options if one in last), "")
        if option:
            found.put(long, _pattern(last[option][0], is_array=is_array, default=default), last[option][1])
    if "output" not in found.options:
        found.put("output", default, "-o")
    found.put("open-mode", "truncate" if modes & {"oo", "eo"} else "append", "-o")


def _pattern(text: str, *, is_array: bool, default: str) -> str:
    """The name of a file with `%J` and `%I`; in a directory it is named after the job."""
    job, task = ("%A", "%a") if is_array else ("%j", "0")
    parts = text.split("%")
    made = parts[0]
    for part in parts[1:]:
        letter = part[:1]
        made += (
            f"{job if letter == 'J' else task}{part[1:]}" if letter in ("J", "I") and letter else f"%%{part}"
        )
    return made + default if made.endswith("/") else made


def _read_resources(
    found: Request, given: Given, last: Mapping[str, tuple[str, str]], environ: Mapping[str, str]
) -> None:
    unit = environ.get("LSF_UNIT_FOR_LIMITS", "").strip().upper()
    needs = Needs()
    for option, value, spelling in given:
        if option == "R":
            read_requirement(needs, value, spelling, unit or "MB")
    if "gpu" in last:
        read_gpu(needs, *last["gpu"])
    tasks = _tasks(*last["n"]) if "n" in last else 1
    found.put("ntasks", str(tasks), last.get("n", ("", "-n"))[1])
    if needs.hosts or "m" in last or tasks == 1:
        found.put("nodes", "1", needs.spelling)
    if "m" in last:
        host, spelling = last["m"]
        if len(host.split()) != 1 or not set(host).isdisjoint("+!@"):
            raise OptionError(
                spelling, host, "is more than one host", "name one, or use features: -R select[...]"
            )
        found.put("nodelist", host.strip(), spelling)
    if needs.ptile and not needs.hosts:
        found.put("ntasks-per-node", str(min(needs.ptile, tasks)), needs.spelling)
        found.put("nodes", str(-(-tasks // needs.ptile)), needs.spelling)
    if needs.constraint:
        found.put("constraint", needs.constraint, needs.spelling)
    gpu = f"{needs.gpu_type}:" if needs.gpu_type else ""
    spelling = last.get("gpu", ("", needs.spelling))[1]
    if needs.gpus:
        found.put("gpus-per-node", f"{gpu}{needs.gpus}", spelling)
    if needs.gpus_per_task:
        found.put("gpus-per-task", f"{gpu}{needs.gpus_per_task}", spelling)
    _read_memory(found, needs, last, unit)


def _read_memory(found: Request, needs: Needs, last: Mapping[str, tuple[str, str]], unit: str) -> None:
    """The larger one of what is reserved and what is the limit: here a reservation is the limit, too."""
    limit = memory_of(*last["M"], unit or "KB") if "M" in last else 0
    if limit and limit < LEAST_LIMIT_MIB and not unit and last["M"][0].strip().isdecimal():
        raise OptionError(
            last["M"][1],
            last["M"][0],
            f"is {limit} MB by LSF's own unit, KB",
            "write e.g. -M 4GB, or set LSF_UNIT_FOR_LIMITS",
        )
    if needs.memory_per_task_mib:
        if limit or needs.memory_mib:
            raise OptionError(needs.spelling, "mem", "is said for tasks and for hosts", "say it once")
        found.put("mem-per-cpu", f"{needs.memory_per_task_mib}M", needs.spelling)
    elif needs.memory_mib or limit:
        found.put(
            "mem", f"{max(needs.memory_mib, limit)}M", needs.spelling if needs.memory_mib else last["M"][1]
        )
    if needs.least_memory_mib > max(needs.memory_mib, needs.memory_per_task_mib, limit):
        raise OptionError(
            needs.spelling,
            f"select[mem>{needs.least_memory_mib}]",
            "is more than what is reserved",
            f"add rusage[mem={needs.least_memory_mib}]",
        )


def _tasks(text: str, spelling: str) -> int:
    least, comma, most = text.replace(" ", "").partition(",")
    number = whole_number(least, _DIGITS)
    if number < 1 or (comma and most != least):
        raise OptionError(
            spelling, text, "is no number of tasks", "write e.g. -n 4: a range is not supported"
        )
    return number
