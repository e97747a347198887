"""Playing a log: the state at any moment is the one that was, and the first contradiction is found."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from eslurm.core.model import facts as core_facts
from eslurm.core.model.job import Span
from eslurm.core.model.messages import EpochStarted
from eslurm.core.model.request import Request
from eslurm.core.state.apply import apply
from eslurm.core.state.cluster import State
from eslurm.core.state.invariants import InvariantViolation
from eslurm.ports.store import LoggedFact
from eslurm.replay import player as player_module
from eslurm.replay.base import BadBase, pack_base, read_head, unpack_base
from eslurm.replay.logfile import DamagedLog
from eslurm.replay.player import CannotApply, Player, find_violation, listed
from tests.kits.chaos import Chaos
from tests.kits.core import World
from tests.kits.mirror import picture
from tests.kits.replay import logged, renumbered, write
from tests.support.seeds import Seeds


def busy_world() -> World:
    world = World(restarts=False)
    first = world.submit(request=Request(tasks=8, nodes_min=2, nodes_max=2), time_limit_s=600)
    world.submit(tasks=((0, 2),), limit=1)
    world.start()
    world.pass_time(5)
    world.end(first)
    world.pass_time(100)
    world.send(EpochStarted(2))
    world.submit(name="late")
    return world


def storm(seed: int) -> Chaos:
    chaos = Chaos(seed, checked=False)
    for _ in range(300):
        chaos.act()
    return chaos


def planted(log: list[LoggedFact], at: int, fact: core_facts.Fact) -> list[LoggedFact]:
    """The log with one more fact after revision `at`."""
    before = log[:at]
    wrong = LoggedFact(0, before[-1].at_us, *core_facts.encode_fact(fact), before[-1].epoch)
    return renumbered([*before, wrong, *log[at:]])


# ---- moments ----


def test_each_moment_is_as_it_was(tmp_path: Path) -> None:
    world = busy_world()
    log = logged(world)
    file = write(tmp_path / "log", log)
    state = State("main")
    for fact in log:
        apply(state, core_facts.decode_fact(fact.kind, fact.version, fact.blob), fact.revision, fact.at_us)
        player = Player(file)
        player.play(until_revision=fact.revision)
        assert picture(player.state) == picture(state)
    assert picture(state) == picture(world.state)


def test_a_time_takes_in_all_facts_of_that_time(tmp_path: Path) -> None:
    log = logged(busy_world())
    file = write(tmp_path / "log", log)
    for at_us in {fact.at_us for fact in log}:
        player = Player(file)
        player.play(until_us=at_us)
        assert player.state.revision == max(fact.revision for fact in log if fact.at_us <= at_us)


def test_a_base_state_stands_for_what_was_before(tmp_path: Path) -> None:
    world = busy_world()
    log = logged(world)
    state = State("main")
    for fact in log:
        apply(state, core_facts.decode_fact(fact.kind, fact.version, fact.blob), fact.revision, fact.at_us)
        base = pack_base(state)
        assert picture(unpack_base("main", base)) == picture(state)
        assert read_head(base).revision == fact.revision
        player = Player(write(tmp_path / "log", log[fact.revision :], base))
        player.play()
        if fact.revision < len(log):
            assert picture(player.state) == picture(world.state)


def test_a_base_of_rows_lacks_finished_jobs_and_plays_on(tmp_path: Path) -> None:
    """A restart leaves them in the store; the log still says when they are forgotten."""
    world = World(restarts=False, finished_retention_s=10.0)
    job = world.submit()
    world.start()
    world.end(job)
    restored = world.mirror.restored()
    assert job not in restored.jobs
    at = restored.revision
    world.pass_time(60)
    assert "JobsForgotten" in world.kinds(at)
    player = Player(write(tmp_path / "log", logged(world)[at:], pack_base(restored)))
    player.play()
    assert picture(player.state) == picture(world.state)


def test_storms_with_restarts_are_played_to_their_end(tmp_path: Path, seeds: Seeds) -> None:
    for seed in seeds(5):
        chaos = storm(seed)
        verdict = find_violation(write(tmp_path / "log", logged(chaos.world)))
        assert verdict.violation is None, (seed, verdict.violation)
        assert verdict.facts == chaos.world.state.revision


def test_an_old_fact_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(core_facts.UPCASTS, ("IdsLeased", 0), lambda raw: [raw[0], raw[1] + 1])
    old = LoggedFact(1, 5, "IdsLeased", 0, msgspec.msgpack.encode(["IdsLeased", 99]), 1)
    player = Player(write(tmp_path / "log", [old]))
    player.play()
    assert player.state.lease_end == 100


def test_a_fact_of_a_newer_release_is_named(tmp_path: Path) -> None:
    new = LoggedFact(1, 5, "NodePromoted", 1, msgspec.msgpack.encode(["NodePromoted", 99]), 1)
    with pytest.raises(
        CannotApply, match=r"revision 1 \(NodePromoted 1\): not a fact that this release knows"
    ):
        Player(write(tmp_path / "log", [new])).play()


def test_a_base_of_another_revision_is_refused(tmp_path: Path) -> None:
    world = busy_world()
    base = pack_base(world.state)
    with pytest.raises(DamagedLog, match="the facts begin at 3"):
        Player(write(tmp_path / "log", logged(world)[2:], base))


def test_a_damaged_base_state_is_told_from_a_whole_one() -> None:
    base = pack_base(busy_world().state)
    unpack_base("main", base)
    for wrong in (b"", base[:-1], base[: len(base) // 2], b"nonsense", base[:50] + b"\0\0\0" + base[53:]):
        with pytest.raises(BadBase):
            unpack_base("main", wrong)


def test_a_range_of_facts(tmp_path: Path) -> None:
    log = logged(busy_world())
    file = write(tmp_path / "log", log)
    assert list(listed(file, 3, 6)) == log[2:6]
    assert list(listed(file, 0, 10**9)) == log


# ---- contradictions ----


def test_a_double_allocation_is_found_at_its_fact(tmp_path: Path) -> None:
    """Node 0 is given to a second job while the first holds all of it."""
    world = World(nodes=2, cores=4, restarts=False)
    world.submit(request=Request(tasks=4))
    second = world.submit(request=Request(tasks=4), held=True)
    world.start()
    log = logged(world)
    again = core_facts.JobPlaced(second, 1, (Span(0, (4, 0)),), world.now_us + 10**9)
    verdict = find_violation(write(tmp_path / "log", planted(log, len(log), again)))
    assert verdict.violation is not None
    assert verdict.violation.fact.revision == len(log) + 1
    assert verdict.violation.content == again
    assert "node cn0 has (0, 1000) free, (4, 0) cannot be held on it" in verdict.violation.text
    assert any(
        line.startswith("node cn0 (#0): UP, free (0, 1000) of (4, 1000)")
        for line in verdict.violation.objects
    )
    assert any(line.startswith(f"job {second}: ") for line in verdict.violation.objects)


def test_a_fact_about_nobody_is_found(tmp_path: Path) -> None:
    log = logged(busy_world())
    wrong = core_facts.NodesReleased(4711, 1, (0,))
    verdict = find_violation(write(tmp_path / "log", planted(log, 9, wrong)))
    assert verdict.violation is not None and verdict.violation.fact.revision == 10
    assert verdict.facts == 9


def test_time_that_goes_back_is_found(tmp_path: Path) -> None:
    log = logged(busy_world())
    log[-1] = msgspec.structs.replace(log[-1], at_us=1)
    verdict = find_violation(write(tmp_path / "log", log))
    assert verdict.violation is not None and "time went backwards" in verdict.violation.text


def test_what_only_a_whole_check_sees_is_traced_to_its_fact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole checks come seldom in a large state: what one finds is looked for among the facts since the one before."""
    log = logged(storm(3).world)
    at = len(log) // 2
    whole: list[int] = []

    def check(state: State) -> None:
        whole.append(state.revision)
        if state.revision >= at:
            raise InvariantViolation("planted")

    monkeypatch.setattr(player_module, "check", check)
    monkeypatch.setattr(player_module, "RECORDS_WHOLE_MAX", 0)
    monkeypatch.setattr(player_module, "RECORDS_PER_FACT", 1)
    verdict = find_violation(write(tmp_path / "log", log))
    assert verdict.violation is not None
    assert (verdict.violation.fact.revision, verdict.violation.text) == (at, "planted")
    assert len(whole) < at, "not after each fact"
    assert whole.count(at) == 1


def test_until_a_time_before_the_contradiction_there_is_none(tmp_path: Path) -> None:
    log = logged(busy_world())
    file = write(tmp_path / "log", planted(log, len(log), core_facts.JobDue(99)))
    assert find_violation(file).violation is not None
    before_us = log[-1].at_us - 1
    assert find_violation(file, until_us=before_us).violation is None
