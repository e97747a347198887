"""Reads of a controller whose store takes its time: they show the last commit, and nothing of what is being committed."""

from __future__ import annotations

from collections import deque
from typing import Any

from msgspec.structs import replace

from esctld.links import ControllerLinks
from esctld.planner import Planner
from esctld.service import ControllerService
from esctld.views import Queries
from eslurm.core.config import NodeConfig
from eslurm.core.job.model import Principal
from eslurm.core.job.states import JobState
from eslurm.core.messages import ConfigLoaded, EpochStarted, PlanMade, Reports
from eslurm.core.plan.policy import Plan, PlanLimits
from eslurm.core.planning import plan_slices
from eslurm.core.privacy import Sight
from eslurm.core.wire import Registration, Report
from eslurm.ports.door import Caller
from eslurm.telemetry.metrics import ControllerMetrics
from eslurm.v1 import controller_pb2 as pb
from tests.support.loops import run
from tests.unit.esctld.test_dispatcher import ALICE, Bench, submission, turns

ROOT = Principal("root", 0, 0)
CALLER = Caller(ROOT, b"", False, None, "socket")


class Reads:
    """The doors' reads of a bench."""

    def __init__(self, bench: Bench) -> None:
        nobody: Any = None
        dispatcher = bench.dispatcher
        planner = Planner(ControllerMetrics())
        planner.attach(dispatcher)
        self._sight = Sight(bench.state, ROOT)
        self._queries = Queries(bench.state, dispatcher.view, planner, bench.store, list)
        self._service = ControllerService(
            dispatcher, nobody, self._queries, nobody, bench.store, nobody, nobody, "main"
        )
        self._links = ControllerLinks(
            *(bench.state, nobody, nobody, nobody, nobody, nobody), revoked=set, count_foreign=lambda: None
        )
        self._links.attach(nobody, dispatcher, nobody, nobody)

    async def all(self) -> dict[str, object]:
        """What is shown of all that a batch of this test changes."""
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
        }


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
            body = Registration("cn1", "uid", "boot", "s1", epoch, "h:1", (4, 1000))
            await bench.dispatcher.decided(Reports((Report("agent", 1, body),)))
            await bench.dispatcher.request(submission())
            reads = Reads(bench)
            before = await reads.all()
            assert before["on the node"] == ([], 0) and not before["may call from there"]
            bench.store.gate.clear()
            bench.dispatcher.post(placements(bench))
            bench.dispatcher.post(EpochStarted(epoch + 1))
            more = replace(config, nodes=(*config.nodes, NodeConfig("cn2", (4, 1000))))
            bench.dispatcher.post(ConfigLoaded(more))
            await turns()
            assert bench.state.get_job(1).state is JobState.LAUNCHING and bench.state.epoch == epoch + 1
            assert await reads.all() == before
            bench.store.gate.set()
            await bench.dispatcher.decided(EpochStarted(epoch + 1))
            after = await reads.all()
            assert after["epoch"] == epoch + 1 and after["nodes"] == 2
            assert after["config"] == (bench.state.config_revision, True)
            assert after["on the node"] == ([1], 1) and after["may call from there"]
            assert after["jobs"] == [(1, "LAUNCHING")]

    run(main())
