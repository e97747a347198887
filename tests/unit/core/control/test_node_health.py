"""Health checks of nodes as the controller hears of them: faults that begin and end by themselves."""

from __future__ import annotations

import pytest

from eslurm.api.infos import node_info
from eslurm.compat.slurm.node_fields import base_state
from eslurm.core.doctor.places import check_nodes
from eslurm.core.model.messages import Changed, UpdateNodes
from eslurm.core.model.node import is_usable
from eslurm.core.model.node_health import (
    CHECKS_MAX,
    NAME_CHARS_MAX,
    SERIAL_MAX,
    TEXT_CHARS_MAX,
    FailingCheck,
    bounded,
    is_check_name,
)
from eslurm.core.model.protocol import HealthReported
from eslurm.replay.state_check import check
from tests.kits.core import ROOT, World


def tell(world: World, serial: int, *failing: str, node: int = 0, incarnation: int = 0) -> None:
    known = incarnation or world.state.nodes[node].incarnation
    world.report(HealthReported(node, known, serial, tuple(FailingCheck(name, "full") for name in failing)))
    check(world.state)


def texts(world: World, node: int = 0) -> list[str]:
    return [fault.text for fault in world.state.nodes[node].faults]


def test_a_failing_check_keeps_new_work_away_until_it_passes() -> None:
    world = World(nodes=2)
    running = world.submit()
    world.start()
    node = world.state.get_job(running).attempt.nodes[0]  # type: ignore[union-attr]
    tell(world, 1, "disk", node=node)
    tell(world, 1, "disk", node=1 - node)
    assert not is_usable(world.state.nodes[node])
    waiting = world.submit()
    assert waiting not in world.plan()
    assert world.state.get_job(running).attempt is not None, "it goes on"
    tell(world, 2, node=node)
    assert is_usable(world.state.nodes[node])
    assert waiting in world.plan()


def test_the_reason_is_shown_with_its_time() -> None:
    world = World()
    world.pass_time(100)
    begun_us = world.now_us
    tell(world, 1, "disk")
    world.pass_time(60)
    tell(world, 2, "disk", "net")
    info = node_info(world.view, world.state.nodes[0], [], [])
    assert info.reason == "health: disk: full; health: net: full"
    assert (base_state(info), info.reason_by, info.reason_since_us) == ("drained", "health", begun_us)
    (finding,) = [one for one in check_nodes(world.state, world.now_us) if one is not None]
    assert "disk and net failed there" in finding.text and "when the check passes" in finding.advice


def test_an_administrators_drain_and_that_of_a_check_are_two() -> None:
    world = World()
    world.send(UpdateNodes(ROOT, ("cn0",), "drain", "broken"))
    tell(world, 1, "disk")
    tell(world, 2)
    node = world.state.nodes[0]
    assert (node.drain, node.reason) == (True, "broken")
    tell(world, 3, "disk")
    answer = world.send(UpdateNodes(ROOT, ("cn0",), "resume"))
    assert answer == Changed(1, (), ("node cn0 stays drained until its check passes: health: disk: full",))
    assert not world.state.nodes[0].drain and not is_usable(world.state.nodes[0])
    tell(world, 4)
    assert is_usable(world.state.nodes[0])


def test_late_and_foreign_reports_change_nothing() -> None:
    world = World()
    tell(world, 2, "disk")
    tell(world, 1)
    tell(world, 2)
    tell(world, SERIAL_MAX + 1)
    tell(world, 9, incarnation=7)
    world.report(HealthReported(77, 1, 9, ()))
    assert texts(world) == ["health: disk: full"]


def test_a_registration_says_what_stands_and_counts_anew() -> None:
    world = World()
    tell(world, 5, "disk")
    for boot, session in (("b1", "s2"), ("b2", "s3")):
        reply = world.register(0, session=session, boot=boot)
        assert reply.failing == ("disk",)
        assert texts(world) == ["health: disk: full"]
    tell(world, 1)
    assert not texts(world)


def test_an_agent_of_an_earlier_release_has_no_failing_check() -> None:
    world = World()
    tell(world, 1, "disk")
    world.register(0, session="s2", protocol=3)
    assert not texts(world)


def test_what_a_node_says_is_bounded() -> None:
    world = World()
    name = "n" * NAME_CHARS_MAX
    names = (name, name + "n", "", "a b", "x\ny", "../x", *(f"c{number}" for number in range(2 * CHECKS_MAX)))
    failing = tuple(FailingCheck(one, "\x1b[2Ja\nb\t" + "x" * 10_000) for one in names)
    world.report(HealthReported(0, world.state.nodes[0].incarnation, 1, failing))
    shown = texts(world)
    assert len(shown) == CHECKS_MAX
    for text in shown:
        assert text.isprintable() and len(text) <= TEXT_CHARS_MAX + NAME_CHARS_MAX + 20
        assert is_check_name(text.split(": ")[1]) and "[2Ja b x" in text


def test_names_stand_once_and_in_order() -> None:
    twice = bounded((FailingCheck("b", "1"), FailingCheck("a", ""), FailingCheck("b", "2")))
    assert twice == (FailingCheck("a", ""), FailingCheck("b", "2"))
    assert bounded(twice) == twice


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "a" * (NAME_CHARS_MAX + 1), "a:b"])
def test_names_of_checks(name: str) -> None:
    assert not is_check_name(name)
    assert is_check_name("disk-1_2.x")
