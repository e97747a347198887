"""Dead, predicted and wrong nodes in the relay benchmark. Method: small inputs, known answers, drawn failures."""

from __future__ import annotations

import pytest

from benchmarks.figures import Figure
from benchmarks.relay.plan import NONE, PRECISION, RECALL, Failures, count_wrong, draw, home
from benchmarks.relay.table import render
from eslurm.core.relay.results import OK, from_mapping, unreached


@pytest.mark.parametrize("percent", [1, 5, 30])
def test_half_of_the_dead_refuse_and_the_predictor_is_as_good_as_stated(percent: int) -> None:
    failures = draw(4096, percent, 3)
    dead = failures.dead
    assert len(dead) == round(4096 * percent / 100)
    assert abs(len(failures.refused) - len(failures.silent)) <= 1
    predicted = set(failures.predicted)
    assert len(predicted & dead) / len(dead) == pytest.approx(RECALL, abs=0.02)
    assert len(predicted & dead) / len(predicted) == pytest.approx(PRECISION, abs=0.02)
    assert dead | predicted <= set(range(1, 4097))


def test_failures_follow_from_the_seed() -> None:
    assert draw(1000, 10, 1) == draw(1000, 10, 1)
    assert draw(1000, 10, 1) != draw(1000, 10, 2)


def test_with_nobody_dead_nobody_is_predicted() -> None:
    assert draw(100, 0, 0) == NONE


@pytest.mark.parametrize("stride", [1, 2, 16, 33])
def test_homes_are_spread_for_every_stride_of_a_tree(stride: int) -> None:
    homes = [home(number, 4) for number in range(1, 20_481, stride)]
    for host in range(4):
        assert homes.count(host) / len(homes) == pytest.approx(0.25, abs=0.04)


def test_an_exact_answer_has_nothing_wrong() -> None:
    failures = Failures(refused=(2,), silent=(4,))
    results = from_mapping({1: OK, 2: unreached("refused"), 3: OK, 4: unreached()})
    assert count_wrong(4, failures.dead, results, [0, 1, 0, 1, 0]).total == 0


def test_each_error_is_counted() -> None:
    dead = frozenset({4, 5, 6})
    results = from_mapping({1: unreached(), 2: OK, 4: OK, 5: unreached(), 9: OK})
    # 1 was told to be dead, 3 and 6 are not in the answer, 9 does not exist; 2 acted twice, 3 never, 5 though dead.
    wrong = count_wrong(6, dead, results, [0, 1, 2, 0, 0, 1, 0])
    assert wrong.live_reported_dead == 2
    assert wrong.dead_not_reported == 3
    assert wrong.acted_twice == 1
    assert wrong.not_acted == 2
    assert (wrong + wrong).total == 2 * wrong.total == 16


def test_the_table_has_a_column_for_each_structure_and_says_what_did_not_finish() -> None:
    figures = [
        Figure("broadcast_4096_30dead_fptree_s", 0.8, "s", 10, 0.1),
        Figure("broadcast_4096_30dead_ring_s", 60.0, "s (not finished)", 1, 0.1),
        Figure("broadcast_4096_5dead_fptree_s", 0.5, "s", 10, 0.1),
        Figure("broadcast_4096_s", 0.2, "s", 9, 0.1),
    ]
    lines = [line.split() for line in render(figures).splitlines() if line]
    assert lines[0][:4] == ["nodes", "dead", "fptree", "s"]
    assert lines[1] == ["4096", "5", "%", "0.5"]
    assert lines[2] == ["4096", "30", "%", "0.8", ">", "60"]
    assert lines[3] == ["broadcast_4096_s", "0.2", "s"]
