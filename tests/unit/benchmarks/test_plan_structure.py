"""Figures of the planner's structures: equal answers, sizes that are counted once, tables with known rows."""

from __future__ import annotations

import sys

import pytest

from benchmarks.plan import structure
from benchmarks.plan.ops import Plan
from benchmarks.plan.workload import POLICIES


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(12, 30, POLICIES)


def test_every_way_to_search_gives_the_same_answers(plan: Plan) -> None:
    found = structure.ablation(plan, 6)
    assert set(found) == set(structure.WAYS)
    assert all(len(times) == 6 for times in found.values())
    assert len(list(structure.ablation_table(found))) == 2 + len(structure.WAYS)


def test_a_way_that_differs_ends_it(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(structure.WAYS, "wrong", lambda *_: None)
    with pytest.raises(AssertionError, match="None"):
        structure.ablation(plan, 1)


def test_the_plot_keeps_the_slots_and_changes_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "COST_NODES", 40)
    monkeypatch.setattr(structure, "COST_HOURS", 60)
    found = list(structure.costs((500, 2_000)))
    assert [jobs for jobs, *_ in found] == [500, 2_000]
    assert {slots for *_, slots in found} == {structure.COST_SLOTS + 1}
    plot = structure.cost_plot(found)
    assert plot.series[1].points[1][1] == pytest.approx(4 * found[0][1])


def test_bytes_are_counted_once() -> None:
    text = "x" * 1000
    seen: set[int] = set()
    both = structure.reachable_bytes([(text, text)], seen)
    assert both == sys.getsizeof((text, text)) + sys.getsizeof(text)
    assert structure.reachable_bytes([text], seen) == 0


def test_sizes_and_mix_of_a_plan(plan: Plan) -> None:
    sizes = structure.sizes_of(plan)
    assert sizes.jobs == plan.jobs
    assert sizes.sets == sizes.rows * sizes.slots
    assert 0 < sizes.lists <= 12
    assert min(sizes.book_bytes, sizes.rules_bytes, sizes.bookings_bytes) > 0
    rows = list(structure.mix_table(plan))[2:]
    assert len(rows) == len(plan.by_size)
    assert rows[-1].endswith("| 100.0% |")
    assert any(f"| {plan.jobs:,} |" in row for row in structure.size_table(sizes))


def test_without_a_directory_it_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert structure.main([]) == 2
    assert "DIR" in capsys.readouterr().err
