"""Health checks on a node: when they run, and what the controller is told of them."""

from __future__ import annotations

import pytest

from eslurm.core.agent import actions as act
from eslurm.core.model.node_health import CheckTerms, FailingCheck
from eslurm.core.model.protocol import End, HealthReported, Prepare, Registration
from tests.kits.agent import World, launch

DISK = CheckTerms("disk", 60)
NET = CheckTerms("net", 300)


def runs(world: World) -> list[str]:
    return [one.check for one in world.log if isinstance(one, act.RunHealthCheck)]


def end(world: World, check: str, text: str | None) -> None:
    world.perform(world.agent.on_health_checked("cn0", check, world.now_us, text))
    world.settle()


def told(world: World) -> list[tuple[str, ...]]:
    return [tuple(one.name for one in report.body.failing) for report in world.sent(HealthReported)]  # type: ignore[union-attr]


def test_checks_run_by_their_intervals_one_run_of_each_at_a_time() -> None:
    world = World(health=(DISK, NET))
    world.pass_time(0)
    assert runs(world) == ["disk", "net"], "at once"
    world.pass_time(200)
    assert runs(world) == ["disk", "net"], "neither has ended"
    end(world, "disk", None)
    end(world, "net", None)
    world.pass_time(1)
    assert runs(world) == ["disk", "net", "disk"], "its turn has come meanwhile"
    end(world, "disk", None)
    world.pass_time(58)
    assert len(runs(world)) == 3
    world.pass_time(1)
    assert len(runs(world)) == 4
    assert not world.sent(HealthReported), "all is as the controller holds it"


def test_a_node_without_checks_has_no_timer_for_them() -> None:
    world = World()
    assert world.agent.health.next_timer_us() is None
    end(world, "disk", "full")
    assert not world.sent(HealthReported)


def test_a_change_is_told_once_and_its_words_are_those_of_the_first_failure() -> None:
    world = World(health=(DISK, NET))
    world.pass_time(0)
    end(world, "disk", "full")
    (report,) = world.sent(HealthReported)
    assert report.body == HealthReported(0, 1, 1, (FailingCheck("disk", "full"),))
    world.ack(report.seq)
    for text in ("full", "still full"):
        world.pass_time(60)
        end(world, "disk", text)
    assert len(told(world)) == 1
    end(world, "net", "no route")
    report = world.sent(HealthReported)[-1]
    assert report.body.failing == (FailingCheck("disk", "full"), FailingCheck("net", "no route"))  # type: ignore[union-attr]
    world.ack(report.seq)
    world.pass_time(60)
    end(world, "disk", None)
    assert told(world) == [("disk",), ("disk", "net"), ("net",)]


def test_a_later_report_replaces_one_that_is_not_acknowledged() -> None:
    world = World(health=(DISK,))
    world.pass_time(0)
    end(world, "disk", "full")
    world.pass_time(60)
    end(world, "disk", None)
    first, second = world.sent(HealthReported)[0], world.sent(HealthReported)[-1]
    assert (second.body.serial, second.body.failing) == (2, ()), "the first may have arrived"  # type: ignore[union-attr]
    world.ack(first.seq)
    assert second.seq in world.reports
    world.ack(second.seq)
    node = world.agent.registry.by_number[0]
    assert not node.owed and not node.sent


def test_a_registration_says_what_the_controller_holds() -> None:
    world = World(health=(DISK, NET), register=False)
    world.failing = ("disk", "gone")
    world.register()
    assert told(world) == [("disk",)], "a check that is no longer configured has no failure"
    world.ack_all()
    world.pass_time(0)
    end(world, "net", None)
    assert len(told(world)) == 1, "disk has not run yet: it counts as it did"
    end(world, "disk", None)
    assert told(world) == [("disk",), ()]


def test_a_controller_that_has_lost_a_failure_is_told_again() -> None:
    world = World(health=(DISK,))
    world.pass_time(0)
    end(world, "disk", "full")
    world.ack_all()
    world.epoch = 2
    world.perform(world.agent.on_link_up(world.now_us, "ctl", 2))
    world.settle()
    world.perform(world.agent.on_link_up(world.now_us, world.agent.buffer.owner, 2))
    world.register()
    assert told(world)[-1] == ("disk",) and len(told(world)) == 2
    assert world.sent(HealthReported)[-1].body.incarnation == world.agent.registry.by_number[0].incarnation  # type: ignore[union-attr]


def test_a_controller_of_an_earlier_release_is_told_of_none() -> None:
    world = World(health=(DISK,), register=False)
    world.failing = None
    world.register()
    world.pass_time(0)
    end(world, "disk", "full")
    assert not world.sent(HealthReported)
    assert not world.agent.registry.by_number[0].owed


def test_a_check_of_one_state_leaves_its_other_turns_out_until_it_fails() -> None:
    world = World(health=(CheckTerms("busy", 60, "allocated"), CheckTerms("still", 60, "idle")))
    world.pass_time(0)
    assert runs(world) == ["still"]
    end(world, "still", "broken")
    world.order(Prepare(launch()))
    world.pass_time(60)
    assert runs(world) == ["still", "still", "busy"] or runs(world) == ["still", "busy", "still"]
    end(world, "busy", "slow")
    end(world, "still", None)
    world.order(End(7, 1, 10.0, "cancel"))
    world.ack_all()
    world.agent.registry.by_number[0].attempts.clear()
    world.pass_time(60)
    assert runs(world)[3:] == ["busy", "still"], "a failing check runs on: its fault could not end otherwise"
    end(world, "busy", None)
    end(world, "still", None)
    world.pass_time(60)
    assert runs(world)[5:] == ["still"]


@pytest.mark.parametrize("boot", [False, True])
def test_a_restart_runs_them_anew(boot: bool) -> None:
    world = World(health=(DISK,))
    world.pass_time(0)
    end(world, "disk", "full")
    world.ack_all()
    world.failing = ("disk",)
    world.restart(boot=boot)
    world.register()
    world.pass_time(0)
    assert runs(world) == ["disk", "disk"]
    assert len(told(world)) == 1
    end(world, "disk", None)
    assert told(world) == [("disk",), ()]
    assert not [one for one in world.reports.values() if isinstance(one.body, Registration)]
