"""The invariants find what is planted: each corruption of a sound state is named."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.job import ArraySpec, Job, Span
from eslurm.core.model.job_states import AttemptPhase, IllegalTransition, JobState
from eslurm.core.model.messages import CreateStep
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.request import Request
from eslurm.core.model.step import StepState
from eslurm.core.resources.ledger import LedgerError
from eslurm.core.state import apply_nodes as node_apply
from eslurm.core.state import apply_steps as step_apply
from eslurm.core.state import invariants
from eslurm.core.state.apply import apply
from eslurm.core.state.cluster import State
from eslurm.core.state.transitions import moved, phased
from eslurm.replay import state_check
from tests.kits.core import ALICE, World, depends

RUNNING, WAITING, DEPENDENT, ARRAY = 1, 2, 3, 4


def sound() -> State:
    """A state with a bit of everything."""
    world = World(nodes=2, cores=4, register=False)
    world.register(0)
    running = world.submit(request=Request(cpus_per_task=4))
    world.start()
    world.submit()
    world.submit(dependencies=depends("afterok", running), begin_us=world.now_us + 9)
    world.submit(tasks=((0, 3),), limit=1)
    world.send(CreateStep(ALICE, running, 1, 1, ("x",), b"", "/", "h:1", b""))
    assert (world.state_of(running), len(world.state.steps)) == ("RUNNING", 1)
    state_check.check(world.state)
    return world.state


def put(state: State, job_id: int, **changes: object) -> None:
    """Past every index."""
    state.jobs[job_id] = replace(state.jobs[job_id], **changes)


def lose_attempt(state: State) -> None:
    put(state, RUNNING, attempt=None)


def hold_too_much(state: State) -> None:
    attempt = state.jobs[RUNNING].attempt
    assert attempt is not None
    put(state, RUNNING, attempt=replace(attempt, held=frozenset((0, 1))))


def hold_nothing(state: State) -> None:
    attempt = state.jobs[RUNNING].attempt
    assert attempt is not None
    put(state, RUNNING, attempt=replace(attempt, held=frozenset()))


def wrong_phase(state: State) -> None:
    attempt = state.jobs[RUNNING].attempt
    assert attempt is not None
    put(state, RUNNING, attempt=replace(attempt, phase=AttemptPhase.STARTING))


def wrong_number(state: State) -> None:
    put(state, RUNNING, attempts=2)


def final_without_outcome(state: State) -> None:
    state.jobs[WAITING] = replace(state.jobs[WAITING], state=JobState.CANCELLED)


def leave_the_queue(state: State) -> None:
    state.queue.remove(WAITING)


def queue_a_stranger(state: State) -> None:
    entry = state.queue.find(WAITING)
    assert entry is not None
    state.queue.add(replace(entry, job_id=77))


def give_back_too_early(state: State) -> None:
    attempt = state.jobs[RUNNING].attempt
    assert attempt is not None
    state.ledger.give_back(0, attempt.spans[0].amounts, attempt.until_us)


def use_an_unknown_node(state: State) -> None:
    state.ledger.set_usable(1, True)


def forget_what_is_owed(state: State) -> None:
    state.step_owed.clear()


def owe_what_is_not(state: State) -> None:
    state.owed[5] = RUNNING


def forget_who_is_on_a_node(state: State) -> None:
    state.jobs_on.clear()


def forget_a_dependent(state: State) -> None:
    state.dependents.clear()


def forget_a_name(state: State) -> None:
    state.same_name.clear()


def miscount_tasks(state: State) -> None:
    unlimited = replace(state.jobs[ARRAY].spec, array=ArraySpec(((0, 3),), 0))
    put(state, ARRAY, tasks_running=1, spec=unlimited)


def wait_and_have_ended(state: State) -> None:
    put(state, ARRAY, tasks_ok=((2, 2),))


def miscount_pending(state: State) -> None:
    state.pending_count += 1


def miscount_active(state: State) -> None:
    state.active_count += 1


def outlive_the_attempt(state: State) -> None:
    state.steps[RUNNING, 0] = replace(state.steps[RUNNING, 0], attempt=9)


def lose_a_timer(state: State) -> None:
    state.timers = [timer for timer in state.timers if timer[1] != "due"]


def lose_a_nodes_timer(state: State) -> None:
    state.timers = [timer for timer in state.timers if timer[1] != "lost"]


def file_wrongly(state: State) -> None:
    state.jobs[9] = state.jobs[WAITING]


CASES: list[tuple[Callable[[State], None], str]] = [
    (lose_attempt, "job 1 (RUNNING) has no attempt"),
    (hold_too_much, "job 1 (RUNNING) holds nodes outside its spans"),
    (hold_nothing, "job 1 (RUNNING) keeps an attempt that holds nothing"),
    (wrong_phase, "job 1 (RUNNING) is in phase STARTING"),
    (wrong_number, "job 1 (RUNNING) lives in attempt 1 of 2"),
    (final_without_outcome, "job 2 (CANCELLED) has the outcome None"),
    (leave_the_queue, "job 2 (PENDING) in queue: False"),
    (queue_a_stranger, "the queue holds unknown jobs {77}"),
    (give_back_too_early, "node cn0: the ledger holds []"),
    (use_an_unknown_node, "node cn1 usable: True"),
    (forget_what_is_owed, "the index of owed step launches disagrees with the steps"),
    (owe_what_is_not, "the index of owed effects disagrees with the jobs"),
    (forget_who_is_on_a_node, "the index of jobs per node disagrees with the jobs"),
    (forget_a_dependent, "the index of dependents disagrees with the jobs"),
    (forget_a_name, "the index of names disagrees with the jobs"),
    (miscount_tasks, "job 4 (PENDING) counts 1 running tasks, there are 0"),
    (wait_and_have_ended, "job 4 (PENDING) has tasks that wait and have ended"),
    (miscount_pending, "3 jobs wait, counted 4"),
    (miscount_active, "1 jobs are active, counted 2"),
    (outlive_the_attempt, "step 1.0 outlives its attempt 9"),
    (lose_a_timer, "job 3 waits for a time that no timer is set for"),
    (lose_a_nodes_timer, "node cn1 is UNKNOWN for ever"),
    (file_wrongly, "job 9 is filed wrongly"),
]


@pytest.mark.parametrize(("corrupt", "text"), CASES, ids=[corrupt.__name__ for corrupt, _ in CASES])
def test_a_planted_corruption_is_found_and_named(corrupt: Callable[[State], None], text: str) -> None:
    state = sound()
    corrupt(state)
    with pytest.raises(invariants.InvariantViolation, match=re.escape(text)):
        state_check.check(state)


def test_every_waiting_job_has_a_reason() -> None:
    state = sound()
    reasons = {job.job_id: invariants.pending_reason(state, job) for job in state.jobs.values()}
    assert reasons == {RUNNING: "", WAITING: "", DEPENDENT: "Dependency", ARRAY: ""}
    for hold, reason in (("user", "JobHeldUser"), ("admin", "JobHeldAdmin"), ("system", "JobHeldSystem")):
        held = replace(state.jobs[WAITING], hold=hold)
        assert invariants.pending_reason(state, held) == reason
    for changes, reason in (
        ({"not_before_us": 5}, "BeginTime"),
        ({"tasks_left": ()}, "TasksRunning"),
        ({"tasks_ready": ()}, "Dependency"),
        ({"tasks_running": 1}, "JobArrayTaskLimit"),
    ):
        assert invariants.pending_reason(state, replace(state.jobs[ARRAY], **changes)) == reason


# ---- the write door ----


def test_a_move_that_no_table_has_is_refused() -> None:
    state = sound()
    job: Job = state.jobs[RUNNING]
    assert job.attempt is not None
    with pytest.raises(IllegalTransition, match="job 1: RUNNING -> PENDING"):
        moved(job, JobState.PENDING)
    with pytest.raises(IllegalTransition, match="job 1 attempt 1: RUNNING -> PREPARING"):
        phased(job, job.attempt, AttemptPhase.PREPARING)
    with pytest.raises(IllegalTransition, match="node cn1: UNKNOWN -> UNREACHABLE"):
        node_apply.moved(state.nodes[1], NodeState.UNREACHABLE)
    ended = replace(state.steps[RUNNING, 0], state=StepState.ENDED)
    with pytest.raises(IllegalTransition, match=r"step 1\.0: ENDED -> RUNNING"):
        step_apply.moved(ended, StepState.RUNNING)


def test_revisions_are_contiguous_and_time_never_goes_back() -> None:
    state = sound()
    with pytest.raises(AssertionError, match="after"):
        apply(state, facts.IdsLeased(5), state.revision + 2, state.now_us)
    with pytest.raises(AssertionError, match="time went backwards"):
        apply(state, facts.IdsLeased(5), state.revision + 1, state.now_us - 1)


def test_more_than_a_node_has_cannot_be_held() -> None:
    state = sound()
    fact = facts.JobPlaced(WAITING, 1, replace_spans(state), 0)
    with pytest.raises(LedgerError, match="node cn0 has"):
        apply(state, fact, state.revision + 1, state.now_us)


def replace_spans(state: State) -> tuple[Span, ...]:
    attempt = state.jobs[RUNNING].attempt
    assert attempt is not None
    return attempt.spans
