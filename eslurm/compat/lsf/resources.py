"""LSF's resource requirements (`-R`) and GPU requirements (`-gpu`), as options of essubmit.

Invariant: a part of a requirement that cannot be met exactly is refused by its name.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.sizes import parse_memory

SECTIONS = ("select", "rusage", "span")
_GPU_NAMES = ("ngpus_physical", "ngpus", "gpu")
_MEMORY_NAMES = ("mem", "maxmem")
_ANY = ("any", "local", "LOCAL")
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-:")
UNITS = ("KB", "MB", "GB", "TB", "K", "M", "G", "T")


class Needs:
    """The parts of all requirements of a job; 0 and empty: not said."""

    __slots__ = (
        "constraint",
        "gpu_type",
        "gpus",
        "gpus_per_task",
        "hosts",
        "least_memory_mib",
        "memory_mib",
        "memory_per_task_mib",
        "ptile",
        "spelling",
    )

    def __init__(self) -> None:
        self.spelling = "-R"
        self.hosts = 0
        self.ptile = 0
        self.memory_mib = 0
        self.memory_per_task_mib = 0
        self.least_memory_mib = 0
        """Of `select[mem>...]`, which holds where so much is reserved."""
        self.constraint = ""
        self.gpus = 0
        self.gpus_per_task = 0
        self.gpu_type = ""


def memory_of(text: str, spelling: str, unit: str) -> int:
    """MiB of `4000`, `4GB`; `unit` is that of a number alone. Raises OptionError."""
    bare = text.strip().strip('"')
    return parse_memory(bare if bare.upper().endswith(UNITS) else f"{bare}{unit}", spelling)


def read_requirement(needs: Needs, text: str, spelling: str, unit: str) -> None:
    """Add the parts of a requirement. Raises OptionError."""
    needs.spelling = spelling
    for name, inner in _sections(text, spelling):
        if name == "span":
            _read_span(needs, inner, spelling)
        elif name == "rusage":
            for part in inner.replace("&&", ":").replace(",", ":").split(":"):
                _read_usage(needs, part.strip(), spelling, unit)
        elif name == "select":
            _read_select(needs, inner, spelling, unit)
        else:
            raise _refused(spelling, f"{name}[{inner}]", f"use {', '.join(f'{one}[]' for one in SECTIONS)}")


def read_gpu(needs: Needs, text: str, spelling: str) -> None:
    """Add `-gpu`: GPUs of each node, or with each task. Raises OptionError."""
    number = "1"
    for part in "" if text.strip() == "-" else text.split(":"):
        name, _, value = part.strip().partition("=")
        if name == "num":
            number = value
        elif name in ("gmodel", "gtype") and value and _WORD.issuperset(value):
            needs.gpu_type = value
        elif (name, value) not in (
            ("mode", "shared"),
            ("mps", "no"),
            ("j_exclusive", "yes"),
            ("j_exclusive", "no"),
        ):
            raise _refused(spelling, part, "use num=N, gmodel=TYPE")
    count, _, per = number.partition("/")
    items = whole_number(count, 6)
    if items < 1 or per not in ("", "host", "task"):
        raise OptionError(spelling, text, "is no number of GPUs", 'write e.g. -gpu "num=2"')
    if per == "task":
        needs.gpus_per_task = items
    else:
        needs.gpus = items


def _sections(text: str, spelling: str) -> list[tuple[str, str]]:
    """`select[a && b] rusage[mem=1]`; a text without a name is one of `select`."""
    found = []
    rest = text.strip()
    while rest:
        name, bracket, behind = rest.partition("[")
        inner, closing, behind = behind.partition("]")
        if not bracket:
            found.append(("select", rest))
            break
        name = name.strip()
        if not closing or not name.isalpha():
            raise OptionError(
                spelling, text, "is no requirement", 'write e.g. -R "span[hosts=1] rusage[mem=4GB]"'
            )
        found.append((name, inner.strip()))
        rest = behind.strip()
    return found


def _read_span(needs: Needs, inner: str, spelling: str) -> None:
    name, _, value = inner.replace(" ", "").partition("=")
    number = whole_number(value, 6)
    if name == "hosts" and number == 1:
        needs.hosts = 1
    elif name == "ptile" and number > 0:
        needs.ptile = number
    else:
        raise _refused(spelling, f"span[{inner}]", "use span[hosts=1] or span[ptile=N]")


def _read_usage(needs: Needs, part: str, spelling: str, unit: str) -> None:
    name, _, value = part.partition("=")
    amount, _, per = value.partition("/")
    if name in _MEMORY_NAMES[:1] and per in ("", "host"):
        needs.memory_mib = memory_of(amount, spelling, unit)
    elif name == "mem" and per in ("task", "slot"):
        needs.memory_per_task_mib = memory_of(amount, spelling, unit)
    elif name in _GPU_NAMES and not per and whole_number(amount, 6) > 0:
        needs.gpus = int(amount)
    else:
        raise _refused(spelling, f"rusage[{part}]", "use mem=, mem=.../task, or -gpu; licences: essubmit -L")


def _read_select(needs: Needs, inner: str, spelling: str, unit: str) -> None:
    """Conditions joined by `&&`: memory that is reserved anyway, any type of host, and features."""
    kept = []
    for part in inner.split("&&"):
        bare = part.strip().strip("()").strip() if "||" not in part else part.strip()
        name, sign, value = _comparison(bare)
        if sign and name in _MEMORY_NAMES and sign in (">", ">="):
            needs.least_memory_mib = max(needs.least_memory_mib, memory_of(value, spelling, unit))
        elif sign in ("==", "=") and name == "type" and value in _ANY:
            continue
        elif sign or not bare:
            raise _refused(spelling, f"select[{bare}]", "use features of nodes, or mem>N with rusage[mem=N]")
        else:
            kept.append(part.strip())
    text = "&".join(kept).replace("||", "|").replace(" ", "")
    if text:
        needs.constraint = f"{needs.constraint}&{text}" if needs.constraint else text


def _comparison(text: str) -> tuple[str, str, str]:
    for sign in ("==", "!=", ">=", "<=", "=", ">", "<"):
        name, found, value = text.partition(sign)
        if found:
            return name.strip(), sign, value.strip()
    return text, "", ""


def _refused(spelling: str, part: str, way_out: str) -> OptionError:
    return OptionError(spelling, part, "is not supported", way_out)
