"""Steps that take what they claim of their job, wait for their turn in order of arrival, and give it back."""

from __future__ import annotations

import pytest

from eslurm.core.control.effects import with_devices
from eslurm.core.control.step_layout import Wanted, lay_out
from eslurm.core.model.config import Resource
from eslurm.core.model.facts import StepCreated as StepCreatedFact
from eslurm.core.model.facts import StepGranted
from eslurm.core.model.job import Span, StepEnd
from eslurm.core.model.messages import (
    EffectDone,
    FinishStep,
    JobRef,
    NodeOutcome,
    StepCreated,
    StepProgram,
    SuspendJobs,
)
from eslurm.core.model.protocol import KNOWS_PARTS, JobLaunch, LaunchStep, Signal
from eslurm.core.model.request import Request
from eslurm.core.model.step_claim import ClaimWish, StepClaim, StepFiles
from eslurm.core.model.step_input import StepInput
from eslurm.core.state.step_use import Taken
from tests.kits.core import ALICE, ROOT, World, refused
from tests.kits.parts import parted, place, span, submit
from tests.kits.steps import SIZE, WHOLE, create, number, over, state_of, waiting

WIDE = Request(tasks=8, nodes_min=2, nodes_max=2)


def running(world: World, request: Request = WIDE, **spec: object) -> int:
    job = world.submit(request=request, **spec)
    world.start()
    return job


def test_steps_take_their_cores_beside_each_other_and_the_next_one_waits_for_them() -> None:
    world = World(nodes=2)
    job = running(world)
    first, second = (number(create(world, job, 4, 1)) for _ in range(2))
    assert [world.state.steps[job, one].nodes for one in (first, second)] == [(0,), (1,)]
    third = waiting(create(world, job, 1))
    assert not [send for send in world.deliver() if send.body.step == third]  # type: ignore[union-attr]
    over(world, job, second)
    assert state_of(world, job, third) == "LAUNCHING"
    (send,) = world.deliver()
    assert isinstance(send.body, LaunchStep) and (send.body.step, send.nodes) == (third, (1,))
    assert send.body.is_counted


def test_a_step_without_a_size_takes_all_of_the_job_and_one_that_shares_takes_nothing() -> None:
    world = World(nodes=2)
    job = running(world)
    whole = number(create(world, job, claim=WHOLE))
    assert number(create(world, job, 8, 2, claim=None)) == whole + 1
    later = waiting(create(world, job, claim=WHOLE))
    over(world, job, whole, 0)
    assert state_of(world, job, later) == "WAITING"
    over(world, job, whole)
    assert state_of(world, job, later) == "LAUNCHING"


def test_steps_have_their_turn_in_the_order_in_which_they_came() -> None:
    world = World(nodes=2)
    job = running(world)
    small = number(create(world, job, 1))
    whole = waiting(create(world, job, claim=WHOLE))
    behind = [waiting(create(world, job, 1)) for _ in range(2)]
    over(world, job, small)
    assert [state_of(world, job, one) for one in (whole, *behind)] == ["LAUNCHING", "WAITING", "WAITING"]
    over(world, job, whole)
    granted = [fact.step for fact in world.log if isinstance(fact, StepGranted)]
    assert granted == [whole, *behind]


def test_a_step_that_can_never_fit_is_refused_and_an_immediate_one_does_not_wait() -> None:
    world = World(nodes=2)
    job = running(world)
    number(create(world, job, claim=WHOLE))
    assert "9 tasks of 1 cpus are more than 2 nodes" in refused(create(world, job, 9))
    assert "would have to wait" in refused(create(world, job, 1, is_immediate=True))
    assert not world.state.step_use.waiting


def test_the_cores_of_a_step_are_free_when_its_nodes_say_so_and_not_when_its_command_does() -> None:
    world = World(nodes=2)
    job = running(world)
    whole = number(create(world, job, claim=WHOLE))
    world.deliver()
    later = waiting(create(world, job, claim=WHOLE))
    world.send(FinishStep(ALICE, job, whole, 130, 2))
    assert (state_of(world, job, whole), state_of(world, job, later)) == ("ENDED", "WAITING")
    over(world, job, whole)
    assert state_of(world, job, later) == "LAUNCHING"
    assert world.state.steps[job, whole].exit_code == 130


