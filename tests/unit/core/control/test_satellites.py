"""Satellites out of service: decided once, in force after a restart, left only by an administrator (E-12, E-13)."""

from __future__ import annotations

import pytest

from eslurm.core.model.messages import (
    Changed,
    JobProblem,
    RefusalCode,
    Refused,
    SatelliteSilent,
    UpdateSatellites,
)
from eslurm.core.state import rows
from tests.kits.core import ALICE, ROOT, World

KNOWN = ("sat1", "sat2")


def update(world: World, action: str, *names: str, by: object = ROOT, reason: str = "") -> object:
    return world.send(UpdateSatellites(by, names, action, reason, KNOWN))  # type: ignore[arg-type]


def test_a_satellite_that_was_silent_for_too_long_is_down_once_and_after_a_restart() -> None:
    world = World(satellite_down_after_s=1200.0)
    world.send(SatelliteSilent("sat1"))
    revision = world.state.revision
    world.send(SatelliteSilent("sat1"))
    assert world.state.revision == revision
    down = world.state.satellites_down["sat1"]
    assert down.reason == "in FAULT for 1200 s" and down.since_us == world.now_us
    settings = rows.encode(rows.settings_of(world.state))
    nodes = [rows.encode(node) for node in world.state.nodes.values()]
    again = rows.restore("main", settings, nodes, (), (), revision, world.now_us)
    assert again.satellites_down == world.state.satellites_down


def test_an_administrator_takes_satellites_down_and_resumes_them() -> None:
    world = World()
    assert update(world, "down", "sat1", "sat2", "sat1", reason="new disk") == Changed(2)
    assert {name: one.reason for name, one in world.state.satellites_down.items()} == dict.fromkeys(
        KNOWN, "new disk"
    )
    assert update(world, "down", "sat1") == Changed(0)
    assert update(world, "resume", "sat1", "sat2") == Changed(2)
    assert world.state.satellites_down == {}
    assert update(world, "resume", "sat1") == Changed(0)
    update(world, "down", "sat2")
    assert world.state.satellites_down["sat2"].reason == "taken down by root"


def test_an_unknown_satellite_is_named_beside_those_there_are() -> None:
    world = World()
    text = "satellite sat9 does not exist: there are sat1, sat2"
    problem = JobProblem("sat9", RefusalCode.NOT_FOUND, text)
    assert update(world, "down", "sat9", "sat1") == Changed(1, (problem,))


def test_one_that_left_the_configuration_can_still_be_resumed() -> None:
    world = World()
    world.send(SatelliteSilent("gone"))
    assert update(world, "resume", "gone") == Changed(1)


@pytest.mark.parametrize(
    ("action", "names", "by", "says"),
    [
        ("down", ("sat1",), ALICE, "alice is no operator"),
        ("drain", ("sat1",), ROOT, "'drain' is unknown: use resume or down"),
        ("down", (), ROOT, "down needs satellites"),
    ],
)
def test_what_cannot_be_is_refused(action: str, names: tuple[str, ...], by: object, says: str) -> None:
    answer = update(World(), action, *names, by=by)
    assert isinstance(answer, Refused) and says in answer.text
