"""Bugs of gateways to plant, for the walks of the core and for simulated clusters."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from eslurm.core.control.jobs import gateways, outcomes, stopping
from eslurm.core.model.facts import AttemptEnded, Fact
from eslurm.core.model.job import Attempt, Job, StepEnd
from eslurm.core.model.parts import gateway_nodes
from eslurm.core.model.protocol import PhaseReported
from eslurm.core.state.cluster import State


def gateway_leaked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateways of an attempt that ends are free at once: nothing ends their daemons."""
    real = stopping.ended

    def ended(state: State, job: Job, attempt: Attempt, now_us: int, **others: Any) -> AttemptEnded:
        if attempt.gateway is not None:
            left = [node for node in gateway_nodes(job.spec, attempt) if node in attempt.held]
            others["released"] = tuple(dict.fromkeys((*others.get("released", ()), *left)))
        return real(state, job, attempt, now_us, **others)

    for module in (stopping, outcomes, gateways):
        monkeypatch.setattr(module, "ended", ended)


def script_before_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The helper's end is taken for success, whatever it was."""
    real = gateways.on_step_ended

    def ended(state: State, report: PhaseReported, now_us: int) -> list[Fact]:
        end = StepEnd(0) if report.phase == "routes" else report.end
        return real(state, replace(report, end=end), now_us)

    monkeypatch.setattr(gateways, "on_step_ended", ended)
