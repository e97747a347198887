"""Orphans are judged by when the controller has heard of their node; no message puts off the moment of their death."""

from __future__ import annotations

import pytest

from eslurm.core.model.units import SECOND_US
from eslurm.ports.step_runner import StepEndCause, StepOutcome
from esnoded.stepd import table as table_module
from esnoded.stepd.table import LaunchRefused
from tests.kits.stepd import key
from tests.unit.esnoded.stepd.test_table import Rig, rig  # noqa: F401 - a fixture

BOOT_US = 5_000 * SECOND_US


class Time:
    """CLOCK_BOOTTIME as the table reads it."""

    def __init__(self) -> None:
        self.now_us = BOOT_US

    def at(self, seconds: float) -> None:
        self.now_us = BOOT_US + int(seconds * SECOND_US)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(table_module, "boot_us", lambda: time.now_us)
    return time


def contact(rig: Rig, seconds: float, *nodes: int) -> None:  # noqa: F811
    rig.table.contact(nodes, BOOT_US + int(seconds * SECOND_US))


def launch(rig: Rig) -> None:  # noqa: F811
    """A step on node 0 that ignores SIGTERM, may be orphaned for 10 s and has a grace of 4 s."""
    spec = rig.site.spec(
        key(1),
        "sh",
        "-c",
        "trap '' TERM; while :; do sleep 600; done",
        orphan_timeout_us=10 * SECOND_US,
        kill_grace_us=4 * SECOND_US,
    )
    rig.start(spec)


def is_ending(rig: Rig) -> bool:  # noqa: F811
    return rig.table._steps[key(1)].is_ending


def killed(rig: Rig) -> StepOutcome:  # noqa: F811
    rig.table.advance()
    (ended,) = rig.advance_until_ended()
    return ended


def test_a_contact_that_was_long_on_its_way_counts_from_when_it_was(rig: Rig, time: Time) -> None:  # noqa: F811
    contact(rig, 0, 0)
    time.at(1)
    launch(rig)
    rig.table.advance()
    time.at(9)
    contact(rig, 2, 0)
    contact(rig, 1, 0)
    time.at(11.9)
    rig.table.advance()
    assert not is_ending(rig), "not yet 10 s since 2"
    time.at(12.1)
    contact(rig, 1.9, 0)
    rig.table.advance()
    assert is_ending(rig)
    time.at(15.9)
    contact(rig, 15, 0)
    rig.table.advance()
    assert rig.table.live == 1, "its grace ends at 16"
    time.at(16.1)
    ended = killed(rig)
    assert (ended.cause, ended.text) == (StepEndCause.ORPHANED, "no contact with the controller for 10 s")


def test_after_a_sleep_of_the_host_nothing_is_left_of_the_grace(rig: Rig, time: Time) -> None:  # noqa: F811
    contact(rig, 0, 0)
    launch(rig)
    rig.table.advance()
    time.at(3_600)
    rig.table.advance()
    ended = killed(rig)
    assert ended.cause is StepEndCause.ORPHANED


@pytest.mark.parametrize("nodes", [(), (0,)])
def test_a_launch_is_no_contact(rig: Rig, time: Time, nodes: tuple[int, ...]) -> None:  # noqa: F811
    contact(rig, 0, *nodes)
    time.at(10)
    with pytest.raises(LaunchRefused, match="no contact with the controller for 10 s"):
        launch(rig)
    contact(rig, 0.1, *nodes)
    launch(rig)
    rig.table.advance()
    time.at(10.2)
    rig.table.advance()
    assert is_ending(rig)
    time.at(14.2)
    killed(rig)


def test_a_launch_that_the_disk_holds_up_too_long_starts_nothing(rig: Rig, time: Time) -> None:  # noqa: F811
    contact(rig, 0, 0)
    launch(rig)
    time.at(10)
    (ended,) = rig.table.advance()
    assert (ended.cause, ended.text) == (
        StepEndCause.SPAWN_FAILED,
        "no contact with the controller for 10 s",
    )


def test_nobody_can_make_contact_in_the_future(rig: Rig, time: Time) -> None:  # noqa: F811
    contact(rig, 10**9, 0)
    launch(rig)
    rig.table.advance()
    time.at(10.1)
    rig.table.advance()
    assert is_ending(rig)
    time.at(14.1)
    killed(rig)


def test_other_nodes_contact_is_not_this_ones(rig: Rig, time: Time) -> None:  # noqa: F811
    contact(rig, 0, 0)
    launch(rig)
    rig.table.advance()
    time.at(10)
    contact(rig, 10, 1, 2)
    rig.table.advance()
    assert is_ending(rig)
    time.at(14)
    killed(rig)
