"""From qsub's options to those of essubmit.

Invariant: what is not understood raises `OptionError`; nothing that would change what a job means is left out.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError, quoted, whole_number
from eslurm.compat.pbs.environment import PROCESSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_UNITS_KIB = {"kb": 1, "mb": 1024, "gb": 1024**2, "tb": 1024**3}
_ONE_CHUNK = ("ncpus", "mem", "ngpus", "mpiprocs", "ompthreads")
_RESOURCES = (*_ONE_CHUNK, "select", "place", "walltime", "nodes")
_DEPENDENCIES = ("after", "afterok", "afternotok", "afterany")
_EVENTS = {"a": "FAIL", "b": "BEGIN", "e": "END"}
_TIME_DIGITS = 9
SHELLS = ("sh", "bash", "dash", "ksh", "zsh")


class Request:
    """The options of essubmit by their names, and what is asked for beside them."""

    __slots__ = ("is_quiet", "is_waited_for", "options", "processes", "shell", "threads", "umask")

    def __init__(self) -> None:
        self.options: dict[str, tuple[str, str]] = {}
        """Name -> (value, spelling of the option that gives it)."""
        self.shell = ""
        self.umask = -1
        self.threads = 1
        """For OMP_NUM_THREADS: `ompthreads`, else `ncpus`, of the first chunk."""
        self.processes: set[int] = set()
        """For the file of nodes: `mpiprocs` or `ppn` of the chunks."""
        self.is_quiet = False
        self.is_waited_for = False

    def put(self, long: str, value: str, spelling: str) -> None:
        """Set an option of essubmit."""
        self.options[long] = (value, spelling)


def read_request(given: Sequence[tuple[str, str, str]], name: str, cwd: str) -> Request:
    """The request of options (letter, value, spelling), of which later ones win. Raises OptionError.

    `name` is the job's without `-N`; `cwd` is the directory of the submission.
    """
    last = {letter: (value, spelling) for letter, value, spelling in given}
    found = Request()
    for letter, long in (
        ("N", "job-name"),
        ("q", "partition"),
        ("A", "account"),
        ("P", "account"),
        ("J", "array"),
    ):
        if letter in last:
            found.put(long, *last[letter])
    if "A" in last and "P" in last and last["A"][0] != last["P"][0]:
        raise OptionError(last["A"][1], last["A"][0], "is another account than -P", "name one of them")
    found.options.setdefault("job-name", (name, "-N"))
    if "h" in last:
        found.put("hold", "", last["h"][1])
    if "r" in last:
        found.put("requeue" if _choice(*last["r"], "yn") == "y" else "no-requeue", "", last["r"][1])
    if "a" in last:
        found.put("begin", begin_of(*last["a"]), last["a"][1])
    if "m" in last and (events := _events(*last["m"])):
        found.put("mail-type", events, last["m"][1])
    if "M" in last:
        found.put("mail-user", *last["M"])
    _read_export(found, given)
    _read_files(found, last, cwd)
    resources: dict[str, tuple[str, str]] = {}
    attributes: dict[str, tuple[str, str]] = {}
    for letter, value, spelling in given:
        if letter in "lW":
            (resources if letter == "l" else attributes).update(_pairs(value, spelling))
    _read_resources(found, resources)
    _read_attributes(found, attributes)
    found.shell = last.get("S", ("", ""))[0]
    if found.shell and not found.shell.startswith("/"):
        raise OptionError(last["S"][1], found.shell, "is not an absolute path", "write e.g. -S /bin/bash")
    found.is_quiet = "z" in last
    return found


def _choice(value: str, spelling: str, letters: str) -> str:
    if len(value) != 1 or value not in letters:
        raise OptionError(
            spelling, value, f"is none of {', '.join(letters)}", f"write {spelling} {letters[0]}"
        )
    return value


def _events(letters: str, spelling: str) -> str:
    """Events of mail as essubmit names them; empty: none."""
    if not letters or (set(letters) - set("abe") and letters != "n"):
        raise OptionError(spelling, letters, "is none of a, b, e and n", f"write e.g. {spelling} ae")
    return ",".join(_EVENTS[letter] for letter in letters if letter in _EVENTS)


def _pairs(text: str, spelling: str) -> dict[str, tuple[str, str]]:
    """`depend=afterok:1,afterany:2,umask=022`: a piece without `=` goes on with the value before it."""
    found: dict[str, tuple[str, str]] = {}
    name = ""
    for piece in text.split(","):
        head, equals, value = piece.partition("=")
        if equals and head.strip().isidentifier():
            name = head.strip()
            found[name] = (value, spelling)
        elif name:
            found[name] = (f"{found[name][0]},{piece}", spelling)
        else:
            raise OptionError(spelling, piece, "is not NAME=VALUE", f"write e.g. {spelling} walltime=1:00:00")
    return found


def _read_export(found: Request, given: Sequence[tuple[str, str, str]]) -> None:
    lists = [(value, spelling) for letter, value, spelling in given if letter == "v"]
    is_all = [spelling for letter, _, spelling in given if letter == "V"]
    items = (["ALL"] if is_all else []) + [value for value, _ in lists[-1:]]
    spelling = (is_all + [spelling for _, spelling in lists])[-1:]
    found.put("export", ",".join(items) or "NONE", spelling[0] if spelling else "-v")


def _read_files(found: Request, last: Mapping[str, tuple[str, str]], cwd: str) -> None:
    joined = _joined(*last["j"]) if "j" in last else "n"
    ending = "%A.%a" if "array" in found.options else "%j"
    name = found.options["job-name"][0].replace("%", "%%")
    paths = {}
    for letter in "oe":
        value, spelling = last.get(letter, ("", f"-{letter}"))
        default = f"{name}.{letter}{ending}"
        _, colon, path = value.partition(":")
        path = path if colon else value
        path = path.replace("%", "%%").replace("^array_index^", "%a")
        if not path or path.endswith("/"):
            path += default
        paths[letter] = (path if path.startswith("/") else f"{cwd.replace('%', '%%')}/{path}", spelling)
    found.put("output", *paths["e" if joined == "eo" else "o"])
    if joined == "n":
        found.put("error", *paths["e"])
    found.put("open-mode", "truncate", "-o")


def _joined(value: str, spelling: str) -> str:
    if value not in ("oe", "eo", "n"):
        raise OptionError(spelling, value, "is none of oe, eo, n", f"write {spelling} oe")
    return value


# ---- resources ----


def _read_resources(found: Request, given: Mapping[str, tuple[str, str]]) -> None:
    for name, (value, spelling) in given.items():
        if name not in _RESOURCES:
            raise OptionError(
                spelling,
                f"{name}={value}",
                "is not supported",
                f"use {', '.join(_RESOURCES)}; others in chunks of select",
            )
    if "walltime" in given:
        found.put("time", walltime_of(*given["walltime"]), given["walltime"][1])
    single = [f"{name}={given[name][0]}" for name in _ONE_CHUNK if name in given]
    shapes = [name for name in ("select", "nodes") if name in given]
    if len(shapes) > 1 or (shapes and single):
        value, spelling = given[shapes[0]]
        other = shapes[1] if len(shapes) > 1 else single[0].partition("=")[0]
        raise OptionError(spelling, f"{shapes[0]}={value}", f"excludes {other}", "say it in the chunks")
    spelling = given[shapes[0]][1] if shapes else "-l"
    place = given.get("place", ("", ""))[0]
    if "nodes" in given:
        text = _of_nodes(*given["nodes"])
        place = place or "scatter"
    else:
        text = given["select"][0] if shapes else ":".join(["1", *single])
    chunks = [_chunk(chunk, spelling, found, is_first=not at) for at, chunk in enumerate(text.split("+"))]
    found.put("rset", "+".join(chunks) + (f",place={place}" if place else ""), spelling)


def _of_nodes(text: str, spelling: str) -> str:
    """The chunks of Torque's `nodes=2:ppn=8`."""
    chunks = []
    for part in text.split("+"):
        count, *words = part.split(":")
        if whole_number(count, 6) < 1:
            raise OptionError(
                spelling, f"nodes={text}", "names no number of nodes", "write e.g. nodes=2:ppn=8"
            )
        each = next((word.removeprefix("ppn=") for word in words if word.startswith("ppn=")), "")
        kept = [f"ncpus={each}" if word.startswith("ppn=") else word for word in words]
        chunks.append(":".join([count, *kept, *([f"mpiprocs={each}"] if each else [])]))
    return "+".join(chunks)


