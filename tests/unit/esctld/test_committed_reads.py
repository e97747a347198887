"""Reads of a controller whose store takes its time: they show the last commit, and nothing of what is being committed."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest
from msgspec.structs import replace

from esctld.lead.joining import Joining
from esctld.lead.links import ControllerLinks
from esctld.lead.planner import Planner
from esctld.lead.state_metrics import AGE, StateMetrics
from esctld.lead.tokens import Tokens
from esctld.serve.service import ControllerService
from esctld.serve.views import Queries
from eslurm.api.methods import BY_NAME
from eslurm.core.control.planning import plan_slices
from eslurm.core.control.privacy import Visibility
from eslurm.core.model.config import NodeConfig
from eslurm.core.model.job import Principal
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import (
    ConfigLoaded,
    CreateJoinToken,
    CreateStep,
    CreateToken,
    EpochStarted,
    PlanMade,
    Refused,
    Reports,
)
from eslurm.core.model.protocol import Registration, Report
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.ports.api import ApiError, Caller, Status
from eslurm.ports.store import StoreUnavailable
from eslurm.telemetry.metrics import ControllerMetrics
from eslurm.v1 import controller_pb2 as pb
from tests.support.loops import run
from tests.unit.esctld.test_dispatcher import ALICE, Bench, submission, turns

ROOT = Principal("root", 0, 0)
BOB = Principal("bob", 1001, 1001)
CALLER = Caller(ROOT, b"", False, None, "socket")


class Reads:
    """The doors' reads of a bench."""

    def __init__(self, bench: Bench) -> None:
        nobody: Any = None
        dispatcher = bench.dispatcher
        planner = self.planner = Planner(ControllerMetrics())
        planner.attach(dispatcher)
        self._metrics = StateMetrics(dispatcher.view, planner, bench.store, dispatcher.now_us)
        self._tokens = Tokens(bench.state, dispatcher.view, nobody, nobody, nobody)
        parts = (nobody,) * 7
        self._joining = Joining(bench.state, dispatcher.view, *parts)
        self._sight = Visibility(dispatcher.view, ROOT)
        self._queries = Queries(dispatcher.view, planner, bench.store, list)
        self._service = ControllerService(
            dispatcher, planner, self._queries, nobody, bench.store, nobody, nobody, "main"
        )
        self._links = ControllerLinks(
            *(bench.state, nobody, nobody, nobody, nobody, nobody), revoked=set, count_foreign=lambda: None
        )
        self._links.attach(nobody, dispatcher, nobody, nobody)

    async def call(self, name: str, request: Any) -> Any:
        """The answer of the door."""
        return await self._service.call(BY_NAME[name], request, CALLER)

    async def all(self) -> dict[str, object]:
        """The answers of all reads that a batch of this test changes."""
        ping = await self._service._ping(pb.PingRequest(), CALLER)
        config = await self._service._config(pb.ConfigRequest(), CALLER)
        (node,) = self._queries.nodes(pb.NodesRequest(names=["cn1"]), self._sight).nodes
        jobs = pb.JobsReply.FromString(await self._queries.jobs(pb.JobsRequest(), self._sight)).jobs
        return {
            "epoch": ping.epoch,
            "nodes": ping.nodes,
            "config": (config.revision, "cn2" in config.json),
            "on the node": (list(node.jobs), node.cores_used),
            "jobs": [(job.job_id, job.state) for job in jobs],
            "may call from there": self._links._has_job(ALICE.uid, node.number, "cn1"),
            "why": self._asked_about(),
            "what bob sees": [job.job_id for job in (await self._jobs_of(BOB)).jobs],
            "a step's output may go to the node": await self._refusal("10.0.0.1:1"),
            "metrics": await self._counts(),
            "tokens": [token.user for token in (await self._tokens.show(pb.TokensRequest(), CALLER)).tokens],
            "joins": [one.uses_left for one in (await self._joining.show(pb.JoinsRequest(), CALLER)).tokens],
        }

    async def reason(self) -> str:
        """Why the first job of the list waits."""
        jobs = pb.JobsReply.FromString(await self._queries.jobs(pb.JobsRequest(), self._sight)).jobs
        return jobs[0].reason

    async def _counts(self) -> dict[str, dict[tuple[str, ...], float]]:
        await self._metrics.count()
        # The age alone moves with the time.
        return {one.name: dict(samples) for one, samples in self._metrics.families() if one is not AGE}

    async def _jobs_of(self, who: Principal) -> pb.JobsReply:
        sight = self._service._sight(CALLER._replace(principal=who))
        return pb.JobsReply.FromString(await self._queries.jobs(pb.JobsRequest(), sight))

    def _asked_about(self) -> str:
        """The job as a question about it finds it."""
        return self._service._inquiries._job(pb.JobRef(job_id=1), ROOT).state.value

    async def _refusal(self, endpoint: str) -> str:
        step = CreateStep(ALICE, 1, 1, 0, ("app",), b"e", "/", endpoint, bytes(32))
        try:
            await self._service._endpoints.check(step, CALLER._replace(host="10.0.0.9"))
        except Refused as refused:
            return refused.text
        return ""


def placements(bench: Bench) -> PlanMade:
    found: list[Plan] = []

    def planning() -> Any:
        found.append((yield from plan_slices(bench.state, bench.state.now_us, None, PlanLimits())))

    deque(planning(), maxlen=0)
    return PlanMade(found[0].placements, found[0].generation)


