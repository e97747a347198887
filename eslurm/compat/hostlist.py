"""Folded lists of host names: `cn[0001-0004,0007],login1`. Order is kept both ways, always.

Invariant: `expand(fold(names)) == names` for all names that hold no comma, bracket or blank. Order is meaning
here: a node list's order is its tree (X-02). Expansion is bounded, so a short text cannot cost much memory.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError, whole_number
from eslurm.core.model.hostlist import fold

__all__ = ["HOSTS_MAX", "expand", "fold"]

HOSTS_MAX = 1_048_576
_NAME_BYTES_MAX = 255
_WAY_OUT = "use e.g. cn[0001-0004,0007],login1"


def expand(text: str, option: str = "--nodelist", hosts_max: int = HOSTS_MAX) -> tuple[str, ...]:
    """The names of a folded list, in its order; several brackets in one name multiply, the last one fastest.

    Raises OptionError for unbalanced or empty brackets, bad ranges, and lists of more than `hosts_max` names.
    """
    names: list[str] = []
    for term in _split_terms(text, option):
        _expand_term(term, names, text, option, hosts_max)
    return tuple(names)


def _split_terms(text: str, option: str) -> list[str]:
    terms: list[str] = []
    depth = 0
    start = 0
    for at, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            terms.append(text[start:at])
            start = at + 1
        elif char.isspace() or not char.isprintable():
            raise OptionError(option, text, "holds a blank", _WAY_OUT)
        if depth not in (0, 1):
            raise OptionError(option, text, "has unbalanced brackets", _WAY_OUT)
    terms.append(text[start:])
    if depth:
        raise OptionError(option, text, "has unbalanced brackets", _WAY_OUT)
    if not all(terms):
        raise OptionError(option, text, "holds an empty name", _WAY_OUT)
    return terms


def _expand_term(term: str, names: list[str], text: str, option: str, hosts_max: int) -> None:
    expanded = [""]
    room = hosts_max - len(names)
    while term:
        stem, bracket, rest = term.partition("[")
        numbers = [""]
        if bracket:
            inside, _, term = rest.partition("]")
            numbers = _numbers(inside, text, option, room)
        else:
            term = ""
        if len(expanded) * len(numbers) > room:
            raise _too_many(text, option, hosts_max)
        if len(expanded[0]) + len(stem) + len(numbers[0]) > _NAME_BYTES_MAX:
            raise OptionError(option, text, f"has a name longer than {_NAME_BYTES_MAX} characters", _WAY_OUT)
        expanded = [head + stem + number for head in expanded for number in numbers]
    names.extend(expanded)
    if len(names) > hosts_max:
        raise _too_many(text, option, hosts_max)


def _too_many(text: str, option: str, hosts_max: int) -> OptionError:
    return OptionError(option, text, f"means more than {hosts_max} names", "name fewer")


def _numbers(inside: str, text: str, option: str, room: int) -> list[str]:
    numbers: list[str] = []
    for part in inside.split(","):
        low_text, dash, high_text = part.partition("-")
        low = whole_number(low_text)
        high = whole_number(high_text) if dash else low
        if low < 0 or high < low:
            raise OptionError(option, text, f"holds '{part[:24]}' which is not a number or range", _WAY_OUT)
        if high - low >= room - len(numbers):
            raise _too_many(text, option, room)
        width = len(low_text)
        numbers.extend([str(number).zfill(width) for number in range(low, high + 1)])
    return numbers
