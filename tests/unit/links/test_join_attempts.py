"""The rate of attempts to join: one address takes nothing from others, and all together little."""

from __future__ import annotations

from eslurm.links import join_server
from eslurm.links.join_server import ATTEMPTS_PER_S, Attempts


def test_an_address_that_asks_often_waits_and_others_do_not() -> None:
    now = [0.0]
    attempts = Attempts(lambda: now[0])
    served = 0
    while not attempts.charge("192.0.2.1"):
        served += 1
        assert served < 100
    for _ in range(1000):
        assert attempts.charge("192.0.2.1") > 0
    assert attempts.charge("192.0.2.2") == 0
    now[0] += 5.0
    assert attempts.charge("192.0.2.1") == 0


def test_all_together_are_bounded_and_so_is_what_is_remembered() -> None:
    now = [0.0]
    attempts = Attempts(lambda: now[0])
    served = sum(not attempts.charge(f"address {number}") for number in range(20_000))
    assert served < 10 * ATTEMPTS_PER_S
    assert len(attempts._by_address) == join_server.ADDRESSES_MAX
    now[0] += 60.0
    assert attempts.charge("192.0.2.1") == 0
