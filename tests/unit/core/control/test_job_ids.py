"""Ids of a cell of a federation: drawn from leased blocks alone, in order, and refused when none are left."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.core.model.facts import IdBlockTaken, decode_fact, encode_fact
from eslurm.core.model.job import JobSpec
from eslurm.core.model.job_ids import ID_BLOCK, JOB_ID_MAX, IdRange
from eslurm.core.model.messages import IdsBounded, IdsTaken, SubmitJobs, Submitted
from eslurm.core.model.request import Request
from eslurm.core.state.rows import Settings, settings_of
from tests.kits.core import ALICE, World, refused


def spec() -> JobSpec:
    return JobSpec("job", ALICE, "", (Request(),), b"s", b"e", "/tmp")


def submit(world: World, count: int = 1) -> object:
    return world.send(SubmitJobs(tuple(spec() for _ in range(count))))


def test_a_cell_draws_ids_of_its_blocks_in_order() -> None:
    world = World()
    assert world.submit() == 1
    world.send(IdsBounded())
    assert world.submit() == 2, "until the first lease its own ids go on"
    assert world.state.id_blocks == (IdRange(2, ID_BLOCK - 2),)
    world.send(IdsTaken(300_000, 3, 7))
    assert submit(world, 2) == Submitted((300_000, 300_001)), "leased ids take the place of its own"
    world.send(IdsTaken(500_000, 100_000, 9))
    assert submit(world, 2) == Submitted((500_000, 500_001)), "one submission has ids in a row"
    world.restart()
    assert world.submit() == 500_002
    assert world.state.id_blocks == (IdRange(300_000, 3, 7), IdRange(500_000, 100_000, 9))
    world.send(IdsTaken(700_000, 100_000, 12))
    assert [one.first for one in world.state.id_blocks] == [500_000, 700_000], "used up ones are forgotten"


def test_blocks_that_follow_each_other_are_one() -> None:
    world = World()
    world.send(IdsTaken(100_000, 2, 7))
    world.send(IdsTaken(100_002, 100, 8))
    assert submit(world, 3) == Submitted((100_000, 100_001, 100_002))


def test_without_ids_submissions_are_refused_with_the_way_out() -> None:
    world = World()
    world.send(IdsTaken(100_000, 2, 7))
    assert submit(world, 2) == Submitted((100_000, 100_001))
    text = refused(submit(world))
    assert "no job ids are left" in text and "esctl federation leave" in text
    assert world.job(100_000).job_id == 100_000
    world.send(IdsTaken(400_000, 100_000, 9))
    assert submit(world) == Submitted((400_000,))
    assert "fewer jobs" in refused(submit(world, 100_000))


def test_tasks_begin_with_the_ids_that_there_are() -> None:
    world = World()
    world.send(IdsTaken(100_000, 2, 7))
    assert world.submit(tasks=((1, 3),)) == 100_000
    world.plan()
    tasks = sorted(job for job in world.state.jobs if job != 100_000)
    assert tasks == [100_001], "one id is left"
    world.send(IdsTaken(400_000, 100_000, 9))
    world.plan()
    assert sorted(world.state.tasks_of[100_000]) == [100_001, 400_000, 400_001]


def test_old_and_known_blocks_are_not_taken_twice() -> None:
    world = World()
    world.send(IdsTaken(300_000, 100_000, 9))
    before = world.state.id_blocks
    for first in (300_000, 100_000, JOB_ID_MAX - 5):
        world.send(IdsTaken(first, 100_000, 9))
    world.send(IdsBounded())
    assert world.state.id_blocks == before


def test_a_cell_that_leaves_goes_on_after_its_blocks() -> None:
    world = World()
    world.send(IdsTaken(100_000, 1, 7))
    for _ in range(2):
        world.send(IdsBounded(is_open=True))
    assert world.state.id_blocks == (IdRange(100_000, 1, 7), IdRange(100_001, JOB_ID_MAX - 100_001))
    assert submit(world, 2) == Submitted((100_000, 100_001))
    # It comes back: bounded again, and what it drew meanwhile lies below its next block.
    world.send(IdsBounded())
    assert world.state.id_blocks[-1].end < 400_000
    world.send(IdsTaken(100_050, 10, 9))
    assert world.state.id_blocks[-1] == IdRange(100_050, 10, 9)


def test_a_plain_cluster_knows_nothing_of_it() -> None:
    world = World()
    world.send(IdsBounded(is_open=True))
    assert not world.state.id_blocks and world.submit() == 1


def test_old_settings_and_facts_load() -> None:
    world = World()
    raw = msgspec.msgpack.decode(msgspec.msgpack.encode(settings_of(world.state)))
    before = msgspec.convert(raw[:-1], Settings)
    assert before.id_blocks == ()
    fact = IdBlockTaken(100_000, 100_000, 7)
    assert decode_fact(*encode_fact(fact)) == fact


@pytest.mark.parametrize("count", [1, 128])
def test_the_last_ids_of_all(count: int) -> None:
    world = World()
    world.send(IdsTaken(JOB_ID_MAX - 128, 128, 7))
    assert isinstance(submit(world, count), Submitted)
    assert world.state.next_id <= JOB_ID_MAX
