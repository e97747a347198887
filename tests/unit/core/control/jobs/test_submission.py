"""Submission: what is accepted gets an id and waits; what is refused is told why, and the way out."""

from __future__ import annotations

import pytest

from eslurm.core.model.config import Partition
from eslurm.core.model.facts import IdsLeased, JobSubmitted
from eslurm.core.model.job import JobSpec, Principal
from eslurm.core.model.messages import (
    CancelJobs,
    Changed,
    JobRef,
    RefusalCode,
    Refused,
    SubmitJobs,
    Submitted,
    UpdateJob,
)
from eslurm.core.model.protocol import Prepare
from eslurm.core.model.request import Request
from tests.kits.core import ALICE, ROOT, World, depends, problem, refused

SHORT = Partition("short", ("cn0",), time_limit_default_s=60, time_limit_max_s=3600)


def spec(name: str = "job", partition: str = "", **more: object) -> JobSpec:
    return JobSpec(name, ALICE, partition, (Request(),), b"s", b"e", "/tmp", **more)  # type: ignore[arg-type]


def test_jobs_get_ascending_ids_and_wait() -> None:
    world = World()
    assert [world.submit(), world.submit()] == [1, 2]
    assert [entry.job_id for entry in world.state.queue.first(9)] == [1, 2]
    assert world.job(1).spec.partition == "main"


def test_ids_start_where_the_configuration_says_and_are_leased_in_blocks() -> None:
    world = World(job_id_first=1000, job_id_block=3)
    assert world.submit() == 1000
    world.restart()
    assert [world.submit() for _ in range(5)] == [1001, 1002, 1003, 1004, 1005]
    leases = [fact.end for fact in world.log if isinstance(fact, IdsLeased)]
    assert leases == [1004, 1008]


def test_a_message_is_accepted_as_a_whole_or_not_at_all() -> None:
    world = World()
    answer = world.send(SubmitJobs((spec(), spec(partition="nowhere"), spec())))
    assert "nowhere" in refused(answer)
    assert not world.state.jobs
    assert world.send(SubmitJobs((spec(), spec()))) == Submitted((1, 2))


def test_the_partition_gives_the_time_limit() -> None:
    world = World(partitions=(SHORT, Partition("main", ("cn0", "cn1"), default=True)))
    assert world.job(world.submit()).spec.time_limit_s == 0
    answer = world.send(SubmitJobs((spec(partition="short"),)))
    assert isinstance(answer, Submitted)
    assert world.job(answer.job_ids[0]).spec.time_limit_s == 60


@pytest.mark.parametrize(
    ("bad", "code", "words"),
    [
        (spec(partition="nowhere"), RefusalCode.INVALID, ("--partition", "nowhere", "main, short")),
        (
            spec(partition="short", time_limit_s=7200),
            RefusalCode.INFEASIBLE,
            ("--time", "7200", "3600", "ask for less"),
        ),
        (spec(priority=-1), RefusalCode.INVALID, ("--priority", "-1")),
        (spec(priority=1001), RefusalCode.DENIED, ("--priority", "1000", "lower")),
        (
            spec(dependencies=depends("afterok", 99)),
            RefusalCode.INVALID,
            ("--dependency", "99", "does not exist"),
        ),
        (
            spec(dependencies=depends("aftersome", 1)),
            RefusalCode.INVALID,
            ("--dependency", "aftersome", "afterok"),
        ),
    ],
)
def test_a_refusal_names_the_option_the_value_and_the_way_out(
    bad: JobSpec, code: RefusalCode, words: tuple[str, ...]
) -> None:
    world = World(partitions=(Partition("main", ("cn0", "cn1"), default=True), SHORT))
    answer = world.send(SubmitJobs((bad,)))
    assert isinstance(answer, Refused)
    assert answer.code is code
    for word in words:
        assert word in answer.text
    assert not world.state.jobs


def test_a_job_that_can_never_run_is_refused_at_once() -> None:
    world = World(nodes=2, cores=4)
    for request in (
        Request(cpus_per_task=5),
        Request(nodes_min=3),
        Request(tasks=9, nodes_max=2, nodes_min=1),
    ):
        answer = world.try_submit(request=request)
        assert isinstance(answer, Refused)
        assert answer.code is RefusalCode.INFEASIBLE


def test_a_full_queue_says_so() -> None:
    world = World(pending_jobs_max=2)
    world.submit()
    world.submit()
    assert "the queue is full (2 waiting jobs, 2 may wait: policy.pending_jobs_max)" in refused(
        world.try_submit()
    )


