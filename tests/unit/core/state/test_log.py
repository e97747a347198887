"""The log's format: every kind of fact survives it, and an old log still gives the state it gave.

`tests/golden/core/log.txt` is a log as this release writes it; a difference means that an upcast is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from eslurm.core.model import facts
from eslurm.core.model.accounts import Account, Qos
from eslurm.core.model.config import Partition
from eslurm.core.model.controller_phases import ControllerPrograms, PhaseKey
from eslurm.core.model.federation import Outcome
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.gateways import GATEWAY, PARTITION, GatewayRequest
from eslurm.core.model.guests import Guest, GuestOf
from eslurm.core.model.job import StepEnd
from eslurm.core.model.member import Revocation
from eslurm.core.model.messages import (
    ApproveHost,
    Arrival,
    AskGuests,
    CancelJobs,
    ChangeFederation,
    ChangePolicies,
    ConfigLoaded,
    ConfirmArrival,
    ControllerPhaseDone,
    CreateJoinToken,
    CreateStep,
    CreateToken,
    CronJob,
    DropArrival,
    EndOffer,
    EpochStarted,
    ExtendJob,
    FinishPart,
    FinishStep,
    GiveUpGuests,
    HeartbeatDone,
    HoldGuests,
    IdsTaken,
    JobRef,
    JoinHost,
    KeepGuest,
    MovePack,
    NoteGuestGone,
    NoteMailTold,
    NoteOutcome,
    NoteTold,
    NoteTransferred,
    OfferJob,
    PlanMade,
    PolicyChange,
    Resized,
    ResizeJob,
    RevokeMembers,
    RevokeTokens,
    SatelliteSilent,
    SetCrontab,
    SetForecasts,
    SubmitJobs,
    Submitted,
    SuspendJobs,
    UpdateJob,
    UpdateNodes,
    UpdatePartitions,
    UpdateSatellites,
)
from eslurm.core.model.moves import ExtendGrant, MoveGrant
from eslurm.core.model.node_health import FailingCheck
from eslurm.core.model.promise import Promise, PromisedStart, Run
from eslurm.core.model.protocol import (
    HealthReported,
    HeldAttempt,
    PhaseReported,
    Prepare,
    Preparing,
    StepEnded,
)
from eslurm.core.model.request import Request
from eslurm.core.state.apply import apply
from eslurm.core.state.cluster import State
from tests.kits.core import ALICE, BOB, ROOT, SECOND, World, depends
from tests.kits.gateways import ALL, MODULES, ends, started
from tests.kits.mirror import picture
from tests.kits.packs import pack
from tests.kits.parts import parted, place, span, submit
from tests.kits.steps import create, over
from tests.support.golden import Golden


def history() -> World:
    """A short life with every kind of fact in it."""
    world = World(nodes=4, cores=4, finished_retention_s=30.0)
    wide = world.submit(request=Request(tasks=8, nodes_min=2, nodes_max=2), time_limit_s=600)
    after = world.submit(dependencies=depends("after", wide, 1), name="later")
    array = world.submit(tasks=((0, 2),), limit=1)
    world.submit(tasks=((0, 2),), dependencies=depends("aftercorr", array))
    world.start()
    world.send(CreateStep(ALICE, wide, 2, 2, ("app",), b"e", "/tmp", "host:1", b"c"))
    world.deliver()
    world.send(FinishStep(ALICE, wide, 0, 0))
    for _ in range(2):
        create(world, wide, 8, 2)
    world.deliver()
    over(world, wide, 1)
    world.send(CancelJobs(ALICE, (JobRef(wide),), signal=10))
    world.send(UpdateJob(ALICE, JobRef(after), name="renamed", time_limit_s=60))
    world.hold(after)
    world.hold(after, release=True)
    world.pass_time(1)
    world.end(5)
    world.cancel(array, 2)
    world.cancel(wide)
    world.end(wide, 15)
    world.start()
    world.send(HeartbeatDone(missing=(3,)))
    world.send(UpdateNodes(ROOT, ("cn3",), "drain", "disk"))
    world.register(2, HeldAttempt(99, 1, "running"), session="s2")
    world.cancel(after)
    world.cancel(world.submit(held=True))
    world.pass_time(60)
    world.send(EpochStarted(2))
    world.send(SatelliteSilent("sat1"))
    world.send(UpdateSatellites(ROOT, ("sat1",), "resume"))
    qos = PolicyChange("add", "qos", "high", Qos("high", 10))
    world.send(ChangePolicies(ROOT, (qos, PolicyChange("add", "account", "physics", Account("physics")))))
    world.send(ChangePolicies(ROOT, (PolicyChange("delete", "qos", "high"),)))
    for number in range(4):
        world.register(number, session="s3")
    long = world.submit(time_limit_s=100)
    world.start()
    world.send(SuspendJobs(ROOT, (JobRef(long),)))
    world.deliver()
    world.send(SuspendJobs(ROOT, (JobRef(long),), resume=True))
    world.send(UpdateJob(ALICE, JobRef(long), time_limit_s=110))
    world.send(UpdateJob(ALICE, JobRef(long), comment="phase 2"))
    world.deliver()
    world.send(SetForecasts(ROOT, ((long, Forecast(20, 40, 90, 50)),), "history-3"))
    start = PromisedStart(world.now_us + 100_000_000, (Run(0, 2, 1, (4, 0)), Run(3, 1, 1)))
    waiting = world.submit(request=Request(tasks=3, cpus_per_task=4), time_limit_s=60)
    world.send(PlanMade((), world.state.generation, promises=(Promise(waiting, (start,)),)))
    world.hold(waiting)
    for user in (ALICE, ALICE, BOB):
        job = world.submit(user=user)
        assert job in world.plan()
        world.done(
            next(send for send in world.sends() if send.nodes == (world.attempt(job).first,)), "failed"
        )
    world.send(CreateToken(ROOT, ALICE, b"t" * 16, "read", 60))
    world.send(RevokeTokens(ROOT, (b"t" * 16,)))
    world.send(CreateToken(ROOT, ALICE, b"u" * 16, "submit", 30))
    world.send(CreateJoinToken(ROOT, b"j" * 16, b"h" * 32, "agent", "cn[1-4]", 1, 30))
    world.send(JoinHost(b"j" * 16, "agent", "cn1", b"k" * 32, b"s" * 16, "192.0.2.1"))
    world.send(ApproveHost(ROOT, "satellite", "sat1", b"l" * 32, b"r" * 16, "192.0.2.2"))
    world.send(RevokeMembers(ROOT, (Revocation(b"s" * 16, "agent", "cn1", "", 0),)))
    world.pass_time(60)
    lost = world.submit()
    world.start()
    attempt = world.attempt(lost)
    world.lose(attempt.first)
    world.register(attempt.first, session="s4")
    end = StepEnd(0, 15, "orphaned", "", attempt.started_us, attempt.started_us)
    node = world.state.nodes[attempt.first]
    world.report(StepEnded(attempt.first, node.incarnation, lost, 1, end, gone=True))
    give_a_part_back(world)
    shrink(world)
    lose_a_node(world)
    move_itself(world)
    for number in range(4):
        world.register(number, session="s5", phases=("prolog", "epilog"))
    prepares = world.submit()
    assert prepares in world.plan()
    (send,) = world.sends()
    world.done(send, payload=msgspec.msgpack.encode(Preparing(300)))
    (number,) = send.nodes
    incarnation = world.state.nodes[number].incarnation
    world.report(PhaseReported(number, incarnation, prepares, 1, "prolog", StepEnd(1)))
    world.report(HealthReported(number, incarnation, 1, (FailingCheck("disk", "no space left"),)))
    world.report(HealthReported(number, incarnation, 2))
    world.pass_time(60)
    run_on_the_controller(world)
    send_mail(world)
    lose_a_gateway(world)
    world.send(ChangeFederation(ROOT, "lab", "drain"))
    world.send(IdsTaken(100_000, 100_000, 7))
    move_between_cells(world)
    span_cells(world)
    grow(world)
    lend_cores(world)
    keep_a_crontab(world)
    world.send(UpdatePartitions(ROOT, ("main",), "DRAIN"))
    return world


def lend_cores(world: World) -> None:
    """An application is asked for cores, and lends some."""
    for number in range(4):
        world.register(number, session="s6")
    world.pass_time(60)
    owner = world.submit(request=Request(cpus_per_task=3), cooperate="full", time_limit_s=600)
    world.start()
    node = world.attempt(owner).first
    number = world.attempt(owner).number
    world.report_cores(owner, number, idle=0, node=node)
    borrower = world.submit(request=Request(tasks=11), borrow="end,5", time_limit_s=60)
    for _ in range(3):
        world.pass_time(6)
    world.report_cores(owner, number, idle=2, node=node)
    world.deliver()
    world.cancel(borrower)
    world.deliver()


def move_between_cells(world: World) -> None:
    """One job is offered in vain, another ends in another cell, and two of another cell arrive, one of them for good."""
    wide = Request(tasks=3)
    kept, gone = [world.submit(request=wide, cells=("any",)) for _ in range(2)]
    for job_id in (kept, gone):
        world.send(OfferJob(job_id, "beta"))
    world.cancel(kept)
    serials = [transfer.serial for job_id in (kept, gone) if (transfer := world.job(job_id).transfer)]
    world.send(EndOffer(kept, serials[0]))
    world.send(NoteTransferred(gone, serials[1]))
    world.send(NoteOutcome(gone, serials[1], Outcome("FAILED", 3, 0, 5, 7, "no such file")))
    spec = msgspec.structs.replace(world.job(gone).spec, cells=())
    for job_id in (200_001, 200_002):
        world.send(SubmitJobs((spec,), arrival=Arrival("beta", job_id, 9)))
    world.send(DropArrival(200_001, 9))
    world.send(ConfirmArrival(200_002, 9))
    world.cancel(200_002)
    world.send(NoteTold(200_002, 9))


def span_cells(world: World) -> None:
    """A job runs on nodes of another cell, too, after it was given up once; and a guest of that cell is kept here."""
    wide = Request(tasks=9, nodes_min=9, nodes_max=9)
    job_id = world.submit(request=wide, cells=("any",), span=True)
    for node_list in ("", "b[1-8]"):
        world.send(AskGuests(job_id, 1, (Guest("beta", 8),)))
        guests = world.job(job_id).guests
        assert guests is not None
        if not node_list:
            world.send(GiveUpGuests(job_id, guests.serial, "beta: full"))
            world.send(NoteGuestGone(job_id, guests.serial, "beta"))
    world.send(HoldGuests(job_id, guests.serial, (Guest("beta", 8, 300_001, "b[1-8]"),)))
    world.cancel(job_id)
    world.send(NoteGuestGone(job_id, guests.serial, "beta"))
    spec = msgspec.structs.replace(world.job(job_id).spec, cells=(), span=False)
    answer = world.send(SubmitJobs((spec,), guest_of=GuestOf("beta", 300_007, 5)))
    assert isinstance(answer, Submitted)
    (guest,) = answer.job_ids
    world.send(KeepGuest(guest, "beta", 300_007, 5, keep=True))
    world.cancel(guest)


def keep_a_crontab(world: World) -> None:
    """A line of a crontab, whose job is cancelled."""
    spec = msgspec.structs.replace(world.job(world.submit()).spec, cron="0 0 * * *")
    world.send(SetCrontab(ALICE, ALICE.uid, ALICE.name, "@daily true\n", (CronJob(1, spec),)))
    (line,) = world.state.crontabs[ALICE.uid].lines
    world.send(CancelJobs(ALICE, (JobRef(line.job_id),), cron=True))


def run_on_the_controller(world: World) -> None:
    """A job has a prolog on the controller's host."""
    config = world.state.config
    world.send(ConfigLoaded(msgspec.structs.replace(config, phases=ControllerPrograms("/site/prolog"))))
    world.submit(user=ROOT)
    job_id, *others = world.plan()
    attempt = world.attempt(job_id).number
    world.send(ControllerPhaseDone(PhaseKey(job_id, attempt, "prolog", 1), StepEnd(3, text="no licence")))
    for placed in (job_id, *others):
        world.cancel(placed, by=ROOT)
        world.send(
            ControllerPhaseDone(PhaseKey(placed, world.job(placed).attempts, "prolog", 1), StepEnd(0, 15))
        )
    world.send(ConfigLoaded(config))


