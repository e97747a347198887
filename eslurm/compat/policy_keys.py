"""The keys of policies: the word of each field, its reader, and its output.

One table for every kind. Invariant: a key's output, read again, is the same value (a reservation's nodes are its names
then). Texts hold group names, records their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from eslurm.compat.access import parse_access
from eslurm.compat.amounts import parse_amount
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.hostlist import expand, fold
from eslurm.compat.lengths import length_text, parse_length
from eslurm.compat.moments import parse_moment
from eslurm.compat.policy_values import read_default
from eslurm.compat.validity import parse_validity, validity_text
from eslurm.core.model.accounts import EVERYONE, Access, Policy, Validity
from eslurm.core.model.features import WORD_CHARS
from eslurm.core.model.messages import ReservedNodes, ReservedTime

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,62}")
PREEMPT_MODES = ("off", "requeue", "cancel", "suspend")
RESERVATION_FLAGS = ("ignore_running",)
RESOURCE_WORDS: Mapping[str, str] = {
    "ncpus": "cores",
    "cpus": "cores",
    "cpu": "cores",
    "mem": "memory_mib",
    "memory": "memory_mib",
    "gpus": "gpu",
}
"""Other names of resources, as users of Slurm and PBS know them."""
_TEXT_MAX = 200
_FEATURE_MAX = 63
_NUMBER_MAX = 2**31 - 1
_GID_MAX = 2**32 - 2
_FACTOR_MAX = 1e6


class Site(msgspec.Struct, frozen=True):
    """The context of reading texts: the present, the zone, and the names of groups."""

    now_us: int
    offset_s: Callable[[int], int]
    gid_of: Callable[[str], str]
    """A group's number as text; raises KeyError for an unknown name."""
    group_of: Callable[[str], str]
    """The way back; the number itself when it has no name."""


class Draft:
    """A change while its settings are read."""

    def __init__(self, site: Site, policy: Policy) -> None:
        self.site = site
        self.policy: Any = policy
        self.values: dict[str, Any] = {}
        self.choose = ReservedNodes(0)
        self.chooses = False
        self.time: ReservedTime | None = None

    @property
    def resource(self) -> str:
        """The resource of its amounts."""
        return str(self.values.get("resource", getattr(self.policy, "resource", "")))


Read: TypeAlias = Callable[[Draft, str, str], Any]
Show: TypeAlias = Callable[[Any, Site], str]


class Key:
    """Reader and output of one key. Without a `field` the reader stores the value itself."""

    __slots__ = ("field", "is_list", "read", "show")

    def __init__(self, field: str, read: Read, show: Show | None = None, *, is_list: bool = False) -> None:
        self.field = field
        self.read = read
        self.show = show
        self.is_list = is_list


# ---- values ----


def _name(draft: Draft, text: str, key: str) -> str:
    if text and not NAME.fullmatch(text):
        raise OptionError(key, text, "is not a name", "use letters, digits and _ . @ -")
    return text


def _names(draft: Draft, text: str, key: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if not NAME.fullmatch(name):
            raise OptionError(key, name, "is not a name", f"use e.g. {key}=ada,bob")
    return names


def _groups(draft: Draft, text: str, key: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_gid(draft, name, key) for name in _names(draft, text, key)))


def _gid(draft: Draft, name: str, key: str) -> str:
    if name == EVERYONE or 0 <= whole_number(name, 10) <= _GID_MAX:
        return name
    try:
        return draft.site.gid_of(name)
    except KeyError:
        raise OptionError(key, name, "is no group here", "use a group that `getent group` knows") from None


def _resource(draft: Draft, text: str, key: str) -> str:
    if text != EVERYONE and not NAME.fullmatch(text):
        raise OptionError(key, text, "is not the name of a resource", f"use e.g. {key}=cores")
    return RESOURCE_WORDS.get(text.lower(), text)


def _number(draft: Draft, text: str, key: str) -> int:
    number = whole_number(text, 10)
    if not 0 <= number <= _NUMBER_MAX:
        raise OptionError(key, text, f"is not a number from 0 to {_NUMBER_MAX}", f"use e.g. {key}=10")
    return number


