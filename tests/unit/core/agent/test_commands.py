"""Effects of each command on an attempt, the first time and every further time."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.core.agent import actions as act
from eslurm.core.agent import starts
from eslurm.core.agent.attempt import TRANSITIONS, Stage
from eslurm.core.agent.machine import PARKED_MAX
from eslurm.core.agent.outcomes import gone_outcome
from eslurm.core.model.job import StepEnd
from eslurm.core.model.protocol import End, Gone, Heartbeat, Prepare, Signal, Start, Started, Unhealthy
from eslurm.core.model.step_key import StepKey
from eslurm.core.relay.results import FAILED, OK, USER_REFUSED, Status, failed
from tests.kits.agent import ENVIRONMENT, SCRIPT, SECOND, World, is_ok, launch, step_launch

PREPARE = Prepare(launch(), start=True)
END = End(7, 1, 10.0, "cancel")
BATCH = StepKey(7, 1, -1, 0)


def started_at(world: World, ref: int) -> int:
    return msgspec.msgpack.decode(world.answered(ref)[0].payload, type=Started).at_us


def test_a_one_node_job_starts_with_its_preparation_and_is_acknowledged_to_the_end() -> None:
    world = World()
    ref = world.give(world.command(PREPARE))
    assert world.answered(ref) == {}, "no answer before the first process exists"
    world.settle()
    assert started_at(world, ref) == world.now_us
    assert world.stages() == {(7, 1): "RUNNING"}
    world.finish(exit_code=3)
    (report,) = world.reports.values()
    assert (report.body.end.exit_code, report.body.gone, report.body.incarnation) == (3, True, 1)
    assert world.runner.ended, "the runner keeps the outcome until the controller has committed it"
    world.ack(report.seq)
    assert world.stages() == {} and not world.runner.ended


def test_the_start_is_written_before_it_happens() -> None:
    world = World()
    world.order(PREPARE)
    kinds = [type(action) for action in world.log]
    assert kinds.index(act.RunBatch) > max(at for at, kind in enumerate(kinds) if kind is act.Spool)


def test_a_second_copy_of_an_effect_gets_the_first_answer_and_starts_nothing() -> None:
    world = World()
    command = world.command(PREPARE)
    first, second = world.give(command), world.give(command)
    world.settle()
    third = world.give(command)
    assert started_at(world, first) == started_at(world, second) == started_at(world, third)
    assert world.runner.started[BATCH] == 1


def test_the_same_attempt_under_another_effect_starts_nothing_either() -> None:
    world = World()
    world.order(PREPARE)
    assert is_ok(world.order(PREPARE)[0])
    world.finish()
    assert is_ok(world.order(PREPARE)[0]), "it did start"
    world.ack_all()
    assert world.order(PREPARE)[0].text == "the attempt has already ended on this node"
    assert world.runner.started[BATCH] == 1


def test_a_job_of_many_nodes_is_prepared_then_started_on_its_first_node() -> None:
    world = World(nodes=3)
    answers = world.order(Prepare(launch((2, 0, 1))), (2, 0, 1))
    assert answers == {2: OK, 0: OK, 1: OK}
    assert not world.runner.started
    assert world.order(Start(7, 1), (0,))[0].text == "this is not the attempt's first node"
    assert world.order(Start(7, 1), (2,))[2].payload
    assert sum(world.runner.started.values()) == 1
    answers = world.order(End(7, 1, 1.0, "done"), (0, 1))
    assert answers == {0: gone_outcome(False), 1: gone_outcome(False)}


def test_a_start_without_preparation_is_refused() -> None:
    world = World()
    assert world.order(Start(7, 1))[0].text == "the attempt is not prepared on this node"


def test_an_end_before_its_launch_leaves_a_tombstone() -> None:
    world = World()
    assert world.order(END) == {0: gone_outcome(False)}
    assert world.order(PREPARE)[0].status is Status.FAILED
    assert not world.runner.started


def test_an_end_waits_for_what_runs_and_says_gone() -> None:
    world = World()
    world.order(PREPARE)
    ref = world.give(world.command(END))
    assert world.answered(ref) == {}
    assert world.runner.terminated == [act.TerminateStep(BATCH, 10.0, "cancel")]
    world.finish(exit_code=0, signal=15)
    assert world.answered(ref) == {0: gone_outcome(True)}
    assert [end.end.signal for end in world.ends] == [15]
    assert not world.gone


def test_an_end_that_takes_too_long_is_answered_without_gone_and_reported_later() -> None:
    world = World()
    world.order(PREPARE)
    ref = world.give(world.command(END), deadline_us=2 * SECOND)
    world.pass_time(1.9)
    assert world.answered(ref) == {}
    world.pass_time(0.2)
    assert world.answered(ref) == {0: OK}
    world.finish(signal=9)
    assert [(gone.job_id, gone.attempt) for gone in world.gone] == [(7, 1)]
    assert len(world.ends) == 1
    world.ack_all()
    assert world.stages() == {} and not world.agent.registry.by_number[0].owed


def test_an_end_while_the_start_is_under_way_ends_it_again_once_it_runs() -> None:
    world = World()
    first = world.give(world.command(PREPARE))
    world.give(world.command(END))
    assert world.answered(first) == {}, "nobody knows yet whether it will have run"
    assert len(world.runner.terminated) == 1
    world.settle()
    assert started_at(world, first) == world.now_us
    assert [(t.grace_s, t.cause) for t in world.runner.terminated] == [(10.0, "cancel"), (10.0, "ended")]


def test_two_ends_are_both_answered() -> None:
    world = World()
    world.order(PREPARE)
    refs = [world.give(world.command(END)), world.give(world.command(END))]
    world.finish()
    assert [world.answered(ref) for ref in refs] == [{0: gone_outcome(True)}] * 2
    assert world.order(END) == {0: gone_outcome(True)}


def test_the_tombstone_is_written_before_anything_is_ended() -> None:
    world = World()
    world.order(PREPARE)
    before = len(world.log)
    world.give(world.command(END))
    kinds = [type(action) for action in world.log[before:]]
    assert kinds == [act.Spool, act.TerminateStep]


def test_a_signal_is_delivered_at_most_once_also_after_a_restart() -> None:
    world = World()
    world.order(PREPARE)
    command = world.command(Signal(7, 1, 10))
    assert is_ok(world.answered(world.give(command))[0])
    assert is_ok(world.answered(world.give(command))[0])
    world.restart()
    world.register()
    again = msgspec.structs.replace(command, incarnations=(2,))
    assert is_ok(world.answered(world.give(again))[0])
    assert world.runner.signalled == [act.SignalStep(BATCH, 10)]
    assert world.order(Signal(7, 1, 10, step=4))[0].text == "no such step runs on this node"


def test_a_node_that_cannot_start_a_job_says_so_and_never_starts_it() -> None:
    world = World()
    world.runner.refuses = "no more processes"
    answer = world.order(PREPARE)[0]
    assert (answer.status, answer.text) == (Status.FAILED, "no more processes")
    world.runner.refuses = ""
    assert world.order(PREPARE)[0].status is Status.FAILED
    assert not world.runner.started and not world.ends and world.stages() == {}


def test_a_users_error_is_the_jobs_outcome_not_the_nodes() -> None:
    world = World()
    ref = world.give(world.command(PREPARE))
    world.runner.finish(BATCH, _spawn_failed())
    world.settle()
    assert is_ok(world.answered(ref)[0])
    assert world.ends[0].end.cause == "spawn_failed"


def _spawn_failed() -> object:
    from eslurm.core.model.job import StepEnd

    return StepEnd(127, cause="spawn_failed", text="no such directory", ended_us=5)


def test_a_spool_that_cannot_be_written_takes_no_new_work_until_it_can() -> None:
    world = World()
    world.agent.on_storage("no space left")
    answer = world.order(PREPARE)[0]
    assert answer.status is Status.FAILED and "no space left" in answer.text
    world.agent.on_storage("")
    assert is_ok(world.order(Prepare(launch(job_id=8), start=True))[0])


def test_only_the_first_node_fetches_the_script_and_waits_for_it() -> None:
    world = World(nodes=2, blobs=False)
    ref = world.give(world.command(Prepare(launch((0, 1))), (0, 1)))
    assert world.answered(ref) == {1: OK}
    assert [action for action in world.log if isinstance(action, act.FetchBlobs)]
    world.blobs |= {SCRIPT, b"e" * 32}
    world.perform(world.agent.on_blobs((SCRIPT,), world.now_us))
    assert world.answered(ref) == {0: OK, 1: OK}


def test_a_script_that_cannot_be_had_fails_the_node() -> None:
    world = World(blobs=False)
    ref = world.give(world.command(PREPARE))
    world.perform(world.agent.on_blobs_missing((SCRIPT,), world.now_us))
    assert world.answered(ref)[0].text == "the script or environment could not be fetched"
    assert world.stages() == {}


def test_an_end_while_fetching_answers_the_launch_too() -> None:
    world = World(blobs=False)
    ref = world.give(world.command(PREPARE))
    assert world.order(END) == {0: gone_outcome(False)}
    assert world.answered(ref)[0].status is Status.FAILED
    world.blobs |= {SCRIPT, b"e" * 32}
    world.perform(world.agent.on_blobs((SCRIPT,), world.now_us))
    assert not world.runner.started


def test_steps_start_on_each_node_with_their_share_of_the_tasks() -> None:
    world = World(nodes=2)
    world.order(Prepare(launch((0, 1))), (0, 1))
    world.order(Start(7, 1))
    answers = world.order(step_launch((0, 1), tasks=3), (0, 1))
    assert answers == {0: OK, 1: OK}
    runs = [action for action in world.log if isinstance(action, act.RunTasks)]
    assert [(run.step.node, run.tasks, run.first_task, run.node_index) for run in runs] == [
        (0, 3, 0, 0),
        (1, 3, 3, 1),
    ]
    world.finish(node=1, step=0)
    assert not world.runner.ended, "nobody but its own command waits for a step's outcome"
    assert world.stages(1) == {(7, 1): "PREPARED"}


def test_a_step_of_an_attempt_that_is_not_here_is_refused() -> None:
    world = World()
    assert world.order(step_launch())[0].text == "the attempt does not run on this node"


def test_the_end_of_the_script_ends_its_steps_before_it_is_reported() -> None:
    world = World()
    world.order(PREPARE)
    world.order(step_launch())
    world.finish(exit_code=2)
    assert world.stages() == {(7, 1): "CLOSING"} and not world.ends
    assert world.runner.terminated[-1].step == StepKey(7, 1, 0, 0)
    world.finish(step=0)
    assert [(end.end.exit_code, end.gone) for end in world.ends] == [(2, True)]


def test_an_end_on_another_node_waits_for_the_steps_there() -> None:
    world = World(nodes=2)
    world.order(Prepare(launch((0, 1))), (0, 1))
    world.order(Start(7, 1))
    world.order(step_launch((1,)), (1,))
    ref = world.give(world.command(END, (1,)))
    assert world.answered(ref) == {}
    world.finish(node=1, step=0, signal=15)
    assert world.answered(ref) == {1: gone_outcome(False)}
    assert world.stages(1) == {} and not world.ends


def test_a_step_that_cannot_be_started_is_said_at_once() -> None:
    world = World()
    world.order(PREPARE)
    world.runner.refuses = "full"
    assert world.order(step_launch())[0].text == "full"
    assert world.stages() == {(7, 1): "RUNNING"}


def test_heartbeats_tell_of_problems_and_are_plain_without_any() -> None:
    world = World(nodes=3)
    world.agent.set_problems(("disk", "memory"))
    answers = world.order(Heartbeat(0), (0, 1, 2))
    assert len(set(answers.values())) == 1, "equal problems merge on the way up"
    assert is_ok(answers[0])
    assert msgspec.msgpack.decode(answers[0].payload, type=Unhealthy).problems == ("disk", "memory")
    launched = world.order(Prepare(launch((0, 1))), (0, 1))
    assert launched == {0: OK, 1: OK}, "a node with problems still gets work"
    world.agent.set_problems(())
    assert world.order(Heartbeat(0), (0, 1, 2)) == {0: OK, 1: OK, 2: OK}


def test_no_stage_leads_back_before_a_start() -> None:
    reachable = {stage: set(moves) for stage, moves in TRANSITIONS.items()}
    for stage in (Stage.STARTING, Stage.RUNNING, Stage.CLOSING, Stage.ENDING, Stage.ENDED, Stage.BURIED):
        seen = {stage}
        while news := {after for before in seen for after in reachable[before]} - seen:
            seen |= news
        assert Stage.PREPARED not in seen and Stage.FETCHING not in seen
        assert stage is Stage.STARTING or Stage.STARTING not in seen


@pytest.mark.parametrize("started", [False, True])
def test_gone_says_whether_the_script_had_run(started: bool) -> None:
    assert msgspec.msgpack.decode(gone_outcome(started).payload, type=Gone) == Gone(started)


def test_a_user_whom_the_runner_refuses_is_told_apart_from_a_node_that_cannot() -> None:
    world = World()
    world.runner.refuses, world.runner.refuses_code = "jobs of root are refused here", USER_REFUSED
    assert world.order(Prepare(launch(), start=True)) == {
        0: failed("jobs of root are refused here", USER_REFUSED)
    }
    world.runner.refuses, world.runner.refuses_code = "no memory", FAILED
    assert world.order(Prepare(launch(job_id=8), start=True)) == {0: failed("no memory")}


@pytest.mark.parametrize("restarts", [False, True])
def test_an_end_that_overtakes_a_launch_which_is_then_refused_says_for_ever_that_it_never_ran(
    restarts: bool,
) -> None:
    """Otherwise the controller waits for a report of how the script ended, and the node stays taken."""
    world = World()
    world.runner.refuses = "no contact with the controller for 15 s"
    world.give(world.command(PREPARE))
    first = world.give(world.command(END))
    world.settle()
    assert world.answered(first) == {0: gone_outcome(False)}
    if restarts:
        world.restart()
        world.register()
    assert world.order(END) == {0: gone_outcome(False)}


def test_a_node_holds_so_many_attempts_and_not_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that has gone mad fills neither the memory nor the spool of its nodes."""
    monkeypatch.setattr(starts, "ATTEMPTS_PER_NODE_MAX", 3)
    world = World()
    answers = [world.order(Prepare(launch(job_id=job), start=True))[0] for job in range(1, 6)]
    assert [is_ok(one) for one in answers] == [True] * 3 + [False] * 2
    assert answers[3].text == "the node already holds 3 attempts" and len(world.stages()) == 3
    world.finish(job_id=1)
    world.ack_all()
    assert is_ok(world.order(Prepare(launch(job_id=6), start=True))[0])


