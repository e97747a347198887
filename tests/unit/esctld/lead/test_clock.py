"""The cluster's time follows the host's clock, but not where that jumps, and says so."""

from __future__ import annotations

import logging

import pytest

from esctld.lead.clock import Clock
from eslurm.core.model.units import SECOND_US
from eslurm.telemetry.clocks import boot_us, wall_us

HOUR_US = 3_600_000_000


class Host:
    """Two clocks in the test's hands."""

    def __init__(self) -> None:
        self.wall = 1_000 * HOUR_US
        self.steady = 5 * HOUR_US

    def clock(self, floor_us: int = 0) -> Clock:
        return Clock(floor_us, 60 * SECOND_US, lambda: self.wall, lambda: self.steady)

    def pass_us(self, span_us: int) -> None:
        self.wall += span_us
        self.steady += span_us


def test_a_wall_clock_that_runs_as_it_should_is_followed() -> None:
    host = Host()
    clock = host.clock()
    for _ in range(5):
        assert clock.now_us() == host.wall
        host.pass_us(SECOND_US)


@pytest.mark.parametrize("jump_us", [HOUR_US, -HOUR_US])
def test_a_jump_is_reported_and_no_cause_for_time_outs(
    jump_us: int, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host()
    clock = host.clock()
    before_us = clock.now_us()
    host.wall += jump_us
    host.pass_us(SECOND_US)
    with caplog.at_level(logging.ERROR):
        assert before_us < clock.now_us() < before_us + 2 * SECOND_US
    assert "the wall clock jumped by" in caplog.text
    caplog.clear()
    host.pass_us(SECOND_US)
    clock.now_us()
    assert not caplog.records


def test_a_successor_with_a_late_clock_does_not_go_back() -> None:
    host = Host()
    floor_us = host.wall + 10 * SECOND_US
    assert host.clock(floor_us).now_us() == floor_us


def test_the_hosts_clocks_move() -> None:
    assert wall_us() > HOUR_US and 0 <= boot_us() <= boot_us()