def send_mail(world: World) -> None:
    """The user of a job hears of half of its time limit."""
    config = world.state.config
    world.send(ConfigLoaded(msgspec.structs.replace(config, sends_mail=True)))
    job = world.submit(mail_type="time-limit-50", time_limit_s=100)
    world.start()
    world.pass_time(60)
    world.send(NoteMailTold(job, 1))
    world.cancel(job)
    world.send(ConfigLoaded(config))


def give_a_part_back(world: World) -> None:
    """A running job of two parts goes on without the second one."""
    job = submit(world, parted(Request(), Request()))
    world.start()
    world.send(FinishPart(ALICE, JobRef(job, part=1)))
    world.deliver()
    world.end(job)


def lose_a_gateway(world: World) -> None:
    """The nodes become modules, and a job loses a daemon of its gateways."""
    config = world.state.config
    modules = dict(zip(("cn0", "cn1", "cn2", "cn3"), ("cluster", "cluster", "booster", "gw"), strict=True))
    nodes = tuple(
        msgspec.structs.replace(node, features=(modules[node.name],), module=modules[node.name])
        for node in config.nodes
    )
    config = msgspec.structs.replace(
        config,
        nodes=nodes,
        partitions=(
            Partition("main", ("cn0", "cn1", "cn2"), default=True),
            Partition(PARTITION, ("cn3",), role=GATEWAY),
        ),
        modules=MODULES,
    )
    world.send(ConfigLoaded(config))
    for number in range(4):
        world.register(number, session="s6")
    world.send(UpdateNodes(ROOT, tuple(modules), "resume"))
    job_id = world.submit(user=ROOT, priority=10**6, request=ALL, gateway=GatewayRequest(1))
    assert job_id in world.plan()
    world.deliver()
    started(world, job_id)
    ends(world, job_id, 3, "gateway", StepEnd(139))


