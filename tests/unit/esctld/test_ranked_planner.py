"""The planner plans in computed order, and people see the numbers it plans with."""

from __future__ import annotations

from msgspec.structs import replace

from esctld.lead.planner import Planner
from esctld.serve.views import Queries
from eslurm.core.control.privacy import Visibility
from eslurm.core.model.config import NodeConfig, Partition, PriorityWeights
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import ConfigLoaded, SubmitJobs
from eslurm.core.model.request import Request
from eslurm.telemetry.metrics import ControllerMetrics
from eslurm.v1 import controller_pb2 as pb
from tests.support.loops import run
from tests.unit.esctld.test_dispatcher import Bench, submission

WEIGHTS = PriorityWeights(size=1000)


def test_the_order_of_plans_and_of_the_queue_is_the_computed_one() -> None:
    async def main() -> None:
        async with Bench() as bench:
            planner = Planner(ControllerMetrics())
            planner.attach(bench.dispatcher)
            names = tuple(f"cn{number}" for number in range(1, 5))
            weighed = replace(
                bench.state.config,
                nodes=tuple(NodeConfig(name, (4, 1000)) for name in names),
                partitions=(Partition("main", names, default=True),),
                priority=WEIGHTS,
            )
            await bench.dispatcher.request(ConfigLoaded(weighed))
            (spec,) = submission().specs
            sizes = [replace(spec, components=(Request(tasks=tasks),)) for tasks in (1, 16, 8)]
            await bench.dispatcher.request(SubmitJobs(tuple(sizes)))
            await planner._cycle(bench.dispatcher)
            assert [entry.job_id for entry in planner.ranking.ordered()] == [2, 3, 1]

            queries = Queries(bench.dispatcher.view, planner, bench.store, list)
            reply = pb.JobsReply.FromString(
                await queries.jobs(pb.JobsRequest(), Visibility(bench.state, Principal("root", 0, 0)))
            )
            assert {job.job_id: job.priority for job in reply.jobs} == {1: 250, 2: 1000, 3: 500}

            await bench.dispatcher.request(ConfigLoaded(replace(weighed, priority=PriorityWeights())))
            await planner._cycle(bench.dispatcher)
            assert len(planner.ranking) == 0

    run(main())
