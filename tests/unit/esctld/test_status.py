"""The status page of a controller. Goal: one page through all roles, truth about its duty, an address that
cannot be had costs only the page, and what happened is counted once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from esctld.lead.statistics import Statistics
from esctld.status import LEADER, STANDBY, ControllerStatus, CountedCalls, EventCounts, described
from eslurm.api.methods import PING, SUBMIT
from eslurm.core.dispatch.inflight import Answered
from eslurm.core.model import facts
from eslurm.core.model.facts import Fact
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.gateways import GatewayStage
from eslurm.core.model.job import Principal, StepEnd
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.retry import Retried
from eslurm.core.relay.results import EMPTY
from eslurm.core.relay.trace import LevelCost, Trace
from eslurm.core.state.cluster import State
from eslurm.ports.api import ApiError, Caller, Status
from eslurm.telemetry import logs
from eslurm.telemetry.metrics import LEVELS_MAX, PHASE_LABELS, ControllerMetrics
from eslurm.telemetry.status import Health
from tests.kits.api import until
from tests.kits.core import World
from tests.support.loops import run

NOWHERE = "192.0.2.1:9100"
"""An address of documentation: no host has it."""
CALLER = Caller(Principal("ada", 1000, 1000), b"", False, 1_000_000, "socket")
"""Counting does not look at it."""


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    """One number."""
    return registry.get_sample_value(name, labels)


def test_a_role_is_told_and_what_it_says_of_itself() -> None:
    async def main() -> None:
        metrics = ControllerMetrics()
        status = ControllerStatus(metrics)
        assert status.health() == (False, "starts")
        assert value(metrics.registry, "eslurm_controller_role", role="starting") == 1
        status.becomes(STANDBY, lambda: Health(True, "stands by"))
        assert status.health() == (True, "stands by")
        assert value(metrics.registry, "eslurm_controller_role", role="starting") == 0
        assert value(metrics.registry, "eslurm_controller_healthy") == 1
        status.becomes(LEADER, lambda: Health(False, "takes no commits"))
        assert value(metrics.registry, "eslurm_controller_role", role="leader") == 1
        assert value(metrics.registry, "eslurm_controller_healthy") == 0
        await status.close()

    run(main())


def test_an_address_that_cannot_be_had_costs_only_the_page(caplog: pytest.LogCaptureFixture) -> None:
    """It is another controller's host, as it is in the one configuration of all."""

    async def main() -> None:
        status = ControllerStatus(ControllerMetrics())
        status.open(NOWHERE)
        assert status._opening is not None
        await until(lambda: "no metrics yet" in caplog.text)
        await status.close()

    with caplog.at_level(logging.WARNING):
        run(main())
    assert f"no metrics yet: --metrics-listen: cannot listen at {NOWHERE}: " in caplog.text


def test_refused_submissions_are_counted_and_nothing_else() -> None:
    class Service:
        async def call(self, method: Any, request: Exception, caller: Caller) -> None:
            raise request

    async def main() -> None:
        metrics = ControllerMetrics()
        calls = CountedCalls(Service(), metrics, Statistics(0))
        for method, error in (
            (SUBMIT, Refused(RefusalCode.INFEASIBLE, "too large")),
            (SUBMIT, ApiError(Status.UNAVAILABLE, "the store is away")),
            (PING, ApiError(Status.UNAVAILABLE, "the store is away")),
        ):
            with pytest.raises(type(error)):
                await calls.call(method, error, CALLER)
        counted = "eslurm_submissions_refused_total"
        assert value(metrics.registry, counted, reason="infeasible") == 1
        assert value(metrics.registry, counted, reason="unavailable") == 1
        assert value(metrics.registry, counted, reason="invalid") == 0
        with pytest.raises(Refused):
            await calls.call(PING, Refused(RefusalCode.DENIED, "no"), CALLER._replace(via="login"))
        assert value(metrics.registry, "eslurm_calls_total", door="login") == 1
        assert value(metrics.registry, "eslurm_calls_total", door=CALLER.via) == 3

    run(main())


def test_what_was_committed_is_counted() -> None:
    metrics = ControllerMetrics()
    happenings = EventCounts(State("main"), metrics)
    batch: Sequence[Fact] = (
        facts.AttemptStarted(17, 1, 5),
        facts.AttemptEnded(17, 1, JobState.FAILED),
        facts.AttemptEnded(18, 1, JobState.PENDING, retry=Retried("timeout", 90)),
        facts.JobFinished(18, JobState.CANCELLED),
        facts.NodeStateChanged(3, NodeState.LOST),
        facts.JobsForecast(((17, Forecast(1, 2, 3, 2)), (18, Forecast(1, 2, 3, 2)))),
        facts.JobsForgotten((1,)),
    )
    happenings.on_committed(batch, 7_000_000)
    registry = metrics.registry
    assert value(registry, "eslurm_attempts_started_total") == 1
    assert value(registry, "eslurm_attempts_ended_total", outcome="FAILED") == 1
    assert value(registry, "eslurm_retries_total", cause="timeout") == 1
    assert value(registry, "eslurm_retries_total", cause="node-fail") == 0
    assert value(registry, "eslurm_jobs_ended_waiting_total", state="CANCELLED") == 1
    assert value(registry, "eslurm_node_transitions_total", state="LOST") == 1
    assert value(registry, "eslurm_forecasts_taken_total") == 2
    assert value(registry, "eslurm_forecast_last_timestamp_seconds") == 7


