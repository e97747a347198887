"""Places that few users cannot fill."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eslurm.transport.fair_quota import FairQuota


def taken_by(room: FairQuota, user: int) -> int:
    count = 0
    while room.enter(user, privileged=False):
        count += 1
    return count


def test_no_few_users_fill_it_and_the_reserve_stays() -> None:
    room: FairQuota[int] = FairQuota(1024, 256)
    parts = [taken_by(room, user) for user in range(1, 11)]
    assert parts[0] == 180 and parts == sorted(parts, reverse=True) and parts[-1] > 20
    assert taken_by(room, 11) > 0, "who comes eleventh finds a place"
    assert sum(taken_by(room, user) for user in range(12, 200)) + room.taken and room.taken == 896
    assert not room.enter(999, privileged=False)
    assert all(room.enter(0, privileged=True) for _ in range(128)), "all of the reserve"
    assert not room.enter(0, privileged=True)


def test_what_is_given_back_is_there_again() -> None:
    room: FairQuota[int] = FairQuota(8, 8)
    assert taken_by(room, 1) == 2
    room.leave(1, privileged=False)
    assert room.enter(2, privileged=False) and room.enter(1, privileged=False)
    for user in (1, 1, 2):
        room.leave(user, privileged=False)
    assert (room.taken, room.by_user) == (0, {})


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=120))
def test_the_reserve_is_never_touched(steps: list[tuple[int, bool]]) -> None:
    """Goal: whatever came and went, privileged users find the places reserved for them. Method: user 0 is privileged."""
    room: FairQuota[int] = FairQuota(32, 32)
    inside: list[int] = []
    for user, comes in steps:
        if comes and room.enter(user, privileged=user == 0):
            inside.append(user)
        elif not comes and user in inside:
            inside.remove(user)
            room.leave(user, privileged=user == 0)
        assert room.taken == len(inside) <= 32
        assert sum(one != 0 for one in inside) <= 28
    while inside.count(0) < 4:
        assert room.enter(0, privileged=True)
        inside.append(0)
