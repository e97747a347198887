"""A job's way from its submission to its end when nobody interferes, and launches that do not work."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from eslurm.core.model.facts import AttemptEnded
from eslurm.core.model.job import Dependency, StepEnd
from eslurm.core.model.protocol import End, NodeGroup, Prepare, Start, Started, StepEnded
from eslurm.core.model.request import Request
from tests.kits.core import SECOND, World

WIDE = Request(tasks=12, nodes_min=3, nodes_max=3)


def started(world: World) -> bytes:
    return msgspec.msgpack.encode(Started(world.now_us))


def test_a_one_node_job_is_prepared_and_started_in_one_command() -> None:
    world = World()
    job = world.submit()
    since = len(world.log)
    assert world.plan() == [job]
    assert world.state_of(job) == "LAUNCHING"
    (send,) = world.sends()
    assert isinstance(send.body, Prepare) and send.body.start
    world.now_us += SECOND
    world.done(send, payload=started(world))
    assert world.state_of(job) == "RUNNING"
    assert world.job(job).started_us == world.now_us
    world.end(job)
    assert world.state_of(job) == "COMPLETED"
    assert world.kinds(since) == ["JobPlaced", "AttemptStarted", "AttemptEnded"]
    assert not world.state.jobs_on and not world.state.owed and not len(world.delivery)


def test_the_launch_carries_what_the_node_needs() -> None:
    world = World()
    job = world.submit(
        request=Request(tasks=8, nodes_min=2, nodes_max=2, include=("cn0",)),
        name="sim",
        arguments=("a",),
        time_limit_s=60,
        account="x",
    )
    world.plan()
    (send,) = world.sends()
    assert isinstance(send.body, Prepare) and not send.body.start
    launch = send.body.launch
    assert launch.groups == (NodeGroup(((0, 2),), (4, 0), 4),)
    assert (launch.job_id, launch.attempt, launch.node_names) == (job, 1, "cn[0-1]")
    # What nodes do not look at may be large.
    assert launch.spec == replace(world.job(job).spec, components=(Request(),))
    assert launch.orphan_timeout_s == world.state.config.orphan_timeout_s


def test_the_launch_of_a_task_has_none_of_what_its_array_waits_for() -> None:
    world = World()
    ranges = ((0, 2), (5, 9))
    after = Dependency("singleton")
    world.submit(tasks=ranges, dependencies=(after,))
    world.plan()
    launches = [send.body.launch for send in world.sends() if isinstance(send.body, Prepare)]
    assert launches
    for launch in launches:
        assert (launch.spec.array, launch.spec.dependencies) == (None, ())
        assert (launch.array_count, launch.array_min, launch.array_max) == (8, 0, 9)


def test_a_job_that_may_not_be_requeued_is_never_ended_as_an_orphan() -> None:
    world = World()
    world.submit(requeue=False)
    world.plan()
    (send,) = world.sends()
    assert isinstance(send.body, Prepare)
    assert send.body.launch.orphan_timeout_s == 0


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (StepEnd(0), "COMPLETED"),
        (StepEnd(3), "FAILED"),
        (StepEnd(0, signal=9), "FAILED"),
        (StepEnd(0, signal=15, cause="time_limit"), "TIMEOUT"),
        (StepEnd(0, signal=9, cause="orphaned"), "PENDING"),
        (StepEnd(0, signal=9, cause="lost"), "PENDING"),
    ],
)
def test_how_the_script_ended_decides_the_final_state(end: StepEnd, state: str) -> None:
    world = World()
    job = world.submit()
    world.start()
    world.report(StepEnded(0, 1, job, 1, end, True))
    assert world.state_of(job) == state


def test_a_job_that_may_not_be_requeued_fails_with_its_node() -> None:
    world = World()
    job = world.submit(requeue=False)
    world.start()
    world.end(job, cause="orphaned")
    assert world.state_of(job) == "NODE_FAIL"


def test_many_nodes_are_prepared_before_the_first_one_starts() -> None:
    world = World()
    job = world.submit(request=WIDE)
    since = len(world.log)
    world.plan()
    (prepare,) = world.sends()
    assert isinstance(prepare.body, Prepare) and prepare.nodes == (0, 1, 2)
    world.done(prepare)
    assert world.state_of(job) == "LAUNCHING"
    (start,) = world.sends()
    assert isinstance(start.body, Start) and start.nodes == (0,)
    world.done(start, payload=started(world))
    assert world.state_of(job) == "RUNNING"
    assert world.kinds(since) == ["JobPlaced", "NodesPrepared", "AttemptStarted"]


def test_the_other_nodes_are_released_when_the_script_has_ended() -> None:
    world = World()
    job = world.submit(request=WIDE)
    world.start()
    node = world.state.nodes[0]
    world.report(StepEnded(0, node.incarnation, job, 1, StepEnd(0), True))
    assert world.state_of(job) == "COMPLETING"
    assert sorted(world.state.jobs_on) == [1, 2]
    (send,) = world.sends()
    assert isinstance(send.body, End) and send.nodes == (1, 2)
    world.done(send, payload=b"")
    assert world.state_of(job) == "COMPLETING"
    world.gone(1, job, 1)
    since = len(world.log)
    world.gone(1, job, 1)
    assert len(world.log) == since
    world.gone(2, job, 1)
    assert world.state_of(job) == "COMPLETED"
    assert not world.state.jobs_on


def test_prepared_nodes_count_though_their_answers_come_in_parts() -> None:
    world = World()
    job = world.submit(request=WIDE)
    world.plan()
    (first,) = world.sends()
    world.register(2, session="again")
    world.done(first, nodes=(0, 1, 2))
    assert world.attempt(job).phase.value == "STARTING"


def test_one_unreached_node_makes_the_job_try_elsewhere_while_it_stays_held() -> None:
    world = World(nodes=8)
    job = world.submit(request=Request(tasks=8, nodes_min=2, nodes_max=2))
    world.plan()
    (prepare,) = world.sends()
    world.done(prepare, nodes=(0,))
    assert world.state_of(job) == "PENDING"
    assert len(world.job(job).residues) == 1
    assert sorted(world.state.jobs_on) == [0, 1]
    (end,) = world.sends()
    assert isinstance(end.body, End) and end.nodes == (0, 1)
    world.pass_time(2)
    assert world.plan() == [job]
    assert [span.node for span in world.attempt(job).spans] == [2, 3]
    world.done(end, payload=b"\x91\xc2")
    assert not world.job(job).residues
    assert sorted(world.state.jobs_on) == [2, 3]


def test_a_node_that_failed_to_prepare_holds_nothing_and_is_avoided() -> None:
    world = World(nodes=8)
    job = world.submit(request=Request(tasks=8, nodes_min=2, nodes_max=2))
    world.plan()
    (prepare,) = world.sends()
    world.done(prepare, status="failed", nodes=(0, 1))
    assert world.state_of(job) == "PENDING"
    assert not world.state.jobs_on and not world.job(job).residues
    assert "cn0, cn1: why" in world.job(job).exit_text
    world.pass_time(2)
    world.plan()
    assert [span.node for span in world.attempt(job).spans] == [2, 3]


def test_bad_nodes_are_avoided_together_until_the_job_has_started() -> None:
    """Two broken nodes at the head of the list must not take turns until the job is held."""
    world = World(nodes=8)
    job = world.submit()
    for number in (0, 1, 2):
        world.pass_time(5)
        world.plan()
        assert world.attempt(job).first == number
        (send,) = world.sends()
        world.done(send, "failed")
    world.pass_time(5)
    world.start()
    assert world.attempt(job).first == 3
    assert world.job(job).avoid == frozenset()


def test_a_script_that_cannot_start_leaves_the_others_to_be_released() -> None:
    world = World()
    job = world.submit(request=WIDE)
    world.plan()
    world.deliver()
    (start,) = world.sends()
    world.done(start, "failed")
    assert world.state_of(job) == "PENDING"
    (residue,) = world.job(job).residues
    assert residue.held == {0, 1, 2}
    world.deliver()
    assert not world.job(job).residues


def test_launch_failures_back_off_and_end_in_a_hold_that_says_why() -> None:
    world = World(nodes=1, launch_failures_max=3, requeue_delay_s=1.0)
    job = world.submit()
    waits = []
    for _ in range(3):
        world.plan()
        (send,) = world.sends()
        world.done(send, "failed")
        waits.append((world.job(job).not_before_us - world.now_us) // SECOND)
        world.pass_time(waits[-1])
    assert waits == [1, 2, 4]
    assert world.job(job).hold == "system"
    assert "could not be launched on cn0: why" in world.job(job).reason_text
    assert world.plan() == []
    world.hold(job, release=True)
    assert world.job(job).launch_failures == 0
    assert world.start() == [job]


def test_the_delay_between_launches_is_bounded() -> None:
    world = World(nodes=1, launch_failures_max=40)
    job = world.submit()
    for _ in range(10):
        world.pass_time(60)
        world.plan()
        (send,) = world.sends()
        world.done(send, "failed")
    assert world.job(job).not_before_us - world.now_us == 60 * SECOND


def test_a_script_may_end_before_anybody_heard_of_its_start() -> None:
    world = World()
    for request in (Request(), WIDE):
        job = world.submit(request=request)
        world.plan()
        if request is WIDE:
            world.deliver()
        first = world.attempt(job).first
        late = world.sends()
        began_us = world.now_us
        world.pass_time(9)
        end = StepEnd(0, started_us=began_us + 5 * SECOND, ended_us=began_us + 9 * SECOND)
        world.report(StepEnded(first, 1, job, 1, end, True))
        for send in late:
            world.done(send, payload=started(world))
        world.deliver()
        assert world.state_of(job) == "COMPLETED"
        assert world.job(job).started_us == began_us + 5 * SECOND
        assert world.job(job).ended_us == began_us + 9 * SECOND


def test_messages_of_an_attempt_that_is_over_change_nothing() -> None:
    world = World()
    job = world.submit()
    world.plan()
    (send,) = world.sends()
    world.done(send, payload=started(world))
    ended = StepEnded(0, 1, job, 1, StepEnd(0, cause="lost"), True)
    world.report(ended)
    world.pass_time(2)
    world.start()
    assert world.attempt(job).number == 2
    since = len(world.log)
    world.report(ended)
    world.done(send, "failed")
    world.gone(0, job, 1)
    assert len(world.log) == since
    assert world.state_of(job) == "RUNNING"


def test_each_attempt_has_one_accounting_entry() -> None:
    world = World()
    job = world.submit()
    world.start()
    world.end(job, cause="lost")
    world.pass_time(2)
    world.start()
    world.end(job, 3)
    ends = [fact.outcome.value for fact in world.log if isinstance(fact, AttemptEnded)]
    assert ends == ["PENDING", "FAILED"]
    rows = [row for row in world.mirror.image.load_unfinished("main") if type(row).__name__ == "AttemptRow"]
    assert not rows, "finished jobs are not loaded"