def test_phases_are_timed_and_their_failures_counted() -> None:
    metrics = ControllerMetrics()
    registry = metrics.registry
    failures, seconds = "eslurm_phase_failures_total", "eslurm_phase_seconds"
    assert value(registry, failures, phase="node_prolog") == 0
    batch: Sequence[Fact] = (
        facts.NodesPrepared(17, 1, (3,), 12_000_000),
        facts.NodesPrepared(18, 1, (3,)),
        facts.NodesReleased(17, 1, (3,), 4_000_000),
        facts.NodesReleased(18, 1, (3, 4)),
        facts.NodeFaulted(3, "prolog", "no disk", 19, 1, took_us=2_000_000),
        facts.NodeFaulted(3, "epilog", "lost", 17, 1),
        facts.GatewaysStaged(17, 1, GatewayStage.ROUTES),
        facts.GatewaysStaged(17, 1, GatewayStage.FAILED, text="no address"),
        facts.ControllerPhaseEnded(17, 1, "prolog", 1, StepEnd(3, started_us=1, ended_us=5_000_001)),
        facts.ControllerPhaseEnded(18, 1, "prolog", 1, StepEnd(0, 15, "cancelled", "", 1, 2_000_001)),
        facts.ControllerPhaseEnded(17, 1, "epilog", 1, StepEnd(1, cause="refused")),
    )
    EventCounts(State("main"), metrics).on_committed(batch, 7_000_000)
    assert value(registry, f"{seconds}_count", phase="node_prolog") == 2
    assert value(registry, f"{seconds}_sum", phase="node_prolog") == 14
    assert value(registry, f"{seconds}_sum", phase="node_epilog") == 4
    assert value(registry, f"{seconds}_sum", phase="controller_prolog") == 7
    assert {phase: value(registry, failures, phase=phase) for phase in PHASE_LABELS} == dict.fromkeys(
        PHASE_LABELS, 1
    )


def test_what_happens_to_a_job_is_told_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    """The lines are there for whoever asked for every line, and cost nothing otherwise."""
    trace = bytes(range(16))
    world = World(nodes=1)
    job = world.submit(trace=trace)
    world.start()
    world.cancel(job)
    world.end(job, 15)
    waiting = world.submit(trace=trace, held=True)
    world.cancel(waiting)
    happenings = EventCounts(world.state, ControllerMetrics())
    happenings.on_committed(world.log, 7_000_000)
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, "esctld.jobs"):
        happenings.on_committed((*world.log, facts.JobFinished(99, JobState.CANCELLED)), 7_000_000)
    told = [(logs.ids_of(record), record.getMessage()) for record in caplog.records]
    of_first = {"job": job, "attempt": 1, "trace": trace.hex()}
    assert told == [
        ({"job": job, "trace": trace.hex()}, f"job {job} is accepted, trace {trace.hex()}"),
        (of_first, f"job {job}, attempt 1: placed, 1 spans"),
        (of_first, f"job {job}, attempt 1: began"),
        (of_first, f"job {job}, attempt 1: told to end (cancel)"),
        (of_first, f"job {job}, attempt 1: ended, the job is CANCELLED"),
        ({"job": waiting, "trace": trace.hex()}, f"job {waiting} is accepted, trace {trace.hex()}"),
        ({"job": waiting, "trace": trace.hex()}, f"job {waiting}: CANCELLED"),
        ({"job": 99}, "job 99: CANCELLED"),
    ]


def test_levels_of_traced_broadcasts_are_counted_and_bounded() -> None:
    metrics = ControllerMetrics()
    happenings = EventCounts(State("main"), metrics)
    levels = (LevelCost(1, 2, 4_000, 3_000, 50_000, 0), LevelCost(99, 1, 1_000, 1_000, 2_000, 3))
    for trace in (None, Trace(levels=levels)):
        happenings.on_answered(
            Answered(1, "heartbeat", 0, 0, 9, (1,), (1,), frozenset(), EMPTY, (), 32, 32, "", trace=trace)
        )
    registry = metrics.registry
    slowest = "eslurm_broadcast_level_seconds"
    assert value(registry, f"{slowest}_sum", kind="heartbeat", level="1") == pytest.approx(0.05)
    assert value(registry, f"{slowest}_count", kind="heartbeat", level=str(LEVELS_MAX)) == 1
    assert value(registry, "eslurm_broadcast_acknowledge_seconds_sum", level="1") == pytest.approx(0.002)
    assert value(registry, "eslurm_broadcast_adopted_lists_total", level=str(LEVELS_MAX)) == 3


def test_names_are_told_once() -> None:
    names = [one.name for one in described()]
    assert len(set(names)) == len(names)
    assert all(one.name.endswith("_total") == (one.kind == "counter") for one in described())