def test_nothing_is_read_before_its_commit() -> None:
    async def main() -> None:
        async with Bench() as bench:
            epoch, config = bench.state.epoch, bench.state.config
            body = Registration("cn1", "uid", "boot", "s1", epoch, "10.0.0.1:1", (4, 1000))
            await bench.dispatcher.decided(Reports((Report("agent", 1, body),)))
            await bench.dispatcher.request(submission())
            reads = Reads(bench)
            before = await reads.all()
            assert before["on the node"] == ([], 0) and not before["may call from there"]
            assert before["why"] == "PENDING" and before["what bob sees"] == [1]
            assert before["a step's output may go to the node"].startswith("job 1 is PENDING")  # type: ignore[attr-defined]
            bench.store.gate.clear()
            bench.dispatcher.post(placements(bench))
            bench.dispatcher.post(EpochStarted(epoch + 1))
            more = replace(
                config, nodes=(*config.nodes, NodeConfig("cn2", (4, 1000))), private=("jobs",), operators=(0,)
            )
            bench.dispatcher.post(ConfigLoaded(more))
            bench.dispatcher.post(CreateToken(ROOT, ALICE, bytes(16), "submit", 60))
            bench.dispatcher.post(CreateJoinToken(ROOT, bytes(16), bytes(32), "agent", "", 3, 60))
            await turns()
            assert bench.state.get_job(1).state is JobState.LAUNCHING and bench.state.epoch == epoch + 1
            assert bench.state.tokens and bench.state.members.tokens
            assert await reads.all() == before
            bench.store.gate.set()
            await bench.dispatcher.decided(EpochStarted(epoch + 1))
            after = await reads.all()
            assert after["epoch"] == epoch + 1 and after["nodes"] == 2
            assert after["config"] == (bench.state.config_revision, True)
            assert after["on the node"] == ([1], 1) and after["may call from there"]
            assert after["jobs"] == [(1, "LAUNCHING")]
            assert after["why"] == "LAUNCHING" and after["what bob sees"] == []
            assert after["a step's output may go to the node"] == ""
            assert after["tokens"] == ["alice"] and after["joins"] == [3]
            counts: Any = after["metrics"]
            assert counts["eslurm_jobs"]["LAUNCHING",] == 1 and counts["eslurm_nodes"]["UNKNOWN",] == 2
            assert counts["eslurm_partition_cores_used"]["main",] == 1

    run(main())


def test_a_list_tells_the_reasons_of_a_plan_when_all_that_it_rests_on_is_committed() -> None:
    async def main() -> None:
        async with Bench() as bench:
            await bench.dispatcher.request(submission())
            reads = Reads(bench)
            await reads.planner._cycle(bench.dispatcher)
            before = await reads.reason()
            (main,) = bench.state.config.partitions
            bench.store.gate.clear()
            bench.dispatcher.post(
                ConfigLoaded(replace(bench.state.config, partitions=(replace(main, up=False),)))
            )
            await turns()
            await reads.planner._cycle(bench.dispatcher)
            assert await reads.reason() == before
            bench.store.gate.set()
            await bench.dispatcher.committed()
            assert await reads.reason() == "PartitionDown" != before

    run(main())


def test_a_list_tells_the_reasons_of_a_plan_when_its_own_starts_are_committed() -> None:
    async def main() -> None:
        async with Bench() as bench:
            await bench.dispatcher.request(submission())
            body = Registration("cn1", "uid", "boot", "s1", bench.state.epoch, "10.0.0.1:1", (4, 1000))
            await bench.dispatcher.decided(Reports((Report("agent", 1, body),)))
            planner = Reads(bench).planner
            await planner._cycle(bench.dispatcher)
            assert planner.plan is not None and planner.plan.placements and planner.shown is None
            bench.store.gate.clear()
            planning = asyncio.create_task(planner.run())
            bench.state.want_plan()
            planner.look()
            await turns(200)
            assert bench.state.get_job(1).state is JobState.LAUNCHING and planner.shown is None
            bench.store.gate.set()
            await turns(200)
            assert bench.dispatcher.view.jobs[1].state is JobState.LAUNCHING and planner.shown is not None
            planning.cancel()
            await asyncio.wait((planning,))

    run(main())


QUESTIONS = [
    ("Why", pb.WhyRequest(job=pb.JobRef(job_id=1))),
    ("Plan", pb.PlanRequest()),
]


@pytest.mark.parametrize(("name", "request_"), QUESTIONS, ids=[name for name, _ in QUESTIONS])
def test_what_is_found_in_the_live_state_is_told_when_it_is_committed(name: str, request_: Any) -> None:
    async def main() -> None:
        async with Bench() as bench:
            await bench.dispatcher.request(submission())
            reads = Reads(bench)
            bench.store.gate.clear()
            second = bench.dispatcher.request(submission("second"))
            await turns()
            assert 2 in bench.state.jobs and not second.done()
            asked = asyncio.create_task(reads.call(name, request_))
            await turns(200)
            assert not asked.done(), "job 2 was counted, and is not committed"
            bench.store.gate.set()
            assert (await asked).IsInitialized() and bench.dispatcher.view.revision == bench.state.revision
            assert await second

    run(main())


def test_a_question_ends_when_the_store_goes_away() -> None:
    async def main() -> None:
        async with Bench() as bench:
            await bench.dispatcher.request(submission())
            reads = Reads(bench)
            bench.store.failures.append(StoreUnavailable("away"))
            bench.store.gate.clear()
            second = bench.dispatcher.request(submission("second"))
            await turns()
            asked = asyncio.create_task(reads.call(*QUESTIONS[0]))
            await turns(200)
            bench.store.gate.set()
            with pytest.raises(ApiError) as refused:
                await asked
            assert refused.value.status is Status.UNAVAILABLE
            assert await second

    run(main())