def test_an_array_may_not_be_too_large() -> None:
    world = World(array_tasks_max=10)
    assert "--array: 11 tasks are more than 10: split it" in refused(world.try_submit(tasks=((0, 10),)))


def test_operators_may_give_more_priority_but_not_through_an_agent() -> None:
    world = World()
    low, high = world.submit(), world.submit(user=ROOT, priority=5000)
    assert [entry.job_id for entry in world.state.queue.first(9)] == [high, low]
    through_agent = Principal("root", 0, 0, via="agent")
    assert "only operators" in refused(world.try_submit(user=through_agent, priority=5000))


def test_a_late_start_is_waited_for() -> None:
    world = World()
    job = world.submit(begin_us=world.now_us + 5_000_000)
    assert world.start() == []
    world.pass_time(5)
    assert world.start() == [job]


def test_a_start_in_the_past_is_no_start_time() -> None:
    world = World()
    job = world.submit(begin_us=world.now_us - 1)
    submitted = [fact for fact in world.log if isinstance(fact, JobSubmitted)]
    assert submitted[-1].not_before_us == 0
    assert world.start() == [job]


def test_the_trace_goes_with_the_job_wherever_it_goes() -> None:
    """To every task of an array, through a change, a restart and another attempt, to the nodes."""
    world = World(nodes=2)
    trace = b"t" * 16
    array = world.submit(tasks=((0, 1),), trace=trace)
    world.send(UpdateJob(ALICE, JobRef(array), name="renamed"))
    world.restart()
    tasks = world.plan()
    assert [world.job(task).spec.trace for task in (array, *tasks)] == [trace] * 3
    launches = [send.body.launch for send in world.deliver() if isinstance(send.body, Prepare)]
    assert [launch.spec.trace for launch in launches] == [trace, trace]
    world.requeue(array)
    for task in tasks:
        world.end(task, 15)
    world.pass_time(2)
    assert world.plan() == tasks
    launches = [send.body.launch for send in world.deliver() if isinstance(send.body, Prepare)]
    assert [(launch.attempt, launch.spec.trace) for launch in launches] == [(2, trace), (2, trace)]


def test_two_singletons_of_one_message_do_not_run_together() -> None:
    world = World()
    answer = world.send(SubmitJobs((spec("twin", dependencies=depends("singleton")),) * 2))
    assert answer == Submitted((1, 2))
    assert world.start() == [1]
    world.end(1)
    assert world.start() == [2]


BOB = Principal("bob", 1001, 1001)


def test_one_user_cannot_fill_the_queue() -> None:
    world = World(pending_jobs_user_max=3, pending_jobs_max=100)
    for _ in range(3):
        world.submit(user=BOB)
    said = refused(world.try_submit(user=BOB))
    assert "bob has 3 waiting jobs, 1 would come, and 3 may wait (policy.pending_jobs_user_max" in said
    # Others are not concerned, nor are operators, nor is an array more than one job.
    world.submit()
    for _ in range(5):
        world.submit(user=ROOT)
    world.submit(tasks=((0, 99),))
    world.cancel(1, by=BOB)
    assert world.submit(user=BOB)


def test_the_last_of_the_queue_is_for_operators() -> None:
    world = World(pending_jobs_max=20)
    for _ in range(19):
        world.submit()
    assert "(19 waiting jobs, 19 may wait: policy.pending_jobs_max)" in refused(world.try_submit())
    world.submit(user=ROOT)
    assert "20 may wait" in refused(world.try_submit(user=ROOT))


def test_a_job_that_holds_more_counts_for_more() -> None:
    """Goal: few jobs of long arguments take no more memory than many small ones. Method: weights, before and after."""
    world = World(pending_jobs_user_max=12)
    job = world.submit(arguments=("x" * 16_000,) * 8)
    assert world.state.pending_of == {1000: 8}
    assert "alice has 8 waiting jobs, 8 would come" in refused(
        world.try_submit(arguments=("x" * 16_000,) * 8)
    )
    world.submit()
    named = tuple(f"node{number}" for number in range(2_000))
    more = UpdateJob(ALICE, JobRef(2), request=Request(exclude=named), was=())
    assert "alice has 9 waiting jobs" in problem(world.send(more))
    world.cancel(job)
    assert world.state.pending_of == {1000: 1}


def test_of_many_problems_the_first_are_told_and_the_rest_counted() -> None:
    """Goal: an answer, which is stored, does not grow with the request. Method: 10,000 jobs that are not there."""
    world = World()
    answer = world.send(CancelJobs(ALICE, tuple(JobRef(number) for number in range(1, 10_001))))
    assert isinstance(answer, Changed) and len(answer.problems) == 1_001
    assert answer.problems[-1].text == "9000 more of them could not be changed"
