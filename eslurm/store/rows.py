"""A batch of the core as one transaction of the store: its facts, the rows of every touched record, answers and blobs.

The controller and the simulator both use it, so both write the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from eslurm.core.control.commit_pipeline import Commit
from eslurm.core.control.reactor import Batch
from eslurm.core.model.facts import encode_fact
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.node import Node
from eslurm.core.model.parts import partition_of, spans_by_part, user_parts, user_spans
from eslurm.core.model.retry_words import OOM
from eslurm.core.model.segment import Segment
from eslurm.core.model.step import Step
from eslurm.core.state import rows as records
from eslurm.core.state.allocation_amounts import borrowed_core_us, limit_s
from eslurm.core.state.apply_accounts import find_record
from eslurm.core.state.cluster import State
from eslurm.core.state.segments import segments_of
from eslurm.ports import store

SETTINGS = "state"

_encode_answer = msgspec.msgpack.Encoder().encode


def transaction_of(state: State, commit: Commit) -> store.Batch:
    """The transaction of a commit: its batch, answers by request id, and extra rows and blobs."""
    answers = [store.AnswerRow(request_id, _encode_answer(answer)) for request_id, answer in commit.answers]
    durable = to_store(state, commit.batch, answers, commit.blobs)
    if commit.rows:
        durable = msgspec.structs.replace(durable, rows=[*durable.rows, *commit.rows])
    return durable


def to_store(
    state: State,
    batch: Batch,
    answers: Sequence[store.AnswerRow] = (),
    blobs: Sequence[store.BlobRow] = (),
) -> store.Batch:
    """All writes of the batch, in one transaction."""
    touched = batch.touched
    rows: list[store.RowChange] = []
    if touched.settings:
        rows.append(store.SettingRow(SETTINGS, records.encode(records.settings_of(state))))
    rows.extend(_record_row(state, kind, name) for kind, name in touched.records)
    for number in touched.nodes:
        node = state.nodes.get(number)
        rows.append(_node_row(node) if node is not None else store.RowDelete("nodes", (number,)))
    # A forgotten job keeps its last row: that is how later dependencies on it are settled.
    jobs = (state.find_job(job_id) for job_id in touched.jobs)
    rows.extend(store.RowDelete(store.JobRow.TABLE, (job_id,)) for job_id in sorted(touched.dropped))
    rows.extend(_job_row(state, job) for job in jobs if job is not None)
    rows.extend(_job_row(state, job) for job in touched.forgotten)
    rows.extend(_attempt_row(state, job, attempt) for job, attempt in touched.ended)
    rows.extend(_attempt_row(state, job, attempt) for job, attempt in touched.returned)
    steps = (state.steps.get(key) for key in touched.steps)
    rows.extend(_step_row(step) for step in steps if step is not None)
    rows.extend(_step_row(step) for step in touched.steps_ended)
    facts = [store.FactRow(*encode_fact(fact)) for fact in batch.facts]
    return store.Batch(batch.revision_first, batch.now_us, facts, rows, answers, blobs)


def _job_row(state: State, job: Job) -> store.JobRow:
    # What others still have to be told about is not over: they look at its record.
    is_awaited = state.is_awaited(job.job_id) or job.is_owed_elsewhere
    return store.JobRow(
        job_id=job.job_id,
        state=job.state.value,
        user=job.spec.user.name,
        partition=job.spec.partition,
        name=job.spec.name,
        array_job_id=job.array_job_id,
        submitted_us=job.submitted_us,
        ended_us=job.ended_us,
        finished=job.state in FINAL and not job.residues and not is_awaited,
        revision=state.revision,
        blob=records.encode(job),
    )


def _state_of_run(job: Job, attempt: Attempt | None, outcome: JobState) -> str:
    """The state of a run in accounting; of one of a crontab, which the job repeats, how it ended."""
    if outcome is not JobState.PENDING:
        return str(outcome.value)
    end = attempt.end if attempt is not None else None
    if not job.spec.cron or attempt is None or end is None or end.cause in ("orphaned", "lost"):
        return "REQUEUED"
    if end.cause == "time_limit":
        return str(JobState.TIMEOUT.value)
    if attempt.stop is not None:
        return "REQUEUED"
    if end.cause == OOM:
        return str(JobState.OUT_OF_MEMORY.value)
    return str((JobState.COMPLETED if end.is_good else JobState.FAILED).value)


def _attempt_row(state: State, job: Job, attempt: Attempt | None) -> store.AttemptRow:
    outcome = job.outcome or job.state
    end = attempt.end if attempt is not None else None
    # Gateways are none of the nodes that users count.
    spans = user_spans(job.spec, attempt) if attempt is not None else ()
    numbers = list(dict.fromkeys([span.node for span in spans]))
    segments = segments_of(attempt, attempt.ended_us or state.now_us) if attempt is not None else ()
    return store.AttemptRow(
        job_id=job.job_id,
        attempt=attempt.number if attempt is not None else 0,
        user=job.spec.user.name,
        account=job.spec.account,
        partition=job.spec.partition,
        name=job.spec.name,
        state=_state_of_run(job, attempt, outcome),
        submitted_us=job.submitted_us,
        started_us=attempt.started_us if attempt is not None else 0,
        ended_us=attempt.ended_us if attempt is not None else job.ended_us,
        # Of a run whose nodes changed, the most that it had at once.
        nodes=max([len(one.nodes) for one in segments], default=len(numbers)),
        cores=max([one.cores for one in segments], default=sum(span.amounts[0] for span in spans)),
        exit_code=job.exit_code,
        signal=job.exit_signal,
        blob=records.encode(
            records.Accounted(
                array_job_id=job.array_job_id,
                array_task=job.array_task,
                is_array=job.is_array,
                node_names=fold(state.node_names(numbers)),
                end=end,
                text=job.exit_text,
                paused_us=job.paused_us if attempt is not None else 0,
                time_limit_s=limit_s(job, attempt) if attempt is not None else job.spec.time_limit_s,
                first_estimate_s=job.first_estimate_s,
                forecast=attempt.forecast if attempt is not None else None,
                trace=job.spec.trace,
                parts=_parts_used(state, job, attempt)
                if attempt is not None and attempt.has_parts and user_parts(job.spec) > 1
                else (),
                pack_id=job.pack.pack_id if job.pack is not None else 0,
                pack_index=job.pack.index if job.pack is not None else 0,
                segments=_segments_used(state, segments),
                lent_core_us=attempt.more.lent_core_us
                if attempt is not None and attempt.more is not None
                else 0,
                borrowed_core_us=borrowed_core_us(attempt) if attempt is not None else 0,
            )
        ),
    )


def _segments_used(state: State, segments: Iterable[Segment]) -> tuple[records.SegmentUse, ...]:
    return tuple(
        [
            records.SegmentUse(
                one.from_us, one.until_us, fold(state.node_names(one.nodes)), len(one.nodes), one.cores
            )
            for one in segments
        ]
    )


def _parts_used(state: State, job: Job, attempt: Attempt) -> tuple[records.PartUse, ...]:
    ended = dict(attempt.more.finished) if attempt.more is not None else {}
    return tuple(
        [
            records.PartUse(
                partition_of(job.spec, number),
                fold(state.node_names([span.node for span in spans])),
                len(spans),
                sum([span.tasks for span in spans]),
                sum([span.amounts[0] for span in spans]),
                sum([sum(span.amounts[1:2]) for span in spans]),
                ended.get(number, 0),
            )
            for number, spans in enumerate(spans_by_part(job.spec, attempt)[: user_parts(job.spec)])
        ]
    )


def _node_row(node: Node) -> store.NodeRow:
    return store.NodeRow(node.number, node.name, node.state.value, records.encode(node))


def _record_row(state: State, kind: str, name: str) -> store.RowChange:
    record = find_record(state, kind, name)
    if record is None:
        return store.RowDelete(store.RecordRow.TABLE, (kind, name))
    return store.RecordRow(kind, name, state.revision, records.encode(record))


def _step_row(step: Step) -> store.StepRow:
    return store.StepRow(
        job_id=step.job_id,
        attempt=step.attempt,
        step=str(step.step),
        name=step.name,
        state=step.state.value,
        started_us=step.created_us,
        ended_us=step.ended_us,
        exit_code=step.exit_code,
        signal=step.signal,
        blob=records.encode(step),
    )


class Restoring:
    """Rows of one owner while they are read, then their state."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._head = store.Head()
        self._blobs: dict[type[store.Row], list[bytes]] = {kind: [] for kind in store.ROW_TYPES}
        self._policies: list[tuple[str, bytes]] = []

    def take(self, row: store.Head | store.Row) -> None:
        """One more row, in the order of the store."""
        if isinstance(row, store.Head):
            self._head = row
        elif isinstance(row, store.RecordRow):
            self._policies.append((row.kind, row.blob))
        elif not isinstance(row, store.SettingRow) or row.name == SETTINGS:
            self._blobs[type(row)].append(row.blob)

    def state(self) -> State:
        """The state of all rows; empty if there was none."""
        settings = self._blobs[store.SettingRow]
        return records.restore(
            self._owner,
            settings[0] if settings else None,
            self._blobs[store.NodeRow],
            self._blobs[store.JobRow],
            self._blobs[store.StepRow],
            self._head.revision,
            self._head.at_us,
            self._policies,
        )


async def load(reader: store.StoreReader, owner: str) -> State:
    """The state of the last commit; empty if this owner has never written."""
    restoring = Restoring(owner)
    async for chunk in reader.load_unfinished(owner):
        for row in chunk:
            restoring.take(row)
    return restoring.state()
