"""Metrics: their descriptions, and Prometheus's text format 0.0.4.

A metric is described once, by a constant from which the reference is generated; a daemon gives it values at a scrape.
Invariant: imports nothing heavy, so that an agent can serve it; a label's values come from the code or from the
configuration, or through `CappedLabel`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"
"""The label of all that found no place under a cap."""

Sample: TypeAlias = tuple[tuple[str, ...], float]
"""The labels' values in the order of their names, and the value."""


class Described(NamedTuple):
    """A metric as people know it: `kind` is counter (the name ends in _total), gauge or histogram."""

    name: str
    kind: str
    text: str
    labels: tuple[str, ...] = ()

    def is_(self, value: float) -> MetricFamily:
        """It has this one value; for a metric without labels."""
        return MetricFamily(self, [((), value)])

    def by(self, values: Mapping[str, float]) -> MetricFamily:
        """It has these values, by that of its only label."""
        return MetricFamily(self, [((label,), value) for label, value in values.items()])

    def of(self, samples: Sequence[Sample]) -> MetricFamily:
        """It has these samples."""
        return MetricFamily(self, samples)


class MetricFamily(NamedTuple):
    """A metric with the values that it has now."""

    described: Described
    samples: Sequence[Sample]


class CappedLabel:
    """Values of a label that people choose: the first `most` ever seen keep their names, the others are one.

    Bounds the series of a process' whole life, not only of one moment: what a name once took is never given to another.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def of(self, value: str) -> str:
        """The value itself, or `other`."""
        if value in self._known:
            return value
        if len(self._known) < self._most:
            self._known.add(value)
            return value
        return OTHER

    def folded(self, values: Mapping[str, float]) -> dict[str, float]:
        """The sums by capped value; the largest come first where there is not room for all."""
        found: dict[str, float] = {}
        for value, amount in sorted(values.items(), key=lambda item: -item[1]):
            label = self.of(value)
            found[label] = found.get(label, 0.0) + amount
        return found


def text_of(families: Iterable[MetricFamily]) -> bytes:
    """All of them in Prometheus' text format."""
    lines: list[str] = []
    for described, samples in families:
        name = described.name
        lines += heading(name, described.kind, described.text)
        for values, value in samples:
            lines.append(f"{name}{labels_text(described.labels, values)} {number_text(value)}")
    lines.append("")
    return "\n".join(lines).encode()


def heading(name: str, kind: str, text: str) -> tuple[str, str]:
    """The lines above a metric's samples."""
    return f"# HELP {name} {_help(text)}", f"# TYPE {name} {kind}"


def labels_text(names: Iterable[str], values: Iterable[str]) -> str:
    """A sample's labels; empty without any."""
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escaped(value: str) -> str:
    return _help(value).replace('"', '\\"')


def number_text(value: float) -> str:
    """A sample's value."""
    if math.isfinite(value):
        return str(int(value)) if value == int(value) else repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
