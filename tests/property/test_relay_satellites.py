"""Whole trees below satellites that are dead, slow, paused or dying, with predictions, differences and traces.

Goal: whatever becomes of the satellites, every live node acts exactly once and is reported truly, each leg ends
exactly once, and what is left out of replies changes nothing of the answer. A failure names its seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from eslurm.core.relay.construct import TreeShape, arrange
from eslurm.core.relay.grouping import GROUPINGS, find_grouping, shape
from eslurm.core.relay.messages import Reallocated, TookOver
from eslurm.core.relay.results import Outcome, Status
from eslurm.core.relay.trace import LOCAL, ROOT, Trace
from tests.kits.relay_network import Faults, Keeper, Network, some_fail
from tests.property.test_relay_network import (
    SECOND,
    check_at_rest,
    check_exact,
    check_truth,
    hosting,
)
from tests.support.profiles import draws

SATELLITES = (5001, 5002, 5003, 5004)
FATES = ("well", "well", "silent", "refused", "dying", "paused", "slow", "paused at once")
CASES = 8
SEEDS_PER_CASE = draws(15)


def some_dead(rng: random.Random, process_of: dict[int, int], faults: Faults) -> list[int]:
    dead = [node for node in process_of if rng.random() < rng.choice([0, 0.05, 0.3])]
    faults.silent |= set(dead[::2])
    faults.refused |= set(dead[1::2])
    return dead


def predictions(rng: random.Random, nodes: Sequence[int], dead: Sequence[int]) -> tuple[int, ...]:
    """Most of the dead, a few of the others, and one that is not in the list."""
    share = rng.choice([0, 0.8])
    found = [node for node in dead if rng.random() < share]
    return (*found, *rng.sample(nodes, min(len(nodes), rng.randint(0, 5))), 7777)


def misfortune(rng: random.Random, faults: Faults, satellites: Sequence[int]) -> dict[int, str]:
    """Draw the fate of each satellite. Pauses are for the network."""
    fates = {satellite: rng.choice(FATES) for satellite in satellites}
    for satellite, fate in fates.items():
        if fate == "silent":
            faults.silent.add(satellite)
        elif fate == "refused":
            faults.refused.add(satellite)
        elif fate == "dying":
            faults.dying.add(satellite)
        elif fate == "slow":
            faults.slow_us[satellite] = rng.randint(100_000, 4 * SECOND)
    return fates


def play(
    seed: int, *, loss: float = 0.0, duplication: float = 0.0, **forced: Any
) -> tuple[Network, Keeper, str]:
    """One broadcast of one seed, by legs, until everything is at rest."""
    rng = random.Random(seed)
    process_of = hosting(rng)
    nodes = list(process_of)
    faults = Faults(loss=loss, duplication=duplication, dying_breaks_link=rng.random() < 0.5)
    faults.run_max_us = rng.choice([0, 50_000, 2 * SECOND])
    dead = some_dead(rng, process_of, faults)
    satellites = SATELLITES[: rng.randint(1, len(SATELLITES))]
    fates = misfortune(rng, faults, satellites)
    keeper = Keeper(satellites)
    net = Network(process_of, faults, seed, satellites=satellites, keeper=keeper)
    net.outcome_of = some_fail
    for satellite, fate in fates.items():
        if fate.startswith("paused"):
            for_us = rng.randint(100_000, 8 * SECOND)
            delay_us = 0 if fate == "paused at once" else rng.randint(0, SECOND)
            net.at(delay_us, lambda satellite=satellite, for_us=for_us: net.pause(satellite, for_us))
    told: dict[str, Any] = {
        "grouping": rng.choice(sorted(GROUPINGS)),
        "root_width": rng.choice([0, 3, 20]),
        "predicted": predictions(rng, nodes, dead),
        "differences": rng.random() < 0.5,
        "missing": tuple(
            node for node in nodes if rng.random() < 0.1 or (node in dead and rng.random() < 0.5)
        ),
        "traced": rng.random() < 0.5,
    }
    told.update(forced)
    net.broadcast(nodes, rng.choice([2, 3, 8]), 60 * SECOND, keeper.legs(nodes), **told)
    net.run(after_us=70 * SECOND)
    return net, keeper, f"seed {seed}: {len(nodes)} nodes, {len(dead)} dead, {fates}, {told}"


def check_legs(net: Network, keeper: Keeper, story: str) -> None:
    """Each leg ended once, and each failure was followed by a reallocation or a takeover unless it was late."""
    assert not +keeper.open, (story, keeper.open)
    assert len(net.notices) <= len(keeper.failed), story


@pytest.mark.parametrize("case", range(CASES))
def test_each_live_node_acts_once_whatever_becomes_of_the_satellites(case: int) -> None:
    for seed in range(case * SEEDS_PER_CASE, (case + 1) * SEEDS_PER_CASE):
        net, keeper, story = play(seed)
        nodes = [node for node in net.process_of if node not in SATELLITES]
        check_exact(net, nodes, story)
        check_legs(net, keeper, story)
        check_at_rest(net, story)
        assert len(net.answers) == 1, story


@pytest.mark.parametrize("case", range(CASES))
def test_nothing_is_wrong_or_twice_on_a_bad_network(case: int) -> None:
    for seed in range(1000 + case * SEEDS_PER_CASE, 1000 + (case + 1) * SEEDS_PER_CASE):
        net, keeper, story = play(seed, loss=random.Random(seed).choice([0, 0.02, 0.2]), duplication=0.3)
        nodes = [node for node in net.process_of if node not in SATELLITES]
        check_truth(net, nodes, story)
        check_legs(net, keeper, story)
        check_at_rest(net, story)


def told(net: Network) -> dict[int, Outcome]:
    """The answer without the words for an unreached node, which say how it was found."""
    return {
        node: Outcome(outcome.status) if outcome.status is Status.UNREACHED else outcome
        for node, outcome in net.final().items()
    }


@pytest.mark.parametrize("case", range(CASES))
def test_leaving_out_what_is_expected_changes_no_answer(case: int) -> None:
    for seed in range(2000 + case * SEEDS_PER_CASE, 2000 + (case + 1) * SEEDS_PER_CASE):
        with_all, _, story = play(seed, differences=False)
        with_differences, _, _ = play(seed, differences=True)
        assert told(with_all) == told(with_differences), story


def edges(trace: Trace) -> set[tuple[int, int]]:
    return {(span.parent, span.child) for span in trace.spans}


def constructed(
    order: Sequence[int], root: int, width: int, root_width: int, grouping: str
) -> set[tuple[int, int]]:
    found = shape(order, width, find_grouping(grouping), root_width)
    return {(root if parent is None else parent, child) for parent, child in found}


@pytest.mark.parametrize("grouping", sorted(GROUPINGS))
@pytest.mark.parametrize("seed", range(12))
def test_the_traced_tree_is_the_constructed_one_edge_by_edge(grouping: str, seed: int) -> None:
    """The parent/child log of a broadcast equals the constructor's tree (E-21), also through shared processes."""
    rng = random.Random(seed)
    process_of = hosting(rng)
    nodes = list(process_of)
    width, root_width = rng.choice([2, 3, 8, 32]), rng.choice([0, 2, 5, 40])
    predicted = tuple(node for node in nodes if rng.random() < 0.2)
    satellites = SATELLITES[: rng.randint(0, 3)]
    keeper = Keeper(satellites)
    legs = keeper.legs(nodes) if satellites else []
    net = Network(process_of, Faults(), seed, satellites=satellites, keeper=keeper)
    net.broadcast(
        nodes,
        width,
        legs=legs,
        grouping=grouping,
        root_width=root_width,
        predicted=predicted,
        traced=True,
    )
    net.run()
    tree_shape = TreeShape(width, root_width, find_grouping(grouping))
    shares = [(leg.to_node, leg.nodes) for leg in legs] or [(ROOT, tuple(nodes))]
    wanted = {(ROOT, leg.to_node) for leg in legs}
    for root, share in shares:
        wanted |= constructed(arrange(share, predicted, tree_shape), root, width, root_width, grouping)
    (answer,) = net.answers
    assert answer.trace is not None and answer.trace.omitted == 0
    assert edges(answer.trace) == wanted
    assert len(answer.trace.spans) == len(wanted)
    sends = [span for span in answer.trace.spans if span.how != LOCAL]
    assert sum(level.sends for level in answer.trace.levels) == len(sends) == net.sent["broadcast"]
    assert all(0 < span.acked_us <= span.done_us for span in sends)


