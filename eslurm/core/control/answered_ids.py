"""Ids of the requests that have been answered: which of them the store has to be asked for before one is decided.

A client marks each try but the first, and those are looked up. But the first try may be the last to arrive: a slow link or
a forwarder that stood still holds it up, and a retry takes another way meanwhile. So a try that is not marked is looked up,
too, if an answer may exist that this leader does not remember: of an earlier leader, or one that was dropped.
Limit: a first try that is held up for longer than `HELD_UP_MAX_US`. Times are the driver's own, in microseconds.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

HELD_UP_MAX_US: Final = 3_600_000_000
BITS: Final = 1 << 23
"""Of one generation: 1 MiB. With a million ids in it, 2 of 100 unknown ids are looked up in vain."""
_WORDS: Final = Struct(">4I").unpack_from
_WORDS_BYTES: Final = 16


class AnsweredIds:
    """A set of ids that may say yes by mistake, never no, for one hour at least. `follows`: other leaders were before."""

    def __init__(self, *, follows: bool) -> None:
        self._follows = follows
        self._began_us = 0
        self._turned_us = 0
        self._young = bytearray()
        self._old = bytearray()

    def add(self, request_id: bytes, now_us: int) -> None:
        """This request has been answered."""
        if not self._young or now_us - self._turned_us > HELD_UP_MAX_US:
            self._old, self._young = self._young, bytearray(BITS // 8)
            self._turned_us = now_us
        for place in _bits_of(request_id):
            self._young[place >> 3] |= 1 << (place & 7)

    def may_have(self, request_id: bytes, now_us: int) -> bool:
        """Check whether this request may have been answered before."""
        if self._follows:
            self._began_us = self._began_us or now_us
            self._follows = now_us - self._began_us <= HELD_UP_MAX_US
        if self._follows:
            return True
        places = _bits_of(request_id)
        return _holds(self._young, places) or _holds(self._old, places)


def _bits_of(request_id: bytes) -> tuple[int, int, int, int]:
    """Ids are drawn at random, or digests: their own bits will do."""
    one, two, three, four = _WORDS(request_id.rjust(_WORDS_BYTES, b"\0"))
    return one % BITS, two % BITS, three % BITS, four % BITS


def _holds(bits: bytearray, places: tuple[int, int, int, int]) -> bool:
    if not bits:
        return False
    one, two, three, four = places
    # Most ids are not there, and the first bit says so.
    return bool(
        bits[one >> 3] & 1 << (one & 7)
        and bits[two >> 3] & 1 << (two & 7)
        and bits[three >> 3] & 1 << (three & 7)
        and bits[four >> 3] & 1 << (four & 7)
    )
