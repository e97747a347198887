"""A waiting job's whole request is changed in place: checked as a submission is, and its turn and its promise are kept."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from escli.failures import CommandFailed
from eslurm.compat.errors import OptionError
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model import facts
from eslurm.core.model.accounts import Access, Account, Amount, FreePool, Limit
from eslurm.core.model.config import Partition
from eslurm.core.model.job import ArraySpec, JobSpec, Principal
from eslurm.core.model.messages import Changed, JobRef, RefusalCode, Refused, SubmitJobs, UpdateJob
from eslurm.core.model.option_text import asked_words
from eslurm.core.model.request import Chunk, Request
from tests.kits.asking import HOUR, Site
from tests.kits.core import ALICE, BOB, ROOT, SECOND, World, problem
from tests.support.updating import read_update
from tests.unit.core.explain.test_alternatives import A100, gpus, occupy, site, submit


def update(world: World, job_id: int, words: str, by: Principal = ALICE) -> BatchAnswer:
    return world.send(read_update(world.state, f"job {job_id} {words}", by))


def request_of(world: World, job_id: int) -> Request:
    return world.job(job_id).spec.components[0]


def refusal(world: World, spec: JobSpec) -> str:
    """The refusal of such a submission."""
    answer = world.send(SubmitJobs((spec,)))
    assert isinstance(answer, Refused)
    return answer.text


# ---- what is changed ----


def test_everything_that_a_job_asks_for_can_be_changed_and_it_keeps_its_turn() -> None:
    here = site(partitions=(Partition("main", A100, default=True), Partition("fat", ("cn2", "cn3"))))
    world = here.world
    job = submit(here, gpus(2, "gpu:a100&ib"), 1, held=True)
    before = world.job(job)
    words = (
        "nodes=1 ntasks=2 cpus-per-task=2 mem=1G gpus-per-node=v100:1 licenses=matlab:2 constraint= exclusive=yes "
        "nodelist=cn2 partition=fat time=30"
    )
    assert update(world, job, words) == Changed(1)
    assert request_of(world, job) == Request(
        tasks=2,
        cpus_per_task=2,
        nodes_min=1,
        nodes_max=1,
        memory_per_node_mib=1024,
        exclusive=True,
        include=("cn2",),
        per_node=(("gpu", 1),),
        wide=(("matlab", 2),),
        constraint="gpu:v100",
    )
    after = world.job(job)
    assert (after.spec.partition, after.spec.time_limit_s) == ("fat", 1800)
    assert (after.submitted_us, after.priority, after.spec.script_hash) == (
        before.submitted_us,
        before.priority,
        before.spec.script_hash,
    )
    assert update(world, job, "rset=2:ncpus=1:gpus=1,place=pack nodelist=") == Changed(1)
    assert request_of(world, job).chunks == (Chunk(2, 1, 0, (("gpu", 1),)),)
    assert (request_of(world, job).place, request_of(world, job).wide) == ("pack", (("matlab", 2),))


def test_a_changed_job_survives_a_restart_and_the_log_tells_it() -> None:
    world = World()
    job = world.submit(held=True)
    update(world, job, "nodes=2 mem=300M")
    (fact,) = [fact for fact in world.log if isinstance(fact, facts.JobChanged)]
    assert fact.spec == world.job(job).spec
    world.restart()
    assert request_of(world, job).memory_per_node_mib == 300
    assert update(world, job, "mem=") == Changed(1)
    assert request_of(world, job).memory_per_node_mib == 0


def test_files_are_changed_by_the_jobs_user_alone() -> None:
    world = World()
    job = world.submit(held=True)
    words = "wckey=w output=out-%j stderr=/tmp/e input=in workdir=/srv"
    assert update(world, job, words) == Changed(1)
    spec = world.job(job).spec
    assert (spec.wckey, spec.output, spec.error, spec.input, spec.work_dir) == (
        *("w", "out-%j", "/tmp/e", "in", "/srv"),
    )
    for words in ("output=x", "error=x", "input=x", "chdir=/"):
        assert "only its user changes its files" in problem(update(world, job, words, ROOT))
    assert update(world, job, "wckey=x", ROOT) == Changed(1)
    for words in ("chdir=here", "output=" + "x" * 5000):
        with pytest.raises(OptionError):
            read_update(world.state, f"job {job} {words}", ALICE)


def test_a_time_limit_is_given_by_its_end_or_by_how_much_it_changes() -> None:
    world = World()
    job = world.submit(time_limit_s=600)
    assert read_update(world.state, f"JobId={job} TimeLimit=+5", ALICE).time_limit_s == 900
    assert read_update(world.state, f"JobId={job} timelimit=-0:30", ALICE).time_limit_s == 570
    with pytest.raises(OptionError, match="leaves no time limit"):
        read_update(world.state, f"JobId={job} TimeLimit=-10", ALICE)
    with pytest.raises(OptionError, match="is for a running job"):
        read_update(world.state, f"JobId={job} EndTime=now", ALICE)
    endless = world.submit()
    with pytest.raises(OptionError, match="nothing to add to"):
        read_update(world.state, f"JobId={endless} TimeLimit=+5", ALICE)


# ---- as a submission ----


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("nodes=9", {"nodes_min": 9, "nodes_max": 9, "tasks": 9}),
        ("cpus-per-task=99", {"cpus_per_task": 99}),
        ("mem=9T", {"memory_per_node_mib": 9 * 1024**2}),
        ("constraint=fast", {"constraint": "fast"}),
        ("licenses=ansys:1", {"wide": (("ansys", 1),)}),
        ("gres=tpu:1", {"per_node": (("tpu", 1),)}),
        ("nodelist=cn99", {"include": ("cn99",)}),
        (
            "rset=9:ncpus=8:gpus=4",
            {"chunks": (Chunk(9, 8, 0, (("gpu", 4),)),), "tasks": 9, "cpus_per_task": 8},
        ),
    ],
)
def test_what_can_never_run_is_refused_in_the_words_of_a_submission(
    words: str, changes: dict[str, object]
) -> None:
    world = site().world
    job = world.submit(held=True)
    spec = world.job(job).spec
    asked = replace(spec, components=(replace(spec.components[0], **changes),))
    assert problem(update(world, job, words)) == refusal(world, asked)
    assert world.job(job).spec == spec


def test_limits_accounts_and_partitions_say_the_same_as_at_submission() -> None:
    short = Partition("short", A100, time_limit_max_s=600)
    here = site(
        Limit("few", "user", "alice", "cores", Amount(4)),
        partitions=(Partition("main", A100, default=True), short),
    )
    world = here.world
    job = world.submit(held=True, time_limit_s=HOUR)
    spec = world.job(job).spec
    asked = replace(spec, components=(replace(spec.components[0], cpus_per_task=5),))
    assert problem(update(world, job, "cpus-per-task=5")) == refusal(world, asked)
    assert problem(update(world, job, "partition=short")) == refusal(world, replace(spec, partition="short"))
    assert problem(update(world, job, "qos=gold")) == refusal(world, replace(spec, qos="gold"))
    assert update(world, job, "partition=short time=5") == Changed(1)


def test_a_limit_on_the_number_of_jobs_does_not_count_the_job_twice() -> None:
    world = site(Limit("one", "user", "alice", "jobs", Amount(1))).world
    job = world.submit(held=True)
    assert update(world, job, "nodes=2") == Changed(1)


def test_an_array_does_not_slip_past_a_bound_on_arrays() -> None:
    here = site(Account("small"), Limit("arrays", "account", "small", "arrayjobs", Amount(2)))
    array = submit(here, Request(), 1, tasks=((0, 3),), held=True)
    spec = here.world.job(array).spec
    message = UpdateJob(ALICE, JobRef(array), account="small")
    assert problem(here.world.send(message)) == refusal(here.world, replace(spec, account="small"))
    assert here.world.job(array).spec == spec


def test_users_change_their_own_jobs_and_operators_all() -> None:
    world = World()
    job = world.submit(held=True)
    assert problem(update(world, job, "nodes=2", BOB)).startswith(
        f"job {job} belongs to alice: only its user"
    )
    assert update(world, job, "nodes=2", ROOT) == Changed(1)
    assert "only operators may raise it" in problem(update(world, job, "nodes=1 priority=100000"))
    assert request_of(world, job).nodes_min == 2, "all of a change or nothing"


def test_two_who_change_at_once_do_not_undo_each_others_change() -> None:
    world = World()
    job = world.submit(held=True)
    first = read_update(world.state, f"{job} nodes=2", ALICE)
    second = read_update(world.state, f"{job} cpus-per-task=2", ALICE)
    assert world.send(first) == Changed(1)
    assert f"job {job} asks for something else since you looked: try again" in problem(world.send(second))
    assert update(world, job, "cpus-per-task=2") == Changed(1)
    assert (request_of(world, job).nodes_min, request_of(world, job).cpus_per_task) == (2, 2)


# ---- which jobs ----


def test_an_array_is_changed_as_a_whole_and_what_runs_of_it_is_not() -> None:
    world = World(nodes=1, cores=2)
    array = world.submit(tasks=((0, 3),), request=Request(cpus_per_task=2))
    (task,) = world.start()
    assert update(world, array, "cpus-per-task=1") == Changed(1)
    assert (request_of(world, array).cpus_per_task, request_of(world, task).cpus_per_task) == (1, 2)
    message = UpdateJob(ALICE, JobRef(array, 2), request=Request())
    assert problem(world.send(message)) == f"task 2 waits within its array: change job {array} as a whole"
    world.end(task)
    assert len(world.start()) == 2, "two of them fit now"


def test_whether_a_job_may_be_requeued_is_settled_when_it_is_submitted() -> None:
    """A node ends on its own, before it is given up, what was launched as requeueable, and nothing else: were a running job
    made requeueable, a silent node would keep its first attempt beside the second (`core.model.contact`).
    """
    assert "requeue" not in UpdateJob.__struct_fields__
    world = World(nodes=1)
    job = world.submit(requeue=False)
    with pytest.raises(OptionError, match="Requeue"):
        update(world, job, "Requeue=1")


def test_a_running_job_names_what_cannot_be_changed_and_why() -> None:
    world = World()
    job = world.submit(time_limit_s=600)
    world.start()
    told = problem(update(world, job, "nodes=2 mem=300M name=x"))
    assert told == (
        f"job {job} is RUNNING: only its time limit and its comment can be changed, not name, nodes, mem: "
        "it has started with what it asked for"
    )
    assert update(world, job, "time=5 cpus-per-task=1") == Changed(1), "what stays as it is is no change"
    world.end(job)
    assert "only waiting jobs can be changed" in problem(update(world, job, "nodes=2"))


def test_jobs_of_several_components_and_jobs_that_are_gone() -> None:
    world = World()
    job = world.submit(held=True)
    spec = replace(world.job(job).spec, components=(Request(), Request()))
    # As releases before have accepted it.
    world.state.put_job(replace(world.job(job), spec=spec))
    message = UpdateJob(ALICE, JobRef(job), request=Request(tasks=2))
    assert f"has 2 parts: say which one is to be changed, like {job}+1" in problem(world.send(message))
    with pytest.raises(CommandFailed, match="job 99 does not exist"):
        update(world, 99, "nodes=2")
    with pytest.raises(OptionError, match="tasks cannot fill 3 nodes"):
        update(world, job, "nodes=3 ntasks=2")


# ---- the promise ----


def start_us(here: Site, job_id: int) -> int:
    (booking,) = here.schedule.bookings[job_id]
    return booking.start_us - here.world.now_us


def test_who_asks_for_less_keeps_its_promise_and_who_asks_for_more_is_told() -> None:
    here = site()
    occupy(here, 0, "cn0", "cn1", "cn2", "cn3", cores=8)
    first = submit(here, Request(tasks=2, nodes_min=2, nodes_max=2, cpus_per_task=8), 2)
    rival = submit(here, Request(tasks=4, nodes_min=4, nodes_max=4, cpus_per_task=8), 2)
    here.run()
    assert (start_us(here, first), start_us(here, rival)) == (HOUR * SECOND, 3 * HOUR * SECOND)
    answer = update(here.world, first, "nodes=1")
    assert answer == Changed(1)
    here.run()
    assert (start_us(here, first), start_us(here, rival)) == (HOUR * SECOND, 3 * HOUR * SECOND)
    answer = update(here.world, first, "time=5:00:00")
    assert isinstance(answer, Changed) and answer.notes == (
        f"job {first} asks for more now, or for something else: it keeps its turn, but its start may be later than was "
        f"planned (eswhy {first})",
    )
    here.run()
    assert start_us(here, rival) == HOUR * SECOND, "nobody gets later by it"
    assert start_us(here, first) == 5 * HOUR * SECOND


def test_an_arrays_tasks_keep_the_starts_that_they_have() -> None:
    here = site()
    occupy(here, 0, "cn0", "cn1", "cn2", "cn3", cores=8)
    array = submit(here, Request(cpus_per_task=8), 1, tasks=((0, 9),))
    rival = submit(here, Request(tasks=4, nodes_min=4, nodes_max=4, cpus_per_task=8), 1)
    here.run()

    def starts() -> list[int]:
        bookings = here.schedule.bookings[array]
        return sorted(one.start_us for one in bookings for _ in range(one.tasks))

    before, promised_us = starts(), start_us(here, rival)
    assert update(here.world, array, "time=0:30:00") == Changed(1)
    assert update(here.world, rival, "time=0:30:00") == Changed(1)
    here.run()
    after = starts()
    assert len(after) == 10 and all(now <= then for now, then in zip(after, before, strict=True))
    assert after != before and start_us(here, rival) <= promised_us


def test_an_array_that_may_take_more_nodes_is_told_that_it_may_start_later() -> None:
    here = site()
    occupy(here, 0, "cn0", "cn1", "cn2", "cn3", cores=8)
    one = Request(tasks=2, nodes_min=1, nodes_max=1, exclusive=True)
    array = submit(here, one, 1, tasks=((0, 3),))
    here.run()
    answer = update(here.world, array, "nodes=1-2")
    assert isinstance(answer, Changed) and answer.notes
    here.run()
    assert max(one.start_us for one in here.schedule.bookings[array]) - here.world.now_us > HOUR * SECOND


def test_what_a_change_leaves_free_goes_to_the_changed_job_first_and_then_to_others() -> None:
    here = site()
    occupy(here, 0, "cn0", "cn1", "cn2", cores=8)
    occupy(here, 0, "cn3", cores=4, hours=9)
    first = submit(here, Request(cpus_per_task=8, constraint="!ib"), 2)
    second = submit(here, Request(cpus_per_task=8, constraint="!ib"), 2)
    here.run()
    assert (start_us(here, first), start_us(here, second)) == (HOUR * SECOND, 3 * HOUR * SECOND)
    assert update(here.world, first, "cpus-per-task=4") == Changed(1)
    here.run()
    assert here.world.state_of(first) == "RUNNING" and start_us(here, second) == HOUR * SECOND


def test_a_place_that_only_others_could_get_now_is_not_given_up_by_asking_for_less() -> None:
    here = site(FreePool("short", "cores", Amount(8), (Access(time_max_s=HOUR),)))
    occupy(here, 0, "cn0", "cn1", cores=8, hours=20)
    occupy(here, 0, "cn3", cores=8, hours=1)
    job = submit(here, Request(cpus_per_task=8, wide=(("matlab", 1),)), 10)
    here.run()
    assert start_us(here, job) == HOUR * SECOND, "8 cores are kept free for short jobs"
    here.world.pass_time(600)
    # This one may take them, and runs beyond the other's planned start.
    occupy(here, 0, "cn2", cores=8, hours=1)
    assert here.world.state_of(5) == "RUNNING"
    assert start_us(here, job) == 3000 * SECOND
    assert update(here.world, job, "licenses=") == Changed(1)
    here.run()
    assert start_us(here, job) == 3000 * SECOND


def test_another_begin_time_moves_the_job_beside_others_that_ask_for_the_same() -> None:
    here = site()
    occupy(here, 0, "cn0", "cn1", "cn2", "cn3", cores=8)
    jobs = [submit(here, Request(cpus_per_task=8), 1) for _ in range(5)]
    here.run()
    assert [start_us(here, job) for job in jobs] == [HOUR * SECOND] * 4 + [2 * HOUR * SECOND]

    def begin(job: int, hours: int) -> None:
        message = UpdateJob(ALICE, JobRef(job), begin_us=here.world.now_us + hours * HOUR * SECOND)
        assert isinstance(here.world.send(message), Changed)
        here.run()

    begin(jobs[0], 5)
    assert [start_us(here, jobs[at]) for at in (0, 4)] == [5 * HOUR * SECOND, HOUR * SECOND]
    begin(jobs[0], 3)
    assert start_us(here, jobs[0]) == 3 * HOUR * SECOND


@pytest.mark.parametrize("policy", ["easy", "fcfs"])
def test_where_nothing_is_booked_ahead_the_changed_job_is_planned_in_its_turn(policy: str) -> None:
    world = World(nodes=2, policy=policy)
    here = Site(world)
    occupying = world.submit(request=Request(nodes_min=2, nodes_max=2, tasks=2), time_limit_s=HOUR)
    wide = world.submit(request=Request(nodes_min=2, nodes_max=2, tasks=2, exclusive=True), time_limit_s=HOUR)
    last = world.submit(request=Request(nodes_min=2, nodes_max=2, tasks=2, exclusive=True), time_limit_s=HOUR)
    here.run()
    assert world.state_of(occupying) == "RUNNING"
    assert isinstance(update(world, wide, "exclusive=no"), Changed)
    here.run()
    assert (world.state_of(wide), world.state_of(last)) == ("RUNNING", "PENDING")


def test_an_array_asks_in_words_for_what_its_tasks_ask_for() -> None:
    here = site()
    array = submit(here, gpus(1), 1, tasks=((0, 3),), held=True)
    job = here.world.job(array)
    assert job.spec.array == ArraySpec(((0, 3),)) and asked_words(job.spec.components[0])[0] == "nodes=1"
    told = problem(update(here.world, array, "nodes=9"))
    assert "needs 9 nodes" in told
    answer = here.world.send(UpdateJob(ALICE, JobRef(array), request=Request(), was=("nodes=3",)))
    assert isinstance(answer, Changed) and answer.problems[0].code is RefusalCode.CONFLICT
