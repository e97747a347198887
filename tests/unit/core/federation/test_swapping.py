"""One change by comparison: tried again from what came back, read where the outcome is unknown."""

from __future__ import annotations

import pytest

from eslurm.core.federation import swapping
from eslurm.core.federation.actions import Failure, Problem, SwapKeys, Write
from eslurm.core.federation.swapping import Entries, Result, Swap
from eslurm.lab.kv.image import KvImage
from tests.kits.federation import put, swap

KEY = "/eslurm/lab/pool"
AMBIGUOUS = Failure(Problem.AMBIGUOUS, "no answer")
CUT = Failure(Problem.UNAVAILABLE, "no member answers")


class Add:
    """Adds to a number; the value says which change wrote it."""

    keys = (KEY,)

    def __init__(self, amount: int, name: str = "mine", most: int = 1_000) -> None:
        self.amount, self.name, self.most = amount, name, most

    def writes(self, current: Entries) -> tuple[Write, ...]:
        entry = current[KEY]
        total = int(entry.value.split()[0]) if entry else 0
        return (Write(KEY, f"{total + self.amount} {self.name}".encode()),) if total < self.most else ()

    def is_mine(self, current: Entries) -> bool:
        entry = current[KEY]
        return entry is not None and entry.value.endswith(self.name.encode())


def ask(one: Swap, now_us: int = 0) -> SwapKeys:
    action = one.tick(now_us, 0.0)
    assert action is not None
    assert one.tick(now_us, 0.0) is None, "an action comes once"
    return action


def test_a_failed_swap_costs_one_message_and_starts_from_what_came_back() -> None:
    image = KvImage()
    version = put(image, KEY, b"5 other")
    one = Swap(Add(2), {})
    first = ask(one)
    assert first.expect == ((KEY, 0),)
    one.swapped(first, swap(image, first))
    assert one.result is None
    second = ask(one)
    assert second.expect == ((KEY, version),)
    one.swapped(second, swap(image, second))
    assert one.result is Result.DONE
    entry = one.current[KEY]
    assert entry is not None and entry.value == b"7 mine"
    assert one.tries == 2


def test_nothing_to_write_is_needless() -> None:
    one = Swap(Add(1, most=0), {})
    assert one.tick(0, 0.0) is None
    assert one.result is Result.NEEDLESS


@pytest.mark.parametrize("problem", [Problem.AMBIGUOUS, Problem.FULL])
@pytest.mark.parametrize("was_made", [True, False])
def test_an_unknown_outcome_is_read_before_anything_else(problem: Problem, *, was_made: bool) -> None:
    image = KvImage()
    one = Swap(Add(2), {})
    first = ask(one)
    if was_made:
        swap(image, first)
    one.failed(first, Failure(problem, "no answer"))
    read = ask(one)
    assert read.then == ()
    one.swapped(read, swap(image, read))
    if not was_made:
        assert one.result is None
        again = ask(one)
        one.swapped(again, swap(image, again))
    assert one.result is Result.DONE
    entry = image.get(KEY).entry
    assert entry is not None and entry.value == b"2 mine", "made once"


def test_a_swap_that_comes_late_is_recognised() -> None:
    image = KvImage()
    one = Swap(Add(2), {})
    late = ask(one)
    one.failed(late, AMBIGUOUS)
    read = ask(one)
    one.swapped(read, swap(image, read))
    again = ask(one)
    swap(image, late)
    one.swapped(again, swap(image, again))
    assert one.result is Result.DONE
    entry = image.get(KEY).entry
    assert entry is not None and entry.value == b"2 mine"


def test_a_read_that_fails_is_read_again() -> None:
    one = Swap(Add(2), {})
    one.failed(ask(one), AMBIGUOUS)
    one.failed(ask(one), CUT)
    assert ask(one).then == ()


def test_tries_are_bounded_with_pauses_from_the_second_miss_on() -> None:
    image = KvImage()
    one = Swap(Add(1), {})
    now_us, pauses = 0, []
    for number in range(swapping.TRIES_MAX):
        action = one.tick(now_us, 0.999)
        if action is None:
            assert one.due_us is not None
            pauses.append(one.due_us - now_us)
            now_us = one.due_us
            action = one.tick(now_us, 0.999)
        assert action is not None
        put(image, KEY, f"{number} other".encode())
        one.swapped(action, swap(image, action))
    assert one.result is Result.FAILED and one.failure is not None
    assert one.tick(now_us + 10**9, 0.0) is None
    assert len(pauses) == swapping.TRIES_MAX - 2
    assert pauses == sorted(pauses) and pauses[-1] <= swapping.BACK_OFF_MAX_US


@pytest.mark.parametrize("problem", [Problem.LEASE_LOST, Problem.DENIED, Problem.REFUSED])
def test_what_no_retry_cures_ends_it(problem: Problem) -> None:
    one = Swap(Add(1), {})
    one.failed(ask(one), Failure(problem, "no"))
    assert one.result is Result.FAILED
    assert one.failure == Failure(problem, "no")


def test_answers_to_other_actions_are_ignored() -> None:
    image = KvImage()
    one, other = Swap(Add(1), {}), Swap(Add(1), {})
    action, same = ask(one), ask(other)
    assert action == same
    answer = swap(image, same)
    one.swapped(same, answer)
    one.failed(same, CUT)
    assert one.result is None and one.tries == 1
