"""A leader's state in numbers. Goal: counts agree with what was done, labels are bounded, and a page of a
large cluster is served at once.
"""

from __future__ import annotations

import time

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from esctld.lead.planner import Planner
from esctld.lead.state_metrics import ACCOUNTS_MAX, CENSUS, CHECKS_MAX, StateMetrics
from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.model.job import ArraySpec, JobSpec, Principal
from eslurm.core.model.messages import PlanMade, Reports, SubmitJobs
from eslurm.core.model.node_health import FailingCheck
from eslurm.core.model.protocol import HealthReported, Registration, Report
from eslurm.core.model.request import Request
from eslurm.lab.sim.store_image import StoreImage
from eslurm.telemetry.collected import Collected, page_of
from eslurm.telemetry.exposition import OTHER
from eslurm.telemetry.metrics import ControllerMetrics
from tests.kits.leading import CLUSTER, LeadingController
from tests.support.loops import run

ADA = Principal("ada", 1000, 1000)
NODES_MANY = 20_480
SERVED_S = 0.020


def spec(nodes: int, **fields: object) -> JobSpec:
    """A job that has so many nodes to itself."""
    request = Request(nodes_min=nodes, nodes_max=nodes, exclusive=True)
    return replace(JobSpec("job", ADA, "", (request,), b"s" * 32, b"e" * 32, "/tmp", 3600), **fields)


def config(nodes: int) -> ClusterConfig:
    """So many nodes of four cores, the first of them in a partition of its own, too."""
    names = tuple(f"cn{number:05}" for number in range(nodes))
    partitions = (Partition("main", names, default=True), Partition("one", names[:1]))
    return ClusterConfig(CLUSTER, tuple(NodeConfig(name, (4, 1000)) for name in names), partitions)


class Desk:
    """A leader whose nodes are up, its planner, and its census."""

    def __init__(self, leading: LeadingController) -> None:
        self.leading = leading
        dispatcher = leading.dispatcher
        self.planner = Planner(ControllerMetrics())
        self.planner.attach(dispatcher)
        self.state_metrics = StateMetrics(dispatcher.view, self.planner, leading.store, dispatcher.now_us)

    async def register(self) -> None:
        """All nodes come up."""
        names = [node.name for node in self.leading.state.nodes.values()]
        reports = [
            Report(
                "a", at, Registration(name, f"u-{name}", "b", "s", self.leading.epoch, "h:1", (4, 1000), ())
            )
            for at, name in enumerate(names, 1)
        ]
        for at in range(0, len(reports), 1_000):
            await self.leading.dispatcher.decided(Reports(tuple(reports[at : at + 1_000])))

    async def submit(self, *specs: JobSpec) -> None:
        """And plan once."""
        await self.leading.dispatcher.request(SubmitJobs(specs))
        await self.planner._cycle(self.leading.dispatcher)
        plan = self.planner.plan
        assert plan is not None
        await self.leading.dispatcher.decided(PlanMade(plan.placements, plan.generation))
        await self.planner._cycle(self.leading.dispatcher)

    async def values(self) -> dict[str, dict[tuple[str, ...], float]]:
        """The state metrics' values now, by metric and labels; without those that are zero."""
        await self.state_metrics.count()
        return {
            described.name: {labels: value for labels, value in samples if value}
            for described, samples in self.state_metrics.families()
        }


def test_counts_agree_with_what_was_done() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER), config=config(3)) as leading:
            desk = Desk(leading)
            found = await desk.values()
            assert found["eslurm_nodes"] == {("UNKNOWN",): 3}
            assert found["eslurm_nodes_idle"] == {}
            await desk.register()
            await desk.submit(
                spec(2, account="physics"),
                spec(3),
                spec(1, held=True, partition="one"),
                spec(3, array=ArraySpec(((0, 9),))),
            )
            found = await desk.values()
            assert found["eslurm_jobs"] == {("LAUNCHING",): 1, ("PENDING",): 3}
            assert found["eslurm_pending_jobs"] == {("Resources",): 2, ("JobHeldUser",): 1}
            assert found["eslurm_pending_array_tasks"] == {(): 10}
            assert found["eslurm_nodes"] == {("UP",): 3}
            assert found["eslurm_nodes_idle"] == {(): 1}
            assert found["eslurm_partition_cores"] == {("main",): 12, ("one",): 4}
            assert found["eslurm_partition_nodes_usable"] == {("main",): 3, ("one",): 1}
            assert found["eslurm_partition_pending_jobs"] == {("main",): 2, ("one",): 1}
            assert found["eslurm_partition_cores_used"]["main",] == 8
            assert found["eslurm_account_cores_used"] == {("physics",): 8}
            assert found.keys() == {one.name for one in CENSUS}

    run(main())


def test_nodes_are_counted_by_the_checks_that_fail_there_and_names_are_capped() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER), config=config(CHECKS_MAX)) as leading:
            desk = Desk(leading)
            await desk.register()
            for number, node in enumerate(list(leading.state.nodes.values())):
                failing = (
                    FailingCheck("disk", "full"),
                    FailingCheck(f"own{number}"),
                    FailingCheck(f"two{number}"),
                )
                body = HealthReported(node.number, node.incarnation, 1, failing)
                await leading.dispatcher.decided(Reports((Report("a", 1_000 + number, body),)))
            found = await desk.values()
            assert found["eslurm_nodes_faulted"] == {("health",): CHECKS_MAX}
            assert found["eslurm_nodes_failing_check"]["disk",] == CHECKS_MAX
            assert len(found["eslurm_nodes_failing_check"]) == CHECKS_MAX + 1
            assert found["eslurm_nodes_failing_check"][OTHER,] == CHECKS_MAX + 1
            assert found["eslurm_nodes_idle"] == {}

    run(main())


def test_accounts_are_capped_and_nothing_is_lost() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER), config=config(200)) as leading:
            desk = Desk(leading)
            await desk.register()
            await desk.submit(
                spec(1), *(spec(1, account=f"a{number}") for number in range(ACCOUNTS_MAX + 20))
            )
            held = (await desk.values())["eslurm_account_cores_used"]
            assert len(held) == ACCOUNTS_MAX + 1
            assert held[OTHER,] == 4 * 21
            assert sum(held.values()) == 4 * (ACCOUNTS_MAX + 21)

    run(main())


def test_a_large_cluster_is_counted_in_slices_and_served_at_once() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER), config=config(NODES_MANY)) as leading:
            desk = Desk(leading)
            await desk.register()
            found = await desk.values()
            assert found["eslurm_nodes"] == {("UP",): NODES_MANY}
            registry = CollectorRegistry()
            registry.register(Collected(desk.state_metrics.families))
            times = []
            for _ in range(5):
                began_s = time.thread_time()
                page_of(registry)
                times.append(time.thread_time() - began_s)
            assert min(times) < SERVED_S

    run(main())
