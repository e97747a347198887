"""Binding of tasks to CPUs (`--cpu-bind`): its words, how they travel, and the variables that a task has of it.

What a step's command asks for travels with the step's environment, as `resource_limits` do; a task's process takes it out.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OPTION = "--cpu-bind"
VARIABLE = "SLURM_CPU_BIND"
ASKED = "ESLURM_CPU_BIND_ASKED"
"""The variable of a step that has the option's value."""
NONE, CORES, THREADS, SOCKETS, LDOMS, RANK, MAP, MASK = (
    *("none", "cores", "threads", "sockets", "ldoms", "rank", "map_cpu", "mask_cpu"),
)
CPUS_MAX = 8192
"""CPUs of a host, as numbers."""
ENTRIES_MAX = 4096
"""Entries of a list, each repetition counted."""
TEXT_CHARS_MAX = 65_536
_LISTED = (MAP, MASK)
_KINDS = {
    **{kind: kind for kind in (NONE, CORES, THREADS, SOCKETS, LDOMS, RANK)},
    "no": NONE,
    "core": CORES,
    "thread": THREADS,
    "socket": SOCKETS,
    "ldom": LDOMS,
}
_LOUD = {"verbose": True, "v": True, "quiet": False, "q": False}
_WAY_OUT = (
    "use none, cores, threads, sockets, ldoms, rank, map_cpu:0,1 or mask_cpu:0x3,0xc, after verbose or quiet"
)


class Binding:
    """A value of the option. `kind` is empty where it leaves that open. The entries are numbers of CPUs, or masks, one for
    each task of a node; they begin anew when there are more tasks. `text` is how they were written.
    """

    __slots__ = ("entries", "is_verbose", "kind", "text")

    def __init__(
        self, kind: str = "", entries: tuple[int, ...] = (), text: str = "", *, is_verbose: bool = False
    ) -> None:
        self.kind = kind
        self.entries = entries
        self.text = text
        self.is_verbose = is_verbose


def parse_binding(value: str, option: str = OPTION) -> Binding:
    """Read e.g. `verbose,map_cpu:0,1*2`. Raises OptionError."""
    if len(value) > TEXT_CHARS_MAX:
        raise OptionError(
            option, value[:40], f"has more than {TEXT_CHARS_MAX} characters", "use a shorter list"
        )
    kind, is_verbose, rest = "", False, value
    while rest:
        listed, colon, entries = rest.partition(":")
        if colon and listed.lower() in _LISTED:
            # A list has commas of its own, so it is the last word.
            kind = listed.lower()
            return Binding(kind, _read_entries(kind, entries, value, option), entries, is_verbose=is_verbose)
        word, _, rest = rest.partition(",")
        if word.lower() in _LOUD:
            is_verbose = _LOUD[word.lower()]
        elif word.lower() in _KINDS:
            kind = _KINDS[word.lower()]
        else:
            raise OptionError(
                option, value[:80], f"has the word '{word[:40]}', which is no binding", _WAY_OUT
            )
    return Binding(kind, is_verbose=is_verbose)


def _read_entries(kind: str, text: str, value: str, option: str) -> tuple[int, ...]:
    found: list[int] = []
    for entry in text.split(","):
        number, star, times = entry.partition("*")
        base = 16 if kind == MASK or number.lower().startswith("0x") else 10
        one = _number(number.lower().removeprefix("0x") if base == 16 else number, base)
        count = _number(times, 10) if star else 1
        too_high = one.bit_length() > CPUS_MAX if kind == MASK else one >= CPUS_MAX
        if one < 0 or count < 1 or too_high or (kind == MASK and not one):
            what = "mask of CPUs" if kind == MASK else "number of a CPU"
            raise OptionError(option, value[:80], f"has '{entry[:40]}', which is no {what}", _WAY_OUT)
        if len(found) + count > ENTRIES_MAX:
            raise OptionError(
                option, value[:80], f"has more than {ENTRIES_MAX} entries", "use a shorter list"
            )
        found += [one] * count
    return tuple(found)


def _number(text: str, base: int) -> int:
    """-1 where it is none."""
    digits = "0123456789abcdef"[:base]
    # Python has a bound for decimal digits, and takes signs and underscores.
    if not text or text.strip(digits) or (base == 10 and len(text) > 9):
        return -1
    return int(text, base)


def wanted_binding(environ: Mapping[str, str]) -> str:
    """The value that the environment gives: none where it is a task's own binding, which no step of its shall have."""
    value = environ.get(VARIABLE, "")
    return value if value != environ.get(f"E{VARIABLE}") else ""


def without_binding(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables without what was asked for."""
    return {name: value for name, value in variables.items() if name != ASKED}


def binding_variables(asked: Binding, masks: Callable[[], str]) -> dict[str, str]:
    """The variables of a task that is bound, or asked not to be; `masks` are those of all tasks on its node."""
    words = {
        NONE: (NONE, ""),
        RANK: (RANK, ""),
        MAP: ("map_cpu:", asked.text),
        MASK: ("mask_cpu:", asked.text),
    }
    kind, entries = words.get(asked.kind) or ("mask_cpu:", masks())
    loud = "verbose" if asked.is_verbose else "quiet"
    values = {"": f"{loud},{kind}{entries}", "_TYPE": kind, "_LIST": entries, "_VERBOSE": loud}
    return {f"{e}{VARIABLE}{suffix}": value for suffix, value in values.items() for e in ("", "E")}


def binding_line(asked: Binding, node: str, rank: int, local: int, pid: int, mask: int) -> str:
    """The line of `verbose` for one task."""
    spelled = {"": "NULL", NONE: "NONE", RANK: "RANK", MAP: "MAP "}.get(asked.kind, "MASK")
    done = "" if asked.kind in ("", NONE) else " set"
    return f"cpu-bind={spelled} - {node}, task {rank:2} {local:2} [{pid}]: mask {mask:#x}{done}\n"
