"""A database as plain dictionaries: synchronous, single-threaded, nothing on disk.

The in-memory store wraps it in coroutines and the simulator's disk adds forgetting; both get the same
answers as the SQL store. Invariant: a commit applies everything or raises before it changes anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar, cast

import msgspec
from msgspec.structs import replace

from eslurm.ports.store import (
    QUERY_VALUES_MAX,
    AccountingPage,
    AccountingQuery,
    AttemptRow,
    Batch,
    BlobMissing,
    Claim,
    FenceLost,
    ForeignStore,
    Head,
    JobRow,
    Key,
    Leader,
    LeadershipTaken,
    LoggedFact,
    LogPruned,
    NodeRow,
    Prune,
    Pruned,
    RecordRow,
    Row,
    SettingRow,
    SnapshotRow,
    StepRow,
)
from eslurm.store.changes import TABLES, distinct_blobs, net_changes
from eslurm.store.fence import is_next

RowT = TypeVar("RowT", JobRow, AttemptRow, StepRow, NodeRow, SettingRow, RecordRow)


class _Blob(msgspec.Struct, frozen=True):
    data: bytes
    at_us: int


class _Answer(msgspec.Struct, frozen=True):
    owner: str
    at_us: int
    answer: bytes


class _Owner(msgspec.Struct):
    """All data of one owner. `facts` holds revisions `pruned + 1` to `head.revision`."""

    leader: Leader = Leader()
    pruned: int = 0
    facts: list[LoggedFact] = msgspec.field(default_factory=list)
    tables: dict[str, dict[Key, Row]] = msgspec.field(default_factory=lambda: {name: {} for name in TABLES})
    blobs: dict[bytes, _Blob] = msgspec.field(default_factory=dict)

    @property
    def head(self) -> Head:
        return Head(self.leader.epoch, self.leader.revision, self.leader.at_us)


class StoreImage:
    """The contents of one database. Method for method the store's port, with owner and epoch spelled out."""

    def __init__(self, cluster_id: str = "") -> None:
        self.cluster_id = cluster_id
        self._owners: dict[str, _Owner] = {}
        self._answers: dict[bytes, _Answer] = {}

    def open(self, owner: str, claim: Claim | None = None, *, shared: bool = False) -> int:
        """See `StoreWriter.open`. `shared` allows other owners in the same database."""
        others = self._owners.keys() - {owner}
        if others and not shared:
            raise ForeignStore(f"the database belongs to {min(others)}, not to {owner}")
        now = self.leader(owner)
        if claim is not None and claim.seen != now:
            raise LeadershipTaken(f"{owner}: the leader row has moved since it was seen")
        self._owners.setdefault(owner, _Owner()).leader = Leader(
            now.epoch + 1,
            now.revision,
            now.at_us,
            holder=claim.holder if claim else "",
            endpoint=claim.endpoint if claim else "",
        )
        return now.epoch + 1

    def leader(self, owner: str) -> Leader:
        """See `StoreReader.leader`."""
        return self._of(owner).leader

    def renew(self, owner: str, epoch: int) -> None:
        """See `StoreWriter.renew`."""
        mine = self._led_by(owner, epoch)
        mine.leader = replace(mine.leader, beat=mine.leader.beat + 1)

    def release(self, owner: str, epoch: int, successor: str = "") -> None:
        """See `StoreWriter.release`."""
        mine = self._led_by(owner, epoch)
        mine.leader = replace(mine.leader, released=True, successor=successor)

    def head(self, owner: str) -> Head:
        """The end of the owner's log."""
        return self._of(owner).head

    def commit(self, owner: str, epoch: int, batch: Batch) -> None:
        """See `StoreWriter.commit`."""
        if self.committed(owner, epoch, batch):
            return
        changes = net_changes(batch.rows)
        mine = self._owners[owner]
        mine.facts.extend(
            LoggedFact(revision, batch.at_us, fact.kind, fact.version, fact.blob, epoch)
            for revision, fact in enumerate(batch.facts, batch.revision_first)
        )
        for table, rows in changes.items():
            _apply(mine.tables[table], rows)
        for answer in batch.answers:
            self._answers.setdefault(answer.request_id, _Answer(owner, batch.at_us, answer.answer))
        for hash_, data in distinct_blobs(batch.blobs).items():
            mine.blobs[hash_] = _Blob(data, batch.at_us)
        mine.leader = replace(mine.leader, revision=batch.revision_last, at_us=batch.at_us)

    def committed(self, owner: str, epoch: int, batch: Batch) -> bool:
        """See `StoreWriter.committed`."""
        mine = self._of(owner)

        def read_back(first: int, last: int) -> Sequence[LoggedFact]:
            return mine.facts[max(first - mine.pruned - 1, 0) : max(last - mine.pruned, 0)]

        return not is_next(mine.head, owner, epoch, batch, read_back)

    def prune(self, owner: str, epoch: int, limits: Prune) -> Pruned:
        """See `StoreWriter.prune`."""
        mine = self._of(owner)
        self.committed(owner, epoch, Batch(mine.head.revision + 1, mine.head.at_us))
        return Pruned(
            answers=self._prune_answers(owner, limits),
            blobs=_prune_blobs(mine.blobs, limits),
            facts=_prune_facts(mine, limits),
        )

    def load_unfinished(self, owner: str) -> Iterator[SnapshotRow]:
        """See `StoreReader.load_unfinished`; one row at a time."""
        mine = self._of(owner)
        yield mine.head
        yield from _sorted(mine, SettingRow)
        yield from _sorted(mine, RecordRow)
        yield from _sorted(mine, NodeRow)
        jobs = [job for job in _sorted(mine, JobRow) if not job.finished]
        yield from jobs
        alive = {job.job_id for job in jobs}
        yield from (attempt for attempt in _sorted(mine, AttemptRow) if attempt.job_id in alive)
        yield from (step for step in _sorted(mine, StepRow) if step.job_id in alive)

    def load_facts(self, owner: str, from_revision: int) -> Iterator[LoggedFact]:
        """See `StoreReader.load_facts`; one fact at a time."""
        mine = self._of(owner)
        first = max(from_revision, 1)
        if first <= mine.pruned:
            raise LogPruned(f"{owner}: the log starts at revision {mine.pruned + 1}, not at {first}")
        return iter(mine.facts[first - mine.pruned - 1 :])

    def find_jobs(self, owner: str, job_ids: Sequence[int]) -> list[JobRow]:
        """See `StoreReader.find_jobs`."""
        if len(job_ids) > QUERY_VALUES_MAX:
            raise ValueError(f"more than {QUERY_VALUES_MAX} job ids in one query")
        jobs = self._of(owner).tables[JobRow.TABLE]
        return [cast(JobRow, jobs[(job_id,)]) for job_id in sorted(set(job_ids)) if (job_id,) in jobs]

    def accounting(self, owner: str, query: AccountingQuery) -> AccountingPage:
        """See `StoreReader.accounting`."""
        mine = self._of(owner)
        job_ids = _with_tasks(mine, query.job_ids)
        found = [attempt for attempt in _sorted(mine, AttemptRow) if _matches(attempt, query, job_ids)]
        if query.latest_first:
            found.reverse()
        page = found[: query.limit]
        keys = {attempt.key for attempt in page} if query.steps else set()
        return AccountingPage(
            attempts=page,
            steps=[step for step in _sorted(mine, StepRow) if (step.job_id, step.attempt) in keys],
            next=(page[-1].job_id, page[-1].attempt) if len(found) > query.limit else None,
        )

    def lookup_request(self, request_id: bytes) -> bytes | None:
        """See `StoreReader.lookup_request`."""
        answer = self._answers.get(request_id)
        return None if answer is None else answer.answer

    def get_blob(self, owner: str, hash_: bytes) -> bytes:
        """See `StoreReader.get_blob`."""
        blob = self._of(owner).blobs.get(hash_)
        if blob is None:
            raise BlobMissing(f"{owner}: no blob {hash_.hex()}")
        return blob.data

    def get_blobs(self, owner: str, hashes: Collection[bytes], bytes_max: int) -> dict[bytes, bytes]:
        """See `StoreReader.get_blobs`."""
        if len(hashes) > QUERY_VALUES_MAX:
            raise ValueError(f"more than {QUERY_VALUES_MAX} hashes in one query")
        kept = self._of(owner).blobs
        return {
            hash_: kept[hash_].data
            for hash_ in hashes
            if hash_ in kept and len(kept[hash_].data) <= bytes_max
        }

    def _of(self, owner: str) -> _Owner:
        return self._owners.get(owner) or _Owner()

    def _led_by(self, owner: str, epoch: int) -> _Owner:
        mine = self._of(owner)
        if mine.leader.epoch != epoch:
            raise FenceLost(
                f"{owner}: this writer has epoch {epoch}, the store has epoch {mine.leader.epoch}"
            )
        return mine

    def _prune_answers(self, owner: str, limits: Prune) -> int:
        old = [
            request_id
            for request_id, answer in self._answers.items()
            if answer.owner == owner and answer.at_us < limits.answers_before_us
        ][: limits.rows_max]
        for request_id in old:
            del self._answers[request_id]
        return len(old)


