"""The port to a controller's durable store.

Owns the vocabulary (`Batch`, the rows, the errors) and the contract of every adapter; one contract suite runs over all of
them. Invariants: a batch is in the store completely or not at all; the facts of an owner have contiguous revisions from 1;
only the latest epoch of an owner writes; the current rows are exactly the result of replaying the owner's facts.

All times are integer microseconds UTC; 0 in `started_us` and `ended_us` means "not yet". Structs of facts and rows are
array_like: fields are only ever appended. They form no cycles, so the garbage collector skips them.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import ClassVar, Protocol, TypeAlias

import msgspec

CHUNK_ROWS = 1_000
PAGE_ROWS_MAX = 10_000
QUERY_VALUES_MAX = 10_000

Key: TypeAlias = tuple[int | str, ...]


class StoreError(Exception):
    """Anything the store refuses or cannot do."""


class StoreUnavailable(StoreError):
    """Not now: disk full, locked, an I/O error, the server away, a full queue.

    The outcome of a commit that ends this way is unknown; the same batch may be committed again.
    """


class FenceLost(StoreError):
    """Another writer owns this log, or the batch does not continue it: release nothing, exit."""


class LeadershipTaken(StoreError):
    """A claim came too late: the leader lives, or another controller was faster. Nothing has changed."""


class StoreFailed(StoreError):
    """A defect or damage no retry cures: ends the process."""


class SchemaTooNew(StoreFailed):
    """The database was written by a newer release."""


class ForeignStore(StoreFailed):
    """The database belongs to another cluster, or to another owner and is not shared."""


class LogPruned(StoreError):
    """The requested facts were removed from the log: start from the current rows instead."""


class BlobMissing(StoreError):
    """No blob with this hash is stored for this owner."""


class FactRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One decided fact. Its revision and time come from its place in the batch."""

    kind: str
    version: int
    blob: bytes


class LoggedFact(msgspec.Struct, frozen=True, array_like=True):
    """A fact as read back from the log, with the epoch that wrote it."""

    revision: int
    at_us: int
    kind: str
    version: int
    blob: bytes
    epoch: int


class JobRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job's current record. `revision` is its latest fact's; a restart skips `finished` rows."""

    TABLE: ClassVar[str] = "jobs"

    job_id: int
    state: str
    user: str
    partition: str
    name: str
    array_job_id: int
    submitted_us: int
    ended_us: int
    finished: bool
    revision: int
    blob: bytes

    @property
    def key(self) -> Key:
        """The row's key within its owner."""
        return (self.job_id,)


class AttemptRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One attempt of a job, in accounting's form. A job that ended without ever running has attempt 0."""

    TABLE: ClassVar[str] = "attempts"

    job_id: int
    attempt: int
    user: str
    account: str
    partition: str
    name: str
    state: str
    submitted_us: int
    started_us: int
    ended_us: int
    nodes: int
    cores: int
    exit_code: int
    signal: int
    blob: bytes

    @property
    def key(self) -> Key:
        """The row's key within its owner."""
        return (self.job_id, self.attempt)


class StepRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One step of an attempt; the batch script is step `batch`."""

    TABLE: ClassVar[str] = "steps"

    job_id: int
    attempt: int
    step: str
    name: str
    state: str
    started_us: int
    ended_us: int
    exit_code: int
    signal: int
    blob: bytes

    @property
    def key(self) -> Key:
        """The row's key within its owner."""
        return (self.job_id, self.attempt, self.step)


class NodeRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node's current record."""

    TABLE: ClassVar[str] = "nodes"

    number: int
    name: str
    state: str
    blob: bytes

    @property
    def key(self) -> Key:
        """The row's key within its owner."""
        return (self.number,)


class SettingRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One of the few single records of an owner: configuration revision, id lease, address book revision."""

    TABLE: ClassVar[str] = "settings"

    name: str
    blob: bytes

    @property
    def key(self) -> Key:
        """The row's key within its owner."""
        return (self.name,)


class RecordRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One of an owner's many small records, found by kind and name: policies, usage, and others. `revision` is that of its
    latest fact.
    """

    TABLE: ClassVar[str] = "records"

    kind: str
    name: str
    revision: int
    blob: bytes

    @property
    def key(self) -> Key:
        """The row's key within its owner."""
        return (self.kind, self.name)


