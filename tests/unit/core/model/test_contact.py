"""The two ends of contact: what a leader says that it has heard, and how an agent reads it."""

from __future__ import annotations

import random

import msgspec
import pytest

from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.contact import Heard, HeardRounds
from eslurm.core.model.protocol import Heartbeat
from eslurm.core.model.timekeeping import (
    Timekeeper,
    leap_bound_us,
    loss_slack_s,
    lost_after_min_s,
    proof_lasts_us,
)
from eslurm.core.model.units import SECOND_US


def rounds(proof_us: int = 2 * SECOND_US) -> HeardRounds:
    return HeardRounds(lambda: proof_us)


def test_answers_are_confirmed_as_long_as_the_lead_is_proved() -> None:
    heard = rounds()
    heard.on_answers(1, [0, 1], 10)
    assert heard.told([0, 1], lambda _node: True) == (0, ()), "it may not lead any more"
    heard.on_proved(11)
    assert heard.told([0, 1], lambda _node: True) == (1, ())
    heard.on_answers(2, [0, 1], 11 + 2 * SECOND_US)
    heard.on_answers(3, [0, 1], 12 + 2 * SECOND_US)
    assert heard.told([0, 1], lambda _node: True) == (2, ())
    heard.on_proved(12)
    assert heard.told([0, 1], lambda _node: True) == (3, ())


def test_an_older_answer_or_proof_takes_nothing_back() -> None:
    heard = rounds(0)
    heard.on_proved(100)
    heard.on_answers(5, [0], 50)
    heard.on_answers(4, [0], 60)
    heard.on_proved(10)
    heard.on_answers(6, [0], 90)
    assert heard.told([0], lambda _node: True) == (6, ())


def test_nodes_that_are_not_up_are_confirmed_nothing() -> None:
    heard = rounds()
    heard.on_proved(0)
    heard.on_answers(1, range(10), 1)
    default, exceptions = heard.told(range(10), lambda node: node not in (3, 4, 7))
    told = Heard(default, exceptions)
    assert [told.round_of(node) for node in range(10)] == [1, 1, 1, 0, 0, 1, 1, 0, 1, 1]
    assert exceptions == (3, 2, 0, 2, 1, 0)


def test_what_is_told_is_read_as_it_was_meant() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        nodes = rng.sample(range(400), rng.randint(1, 120))
        heard = rounds()
        heard.on_proved(0)
        last = dict.fromkeys(nodes, 0)
        for number in range(1, rng.randint(2, 8)):
            reached = [node for node in nodes if rng.random() < rng.choice((0.1, 0.9, 1.0))]
            heard.on_answers(number, reached, 0)
            last.update(dict.fromkeys(reached, number))
        down = set(rng.sample(nodes, len(nodes) // 4))
        told = heard.told(nodes, lambda node, down=down: node not in down)  # type: ignore[misc]
        read = Heard(*told)
        assert {node: read.round_of(node) for node in nodes} == {
            node: 0 if node in down else number for node, number in last.items()
        }, seed


@pytest.mark.parametrize(("exceptions", "bytes_max"), [(0, 40), (100, 500), (2_000, 8_500)])
def test_a_heartbeat_to_many_nodes_stays_small(exceptions: int, bytes_max: int) -> None:
    heard = rounds()
    heard.on_proved(0)
    late = set(random.Random(1).sample(range(20_000), exceptions))
    heard.on_answers(70_000, range(20_000), 0)
    heard.on_answers(70_001, [node for node in range(20_000) if node not in late], 0)
    body = Heartbeat(
        10**9, 70_002, *heard.told(range(20_000), lambda node: node % 2 == 0 or node not in late)
    )
    sealed = msgspec.msgpack.encode(body)
    assert len(sealed) <= bytes_max
    assert msgspec.msgpack.decode(sealed, type=Heartbeat) == body


def test_an_attempt_is_dead_before_the_fastest_clock_says_that_its_node_is_lost() -> None:
    """With the shortest `node_lost_after_s` that the configuration takes: a leap as large as may be, then a fast clock."""
    for orphan_s, grace_s in ((300.0, 30.0), (15.0, 3.0), (25.0, 3.0), (1.0, 0.0), (5_000.0, 600.0)):
        lost_s = lost_after_min_s(orphan_s + grace_s) * 1.000_001
        config = ClusterConfig("c", orphan_timeout_s=orphan_s, kill_grace_s=grace_s, node_lost_after_s=lost_s)
        assert loss_slack_s(config) > 0
        keeper = Timekeeper(0, leap_bound_us(config))
        began_us = keeper.read(0, 0)
        steady_us, wall_us = 0, leap_bound_us(config)
        while keeper.read(wall_us, steady_us) - began_us < lost_s * SECOND_US:
            steady_us += SECOND_US // 10
            wall_us = steady_us + 10**12
        assert steady_us >= (orphan_s + grace_s) * SECOND_US + proof_lasts_us(config)
