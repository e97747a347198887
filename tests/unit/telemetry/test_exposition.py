"""Metrics in Prometheus' text format. Goal: whatever the labels and values, its own parser reads back what was said; a cap
holds for a process' whole life.
"""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from eslurm.telemetry.collected import Collected, page_of
from eslurm.telemetry.exposition import OTHER, CappedLabel, Described, MetricFamily, text_of

COUNTER = Described(
    "eslurm_things_total", "counter", 'Things, "quoted" \\ and\nin two lines.', ("kind", "place")
)
GAUGE = Described("eslurm_level", "gauge", "How high.")

# Carriage returns end a line for whoever reads the format; names that administrators give have no control characters.
words = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")) | st.just("\n"), max_size=12)
values = st.integers(-(1 << 53), 1 << 53) | st.floats()


def read(page: bytes) -> dict[tuple[str, ...], float]:
    """Read the page with the parser of Prometheus' client."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


@given(st.dictionaries(st.tuples(words, words), values, max_size=5), values)
def test_the_parser_reads_what_was_said(samples: dict[tuple[str, str], float], level: float) -> None:
    families = [COUNTER.of(list(samples.items())), GAUGE.is_(level)]
    found = read(text_of(families))
    expected = {("eslurm_things_total", *labels): value for labels, value in samples.items()}
    expected["eslurm_level",] = level
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == value or (math.isnan(value) and math.isnan(found[key]))


def registry_of(*families: MetricFamily) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Collected(lambda: families))
    return registry


def test_both_ways_of_writing_say_the_same() -> None:
    families = [COUNTER.of([(("a", "b"), 3)]), GAUGE.is_(0.25)]
    assert read(page_of(registry_of(*families))) == read(text_of(families))


def test_a_registry_is_written_as_its_own_client_does() -> None:
    registry = registry_of(COUNTER.of([(("a", 'b"\\\n'), 3.5)]), GAUGE.is_(float("inf")))
    waits = Histogram("eslurm_wait_seconds", "A wait.", ["kind"], buckets=(0.5, 1), registry=registry)
    for wait_s in (0.1, 0.7, 30):
        waits.labels("long").observe(wait_s)
    Gauge("eslurm_speed", "Nobody\nknows \\.", registry=registry).set(-2.5e-7)
    assert read(page_of(registry)) == read(generate_latest(registry))
    heads = [line for line in generate_latest(registry).splitlines() if line.startswith(b"#")]
    assert [line for line in page_of(registry).splitlines() if line.startswith(b"#")] == heads


def test_a_cap_holds_for_life() -> None:
    label = CappedLabel(2)
    assert label.folded({"a": 1, "b": 3, "c": 2}) == {"b": 3, "c": 2, OTHER: 1}
    # What is gone keeps its place: the series of a process are bounded, not only those of one moment.
    assert label.folded({"a": 9, "d": 1, "c": 1}) == {OTHER: 10, "c": 1}
    assert [label.of(name) for name in ("b", "e", "b")] == ["b", OTHER, "b"]