def _apply(table: dict[Key, Row], changes: dict[Key, Row | None]) -> None:
    for key, row in changes.items():
        if row is None:
            table.pop(key, None)
        else:
            table[key] = row


def _sorted(owner: _Owner, row_type: type[RowT]) -> Iterator[RowT]:
    table = cast("dict[Key, RowT]", owner.tables[row_type.TABLE])
    return (table[key] for key in sorted(table))


def _with_tasks(owner: _Owner, job_ids: Sequence[int]) -> set[int]:
    """The jobs and, of those that are arrays, their tasks."""
    if not job_ids:
        return set()
    return {*job_ids, *(job.job_id for job in _sorted(owner, JobRow) if job.array_job_id in job_ids)}


def _matches(attempt: AttemptRow, query: AccountingQuery, job_ids: set[int]) -> bool:
    key, after = (attempt.job_id, attempt.attempt), query.after
    return (
        query.user in ("", attempt.user)
        and query.partition in ("", attempt.partition)
        and query.name in ("", attempt.name)
        and (not query.job_ids or attempt.job_id in job_ids)
        and (not query.states or attempt.state in query.states)
        and (attempt.ended_us == 0 or attempt.ended_us >= query.since_us)
        and (query.until_us == 0 or attempt.submitted_us < query.until_us)
        and (after is None or (key < after if query.latest_first else key > after))
    )


def _prune_blobs(blobs: dict[bytes, _Blob], limits: Prune) -> int:
    old = [hash_ for hash_, blob in blobs.items() if blob.at_us < limits.blobs_before_us]
    removed = 0
    for hash_ in sorted(old, key=lambda hash_: blobs[hash_].at_us)[: limits.rows_max]:
        if hash_ in limits.blobs_kept:
            blobs[hash_] = _Blob(blobs[hash_].data, limits.now_us)
        else:
            del blobs[hash_]
            removed += 1
    return removed


def _prune_facts(owner: _Owner, limits: Prune) -> int:
    last = min(limits.facts_before_revision - 1, owner.head.revision)
    count = max(0, min(last - owner.pruned, limits.rows_max))
    del owner.facts[:count]
    owner.pruned += count
    return count
