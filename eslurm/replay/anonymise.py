"""Takes the names out of a log: users, accounts, jobs, comments, directories, nodes, hashes; what happened stays.

Each name becomes the same word wherever it stands, made with a random secret that is forgotten with this object: nobody,
not even its maker, can go back. Invariants: facts and records stay decodable and applicable; every text that is not
known to be harmless is replaced, so a field added later is anonymised before anybody thinks of it.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from eslurm.core.facts import decode_fact, encode_fact
from eslurm.core.job.model import Job
from eslurm.core.node.model import Node
from eslurm.core.records import Settings
from eslurm.core.step.model import Step
from eslurm.ports.store import LoggedFact
from eslurm.replay.base import BasePacker, pieces_of, read_head

WORD_HEX_DIGITS = 12
UID_FIRST = 100_000
UID_SPAN = (1 << 31) - UID_FIRST
ROOT = 0

KEPT: frozenset[tuple[str, str]] = frozenset(
    {
        ("ClusterConfig", "policy"),
        ("ClusterConfig", "relay_grouping"),
        ("Partition", "name"),
        ("JobSpec", "partition"),
        ("Principal", "via"),
        ("Dependency", "kind"),
        ("Dependency", "settled"),
        ("Job", "hold"),
        ("JobHeld", "hold"),
        ("StepEnd", "cause"),
    }
)
"""Texts that say nothing about anybody: (struct, field)."""

WORDS: dict[tuple[str, str], str] = {
    ("ClusterConfig", "cluster"): "cluster",
    ("NodeConfig", "name"): "node",
    ("Partition", "nodes"): "node",
    ("ConfigAccepted", "numbers"): "node",
    ("Node", "name"): "node",
    ("Request", "include"): "node",
    ("Request", "exclude"): "node",
    ("Principal", "name"): "user",
    ("Stop", "by"): "user",
    ("JobSignalled", "by"): "user",
    ("JobSpec", "name"): "job",
    ("JobSpec", "account"): "account",
    ("JobChanged", "was_named"): "job",
    ("StepCreated", "name"): "step",
    ("Step", "name"): "step",
    ("SatelliteChanged", "name"): "satellite",
    ("SatelliteDown", "name"): "satellite",
}
"""What kind of name a field holds: the same name in fields of one kind becomes the same word. Others: `text`."""

UIDS: frozenset[tuple[str, str]] = frozenset(
    {("Principal", "uid"), ("Principal", "gid"), ("Principal", "groups"), ("ClusterConfig", "operators")}
)

_HARMLESS = re.compile(
    r"(missed \d+ heartbeats|dependency [a-z]+:\d+ can never be met|offers \(.*\), configured are \(.*\)|in FAULT for \d+ s)"
)
"""Reasons that the controller gives by itself and that name nobody."""

_TYPES: dict[str, Callable[[bytes], Any]] = {
    "settings": msgspec.msgpack.Decoder(Settings).decode,
    "nodes": msgspec.msgpack.Decoder(Node).decode,
    "jobs": msgspec.msgpack.Decoder(Job).decode,
    "steps": msgspec.msgpack.Decoder(Step).decode,
}
_encoder = msgspec.msgpack.Encoder()


class Anonymiser:
    """`secret` is random and nobody's; drop the object when done."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._known: dict[tuple[str, str | bytes | int], Any] = {}

    def fact(self, fact: LoggedFact) -> LoggedFact:
        """The same fact without names. Raises `msgspec.ValidationError` for what is none."""
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
        """What stands for a name; nothing stays nothing."""
        if not name:
            return name
        known = self._known.get((kind, name))
        if known is None:
            known = f"{kind}-{self._mac(kind, name.encode('utf-8', 'surrogatepass')).hex()[:WORD_HEX_DIGITS]}"
            self._known[kind, name] = known
        return str(known)

    def _mac(self, kind: str, data: bytes) -> bytes:
        return hmac.digest(self._secret, kind.encode() + b"\0" + data, hashlib.sha256)

    def _struct(self, struct: Any) -> Any:
        kind = type(struct).__name__
        changed = {}
        for name in struct.__struct_fields__:
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
