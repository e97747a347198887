"""Cores that an application reports idle and the controller excludes: bounds, rates, and restarts of the agent."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.core.agent import actions as act
from eslurm.core.agent.attempt import Attempt
from eslurm.core.agent.cooperation import CoresView
from eslurm.core.agent.records import CoresNoted, fold, unfold
from eslurm.core.model.protocol import AskCores, CoresReported, End, Exclude, NodeGroup, Prepare
from eslurm.core.relay.results import Status
from tests.kits.agent import World, is_ok, launch

CORES = 4


def started(cooperate: str = "full") -> World:
    """Job 7 runs on node 0 with four cores."""
    world = World()
    made = launch()
    groups = (NodeGroup(((0, 1),), (CORES, 0), 1),)
    spec = msgspec.structs.replace(made.spec, cooperate=cooperate)
    world.order(Prepare(msgspec.structs.replace(made, spec=spec, groups=groups), start=True))
    return world


def attempt_of(world: World) -> Attempt:
    return world.agent.registry.by_number[0].attempts[7, 1]


def say(
    world: World, idle: int | None, worker: int = 0, *, remaining_s: int = -1, rejects: bool = False
) -> CoresView:
    actions, view = world.agent.on_cores(
        attempt_of(world), worker, idle, remaining_s, world.now_us, rejects=rejects
    )
    world.perform(actions)
    return view


def told(world: World) -> list[tuple[int, int, int, bool]]:
    """The reports that went up, each once."""
    found = {report.seq: report.body for report in world.sent(CoresReported)}
    return [(one.idle, one.excluded, one.remaining_s, one.rejects) for one in found.values()]


def excluded(world: World, cores: int) -> bool:
    return is_ok(world.order(Exclude(7, 1, cores))[0])


def test_idle_cores_of_several_processes_add_up() -> None:
    world = started()
    assert say(world, 1, 0) == CoresView("full", CORES, 1, 0, 0)
    assert say(world, 2, 5).idle == 3
    assert say(world, 0, 0).idle == 2
    with pytest.raises(ValueError, match="the job has 4 on this node"):
        say(world, 3, 1)


def test_what_is_used_is_not_excluded() -> None:
    world = started()
    assert not excluded(world, 1)
    say(world, 2)
    assert not excluded(world, 3)
    assert excluded(world, 2)
    assert say(world, None).excluded == 2
    assert say(world, 0).excluded == 2, "it asks them back, and waits"
    assert excluded(world, 1)
    assert say(world, 0).excluded == 1
    changes = [one for one in world.log if isinstance(one, act.ExclusionChanged)]
    assert len(changes) == 2


def test_the_later_order_counts_however_they_come() -> None:
    world = started()
    say(world, 3)
    first, second = world.command(Exclude(7, 1, 3)), world.command(Exclude(7, 1, 1))
    world.give(second)
    ref = world.give(first)
    assert world.answered(ref)[0].status is Status.FAILED
    assert say(world, None).excluded == 1


def test_an_attempt_goes_up_once_a_second_and_at_once_when_it_wants_cores_back() -> None:
    world = started()
    say(world, 1)
    for idle in (2, 3, 2, 3):
        say(world, idle)
    assert told(world) == [(1, 0, -1, False)]
    world.pass_time(1)
    assert told(world)[1:] == [(3, 0, -1, False)]
    excluded(world, 3)
    say(world, 0)
    assert told(world)[2:] == [(0, 3, -1, False)]


def test_less_work_alone_goes_up_rarely() -> None:
    world = started()
    for left in range(100, 0, -1):
        say(world, 1, remaining_s=left)
        world.pass_time(0.1)
    assert 2 <= len(told(world)) <= 4


def test_a_refused_order_is_followed_by_the_truth() -> None:
    world = started()
    say(world, 2)
    say(world, 0)
    world.order(Exclude(7, 1, 2))
    world.pass_time(0.01)
    assert told(world)[-1] == (0, 0, -1, False)


def test_requests_are_granted_or_rejected_with_the_next_report() -> None:
    world = started()
    say(world, 1)
    world.order(AskCores(7, 1, 2))
    assert say(world, None).asked == 2
    assert say(world, 2).asked == 1, "one is granted"
    assert say(world, None, rejects=True).asked == 0
    world.pass_time(1)
    assert told(world)[-1] == (2, 0, -1, True)
    world.order(AskCores(7, 1, 1))
    world.pass_time(80)
    assert say(world, None).asked == 0, "it has lapsed"


@pytest.mark.parametrize("cooperate", ["", "off", "perhaps"])
def test_without_the_user_s_word_nothing_is_kept(cooperate: str) -> None:
    world = started(cooperate)
    assert say(world, 2) == CoresView("off", CORES, 0, 0, 0)
    assert not excluded(world, 1)
    assert told(world) == []
    assert attempt_of(world).cores is None or not attempt_of(world).cores.idle


def test_one_that_only_reports_hears_of_no_request() -> None:
    world = started("report")
    say(world, 1)
    world.order(AskCores(7, 1, 2))
    assert say(world, None).asked == 0


def test_a_restart_of_the_agent_keeps_both_words() -> None:
    world = started()
    say(world, 1, 0)
    say(world, 2, 3)
    excluded(world, 2)
    world.restart()
    world.register()
    view = say(world, None)
    assert (view.idle, view.excluded) == (3, 2)
    assert told(world)[-1][:2] == (3, 2), "a controller that may be new is told"
    folded = world.agent.folded()
    assert folded.cores == {
        (0, 7, 1): CoresNoted(0, 7, 1, attempt_of(world).cores.revision, 2, ((0, 1), (3, 2)))
    }
    assert fold(unfold(folded)).cores == folded.cores


def test_nothing_is_left_of_an_attempt_that_is_over() -> None:
    world = started()
    say(world, 2)
    excluded(world, 2)
    world.order(End(7, 1, 0.0, "released"))
    world.finish()
    assert not world.agent.folded().cores
    assert is_ok(world.order(Exclude(7, 1, 0))[0])
    assert not excluded(world, 1)


def test_processes_are_bounded() -> None:
    world = started()
    for worker in range(4096):
        say(world, 0, worker)
    with pytest.raises(ValueError, match="more than 4096 processes"):
        say(world, 0, 4096)
