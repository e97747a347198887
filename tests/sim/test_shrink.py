"""A failing run made smaller: what is kept fails in the same way, and is replayed from its plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.command import main
from eslurm.lab.sim.fault_schedule import FaultPlan, draw_plan
from eslurm.lab.sim.run import Failure, Report, Scenario, SeedFailed, judge, kind_of, run_scenario
from eslurm.lab.sim.shrink import CALM_MIN_US, minimise, shrink
from tests.sim import planted


def plan_of(scenario: Scenario) -> FaultPlan:
    assert scenario.plan is not None
    return scenario.plan


def made_up(
    fails: Callable[[Scenario], bool], tried: list[Scenario] | None = None
) -> Callable[[Scenario], object]:
    """A judge that runs nothing."""

    def judge_it(scenario: Scenario) -> object:
        if tried is not None:
            tried.append(scenario)
        return Failure(scenario, "kind", "what", 20.0, 10, 1) if fails(scenario) else None

    return judge_it


def failure_of(seed: int, nodes: int = 20) -> Failure:
    return Failure(Scenario(seed, nodes), "kind", "what", 20.0, 1_000, 9)


@given(st.sets(st.integers(0, 30), min_size=1, max_size=5))
def test_what_is_left_is_needed_and_nothing_else(needed: set[int]) -> None:
    left = minimise(tuple(range(31)), lambda items: needed <= set(items))
    assert set(left) == needed


@pytest.mark.parametrize("seed", [1, 7])
def test_everything_that_does_not_matter_goes(seed: int) -> None:
    events = draw_plan(seed, 20).events
    culprit = next(event for event in events if event[0] < 20 * SECOND_US)

    def fails(scenario: Scenario) -> bool:
        return culprit in plan_of(scenario).events and scenario.nodes >= 3 and scenario.actions >= 2

    shrunk = shrink(failure_of(seed), made_up(fails))
    after = shrunk.after.scenario
    plan = plan_of(after)
    assert (after.seed, after.nodes, after.actions, plan.events) == (seed, 3, 2, (culprit,))
    assert (plan.commit_crashes, plan.fetch_loss, plan.skew_s, plan.controllers) == (0.0, 0.0, 0.0, 1)
    assert (plan.weather.loss, plan.weather.duplication, plan.weather.slow) == (0.0, 0.0, 0.0)
    assert culprit[0] < plan.calm_us <= max(CALM_MIN_US, culprit[0] + SECOND_US)
    assert plan_of(shrunk.before.scenario).events == events


@pytest.mark.parametrize("matters", [True, False])
def test_ordeals_go_unless_one_of_them_matters(matters: bool) -> None:
    ordeals = draw_plan(1, 20).ordeals
    culprit = ordeals[0]
    assert ordeals

    def fails(scenario: Scenario) -> bool:
        return not matters or culprit in plan_of(scenario).ordeals

    plan = plan_of(shrink(failure_of(1), made_up(fails)).after.scenario)
    assert plan.ordeals == ((culprit,) if matters else ())
    assert plan.events == () and plan.calm_us <= max(CALM_MIN_US, culprit.at_us + SECOND_US)


def test_a_failure_of_another_kind_is_not_followed() -> None:
    def fails(scenario: Scenario) -> object:
        kind = "kind" if len(plan_of(scenario).events) >= 4 else "other"
        return Failure(scenario, kind, "what", 90.0, 10, 1)

    shrunk = shrink(failure_of(3), fails)
    assert len(plan_of(shrunk.after.scenario).events) == 4 and shrunk.after.kind == "kind"


def test_runs_are_bounded_and_none_is_repeated() -> None:
    tried: list[Scenario] = []
    shrunk = shrink(failure_of(5), made_up(lambda scenario: scenario.nodes > 7, tried), trials_max=10)
    assert shrunk.trials == len(tried) == 10
    tried.clear()
    shrink(failure_of(5), made_up(lambda scenario: scenario.nodes > 7, tried))
    assert len(set(map(msgspec.msgpack.encode, tried))) == len(tried)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (AssertionError("job 7 is late: x"), AssertionError("job 12 is late: y [1]"), True),
        (AssertionError("attempt (3, 1) was placed"), AssertionError("attempt (4, 2) was placed"), True),
        (
            AssertionError("7.1.-1.4 starts while [a(b, c)] runs"),
            AssertionError("8.2.0.11 starts while [] runs"),
            True,
        ),
        (AssertionError("no recovery within 300 s: a"), AssertionError("attempt (3, 1) was placed"), False),
        (AssertionError("job 7 is late"), ValueError("job 7 is late"), False),
    ],
)
def test_kinds_of_failures(first: Exception, second: Exception, same: bool) -> None:
    assert (kind_of(first) == kind_of(second)) is same


def test_an_error_of_the_code_has_its_place_in_its_kind() -> None:
    def here() -> None:
        raise KeyError(3)

    with pytest.raises(KeyError) as failure:
        here()
    assert kind_of(failure.value) == "KeyError in here"


def lines_with(words: Sequence[str], lines: list[str]) -> list[str]:
    return [line for line in lines if all(word in line for word in words)]


def test_a_planted_bug_becomes_a_small_plan_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    with monkeypatch.context() as patch:
        planted.drop_completions(patch)
        argv = [
            "--from",
            "2",
            "--seeds",
            "9",
            "--nodes",
            "6",
            "--shrink",
            "--out",
            str(path),
            "--trials",
            "60",
        ]
        assert main(argv) == 1
        told = capsys.readouterr().out.splitlines()
        small = msgspec.json.decode(path.read_bytes(), type=Scenario)
        verdict = judge(small)
        assert isinstance(verdict, Failure)
        assert told[0] == f"seed {small.seed} fails: {verdict.kind}"
        assert main(["--plan", str(path), "--trace"]) == 1
        traced = capsys.readouterr().out.splitlines()
        inline = told[-1].partition("--plan '")[2].partition("' --trace")[0]
        assert main(["--plan", inline]) == 1
    assert lines_with(["before: ", "planned faults", "requests", "nodes"], told)
    assert lines_with(["after ", "planned faults", "requests", "nodes"], told)
    full = judge(Scenario(small.seed, 6))
    assert isinstance(full, Report), "without the bug the seed holds"
    assert small.nodes < 6 and len(plan_of(small).events) <= len(draw_plan(small.seed, 6).events) // 2
    assert lines_with(["VIOLATED "], traced)
    assert traced[-1].startswith("replay: eslurm sim --plan '{")
    assert isinstance(run_scenario(small), Report)


def test_a_failure_offers_to_be_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "eslurm.core.control.jobs.outcomes.on_step_ended", lambda state, report, now_us: 1 / 0
    )
    with pytest.raises(SeedFailed) as failed:
        run_scenario(Scenario(11, 4))
    assert "shrink: eslurm sim --seed 11 --nodes 4 --shrink" in str(failed.value)
    assert failed.value.failure.kind == "ZeroDivisionError in <lambda>"


def test_there_may_be_nothing_to_shrink(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--nodes", "4", "--shrink"]) == 0
    assert capsys.readouterr().out == "nothing to shrink: 2 seeds held\n"
