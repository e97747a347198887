"""The simulator's disk: what is not finished is invisible, and a crash decides by seed alone."""

from __future__ import annotations

import pytest

from eslurm.lab.sim.disk_store import DiskStore
from eslurm.ports.store import Batch, FactRow, FenceLost, Head

OWNER = "ctl0"


def batch(revision: int, facts: int = 1) -> Batch:
    return Batch(revision, 100, [FactRow("f", 1, b"%d" % revision)] * facts)


def revisions(disk: DiskStore) -> list[int]:
    return [fact.revision for fact in disk.load_facts(OWNER, 1)]


def test_a_commit_is_invisible_until_it_is_finished() -> None:
    disk = DiskStore(seed=1)
    epoch = disk.open(OWNER)
    ticket = disk.begin(OWNER, epoch, batch(1, facts=3))
    assert revisions(disk) == []
    assert disk.under_way(OWNER) == 1
    disk.finish(ticket)
    assert revisions(disk) == [1, 2, 3]
    assert disk.under_way(OWNER) == 0


def outcomes(seed: int) -> list[bool]:
    """For twenty crashes in a row whether the torn commit was there afterwards."""
    disk, kept = DiskStore(seed), []
    for _ in range(20):
        epoch = disk.open(OWNER)
        revision = disk.head(OWNER).revision
        disk.begin(OWNER, epoch, batch(revision + 1, facts=2))
        disk.crash(OWNER)
        assert disk.under_way(OWNER) == 0
        assert disk.head(OWNER).revision in (revision, revision + 2)
        kept.append(disk.head(OWNER).revision > revision)
    return kept


def test_a_torn_commit_is_fully_there_or_not_at_all_as_the_seed_says() -> None:
    assert set(outcomes(7)) == {True, False}
    assert outcomes(7) == outcomes(7)
    assert outcomes(7) != outcomes(8)


def test_after_a_lost_commit_the_later_ones_of_the_same_crash_are_lost_too() -> None:
    for seed in range(30):
        disk = DiskStore(seed)
        epoch = disk.open(OWNER)
        for revision in (1, 2, 3):
            disk.begin(OWNER, epoch, batch(revision))
        disk.crash(OWNER)
        assert revisions(disk) == list(range(1, len(revisions(disk)) + 1))


def test_what_was_finished_survives_every_crash_of_whoever() -> None:
    disk = DiskStore(seed=3)
    epoch, other = disk.open(OWNER), disk.open("ctl1", shared=True)
    disk.finish(disk.begin(OWNER, epoch, batch(1)))
    waiting = disk.begin("ctl1", other, batch(1))
    disk.crash(OWNER)
    assert revisions(disk) == [1]
    disk.finish(waiting)
    assert disk.head("ctl1") == Head(1, 1, 100)


def test_a_commit_under_way_loses_the_fence_to_a_successor() -> None:
    disk = DiskStore(seed=1)
    ticket = disk.begin(OWNER, disk.open(OWNER), batch(1))
    disk.open(OWNER)
    with pytest.raises(FenceLost):
        disk.finish(ticket)
    assert revisions(disk) == []


def test_an_ambiguous_commit_can_be_asked_for_and_retried() -> None:
    seen = set()
    for seed in range(20):
        disk = DiskStore(seed)
        epoch = disk.open(OWNER)
        disk.tear(disk.begin(OWNER, epoch, batch(1)))
        seen.add(disk.committed(OWNER, epoch, batch(1)))
        disk.finish(disk.begin(OWNER, epoch, batch(1)))
        assert revisions(disk) == [1]
    assert seen == {True, False}


def test_a_ticket_is_settled_once() -> None:
    disk = DiskStore(seed=1)
    ticket = disk.begin(OWNER, disk.open(OWNER), batch(1))
    disk.crash(OWNER)
    with pytest.raises(KeyError):
        disk.finish(ticket)
