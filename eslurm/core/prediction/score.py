"""Scores of predictions (E-34, E-b): precision, recall, share on leaves, and lift over random places.

Owns the counts, over a sliding window and since the start, for each predictor and for the union of them. For a single
predictor the places are those that it alone would have given. Invariant: a share of nothing is None, never 0 or 1; memory
is bounded by the predictors and by the nodes that are silent now.

A failed node is one that did not answer. Suspects do not count: a relay can be suspected for more reasons than a leaf, so
counting them would favour leaves. Trees of leaves only say nothing about placement.

One dead node is met by many broadcasts, so encounters are not independent: the intervals are too narrow when few nodes
fail often. `recall_new` counts a node's first encounter only, which no look at the past foresees.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress, filterfalse
from math import sqrt
from typing import Final

import msgspec

from eslurm.core.prediction.places import Forest
from eslurm.core.prediction.union import Prediction
from eslurm.core.relay.construct import TreeShape

UNION: Final = "union"
WINDOW_US: Final = 24 * 3600 * 1_000_000
BUCKETS: Final = 24
Z95: Final = 1.959964


class Share(msgspec.Struct, frozen=True):
    """`hits` of `of`, with a 95 % Wilson interval; value, low and high are None when `of` is 0."""

    hits: int
    of: int
    value: float | None = None
    low: float | None = None
    high: float | None = None


class PredictorScore(msgspec.Struct, frozen=True):
    """Scores of one predictor. `precision` is of the predicted nodes that were asked, `recall` of the failed ones.

    `leaf_share` is of the failed nodes in trees of more than one level; `random_leaf_share` is the share of leaf positions
    in those trees, `lift` their quotient with its interval. None: nothing was counted.
    """

    name: str
    precision: Share
    recall: Share
    recall_new: Share
    leaf_share: Share
    random_leaf_share: float | None = None
    lift: float | None = None
    lift_low: float | None = None
    lift_high: float | None = None


class Period(msgspec.Struct, frozen=True):
    """Counts from `since_us` on. `failed_nodes` are encounters, not different nodes."""

    since_us: int
    broadcasts: int
    failed_nodes: int
    new_failures: int
    predictors: tuple[PredictorScore, ...]
    """The union first, then by name."""


class Report(msgspec.Struct, frozen=True):
    """All scores at `now_us`."""

    now_us: int
    window: Period
    total: Period


@dataclass(slots=True)
class _Tally:
    """One predictor's counts."""

    predicted: int = 0
    failed: int = 0
    foreseen: int = 0
    new: int = 0
    new_foreseen: int = 0
    placed: int = 0
    on_leaf: int = 0
    on_leaf_at_random: float = 0.0

    def add(self, other: _Tally) -> None:
        self.predicted += other.predicted
        self.failed += other.failed
        self.foreseen += other.foreseen
        self.new += other.new
        self.new_foreseen += other.new_foreseen
        self.placed += other.placed
        self.on_leaf += other.on_leaf
        self.on_leaf_at_random += other.on_leaf_at_random


@dataclass(slots=True)
class _Counts:
    """All counts since `since_us`."""

    since_us: int
    broadcasts: int = 0
    failed: int = 0
    new: int = 0
    by_name: dict[str, _Tally] = field(default_factory=dict)

    def add(self, other: _Counts) -> None:
        self.broadcasts += other.broadcasts
        self.failed += other.failed
        self.new += other.new
        for name, tally in other.by_name.items():
            self.by_name.setdefault(name, _Tally()).add(tally)


