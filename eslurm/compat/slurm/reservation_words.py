"""The words of `scontrol create|update reservation`, as settings of a reservation of ours.

What Slurm can say and we cannot is refused by its key or flag: a reservation never means less than its words.
"""

from __future__ import annotations

from eslurm.compat.durations import parse_time_limit
from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NAME = ("reservationname", "reservation")
_LISTS = ("users", "accounts", "groups")
_PLAIN: Mapping[str, str] = {
    "starttime": "start",
    "endtime": "end",
    "partitionname": "partition",
    "partition": "partition",
    "features": "feature",
    "feature": "feature",
    "nodecnt": "nodes",
    "nodecount": "nodes",
    "nodes": "nodes",
}
_FLAGS: Mapping[str, tuple[str, str]] = {
    "MAINT": ("maintenance", "yes"),
    "IGNORE_JOBS": ("flags", "ignore_running"),
}
_NO_EFFECT = ("SPEC_NODES", "ALL_NODES")
"""Flags about nodes that are named: they stay those."""
_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(
        ("DAILY", "HOURLY", "WEEKLY", "WEEKDAY", "WEEKEND"),
        "use esctl reservation add NAME validity=cron(...)+4h",
    ),
    "OVERLAP": "only those with MAINT share nodes with others",
}


def named(words: Iterable[str]) -> tuple[str, list[str]]:
    """The reservation's name (empty: none is given), and the other words."""
    name, others = "", []
    for word in words:
        key, _, value = word.partition("=")
        if key.lower() in NAME:
            name = value
        else:
            others.append(word)
    return name, others


def settings_of(words: Iterable[str]) -> list[tuple[str, str]]:
    """Settings, as (key, text). Raises `OptionError` for a key, flag or value that means nothing here."""
    found: list[tuple[str, str]] = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise OptionError(word, None, "has no value", f"use {word}=VALUE")
        sign = key[-1:] if key[-1:] in ("+", "-") else ""
        lowered = key[: len(key) - len(sign)].lower()
        if lowered in _LISTS:
            found += _list(lowered + sign, value, key)
        elif sign:
            raise OptionError(key, value, "is no list", f"use {key[:-1]}=VALUE")
        elif lowered == "duration":
            found.append(("duration", _duration(value, key)))
        elif lowered == "flags":
            found += _flags(value, key)
        elif lowered in _PLAIN:
            found.append((_PLAIN[lowered], value))
        else:
            raise OptionError(
                key, value, "is not supported for reservations", f"use one of {', '.join(KEYS)}"
            )
    return found


def _list(key: str, value: str, spelling: str) -> list[tuple[str, str]]:
    names = [name for name in value.split(",") if name]
    for name in names:
        if name.startswith("-"):
            way_out = f"name those who may: {spelling}=NAME"
            raise OptionError(spelling, name, "keeps a name out, which is not supported", way_out)
    return [(key, ",".join(names))]


def _duration(value: str, key: str) -> str:
    if value.lower() in ("unlimited", "infinite", "-1"):
        raise OptionError(key, value, "has no end, and a reservation has one", f"use e.g. {key}=365-0")
    return f"{parse_time_limit(value, key)}s"


def _flags(value: str, key: str) -> list[tuple[str, str]]:
    found = []
    for flag in filter(None, value.upper().split(",")):
        if flag in _FLAGS:
            found.append(_FLAGS[flag])
        elif flag not in _NO_EFFECT:
            way_out = _INSTEAD.get(flag, f"use one of {', '.join(_FLAGS)}")
            raise OptionError(key, flag, "is not supported", way_out)
    return found


KEYS = (
    "ReservationName",
    "StartTime",
    "EndTime",
    "Duration",
    "Nodes",
    "NodeCnt",
    "PartitionName",
    "Features",
    "Users",
    "Accounts",
    "Groups",
    "Flags",
)
"""Keys that are taken, as Slurm spells them."""
