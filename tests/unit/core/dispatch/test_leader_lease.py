"""A leader's lease: writes out, answers in. Goal: one write at a time, none after a loss, no false claim of the lead."""

from __future__ import annotations

import pytest

from eslurm.core.dispatch.leader_lease import (
    RELEASE_RETRY_US,
    RELEASE_TRIES,
    LeaderLease,
    Release,
    Renew,
    Write,
)

LEASE_US = 2_000_000


def due(lease: LeaderLease, now_us: int = 0) -> Write:
    write = lease.next(now_us)
    assert write is not None
    return write


def test_one_write_is_under_way_at_a_time_and_proves_the_lead_from_when_it_began() -> None:
    lease = LeaderLease(LEASE_US)
    write = due(lease, 7)
    assert write == Renew(7) and lease.next(8) is None
    assert lease.succeeded(write) == 7
    assert lease.pause_us == LEASE_US // 4
    assert due(lease, 9) == Renew(9)


def test_what_failed_proves_nothing_and_is_tried_again() -> None:
    lease = LeaderLease(LEASE_US)
    write = due(lease, 7)
    lease.unavailable(write)
    assert not lease.is_over and due(lease, 9) == Renew(9)
    assert lease.succeeded(write) is None, "the answer to a former write"


def test_after_a_lost_fence_nothing_is_written() -> None:
    lease = LeaderLease(LEASE_US)
    lease.lost(due(lease))
    assert lease.is_lost and lease.is_over and lease.next(1) is None
    lease.let_go("c2")
    assert lease.next(2) is None


@pytest.mark.parametrize("waits", [True, False])
def test_a_release_does_not_wait_for_a_renewal(waits: bool) -> None:
    lease = LeaderLease(LEASE_US)
    renewal = due(lease, 1)
    if not waits:
        lease.succeeded(renewal)
    lease.let_go("c2")
    release = due(lease, 2)
    assert release == Release("c2") and lease.succeeded(renewal) is None and lease.next(3) is None
    assert lease.succeeded(release) is None
    assert lease.is_over and not lease.is_lost and lease.next(4) is None


def test_a_release_is_tried_a_few_times() -> None:
    lease = LeaderLease(LEASE_US)
    lease.let_go("")
    for _ in range(RELEASE_TRIES):
        assert not lease.is_over and lease.pause_us == RELEASE_RETRY_US
        lease.unavailable(due(lease))
    assert lease.is_over and not lease.is_lost and lease.next(1) is None


def test_a_lease_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="lease"):
        LeaderLease(0)
