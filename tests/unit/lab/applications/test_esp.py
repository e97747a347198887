"""ESP's jobs as published: the categories, their sizes, and when they come."""

from __future__ import annotations

from itertools import pairwise

import pytest

from eslurm.lab.applications import esp
from tests.support.golden import Golden


def test_the_table(golden: Golden) -> None:
    """Table 1 of the paper, and ESP-2's target run times."""
    lines = [
        f"{one.name} {one.hosts:3} {one.count:2} {one.target_s:4} {one.images:6} {one.iterations:8}"
        for one in esp.TABLE
    ]
    golden("esp/table.txt", "\n".join(lines) + "\n")
    assert sum(one.count for one in esp.TABLE) == 230
    assert [one.name for one in esp.TABLE] == list("ABCDEFGHIJKLMZ")
    assert round(esp.ideal_s()) == 10_976


def test_full_size_jobs_divide_the_arrivals_and_are_followed_by_quiet() -> None:
    found = esp.arrivals()
    assert len(found) == 230
    assert all(one.submit_us <= other.submit_us for one, other in pairwise(found))
    full = [number for number, one in enumerate(found) if one.category.name == esp.FULL]
    assert full == [76, 153]
    quiet_us = round(esp.QUIET_SHARE * esp.ideal_s() * 1e6)
    for number in full:
        assert found[number + 1].submit_us - found[number].submit_us == quiet_us
    assert found[49].submit_us == 0 and found[50].submit_us == 30_000_000


def test_the_order_is_the_seeds() -> None:
    names = ["".join(one.category.name for one in esp.arrivals(seed)) for seed in (20, 20, 21)]
    assert names[0] == names[1] != names[2]
    assert sorted(names[0]) == sorted(names[2])


@pytest.mark.parametrize("application", esp.APPLICATIONS)
def test_jobs_run_about_as_long_as_their_targets(application: str) -> None:
    """Table 1's sizes lead to ESP's run times under STATIC, but for the one that is odd (R-c)."""
    for one in esp.TABLE:
        run_s = esp.costs_of(application, one.name).largest_us(one.hosts) / 1e6
        if one.name == esp.ODD[application]:
            assert run_s < 0.8 * one.target_s
        else:
            assert run_s == pytest.approx(one.target_s, rel=0.12)


def test_the_work_of_mandelbrot_is_what_the_paper_measured() -> None:
    """71.2 % of 256 hosts for 11,020 s (R-26) are 7,846 s of all hosts: a figure that nothing here was fitted to."""
    work_us = sum(one.count * esp.costs_of("mandelbrot", one.name).total_us for one in esp.TABLE)
    assert work_us / 256e6 == pytest.approx(0.712 * 11_020, rel=0.01)


def test_a_smaller_system_has_jobs_of_the_same_length() -> None:
    for application in esp.APPLICATIONS:
        whole = esp.costs_of(application, "L")
        small = esp.costs_of(application, "L", 32, 0.1, 0.05)
        assert small.n < whole.n / 10
        assert small.total_us / 4 == pytest.approx(whole.total_us / 32 * 0.1, rel=0.1)
