"""Answers from the committed view: the queue, nodes, satellites. Long ones are made in slices, outside the dispatcher.

The bytes of each job's line are cached as long as its record and its reason stay the same, so that 50 people who watch a
queue of 10,000 jobs cost little.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from esctld.lead.planner import Planner
from eslurm.api.core_infos import shares_cores
from eslurm.api.infos import job_info, module_info, node_info, partition_info, partitions_of_nodes
from eslurm.core.control.privacy import JOBS, Visibility
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.option_text import asked_words
from eslurm.core.model.parts import partitions_of
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.plan.cycle.priority import weighs
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.state.rows import decode_job
from eslurm.core.state.view import View
from eslurm.links.codec import varint
from eslurm.ports.store import QUERY_VALUES_MAX, Store
from eslurm.telemetry.clocks import wall_us
from eslurm.v1 import controller_pb2 as pb

LINES_PER_SLICE = 100
CACHE_MAX = 50_000
_JOBS_FIELD = b"\x0a"
"""Tag of the repeated field `jobs` (number 1, length-delimited) in JobsReply."""


class Queries:
    """Queries of the API."""

    def __init__(
        self,
        view: View,
        planner: Planner,
        store: Store,
        satellites: Callable[[], list[pb.SatelliteInfo]],
    ) -> None:
        self._view = view
        self._planner = planner
        self._store = store
        self._satellites = satellites
        self._lines: dict[int, tuple[Job, Why | None, int | None, bytes]] = {}

    # ---- jobs ----

    async def jobs(self, request: pb.JobsRequest, sight: Visibility) -> bytes:
        """An encoded JobsReply with the matching, visible jobs."""
        chosen = self._named(request) if request.jobs else list(self._view.jobs.values())
        asked_too = request.asked_too and bool(request.jobs)
        plan = self._planner.shown
        lines: list[bytes] = []
        for at, job in enumerate(chosen):
            if at % LINES_PER_SLICE == LINES_PER_SLICE - 1:
                await asyncio.sleep(0)
            if _matches(job, request) and sight.job(job):
                lines.append(self._line(job, plan, asked_too=asked_too))
        if request.jobs and request.finished_too:
            lines += await self._from_store(request, sight)
        tail = pb.JobsReply(revision=self._view.revision, now_us=wall_us())
        return b"".join(lines) + tail.SerializeToString()

    def _named(self, request: pb.JobsRequest) -> list[Job]:
        found: dict[int, Job] = {}
        for ref in request.jobs:
            job = self._view.find_named(ref.job_id)
            if job is None:
                continue
            tasks = self._tasks(job)
            if ref.HasField("task"):
                tasks = [task for task in tasks if task.array_task == ref.task]
                if not tasks:
                    found[job.job_id] = job
            else:
                found[job.job_id] = job
            found.update((task.job_id, task) for task in tasks)
        return list(found.values())

    def _tasks(self, array: Job) -> list[Job]:
        if not array.is_array:
            return []
        ids = sorted(self._view.tasks_of.get(array.job_id, ()))
        return [self._view.jobs[task] for task in ids if task in self._view.jobs]

    def _line(self, job: Job, plan: Plan | None, *, asked_too: bool = False) -> bytes:
        is_waiting = job.state is JobState.PENDING
        why = plan.waiting.get(_planned_with(job)) if is_waiting and plan is not None else None
        priority = self._planner.ranking.priority(job.job_id) if is_waiting else None
        kept = self._lines.get(job.job_id)
        if kept is not None and kept[0] is job and kept[1] is why and kept[2] == priority and not asked_too:
            return kept[3]
        info = job_info(self._view, job, why, priority)
        if asked_too:
            # For few at a time: it is not kept.
            for part, request in zip(info.parts, job.spec.components, strict=False):
                part.asked.extend(asked_words(request))
            info.asked.extend(asked_words(job.spec.components[0]) if not info.parts else ())
            return _line_of(info)
        line = _line_of(info)
        if shares_cores(job):
            # What its application says changes without its record.
            return line
        if len(self._lines) >= CACHE_MAX:
            self._lines.clear()
        self._lines[job.job_id] = (job, why, priority, line)
        return line

    async def _from_store(self, request: pb.JobsRequest, sight: Visibility) -> list[bytes]:
        missing = [ref.job_id for ref in request.jobs if self._view.find_named(ref.job_id) is None]
        if not missing:
            return []
        rows = await self._store.find_jobs(self._view.owner, missing[:QUERY_VALUES_MAX])
        jobs = [decode_job(row.blob) for row in rows]
        return [_line_of(job_info(self._view, job, None)) for job in jobs if sight.job(job)]

    def rank(self, job: Job) -> int | None:
        """The priority with which a job is planned; None for one that does not wait for nodes, or that is not ranked yet."""
        if job.state is not JobState.PENDING or job.hold or job.not_before_us or job.open:
            return None
        if weighs(self._view.config.priority):
            return self._planner.ranking.priority(job.job_id)
        return job.priority

    # ---- nodes ----

    def nodes(self, request: pb.NodesRequest, sight: Visibility) -> pb.NodesReply:
        """Nodes and partitions, in configured order."""
        view = self._view
        inside = partitions_of_nodes(view.config)
        wanted = set(request.names)
        reply = pb.NodesReply(revision=view.revision, now_us=wall_us())
        for number in sorted(view.nodes):
            node = view.nodes[number]
            partitions = inside.get(node.name, [])
            if (wanted and node.name not in wanted) or (
                request.partition and request.partition not in partitions
            ):
                continue
            if request.states and node.state.value not in request.states:
                continue
            jobs = sorted(filter(partial(self._sees, sight), view.jobs_on.get(number, ())))
            reply.nodes.append(node_info(view, node, partitions, jobs))
        reply.partitions.extend(
            partition_info(one, view.partition_states.get(one.name, "")) for one in view.config.partitions
        )
        reply.modules.extend(map(module_info, view.config.modules))
        return reply

    def _sees(self, sight: Visibility, job_id: int) -> bool:
        return sight.is_open(JOBS) or sight.job(self._view.jobs[job_id])

    def satellites(self) -> pb.SatellitesReply:
        """The satellites and whether they are linked now."""
        return pb.SatellitesReply(satellites=self._satellites(), now_us=wall_us())


def _planned_with(job: Job) -> int:
    """The job in whose name it is planned: of a pack that has not begun, the first one."""
    return job.pack.pack_id if job.pack is not None and job.pack.waits_for_first else job.job_id


def _line_of(info: pb.JobInfo) -> bytes:
    encoded = info.SerializeToString()
    return _JOBS_FIELD + varint(len(encoded)) + encoded


def _matches(job: Job, request: pb.JobsRequest) -> bool:
    if job.state in FINAL and not request.finished_too:
        return False
    return (
        request.user in ("", job.spec.user.name)
        and (not request.partition or request.partition in partitions_of(job.spec))
        and request.name in ("", job.spec.name)
        and (not request.states or job.state.value in request.states)
    )
