"""The end of preempted jobs: requeued, ended or suspended, by their own QOS or partition, with their own grace."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from eslurm.core.control.jobs.preemption import ROOM_KEPT_US, claim_of, is_possible, running_work
from eslurm.core.model.accounts import Qos
from eslurm.core.model.config import Partition
from eslurm.core.model.facts import StopRequested
from eslurm.core.model.job import StepEnd
from eslurm.core.model.messages import (
    Changed,
    ChangePolicies,
    ConfigLoaded,
    JobRef,
    PolicyChange,
    Resized,
    ResizeJob,
    SuspendJobs,
    UpdateJob,
)
from eslurm.core.model.protocol import End, PhaseReported, Preparing, Suspend
from eslurm.replay.state_check import check
from tests.kits.core import ROOT, SECOND, World, problem
from tests.kits.running import GONE, end, free, only, place, preempt, run, start


def with_qos(mode: str = "requeue", grace_s: int = -1, exempt_s: int = 0) -> World:
    """`high` pushes out `low`."""
    world = World()
    low = Qos("low", preempt_mode=mode, preempt_grace_s=grace_s, preempt_exempt_s=exempt_s)
    high = Qos("high", preempts=("low",))
    changes = tuple(PolicyChange("add", "qos", one.name, one) for one in (low, high))
    assert world.send(ChangePolicies(ROOT, changes)) == Changed(2)
    return world


def high(world: World) -> int:
    return world.submit(qos="high", time_limit_s=100)


def stops(world: World) -> list[StopRequested]:
    return [fact for fact in world.log if isinstance(fact, StopRequested)]


def test_a_requeued_victim_waits_again_and_says_for_whom() -> None:
    world = with_qos("requeue", grace_s=50)
    victim, urgent = run(world, qos="low"), high(world)
    preempt(world, victim, "requeue", urgent)
    send = only(world.sends())
    assert send.body == End(victim, 1, 50.0, "preempt")
    assert world.attempt(victim).until_us == world.now_us + 50 * SECOND, "its nodes are foreseen then"
    world.done(send, payload=GONE)
    end(world, victim, signal=15)
    assert world.state_of(victim) == "PENDING"
    assert world.job(victim).exit_text == f"preempted to make room for job {urgent}"


def test_a_victim_that_may_not_be_requeued_is_preempted_for_good() -> None:
    world = with_qos("requeue")
    victim = run(world, qos="low", requeue=False)
    preempt(world, victim, "requeue", high(world))
    end(world, victim, signal=15)
    assert world.state_of(victim) == "PREEMPTED"


def test_a_cancelled_victim_ends_as_preempted_after_the_sites_grace() -> None:
    world = with_qos("cancel")
    victim = run(world, qos="low")
    preempt(world, victim, "cancel", high(world))
    assert only(world.sends()).body == End(victim, 1, world.state.config.kill_grace_s, "evict")
    end(world, victim, signal=15)
    assert world.state_of(victim) == "PREEMPTED"


def test_a_person_who_cancels_a_victim_has_the_last_word() -> None:
    world = with_qos("requeue")
    victim = run(world, qos="low")
    preempt(world, victim, "requeue", high(world))
    world.cancel(victim)
    end(world, victim, signal=15)
    assert world.state_of(victim) == "CANCELLED"


def test_everything_is_looked_at_again() -> None:
    world = with_qos("requeue", exempt_s=60)
    victim, urgent = run(world, qos="low"), high(world)
    ordinary = run(world, (1,))
    preempt(world, victim, "requeue", urgent)
    assert not stops(world), "it may run undisturbed for a minute"
    world.pass_time(60)
    preempt(world, victim, "cancel", urgent)
    assert not stops(world), "that is not its mode"
    preempt(world, ordinary, "requeue", urgent)
    assert not stops(world), "nobody may push it out"
    preempt(world, victim, "requeue", ordinary)
    assert not stops(world), "who runs needs no room"
    preempt(world, victim, "requeue", urgent)
    preempt(world, victim, "requeue", urgent)
    assert len(stops(world)) == 1, "once is enough"


def test_a_partition_of_a_higher_tier_pushes_out_by_the_victims_partition() -> None:
    world = World(2)
    names = ("cn0", "cn1")
    partitions = (
        Partition("main", names, default=True, preempt_mode="cancel"),
        Partition("urgent", names, tier=1),
    )
    assert not is_possible(world.state)
    world.send(ConfigLoaded(replace(world.state.config, partitions=partitions)))
    assert is_possible(world.state)
    victim = run(world)
    urgent = world.submit(time_limit_s=100)
    assert claim_of(world.state, world.job(urgent)).tier == 0
    preempt(world, victim, "cancel", urgent)
    assert not stops(world), "its own tier is no higher"
    world.send(UpdateJob(ROOT, JobRef(urgent), partition="urgent"))
    preempt(world, victim, "cancel", urgent)
    assert len(stops(world)) == 1


def test_a_tier_pushes_nobody_out_who_would_push_back() -> None:
    world = with_qos()
    names = ("cn0", "cn1", "cn2", "cn3")
    partitions = (
        Partition("main", names, default=True, preempt_mode="requeue"),
        Partition("up", names, tier=1),
    )
    world.send(ConfigLoaded(replace(world.state.config, partitions=partitions)))
    strong = run(world, qos="high")
    lifted = world.submit(qos="low", time_limit_s=100)
    world.send(UpdateJob(ROOT, JobRef(lifted), partition="up"))
    preempt(world, strong, "requeue", lifted)
    assert not stops(world), "its QOS would have it pushed out in turn"
    plain = world.submit(time_limit_s=100)
    world.send(UpdateJob(ROOT, JobRef(plain), partition="up"))
    preempt(world, strong, "requeue", plain)
    assert len(stops(world)) == 1


# ---- suspended victims ----


def suspended() -> tuple[World, int, int]:
    """A victim on two nodes that has made room on them."""
    world = with_qos("suspend")
    victim, urgent = run(world, (0, 1), qos="low"), high(world)
    preempt(world, victim, "suspend", urgent)
    return world, victim, urgent


def test_a_suspended_victim_lends_its_cores_once_its_nodes_have_stopped_it() -> None:
    world, victim, urgent = suspended()
    assert world.state_of(victim) == "SUSPENDED"
    assert world.job(victim).reason_text == f"suspended to make room for job {urgent}"
    send = only(world.sends())
    assert send.body == Suspend(victim, 1)
    world.done(send, nodes=(0,))
    assert free(world, 1) == free(world, 0) == (0, 900), "one of them may still compute"
    (work,) = running_work(world.state)
    assert work.is_going, "nobody else need be pushed out"
    world.pass_time(1)
    world.done(only(world.sends()))
    assert free(world, 1) == free(world, 0) == (4, 900), "its memory is still its own"


def test_it_goes_on_by_itself_when_the_other_has_ended() -> None:
    world, victim, urgent = suspended()
    world.done(only(world.sends()))
    place(world, urgent, (0,))
    start(world, urgent)
    assert free(world, 0) == (0, 800)
    world.pass_time(30)
    assert "goes on by itself" in problem(world.send(SuspendJobs(ROOT, (JobRef(victim),), True)))
    end(world, urgent)
    assert world.state_of(victim) == "RUNNING"
    assert free(world, 0) == free(world, 1) == (0, 900)
    send = only(world.sends())
    assert (send.body, send.nodes) == (Suspend(victim, 1, resume=True), (0, 1))
    assert world.attempt(victim).paused_us == 30 * SECOND


def test_it_waits_for_whoever_else_has_its_cores() -> None:
    world, victim, urgent = suspended()
    world.done(only(world.sends()))
    other = world.submit(time_limit_s=100)
    place(world, other, (1,))
    start(world, other)
    world.cancel(urgent)
    assert world.state_of(victim) == "SUSPENDED"
    end(world, other)
    assert world.state_of(victim) == "RUNNING"


def test_it_goes_on_when_nobody_wants_its_room_any_more() -> None:
    world, victim, urgent = suspended()
    late = only(world.sends())
    world.cancel(urgent)
    assert world.state_of(victim) == "RUNNING", "it has not lent anything yet"
    assert only(world.sends()).body == Suspend(victim, 1, resume=True)
    world.done(late)
    assert world.state_of(victim) == "RUNNING"
    assert free(world, 0) == (0, 900)


def test_it_goes_on_when_the_other_may_not_begin_any_more() -> None:
    world, victim, urgent = suspended()
    world.done(only(world.sends()))
    world.send(UpdateJob(ROOT, JobRef(urgent), begin_us=world.now_us + 1_000_000 * SECOND))
    assert world.state_of(victim) == "RUNNING"


def test_it_goes_on_when_the_other_has_begun_beside_it() -> None:
    world = with_qos("suspend")
    victim, beside = run(world, cores=2, qos="low"), run(world, cores=2)
    urgent = high(world)
    preempt(world, victim, "suspend", urgent)
    asked = only(world.sends())
    end(world, beside)
    place(world, urgent, (0,), 2)
    assert world.state_of(victim) == "RUNNING", "its own cores were not needed"
    world.done(asked)
    start(world, urgent)
    assert world.state_of(victim) == "RUNNING" and free(world, 0)[0] == 0


def test_it_does_not_wait_for_ever_for_who_does_not_come() -> None:
    world, victim, _ = suspended()
    world.done(only(world.sends()))
    world.pass_time(ROOM_KEPT_US / SECOND - 1)
    assert world.state_of(victim) == "SUSPENDED"
    world.pass_time(1)
    assert world.state_of(victim) == "RUNNING"


def test_a_restart_in_between_loses_neither_the_room_nor_who_lent_it() -> None:
    world, victim, urgent = suspended()
    world.done(only(world.sends()))
    world.restart()
    assert free(world, 0) == (4, 900)
    world.cancel(urgent)
    assert world.state_of(victim) == "RUNNING"


def test_a_lender_that_is_cancelled_gives_back_only_what_it_still_has() -> None:
    world, victim, urgent = suspended()
    world.done(only(world.sends()))
    place(world, urgent, (0,))
    start(world, urgent)
    world.cancel(victim)
    end(world, victim, signal=15)
    assert world.state_of(victim) == "CANCELLED"
    assert free(world, 0) == (0, 900) and free(world, 1) == (4, 1000)


def test_a_node_that_could_not_join_a_lender_stays_lent() -> None:
    """Goal: cores that another job has already are not the lender's once more while the node is cleaned."""
    world = with_qos("suspend")
    world.register(1, session="phased", phases=("prolog",))
    victim = run(world, qos="low")
    assert isinstance(world.send(ResizeJob(ROOT, JobRef(victim), by_nodes=1)), Resized)
    world.plan()
    world.done(only(world.sends()), payload=msgspec.msgpack.encode(Preparing(300)))
    assert world.attempt(victim).joining == {1}
    urgent = high(world)
    preempt(world, victim, "suspend", urgent)
    world.done(only(world.sends()))
    place(world, urgent, (1,), memory_mib=0)
    for _ in range(2):
        world.deliver()
    assert world.state_of(urgent) == "RUNNING"
    assert (free(world, 0)[0], free(world, 1)[0]) == (4, 0)
    end_of_prolog = StepEnd(1, text="no space left")
    world.report(PhaseReported(1, world.state.nodes[1].incarnation, victim, 1, "prolog", end_of_prolog))
    assert world.attempt(victim).leaving == {1}
    assert (free(world, 0)[0], free(world, 1)[0]) == (4, 0)
    check(world.state)
    world.gone(1, victim, 1)
    assert world.attempt(victim).held == {0}
    check(world.state)
    end(world, urgent)
    assert world.state_of(victim) == "RUNNING"
    assert (free(world, 0)[0], free(world, 1)[0]) == (0, 4)
