"""Is a recorded history of one key linearizable? A search after Wing and Gong, with Lowe's memory of what was tried.

Every written value is different, so a value names the write that made it. A call without an end may have taken effect at any
time after its beginning, or never.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

STEPS_MAX = 2_000_000


class Call(msgspec.Struct, frozen=True):
    """One call on the key, by the clock of the process that recorded all of them.

    A read: `seen` is the value it got. A swap: it asked for `expected` -> `written`; `done` says how it ended, and `seen`
    is what was there when it failed. `done` None: its answer is unknown. None as a value: there is no such key.
    """

    begin: float
    end: float
    seen: bytes | None = None
    is_swap: bool = False
    expected: bytes | None = None
    written: bytes | None = None
    done: bool | None = True


def is_linearizable(history: Sequence[Call], first: bytes | None = None) -> bool:
    """Check that one order of the calls explains all answers, with each call between its beginning and its end.

    Raises `RuntimeError` when the search takes too long: the history has too many calls at once.
    """
    calls = sorted(
        (msgspec.structs.replace(call, end=math.inf) if call.done is None else call for call in history),
        key=lambda call: call.begin,
    )
    tried: set[tuple[int, bytes | None]] = set()
    waiting: list[tuple[int, bytes | None]] = [(0, first)]
    everything = sum(1 << number for number, call in enumerate(calls) if call.done is not None)
    steps = 0
    while waiting:
        taken, value = waiting.pop()
        if taken & everything == everything:
            return True
        for number in _next(calls, taken):
            steps += 1
            if steps > STEPS_MAX:
                raise RuntimeError(f"{len(calls)} calls: no answer after {STEPS_MAX} steps")
            fits, after = _applied(calls[number], value)
            if not fits:
                continue
            found = (taken | 1 << number, after)
            if found not in tried:
                tried.add(found)
                waiting.append(found)
    return False


def _next(calls: Sequence[Call], taken: int) -> list[int]:
    """The calls that may come next: none that is not taken has ended before they began."""
    found = []
    earliest_end = math.inf
    for number, call in enumerate(calls):
        if call.begin > earliest_end:
            break
        if not taken >> number & 1:
            found.append(number)
            earliest_end = min(earliest_end, call.end)
    return [number for number in found if calls[number].begin <= earliest_end]


def _applied(call: Call, value: bytes | None) -> tuple[bool, bytes | None]:
    """Check the call's answer at this value; the result has the verdict and the value after the call."""
    if not call.is_swap:
        return call.seen == value, value
    if call.done is None:
        return call.expected == value, call.written
    if call.done:
        return call.expected == value, call.written
    return call.expected != value and call.seen == value, value
