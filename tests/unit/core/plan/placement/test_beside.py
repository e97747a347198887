"""Places of requests beside each other, each over its own stay: exact on few nodes, and bounded on many."""

from __future__ import annotations

import pytest

from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.placement import beside
from eslurm.core.plan.placement.beside import Found, Stay, search
from eslurm.core.plan.placement.compiled_request import compile_request
from eslurm.core.plan.placement.feasible import empty_ledger
from eslurm.core.plan.slices import exhaust
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import NodeView, Topology
from tests.kits.planned_packs import node_jobs

MAIN = PartitionView("main")


def nodes(count: int, cores: int = 4) -> Ledger:
    views = [NodeView(number, f"n{number}", (cores, 0), partitions=("main",)) for number in range(count)]
    return empty_ledger(Topology(views))


def found(empty: Ledger, *asked: tuple[Request, int, int], steps_max: int = beside.STEPS_MAX) -> Found:
    stays = [
        Stay(compile_request(request, MAIN, empty.topology), start, stop) for request, start, stop in asked
    ]
    return exhaust(search(lambda *_: empty, stays, steps_max))


def test_two_that_follow_each_other_take_the_same_of_a_node_beside_a_third() -> None:
    one, long = node_jobs(1, 3), node_jobs(1, 1)
    result = found(nodes(1), (long, 0, 20), (one, 0, 10), (one, 10, 20))
    assert result.chosen is not None
    assert [[position for position, _, _ in chosen] for chosen in result.chosen] == [[0], [0], [0]]
    assert found(nodes(1), (long, 0, 20), (one, 0, 11), (one, 10, 20)).is_proved


def test_one_in_the_middle_leaves_each_of_its_neighbours_a_node() -> None:
    """Beside either of them it fits on any node, beside both in turn on one only."""
    first = Request(cpus_per_task=3, include=("n0",))
    last = Request(cpus_per_task=3, include=("n1",))
    middle = node_jobs(1, 3)
    result = found(nodes(3), (middle, 0, 30), (first, 0, 10), (last, 20, 30))
    assert result.chosen is not None and result.chosen[0][0][0] == 2
    assert found(nodes(2), (middle, 0, 30), (first, 0, 10), (last, 20, 30)).is_proved


def test_those_that_never_meet_are_searched_apart() -> None:
    whole = node_jobs(2, 4)
    assert found(nodes(2), *[(whole, at, at + 1) for at in range(40)]).steps == 40


def test_nothing_is_proved_when_the_steps_are_used_up() -> None:
    asked = [(node_jobs(3, 3), at, at + 10) for at in range(4)]
    result = found(nodes(8), *asked, steps_max=9)
    assert result.chosen is None and not result.is_proved and result.steps <= 9


def test_requests_of_many_nodes_are_mapped_fewer_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a pack of which each try takes long would hold up the controller."""
    empty, calls = nodes(5_000), 0
    choose = beside.choose

    def counted(*words: object, **more: object) -> object:
        nonlocal calls
        calls += 1
        return choose(*words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(beside, "choose", counted)
    wide = [(node_jobs(1_300, 3), at, at + 10) for at in range(4)]
    assert found(empty, *wide).chosen is None
    assert calls < 40