def test_a_step_whose_command_is_killed_is_over_when_its_nodes_say_so() -> None:
    world = World(nodes=2)
    job = running(world)
    whole = number(create(world, job, claim=WHOLE))
    world.deliver()
    over(world, job, whole, 0, end=StepEnd(7))
    over(world, job, whole, 1, end=StepEnd(0, signal=9))
    record = world.state.steps[job, whole]
    assert (record.state.value, record.exit_code, record.signal) == ("ENDED", 137, 9)
    world.send(FinishStep(ALICE, job, whole, 7))
    assert world.state.steps[job, whole].exit_code == 7


def test_a_step_that_ends_on_its_nodes_before_the_last_of_them_answers_is_over() -> None:
    world = World(nodes=2)
    job = running(world)
    whole = number(create(world, job, claim=WHOLE))
    (send,) = world.sends()
    over(world, job, whole)
    assert state_of(world, job, whole) == "LAUNCHING"
    world.done(send)
    assert state_of(world, job, whole) == "ENDED"


def test_agents_of_earlier_releases_say_nothing_so_the_word_of_the_command_counts() -> None:
    world = World(nodes=2)
    for node in range(2):
        world.register(node, session="s2", protocol=KNOWS_PARTS)
    job = running(world)
    whole = number(create(world, job, claim=WHOLE))
    world.deliver()
    later = waiting(create(world, job, claim=WHOLE))
    world.send(FinishStep(ALICE, job, whole, 0))
    assert state_of(world, job, later) == "LAUNCHING"


def test_a_step_whose_launch_fails_on_a_node_gives_back_what_it_has_there() -> None:
    world = World(nodes=2)
    job = running(world)
    whole = number(create(world, job, claim=WHOLE))
    later = waiting(create(world, job, claim=WHOLE))
    (send,) = world.sends()
    world.done(send, "failed")
    assert [state_of(world, job, one) for one in (whole, later)] == ["FAILED", "LAUNCHING"]


def test_a_waiting_step_is_withdrawn_by_its_command_and_at_the_end_of_its_attempt() -> None:
    world = World(nodes=2)
    job = running(world)
    number(create(world, job, claim=WHOLE))
    world.deliver()
    withdrawn, left = (waiting(create(world, job, 1)) for _ in range(2))
    world.send(FinishStep(ALICE, job, withdrawn, 130))
    assert state_of(world, job, withdrawn) == "CANCELLED"
    assert world.state.step_use.waiting == {job: [left]}
    world.end(job)
    assert not world.state.step_use.waiting and not world.state.step_use.taken


def test_no_turn_comes_while_the_job_stands_still() -> None:
    world = World(nodes=2)
    job = running(world)
    first = number(create(world, job, claim=WHOLE))
    world.deliver()
    later = waiting(create(world, job, 1))
    world.send(SuspendJobs(ROOT, (JobRef(job),)))
    over(world, job, first)
    assert state_of(world, job, later) == "WAITING"
    world.send(SuspendJobs(ROOT, (JobRef(job),), resume=True))
    assert state_of(world, job, later) == "LAUNCHING"


def test_a_new_leader_gives_the_turns_that_the_former_one_owed() -> None:
    world = World(nodes=2)
    job = running(world)
    first = number(create(world, job, claim=WHOLE))
    world.deliver()
    later = waiting(create(world, job, 1))
    world.restart()
    assert state_of(world, job, later) == "WAITING"
    over(world, job, first)
    assert state_of(world, job, later) == "LAUNCHING"


def test_memory_is_counted_where_it_is_named() -> None:
    world = World(nodes=1)
    job = running(world, Request(tasks=4, memory_per_node_mib=800))
    named = ClaimWish(memory_mib=500)
    first = number(create(world, job, 1, claim=named))
    assert number(create(world, job, 1)) == first + 1
    later = waiting(create(world, job, 1, claim=ClaimWish(memory_per_cpu_mib=400)))
    over(world, job, first)
    assert state_of(world, job, later) == "LAUNCHING"
    assert "more than 1 nodes of the job hold (0)" in refused(
        create(world, job, 1, claim=ClaimWish(memory_mib=801))
    )
    assert "no node here has gpu" in refused(create(world, job, 1, claim=ClaimWish(per_node=(("gpu", 1),))))


def test_a_step_over_parts_has_its_turn_in_all_of_them_at_once() -> None:
    world = World(nodes=2)
    job = submit(world, parted(Request(), Request()))
    assert place(world, job, span(0, 2, 0, tasks=2), span(1, 2, 1, tasks=2)) is not None
    for _ in range(2):
        world.deliver()
    first = number(create(world, job, 2, components=(0,)))
    both = create(world, job, 1, components=(0, 1))
    assert isinstance(both, StepCreated) and both.waits and len(both.parts) == 2
    over(world, job, first)
    parts = [world.state.steps[job, both.step + at] for at in range(2)]
    assert [part.state.value for part in parts] == ["LAUNCHING"] * 2
    assert [(part.launch.rank_first, part.launch.tasks_total) for part in parts] == [(0, 2), (1, 2)]
    assert parts[0].launch.others == ((1, parts[1].launch.layout),)


