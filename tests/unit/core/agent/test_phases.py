"""Prolog and epilog on a node: once each, at their place, over restarts of the agent and boots of the host."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.core.agent import actions as act
from eslurm.core.agent.faults import CHECK_EVERY_US
from eslurm.core.agent.outcomes import gone_outcome, preparing_outcome
from eslurm.core.agent.records import fold, unfold
from eslurm.core.model.job import StepEnd
from eslurm.core.model.protocol import (
    CheckPassed,
    End,
    NodeGone,
    PhaseReported,
    Prepare,
    Registration,
    Signal,
    Start,
    StepEnded,
)
from eslurm.core.model.step_key import EPILOG_STEP, PROLOG_STEP, StepKey
from eslurm.core.relay.results import OK
from tests.kits.agent import SECOND, Crashed, World, is_ok, launch, step_launch

BOTH = ("prolog", "epilog")
LAUNCH = launch(phases=BOTH)
PREPARE = Prepare(LAUNCH)
START = Start(7, 1, LAUNCH)
END = End(7, 1, 10.0, "cancel")
PROLOG, EPILOG = StepKey(7, 1, PROLOG_STEP, 0), StepKey(7, 1, EPILOG_STEP, 0)
BATCH = StepKey(7, 1, -1, 0)
PREPARING = preparing_outcome(300)


def stage(world: World) -> str:
    return world.stages().get((7, 1), "")


def prepared() -> World:
    """A node whose prolog has ended well."""
    world = World(phases=BOTH)
    assert world.order(PREPARE) == {0: PREPARING}
    world.finish(step=PROLOG_STEP)
    assert stage(world) == "PREPARED"
    world.ack_all()
    return world


def in_epilog() -> World:
    world = prepared()
    world.order(START)
    world.finish(exit_code=4)
    assert stage(world) == "EPILOG"
    return world


def prologs(world: World) -> list[PhaseReported]:
    return [report.body for report in world.sent(PhaseReported)]


def held(world: World) -> list[tuple[int, str]]:
    report = world.sent(Registration)[-1]
    return [(line.job_id, line.stage) for line in report.body.held]


def test_a_launch_without_phases_runs_as_ever() -> None:
    world = World(phases=BOTH)
    assert world.order(Prepare(launch()))[0] == OK
    world.order(END)
    assert not any(key.is_phase for key in world.runner.started)


def test_a_node_without_phases_answers_at_once() -> None:
    world = World()
    assert world.order(PREPARE)[0] == OK
    assert world.order(END)[0] == gone_outcome(False)


def test_the_script_starts_after_the_prolog_and_the_epilog_runs_last() -> None:
    world = World(phases=BOTH)
    assert world.order(PREPARE) == {0: PREPARING}
    assert not is_ok(world.order(START)[0])
    assert not is_ok(world.order(step_launch())[0])
    world.finish(step=PROLOG_STEP)
    assert [body.end.is_good for body in prologs(world)] == [True]
    assert is_ok(world.order(START)[0])
    world.order(step_launch())
    world.finish()
    assert stage(world) == "CLOSING" and EPILOG not in world.runner.started
    world.finish(step=0)
    assert stage(world) == "EPILOG"
    assert [end.gone for end in world.ends] == [False]
    assert [body.epilog for body in world.gone] == []
    world.finish(step=EPILOG_STEP)
    assert [body.epilog.is_good for body in world.gone if body.epilog] == [True]
    world.ack_all()
    assert not world.stages() and not world.runner.ended
    assert set(world.runner.started.values()) == {1}


def test_the_epilog_hears_how_the_script_ended_and_has_the_launch() -> None:
    world = in_epilog()
    (action,) = [one for one in world.log if isinstance(one, act.RunPhase) and one.step == EPILOG]
    assert action.end is not None and action.end.exit_code == 4
    assert action.launch == LAUNCH


def test_an_end_is_answered_without_a_word_until_the_epilog_is_reported() -> None:
    world = in_epilog()
    ref = world.give(world.command(END))
    assert world.answered(ref) == {}
    world.finish(step=EPILOG_STEP)
    assert world.answered(ref) == {0: OK}
    assert world.order(END)[0] == OK
    world.ack_all()
    assert world.order(END)[0] == gone_outcome(True)


def test_a_report_of_the_epilog_that_may_have_come_too_early_is_sent_again_with_the_order_to_end() -> None:
    """Else its acknowledgement, which is on its way, were the last word, and the node held for ever."""
    world = in_epilog()
    world.finish(step=EPILOG_STEP)
    (early,) = [seq for seq, one in world.reports.items() if isinstance(one.body, NodeGone)]
    assert world.order(END) == {0: OK}
    world.ack(early)
    again = [one for one in world.sent(NodeGone) if one.seq > early]
    assert len(again) == 1 and again[0].body == world.sent(NodeGone)[0].body
    assert stage(world) == "ENDED", "an acknowledgement of the first one settles nothing any more"
    world.ack_all()
    assert not world.stages()


def test_a_failed_prolog_is_reported_and_nothing_of_the_job_ever_runs() -> None:
    world = World(phases=BOTH)
    world.order(PREPARE)
    world.finish(step=PROLOG_STEP, exit_code=3)
    assert [body.end.exit_code for body in prologs(world)] == [3]
    assert world.order(END)[0] == OK, "the report says more than an answer can"
    assert not is_ok(world.order(PREPARE)[0]) and not is_ok(world.order(START)[0])
    world.ack_all()
    assert not world.stages() and set(world.runner.started) == {PROLOG}
    assert not is_ok(world.order(PREPARE)[0])


@pytest.mark.parametrize("well", [True, False])
def test_a_job_that_is_cancelled_in_its_prolog_leaves_the_prolog_alone(well: bool) -> None:
    world = World(phases=BOTH)
    world.order(PREPARE)
    ref = world.give(world.command(END))
    assert not world.runner.terminated
    world.finish(step=PROLOG_STEP, exit_code=0 if well else 1)
    assert (EPILOG in world.runner.started) is well
    if well:
        world.finish(step=EPILOG_STEP)
    assert world.answered(ref) == {0: OK}
    world.ack_all()
    assert not world.stages() and not world.runner.ended


def test_a_prepared_node_runs_its_epilog_when_the_attempt_is_ended() -> None:
    world = prepared()
    world.give(world.command(END))
    assert stage(world) == "EPILOG"
    world.finish(step=EPILOG_STEP)
    world.ack_all()
    assert not world.stages()


def test_a_script_that_cannot_start_leaves_the_epilog_to_run() -> None:
    world = prepared()
    world.runner.refuses = "no memory"
    ref = world.give(world.command(START))
    world.runner.refuses = ""
    world.settle()
    assert not is_ok(world.answered(ref)[0])
    assert stage(world) == "EPILOG"


def test_a_prolog_that_cannot_start_has_failed() -> None:
    world = World(phases=BOTH)
    world.runner.refuses = "prolog: /etc/prolog is writable by others"
    world.order(PREPARE)
    (body,) = prologs(world)
    assert not body.end.is_good and "writable" in body.end.text


def test_no_signal_reaches_a_phase() -> None:
    world = in_epilog()
    assert not is_ok(world.order(Signal(7, 1, 9, EPILOG_STEP))[0])
    assert not world.runner.signalled


def test_a_launch_that_names_phases_and_starts_at_once_is_refused() -> None:
    world = World(phases=BOTH)
    assert not is_ok(world.order(Prepare(LAUNCH, start=True))[0])
    assert not world.runner.started


def test_a_step_with_the_number_of_a_phase_is_refused() -> None:
    world = prepared()
    assert not is_ok(world.order(step_launch(step=EPILOG_STEP))[0])


# ---- restarts ----


@pytest.mark.parametrize("ends_meanwhile", [True, False])
def test_a_prolog_outlives_its_agent(ends_meanwhile: bool) -> None:
    world = World(phases=BOTH)
    world.order(PREPARE)
    if ends_meanwhile:
        world.runner.finish(PROLOG, StepEnd(0))
    world.restart()
    assert held(world) == [(7, "preparing")]
    world.register()
    if not ends_meanwhile:
        assert world.order(PREPARE) == {0: PREPARING}
        world.finish(step=PROLOG_STEP)
    assert is_ok(world.order(START)[0])
    assert world.runner.started[PROLOG] == 1
    assert [body.incarnation for body in prologs(world)] == [2]


def test_an_epilog_outlives_its_agent() -> None:
    world = in_epilog()
    world.restart()
    assert held(world) == [(7, "epilog")]
    world.register()
    assert [end.gone for end in world.ends[-1:]] == [False]
    world.finish(step=EPILOG_STEP)
    world.ack_all()
    assert not world.stages() and not world.runner.ended
    assert world.runner.started[EPILOG] == 1


def test_the_end_of_the_script_is_said_once_it_was_committed_no_more() -> None:
    world = in_epilog()
    world.ack_all()
    assert BATCH not in world.runner.ended
    before = len(world.ends)
    world.restart()
    world.register()
    world.finish(step=EPILOG_STEP)
    assert len(world.ends) == before
    assert world.order(END)[0] == OK
    world.ack_all()
    assert world.order(END)[0] == gone_outcome(True)


def test_a_committed_end_buries_the_attempt_though_the_report_of_its_prolog_is_not() -> None:
    world = World(phases=("prolog",))
    with_prolog = launch(phases=("prolog",))
    world.order(Prepare(with_prolog))
    world.finish(step=PROLOG_STEP)
    world.order(Start(7, 1, with_prolog))
    world.finish()
    (seq,) = [seq for seq, report in world.reports.items() if isinstance(report.body, StepEnded)]
    world.ack(seq)
    assert not world.stages() and not world.runner.ended
    world.restart()
    assert world.runner.started[BATCH] == 1


def test_a_cancelled_prolog_outlives_its_agent() -> None:
    world = World(phases=BOTH)
    world.order(PREPARE)
    world.give(world.command(END))
    world.restart()
    world.register()
    assert stage(world) == "ENDING" and not world.runner.terminated
    world.finish(step=PROLOG_STEP)
    world.finish(step=EPILOG_STEP)
    world.ack_all()
    assert not world.stages() and not world.runner.ended


def test_an_agent_that_lost_its_spool_runs_no_prolog_again() -> None:
    world = World(phases=BOTH)
    world.order(PREPARE)
    world.runner.finish(PROLOG, StepEnd(0))
    world.spool.clear()
    world.restart()
    world.register()
    world.order(PREPARE)
    assert stage(world) == "PREPARED" and world.runner.started[PROLOG] == 1


def test_an_agent_that_lost_its_spool_says_that_the_epilog_did_not_run() -> None:
    world = prepared()
    world.order(START)
    world.spool.clear()
    world.restart()
    world.register()
    world.finish()
    (body,) = world.gone
    assert body.epilog is not None and "lost its records" in body.epilog.text
    world.ack_all()
    assert not world.stages() and not world.runner.ended


def test_a_booted_host_prepares_again() -> None:
    world = World(phases=BOTH)
    world.order(PREPARE)
    world.runner.finish(PROLOG, StepEnd(0, cause="lost"))
    world.restart(boot=True)
    world.register()
    assert not world.stages() and not world.runner.ended
    assert world.order(PREPARE) == {0: PREPARING}
    world.finish(step=PROLOG_STEP)
    assert stage(world) == "PREPARED" and world.runner.started[PROLOG] == 2


def test_a_prolog_that_runs_again_after_a_boot_outlives_its_agent() -> None:
    world = World(phases=BOTH)
    world.order(PREPARE)
    world.runner.finish(PROLOG, StepEnd(0, cause="lost"))
    world.restart(boot=True)
    world.register()
    world.order(PREPARE)
    world.runner.finish(PROLOG, StepEnd(0))
    world.restart()
    world.register()
    assert stage(world) == "PREPARED" and len(prologs(world)) == 1


def test_a_booted_host_owes_no_epilog() -> None:
    world = in_epilog()
    world.ack_all()
    world.runner.finish(EPILOG, StepEnd(0, cause="lost"))
    world.restart(boot=True)
    world.register()
    assert not world.stages() and not world.runner.ended
    assert held(world) == [(7, "tombstone")]


@pytest.mark.parametrize("at", range(40))
def test_a_crash_between_any_two_actions_repeats_nothing_and_forgets_nothing(at: int) -> None:
    """The agent dies before its n-th action from the launch on; the controller asks again for what it has not heard."""
    world = World(phases=BOTH)
    world.crash_at = world.actions + at
    is_started = False
    for _ in range(12):
        try:
            if not world.agent.registry.by_number or not world.agent.registry.by_number[0].registered:
                world.register()
            done = any(key == EPILOG for key in world.runner.started) and not world.stages()
            if done:
                break
            if PROLOG in world.runner.live:
                world.finish(step=PROLOG_STEP)
            elif EPILOG in world.runner.live:
                world.finish(step=EPILOG_STEP)
            elif BATCH in world.runner.live:
                world.finish()
            elif stage(world) == "PREPARED" and not is_started:
                world.order(START)
                is_started = BATCH in world.runner.started
            elif not is_started:
                world.order(PREPARE, revision=50)
            world.ack_all()
        except Crashed:
            world.restart()
    assert world.runner.started == {PROLOG: 1, BATCH: 1, EPILOG: 1}
    assert any(body.epilog is not None for body in world.gone)
    assert not world.stages() and not world.runner.ended


def test_a_compacted_spool_says_the_same() -> None:
    for world in (prepared(), in_epilog()):
        state = world.agent.folded()
        assert fold(unfold(state)) == state
        world.spool = [msgspec.msgpack.encode(record) for record in unfold(state)]
        before = stage(world)
        world.restart()
        assert stage(world) == before


# ---- faults ----


def checks_of(world: World) -> list[act.RunCheck]:
    return [one for one in world.log if isinstance(one, act.RunCheck)]


def failing_prologs(*jobs: int) -> World:
    """A node with a check on which the prologs of these jobs have failed; the controller has noted the first."""
    world = World(phases=("prolog", "check"))
    for job_id in jobs:
        world.order(Prepare(launch(job_id=job_id, phases=("prolog",))))
        world.finish(job_id=job_id, step=PROLOG_STEP, exit_code=1)
    world.ack(min(prologs_of(world)))
    world.pass_time(1)
    return world


def prologs_of(world: World) -> list[int]:
    return [seq for seq, report in world.reports.items() if isinstance(report.body, PhaseReported)]


def test_the_check_runs_while_a_fault_stands() -> None:
    world = World(phases=(*BOTH, "check"))
    world.order(PREPARE)
    world.finish(step=PROLOG_STEP, exit_code=1)
    world.pass_time(CHECK_EVERY_US / SECOND)
    assert not any(isinstance(one, act.RunCheck) for one in world.log), "the controller knows of no fault yet"
    world.ack_all()
    world.pass_time(1)
    checks = checks_of(world)
    assert checks == [act.RunCheck(0)]
    world.perform(world.agent.on_checked(0, world.now_us, passed=False))
    for count in (2, 3):
        world.pass_time(CHECK_EVERY_US / SECOND)
        assert len(checks_of(world)) == count
        world.pass_time(2 * CHECK_EVERY_US / SECOND)
        assert len(checks_of(world)) == count, "one at a time"
        world.perform(world.agent.on_checked(0, world.now_us, passed=count == 3))
    (report,) = world.sent(CheckPassed)
    assert report.body.faults == (("prolog", 7),)
    world.ack_all()
    assert not world.agent.registry.by_number[0].faults
    world.pass_time(2 * CHECK_EVERY_US / SECOND)
    assert len(checks_of(world)) == 3


def test_a_registration_says_which_faults_stand() -> None:
    world = World(phases=("check",), register=False)
    while pending := [r for r in world.reports.values() if isinstance(r.body, Registration)]:
        for report in pending:
            world.reply(report, faults=(("epilog", 3),))
    world.pass_time(1)
    assert checks_of(world) == [act.RunCheck(0)]


def test_another_fault_takes_a_passed_check_back() -> None:
    world = World(phases=("prolog", "check"))
    world.perform(world.agent.on_checked(0, world.now_us, passed=True))
    assert not world.sent(CheckPassed), "no fault stands"
    world.order(Prepare(launch(phases=("prolog",))))
    world.finish(step=PROLOG_STEP, exit_code=1)
    world.ack_all()
    world.pass_time(1)
    world.perform(world.agent.on_checked(0, world.now_us, passed=True))
    assert world.sent(CheckPassed)
    world.order(Prepare(launch(job_id=8, phases=("prolog",))))
    world.finish(job_id=8, step=PROLOG_STEP, exit_code=1)
    (seq,) = prologs_of(world)
    world.ack(seq)
    node = world.agent.registry.by_number[0]
    assert node.faults == {("prolog", 7), ("prolog", 8)}
    assert not any(isinstance(body, CheckPassed) for body in node.owed.values())


def test_another_fault_is_checked_at_once() -> None:
    world = failing_prologs(7, 8)
    assert len(checks_of(world)) == 1
    world.perform(world.agent.on_checked(0, world.now_us, passed=False))
    world.ack_all()
    world.pass_time(1)
    assert len(checks_of(world)) == 2, "it does not wait for the next turn of the first fault"


def test_a_check_that_is_lost_is_repeated() -> None:
    world = failing_prologs(7)
    assert len(checks_of(world)) == 1
    limit_s = world.agent.registry.by_number[0].offer.phase_limit_s
    world.pass_time(limit_s + CHECK_EVERY_US / SECOND)
    assert len(checks_of(world)) == 2


def test_a_check_that_began_before_a_fault_does_not_end_it() -> None:
    world = failing_prologs(7, 8)
    world.ack_all()
    world.pass_time(1)
    assert len(checks_of(world)) == 1, "one at a time"
    world.perform(world.agent.on_checked(0, world.now_us, passed=True))
    assert not world.sent(CheckPassed)
    world.pass_time(1)
    assert len(checks_of(world)) == 2
    world.perform(world.agent.on_checked(0, world.now_us, passed=True))
    (report,) = world.sent(CheckPassed)
    assert report.body.faults == (("prolog", 7), ("prolog", 8))


def test_a_check_answers_for_all_failures_in_whatever_order_they_were_acknowledged() -> None:
    world = World(phases=("prolog", "check"))
    for job_id in (7, 8):
        world.order(Prepare(launch(job_id=job_id, phases=("prolog",))))
        world.finish(job_id=job_id, step=PROLOG_STEP, exit_code=1)
    # The controller keeps the fault of the later one.
    for seq in sorted(
        (seq for seq, one in world.reports.items() if isinstance(one.body, PhaseReported)), reverse=True
    ):
        world.ack(seq)
    world.pass_time(1)
    world.perform(world.agent.on_checked(0, world.now_us, passed=True))
    (report,) = world.sent(CheckPassed)
    assert report.body.faults == (("prolog", 7), ("prolog", 8))
    world.ack_all()
    assert not world.agent.registry.by_number[0].faults


def test_nodes_that_are_gone_without_an_epilog_say_nothing_of_one() -> None:
    world = World(phases=("prolog",))
    world.order(Prepare(launch(phases=("prolog",))))
    world.finish(step=PROLOG_STEP)
    assert world.order(END)[0] == gone_outcome(False)
    assert not world.sent(NodeGone)