def test_so_many_commands_wait_for_a_registration_and_not_more() -> None:
    world = World(register=False)
    for report in list(world.reports.values()):
        world.reply(report)
    world.incarnations[0] = 1
    refs = [world.give(world.command(Prepare(launch(job_id=job)))) for job in range(1, PARKED_MAX + 3)]
    (node,) = world.agent.registry.by_name.values()
    assert len(node.parked) == PARKED_MAX
    world.incarnations.clear()
    world.register()
    answered = [bool(world.answered(ref)) for ref in refs]
    assert answered == [True] * PARKED_MAX + [False] * 2, "their broadcasts find them silent, and ask again"


def test_a_launch_that_is_told_to_start_while_its_script_is_fetched_starts_when_that_is_here() -> None:
    world = World(blobs=False)
    first = world.give(world.command(Prepare(launch())))
    second = world.give(world.command(PREPARE), deadline_us=60 * SECOND)
    assert world.answered(first) == world.answered(second) == {}
    world.blobs |= {SCRIPT, ENVIRONMENT}
    world.perform(world.agent.on_blobs((SCRIPT, ENVIRONMENT), world.now_us))
    world.settle()
    assert is_ok(world.answered(first)[0]) and is_ok(world.answered(second)[0])
    assert sum(world.runner.started.values()) == 1 and world.stages() == {(7, 1): "RUNNING"}


def test_a_step_of_an_attempt_that_ends_or_has_ended_is_refused() -> None:
    world = World()
    world.order(PREPARE)
    world.give(world.command(END))
    ending = world.order(step_launch())[0]
    world.finish(signal=15)
    ended = world.order(step_launch(step=1))[0]
    assert ending.text == ended.text == "the attempt does not run on this node"
    assert [step.step for step in world.runner.started] == [BATCH.step]


@pytest.mark.parametrize("cause", ["spawn_failed", "lost"])
def test_a_step_whose_tasks_never_ran_is_no_step_that_was_started(cause: str) -> None:
    world = World()
    world.order(PREPARE)
    ref = world.give(world.command(step_launch()))
    world.runner.finish(StepKey(7, 1, 0, 0), StepEnd(127, cause=cause, text="there is no such program"))
    world.settle()
    assert world.answered(ref) == {0: failed("there is no such program", 127)}
