"""The planner of a new leader begins with the promises in the log, and tells of those that it cannot keep."""

from __future__ import annotations

import logging

import pytest
from msgspec.structs import replace

from esctld.lead.planner import NAMED_MAX, Planner
from eslurm.core.model.config import NodeConfig, Partition
from eslurm.core.model.messages import ConfigLoaded, PlanMade, SubmitJobs
from eslurm.core.model.promise import Promise, PromisedStart, Run
from eslurm.telemetry.metrics import ControllerMetrics
from tests.support.loops import run
from tests.unit.esctld.test_dispatcher import Bench, submission

JOBS = NAMED_MAX + 2


def test_promises_that_cannot_be_kept_are_named_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Bench() as bench:
            metrics = ControllerMetrics()
            planner = Planner(metrics)
            planner.attach(bench.dispatcher)
            # No agent has ever registered, and no node is waited for.
            config = replace(
                bench.state.config,
                nodes=(NodeConfig("cn1", (4, 1000)),),
                partitions=(Partition("main", ("cn1",), default=True),),
                policy="planned",
                heartbeat_s=0.0,
            )
            await bench.dispatcher.request(ConfigLoaded(config))
            (spec,) = submission().specs
            await bench.dispatcher.request(SubmitJobs((spec,) * JOBS))
            start_us = bench.state.now_us + 1_000_000_000
            place = (PromisedStart(start_us, (Run(0, 1, 1, (1, 0)),)),)
            promises = tuple(Promise(job_id, place) for job_id in range(1, JOBS + 1))
            await bench.dispatcher.decided(PlanMade((), bench.state.generation, promises=promises))
            assert len(bench.state.promises) == JOBS

            await planner._cycle(bench.dispatcher)
            plan = planner.plan
            assert plan is not None
            assert [one.job_id for one in plan.broken] == list(range(1, JOBS + 1))
            assert metrics.registry.get_sample_value("eslurm_promises_broken_total") == JOBS
            await planner._cycle(bench.dispatcher)
            assert metrics.registry.get_sample_value("eslurm_promises_broken_total") == JOBS

    with caplog.at_level(logging.WARNING):
        run(main())
    told = [record.getMessage() for record in caplog.records if "promised" in record.getMessage()]
    assert told[0] == "job 1 starts later than a controller before had promised: node cn1 is out of service"
    assert len(told) == NAMED_MAX + 1
    assert told[-1] == "2 more jobs start later than promised"
