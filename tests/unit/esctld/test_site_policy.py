"""A site's own policy that raises, or never comes to an end, does not stop the cluster."""

from __future__ import annotations

import logging
from collections.abc import Generator

import pytest
from msgspec.structs import replace

from esctld.lead import planner
from esctld.lead.planner import Planner
from eslurm.core.model.config import NodeConfig, Partition
from eslurm.core.model.messages import ConfigLoaded
from eslurm.core.plan.cycle import policies
from eslurm.core.plan.cycle.policy import Cycle
from eslurm.telemetry.metrics import ControllerMetrics
from tests.support.loops import run
from tests.unit.esctld.test_dispatcher import Bench, submission


class Raising:
    name = "raising"

    def plan(self, cycle: Cycle) -> Generator[None, None, None]:
        yield
        raise KeyError("oops")


class Endless:
    name = "endless"
    closed = False

    def plan(self, cycle: Cycle) -> Generator[None, None, None]:
        try:
            while True:
                # Slices of work: the cycle's limit counts their time, and between two of them the loop rests.
                sum(range(20_000))
                yield
        finally:
            Endless.closed = True


@pytest.mark.parametrize("policy", [Raising(), Endless()], ids=["raises", "never ends"])
def test_another_one_takes_over_from_the_same_cycle_on(
    policy: Raising | Endless, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(policies, "_added", {})
    # Longer than what comes before the policy's first slice, on a busy machine, too.
    monkeypatch.setattr(planner, "CYCLE_MAX_S", 0.5)
    policies.register(policy)

    async def main() -> None:
        async with Bench() as bench:
            plans = Planner(ControllerMetrics())
            plans.attach(bench.dispatcher)
            config = replace(
                bench.state.config,
                nodes=(NodeConfig("cn1", (4, 1000)),),
                partitions=(Partition("main", ("cn1",), default=True),),
                policy=policy.name,
            )
            await bench.dispatcher.request(ConfigLoaded(config))
            await bench.dispatcher.request(submission())
            with caplog.at_level(logging.CRITICAL, "esctld.lead.planner"):
                await plans._cycle(bench.dispatcher)
                plan = plans.plan
                assert plan is not None
                await plans._cycle(bench.dispatcher)
                again = plans.plan
                assert again is not None
            assert plan.waiting and plan.waiting.keys() == again.waiting.keys()

    run(main())
    if isinstance(policy, Endless):
        assert Endless.closed
