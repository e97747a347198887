"""Claims of the lead: which standby may make one, and when."""

from __future__ import annotations

import pytest

from eslurm.core.dispatch.election import Election
from eslurm.core.dispatch.leader_lease import LeaderLease
from eslurm.ports.store import Leader

LEASE_US = 2_000_000
STEP_US = 250_000
ALIVE = Leader(epoch=3, revision=40, holder="c1", endpoint="h:c1", beat=7)


def watch(election: Election, leader: Leader, from_us: int, until_us: int) -> int | None:
    """The time at which the standby would claim an unmoved row, looking as often as it should."""
    for now_us in range(from_us, until_us, election.look_every_us):
        if election.look(leader, now_us):
            return now_us
    return None


def replaced(**changes: int | str | bool) -> Leader:
    kept = {name: getattr(ALIVE, name) for name in ALIVE.__struct_fields__}
    return Leader(**{**kept, **changes})


def test_a_cluster_that_nobody_ever_led_is_claimed_at_once() -> None:
    assert Election("c2", "h:c2", LEASE_US).look(Leader(), 0)


def test_a_row_that_names_no_holder_is_of_a_release_without_standbys() -> None:
    assert Election("c2", "h:c2", LEASE_US).look(replaced(holder=""), 0)


def test_its_own_name_as_holder_is_its_former_process() -> None:
    assert Election("c1", "h:c1", LEASE_US).look(ALIVE, 0)


def test_a_living_leader_of_the_same_name_elsewhere_is_left_alone() -> None:
    """Two hosts that were given one name by mistake do not push each other out for ever."""
    election = Election("c1", "h:other", LEASE_US)
    for turn in range(100):
        assert not election.look(replaced(beat=turn), turn * STEP_US)
    assert watch(election, ALIVE, 100 * STEP_US, 100 * STEP_US + 2 * LEASE_US) is not None


def test_a_living_leader_is_left_alone() -> None:
    election = Election("c2", "h:c2", LEASE_US)
    for turn in range(100):
        assert not election.look(replaced(beat=turn), turn * STEP_US)


def test_commits_are_signs_of_life_too() -> None:
    election = Election("c2", "h:c2", LEASE_US)
    for turn in range(100):
        assert not election.look(replaced(revision=turn), turn * STEP_US)


def test_a_row_unmoved_for_a_lease_is_claimed_and_not_a_look_earlier() -> None:
    election = Election("c2", "h:c2", LEASE_US)
    assert watch(election, ALIVE, 5 * LEASE_US, 9 * LEASE_US) == 6 * LEASE_US


def test_a_move_begins_the_lease_anew() -> None:
    election = Election("c2", "h:c2", LEASE_US)
    assert watch(election, ALIVE, 0, LEASE_US) is None
    assert watch(election, replaced(beat=8), LEASE_US, 4 * LEASE_US) == 2 * LEASE_US


@pytest.mark.parametrize("name", ["c1", "c2", "c9"])
def test_a_lead_let_go_without_a_successor_is_anybodys(name: str) -> None:
    assert Election(name, f"h:{name}", LEASE_US).look(replaced(released=True), 0)


def test_a_named_successor_claims_at_once_and_the_others_wait_a_lease() -> None:
    handed = replaced(released=True, successor="c2")
    assert Election("c2", "h:c2", LEASE_US).look(handed, 0)
    assert watch(Election("c3", "h:c3", LEASE_US), handed, 0, 2 * LEASE_US) == LEASE_US


def test_who_handed_over_does_not_take_the_lead_back_at_once() -> None:
    handed = replaced(released=True, successor="c2")
    assert watch(Election("c1", "h:c1", LEASE_US), handed, 0, 2 * LEASE_US) == LEASE_US


def test_others_give_a_named_successor_a_whole_lease_from_the_release_on() -> None:
    election = Election("c3", "h:c3", LEASE_US)
    assert watch(election, ALIVE, 0, LEASE_US) is None
    handed = replaced(released=True, successor="c2")
    assert watch(election, handed, LEASE_US, 4 * LEASE_US) == 2 * LEASE_US


def test_time_in_which_nobody_looked_does_not_count() -> None:
    """A store that was away for both, or a standby that stood still: the leader gets its chance to move the row."""
    election = Election("c2", "h:c2", LEASE_US)
    assert not election.look(ALIVE, 0)
    assert not election.look(ALIVE, 10 * LEASE_US)
    assert watch(election, ALIVE, 10 * LEASE_US, 20 * LEASE_US) == 11 * LEASE_US


def test_a_leader_renews_more_often_than_a_standby_may_claim() -> None:
    election = Election("c2", "h:c2", LEASE_US)
    assert election.look_every_us * 2 <= LeaderLease(LEASE_US).pause_us <= LEASE_US // 4


def test_a_lease_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="lease"):
        Election("c2", "h:c2", 0)
