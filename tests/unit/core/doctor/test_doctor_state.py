"""Each kind of corruption of the state is found, named and explained; a cluster in order has no findings, whatever it
went through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import pytest
from msgspec.structs import replace

from eslurm.core.control.reactor import Batch
from eslurm.core.dispatch.satellite_pool import SatellitePool
from eslurm.core.doctor.allocations import check_allocations, check_records
from eslurm.core.doctor.finding import ERROR, WARNING, Finding, Sliced
from eslurm.core.doctor.orphans import Watch, check_endings
from eslurm.core.doctor.places import Peer, check_health, check_nodes, check_peers, check_satellites
from eslurm.core.model.job import Span, StepEnd
from eslurm.core.model.messages import (
    EffectDone,
    EpochStarted,
    HeartbeatDone,
    JobRef,
    Message,
    NodeOutcome,
    Reports,
    ResizeJob,
    UpdateNodes,
)
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.protocol import Gone, HeldAttempt, NodeGone, Registration, Report, StepEnded
from eslurm.core.model.request import Request
from eslurm.core.model.satellite_states import SatelliteState
from eslurm.core.state.cluster import State
from tests.kits.chaos import Chaos
from tests.kits.core import ROOT, SECOND, World
from tests.support.seeds import Seeds

HOUR = 3600 * SECOND


def found(check: Sliced) -> list[Finding]:
    return [one for one in check if one is not None]


def state_findings(state: State, now_us: int) -> list[Finding]:
    return [
        *found(check_records(state)),
        *found(check_allocations(state)),
        *found(check_endings(state, now_us)),
    ]


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


def working() -> World:
    """Job 1 has all of nodes 0 and 1, job 2 one core of node 2."""
    world = World(nodes=4, cores=4, restarts=False)
    world.submit(request=Request(tasks=8, nodes_min=2, nodes_max=2))
    world.submit()
    world.start()
    return world


# ---- in order ----


def test_a_cluster_in_order_has_no_findings() -> None:
    world = working()
    assert state_findings(world.state, world.now_us) == []
    assert found(check_nodes(world.state, world.now_us)) == []


def test_whatever_a_cluster_goes_through_is_no_corruption(seeds: Seeds) -> None:
    for seed in seeds(4):
        chaos = Chaos(seed, checked=False)
        for _ in range(120):
            chaos.act()
            state = chaos.world.state
            assert [*found(check_records(state)), *found(check_allocations(state))] == [], seed


def test_movement_between_slices_is_no_contradiction() -> None:
    """The state moves on at every pause of the checks."""
    world = working()
    checks = [check_records(world.state), check_allocations(world.state)]
    for check in checks:
        for at, one in enumerate(check):
            assert one is None, one
            world.submit()
            if at % 3 == 0:
                world.start()
            running = [job for job in world.state.jobs.values() if job.state.value == "RUNNING"]
            if running and at % 4 == 0:
                world.end(running[0].job_id)
            if at > 200:
                break


# ---- planted ----


def share_a_node(world: World) -> None:
    """Job 2 gets what job 1 has: in its record and in the files, past the ledger."""
    job = world.job(2)
    attempt = world.attempt(2)
    world.state.jobs[2] = replace(
        job, attempt=replace(attempt, spans=(*attempt.spans, Span(0, (4, 0))), held=attempt.held | {0})
    )
    world.state.jobs_on[0] = world.state.jobs_on[0] | {2}


def forget_a_hold(world: World) -> None:
    attempt = world.attempt(2)
    world.state.ledger.give_back(attempt.first, attempt.spans[0].amounts, attempt.until_us)


def hold_for_nobody(world: World) -> None:
    world.state.ledger.hold(3, (2, 0), 10**18)


def miscount_free(world: World) -> None:
    world.state.ledger._move(3, (3, 1000))


def forget_who_is_where(world: World) -> None:
    del world.state.jobs_on[world.attempt(2).first]


def file_a_stranger(world: World) -> None:
    world.state.jobs_on[3] = frozenset({2})


def use_a_node_out_of_service(world: World) -> None:
    world.state.nodes[3] = replace(world.state.nodes[3], drain=True)


def hold_an_unknown_node(world: World) -> None:
    attempt = world.attempt(2)
    spans = (*attempt.spans, Span(99, (1, 0)))
    world.state.jobs[2] = replace(
        world.job(2), attempt=replace(attempt, spans=spans, held=attempt.held | {99})
    )


def lose_the_attempt(world: World) -> None:
    world.state.jobs[2] = replace(world.job(2), attempt=None)


def file_a_debt(world: World) -> None:
    world.state.owed[7] = 2


def drop_from_queue(world: World) -> None:
    job = world.submit(request=Request(tasks=8, nodes_min=2, nodes_max=2))
    world.state.queue.remove(job)


@pytest.mark.parametrize(
    ("plant", "check", "what", "text"),
    [
        (
            share_a_node,
            "allocations",
            "node cn0",
            "allocated twice: jobs 1, 2 hold (8, 0), the node has (4, 1000)",
        ),
        (share_a_node, "allocations", "node cn0", "the ledger has (4, 0) held, its jobs (1, 2) hold (8, 0)"),
        (forget_a_hold, "allocations", "node cn2", "the ledger has (0, 0) held, its jobs (2) hold (1, 0)"),
        (
            hold_for_nobody,
            "allocations",
            "node cn3",
            "the ledger has (2, 0) held, its jobs (none) hold (0, 0)",
        ),
        (miscount_free, "allocations", "node cn3", "(3, 1000) free and (0, 0) held do not make (4, 1000)"),
        (forget_who_is_where, "allocations", "job 2", "holds node cn2, where it is not filed"),
        (file_a_stranger, "allocations", "node cn3", "job 2 is filed here and holds nothing here"),
        (
            use_a_node_out_of_service,
            "allocations",
            "node cn3",
            "takes it for usable, its record says otherwise",
        ),
        (hold_an_unknown_node, "allocations", "job 2", "holds node #99, which the ledger does not know"),
        (lose_the_attempt, "records", "job 2", "job 2 (RUNNING) has no attempt"),
        (file_a_debt, "records", "job 2", "effect 7 is filed as owed, the job does not owe it"),
        (drop_from_queue, "records", "job 3", "in queue: False"),
    ],
)
def test_each_corruption_is_found(plant: Callable[[World], None], check: str, what: str, text: str) -> None:
    world = working()
    plant(world)
    findings = state_findings(world.state, world.now_us)
    assert any(
        (one.check, one.severity, one.what) == (check, ERROR, what) and text in one.text for one in findings
    ), findings
    assert all(one.advice for one in findings)


# ---- orphans ----


class Watched:
    """A world whose batches the watch is told of."""

    def __init__(self) -> None:
        self.world = World(nodes=3, restarts=False)
        self.watch = Watch()

    def send(self, message: Message) -> Batch:
        batch = self.world.batch(message)
        self.watch.on_committed([message], batch.facts, batch.revision_first, batch.now_us)
        return batch

    def register(self, number: int, session: str, *held: HeldAttempt) -> None:
        self.register_together(session, {number: held})

    def register_together(self, session: str, held: Mapping[int, tuple[HeldAttempt, ...]]) -> None:
        """One agent process offers all the nodes that it serves, in one message."""
        state = self.world.state
        bodies = [
            Registration(
                f"cn{number}", f"uid-cn{number}", "b1", session, state.epoch, "host:1", (64, 64_000), attempts
            )
            for number, attempts in held.items()
        ]
        first = 100 + state.revision
        self.send(Reports(tuple(Report("agent", seq, body) for seq, body in enumerate(bodies, first))))

    def findings(self, after_s: float = 0) -> list[Finding]:
        return found(self.watch.check(self.world.state, self.world.now_us + int(after_s * SECOND)))


def test_a_process_that_no_job_explains_is_found_until_it_is_gone() -> None:
    watched = Watched()
    watched.register(1, "s2", HeldAttempt(99, 1, "running"))
    young, old = only(watched.findings()), only(watched.findings(3600))
    assert (young.severity, old.severity, old.what) == (WARNING, ERROR, "node cn1")
    assert "attempt 99.1 runs there, no job explains it; told to end 3600 s ago" in old.text
    watched.send(Reports((Report("agent", 999, NodeGone(1, 2, 99, 1)),)))
    assert watched.findings(3600) == []


def test_an_answered_end_and_an_empty_registration_end_an_orphan_too() -> None:
    watched = Watched()
    watched.register(1, "s2", HeldAttempt(99, 1, "running"))
    revision = watched.world.state.revision
    watched.send(EffectDone(revision, 0, (NodeOutcome((1,), "ok"),)))
    assert watched.findings(), "accepted is not gone"
    watched.send(EffectDone(revision, 0, (NodeOutcome((1,), "ok", "", msgspec.msgpack.encode(Gone())),)))
    assert watched.findings() == []
    watched.register(1, "s3", HeldAttempt(99, 1, "running"))
    assert watched.findings()
    watched.register(1, "s4", HeldAttempt(99, 1, "tombstone"))
    assert watched.findings() == []


def test_an_attempt_on_a_node_that_came_without_it_is_found() -> None:
    watched = Watched()
    world = watched.world
    job = world.submit(request=Request(tasks=2, nodes_min=2, nodes_max=2))
    world.start()
    first, second = sorted(world.attempt(job).held)
    world.pass_time(600)
    watched.register(first, "s2", HeldAttempt(job, 1, "running"), HeldAttempt(job - 1, 1, "tombstone"))
    assert watched.findings() == []
    # What the core would make of it is left out, as a defect would.
    body = Registration(f"cn{second}", f"uid-cn{second}", "b1", "s9", world.state.epoch, "h:1", (64, 64_000))
    registered = next(one for one in world.log[::-1] if type(one).__name__ == "NodeRegistered")
    planted = replace(registered, number=second, session="s9")
    watched.watch.on_committed([Reports((Report("agent", 1, body),))], [planted], 500, world.now_us)
    finding = only(watched.findings())
    assert (finding.what, finding.severity) == (f"job {job}", ERROR)
    assert f"is held on cn{second}, registered without it since it started" in finding.text


def test_a_node_that_joined_a_job_after_it_had_registered_is_in_order() -> None:
    """Goal: a job that grew is not found on nodes that could not know of it then."""
    watched = Watched()
    world = watched.world
    job = world.submit(request=Request(cpus_per_task=4), time_limit_s=3600)
    world.start()
    first = world.attempt(job).first
    other = next(number for number in sorted(world.state.nodes) if not world.state.jobs_on.get(number))
    world.pass_time(600)
    watched.register(other, "s2")
    names = tuple(world.state.nodes[number].name for number in (first, other))
    world.send(ResizeJob(ROOT, JobRef(job), nodes=names))
    world.plan()
    world.deliver()
    assert world.attempt(job).held == {first, other}
    assert watched.findings() == []


def test_nodes_of_one_process_are_remembered_each_with_its_own_inventory() -> None:
    """As after a failover: the jobs are where they were, and nothing is wrong."""
    watched = Watched()
    world = watched.world
    jobs = [world.submit(), world.submit(request=Request(tasks=4, nodes_min=2, nodes_max=2))]
    world.start()
    world.pass_time(600)
    watched.send(EpochStarted(2))
    attempts = {job: world.attempt(job) for job in jobs}
    held = {
        number: tuple(
            HeldAttempt(job, one.number, "running") for job, one in attempts.items() if number in one.held
        )
        for number in world.state.nodes
    }
    assert len(set(held.values())) > 1
    watched.register_together("s2", held)
    assert all(node.session == "s2" for node in world.state.nodes.values())
    assert watched.findings() == []


def test_what_the_watch_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eslurm.core.doctor.orphans.ORPHANS_MAX", 3)
    watched = Watched()
    watched.register(1, "s2", *(HeldAttempt(number, 1, "running") for number in range(90, 100)))
    assert [one.text[:12] for one in watched.findings()] == ["attempt 97.1", "attempt 98.1", "attempt 99.1"]


def test_an_attempt_that_outlives_its_limit_or_its_node_is_found() -> None:
    world = World(nodes=2, restarts=False)
    job = world.submit(time_limit_s=600)
    world.start()
    assert found(check_endings(world.state, world.now_us)) == []
    late = only(found(check_endings(world.state, world.now_us + HOUR)))
    assert (late.severity, late.what) == (
        WARNING,
        f"job {job}",
    ) and "beyond its time limit of 600 s" in late.text
    number = world.attempt(job).first
    world.state.nodes[number] = replace(world.state.nodes[number], state=NodeState.LOST)
    lost = only(found(check_endings(world.state, world.now_us)))
    assert lost.severity == ERROR and f"still holds cn{number}, given up as lost" in lost.text


def test_an_end_that_a_node_does_not_confirm_is_found() -> None:
    world = World(nodes=2, restarts=False)
    job = world.submit(request=Request(tasks=2, nodes_min=2, nodes_max=2))
    world.start()
    attempt = world.attempt(job)
    node = world.state.nodes[attempt.first]
    end = StepEnd(0, started_us=attempt.started_us, ended_us=world.now_us)
    world.report(StepEnded(attempt.first, node.incarnation, job, 1, end, True))
    assert found(check_endings(world.state, world.now_us)) == []
    finding = only(found(check_endings(world.state, world.now_us + HOUR)))
    assert "has ended; cn1 did not confirm that nothing is left" in finding.text


# ---- nodes, satellites, peers ----


def test_nodes_out_of_service_are_told_together() -> None:
    world = working()
    world.send(HeartbeatDone(missing=(0, 1)))
    finding = only(found(check_nodes(world.state, world.now_us + 90 * SECOND)))
    assert (finding.check, finding.severity, finding.what) == ("nodes", WARNING, "2 nodes cn[0-1]")
    assert finding.text == "UNREACHABLE for up to 90 s (missed 2 heartbeats), 1 job is kept there"


def test_a_node_drained_on_purpose_is_no_fault_one_that_offers_too_little_is() -> None:
    world = World(nodes=2, restarts=False)
    world.send(UpdateNodes(ROOT, ("cn0",), "drain", "new memory"))
    assert found(check_nodes(world.state, world.now_us)) == []
    name = "cn1"
    world.report(Registration(name, f"uid-{name}", "b1", "s7", world.state.epoch, "h:1", (2, 10)))
    assert "drained: offers (2, 10)" in only(found(check_nodes(world.state, world.now_us))).text


def test_clocks_that_are_too_far_ahead_are_told_by_themselves() -> None:
    world = World(nodes=2, restarts=False)
    world.send(HeartbeatDone(ahead=((0, 70 * SECOND), (1, 80 * SECOND))))
    finding = only(found(check_nodes(world.state, world.now_us)))
    assert (finding.check, finding.severity, finding.what) == ("clocks", WARNING, "2 nodes cn[0-1]")
    assert "too far ahead of the controller's" in finding.text


def test_a_node_of_another_epoch_in_service_is_an_error() -> None:
    world = World(nodes=2, restarts=False)
    world.state.nodes[1] = replace(world.state.nodes[1], epoch=77)
    finding = only(found(check_nodes(world.state, world.now_us)))
    assert finding.severity == ERROR and finding.what == "node cn1"


def test_health_is_told_by_problem() -> None:
    world = World(nodes=3, restarts=False)
    findings = found(check_health(world.state, {0: ("clock", "disk"), 2: ("disk",)}))
    assert [(one.what, one.text) for one in findings] == [
        ("node cn0", "reports a problem with its clock"),
        ("2 nodes cn[0,2]", "reports a problem with its disk"),
    ]


def test_satellites_that_are_given_no_work() -> None:
    world = World(nodes=1, restarts=False)
    roster = SatellitePool(world.state, {"sat1": "h:1", "sat2": "h:2"}, lambda number, seq: None)
    one, two = roster.satellites
    now_us = world.now_us + HOUR
    for satellite in (one, two):
        satellite.state, satellite.since_us = SatelliteState.RUNNING, world.now_us
    assert found(check_satellites(roster.satellites, now_us)) == []
    two.state, two.reason = SatelliteState.FAULT, "no link"
    finding = only(found(check_satellites(roster.satellites, now_us)))
    assert (finding.severity, finding.what, finding.text) == (
        WARNING,
        "satellite sat2",
        "in FAULT for 3600 s (no link)",
    )
    one.state = SatelliteState.DOWN
    findings = found(check_satellites(roster.satellites, now_us))
    assert [one.severity for one in findings] == [WARNING, WARNING, ERROR]
    assert findings[-1].text == "none of 2 is in service: the controller serves all nodes itself"


def test_releases_and_clocks_of_peers() -> None:
    peers = [
        Peer("satellite", "sat1", "0.2.0", 100_000),
        Peer("satellite", "sat2", "0.1.0", -2 * SECOND),
        Peer("controller", "c2", "0.2.0", 45 * SECOND),
        Peer("agent", "a1", "0.2.0"),
    ]
    findings = found(check_peers(peers, "0.2.0"))
    assert [(one.check, one.severity, one.what, one.text) for one in findings] == [
        ("clocks", WARNING, "satellite sat2", "its clock is 2.0 s behind the controller's"),
        ("clocks", ERROR, "controller c2", "its clock is 45.0 s ahead of the controller's"),
        ("versions", WARNING, "satellite sat2", "build 0.1.0, the controller has 0.2.0"),
    ]