def test_predicted_failures_cost_nothing_but_the_second_look() -> None:
    """4,096 nodes of which 30 % are dead: prediction spares adoptions, and lists are sent 1.3 times a node."""
    rng = random.Random(3)
    nodes = range(4096)
    dead = [node for node in nodes if rng.random() < 0.3]
    adoptions = {}
    for recall in (0.0, 0.8):
        predicted = tuple(node for node in dead if rng.random() < recall)
        faults = Faults(silent=set(dead[::2]), refused=set(dead[1::2]))
        net = Network({node: node + 1 for node in nodes}, faults, seed=3)
        net.outcome_of = some_fail
        net.broadcast(nodes, 16, predicted=predicted, grouping="balanced", traced=True)
        net.run()
        check_exact(net, nodes, f"recall {recall}")
        assert net.sent["broadcast"] <= 1.31 * len(nodes)
        (answer,) = net.answers
        assert answer.trace is not None
        spans = [span for span in answer.trace.spans if span.how.startswith("adopted")]
        adoptions[recall] = sum(span.nodes > 1 for span in spans)
    assert adoptions[0.8] < 0.4 * adoptions[0.0]


def test_the_seeds_meet_every_fate() -> None:
    notices: set[type] = set()
    whys: set[str] = set()
    for seed in range(CASES * SEEDS_PER_CASE // 2):
        net, keeper, _ = play(seed)
        notices |= {type(notice) for notice in net.notices}
        whys |= {why for _, _, why in keeper.failed}
    assert notices == {Reallocated, TookOver}
    assert whys >= {"no acknowledgement", "connection refused", "link lost", "no progress"}
