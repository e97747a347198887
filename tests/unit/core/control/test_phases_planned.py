"""Plans count on the prologs and epilogs of waiting jobs: promised starts hold, messages in and facts out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.core.model.accounts import Reservation, Validity
from eslurm.core.model.facts import JobPlaced, TimeChanged
from eslurm.core.model.messages import ExtendJob, JobRef
from eslurm.core.model.phase_lengths import WINDOW_US
from eslurm.core.model.request import Request
from eslurm.core.state.rows import settings_of
from tests.kits.core import ALICE, SECOND, World
from tests.kits.phased import Phased
from tests.unit.core.control.test_late_promises import set_policy

WHOLE = Request(cpus_per_task=4)
AHEAD = ("conservative", "planned")


def learnt(
    prolog_s: float = 20, epilog_s: float = 10, *, nodes: int = 1, policy: str = "conservative"
) -> Phased:
    """A world that has seen jobs for longer than a window of what is learnt."""
    world = Phased(prolog_s, epilog_s, nodes=nodes, policy=policy)
    for _ in range(2):
        world.submit(request=WHOLE, time_limit_s=WINDOW_US // SECOND)
        world.run()
    return world


def lateness_s(world: Phased, count: int, limit_s: int = 100) -> list[float]:
    """The delays of several jobs that have all been promised a start at once."""
    ids = [world.submit(request=WHOLE, time_limit_s=limit_s) for _ in range(count)]
    promised = world.promised()
    world.run()
    assert len(promised) >= count - len(world.state.ledger.topology.numbers)
    placed = world.placed()
    return [(placed[job_id] - promised[job_id]) / SECOND for job_id in ids if job_id in promised]


def test_what_has_not_been_learnt_makes_each_job_later_by_one_prolog_and_epilog_more() -> None:
    world = Phased(20, 10)
    assert lateness_s(world, 5) == [30, 60, 90, 120]


@pytest.mark.parametrize("policy", AHEAD)
def test_a_promise_is_not_broken_by_a_prolog_of_30_s(policy: str) -> None:
    world = learnt(30, 0.1, policy=policy)
    assert world.state.phases_us == 33 * SECOND
    assert all(-20 <= late_s <= 0 for late_s in lateness_s(world, 6))


# No whole seconds, to which what is learnt is rounded up: the node is free before the next planned start, not with it.
LENGTHS_S = st.integers(0, 1999).map(lambda tenths: tenths / 10 + 0.05)


@settings(max_examples=25, deadline=None)
@given(
    LENGTHS_S,
    LENGTHS_S,
    st.lists(st.integers(1, 600), min_size=2, max_size=8),
    st.integers(1, 3),
    st.sampled_from(AHEAD),
)
def test_with_phases_of_constant_length_planned_starts_hold(
    prolog_s: float, epilog_s: float, limits_s: list[int], nodes: int, policy: str
) -> None:
    world = learnt(prolog_s, epilog_s, nodes=nodes, policy=policy)
    ids = [world.submit(request=WHOLE, time_limit_s=limit_s) for limit_s in limits_s]
    promised = world.promised()
    world.run()
    placed = world.placed()
    assert all(placed[job_id] <= promised[job_id] for job_id in ids if job_id in promised)


@pytest.mark.parametrize("policy", AHEAD)
def test_a_node_that_is_free_a_moment_after_a_planned_start_is_that_jobs_node(policy: str) -> None:
    # Both epilogs end in the same instant, when the starts behind them are due: the second one finds its node in use.
    world = learnt(1, 1, nodes=2, policy=policy)
    ids = [world.submit(request=WHOLE, time_limit_s=1) for _ in range(5)]
    promised = world.promised()
    world.run()
    placed = world.placed()
    assert [placed[job_id] - promised[job_id] for job_id in ids[2:]] == [0, 0, 0]


def test_jobs_that_wait_are_planned_anew_when_more_is_learnt() -> None:
    world = Phased(20, 10)
    for _ in range(4):
        world.submit(request=WHOLE, time_limit_s=400)
    first = world.promised()
    world.run()
    assert world.state.phases_us == 30 * SECOND
    # In the order in which they were promised their starts.
    placed = world.placed()
    assert [placed[job_id] - placed[job_id - 1] for job_id in (2, 3, 4)] == [430 * SECOND] * 3
    assert (placed[4] - first[4]) / SECOND == 90


def test_a_job_that_waits_is_promised_a_later_start_as_soon_as_that_is_known() -> None:
    world = learnt(1, 1)
    world.prolog_s = 40
    ids = [world.submit(request=WHOLE, time_limit_s=700) for _ in range(6)]
    world.promised()
    world.run(lambda: world.job(ids[1]).started_us > 0)
    began_us = world.placed()[ids[1]]
    promised = world.promised()
    assert [promised[job_id] - began_us for job_id in ids[2:]] == [
        (741 + 741 * at) * SECOND for at in range(4)
    ]


def test_without_phases_nothing_is_learnt_and_when_they_go_nothing_counts() -> None:
    world = World(nodes=1)
    job_id = world.submit(time_limit_s=60)
    world.start()
    world.end(job_id)
    assert world.state.phases_us == 0 and settings_of(world.state).phase_lengths is None
    phased = learnt()
    waiting = phased.submit(request=WHOLE, time_limit_s=60, held=True)
    phased.hold(waiting, release=True)
    entry = phased.state.queue.find(waiting)
    assert entry is not None and entry.phases_us == 30 * SECOND and entry.stay_us == 90 * SECOND
    phased.register(0, session="plain", phases=())
    entry = phased.state.queue.find(waiting)
    assert entry is not None and entry.phases_us == 0 and phased.state.phases_us == 0


def test_what_was_learnt_outlives_a_restart_and_a_replay_knows_the_same() -> None:
    world = learnt()
    world.submit(request=WHOLE, time_limit_s=60)
    assert world.state.phases_us == 30 * SECOND
    world.mirror.compare(world.state)
    assert world.mirror.restored().phases_us == world.mirror.replayed.phases_us == 30 * SECOND


def test_the_limit_of_the_job_is_its_own_and_its_nodes_are_held_longer() -> None:
    world = learnt()
    job_id = world.submit(request=WHOLE, time_limit_s=100)
    world.promised()
    (placed,) = [fact for fact in world.log if isinstance(fact, JobPlaced) and fact.job_id == job_id]
    assert placed.until_us == world.now_us + 100 * SECOND
    (running,) = world.state.live.values()
    assert running.until_us == placed.until_us and running.expected_us == placed.until_us + 30 * SECOND


def test_a_job_that_fits_its_reservation_and_its_deadline_by_its_limit_still_does() -> None:
    world = learnt()
    ends_us = world.now_us + 100 * SECOND
    set_policy(world, Reservation("mine", Validity(world.now_us, ends_us), ("cn0",), users=("alice",)))
    inside = world.submit(request=WHOLE, time_limit_s=100, reservation="mine", deadline_us=ends_us + SECOND)
    world.promised()
    assert world.attempt(inside).until_us == ends_us


def test_a_longer_limit_leaves_the_next_job_its_start() -> None:
    world = learnt()
    first = world.submit(request=WHOLE, time_limit_s=100)
    second = world.submit(request=WHOLE, time_limit_s=100, begin_us=world.now_us + 500 * SECOND)
    next_us = world.promised()[second]
    world.run(lambda: world.job(first).started_us > 0)
    world.send(ExtendJob(ALICE, JobRef(first), 0, 3600))
    world.promised()
    (longer,) = [fact for fact in world.log if isinstance(fact, TimeChanged)]
    # Its epilog ends as the next job begins.
    assert longer.until_us == next_us - 10 * SECOND and world.promised()[second] == next_us


@pytest.mark.parametrize("closed_s", [1, 10, 30, 31, 600])
@pytest.mark.parametrize("limit_s", [5, 100])
def test_a_job_runs_into_no_closure_however_short_it_is(closed_s: int, limit_s: int) -> None:
    world = learnt()
    from_us = world.now_us + 60 * SECOND
    until_us = from_us + closed_s * SECOND
    set_policy(world, Reservation("course", Validity(from_us, until_us), ("cn0",), users=("eve",)))
    ids = [world.submit(request=WHOLE, time_limit_s=limit_s) for _ in range(4)]
    world.run()
    placed = world.placed()
    for job_id in ids:
        began_us = placed[job_id]
        assert began_us + limit_s * SECOND <= from_us or began_us >= until_us, (began_us - from_us) / SECOND
