"""Measures of imbalance over the workers' finishing times, in any unit from the loop's start on."""

from __future__ import annotations

import math
from collections.abc import Collection

__all__ = ["coefficient_of_variation", "idle_share", "max_over_mean"]


def max_over_mean(finishing: Collection[float]) -> float:
    """The last finishing time over the mean of all (R-22): 1 is balanced, P is one worker that did everything."""
    mean = _mean(finishing)
    return max(finishing) / mean if mean > 0 else 1.0


def coefficient_of_variation(finishing: Collection[float]) -> float:
    """Standard deviation of the finishing times over their mean; 0 is balanced."""
    mean = _mean(finishing)
    if mean <= 0:
        return 0.0
    return math.sqrt(sum((each - mean) ** 2 for each in finishing) / len(finishing)) / mean


def idle_share(finishing: Collection[float]) -> float:
    """Share of all workers' time until the last end that passes after their own ends, 0 to 1."""
    latest = max(finishing, default=0.0)
    return 1 - _mean(finishing) / latest if latest > 0 else 0.0


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values) if values else 0.0
