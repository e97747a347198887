"""Conditions of access to a FreePool (C-15): `cores<4 and time<1h or group=G1 or user=alice,bob or time<=2h`.

`or` joins alternatives, `and` the terms of one. Groups stay names: the caller turns them into numbers. Invariant:
`parse_access(access_text(ways, r), r) == ways`.
"""

from __future__ import annotations

import re

from eslurm.compat.errors import OptionError, nearest, quoted, whole_number
from eslurm.compat.lengths import length_text, parse_length
from eslurm.core.model.accounts import Access

_WORD = re.compile(r"\S+")
_TERM = re.compile(r"([A-Za-z_][\w.-]*)(<=|<|=)(.+)")
_NAMES = re.compile(r"[\w.@-]+(,[\w.@-]+)*")
_LISTS = {"user": "users", "group": "groups", "account": "accounts", "qos": "qos"}
_NOBODY = frozenset({"none", "nobody"})
_WAY_OUT = "write e.g. 'cores<4 and time<1h or group=physics or user=ada,bob or time<=2h'"


def parse_access(text: str, resource: str = "cores", option: str = "access") -> tuple[Access, ...]:
    """The alternatives in order; none for `nobody`. `resource` is the pool's. Raises `OptionError` with the column."""
    if text.strip().lower() in _NOBODY:
        return ()
    ways: list[Access] = []
    given: dict[str, object] = {}
    wants_term = True
    end = 0
    for match in _WORD.finditer(text):
        word, end = match.group(), match.end()
        if word.lower() in ("and", "or"):
            if wants_term:
                raise _wrong(option, text, match.start(), f"a condition was expected before {quoted(word)}")
            if word.lower() == "or":
                ways.append(Access(**given))  # type: ignore[arg-type]
                given = {}
            wants_term = True
            continue
        if not wants_term:
            raise _wrong(option, text, match.start(), "`and` or `or` was expected")
        name, value = _term(word, match.start(), text, resource, option)
        if name in given:
            raise _wrong(option, text, match.start(), "this was said already in the same way in")
        given[name] = value
        wants_term = False
    if wants_term:
        raise _wrong(option, text, end, "a condition was expected")
    ways.append(Access(**given))  # type: ignore[arg-type]
    return tuple(ways)


def access_text(ways: tuple[Access, ...], resource: str = "cores") -> str:
    """The text that `parse_access` reads."""
    return " or ".join(_way_text(way, resource) for way in ways) or "nobody"


def _way_text(way: Access, resource: str) -> str:
    terms = [f"{word}={','.join(names)}" for word, field in _LISTS.items() if (names := getattr(way, field))]
    if way.items_below:
        terms.append(f"{resource}<{way.items_below}")
    if way.time_below_s:
        terms.append(f"time<{length_text(way.time_below_s)}")
    if way.time_max_s:
        terms.append(f"time<={length_text(way.time_max_s)}")
    return " and ".join(terms)


def _term(word: str, at: int, text: str, resource: str, option: str) -> tuple[str, object]:
    match = _TERM.fullmatch(word)
    if match is None:
        raise _wrong(option, text, at, f"{quoted(word)} is no condition")
    name, sign, value = match.groups()
    value_at = at + match.start(3)
    if name.lower() in _LISTS:
        if sign != "=" or _NAMES.fullmatch(value) is None:
            raise _wrong(option, text, at, f"{name} takes = and names")
        return _LISTS[name.lower()], tuple(value.split(","))
    if sign == "=":
        raise _unknown(name, at, text, resource, option)
    if name.lower() == "time":
        return _time(sign, value, value_at, text, option)
    if name not in (resource, "items"):
        raise _unknown(name, at, text, resource, option)
    items = whole_number(value, 15)
    if items < 0 or (items == 0 and sign == "<"):
        raise _wrong(option, text, value_at, "a whole number above 0 was expected")
    return "items_below", items + (sign == "<=")


def _time(sign: str, value: str, at: int, text: str, option: str) -> tuple[str, int]:
    try:
        seconds = parse_length(value, option)
    except OptionError as error:
        raise _wrong(option, text, at, "a length of time was expected") from error
    if not seconds:
        raise _wrong(option, text, at, "a length above 0 was expected")
    return ("time_max_s" if sign == "<=" else "time_below_s"), seconds


def _unknown(name: str, at: int, text: str, resource: str, option: str) -> OptionError:
    known = (*_LISTS, "time", resource)
    meant = nearest(name, known)
    hint = f" (did you mean {meant}?)" if meant else ""
    return _wrong(option, text, at, f"{quoted(name)} is none of {', '.join(known)}{hint}")


def _wrong(option: str, text: str, index: int, why: str) -> OptionError:
    return OptionError(option, text, f"does not parse at column {index + 1}: {why}", _WAY_OUT)
