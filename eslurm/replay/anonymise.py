"""Removes the names from a log: users, accounts, jobs, comments, directories, nodes, hashes; the events stay.

Each name becomes the same word wherever it stands, made with a random secret that is forgotten with this object: the
mapping cannot be reversed, not even by its maker. Invariants: facts and records stay decodable and applicable; every text
that is not known to be harmless is replaced, so a field added later is anonymised by default.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import msgspec

from eslurm.core.model.accounts import EVERYONE, Defaults, FreePool, Limit
from eslurm.core.model.crontab import CRONTAB
from eslurm.core.model.facts import PolicyRemoved, decode_fact, encode_fact
from eslurm.core.model.hostlist import unfold
from eslurm.core.model.job import Job
from eslurm.core.model.member import JOIN_TOKEN, MEMBER, REVOCATION, JoinToken, Member, Revocation
from eslurm.core.model.node import Node
from eslurm.core.model.promise import PROMISE
from eslurm.core.model.step import Step
from eslurm.core.model.token import TOKEN
from eslurm.core.state.apply_accounts import USAGE
from eslurm.core.state.rows import Settings, decode_record
from eslurm.ports.store import LoggedFact
from eslurm.replay.base import POLICIES, BasePacker, pieces_of, read_head

WORD_HEX_DIGITS = 12
UID_FIRST = 100_000
UID_SPAN = (1 << 31) - UID_FIRST
ROOT = 0

KEPT: frozenset[tuple[str, str]] = frozenset(
    {
        ("ClusterConfig", "policy"),
        ("ClusterConfig", "relay_grouping"),
        ("ClusterConfig", "private"),
        ("Partition", "name"),
        ("Partition", "role"),
        ("PartSpec", "role"),
        ("Module", "kind"),
        ("GatewayRequest", "plugin"),
        ("JobSpec", "partition"),
        ("Principal", "via"),
        ("Dependency", "kind"),
        ("Dependency", "settled"),
        ("Job", "hold"),
        ("JobHeld", "hold"),
        ("StepEnd", "cause"),
        ("Request", "place"),
        ("Partition", "preempt_mode"),
        ("Validity", "cron"),
        ("JobSpec", "cron"),
        ("Qos", "preempt_mode"),
        ("Limit", "kind"),
        ("Defaults", "kind"),
        ("Reservation", "flags"),
        ("PolicyRemoved", "kind"),
        ("RetryRequest", "causes"),
        ("Retried", "cause"),
        ("Principal", "scope"),
        ("IssuedToken", "scope"),
        ("IssuedToken", "via"),
        ("JoinToken", "role"),
        ("Member", "role"),
        ("Revocation", "role"),
    }
)
"""Texts without personal data: (struct, field)."""

WORDS: dict[tuple[str, str], str] = {
    ("ClusterConfig", "cluster"): "cluster",
    ("NodeConfig", "name"): "node",
    ("ClusterConfig", "login_nodes"): "node",
    ("Partition", "nodes"): "node",
    ("ConfigAccepted", "numbers"): "node",
    ("Node", "name"): "node",
    ("Request", "include"): "node",
    ("Request", "exclude"): "node",
    ("Principal", "name"): "user",
    ("Stop", "by"): "user",
    ("JobSignalled", "by"): "user",
    ("PartFinished", "by"): "user",
    ("JobSpec", "name"): "job",
    ("JobSpec", "account"): "account",
    ("JobChanged", "was_named"): "job",
    ("StepCreated", "name"): "step",
    ("Step", "name"): "step",
    ("SatelliteChanged", "name"): "satellite",
    ("SatelliteDown", "name"): "satellite",
    ("JobsForecast", "model"): "model",
    ("AttemptSuspended", "by"): "user",
    ("JobSpec", "qos"): "qos",
    ("JobSpec", "reservation"): "reservation",
    ("Account", "name"): "account",
    ("Account", "parent"): "account",
    ("Account", "coordinators"): "user",
    ("User", "name"): "user",
    ("User", "accounts"): "account",
    ("User", "qos"): "qos",
    ("Qos", "name"): "qos",
    ("Qos", "preempts"): "qos",
    ("Limit", "name"): "limit",
    ("FreePool", "name"): "pool",
    ("Access", "users"): "user",
    ("Access", "accounts"): "account",
    ("Access", "qos"): "qos",
    ("Reservation", "name"): "reservation",
    ("Reservation", "nodes"): "node",
    ("Reservation", "users"): "user",
    ("Reservation", "accounts"): "account",
    ("Defaults", "name"): "defaults",
    ("Usage", "account"): "account",
    ("Usage", "user"): "user",
    ("Resource", "name"): "resource",
    ("Request", "per_node"): "resource",
    ("Request", "per_task"): "resource",
    ("Request", "wide"): "resource",
    ("Chunk", "resources"): "resource",
    ("NodeRule", "nodes"): "node",
    ("NodeRule", "resources_min"): "resource",
    ("PriorityWeights", "billing"): "resource",
    ("Switch", "nodes"): "node",
    ("Limit", "resource"): "resource",
    ("FreePool", "resource"): "resource",
    ("IssuedToken", "user"): "user",
    ("IssuedToken", "by"): "user",
    ("TokensRevoked", "by"): "user",
    ("Crontab", "user"): "user",
    ("JoinToken", "by"): "user",
    ("JoinTokensEnded", "by"): "user",
    ("Member", "by"): "user",
    ("Revocation", "by"): "user",
}
"""The kind of name that a field holds: the same name in fields of one kind becomes the same word. Others: `text`."""

GIDS: frozenset[tuple[str, str]] = frozenset({("Access", "groups"), ("Reservation", "groups")})
"""Group ids as text."""

PLAIN_RESOURCES = frozenset({"*", "cores", "memory_mib", "nodes", "jobs", "arrayjobs", "gpu"})
"""Resources that every site has."""

UIDS: frozenset[tuple[str, str]] = frozenset(
    {
        ("Principal", "uid"),
        ("Principal", "gid"),
        ("Principal", "groups"),
        ("ClusterConfig", "operators"),
        ("ClusterConfig", "administrators"),
        ("IssuedToken", "uid"),
        ("Crontab", "uid"),
        ("IssuedToken", "by_uid"),
        ("JoinToken", "by_uid"),
    }
)

_HARMLESS = re.compile(
    r"(missed \d+ heartbeats|dependency [a-z]+:\d+(_\d+)? can never be met|offers \(.*\), configured are \(.*\)|"
    r"in FAULT for \d+ s)"
)
"""Reasons that the controller gives by itself and that name no user."""

_TYPES: dict[str, Callable[[bytes], Any]] = {
    "settings": msgspec.msgpack.Decoder(Settings).decode,
    "nodes": msgspec.msgpack.Decoder(Node).decode,
    "jobs": msgspec.msgpack.Decoder(Job).decode,
    "steps": msgspec.msgpack.Decoder(Step).decode,
    POLICIES: partial(decode_record, POLICIES),
    USAGE: partial(decode_record, USAGE),
    PROMISE: partial(decode_record, PROMISE),
    TOKEN: partial(decode_record, TOKEN),
    CRONTAB: partial(decode_record, CRONTAB),
    JOIN_TOKEN: partial(decode_record, JOIN_TOKEN),
    MEMBER: partial(decode_record, MEMBER),
    REVOCATION: partial(decode_record, REVOCATION),
}
_encoder = msgspec.msgpack.Encoder()


class Anonymiser:
    """`secret` is random and kept nowhere; drop the object when done."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._known: dict[tuple[str, str | bytes | int], Any] = {}

    def fact(self, fact: LoggedFact) -> LoggedFact:
        """The same fact without names. Raises `msgspec.ValidationError` for an invalid one."""
        content = self._struct(decode_fact(fact.kind, fact.version, fact.blob))
        return LoggedFact(fact.revision, fact.at_us, *encode_fact(content), fact.epoch)

    def base(self, data: bytes) -> bytes:
        """The same base state without names. Raises `BadBase`, `msgspec.ValidationError`."""
        head = read_head(data)
        packer = BasePacker(head.revision, head.now_us)
        for kind, blobs in pieces_of(data):
            decode = _TYPES[kind]
            packer.add(kind, [_encoder.encode(self._struct(decode(blob))) for blob in blobs])
        return packer.finish()

    def word(self, kind: str, name: str) -> str:
        """The word for a name; an empty name stays empty."""
        if not name or (kind == "resource" and name in PLAIN_RESOURCES):
            return name
        known = self._known.get((kind, name))
        if known is None:
            known = f"{kind}-{self._mac(kind, name.encode('utf-8', 'surrogatepass')).hex()[:WORD_HEX_DIGITS]}"
            self._known[kind, name] = known
        return str(known)

    def _mac(self, kind: str, data: bytes) -> bytes:
        return hmac.digest(self._secret, kind.encode() + b"\0" + data, hashlib.sha256)

    def _struct(self, struct: Any) -> Any:
        special = self._named_by_kind(struct)
        if special:
            return msgspec.structs.replace(self._fields(struct, special.keys()), **special)
        return self._fields(struct, ())

    def _named_by_kind(self, struct: Any) -> dict[str, Any]:
        """Fields whose meaning depends on another field."""
        match struct:
            case Limit():
                return {"consumer": self._named(struct.kind, struct.consumer)}
            case Defaults():
                return {
                    "consumer": self._named(struct.kind, struct.consumer),
                    "values": tuple((option, self._named(option, text)) for option, text in struct.values),
                    "forced": tuple((option, self._named(option, text)) for option, text in struct.forced),
                }
            case FreePool(nodes=nodes) if nodes:
                return {"nodes": ",".join(self.word("node", name) for name in unfold(nodes))}
            case JoinToken() | Member() | Revocation():
                return {"names": ",".join(self.word("node", name) for name in unfold(struct.names))}
            case PolicyRemoved():
                return {"name": self.word(struct.kind, struct.name)}
        return {}

    def _named(self, kind: str, name: str) -> str:
        """A consumer of some kind, or the value of an option."""
        if name == EVERYONE or kind in ("partition", "time", "mem-per-cpu", "nice", "requeue"):
            return name
        if kind == "group":
            return self._gid(name)
        return self.word(kind if kind in ("user", "account", "qos") else "text", name)

    def _gid(self, text: str) -> str:
        return str(self._uid(int(text))) if text.isdecimal() else self.word("group", text)

    def _fields(self, struct: Any, but: Collection[str]) -> Any:
        kind = type(struct).__name__
        changed = {}
        for name in struct.__struct_fields__:
            if name in but:
                continue
            old = getattr(struct, name)
            new = self._value(old, kind, name)
            if new is not old:
                changed[name] = new
        return msgspec.structs.replace(struct, **changed) if changed else struct

    def _value(self, value: Any, struct: str, field: str) -> Any:
        place = (struct, field)
        match value:
            case None | bool() | float() | enum.Enum():
                return value
            case int():
                return self._uid(value) if place in UIDS else value
            case str():
                if place in KEPT:
                    return value
                if place in GIDS:
                    return self._gid(value)
                kind = WORDS.get(place, "text")
                return value if kind == "text" and _HARMLESS.fullmatch(value) else self.word(kind, value)
            case bytes():
                return self._mac("bytes", value)[: len(value)]
            case tuple() | list():
                each = [self._value(one, struct, field) for one in value]
                same = all(new is old for new, old in zip(each, value, strict=True))
                return value if same else type(value)(each)
            case frozenset():
                return frozenset(map(partial(self._value, struct=struct, field=field), value))
            case _:
                return self._struct(value)

    def _uid(self, uid: int) -> int:
        """Another number for a user or a group; root stays root."""
        if uid == ROOT:
            return uid
        known = self._known.get(("uid", uid))
        if known is None:
            number = int.from_bytes(self._mac("uid", uid.to_bytes(8, "big", signed=True))[:8], "big")
            known = self._known["uid", uid] = UID_FIRST + number % UID_SPAN
        return known
