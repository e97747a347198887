"""Folded lists of node names, `cn[0001-0004,0007],login1`, for output and environments.

Invariant: order is kept, because a node list's order is its tree (X-02).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

_KEPT_CHARS_MAX = 256
_DIGITS_MAX = 18


def fold(names: Iterable[str]) -> str:
    """The shortest folded list that keeps the order: neighbours that differ only in their last number share brackets."""
    names = tuple(names)
    if len(names) == 1:
        # Most jobs have one node, and their names are folded for each launch and each row of accounting.
        return names[0]
    terms: list[str] = []
    group: tuple[str, str] | None = None
    ranges: list[list[str]] = []
    for name in names:
        head, digits, tail = _last_number(name)
        if not digits or (head, tail) != group:
            _close_group(terms, group, ranges)
            group, ranges = ((head, tail), [[digits, digits]]) if digits else (None, [])
            if not digits:
                terms.append(name)
            continue
        last = ranges[-1]
        if digits == str(int(last[1]) + 1).zfill(len(last[0])):
            last[1] = digits
        else:
            ranges.append([digits, digits])
    _close_group(terms, group, ranges)
    return ",".join(terms)


def unfold(text: str) -> tuple[str, ...]:
    """The names of a list made by `fold` or checked at the API, in its order; at most one bracket per name."""
    names: list[str] = []
    term = ""
    for part in text.split(","):
        term = f"{term},{part}" if term else part
        if "[" in term and "]" not in term:
            continue
        head, bracket, rest = term.partition("[")
        inside, _, tail = rest.partition("]")
        for numbers in inside.split(",") if bracket else ():
            low, _, high = numbers.partition("-")
            names += [f"{head}{n:0{len(low)}d}{tail}" for n in range(int(low), int(high or low) + 1)]
        if term and not bracket:
            names.append(term)
        term = ""
    return tuple(names)


def holds(text: str, name: str) -> bool:
    """Check whether a list made by `fold` has the name. Lists from outside are searched, never expanded."""
    if text == name:
        return bool(name)
    # Asked for each report of a node; long lists are not kept, for a stranger may send many of them.
    return _found(text, name) if len(text) <= _KEPT_CHARS_MAX else _search(text, name)


def _search(text: str, name: str) -> bool:
    term = ""
    for part in text.split(","):
        term = f"{term},{part}" if term else part
        if "[" in term and "]" not in term:
            continue
        if _is_in_term(term, name):
            return True
        term = ""
    return False


_found = functools.lru_cache(4096)(_search)


def _is_in_term(term: str, name: str) -> bool:
    head, bracket, rest = term.partition("[")
    if not bracket:
        return bool(term) and term == name
    inside, _, tail = rest.partition("]")
    digits = name[len(head) : len(name) - len(tail)]
    if not (name == head + digits + tail and _is_number(digits)):
        return False
    number = int(digits)
    for numbers in inside.split(","):
        low, _, high = numbers.partition("-")
        high = high or low
        if not (_is_number(low) and _is_number(high)):
            continue
        if int(low) <= number <= int(high) and digits == f"{number:0{len(low)}d}":
            return True
    return False


def _is_number(text: str) -> bool:
    return 0 < len(text) <= _DIGITS_MAX and text.isascii() and text.isdigit()


def _close_group(terms: list[str], group: tuple[str, str] | None, ranges: Sequence[Sequence[str]]) -> None:
    if group is None:
        return
    head, tail = group
    parts = [low if low == high else f"{low}-{high}" for low, high in ranges]
    if len(parts) == 1 and "-" not in parts[0]:
        terms.append(head + parts[0] + tail)
    else:
        terms.append(f"{head}[{','.join(parts)}]{tail}")


def _last_number(name: str) -> tuple[str, str, str]:
    """(before, digits, after) of the last run of digits; no digits, or too many to count with: ("", "", "")."""
    end = len(name)
    while end and not "0" <= name[end - 1] <= "9":
        end -= 1
    start = end
    while start and "0" <= name[start - 1] <= "9":
        start -= 1
    if not 0 < end - start <= _DIGITS_MAX:
        return "", "", ""
    return name[:start], name[start:end], name[end:]
