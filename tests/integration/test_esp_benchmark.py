"""Real jobs of the ESP benchmark: their applications share out loops, report to agents, and others use the cores."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.esp.live import OFF, Site, running
from benchmarks.esp.measure import happened
from eslurm.core.model.lending import REPORT
from eslurm.lab.applications.application import Program
from eslurm.lab.applications.costs import from_seconds
from eslurm.lab.applications.esp_run import job_of
from eslurm.lab.applications.two_level import Item
from eslurm.lab.workloads.machine import uniform

NODES = 4
PATIENCE_US = 200_000


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    directory = Path(tempfile.mkdtemp(prefix="es-"))
    directory.chmod(0o711)
    try:
        with running(directory / "site", NODES) as site:
            yield site
    finally:
        shutil.rmtree(directory)


def work() -> list[Item]:
    """A job whose first two nodes have nothing left after half a second, and one that fits on them."""
    machine = uniform(NODES, 1)
    uneven = Program(from_seconds([0.5, 0.5, 6.0, 6.0]), "STATIC")
    even = Program(from_seconds([0.2, 0.2]), "STATIC")
    return [
        Item(job_of(1, 0, 4, 60, machine), uneven, "A"),
        Item(job_of(2, 0, 2, 60, machine), even, "B"),
    ]


@pytest.mark.parametrize("level", [OFF, REPORT])
def test_a_job_that_reports_lends_its_idle_nodes(site: Site, level: str) -> None:
    items = work()
    owner, other = ran = site.run(items, level, PATIENCE_US)
    assert (owner.hosts, other.hosts) == (4, 2)
    assert owner.record.chunks == 4 and owner.record.end_us - owner.record.begin_us >= 6_000_000
    figures = happened(ran, items, NODES, 0.0)
    assert set(figures.waits_s) == {"A", "B"} and 0.0 < figures.utilisation < 1.0
    if level == OFF:
        assert other.record.begin_us >= owner.record.end_us
        assert (figures.reports, figures.borrowed_starts) == (0, 0)
    else:
        # The owner's last two tasks are still on their way: the borrower can have run on reported nodes only.
        assert other.record.end_us < owner.record.end_us
        assert set(other.nodes) < set(owner.nodes)
        assert owner.record.reports >= 2 and owner.record.refused == 0
        assert figures.borrowed_starts == 1


def test_a_job_that_fails_is_named(site: Site) -> None:
    machine = uniform(NODES, 1)
    broken = Item(job_of(1, 0, 1, 60, machine), Program(from_seconds([0.1]), "NONE"), "broken")
    with pytest.raises(RuntimeError, match=r"\(broken\).* FAILED(.|\n)*NONE"):
        site.run([broken], OFF, PATIENCE_US)
