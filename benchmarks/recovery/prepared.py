"""A job store as a long life would have left it, written by the core itself as the controller would.

Invariant: no row is made up here, except those of jobs that ended long ago, of which nothing but rows is left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks import jobs
from eslurm.config.file import cluster_config, read_config
from eslurm.core.control.reactor import BatchAnswer, Reactor
from eslurm.core.dispatch.effect_delivery import EffectDelivery, Send
from eslurm.core.model.job import Job, JobSpec, Principal, Span, StepEnd
from eslurm.core.model.messages import (
    ConfigLoaded,
    EffectDone,
    EpochStarted,
    Message,
    NodeOutcome,
    PlanMade,
    Refused,
    Reports,
    SubmitJobs,
    Submitted,
)
from eslurm.core.model.placement import Placement
from eslurm.core.model.protocol import Registration, Report, Started, StepEnded
from eslurm.core.model.request import Request
from eslurm.core.state import rows as records
from eslurm.core.state.cluster import State
from eslurm.ports.store import AttemptRow, BlobRow, JobRow, content_hash
from eslurm.ports.store import Batch as Durable
from eslurm.store.rows import to_store
from eslurm.store.sql import SqlStore

OWNER = "main"
PER_COMMIT = 2_000
ROWS_PER_COMMIT = 20_000
PAST_DAYS = 30
MEMORY_MIB = 100
USERS = 40
DAY_US = 86_400_000_000
AWAY = "127.0.0.1:1"
"""The endpoint of nodes without an agent, where no process listens."""


def prepare(config_file: Path, store_url: str, *, pending: int, running: int, finished: int = 0) -> None:
    """Fill a new store: `running` jobs of one core on the nodes that have no agent, `pending` ones behind them, and
    before those `finished` ones, equally many of each of `USERS` users, over the last 30 days.
    """
    config = read_config(config_file)

    async def fill() -> None:
        store = SqlStore(store_url, config.cluster.name)
        try:
            past = _Past(store, time.time_ns() // 1000)
            await past.begin(ConfigLoaded(cluster_config(config)))
            await past.finish(finished)
            await past.run(running)
            await past.submit(pending)
        finally:
            await store.close()

    asyncio.run(fill())


class _Past:
    """Drives the core as the controller would, with nothing at the other end."""

    def __init__(self, store: SqlStore, now_us: int) -> None:
        self._store = store
        self._now_us = now_us
        self._state = State(OWNER)
        self._reactor = Reactor(self._state)
        self._delivery = EffectDelivery(self._state)
        environment = jobs.environment(0)
        script = b"#!/bin/sh\nexec sleep 3600\n"
        self._answers: list[BatchAnswer] = []
        self._away: list[int] = []
        self._blobs = [BlobRow(content_hash(data), data) for data in (script, environment)]

    async def begin(self, config: ConfigLoaded) -> None:
        """A configuration, and the nodes without an agent up."""
        # In its own name: a controller of that name need not wait to see whether another one lives.
        # No holder: whoever starts next goes on at once, as a controller does that finds its own name and address.
        epoch = await self._store.open(OWNER)
        await self._do(config, EpochStarted(epoch))
        away = [node for node in self._state.nodes.values() if node.name.startswith("away")]
        reports = tuple(
            Report(
                "away",
                number + 1,
                Registration(node.name, f"uid-{node.name}", "boot", "session", epoch, AWAY, node.total),
            )
            for number, node in enumerate(away)
        )
        if reports:
            await self._do(Reports(reports))
        self._away = [node.number for node in away]

    async def submit(self, count: int) -> list[int]:
        """So many jobs of one core; their ids."""
        ids: list[int] = []
        for size in _parts(count):
            specs = tuple(self._spec(len(ids) + number) for number in range(size))
            (answer,) = await self._do(SubmitJobs(specs))
            assert isinstance(answer, Submitted)
            ids += answer.job_ids
        return ids

    async def run(self, count: int) -> None:
        """So many jobs that run."""
        ids = await self.submit(count)
        spans = [
            Span(number, (1, MEMORY_MIB), 1)
            for number in self._away
            for _ in range(self._state.nodes[number].total[0])
        ]
        placements = [
            Placement(job_id, (span,), self._now_us + DAY_US)
            for job_id, span in zip(ids, spans, strict=False)
        ]
        if len(placements) < count:
            raise ValueError(f"{count} jobs do not fit on {len(self._away)} nodes without agents")
        at = 0
        for size in _parts(count):
            await self._do(PlanMade(tuple(placements[at : at + size]), self._state.generation))
            at += size
            while sends := self._delivery.take_due(self._now_us):
                await self._do(*[self._started(send) for send in sends])
        if self._state.active_count != count:
            raise RuntimeError(f"{self._state.active_count} jobs run, not {count}")

    async def finish(self, count: int) -> None:
        """Rows of so many jobs that ended, made after the pattern of one that really did."""
        if not count:
            return
        job, attempt = await self._one_to_the_end()
        first = self._state.next_id
        # The next submission leases ids after them, durably.
        self._state.next_id = self._state.lease_end = first + count
        record = records.decode_job(job.blob)
        for at in range(0, count, ROWS_PER_COMMIT):
            rows: list[JobRow | AttemptRow] = []
            for number in range(at, min(at + ROWS_PER_COMMIT, count)):
                ended_us = self._now_us - (count - number) * PAST_DAYS * DAY_US // count
                rows += _copies(job, attempt, record, first + number, f"user{number % USERS}", ended_us)
            await self._store.commit(Durable(self._state.revision + 1, self._now_us, (), rows))

    async def _one_to_the_end(self) -> tuple[JobRow, AttemptRow]:
        await self.run(1)
        (job,) = self._state.jobs.values()
        assert job.attempt is not None
        node = self._state.nodes[job.attempt.first]
        end = StepEnd(0, started_us=job.attempt.started_us, ended_us=self._now_us)
        ended = StepEnded(node.number, node.incarnation, job.job_id, job.attempt.number, end, True)
        batch = await self._commit(Reports((Report("away", 1, ended),)))
        jobs_ended = [row for row in batch.rows if isinstance(row, JobRow)]
        attempts = [row for row in batch.rows if isinstance(row, AttemptRow)]
        return jobs_ended[-1], attempts[-1]

    def _started(self, send: Send) -> EffectDone:
        outcome = NodeOutcome(send.nodes, "ok", "", msgspec.msgpack.encode(Started(self._now_us)))
        message = EffectDone(send.revision, 0, (outcome,))
        self._delivery.on_done(message, self._now_us)
        return message

    def _spec(self, number: int) -> JobSpec:
        user = Principal(f"user{number % USERS}", 10_000 + number % USERS, 10_000)
        request = Request(memory_per_node_mib=MEMORY_MIB)
        script, environment = (blob.hash for blob in self._blobs)
        return JobSpec(
            f"bench-{number % jobs.SCRIPTS}", user, "main", (request,), script, environment, "/tmp", 86_400
        )

    async def _do(self, *messages: Message) -> list[BatchAnswer]:
        await self._commit(*messages)
        return self._answers

    async def _commit(self, *messages: Message) -> Durable:
        batch = self._reactor.process(messages, self._now_us)
        for answer in batch.answers:
            if isinstance(answer, Refused):
                raise answer
        self._answers = batch.answers
        self._delivery.on_effects(batch.effects, self._now_us)
        durable = to_store(self._state, batch, (), self._blobs)
        await self._store.commit(durable)
        return durable


def _copies(
    job: JobRow, attempt: AttemptRow, record: Job, job_id: int, user: str, ended_us: int
) -> tuple[JobRow, AttemptRow]:
    replace = msgspec.structs.replace
    blob = records.encode(replace(record, job_id=job_id))
    submitted_us = ended_us - 60_000_000
    return (
        replace(job, job_id=job_id, user=user, submitted_us=submitted_us, ended_us=ended_us, blob=blob),
        replace(
            attempt,
            job_id=job_id,
            user=user,
            submitted_us=submitted_us,
            started_us=ended_us - 10_000_000,
            ended_us=ended_us,
        ),
    )


def _parts(count: int) -> Iterator[int]:
    for at in range(0, count, PER_COMMIT):
        yield min(PER_COMMIT, count - at)