def move_itself(world: World) -> None:
    """A pack starts its second job earlier, and its first one gets more time."""
    first, second = pack(world, 0, 60)
    world.start()
    world.send(MovePack(ALICE, JobRef(first), earlier_us=30 * SECOND))
    world.send(ExtendJob(ALICE, JobRef(first), by_s=50))
    place, more = world.job(second).pack, world.attempt(first).more
    assert place is not None and place.wish is not None and more is not None and more.wish is not None
    moved = MoveGrant(first, place.wish.serial, ((second, place.start_us - 30 * SECOND),), "30 s earlier")
    extended = ExtendGrant(first, 1, more.wish.serial, 150, "time limit 150 s")
    world.send(PlanMade((), world.state.generation, moves=(moved,), extensions=(extended,)))
    world.deliver()
    world.cancel(second)
    world.end(first)


def lose_a_node(world: World) -> None:
    """A job goes on without its second node."""
    wide = world.submit(request=Request(nodes_min=2, nodes_max=2, tasks=2), no_kill=True)
    world.start()
    world.lose(world.attempt(wide).nodes[1])


def shrink(world: World) -> None:
    """A running job gives its second node back."""
    wide = world.submit(user=ROOT, priority=10**6, request=Request(nodes_min=2, nodes_max=2, tasks=2))
    assert wide in world.start()
    world.send(ResizeJob(ROOT, JobRef(wide), by_nodes=-1))
    world.deliver()
    world.end(wide)


