"""Launches that fail: for how long a job avoids nodes, and when a node rather than a job is to blame (C-43)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.control.jobs.stopping import ended
from eslurm.core.model.job import Principal
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import Changed, ConfigLoaded, UpdateNodes
from eslurm.core.model.node import Node
from eslurm.core.model.request import Request
from eslurm.core.relay.results import USER_REFUSED
from eslurm.core.state.cluster import is_usable
from tests.kits.core import ALICE, BOB, ROOT, SECOND, World, refused

EVE = Principal("eve", 1002, 1002)
ON_CN0 = Request(include=("cn0",))


def fail(world: World, job: int) -> None:
    """The node says that it cannot launch the job."""
    assert job in world.plan()
    (send,) = world.sends()
    world.done(send, "failed")


def node(world: World, number: int = 0) -> Node:
    return world.state.nodes[number]


def fail_for(world: World, *users: Principal) -> list[int]:
    """One launch fails on cn0 for one job of each of these users; the jobs are held."""
    jobs = []
    for user in users:
        jobs.append(world.submit(user=user, request=ON_CN0))
        fail(world, jobs[-1])
        world.hold(jobs[-1], by=ROOT)
    return jobs


# ---- what a job avoids ----


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(Request(memory_per_node_mib=2_000), id="memory"),
        pytest.param(Request(cpus_per_task=8), id="cores"),
        pytest.param(Request(tasks=16), id="all tasks together"),
    ],
)
def test_the_only_node_that_can_hold_a_job_is_tried_again(request_: Request) -> None:
    """Six nodes are there and five of them are too small: the job waited for them without end."""
    world = World(nodes=6, cores=2)
    large, *small = world.state.config.nodes
    nodes = (replace(large, total=(64, 4_000)), *small)
    world.send(ConfigLoaded(replace(world.state.config, nodes=nodes)))
    job = world.submit(request=request_)
    fail(world, job)
    assert "could not be launched on cn0" in world.job(job).exit_text
    world.pass_time(1)
    assert world.start() == [job]
    assert world.attempt(job).first == 0


def test_avoided_nodes_count_again_after_a_pause_that_grows() -> None:
    world = World(nodes=2)
    world.send(UpdateNodes(ROOT, ("cn1",), "drain", "disk"))
    job = world.submit()
    pauses = []
    for _ in range(4):
        fail(world, job)
        assert world.job(job).avoid == {0}
        failed_us = world.now_us
        while world.job(job).avoid:
            assert world.plan() == []
            world.pass_time(1)
        pauses.append((world.now_us - failed_us) // 1_000_000)
    assert pauses == [15, 30, 60, 120]
    assert world.start() == [job]


@pytest.mark.parametrize(("failures", "pause_s"), [(0, 15), (5, 480), (6, 600), (60, 600)])
def test_the_pause_is_bounded(failures: int, pause_s: int) -> None:
    """A node is not avoided for days after it works again, even with many tries."""
    world = World()
    job = world.submit()
    world.plan()
    tried = replace(world.job(job), launch_failures=failures)
    end = ended(world.state, tried, world.attempt(job), world.now_us, outcome=JobState.PENDING, avoid=(0,))
    assert end.avoid_until_us == world.now_us + pause_s * SECOND


def test_a_controller_that_begins_goes_on_with_the_pause() -> None:
    world = World(nodes=2)
    world.send(UpdateNodes(ROOT, ("cn1",), "drain", "disk"))
    job = world.submit()
    fail(world, job)
    world.restart()
    assert world.job(job).avoid == {0}
    world.pass_time(15)
    assert world.start() == [job]


# ---- whether the node is to blame ----


def test_a_node_that_launches_no_job_is_set_aside_and_tried_again() -> None:
    world = World(nodes=2)
    fail_for(world, ALICE, BOB)
    assert is_usable(node(world))
    jobs = fail_for(world, ALICE)
    assert not is_usable(node(world)) and node(world).drain
    assert node(world).reason.startswith("launches fail here (jobs 1, 2, 3)")
    assert "why" not in node(world).reason, "the words of a failed launch are its user's"
    healthy = world.submit()
    assert world.start() == [healthy] and world.attempt(healthy).first == 1
    world.pass_time(59)
    assert not is_usable(node(world))
    world.pass_time(1)
    assert is_usable(node(world)) and not node(world).reason
    # One more failure is enough now, and the pause is longer.
    world.hold(jobs[0], release=True, by=ROOT)
    world.pass_time(60)
    fail(world, jobs[0])
    assert node(world).aside_until_us - world.now_us == 120_000_000


def test_a_launch_that_works_clears_the_node() -> None:
    world = World(nodes=1)
    fail_for(world, ALICE, BOB)
    good = world.submit(request=ON_CN0)
    assert world.start() == [good]
    assert node(world).failed_launches == ()
    fail_for(world, ALICE)
    assert is_usable(node(world))


@pytest.mark.parametrize("users", [(ALICE,) * 7, (ALICE, BOB)])
def test_jobs_that_no_node_launches_take_no_node_from_others(users: tuple[Principal, ...]) -> None:
    """One user's broken jobs, however many, do not empty the cluster."""
    world = World(nodes=1, launch_failures_max=40)
    fail_for(world, *users)
    assert is_usable(node(world))