@pytest.mark.parametrize("claim", [SIZE, WHOLE])
def test_a_node_that_a_job_goes_on_without_holds_nothing(claim: ClaimWish) -> None:
    world = World(nodes=2)
    job = running(world, no_kill=True)
    step = number(create(world, job, 8, 2, claim=claim))
    world.deliver()
    world.lose(1)
    assert world.state.steps[job, step].holding == {0}
    over(world, job, step)
    assert state_of(world, job, step) == "ENDED"


def test_devices_are_given_to_one_step_each() -> None:
    spans = [Span(0, (4, 0, 3), devices=((2, (0, 1, 3)),))]
    wanted = Wanted(StepProgram(("a",), 1, 1), StepClaim(by_task=(0, 0, 2)), nodes_open=False)
    first = lay_out(spans, wanted, {})
    assert first is not None and first.devices == ((0, 2, (0, 1)),)
    taken = Taken()
    taken.add(first.takes[0], [(2, 0), (2, 1)], 1)
    assert lay_out(spans, wanted, {(0, 0): taken}) is None
    less = wanted._replace(claim=StepClaim(by_task=(0, 0, 1)))
    second = lay_out(spans, less, {(0, 0): taken})
    assert second is not None and second.devices == ((0, 2, (3,)),)


def test_a_step_knows_its_own_devices_and_those_of_kinds_that_it_did_not_name() -> None:
    launch = JobLaunch(1, 1, parted(Request()), (), "cn0", devices=((0, "gpu", (0, 1)), (0, "fpga", (5,))))
    step = StepCreatedFact(*(1, 1, 0, "x", ((0, 1),), ("x",), b"", "/", "h:1", b"c"), devices=((0, 2, (1,)),))
    world = World(nodes=1, resources=(Resource("gpu"), Resource("fpga")))
    assert with_devices(world.state, launch, step).devices == ((0, "gpu", (1,)), (0, "fpga", (5,)))


def test_a_step_without_a_command_is_over_when_its_nodes_say_so() -> None:
    world = World(nodes=2)
    job = running(world)
    shares, takes = (
        number(create(world, job, 2, 2, claim=claim, files=StepFiles("out-%t"))) for claim in (None, SIZE)
    )
    bodies = [send.body for send in world.deliver()]
    assert all(isinstance(body, LaunchStep) and body.is_counted and body.files for body in bodies)
    assert [dict(state_use(world, job)), state_of(world, job, shares)] == [{(0, 0): 1, (0, 1): 1}, "RUNNING"]
    over(world, job, takes)
    over(world, job, shares, 0, end=StepEnd(3))
    assert state_of(world, job, shares) == "RUNNING"
    over(world, job, shares, 1)
    assert (state_of(world, job, shares), world.state.steps[job, shares].exit_code) == ("ENDED", 3)
    assert not world.state.step_use.taken


def test_a_step_without_a_command_that_fails_on_one_node_is_ended_on_the_others() -> None:
    world = World(nodes=2)
    job = running(world)
    step = number(create(world, job, 2, 2, files=StepFiles("out")))
    (send,) = world.sends()
    message = EffectDone(
        send.revision, 0, (NodeOutcome((0,), "ok"), NodeOutcome((1,), "failed", "no such directory"))
    )
    world.send(message)
    assert state_of(world, job, step) == "FAILED"
    assert [send.body for send in world.sends()] == [Signal(job, 1, 9, step)]


def state_use(world: World, job: int) -> dict[tuple[int, int], int]:
    """The cores that steps take, by place."""
    places = world.state.step_use.taken.get(job, {})
    return {place: cores for place, taken in places.items() if (cores := taken.of(0))}


def test_a_step_without_a_command_has_nothing_that_only_one_can_serve() -> None:
    world = World(nodes=2)
    job = running(world)
    refusal = refused(create(world, job, 1, files=StepFiles("out"), mpi="pmi"))
    assert "--async: the step has no input, no MPI" in refusal
    refusal = refused(create(world, job, 1, files=StepFiles("out"), input=StepInput()))
    assert "--async" in refusal
