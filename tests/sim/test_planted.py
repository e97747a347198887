"""Whoever says that nothing was found must be able to find something: bugs planted one at a time, and none without.

Most are found by the seeds as they are; those that need a rare kind of fault get a run of that kind, still drawn
from the seed. What is found with the bug is played again without it, and holds.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.fault_schedule import draw_plan
from eslurm.lab.sim.run import Failure, Scenario, draw_nodes, judge, run_scenario
from tests.sim import planted

FOCUSED_EVENTS = 30
FOCUSED_COMMIT_CRASHES = 0.03
NODES = (4, 8)

ANY: tuple[str, ...] = ()
AGENTS = ("crash_agent", "crash_agent_between_actions")
PAUSES = ("pause_controller", "slow_disk", "cut_off_store")
LEADERS = ("pause_controller", "take_over", "crash_controller")


def scenario_of(seed: int, focus: tuple[str, ...]) -> Scenario:
    """A seed's run, with many faults of these kinds in place of its own, if any are given."""
    nodes = draw_nodes(seed, *NODES)
    if not focus:
        return Scenario(seed, nodes)
    plan = draw_plan(seed, nodes)
    rng = random.Random(f"{seed}/focus")
    last_us = plan.calm_us - SECOND_US
    events = sorted((rng.randint(2 * SECOND_US, last_us), rng.choice(focus)) for _ in range(FOCUSED_EVENTS))
    focused = msgspec.structs.replace(
        plan, events=tuple(events), controllers=2, commit_crashes=FOCUSED_COMMIT_CRASHES
    )
    return Scenario(seed, nodes, focused)


def first_failure(seeds_max: int, focus: tuple[str, ...]) -> Failure | None:
    for seed in range(1, seeds_max + 1):
        verdict = judge(scenario_of(seed, focus))
        if isinstance(verdict, Failure):
            return verdict
    return None


@pytest.mark.parametrize(
    ("plant", "focus", "seeds_max", "says"),
    [
        (planted.show_before_commit, ANY, 3, "is durable"),
        (planted.acknowledge_before_commit, ANY, 3, "is durable"),
        (planted.release_out_of_order, ANY, 3, "is shown after"),
        (planted.one_core_too_few, ANY, 3, "ledger|resource"),
        (planted.drop_completions, ANY, 5, "no recovery|accounted"),
        (planted.forget_reports, ANY, 20, "no recovery"),
        (planted.requeue_at_once, ANY, 20, "still runs|resource|accounted|second time"),
        (planted.effects_forgotten, ANY, 20, "no recovery"),
        (planted.tombstones_unwritten, ANY, 40, "second time|still runs|resource|accounted"),
        (planted.launch_again, ANY, 100, "second time|still runs|still holds|resource|accounted"),
        (planted.hearing_is_contact, ANY, 30, "still runs"),
        (planted.no_fence, ANY, 60, "obey epoch|second time|still runs"),
        (planted.no_store_fence, PAUSES, 40, "though epoch"),
        (planted.lead_with_what_was_known, LEADERS, 30, "leads from revision"),
        (planted.renew_after_loss, PAUSES, 10, "after it was told that another leads"),
        (planted.skip_a_revision, ANY, 10, "row of|KeyError"),
        (planted.prune_before_base, ANY, 10, "the base state is of"),
        (planted.acknowledge_at_once, AGENTS, 40, "second time|accounted|is told as"),
        (
            planted.lose_what_does_not_fit,
            ("fill_spool", "crash_agent"),
            80,
            "second time|accounted|no recovery|still runs",
        ),
        (
            planted.forget_before_acknowledged,
            ("fill_spool", "crash_agent"),
            20,
            "second time|accounted|no recovery|still runs",
        ),
        (planted.adopt_any_attempt, AGENTS, 40, "no recovery|accounted|second time|never ran"),
        (
            planted.credit_another_attempt,
            AGENTS,
            40,
            "resource|accounted|second time|still runs|no recovery|never ran|is given to",
        ),
    ],
)
@pytest.mark.slow
def test_a_planted_bug_is_found_within_so_many_seeds(
    plant: planted.Plant, focus: tuple[str, ...], seeds_max: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        failure = first_failure(seeds_max, focus)
    assert failure is not None, f"not found within {seeds_max} seeds"
    assert any(word in failure.what for word in says.split("|")), failure.text
    run_scenario(failure.scenario)