def _shares(draft: Draft, text: str, key: str) -> int:
    shares = _number(draft, text, key)
    if not shares:
        raise OptionError(key, text, "is no share", f"use {key}=1 or more")
    return shares


def _factor(draft: Draft, text: str, key: str) -> float:
    whole, dot, fraction = text.partition(".")
    if whole_number(whole, 7) < 0 or (dot and whole_number(fraction, 6) < 0) or float(text) > _FACTOR_MAX:
        raise OptionError(key, text, "is not a factor from 0 to 1000000", f"use e.g. {key}=0.5")
    return float(text)


def _text(draft: Draft, text: str, key: str) -> str:
    if not text.isprintable() or len(text) > _TEXT_MAX:
        raise OptionError(key, text, "is not a short text on one line", f"use at most {_TEXT_MAX} characters")
    return text


def _feature(draft: Draft, text: str, key: str) -> str:
    if len(text) > _FEATURE_MAX or not WORD_CHARS.issuperset(text):
        raise OptionError(key, text, "is not a feature", f"use one that esinfo -N -l shows, e.g. {key}=ib")
    return text


def _length(draft: Draft, text: str, key: str) -> int:
    return parse_length(text, key)


def _grace(draft: Draft, text: str, key: str) -> int:
    return -1 if text.lower() == "site" else parse_length(text, key)


def _yes(draft: Draft, text: str, key: str) -> bool:
    known = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
    if text.lower() not in known:
        raise OptionError(key, text, "is neither yes nor no", f"use {key}=yes or {key}=no")
    return known[text.lower()]


def _one_of(*words: str) -> Read:
    def read(draft: Draft, text: str, key: str) -> str:
        if text.lower() not in words:
            raise OptionError(key, text, "is unknown", f"use one of {', '.join(words)}")
        return text.lower()

    return read


def _flags(draft: Draft, text: str, key: str) -> tuple[str, ...]:
    known = _one_of(*RESERVATION_FLAGS)
    return tuple(str(known(draft, flag, key)) for flag in _names(draft, text, key))


def _validity(draft: Draft, text: str, key: str) -> Validity:
    return parse_validity(text, key, draft.site.offset_s)


def _amount(draft: Draft, text: str, key: str) -> Any:
    return parse_amount(text, key, draft.resource)


def _access(draft: Draft, text: str, key: str) -> tuple[Access, ...]:
    ways = parse_access(text, draft.resource or "cores", key)
    return tuple(replace(way, groups=tuple(_gid(draft, one, key) for one in way.groups)) for way in ways)


def _folded(draft: Draft, text: str, key: str) -> str:
    return fold(expand(text, key)) if text else ""


def _nodes(draft: Draft, text: str, key: str) -> tuple[str, ...]:
    """Names, or a number of nodes: then the controller chooses them."""
    count = 0 if text.lower() == "all" else whole_number(text, 7)
    if count < 0:
        return expand(text, key)
    if text.isdigit() and not count:
        raise OptionError(key, text, "are none", f"give a number, names or all: {key}=4")
    draft.chooses = True
    draft.choose = replace(draft.choose, count=count)
    return ()


def _chosen_by(field: str, check: Read) -> Read:
    def read(draft: Draft, text: str, key: str) -> None:
        check(draft, text, key)
        draft.chooses = True
        draft.choose = replace(draft.choose, **{field: text})

    return read


def _at(field: str) -> Read:
    def read(draft: Draft, text: str, key: str) -> None:
        at_us = parse_moment(text, draft.site.now_us, draft.site.offset_s, key)
        draft.time = replace(draft.time or ReservedTime(), **{field: at_us})

    return read


def _lasts(draft: Draft, text: str, key: str) -> None:
    seconds = parse_length(text, key)
    if not seconds:
        raise OptionError(key, text, "is no length of time", f"use e.g. {key}=4h")
    draft.time = replace(draft.time or ReservedTime(), duration_s=seconds)


def _consumer(kind: str) -> Read:
    def read(draft: Draft, text: str, key: str) -> None:
        if "consumer" in draft.values:
            raise OptionError(
                key, text, "is a second consumer", "name one: write another policy for the other"
            )
        name = _gid(draft, text, key) if kind == "group" else text
        if name != EVERYONE and not NAME.fullmatch(name):
            raise OptionError(key, text, "is not a name", f"use e.g. {key}=ada, or {key}=* for each of them")
        draft.values["kind"], draft.values["consumer"] = kind, name

    return read


