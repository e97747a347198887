"""The set of answered ids never forgets one too early."""

from __future__ import annotations

import random

from eslurm.core.control.answered_ids import HELD_UP_MAX_US, AnsweredIds


def test_an_id_is_there_for_an_hour_at_least_and_others_are_not() -> None:
    rng = random.Random(7)
    ids = AnsweredIds(follows=False)
    assert not ids.may_have(b"a" * 16, 5)
    known = [(at * HELD_UP_MAX_US // 100, rng.randbytes(16)) for at in range(1, 400)]
    for index, (now_us, one) in enumerate(known):
        ids.add(one, now_us)
        for then_us, other in known[: index + 1]:
            assert ids.may_have(other, now_us) or now_us - then_us > HELD_UP_MAX_US
    last_us = known[-1][0]
    assert not any(ids.may_have(rng.randbytes(16), last_us) for _ in range(1_000))
    assert not ids.may_have(known[0][1], last_us), "old ones are dropped"


def test_ids_of_earlier_leaders_are_not_known_for_an_hour() -> None:
    ids = AnsweredIds(follows=True)
    assert [ids.may_have(b"a" * 16, 1 + at) for at in (0, HELD_UP_MAX_US, HELD_UP_MAX_US + 1)] == [
        True,
        True,
        False,
    ]
