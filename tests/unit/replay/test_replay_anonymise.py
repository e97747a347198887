"""No name leaves the site, and the log without names is still the same story."""

from __future__ import annotations

from pathlib import Path

import msgspec

from eslurm.core.model.accounts import (
    Access,
    Account,
    Amount,
    Defaults,
    FreePool,
    Limit,
    Policy,
    Qos,
    Reservation,
    User,
    Validity,
)
from eslurm.core.model.config import Resource
from eslurm.core.model.facts import decode_fact
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import (
    CancelJobs,
    ChangePolicies,
    CreateStep,
    JobRef,
    PolicyChange,
    SatelliteSilent,
    UpdateNodes,
)
from eslurm.core.model.request import Request
from eslurm.core.model.retry import Retried, RetryRequest
from eslurm.replay.anonymise import Anonymiser
from eslurm.replay.base import pack_base, unpack_base
from eslurm.replay.player import Player, find_violation
from tests.kits.chaos import Chaos
from tests.kits.core import ROOT, SECOND, World
from tests.kits.replay import logged, write
from tests.support.seeds import Seeds
from tests.unit.core.control.accounts.test_policies import put

SECRETS = (
    b"marie",
    b"curie",
    b"polonium",
    b"radium",
    b"/lab/",
    b"pitchblende",
    b"paris",
    b"cn0",
    b"cn3",
    b"lamp",
    b"sorbonne",
    b"fluorite",
    b"40125",
    b"spectroscope",
)
MARIE = Principal("marie", 40_123, 40_124, (40_125,))


def telling_world() -> World:
    world = World(cluster="paris", restarts=False, resources=(Resource("spectroscope"),))
    policies: tuple[Policy, ...] = (
        Account("sorbonne"),
        Account("curie", "sorbonne"),
        Qos("fluorite"),
        User("marie", ("curie",), qos=("fluorite",)),
        Limit("radium-limit", "account", "curie", "spectroscope", Amount(9)),
        Limit("radium-group", "group", "40125", "cores", Amount(9)),
        FreePool("radium-pool", access=(Access(("marie",), ("40125",), ("curie",)),)),
        FreePool("radium-nodes", nodes="cn[0,2]", access=(Access(("marie",)),)),
        Reservation("polonium", Validity(0, 9**15), ("cn1",), ("marie",), ("40125",), ("curie",)),
        Defaults("radium-defaults", "user", "marie", (("account", "curie"),), (("time", "600"),)),
    )
    world.send(put(*policies))
    gone = PolicyChange("delete", "limit", "radium-limit")
    job = world.submit(
        user=MARIE,
        name="polonium",
        request=Request(tasks=2, include=("cn3",)),
        account="curie",
        comment="pitchblende again",
        output="/lab/out.%j",
        arguments=("--radium",),
    )
    world.submit(user=MARIE, name="polonium", tasks=((0, 3),), limit=1)
    world.start()
    world.send(
        CreateStep(MARIE, job, 1, 1, ("radium", "-x"), b"e" * 32, "/lab/x", "paris:1", b"c" * 16, 1, "lamp")
    )
    world.send(UpdateNodes(ROOT, ("cn0",), "drain", "the lamp in paris"))
    world.send(SatelliteSilent("paris-sat"))
    world.send(ChangePolicies(ROOT, (gone,)))
    world.send(CancelJobs(MARIE, (JobRef(job),)))
    world.deliver()
    return world


def raw_of(path: Path) -> bytes:
    """Everything in the file, unpacked."""
    from eslurm.replay.base import pieces_of
    from eslurm.replay.logfile import LogFile

    log = LogFile(path)
    parts = [msgspec.msgpack.encode(log.header), *(fact.blob for fact in log.facts())]
    if log.base:
        parts += [blob for _, blobs in pieces_of(log.base) for blob in blobs]
    return b"\n".join(parts)