def _default(field: str, option: str) -> Read:
    def read(draft: Draft, text: str, key: str) -> None:
        value = read_default(option, text, key) if text else ""
        draft.values[field] = (*draft.values.get(field, ()), (option, value))

    return read


# ---- showing ----


def _plain(value: Any, site: Site) -> str:
    return str(value)


def _joined(value: Any, site: Site) -> str:
    return ",".join(value)


def _group_names(value: Any, site: Site) -> str:
    return ",".join(map(site.group_of, value))


def _yes_or_no(value: Any, site: Site) -> str:
    return "yes" if value else "no"


def _length_shown(value: Any, site: Site) -> str:
    return "site" if value < 0 else length_text(value)


def _factor_shown(value: Any, site: Site) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _validity_shown(value: Any, site: Site) -> str:
    return validity_text(value, site.offset_s)


_VALIDITY = Key("validity", _validity, _validity_shown)
_NAMED_CONSUMERS = ("user", "group", "account", "qos", "partition")
DEFAULT_OPTIONS = ("time", "partition", "account", "qos", "mem-per-cpu", "constraint", "nice", "requeue")
FORCE = "force."


def _list(field: str, read: Read = _names, show: Show = _joined) -> Key:
    return Key(field, read, show, is_list=True)


KEYS: Mapping[str, Mapping[str, Key]] = {
    "account": {
        "parent": Key("parent", _name, _plain),
        "shares": Key("shares", _shares, _plain),
        "coordinators": _list("coordinators"),
        "description": Key("description", _text, _plain),
        "organization": Key("organization", _text, _plain),
        "validity": _VALIDITY,
    },
    "user": {
        "accounts": _list("accounts"),
        "shares": Key("shares", _shares, _plain),
        "qos": _list("qos"),
        "validity": _VALIDITY,
    },
    "qos": {
        "priority": Key("priority", _number, _plain),
        "preempts": _list("preempts"),
        "preempt_mode": Key("preempt_mode", _one_of(*PREEMPT_MODES), _plain),
        "preempt_grace": Key("preempt_grace_s", _grace, _length_shown),
        "preempt_exempt": Key("preempt_exempt_s", _length, _length_shown),
        "usage_factor": Key("usage_factor", _factor, _factor_shown),
        "time_max": Key("time_limit_max_s", _length, _length_shown),
        "description": Key("description", _text, _plain),
    },
    "limit": {
        **{kind: Key("", _consumer(kind)) for kind in _NAMED_CONSUMERS},
        "resource": Key("resource", _resource, _plain),
        "items": Key("amount", _amount),
        "duration": Key("duration_s", _length, _length_shown),
        "area": Key("area_s", _length, _length_shown),
        "validity": _VALIDITY,
    },
    "pool": {
        "resource": Key("resource", _resource, _plain),
        "items": Key("amount", _amount),
        "access": Key("access", _access),
        "nodes": Key("nodes", _folded, _plain),
        "feature": Key("feature", _feature, _plain),
        "validity": _VALIDITY,
    },
    "reservation": {
        "nodes": Key("nodes", _nodes, lambda value, _: fold(value)),
        "partition": Key("", _chosen_by("partition", _name)),
        "feature": Key("", _chosen_by("feature", _feature)),
        "start": Key("", _at("start_us")),
        "end": Key("", _at("end_us")),
        "duration": Key("", _lasts),
        "validity": _VALIDITY,
        "users": _list("users"),
        "groups": _list("groups", _groups, _group_names),
        "accounts": _list("accounts"),
        "maintenance": Key("maintenance", _yes, _yes_or_no),
        "flags": _list("flags", _flags),
    },
    "defaults": {
        **{kind: Key("", _consumer(kind)) for kind in ("user", "group")},
        **{option: Key("", _default("values", option)) for option in DEFAULT_OPTIONS},
        **{FORCE + option: Key("", _default("forced", option)) for option in DEFAULT_OPTIONS},
    },
}
"""Per kind its keys, in the order in which they are shown."""