def grow(world: World) -> None:
    """A running job gets a second node, at the second try. Its nodes have phases."""
    for number in range(3):
        world.register(number, session="s7", phases=("prolog", "epilog"))
    job_id = world.submit(user=ROOT, time_limit_s=500)
    first, bad, good = sorted(number for number in world.state.nodes if world.state.ledger.free(number)[0])[
        :3
    ]
    assert place(world, job_id, span(first, 1)) is not None
    prologs(world, job_id)
    world.deliver()
    answer = world.send(ResizeJob(ROOT, JobRef(job_id), by_nodes=1))
    assert isinstance(answer, Resized)
    for number in (bad, good):
        world.pass_time(2)
        place(world, answer.growth_id, span(number, 1))
        prologs(world, job_id, is_good=number == good)
        world.deliver()
    assert world.attempt(job_id).held == {first, good}
    world.end(job_id)
    world.gone(first, job_id, 1)
    world.gone(good, job_id, 1)
    world.pass_time(60)
    world.deliver()


def prologs(world: World, job_id: int, *, is_good: bool = True) -> None:
    """The nodes that are to be prepared for the job run their prologs."""
    for send in world.sends():
        if not isinstance(send.body, Prepare) or send.body.launch.job_id != job_id:
            continue
        if not is_good:
            world.done(send, nodes=())
            continue
        world.done(send, payload=msgspec.msgpack.encode(Preparing(300)))
        for number in send.nodes:
            incarnation = world.state.nodes[number].incarnation
            world.report(PhaseReported(number, incarnation, job_id, 1, "prolog", StepEnd(0)))


