"""The constants of the predictor `history` on random histories: nodes that die, flap, or rest healthy.

Goal: with the defaults most encounters with failed nodes are foreseen, and so are most first encounters with
flapping ones, while few healthy nodes are predicted: E-30 counts on about two in a hundred. A twelve-hour cluster
of 374 nodes with a heartbeat each five seconds; of a hundred nodes of a real site two may flap.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass

import pytest

from eslurm.core.prediction.history import HistoryPredictor, HistorySettings
from eslurm.core.prediction.predictor import BroadcastSeen

SECOND = 1_000_000
BEAT_S = 5
HOURS = 12
BEATS = HOURS * 3600 // BEAT_S
HEALTHY, DEAD, FLAPPING = 300, 10, 64
FLAPPING_SHARE = 0.02


@dataclass
class Tally:
    """Of one kind of node."""

    failed: int = 0
    foreseen: int = 0
    new: int = 0
    new_foreseen: int = 0
    needless: int = 0


def silences(rng: random.Random) -> list[tuple[str, list[tuple[float, float]]]]:
    """Each node's kind and the times (from, until, in seconds) in which it does not answer."""
    end_s = HOURS * 3600.0
    nodes: list[tuple[str, list[tuple[float, float]]]] = []
    for _ in range(HEALTHY):
        # Once in two days something small: a pause, or a reboot.
        at_s = rng.expovariate(1 / (48 * 3600))
        nodes.append(("healthy", [(at_s, at_s + rng.choice([5, 5, 5, 20, 200]))]))
    nodes += [("dead", [(rng.uniform(0, end_s), end_s)]) for _ in range(DEAD)]
    for _ in range(FLAPPING):
        up_s, down_s = rng.choice([120, 600, 1800, 3600, 4 * 3600]), rng.choice([10, 60, 300])
        spans, at_s = [], rng.expovariate(1 / up_s)
        while at_s < end_s:
            until_s = at_s + rng.expovariate(1 / down_s)
            spans.append((at_s, until_s))
            at_s = until_s + rng.expovariate(1 / up_s)
        nodes.append(("flapping", spans))
    return nodes


def play(seed: int, settings: HistorySettings) -> dict[str, Tally]:
    """Half a day of heartbeats."""
    nodes = silences(random.Random(seed))
    kinds = [kind for kind, _ in nodes]
    silent_at: dict[int, set[int]] = defaultdict(set)
    for node, (_, spans) in enumerate(nodes):
        for from_s, until_s in spans:
            for beat in range(-int(-from_s // BEAT_S), min(BEATS, -int(-until_s // BEAT_S))):
                silent_at[beat].add(node)
    tallies = {kind: Tally() for kind in ("healthy", "dead", "flapping")}
    predictor = HistoryPredictor(600 * SECOND, settings)
    everybody = tuple(range(len(nodes)))
    before: set[int] = set()
    for beat in range(BEATS):
        at_us = beat * BEAT_S * SECOND
        predicted = set(predictor.predict(at_us))
        silent = silent_at[beat]
        for node in silent:
            tally = tallies[kinds[node]]
            tally.failed += 1
            tally.foreseen += node in predicted
            tally.new += node not in before
            tally.new_foreseen += node not in before and node in predicted
        for node in predicted - silent:
            tallies[kinds[node]].needless += 1
        before = silent
        predictor.observe(BroadcastSeen(at_us, everybody, tuple(silent)))
    return tallies


@pytest.mark.parametrize("seed", [1, 2])
def test_the_defaults_foresee_most_failures_and_few_others(seed: int) -> None:
    tallies = play(seed, HistorySettings())
    flapping = tallies["flapping"]
    assert flapping.foreseen / flapping.failed > 0.98
    assert flapping.new_foreseen / flapping.new > 0.85
    assert tallies["dead"].foreseen / tallies["dead"].failed > 0.99
    healthy = tallies["healthy"].needless / (HEALTHY * BEATS)
    flapped = flapping.needless / (FLAPPING * BEATS)
    assert healthy < 0.01
    assert healthy * (1 - FLAPPING_SHARE) + flapped * FLAPPING_SHARE < 0.02


def test_the_half_life_is_a_trade() -> None:
    short, default, long = (
        play(1, HistorySettings(half_life_s=half_life_s)) for half_life_s in (60.0, 900.0, 3600.0)
    )
    recalls = [one["flapping"].new_foreseen / one["flapping"].new for one in (short, default, long)]
    costs = [one["healthy"].needless for one in (short, default, long)]
    assert recalls == sorted(recalls) and recalls[0] < 0.5
    assert costs == sorted(costs) and costs[2] > 3 * costs[1]