def test_no_name_is_left(tmp_path: Path) -> None:
    world = telling_world()
    log = logged(world)
    plain = raw_of(write(tmp_path / "plain", log, pack_base(World().state)).path)
    for secret in SECRETS:
        assert secret in plain, f"{secret!r} is in no fact: the test has gone stale"
    anonymiser = Anonymiser(b"secret")
    cut = len(log) - 2
    player = Player(write(tmp_path / "first", log))
    player.play(until_revision=cut)
    base = anonymiser.base(pack_base(player.state))
    facts = [anonymiser.fact(fact) for fact in log]
    cluster = anonymiser.word("cluster", "paris")
    for hidden in (
        raw_of(write(tmp_path / "hidden", facts, cluster=cluster).path),
        raw_of(write(tmp_path / "hidden-base", facts[cut:], base, cluster=cluster).path),
    ):
        for secret in SECRETS:
            assert secret not in hidden, secret
        for number in (40_123, 40_124, 40_125):
            assert msgspec.msgpack.encode(number) not in hidden


def test_the_same_name_becomes_the_same_word_and_others_others() -> None:
    anonymiser = Anonymiser(b"secret")
    assert anonymiser.word("node", "cn1") == anonymiser.word("node", "cn1")
    assert anonymiser.word("node", "cn1") != anonymiser.word("node", "cn2")
    assert anonymiser.word("node", "cn1") != Anonymiser(b"other").word("node", "cn1")
    assert anonymiser.word("node", "") == ""


def test_the_story_stays_the_same(tmp_path: Path, seeds: Seeds) -> None:
    for seed in seeds(3):
        chaos = Chaos(seed, checked=False)
        for _ in range(200):
            chaos.act()
        log = logged(chaos.world)
        anonymiser = Anonymiser(b"secret")
        verdict = find_violation(write(tmp_path / "log", [anonymiser.fact(fact) for fact in log]))
        assert verdict.violation is None, verdict.violation
        player = Player(write(tmp_path / "log", [anonymiser.fact(fact) for fact in log]))
        player.play()
        told, real = player.state, chaos.world.state
        assert told.jobs.keys() >= {
            job_id for job_id, job in real.jobs.items() if job.state.value not in ("COMPLETED", "CANCELLED")
        }
        for number, node in real.nodes.items():
            assert (told.nodes[number].state, told.nodes[number].total) == (node.state, node.total)
        for job_id, job in real.jobs.items():
            assert (told.jobs[job_id].state, told.jobs[job_id].attempts) == (job.state, job.attempts)


def test_a_base_without_names_is_the_state_without_names(tmp_path: Path) -> None:
    world = telling_world()
    anonymiser = Anonymiser(b"secret")
    player = Player(write(tmp_path / "log", [anonymiser.fact(fact) for fact in logged(world)]))
    player.play()
    from_base = unpack_base("main", anonymiser.base(pack_base(world.state)))
    assert from_base.jobs == player.state.jobs
    assert from_base.nodes == player.state.nodes
    assert from_base.config == player.state.config
    assert from_base.policies == player.state.policies
    assert from_base.usage == player.state.usage
    assert from_base.promises == player.state.promises
    user = anonymiser.word("user", "marie")
    account = anonymiser.word("account", "curie")
    known = from_base.policies["user"][user]
    assert isinstance(known, User) and known.accounts == (account,)
    assert anonymiser.word("limit", "radium-limit") not in from_base.policies["limit"]


def test_root_and_what_the_controller_says_by_itself_stay() -> None:
    world = World(restarts=False)
    world.send(UpdateNodes(ROOT, ("cn3",), "lost"))
    anonymiser = Anonymiser(b"secret")
    facts = [anonymiser.fact(fact) for fact in logged(world)]
    config = decode_fact(facts[0].kind, facts[0].version, facts[0].blob)
    assert config.config.operators == (0,)  # type: ignore[union-attr]
    assert config.config.partitions[0].name == "main"  # type: ignore[union-attr]


def test_causes_and_limits_of_retries_stay() -> None:
    world = World(restarts=False)
    job = world.submit(user=MARIE, time_limit_s=100, retry=RetryRequest(("timeout", "node-fail"), 2))
    world.start()
    world.now_us += 100 * SECOND
    world.end(job, 15, cause="time_limit")
    anonymiser = Anonymiser(b"secret")
    submitted, ended = (
        next(anonymiser.fact(fact) for fact in logged(world) if fact.kind == kind)
        for kind in ("JobSubmitted", "AttemptEnded")
    )
    assert decode_fact(submitted.kind, submitted.version, submitted.blob).spec.retry == RetryRequest(  # type: ignore[union-attr]
        ("timeout", "node-fail"), 2
    )
    assert decode_fact(ended.kind, ended.version, ended.blob).retry == Retried("timeout", 150)  # type: ignore[union-attr]