def test_the_same_job_counts_once() -> None:
    world = World(nodes=1, launch_failures_max=40)
    first, second = world.submit(user=ALICE, request=ON_CN0), world.submit(user=BOB, request=ON_CN0)
    world.hold(second, by=ROOT)
    for _ in range(5):
        fail(world, first)
        world.pass_time(60)
    assert [job_id for job_id, _ in node(world).failed_launches] == [first]


def test_what_people_say_of_a_node_counts_more() -> None:
    world = World(nodes=2)
    fail_for(world, ALICE, BOB, EVE)
    world.send(UpdateNodes(ROOT, ("cn0",), "drain", "burnt"))
    world.pass_time(4_000)
    assert node(world).drain and node(world).reason == "burnt"
    world.send(UpdateNodes(ROOT, ("cn0",), "resume"))
    assert is_usable(node(world)) and node(world).failed_launches == ()


def test_an_agent_that_begins_anew_is_tried_at_once() -> None:
    world = World(nodes=2)
    fail_for(world, ALICE, BOB, EVE)
    assert not is_usable(node(world))
    world.register(0, session="s2")
    assert is_usable(node(world)) and not node(world).reason


# ---- users whose jobs are not run ----


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_user_whom_a_node_refuses_is_held_at_once_and_takes_no_node_from_others(nodes: int) -> None:
    """Tried again it would be refused again: on each node, until all of them were set aside."""
    world = World(nodes=2, allow_root_jobs=True)
    request = Request(tasks=nodes, nodes_min=nodes, nodes_max=nodes)
    for user in (ROOT, EVE, BOB):
        job = world.submit(user=user, request=request)
        assert job in world.plan()
        if nodes > 1:
            world.deliver()
        (send,) = world.sends()
        world.done(send, "failed", code=USER_REFUSED)
        for release in world.sends():
            world.done(release, payload=world.answer_of(release))
        held = world.job(job)
        assert (held.state.value, held.hold, held.launch_failures) == ("PENDING", "system", 0)
        assert held.reason_text == "could not be launched on cn0: why" and not held.avoid
    assert all(not one.failed_launches and is_usable(one) for one in world.state.nodes.values())
    assert world.start() == []


def test_a_user_who_was_refused_while_the_job_was_cancelled_leaves_nothing() -> None:
    world = World()
    job = world.submit()
    world.plan()
    (send,) = world.sends()
    world.cancel(job)
    world.done(send, "failed", code=USER_REFUSED)
    assert world.state_of(job) == "CANCELLED"


@pytest.mark.parametrize(
    ("user", "setting", "said"),
    [
        (ROOT, {"allow_root_jobs": False}, "root's jobs are refused (agent.allow_root_jobs)"),
        (ALICE, {"min_uid": 1001}, "jobs of alice (uid 1000) are refused: it is below 1001 (agent.min_uid)"),
    ],
)
def test_waiting_jobs_of_users_that_a_configuration_keeps_out_are_held(
    user: Principal, setting: dict[str, object], said: str
) -> None:
    """They were accepted before: by another configuration, or by a release that knew no such setting."""
    world = World(allow_root_jobs=True)
    running, waiting = (
        world.submit(user=user),
        world.submit(user=user, request=Request(tasks=16, nodes_min=4)),
    )
    other = world.submit(user=BOB, held=True)
    array = world.submit(user=user, tasks=((0, 1),), held=True)
    assert world.start() == [running]
    before = world.state.config
    world.send(ConfigLoaded(replace(before, **setting)))
    assert (world.job(waiting).hold, world.job(waiting).reason_text) == ("system", said)
    assert (world.job(array).hold, world.job(other).hold) == ("user", "user")
    assert world.state_of(running) == "RUNNING"
    assert refused(world.try_submit(user=user)) == f"{said}: submit as an ordinary user"
    answer = world.hold(waiting, by=ROOT, release=True)
    assert isinstance(answer, Changed) and answer.problems[0].text.startswith(said)
    world.restart()
    world.end(running)
    assert world.start() == [], "nothing of theirs is launched"
    world.send(ConfigLoaded(before))
    assert world.hold(waiting, by=ROOT, release=True) == Changed(1)
    assert world.start() == [waiting]
