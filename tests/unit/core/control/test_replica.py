"""A replica applies the log in order, in slices, and guesses at nothing. Goal: its state is the leader's own."""

from __future__ import annotations

import pytest

from eslurm.core.control import replica as module
from eslurm.core.control.replica import Replica, UnknownFact
from eslurm.core.model.facts import EpochBegan, encode_fact
from eslurm.core.state.cluster import State
from eslurm.ports.store import LoggedFact
from tests.kits.core import World, depends


def logged(revision: int, version: int = 0) -> LoggedFact:
    kind, own, blob = encode_fact(EpochBegan(revision))
    return LoggedFact(revision, 10 * revision, kind, version or own, blob, 1)


def begun() -> Replica:
    replica = Replica()
    replica.begin(State("ctl"))
    return replica


def test_facts_are_applied_in_slices_and_may_be_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_FACTS", 2)
    replica = begun()
    slices = replica.advance([logged(revision) for revision in range(1, 6)])
    next(slices)
    assert replica.revision == 2
    assert list(replica.advance([logged(3), logged(4)])) == [None]
    assert replica.state is not None
    assert (replica.revision, replica.state.epoch, replica.state.now_us) == (4, 4, 40)


def test_a_gap_is_a_defect_and_a_fact_of_a_newer_release_is_not_guessed_at() -> None:
    replica = begun()
    with pytest.raises(AssertionError, match="revision 2 after 0"):
        list(replica.advance([logged(2)]))
    with pytest.raises(UnknownFact, match="upgrade this controller"):
        list(replica.advance([logged(1, version=99)]))
    assert replica.revision == 0


def test_a_replica_that_was_dropped_is_cold() -> None:
    replica = begun()
    list(replica.advance([logged(1)]))
    replica.drop()
    assert replica.state is None and replica.revision == 0


def test_a_replica_says_when_a_job_waits_for_one_that_ended_before_it_began() -> None:
    """The leader has that job's record; a new leader without it would take the dependency for one that is never met."""
    world = World()
    array = world.submit(tasks=((0, 1),))
    world.cancel(array)
    replica = Replica()
    replica.begin(world.mirror.restored())
    assert replica.state is not None and array not in replica.state.jobs
    since = world.state.revision
    waits = (*depends("singleton"), *depends("aftercorr", array))
    world.submit(name="twin", held=True)
    world.submit(name="twin", tasks=((0, 1),), dependencies=waits, dependency_any=True)
    new = world.log[len(world.log) - (world.state.revision - since) :]
    list(
        replica.advance(
            [
                LoggedFact(since + at, world.now_us, *encode_fact(fact), since + at)
                for at, fact in enumerate(new, 1)
            ]
        )
    )
    assert replica.lacks_record
    replica.begin(world.mirror.restored())
    assert array in replica.state.jobs and not replica.lacks_record
