"""Comparison of the store's rows with the state in memory.

Both move while they are compared: a record that differs is examined again, and it is drift only if its memory stayed the
very same object through all looks and the row still differs. Invariant: memory is compared in slices, the store is read
through its reader, without locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias

import msgspec

from eslurm.core.doctor.finding import ERROR, Finding
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.node import Node
from eslurm.core.model.step import Step
from eslurm.core.state import rows as records
from eslurm.core.state.apply_accounts import Record
from eslurm.core.state.view import View
from eslurm.ports.store import Head, JobRow, NodeRow, RecordRow, Row, SettingRow, StepRow, StoreReader
from eslurm.store.rows import SETTINGS

STORE = "store"
LOOKS = 4
"""Of a record that differs; commits between them are waited for."""
SETTLE_S = 0.1
RECORDS_PER_SLICE = 50
READ_ROWS = 500
FINDINGS_MAX = 100

Key: TypeAlias = tuple[str, int | str, int]
"""(kind, number, job or name, step or 0)"""
_ADVICE = "keep a copy of the store, then restart esctld: its state is rebuilt from there and from what the nodes hold"


class Differs(msgspec.Struct, frozen=True):
    """One record that differs between both sides. `record` is the one in memory, None if there is none."""

    record: Any
    text: str


class RowComparison:
    """One comparison. `settings` gives the state's committed scalars; `pause` yields to other tasks."""

    def __init__(
        self,
        store: StoreReader,
        owner: str,
        view: View,
        settings: Callable[[], bytes | None],
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._owner = owner
        self._view = view
        self._settings = settings
        self._pause = pause

    async def findings(self) -> list[Finding]:
        """The lasting differences. Raises StoreUnavailable."""
        suspects = await self._look(None)
        for _ in range(LOOKS - 1):
            if not suspects:
                return []
            await asyncio.sleep(SETTLE_S)
            again = await self._look(suspects.keys())
            # A record that was replaced meanwhile is moving, not drifting.
            suspects = {key: now for key, now in again.items() if _same(suspects[key].record, now.record)}
        found = [
            Finding(STORE, ERROR, _name(key), one.text, _ADVICE)
            for key, one in sorted(suspects.items(), key=lambda item: (item[0][0], str(item[0][1]).zfill(10)))
        ]
        if len(found) > FINDINGS_MAX:
            rest = Finding(STORE, ERROR, "store", f"{len(found) - FINDINGS_MAX} more records differ", _ADVICE)
            return [*found[:FINDINGS_MAX], rest]
        return found

    async def _look(self, only: Any) -> dict[Key, Differs]:
        """One pass over the rows as of one revision; all records, or only these."""
        found: dict[Key, Differs] = {}
        seen: set[Key] = set()
        rows = self._store.load_unfinished(self._owner, READ_ROWS)
        try:
            async for chunk in rows:
                for at, row in enumerate(chunk):
                    if at % RECORDS_PER_SLICE == 0:
                        await self._pause()
                    if isinstance(row, Head):
                        continue
                    key = _key(row)
                    if key is None or (only is not None and key not in only):
                        continue
                    seen.add(key)
                    differs = self._compare(row)
                    if differs is not None:
                        found[key] = differs
        finally:
            await rows.aclose()
        for at, (key, record) in enumerate(self._expected()):
            if at % RECORDS_PER_SLICE == 0:
                await self._pause()
            if key not in seen and (only is None or key in only):
                found[key] = Differs(record, "is in memory, the store has no row of it")
        return found

    def _expected(self) -> Iterator[tuple[Key, Any]]:
        """Every record that must have a row."""
        view = self._view
        for kind, name in list(view.records):
            if (record := view.records.get((kind, name))) is not None:
                yield (kind, name, 0), record
        for number in list(view.nodes):
            if (node := view.nodes.get(number)) is not None:
                yield ("node", number, 0), node
        for job_id in list(view.jobs):
            if (job := view.jobs.get(job_id)) is not None and not _is_finished(job):
                yield ("job", job_id, 0), job
        for key in list(view.steps):
            if (step := view.steps.get(key)) is not None:
                yield ("step", *key), step

    def _compare(self, row: Row) -> Differs | None:
        view = self._view
        match row:
            case SettingRow():
                now = self._settings()
                return (
                    None
                    if now is None or row.blob == now
                    else Differs(now, "the row of the cluster's scalars differs")
                )
            case RecordRow():
                record = view.records.get((row.kind, row.name))
                return _blob_differs(record, row.blob)
            case NodeRow():
                node = view.nodes.get(row.number)
                if node is not None and (row.name, row.state) != (node.name, node.state.value):
                    return Differs(node, f"its row says {row.name} {row.state}, memory {node.state.value}")
                return _blob_differs(node, row.blob)
            case JobRow():
                job = view.jobs.get(row.job_id)
                if job is None or _is_finished(job) or row.state != job.state.value:
                    told = job.state.value if job is not None else "nothing"
                    return Differs(job, f"its row says {row.state}, memory {told}")
                if (row.user, row.partition, row.name) != (
                    job.spec.user.name,
                    job.spec.partition,
                    job.spec.name,
                ):
                    return Differs(job, f"its row says {row.user} {row.partition} {row.name}")
                return _blob_differs(job, row.blob)
            case StepRow():
                step = view.steps.get((row.job_id, int(row.step)))
                # Rows of steps that have ended stay, for accounting.
                if step is None or step.attempt != row.attempt:
                    return None
                return _blob_differs(step, row.blob)
        return None


def _key(row: Row) -> Key | None:
    match row:
        case SettingRow(name=name):
            return ("settings", 0, 0) if name == SETTINGS else None
        case RecordRow():
            return (row.kind, row.name, 0)
        case NodeRow():
            return ("node", row.number, 0)
        case JobRow():
            return ("job", row.job_id, 0)
        case StepRow():
            return ("step", row.job_id, int(row.step))
    return None


def _name(key: Key) -> str:
    kind, number, step = key
    if kind == "settings":
        return "settings"
    return f"step {number}.{step}" if kind == "step" else f"{kind} {'#' if kind == 'node' else ''}{number}"


def _is_finished(job: Job) -> bool:
    """Check whether a restart would leave the job in the store."""
    return job.state in FINAL and not job.residues


def _blob_differs(record: Job | Node | Step | Record | None, blob: bytes) -> Differs | None:
    if record is None:
        return Differs(None, "has a row, memory does not know it")
    if records.encode(record) == blob:
        return None
    try:
        # The same set can be written in several orders.
        stored = msgspec.msgpack.decode(blob, type=type(record))
    except msgspec.MsgspecError as error:
        return Differs(record, f"its row cannot be decoded: {error}")
    if stored == record:
        return None
    fields = [name for name in record.__struct_fields__ if getattr(stored, name) != getattr(record, name)]
    return Differs(record, f"its row differs from memory in {', '.join(fields)}")


def _same(before: Any, now: Any) -> bool:
    """Check whether memory stayed the same between two looks."""
    return before is now or (isinstance(now, bytes) and before == now)
