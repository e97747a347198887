"""One term as a standby: rows and results in, actions out. Goal: one claim at a time, and a lead only from the log's end."""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.dispatch.standby import Claim, Follow, Lead, StandbyTerm, Withdraw
from eslurm.core.state.cluster import State
from eslurm.ports.store import Leader

LEASE_US = 2_000_000
ROW = Leader(epoch=3, revision=10, at_us=500, holder="c1", endpoint="h:c1", beat=7)


def term() -> StandbyTerm[Leader]:
    return StandbyTerm("c2", "h:c2", LEASE_US, Leader())


def stands_at(revision: int) -> State:
    state = State("ctl")
    state.revision = revision
    return state


def claimed(revision: int = 10) -> StandbyTerm[Leader]:
    """A term whose claim won epoch 4."""
    standby = term()
    released = replace(ROW, released=True, revision=revision)
    assert standby.looked(released, 0)[-1] == Claim(released)
    standby.claimed(4)
    return standby


def test_the_log_is_followed_when_it_has_grown_and_nothing_is_claimed_from_a_living_leader() -> None:
    standby = term()
    assert standby.looked(ROW, 0) == [Follow(10)]
    assert standby.looked(ROW, standby.look_every_us) == []
    assert standby.looked(replace(ROW, revision=12), 2 * standby.look_every_us) == [Follow(12)]
    assert standby.followed(stands_at(12)) == [] and standby.epoch == 0


def test_one_claim_is_under_way_at_a_time() -> None:
    standby = term()
    released = replace(ROW, released=True)
    assert standby.looked(released, 0) == [Follow(10), Claim(released)]
    assert standby.looked(released, 1) == []
    standby.not_claimed()
    assert standby.looked(released, 2) == [Claim(released)]


def test_the_lead_is_taken_where_the_log_ends_and_not_before_its_time() -> None:
    standby = claimed()
    own = Leader(epoch=4, revision=11, at_us=900, holder="c2", endpoint="h:c2")
    assert standby.followed(stands_at(10)) == [], "the row as it was before the claim says nothing"
    assert standby.looked(own, 1) == [Follow(11)]
    state = stands_at(11)
    assert standby.followed(state) == [Lead("c2", "h:c2", 4, state)]
    assert state.now_us == 900


def test_a_lead_that_another_has_won_since_is_withdrawn() -> None:
    [action] = claimed().looked(Leader(epoch=5, revision=11), 1)
    assert isinstance(action, Withdraw) and "claimed epoch 4, the store has epoch 5" in action.reason
    standby = claimed()
    standby.looked(Leader(epoch=4, revision=11), 1)
    [action] = standby.followed(stands_at(12))
    assert isinstance(action, Withdraw) and "at revision 12, the log at 11" in action.reason
