"""The automatic width: tree widths are tried on real broadcasts, and the one that was fastest is used.

Owns the samples and the choice per size class (lists of up to 2^k nodes). Invariant: at most one broadcast
of a class in `TRIAL_EVERY` uses another width than the chosen one, and the choice changes only for a width
that was clearly faster. Deterministic: the same calls give the same widths. What is kept is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

Number = TypeVar("Number", int, float)

WIDTH_DEFAULT: Final = 16
CANDIDATES: Final = (8, 16, 32, 64, 128)
TRIAL_EVERY: Final = 8
WINDOW: Final = 9
SAMPLES_MIN: Final = 4
"""Fewer say nothing about a median."""
BETTER: Final = 0.9
"""A width replaces the chosen one when it takes less than this share of its time."""
USUAL: Final = 3
"""Number of the chosen width's latest times that give the present duration of a broadcast."""
HORIZON: Final = 4 * WINDOW * TRIAL_EVERY * len(CANDIDATES)
"""Samples are forgotten after so many broadcasts of the class: the cluster is another one by then."""


class WidthScore(msgspec.Struct, frozen=True):
    """Measured results of a width for lists of more than half of `nodes_up_to`, at most all of it."""

    nodes_up_to: int
    width: int
    median_us: int
    samples: int
    chosen: bool


class WidthTuner:
    """Measures widths, for `relay_width = 0`."""

    def __init__(self) -> None:
        self._classes: dict[int, _SizeClass] = {}

    def choose(self, count: int, may_try: bool = True) -> int:
        """The width for a broadcast to `count` nodes; rarely a trial width, and none unless `may_try`."""
        exponent = _exponent(count)
        if not _candidates(exponent):
            return WIDTH_DEFAULT
        return self._class(exponent).choose(may_try)

    def note(self, count: int, width: int, took_us: int, exact: bool) -> None:
        """Record a broadcast's time; `exact` when the tree alone decided it, without time-outs of dead nodes.

        Disturbed broadcasts are compared with each other only.
        """
        exponent = _exponent(count)
        if width in _candidates(exponent):
            self._class(exponent).note(width, took_us, exact)

    def table(self) -> list[WidthScore]:
        """All measurements, by size and width, as the choice sees them."""
        return [score for exponent in sorted(self._classes) for score in self._classes[exponent].scores()]

    def _class(self, exponent: int) -> _SizeClass:
        found = self._classes.get(exponent)
        if found is None:
            found = self._classes[exponent] = _SizeClass(exponent)
        return found


class _Sample(msgspec.Struct, frozen=True, gc=False):
    """One broadcast: its number in its class, its time, and its ratio to the chosen width's time (0: unknown)."""

    at: int
    took_us: int
    ratio: float


class _Times:
    """Measurements of the widths of one class, from broadcasts of one kind.

    A width is judged by the ratio of its time to those that the chosen width took just before: load that comes and goes in
    minutes or hours is in both and does not count.
    """

    def __init__(self, widths: tuple[int, ...]) -> None:
        self._samples: dict[int, deque[_Sample]] = {width: deque(maxlen=WINDOW) for width in widths}
        self._chosen_at = 0
        self.chosen = WIDTH_DEFAULT

    def note(self, at: int, width: int, took_us: int) -> None:
        """Add a sample, forget old ones, choose anew."""
        self._samples[width].append(_Sample(at, took_us, self._ratio(width, took_us)))
        for samples in self._samples.values():
            while samples and samples[0].at <= at - HORIZON:
                samples.popleft()
        best = min(self._samples, key=self._score)
        if self._score(best) < BETTER:
            self.chosen, self._chosen_at = best, at

    def scores(self, nodes_up_to: int) -> list[WidthScore]:
        """A row per width that has samples."""
        return [
            WidthScore(
                nodes_up_to,
                width,
                _median(sample.took_us for sample in samples),
                len(samples),
                width == self.chosen,
            )
            for width, samples in self._samples.items()
            if samples
        ]

    def _ratio(self, width: int, took_us: int) -> float:
        usual = self._samples[self.chosen]
        if width == self.chosen or not usual:
            return 0.0
        latest = list(usual)[-USUAL:]
        return max(took_us, 1) / max(_median(sample.took_us for sample in latest), 1)

    def _score(self, width: int) -> float:
        """The median of the ratios to the width that is chosen now; 1 when too little is known."""
        ratios = [
            sample.ratio for sample in self._samples[width] if sample.ratio and sample.at > self._chosen_at
        ]
        return _median(ratios) if len(ratios) >= SAMPLES_MIN else 1.0


class _SizeClass:
    """The widths for lists of similar length."""

    def __init__(self, exponent: int) -> None:
        self._exponent = exponent
        self._candidates = _candidates(exponent)
        self._exact = _Times(self._candidates)
        self._disturbed = _Times(self._candidates)
        self._exactness: deque[bool] = deque(maxlen=WINDOW)
        self._until_trial = TRIAL_EVERY
        self._tried = dict.fromkeys(self._candidates, 0)
        self._trials = 0
        self._noted = 0

    @property
    def _usual(self) -> _Times:
        """The exact measurements, or the disturbed ones on a cluster with dead nodes, which may have no exact ones."""
        usually_exact = 2 * sum(self._exactness) >= len(self._exactness)
        return self._exact if usually_exact else self._disturbed

    def choose(self, may_try: bool) -> int:
        chosen = self._usual.chosen
        self._until_trial = max(self._until_trial - 1, 0)
        if self._until_trial or not may_try:
            return chosen
        self._until_trial = TRIAL_EVERY
        self._trials += 1
        others = [width for width in self._candidates if width != chosen]
        tried = min(others, key=self._tried.__getitem__)
        self._tried[tried] = self._trials
        return tried

    def note(self, width: int, took_us: int, exact: bool) -> None:
        self._noted += 1
        self._exactness.append(exact)
        (self._exact if exact else self._disturbed).note(self._noted, width, took_us)

    def scores(self) -> list[WidthScore]:
        return self._usual.scores(1 << self._exponent)


def _median(values: Iterable[Number]) -> Number:
    """The middle value, the upper of two: a width must be better in more than half of its samples."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _exponent(count: int) -> int:
    """The size class: the least k with `count` <= 2^k."""
    return max(count - 1, 0).bit_length()


def _candidates(exponent: int) -> tuple[int, ...]:
    """Widths below every length of the class; none where the default makes all nodes leaves."""
    if 1 << exponent <= WIDTH_DEFAULT:
        return ()
    return tuple(width for width in CANDIDATES if width <= 1 << (exponent - 1))