class Scoreboard:
    """Give it every broadcast with its prediction and outcome."""

    def __init__(self, started_us: int, window_us: int = WINDOW_US) -> None:
        self._bucket_us = max(1, window_us // BUCKETS)
        self._buckets: deque[_Counts] = deque()
        self._started_us = started_us
        self._total = _Counts(started_us)
        self._silent: set[int] = set()

    def record(
        self,
        at_us: int,
        nodes: Sequence[int],
        unreached: Iterable[int],
        prediction: Prediction,
        shape: TreeShape,
        shares: int = 1,
    ) -> None:
        """A broadcast to `nodes` in this order, cut into `shares` trees of `shape`, left `unreached` silent."""
        failed = frozenset(unreached)
        if failed:
            failed = failed.intersection(nodes)
        new = self._meet(nodes, failed)
        if not failed and not prediction.all and not any(prediction.by_name.values()):
            # Nearly every broadcast: nothing was foretold and nothing happened.
            for counted in (self._total, self._bucket(at_us)):
                counted.broadcasts += 1
                if not counted.by_name.keys() >= prediction.by_name.keys() or UNION not in counted.by_name:
                    for name in (UNION, *prediction.by_name):
                        counted.by_name.setdefault(name, _Tally())
            return
        counts = _Counts(at_us, 1, len(failed), len(new))
        # Often one predictor's word is the union's. Comparing large sets pays where places are to be found.
        judged: dict[frozenset[int], _Tally] = {}
        for name, predicted in ((UNION, prediction.all), *prediction.by_name.items()):
            tally = judged.get(predicted) if failed else None
            if tally is None:
                tally = _tally(nodes, failed, new, predicted, shape, shares)
                if failed:
                    judged[predicted] = tally
            counts.by_name[name] = tally
        self._total.add(counts)
        self._bucket(at_us).add(counts)

    def report(self, now_us: int) -> Report:
        """The scores of the window and since the start."""
        self._expire(now_us)
        window = _Counts(max(self._started_us, now_us - BUCKETS * self._bucket_us))
        for bucket in self._buckets:
            window.add(bucket)
        return Report(now_us, _period(window), _period(self._total))

    def keep_known(self, numbers: Iterable[int]) -> None:
        """Forget nodes that are not in the new configuration."""
        self._silent.intersection_update(numbers)

    # ---- inside ----

    def _meet(self, nodes: Sequence[int], failed: frozenset[int]) -> frozenset[int]:
        """The failed nodes that were not silent when they were last asked."""
        new = failed - self._silent
        if self._silent:
            self._silent.difference_update(self._silent.intersection(nodes) - failed)
        self._silent |= failed
        return new

    def _bucket(self, at_us: int) -> _Counts:
        self._expire(at_us)
        since_us = at_us - at_us % self._bucket_us
        if not self._buckets or self._buckets[-1].since_us < since_us:
            self._buckets.append(_Counts(since_us))
        return self._buckets[-1]

    def _expire(self, now_us: int) -> None:
        while self._buckets and self._buckets[0].since_us <= now_us - BUCKETS * self._bucket_us:
            self._buckets.popleft()


def wilson(hits: int, of: int) -> Share:
    """`hits` of `of` as a share with its 95 % interval."""
    if of == 0:
        return Share(hits, of)
    value = hits / of
    scale = 1 + Z95 * Z95 / of
    middle = (value + Z95 * Z95 / (2 * of)) / scale
    reach = Z95 / scale * sqrt(value * (1 - value) / of + Z95 * Z95 / (4 * of * of))
    # Rounding must not make an interval that leaves out the value.
    return Share(hits, of, value, max(0.0, min(value, middle - reach)), min(1.0, max(value, middle + reach)))


def _tally(
    nodes: Sequence[int],
    failed: frozenset[int],
    new: frozenset[int],
    predicted: frozenset[int],
    shape: TreeShape,
    shares: int,
) -> _Tally:
    """Counts from one broadcast for one prediction."""
    tally = _Tally(failed=len(failed), new=len(new))
    if predicted:
        tally.predicted = len(predicted.intersection(nodes))
        tally.foreseen = len(failed & predicted)
        tally.new_foreseen = len(new & predicted)
    if failed:
        forest = Forest(len(nodes), tally.predicted, shape, shares)
        if not forest.is_flat:
            tally.placed = len(failed)
            tally.on_leaf_at_random = len(failed) * forest.leaf_share
            tally.on_leaf = _count_on_leaves(nodes, failed, predicted, forest)
    return tally


def _count_on_leaves(
    nodes: Sequence[int], failed: frozenset[int], predicted: frozenset[int], forest: Forest
) -> int:
    """Number of failed nodes that the prediction puts on leaves."""
    found = 0
    foreseen = failed & predicted
    if len(foreseen) < len(failed):
        others = filterfalse(predicted.__contains__, nodes) if predicted else nodes
        found += sum(compress(forest.leaf_flags(False), map(failed.__contains__, others)))
    if foreseen:
        flags = forest.leaf_flags(True)
        if 0 not in flags:
            return found + len(foreseen)
        found += sum(compress(flags, map(failed.__contains__, filter(predicted.__contains__, nodes))))
    return found


def _period(counts: _Counts) -> Period:
    names = sorted(counts.by_name, key=lambda name: (name != UNION, name))
    scores = tuple(_score(name, counts.by_name[name]) for name in names)
    return Period(counts.since_us, counts.broadcasts, counts.failed, counts.new, scores)


def _score(name: str, tally: _Tally) -> PredictorScore:
    leaf_share = wilson(tally.on_leaf, tally.placed)
    at_random = tally.on_leaf_at_random / tally.placed if tally.placed else None
    return PredictorScore(
        name,
        precision=wilson(tally.foreseen, tally.predicted),
        recall=wilson(tally.foreseen, tally.failed),
        recall_new=wilson(tally.new_foreseen, tally.new),
        leaf_share=leaf_share,
        random_leaf_share=at_random,
        lift=_quotient(leaf_share.value, at_random),
        lift_low=_quotient(leaf_share.low, at_random),
        lift_high=_quotient(leaf_share.high, at_random),
    )


def _quotient(share: float | None, at_random: float | None) -> float | None:
    return share / at_random if share is not None and at_random else None
