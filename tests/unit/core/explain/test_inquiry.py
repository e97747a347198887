"""Why a job waits: every kind of reason, with its numbers; planned starts, estimates, and what would be earlier."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.explain.inquiry import Answer, would_wait
from eslurm.core.explain.own_reasons import older_agents
from eslurm.core.explain.why import Holder
from eslurm.core.model.accounts import Access, Amount, FreePool, Limit, Policy, Reservation, Validity
from eslurm.core.model.config import NodeConfig, Partition, Resource
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.job import ArraySpec, JobSpec
from eslurm.core.model.messages import ConfigLoaded, Refused, SetForecasts, SubmitJobs, UpdateNodes
from eslurm.core.model.node import NodeFault
from eslurm.core.model.request import PartSpec, Request
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.state.cluster import State
from tests.kits.asking import HOUR, Site
from tests.kits.core import ALICE, BOB, ROOT, SECOND, World, depends, refused
from tests.unit.core.control.accounts.test_policies import put

WHOLE = Request(nodes_min=4, nodes_max=4, exclusive=True)


def site(*policies: Policy, policy: str = "planned", **config: object) -> Site:
    world = World(restarts=False, policy=policy, **config)  # type: ignore[arg-type]
    if policies:
        world.send(put(*policies))
    return Site(world)


def spec_of(state: State, request: Request, hours: float, **fields: object) -> JobSpec:
    return JobSpec(
        "new",
        ALICE,
        "",
        (request,),
        b"s" * 32,
        b"e" * 32,
        "/tmp",
        int(hours * HOUR),
        **fields,  # type: ignore[arg-type]
    )


# ---- what the job's record says ----


def test_holds_times_and_dependencies_are_all_told() -> None:
    here = site()
    world = here.world
    first = world.submit(time_limit_s=HOUR)
    here.run()
    due_us = world.now_us + 2 * HOUR * SECOND
    job = world.submit(
        held=True, begin_us=due_us, dependencies=depends("afterok", first), time_limit_s=HOUR, request=WHOLE
    )
    here.run()
    answer = here.why(job)
    assert [one.kind for one in answer.reasons if not one.nodes_of] == [
        "hold",
        "begin_time",
        "dependency",
        "resources",
    ]
    held, begin, after, _ = (one for one in answer.reasons if not one.nodes_of)
    assert held.text == f"held by its user: esctl release {job} lets it go" and not held.until_us
    assert begin.until_us == due_us and begin.text == "not before its begin time"
    end_us = world.now_us + HOUR * SECOND
    assert after.text == f"waits for job {first} (afterok), which is RUNNING" and after.until_us == end_us
    assert after.holders == (Holder(f"job {first}", first, 1, end_us),)
    assert (answer.start_us, answer.alternatives) == (0, ())


def test_nodes_with_agents_of_an_earlier_release_are_counted_for_jobs_of_several_parts_only() -> None:
    world = site().world
    job = world.state.get_job(world.submit())
    several = replace(job, spec=replace(job.spec, parts=(PartSpec(), PartSpec())))
    assert older_agents(world.state, several) == []
    world.register(1, session="s2", protocol=0)
    (reason,) = older_agents(world.state, several)
    assert reason.text == (
        "1 node has an older agent, which cannot start jobs of several parts: update esnoded there; "
        "where that is done, start it again while no job runs there"
    )
    world.register(2, session="s2", protocol=0)
    assert older_agents(world.state, several)[0].text.startswith("2 nodes have an older agent")
    assert older_agents(world.state, job) == []
    elsewhere = replace(job, spec=replace(job.spec, parts=(PartSpec("none"), PartSpec("none"))))
    assert older_agents(world.state, elsewhere) == []


def test_a_dependency_without_an_end_has_none() -> None:
    here = site()
    first = here.world.submit(held=True)
    job = here.world.submit(dependencies=depends("afterany", first))
    here.run()
    why = here.reason(job, "dependency")
    assert why.text == f"waits for job {first} (afterany), which is PENDING without a planned start"
    assert why.until_us == 0 and here.why(job).start_us == 0


def test_a_dependant_is_planned_behind_its_predecessor() -> None:
    here = site()
    first = here.world.submit(time_limit_s=HOUR)
    job = here.world.submit(dependencies=depends("afterany", first), time_limit_s=HOUR)
    here.run()
    here.run()
    answer = here.why(job)
    assert answer.start_us == here.world.now_us + HOUR * SECOND and not answer.is_estimate
    assert here.kinds(job) == ["dependency"]


def test_singletons_wait_for_earlier_jobs_of_the_name() -> None:
    here = site()
    first = here.world.submit(name="x", time_limit_s=60)
    job = here.world.submit(name="x", dependencies=depends("singleton"))
    here.run()
    why = here.reason(job, "dependency")
    assert [holder.job_id for holder in why.holders] == [first]


def test_an_array_at_its_limit() -> None:
    here = site()
    array = here.world.submit(tasks=((0, 5),), limit=2, time_limit_s=HOUR)
    here.run()
    why = here.reason(array, "array_limit")
    assert why.text == "2 of its tasks run, 2 at a time may (--array ...%2)"
    assert why.until_us == here.world.now_us + HOUR * SECOND
    assert here.kinds(array) == ["array_limit"]


def test_an_array_all_of_whose_tasks_have_begun() -> None:
    here = site()
    array = here.world.submit(tasks=((0, 1),))
    here.run()
    assert here.kinds(array) == ["tasks_running"]


# ---- nodes ----


def test_the_funnel_adds_up_and_names_who_holds_what_until_when() -> None:
    names = tuple(f"cn{number}" for number in range(8))
    nodes = tuple(
        NodeConfig(name, (2 if number == 7 else 4, 1000), ("ib",) if number else ())
        for number, name in enumerate(names)
    )
    here = Site(World(8, restarts=False, policy="planned"))
    world = here.world
    world.send(ConfigLoaded(replace(world.state.config, nodes=nodes)))
    world.send(put(Reservation("course", Validity(0, 10**18), ("cn6",), users=("bob",))))
    world.send(UpdateNodes(ROOT, ("cn5",), "drain", "new memory"))
    small = world.submit(request=Request(include=("cn1",), tasks=3), time_limit_s=HOUR)
    large = world.submit(
        request=Request(include=("cn2", "cn3"), nodes_min=2, nodes_max=2, tasks=8), time_limit_s=2 * HOUR
    )
    here.run()
    wanted = Request(nodes_min=3, nodes_max=3, tasks=3, cpus_per_task=3, constraint="ib")
    job = world.submit(request=wanted, time_limit_s=HOUR)
    here.run()
    answer = here.why(job)
    filters = [one for one in answer.reasons if one.nodes_of]
    assert [(one.kind, one.nodes_failing) for one in filters] == [
        ("feature", 1),
        ("size", 1),
        ("nodes_unavailable", 1),
        ("reservation", 1),
        ("resources", 3),
    ]
    assert {one.nodes_of for one in filters} == {8}
    texts = [one.text for one in filters]
    assert texts[0] == "without the features ib"
    assert texts[1] == "too small for 3 cores (1 by cores)"
    assert texts[2] == "out of service: 1 drained (cn5: new memory)"
    assert texts[3] == "kept for reservation course"
    assert texts[4] == "with less than 3 cores free"
    ends = [world.now_us + hours * HOUR * SECOND for hours in (1, 2)]
    assert filters[4].holders == (
        Holder(f"job {large}", large, 2, ends[1]),
        Holder(f"job {small}", small, 1, ends[0]),
    )
    assert filters[4].until_us == ends[0]
    blocking = here.reason(job, "resources")
    assert blocking.until_us == ends[0]
    kept = here.reason(job, "reservation")
    assert kept.text == "1 of the 7 nodes it may use is kept for reservation course"
    assert kept.until_us == answer.start_us == ends[1]


def test_nodes_out_of_service_and_partitions_down() -> None:
    here = site(partitions=(Partition("main", ("cn0", "cn1", "cn2", "cn3"), default=True, up=False),))
    job = here.world.submit()
    here.run()
    assert here.reason(job, "partition_down").text == "partition main is down"
    here = site()
    here.world.send(UpdateNodes(ROOT, ("cn2", "cn3"), "drain", "cooling"))
    job = here.world.submit(request=Request(nodes_min=3, nodes_max=3), time_limit_s=60)
    here.run()
    assert here.reason(job, "nodes_unavailable").text.startswith(
        "needs nodes that are not in service; 2 of the 4"
    )
    out = here.reason(job, "nodes_unavailable", of_nodes=True)
    assert (out.nodes_failing, out.nodes_of) == (2, 4)
    assert out.text == "out of service: 2 drained (cn[2-3]: cooling)"
    assert here.why(job).start_us == 0
    here.world.send(UpdateNodes(ROOT, ("cn2", "cn3"), "resume"))
    for number in (2, 3):
        node = here.world.state.nodes[number]
        here.world.state.put_node(replace(node, faults=(NodeFault("prolog", "prolog failed: no GPU", 1),)))
    here.run()
    out = here.reason(job, "nodes_unavailable", of_nodes=True)
    assert out.text == "out of service: 2 with a fault (cn[2-3]: prolog failed: no GPU)"


def test_a_reservation_ahead_keeps_long_jobs_out_and_shorter_ones_are_offered() -> None:
    here = site()
    world = here.world
    start_us = world.now_us + 2 * HOUR * SECOND
    window = Validity(start_us, start_us + HOUR * SECOND)
    names = ("cn0", "cn1", "cn2", "cn3")
    world.send(put(Reservation("repair", window, names, maintenance=True)))
    job = world.submit(time_limit_s=6 * HOUR)
    here.run()
    answer = here.why(job)
    assert here.kinds(job) == ["maintenance"]
    (closed,) = (one for one in answer.reasons if one.nodes_of)
    assert closed.kind == "maintenance" and closed.nodes_failing == 4
    assert closed.text == "kept for reservation repair (maintenance) from 2 h from now on"
    assert closed.until_us == answer.start_us == window.until_us
    (less,) = answer.alternatives
    assert (less.text, less.option) == ("4 h less", "--time 2:00:00")
    assert less.start_us == world.now_us and less.nodes == 1


def test_what_is_promised_to_those_ahead_is_told() -> None:
    here = site()
    running = here.world.submit(request=Request(nodes_min=3, nodes_max=3, exclusive=True), time_limit_s=HOUR)
    wide = here.world.submit(request=WHOLE, time_limit_s=HOUR)
    job = here.world.submit(time_limit_s=2 * HOUR)
    here.run()
    assert here.world.state_of(running) == "RUNNING"
    assert here.kinds(job) == ["priority"]
    held = here.reason(job, "priority", of_nodes=True)
    assert held.text == "free now, but promised to others before it could end" and held.nodes_failing == 1
    assert held.holders == (Holder(f"job {wide}, planned", wide, 1, here.world.now_us + HOUR * SECOND),)
    answer = here.why(job)
    assert answer.ahead == 1
    assert [one.option for one in answer.alternatives] == ["--time 1:00:00"]


# ---- rules ----


def test_limits_licences_and_pools_say_who_uses_them() -> None:
    pool = FreePool("small", "cores", Amount(8), (Access(users=("eve",)),))
    here = site(
        Limit("lab", "user", "alice", "cores", Amount(4)), pool, resources=(Resource("matlab", wide_total=2),)
    )
    world = here.world
    first = world.submit(request=Request(tasks=3, wide=(("matlab", 2),)), time_limit_s=HOUR)
    here.run()
    job = world.submit(request=Request(tasks=2, wide=(("matlab", 1),)), time_limit_s=HOUR)
    other = world.submit(request=Request(tasks=6, nodes_min=2, nodes_max=2), user=BOB, time_limit_s=HOUR)
    here.run()
    end_us = world.now_us + HOUR * SECOND
    limit, licence = here.reason(job, "limit"), here.reason(job, "licence")
    assert limit.until_us == licence.until_us == end_us
    assert limit.holders == (Holder(f"job {first}, 3 cores", first, 1, end_us),)
    assert licence.holders == (Holder(f"job {first}, 2 matlab", first, 1, end_us),)
    assert limit.text.startswith("limit lab: user alice may use 4 cores at a time; 3 cores are used by 1 job")
    kept = here.reason(other, "pool")
    assert kept.until_us == end_us and kept.holders[0].job_id == first


def test_a_deadline_that_has_passed() -> None:
    here = site()
    running = here.world.submit(request=WHOLE, time_limit_s=HOUR)
    here.run()
    job = here.world.submit(time_limit_s=HOUR, deadline_us=here.world.now_us + 90 * 60 * SECOND)
    here.run()
    here.world.pass_time(HOUR - 60)
    here.run()
    assert "deadline" in here.kinds(job), running


# ---- starts and alternatives ----


def test_an_estimate_comes_after_those_ahead() -> None:
    for policy, expected in (("fcfs", 3), ("easy", 3), ("planned", 3)):
        here = site(policy=policy)
        for _ in range(3):
            here.world.submit(request=WHOLE, time_limit_s=HOUR)
        job = here.world.submit(request=WHOLE, time_limit_s=HOUR)
        here.run()
        answer = here.why(job)
        assert answer.start_us == here.world.now_us + expected * HOUR * SECOND, policy
        assert answer.is_estimate == (policy != "planned")
        assert answer.nodes == ("cn0", "cn1", "cn2", "cn3") and answer.ahead == 2


def test_behind_a_strict_queue_shorter_jobs_gain_nothing() -> None:
    here = site(policy="fcfs")
    here.world.submit(request=Request(nodes_min=3, nodes_max=3, exclusive=True), time_limit_s=HOUR)
    wide = here.world.submit(request=WHOLE, time_limit_s=HOUR)
    job = here.world.submit(time_limit_s=2 * HOUR)
    here.run()
    answer = here.why(job)
    assert answer.start_us > here.world.now_us and answer.alternatives == ()
    assert here.why(wide).start_us == here.world.now_us + HOUR * SECOND


def test_a_long_queue_without_bookings_has_no_estimate() -> None:
    here = site(policy="fcfs")
    here.world.submit(request=WHOLE, time_limit_s=HOUR)
    here.world.submit(request=WHOLE, time_limit_s=HOUR, tasks=((0, 200),))
    job = here.world.submit(request=WHOLE, time_limit_s=HOUR)
    here.run()
    answer = here.why(job)
    assert (answer.start_us, answer.alternatives, answer.ahead) == (0, (), 1)
    assert answer.reasons


def test_alternatives_by_nodes_tasks_memory_and_partition() -> None:
    names = ("cn0", "cn1", "cn2", "cn3")
    partitions = (
        Partition("main", names[:3], default=True),
        Partition("other", names[3:]),
        Partition("down", names[3:], up=False),
    )
    here = site(partitions=partitions)
    world = here.world
    world.submit(request=Request(include=("cn0",), memory_per_node_mib=600), time_limit_s=HOUR)
    world.submit(request=Request(tasks=4, include=("cn1",)), time_limit_s=HOUR)
    world.submit(request=Request(tasks=4, include=("cn2",)), time_limit_s=3 * HOUR)
    here.run()
    job = world.submit(request=Request(memory_per_node_mib=800), time_limit_s=HOUR)
    here.run()
    answer = here.why(job)
    assert answer.start_us == world.now_us + HOUR * SECOND
    assert [(one.text, one.option, one.start_us) for one in answer.alternatives] == [
        ("in partition other", "--partition other", world.now_us),
        ("400 MiB of memory a node instead of 800", "--mem 400M", world.now_us),
    ]
    wide = world.submit(
        request=Request(nodes_min=2, nodes_max=2, tasks=2, cpus_per_task=4), time_limit_s=HOUR
    )
    here.run()
    options = [one.option for one in here.why(wide).alternatives]
    assert options == ["--cpus-per-task 3", "--nodes 1 --ntasks 1"]


def test_what_would_be_refused_is_not_offered() -> None:
    here = site(
        Limit("short", "user", "alice", "cores", duration_s=HOUR),
        partitions=(
            Partition("main", ("cn0", "cn1"), default=True),
            Partition("quick", ("cn2", "cn3"), time_limit_max_s=60),
        ),
    )
    here.world.submit(request=Request(nodes_min=2, nodes_max=2, exclusive=True), time_limit_s=HOUR)
    here.run()
    job = here.world.submit(time_limit_s=HOUR)
    here.run()
    assert here.why(job).start_us == here.world.now_us + HOUR * SECOND
    assert [one.option for one in here.why(job).alternatives] == []
    assert here.why(job, with_alternatives=False).alternatives == ()


def test_nobody_is_told_a_start_in_the_place_of_one_who_has_waited_for_long() -> None:
    here = site(policy="easy")
    world = here.world
    world.submit(request=Request(cpus_per_task=4), time_limit_s=14 * HOUR)
    here.run()
    wide = world.submit(request=WHOLE, time_limit_s=HOUR)
    here.run()
    world.pass_time(13 * HOUR)
    # It is expected to be gone in time; by its limit it would not be.
    short = world.submit(request=Request(cpus_per_task=4), time_limit_s=2 * HOUR)
    world.send(SetForecasts(ROOT, ((short, Forecast(600, 600, 600, 600)),), "history-1"))
    here.run()
    assert (world.state_of(wide), world.state_of(short)) == ("PENDING", "PENDING")
    answer = here.why(short)
    assert answer.start_us == here.why(wide).start_us + HOUR * SECOND
    assert [(one.option, one.start_us) for one in answer.alternatives] == [("--time 1:00:00", world.now_us)]


# ---- a job that is not there yet ----


def ask(here: Site, spec: JobSpec) -> Answer:
    return exhaust(would_wait(here.world.state, here.schedule, spec, here.world.now_us))


def test_a_job_that_is_only_asked_about() -> None:
    here = site()
    state = here.world.state
    before = len(here.world.log)
    answer = ask(here, spec_of(state, Request(), 1))
    assert (answer.start_us, answer.nodes, answer.reasons) == (here.world.now_us, ("cn0",), ())
    here.world.submit(request=WHOLE, time_limit_s=HOUR)
    here.run()
    changed = len(here.world.log)
    answer = ask(here, spec_of(state, Request(), 1))
    assert answer.start_us == here.world.now_us + HOUR * SECOND and answer.is_estimate
    assert [one.kind for one in answer.reasons] == ["resources", "resources"]
    answer = ask(here, spec_of(state, Request(), 1, held=True))
    assert [one.kind for one in answer.reasons if not one.nodes_of] == ["hold", "resources"]
    assert answer.start_us == 0
    array = spec_of(state, Request(), 1, array=ArraySpec(((0, 3),), 2))
    assert ask(here, array).start_us == here.world.now_us + HOUR * SECOND
    with pytest.raises(Refused, match="--nodes"):
        ask(here, spec_of(state, Request(nodes_min=9, nodes_max=9), 1))
    assert len(here.world.log) == changed > before
    here.schedule.book.check()


def test_a_job_that_can_never_run_any_more_says_so() -> None:
    here = site()
    job = here.world.submit(request=Request(nodes_min=4, nodes_max=4), held=True)
    here.run()
    assert here.kinds(job) == ["hold"]
    assert "already" not in refused(here.world.try_submit(request=Request(nodes_min=5, nodes_max=5)))


def test_what_can_never_run_as_it_is_may_run_otherwise() -> None:
    names = ("cn0", "cn1", "cn2", "cn3")
    for policy in ("planned", "easy"):
        down = (Partition("main", names, default=True, up=False), Partition("side", names[:1]))
        here = site(policy=policy, partitions=down)
        job = here.world.submit(time_limit_s=HOUR)
        here.run()
        answer = here.why(job)
        assert answer.start_us == 0 and here.kinds(job) == ["partition_down"]
        assert [one.option for one in answer.alternatives] == ["--partition side"]


def test_who_only_asks_is_refused_what_a_submission_would_be() -> None:
    here = site()
    state = here.world.state
    ended = here.world.submit(request=WHOLE)
    here.world.cancel(ended)
    for fields, text in (
        ({"dependencies": depends("afterok", 99)}, "job 99 does not exist"),
        ({"dependencies": depends("afterok", ended)}, "can never be met"),
        ({"priority": 2_000}, "only operators may go above"),
    ):
        spec = spec_of(state, Request(), 1, **fields)
        with pytest.raises(Refused, match=text):
            ask(here, spec)
        assert text in refused(here.world.send(SubmitJobs((spec,))))