def test_the_history_has_every_kind_of_fact() -> None:
    kinds = {type(fact) for fact in history().log}
    assert kinds == set(get_args(facts.Fact))


def test_a_log_of_this_release_reads_the_same_in_later_ones(golden: Golden) -> None:
    world = history()
    lines = []
    for fact in world.log:
        kind, version, blob = facts.encode_fact(fact)
        assert facts.decode_fact(kind, version, blob) == fact
        lines.append(f"{kind} {version} {blob.hex()}")
    golden("core/log.txt", "\n".join(lines) + "\n")


def replayed(name: str) -> State:
    """The state after a log of an earlier release."""
    state = State("main")
    log = (Path(__file__).parents[3] / "golden/core" / name).read_text()
    for revision, line in enumerate(log.splitlines(), 1):
        kind, version, blob = line.split()
        fact = facts.decode_fact(kind, int(version), bytes.fromhex(blob))
        apply(state, fact, revision, max(state.now_us, 1))
    return state


def test_a_log_from_before_sessions_were_counted_is_read() -> None:
    state = replayed("log_uncounted.txt")
    assert {node.starts for node in state.nodes.values()} == {0}
    assert state.nodes[2].incarnation == 2 and state.nodes[2].sessions_past == ("s1",)


def test_a_log_from_before_there_were_policies_is_read() -> None:
    state = replayed("log_without_policies.txt")
    assert not any(state.policies.values()) and not state.usage
    spec = state.jobs[4].spec
    assert (spec.qos, spec.nice, spec.trace, spec.components[0].place) == ("", 0, b"", "free")


def test_a_log_from_before_jobs_had_parts_is_read() -> None:
    state = replayed("log_without_parts.txt")
    assert state.jobs and all(job.spec.parts == () for job in state.jobs.values())
    assert {job.attempt.more for job in state.jobs.values() if job.attempt} <= {None}
    assert {node.faults for node in state.nodes.values()} == {()}


def test_replaying_a_log_gives_the_state() -> None:
    world = history()
    assert picture(world.mirror.replayed) == picture(world.state)


def test_an_old_version_is_brought_up_to_date_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 0 of a lease had the number of ids instead of their end, version -1 had it as text."""
    monkeypatch.setitem(facts.UPCASTS, ("IdsLeased", 0), lambda raw: [raw[0], raw[1] + 1])
    monkeypatch.setitem(facts.UPCASTS, ("IdsLeased", -1), lambda raw: [raw[0], int(raw[1])])
    old = msgspec.msgpack.encode(["IdsLeased", "99"])
    assert facts.decode_fact("IdsLeased", -1, old) == facts.IdsLeased(100)


def test_fields_that_a_later_release_appends_are_ignored() -> None:
    newer = msgspec.msgpack.encode(["IdsLeased", 7, "what is this?"])
    assert facts.decode_fact("IdsLeased", 1, newer) == facts.IdsLeased(7)


def test_what_is_no_fact_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        facts.decode_fact("IdsLeased", 1, msgspec.msgpack.encode(["Nothing", 7]))


def test_an_empty_state_applies_a_whole_log_from_bytes() -> None:
    world = history()
    state = State("main")
    for revision, fact in enumerate(world.log, 1):
        blob = facts.encode_fact(fact)
        apply(state, facts.decode_fact(*blob), revision, max(state.now_us, 1))
    assert state.jobs.keys() == world.state.jobs.keys()