def _chunk(text: str, spelling: str, found: Request, *, is_first: bool) -> str:
    """A chunk as `--rset` has it. `mpiprocs` is for the file of nodes."""
    count, *words = text.split(":")
    if "=" in count:
        count, words = "1", [count, *words]
    kept, cores, threads, processes = [count], 1, 0, 1
    for word in words:
        name, _, value = word.partition("=")
        if name in ("ncpus", "ompthreads", "mpiprocs") and not whole_number(value, 9) > 0:
            raise OptionError(spelling, word, "is no number from 1", f"write e.g. {name}=4")
        if name == "ompthreads":
            threads = int(value)
        elif name == "mem":
            kept.append(f"mem={memory_of(value, spelling)}m")
        elif name == "mpiprocs":
            processes = int(value)
        else:
            kept.append(word)
        cores = int(value) if name == "ncpus" else cores
    found.processes.add(processes)
    if is_first:
        found.threads = threads or cores
    return ":".join(kept if len(kept) > 1 else [count, "ncpus=1"])


def memory_of(text: str, spelling: str) -> int:
    """MiB of `4gb`, `512mb`; a number alone is bytes. Raises OptionError."""
    lowered = text.strip().lower()
    digits = lowered.rstrip("bkmgt")
    number, unit = whole_number(digits, 15), lowered[len(digits) :]
    if number < 0 or (unit and unit != "b" and unit not in _UNITS_KIB):
        raise OptionError(spelling, f"mem={text}", "is not an amount of memory", "write e.g. mem=4gb")
    if unit in ("", "b"):
        return -(-number // 1024**2)
    return -(-number * _UNITS_KIB[unit] // 1024)


def walltime_of(text: str, spelling: str) -> str:
    """A length `[[hours:]minutes:]seconds` in Slurm's words. Raises OptionError."""
    parts = [whole_number(part, _TIME_DIGITS) for part in text.partition(".")[0].split(":")]
    if min(parts) < 0 or len(parts) > 3:
        raise OptionError(spelling, f"walltime={text}", "is not a time", "write e.g. walltime=12:00:00")
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + part
    if not seconds:
        raise OptionError(spelling, f"walltime={text}", "is no time at all", "write e.g. walltime=12:00:00")
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def begin_of(text: str, spelling: str) -> str:
    """A moment in Slurm's words. Raises OptionError."""
    digits, dot, second = text.partition(".")
    is_number = whole_number(digits, 12) >= 0 and (not dot or (len(second) == 2 and second.isdecimal()))
    clock = f"{digits[-4:-2]}:{digits[-2:]}:{second or '00'}"
    if is_number and len(digits) == 4:
        return clock
    if not is_number or len(digits) not in (10, 12):
        raise OptionError(spelling, text, "is not hhmm or CCYYMMDDhhmm", "write e.g. -a 203001311230")
    day = digits[:-4] if len(digits) == 12 else f"20{digits[:-4]}"
    return f"{day[:4]}-{day[4:6]}-{day[6:]}T{clock}"


# ---- attributes ----


def _read_attributes(found: Request, given: Mapping[str, tuple[str, str]]) -> None:
    for name, (value, spelling) in given.items():
        if name == "depend":
            found.put("dependency", dependencies_of(value, spelling), spelling)
        elif name == "umask" and value.isdecimal() and set(value) <= set("01234567") and len(value) <= 4:
            found.umask = int(value, 8)
        elif name == "block" and value.lower() in ("true", "false"):
            found.is_waited_for = value.lower() == "true"
        else:
            raise OptionError(
                spelling, f"{name}={value}", "is not supported", "use depend=, umask=, block=true"
            )


def dependencies_of(text: str, spelling: str) -> str:
    """Conditions in Slurm's words. Raises OptionError."""
    found = []
    for condition in text.split(","):
        kind, *jobs = condition.split(":")
        if kind not in _DEPENDENCIES or not jobs:
            raise OptionError(
                spelling,
                f"depend={condition}",
                f"is not one of {', '.join(_DEPENDENCIES)} and jobs",
                "write e.g. afterok:17",
            )
        found.append(":".join([kind, *(job_of(job, spelling) for job in jobs)]))
    return ",".join(found)


def job_of(text: str, spelling: str) -> str:
    """A job in Slurm's words: `17`, or `17_3` for `17[3]`; a server's name behind it does not count. Raises OptionError."""
    bare = text.partition(".")[0]
    number, bracket, rest = bare.partition("[")
    task = rest.removesuffix("]")
    is_task = bracket and rest.endswith("]") and (not task or whole_number(task, 9) >= 0)
    if whole_number(number, 10) < 1 or (bracket and not is_task):
        raise OptionError(spelling, text, "is no job id", "write e.g. 17, 17[] or 17[3]")
    return f"{number}_{task}" if task else number


# ---- script ----


def prepared(script: bytes, request: Request) -> bytes:
    """The script with a first line that names its shell, and with PBS's names of the job in a shell's environment.

    Raises OptionError for what a script has of PBS that there is not.
    """
    reads_nodes = reads_nodefile(script)
    if reads_nodes and len(request.processes) > 1:
        raise OptionError(
            "script",
            "$PBS_NODEFILE",
            "is for chunks of the same mpiprocs",
            "start tasks with esrun -n N, which knows the nodes",
        )
    first, _, rest = script.partition(b"\n")
    if request.shell or not first.startswith(b"#!"):
        first, rest = f"#!{request.shell or '/bin/sh'}".encode(), script
    words = first[2:].decode("utf-8", "replace").split()
    program = words[1] if len(words) > 1 and words[0].endswith("/env") else (words or [""])[0]
    if program.rpartition("/")[2] not in SHELLS:
        for name in (b"PBS_JOBID", b"PBS_ARRAY_INDEX", *([b"PBS_NODEFILE"] if reads_nodes else [])):
            if name in rest:
                raise OptionError(
                    "script",
                    f"${name.decode()}",
                    f"is for scripts of {', '.join(SHELLS)}, not {quoted(program)}",
                    "read SLURM_JOB_ID",
                )
        return first + b"\n" + rest
    return first + b"\n" + _PRELUDE + (_NODEFILE if reads_nodes else b"") + rest


def reads_nodefile(script: bytes) -> bool:
    """Check whether a line that is no comment names `$PBS_NODEFILE`."""
    return any(b"PBS_NODEFILE" in line and not line.lstrip().startswith(b"#") for line in script.split(b"\n"))


_PRELUDE = b"""\
PBS_JOBID=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+"[$SLURM_ARRAY_TASK_ID]"}; export PBS_JOBID; \
[ -z "${SLURM_ARRAY_TASK_ID:-}" ] || { PBS_ARRAY_INDEX=$SLURM_ARRAY_TASK_ID; export PBS_ARRAY_INDEX; }
"""
_NODEFILE = b"""\
PBS_NODEFILE=$(mktemp "${TMPDIR:-/tmp}/pbs-nodes.XXXXXXXX") && printf '%s\\n' ${PBS_HOSTS:?too many nodes for PBS_NODEFILE} \
>"$PBS_NODEFILE" || exit 1; export PBS_NODEFILE; trap 'rm -f "$PBS_NODEFILE"' 0
"""


def variables(request: Request, cwd: str, host: str, environ: Mapping[str, str]) -> dict[str, str]:
    """PBS's variables of a job that are known when it is submitted."""
    queue = request.options.get("partition", ("", ""))[0]
    found = {
        "PBS_ENVIRONMENT": "PBS_BATCH",
        "PBS_JOBNAME": request.options["job-name"][0],
        "PBS_O_HOST": host,
        "PBS_O_WORKDIR": cwd,
        "NCPUS": str(request.threads),
        "OMP_NUM_THREADS": str(request.threads),
    }
    if len(request.processes) == 1:
        found[PROCESSES] = str(next(iter(request.processes)))
    found |= {"PBS_O_QUEUE": queue, "PBS_QUEUE": queue} if queue else {}
    return found | {
        f"PBS_O_{name}": environ[name]
        for name in ("HOME", "LANG", "LOGNAME", "PATH", "SHELL")
        if name in environ
    }
