"""Families (see `exposition`) among the metrics of `prometheus_client`, for the daemons that use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from eslurm.telemetry.exposition import Family

# When a counter began, of each: nobody asks, and the page would be half as long again.
disable_created_metrics()  # type: ignore[no-untyped-call]

Collect = Callable[[], Iterable[Family]]


class Collected(Collector):
    """What `collect` gives at each look."""

    def __init__(self, collect: Collect) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        for described, samples in self._collect():
            metric = Metric(described.name.removesuffix("_total"), described.text, described.kind)
            for values, value in samples:
                metric.add_sample(described.name, dict(zip(described.labels, values, strict=True)), value)
            yield metric

    def describe(self) -> list[Metric]:
        """Nothing is looked at when it is registered."""
        return []


def registry_of(collect: Collect) -> CollectorRegistry:
    """A registry of these alone."""
    registry = CollectorRegistry()
    registry.register(Collected(collect))
    return registry


def page_of(registry: CollectorRegistry) -> bytes:
    """All metrics of the registry in Prometheus' text format."""
    return generate_latest(registry)
