"""Simulated clusters with allocations without a script: what becomes of them, and bugs that are found."""

from __future__ import annotations

from typing import Any

import pytest

from eslurm.core.control.jobs import allocations
from eslurm.core.dispatch.attendance import Attendance
from eslurm.core.model import facts
from eslurm.core.model.job_states import StopCause
from eslurm.core.state.cluster import State
from eslurm.lab.sim.allocation_draws import AllocationDraws
from eslurm.lab.sim.checks import Checks
from eslurm.lab.sim.run import Scenario, draw_nodes, run_scenario
from tests.sim.test_planted import ANY, first_failure

NODES = (4, 8)
SEEDS = range(1, 301)


def test_a_share_of_the_clusters_has_allocations() -> None:
    assert 200 < sum(AllocationDraws(seed).is_on for seed in range(1000)) < 300


def test_allocations_are_released_and_ended_without_their_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    released, silent = 0, 0
    on_fact = Checks.on_fact

    def seen(self: Checks, state: State, fact: facts.Fact) -> None:
        nonlocal released, silent
        if isinstance(fact, facts.StopRequested):
            released += fact.stop.cause is StopCause.RELEASE
            silent += "not been heard of" in fact.stop.by
        on_fact(self, state, fact)

    monkeypatch.setattr(Checks, "on_fact", seen)
    for seed in [seed for seed in SEEDS if AllocationDraws(seed).is_on][:8]:
        run_scenario(Scenario(seed, draw_nodes(seed, *NODES)))
    assert released > 5 and silent > 2, (released, silent)


def stays_for_ever(patch: pytest.MonkeyPatch) -> None:
    """An allocation whose command is gone is kept."""
    patch.setattr(Attendance, "look", lambda self, state, now_us: None)


def deaf(patch: pytest.MonkeyPatch) -> None:
    """Commands are not heard."""
    patch.setattr(Attendance, "hear", lambda self, job_id: None)


def release_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A release of an allocation that holds nodes changes nothing."""
    stop = allocations.stop

    def forgetful(*given: Any, **more: Any) -> list[facts.Fact]:
        return [] if given[2] is StopCause.RELEASE else stop(*given, **more)

    patch.setattr(allocations, "stop", forgetful)
    # Without this the silence of the command would end it, too.
    patch.setattr(allocations, "on_unattended", lambda state, message, now_us: [])


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (stays_for_ever, "no recovery"),
        (deaf, "though its command is there"),
        (release_forgotten, "no recovery"),
    ],
)
@pytest.mark.slow
def test_a_planted_bug_of_allocations_is_found(
    plant: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Within the first 300 seeds: worlds without allocations, and their time, are left out.
    seeds = [seed for seed in SEEDS if AllocationDraws(seed).is_on]
    with monkeypatch.context() as patch:
        plant(patch)
        failure = first_failure(seeds, ANY)
    assert failure is not None
    assert says in failure.what, failure.text
    run_scenario(failure.scenario)
