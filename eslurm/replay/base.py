"""A base state: the whole cluster as of one revision, as bytes, so that the log before it may be removed.

Invariant: the result of `unpack_base` equals the state after all facts up to its revision, but for finished jobs when it
was packed from rows (a restart leaves those in the store, too). Packed piece by piece: no copy of a large state is ever
held, and the interpreter is held for one piece at a time.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from eslurm.core.model.crontab import CRONTAB
from eslurm.core.model.member import JOIN_TOKEN, MEMBER, REVOCATION
from eslurm.core.model.promise import PROMISE
from eslurm.core.model.token import TOKEN
from eslurm.core.state import rows as records
from eslurm.core.state.apply_accounts import USAGE
from eslurm.core.state.cluster import State
from eslurm.ports.store import JobRow, NodeRow, RecordRow, Row, SettingRow, StepRow

BASE_VERSION = 1
RECORDS_PER_PIECE = 500
POLICIES = "policies"
RECORDS = (POLICIES, USAGE, PROMISE, TOKEN, CRONTAB, JOIN_TOKEN, MEMBER, REVOCATION)
"""Kinds that are rows of one table: `POLICIES` stands for all kinds of policies."""
SETTINGS = "state"
"""Name of the settings row that holds the state's scalars."""

_LENGTH = struct.Struct(">I")
_PIECE_BYTES_MAX = 1 << 30


class BadBase(Exception):
    """These bytes are no base state, or one of a newer release."""


class BaseHead(msgspec.Struct, frozen=True, array_like=True):
    """Format version, revision and time (UTC microseconds) of a base state."""

    version: int
    revision: int
    now_us: int


class _Piece(msgspec.Struct, frozen=True, array_like=True):
    """Encoded records of one kind: settings, nodes, jobs, steps, policies, usage, promises, tokens or members."""

    kind: str
    blobs: list[bytes]


_encoder = msgspec.msgpack.Encoder()
_heads = msgspec.msgpack.Decoder(BaseHead)
_pieces = msgspec.msgpack.Decoder(_Piece)


class BasePacker:
    """Takes encoded records in any order and number; `finish` gives the base state."""

    def __init__(self, revision: int, now_us: int) -> None:
        self._deflate = zlib.compressobj(6)
        self._packed: list[bytes] = []
        self._put(_encoder.encode(BaseHead(BASE_VERSION, revision, now_us)))

    def add(self, kind: str, blobs: Sequence[bytes]) -> None:
        """Some records of one kind. Takes CPU time in proportion: call it off the event loop."""
        for at in range(0, len(blobs), RECORDS_PER_PIECE):
            self._put(_encoder.encode(_Piece(kind, list(blobs[at : at + RECORDS_PER_PIECE]))))

    def add_rows(self, rows: Sequence[Row]) -> None:
        """Add rows in the store's form; kinds outside the state are left out."""
        for kind, row_type in (("nodes", NodeRow), ("jobs", JobRow), ("steps", StepRow)):
            blobs = [row.blob for row in rows if isinstance(row, row_type)]
            if blobs:
                self.add(kind, blobs)
        kept = [row for row in rows if isinstance(row, RecordRow)]
        for kind, same in groupby(kept, lambda row: row.kind if row.kind in RECORDS else POLICIES):
            self.add(kind, [row.blob for row in same])
        settings = [row.blob for row in rows if isinstance(row, SettingRow) and row.name == SETTINGS]
        if settings:
            self.add("settings", settings)

    def finish(self) -> bytes:
        """The whole of it, compressed."""
        self._packed.append(self._deflate.flush())
        return b"".join(self._packed)

    def _put(self, piece: bytes) -> None:
        self._packed.append(self._deflate.compress(_LENGTH.pack(len(piece)) + piece))


def pack_base(state: State) -> bytes:
    """The state as a base state."""
    packer = BasePacker(state.revision, state.now_us)
    packer.add("settings", [records.encode(records.settings_of(state))])
    policies = (policy for named in state.policies.values() for policy in named.values())
    packer.add(POLICIES, [records.encode(policy) for policy in policies])
    packer.add(USAGE, [records.encode(usage) for usage in state.usage.values()])
    packer.add(PROMISE, [records.encode(promise) for promise in state.promises.values()])
    packer.add(TOKEN, [records.encode(token) for token in state.tokens.values()])
    packer.add(CRONTAB, [records.encode(crontab) for crontab in state.crontabs.values()])
    members = state.members
    packer.add(JOIN_TOKEN, [records.encode(token) for token in members.tokens.values()])
    packer.add(MEMBER, [records.encode(member) for member in members.issued.values()])
    packer.add(REVOCATION, [records.encode(revoked) for revoked in members.revoked.values()])
    packer.add("nodes", [records.encode(node) for node in state.nodes.values()])
    packer.add("jobs", [records.encode(job) for job in state.jobs.values()])
    packer.add("steps", [records.encode(step) for step in state.steps.values()])
    return packer.finish()


def read_head(data: bytes) -> BaseHead:
    """The head of a base state, without unpacking it. Raises `BadBase`."""
    for piece in _split(data):
        return _head(piece)
    raise BadBase("the base state is empty")


def unpack_base(owner: str, data: bytes) -> State:
    """The state. Raises `BadBase`."""
    pieces = _split(data)
    first = next(pieces, None)
    if first is None:
        raise BadBase("the base state is empty")
    head = _head(first)
    found: dict[str, list[bytes]] = {kind: [] for kind in ("settings", *RECORDS, "nodes", "jobs", "steps")}
    try:
        for raw in pieces:
            piece = _pieces.decode(raw)
            found.setdefault(piece.kind, []).extend(piece.blobs)
        settings = found["settings"]
        return records.restore(
            owner,
            settings[0] if settings else None,
            found["nodes"],
            found["jobs"],
            found["steps"],
            head.revision,
            head.now_us,
            [(kind, blob) for kind in RECORDS for blob in found[kind]],
        )
    except msgspec.MsgspecError as error:
        raise BadBase(f"the base state holds what is no record: {error}") from None


def pieces_of(data: bytes) -> Iterable[tuple[str, list[bytes]]]:
    """The records of a base state by kind, piece by piece. Raises `BadBase`."""
    pieces = _split(data)
    next(pieces, None)
    for raw in pieces:
        piece = _pieces.decode(raw)
        yield piece.kind, piece.blobs


def _head(piece: bytes) -> BaseHead:
    try:
        head = _heads.decode(piece)
    except msgspec.MsgspecError as error:
        raise BadBase(f"not a base state: {error}") from None
    if head.version > BASE_VERSION:
        raise BadBase(f"a base state of version {head.version}; this release knows up to {BASE_VERSION}")
    return head


def _split(data: bytes) -> Iterator[bytes]:
    """The pieces in order, inflated on demand."""
    inflate = zlib.decompressobj()
    held = b""
    at = 0
    step = 1 << 16
    try:
        while at < len(data) or len(held) >= _LENGTH.size:
            while len(held) >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(held)
                if length > _PIECE_BYTES_MAX:
                    raise BadBase(f"a piece of {length} bytes")
                if len(held) < _LENGTH.size + length:
                    break
                yield held[_LENGTH.size : _LENGTH.size + length]
                held = held[_LENGTH.size + length :]
            if at >= len(data):
                break
            held += inflate.decompress(data[at : at + step])
            at += step
        held += inflate.flush()
    except zlib.error as error:
        raise BadBase(f"the base state is damaged: {error}") from None
    if held or not inflate.eof:
        raise BadBase("the base state is cut short")