Row: TypeAlias = JobRow | AttemptRow | StepRow | NodeRow | SettingRow | RecordRow
ROW_TYPES: tuple[type[Row], ...] = (JobRow, AttemptRow, StepRow, NodeRow, SettingRow, RecordRow)


class RowDelete(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Removes one current row; deleting a missing one is no error. `key` is the row's `key`."""

    table: str
    key: Key


RowChange: TypeAlias = Row | RowDelete


class AnswerRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The answer to a client's mutating call, kept under its 16-byte request id. The first answer stays."""

    request_id: bytes
    answer: bytes


class BlobRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A script or environment under its `content_hash`. Putting it again renews its age."""

    hash: bytes
    data: bytes


class Batch(msgspec.Struct, frozen=True):
    """The content of one transaction. `facts[i]` gets revision `revision_first + i`.

    `rows` are upserts and deletes by key, later ones winning. A batch without facts (answers of refused calls) still names
    the next revision and takes none.
    """

    revision_first: int
    at_us: int
    facts: Sequence[FactRow] = ()
    rows: Sequence[RowChange] = ()
    answers: Sequence[AnswerRow] = ()
    blobs: Sequence[BlobRow] = ()

    @property
    def revision_last(self) -> int:
        """The batch's last revision; `revision_first - 1` if it has no facts."""
        return self.revision_first + len(self.facts) - 1


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The end of an owner's log: epoch of its writer, last revision, time of that commit. All 0: no log."""

    epoch: int = 0
    revision: int = 0
    at_us: int = 0


class Leader(msgspec.Struct, frozen=True, array_like=True):
    """The writer of an owner, as in its row; all empty: there was none.

    `beat` rises with every `renew`: a row that does not move for the length of a lease is a dead leader's. No clocks are
    compared. `released`: the holder released it in good order, and `successor` (if any) follows it.
    """

    epoch: int = 0
    revision: int = 0
    at_us: int = 0
    holder: str = ""
    endpoint: str = ""
    beat: int = 0
    released: bool = False
    successor: str = ""


class Claim(msgspec.Struct, frozen=True):
    """A controller's claim to lead. It fails if the row has changed since `seen`.

    `holder` is the controller's name, `endpoint` its future endpoint for links.
    """

    holder: str
    endpoint: str
    seen: Leader


SnapshotRow: TypeAlias = Head | Row


class AccountingQuery(msgspec.Struct, frozen=True):
    """Selection of attempts. Empty or 0 means "any"; all given conditions must hold.

    `job_ids`: these jobs; an array's id stands for the array and all of its tasks. `since_us`: not ended before it.
    `until_us`: submitted before it. `after` is the `next` of the page before. `latest_first`: pages come in descending
    order. Raises ValueError beyond PAGE_ROWS_MAX rows or QUERY_VALUES_MAX ids or states.
    """

    user: str = ""
    job_ids: Sequence[int] = ()
    since_us: int = 0
    until_us: int = 0
    states: Sequence[str] = ()
    limit: int = CHUNK_ROWS
    after: tuple[int, int] | None = None
    steps: bool = False
    partition: str = ""
    name: str = ""
    latest_first: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= PAGE_ROWS_MAX:
            raise ValueError(f"limit {self.limit} is not within 1..{PAGE_ROWS_MAX}")
        if max(len(self.job_ids), len(self.states)) > QUERY_VALUES_MAX:
            raise ValueError(f"more than {QUERY_VALUES_MAX} job ids or states in one query")


class AccountingPage(msgspec.Struct, frozen=True):
    """Attempts in the order of (job id, attempt) that was asked for, with their steps on request; `next` is None on the
    last page.
    """

    attempts: Sequence[AttemptRow]
    steps: Sequence[StepRow] = ()
    next: tuple[int, int] | None = None


class Prune(msgspec.Struct, frozen=True):
    """Limits of retention; 0 keeps everything. One call examines at most `rows_max` rows of each kind.

    `blobs_kept` are the hashes still referred to: an old one among them counts as put again at `now_us`.
    """

    now_us: int
    answers_before_us: int = 0
    blobs_before_us: int = 0
    blobs_kept: Collection[bytes] = frozenset()
    facts_before_revision: int = 0
    rows_max: int = CHUNK_ROWS


class Pruned(msgspec.Struct, frozen=True):
    """Number of rows that a `prune` removed; all 0 when nothing is left to do."""

    answers: int = 0
    blobs: int = 0
    facts: int = 0

    def fills(self, limits: Prune) -> bool:
        """Check whether a call with these limits may have left something."""
        return max(self.answers, self.blobs, self.facts) >= limits.rows_max


def content_hash(data: bytes) -> bytes:
    """The 32-byte SHA-256 under which a script or an environment is stored."""
    return hashlib.sha256(data).digest()


class StoreReader(Protocol):
    """The committed content. Needs no `open`, never waits for the writer; may raise StoreUnavailable."""

    def load_unfinished(
        self, owner: str, chunk_rows: int = CHUNK_ROWS
    ) -> AsyncGenerator[Sequence[SnapshotRow], None]:
        """The current rows as of one revision, in chunks: first the `Head`, then settings, records, nodes,
        unfinished jobs and the attempts and steps of those jobs, each kind in order of its key."""
        ...

    def load_facts(
        self, owner: str, from_revision: int, chunk_rows: int = CHUNK_ROWS
    ) -> AsyncGenerator[Sequence[LoggedFact], None]:
        """The log from a revision to its end as of the call, contiguous; LogPruned if it starts later."""
        ...

    async def leader(self, owner: str) -> Leader:
        """The owner's leader row; an empty one if there is none, or no database yet."""
        ...

    async def find_jobs(self, owner: str, job_ids: Sequence[int]) -> list[JobRow]:
        """The records of these jobs, finished or not, in order of id; unknown ids are left out.

        Raises ValueError for more than QUERY_VALUES_MAX ids."""
        ...

    async def accounting(self, owner: str, query: AccountingQuery) -> AccountingPage:
        """One page of attempts."""
        ...

    async def lookup_request(self, request_id: bytes) -> bytes | None:
        """The answer first given to this request id, None if there is none (any more)."""
        ...

    async def get_blob(self, owner: str, hash_: bytes) -> bytes:
        """A script or environment; BlobMissing if there is none."""
        ...

    async def get_blobs(self, owner: str, hashes: Collection[bytes], bytes_max: int) -> dict[bytes, bytes]:
        """The blobs that exist and have at most `bytes_max` bytes each, by hash; in one query.

        Raises ValueError for more than QUERY_VALUES_MAX hashes.
        """
        ...

    async def size_bytes(self) -> int:
        """Size of the whole store, other owners' parts included; of a store in memory 0."""
        ...


class StoreWriter(Protocol):
    """The only write access of one owner. Batches are committed one at a time, in order.

    A cancelled call may still take effect: treat it as ambiguous.
    """

    async def open(self, owner: str, claim: Claim | None = None) -> int:
        """Raise the owner's epoch durably and return it; a writer under an earlier epoch is fenced off.

        Creates or migrates the schema first. SchemaTooNew, ForeignStore: the database cannot be used. Without a `claim`
        the epoch rises with each leader. LeadershipTaken: the row has changed since the claim.
        """
        ...

    async def renew(self) -> None:
        """Move the leader row's beat as a sign of life. FenceLost: another writer leads."""
        ...

    async def release(self, successor: str = "") -> None:
        """Release the lead, the last action of a writer: a standby need not wait. FenceLost as `renew`."""
        ...

    async def commit(self, batch: Batch) -> None:
        """Write the batch in one transaction, durable on return.

        A batch already committed under this epoch is left as it is and counts as success. FenceLost: another epoch, a
        revision out of sequence, or other facts there. StoreFailed: time went back.
        """
        ...

    async def committed(self, batch: Batch) -> bool:
        """Check whether a batch whose commit was ambiguous is in the store. Same errors as `commit`.

        A batch without facts leaves no trace to find: False, committing it again is harmless.
        """
        ...

    async def prune(self, limits: Prune) -> Pruned:
        """Remove rows beyond the limits, a bounded number at a time, under the same fence as a commit."""
        ...

    async def close(self) -> None:
        """Finish calls under way and release the database. Later calls raise StoreFailed."""
        ...


class Store(StoreWriter, StoreReader, Protocol):
    """A reader and a writer."""
