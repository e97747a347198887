"""A cell's usage as it fits into one value of the shared store.

Accounts come first, the largest first, each with the sum of its users; then users are named, the largest first, as long as
there is room. So the usage of an account is whole also where its small users are not named.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec

from eslurm.core.federation.values import VALUE_BYTES_MAX
from eslurm.core.model.federation import USAGE_MAX
from eslurm.core.model.request_limits import NAME_CHARS_MAX
from eslurm.core.plan.cycle.fair_tree import Association
from eslurm.core.plan.slices import Comparable, parts
from eslurm.core.state.usage import usage_now
from eslurm.core.state.view import View

ROOM_BYTES: Final = VALUE_BYTES_MAX - 128
"""For accounts and users; the rest of the value has less than 128 bytes."""
FIT_MAX: Final = 1_250
"""More accounts or users than have room."""
CHANGE_PERCENT: Final = 1
PER_SLICE: Final = 1_000
REST: Final = ""
"""Stands for all users of an account that are not named."""

T = TypeVar("T", bound=Comparable)

Accounts: TypeAlias = tuple[tuple[str, tuple[tuple[str, float], ...]], ...]


class Sheet(msgspec.Struct, frozen=True):
    """Usage of one moment (`wall_us`). `named` is what `accounts` says, by association; `left_out` counts associations of
    accounts without room.
    """

    wall_us: int
    half_life_s: int
    accounts: Accounts
    named: Mapping[Association, float]
    left_out: int = 0

    @property
    def total(self) -> float:
        """Usage of all."""
        return math.fsum(self.named.values())

    def differs(self, other: Sheet) -> bool:
        """Check for a change that other cells are to hear of soon: more than CHANGE_PERCENT of all usage has moved."""
        if self.half_life_s != other.half_life_s:
            return True
        moved = math.fsum(
            abs(self.named.get(key, 0.0) - other.named.get(key, 0.0))
            for key in self.named.keys() | other.named.keys()
        )
        return moved * 100 > CHANGE_PERCENT * other.total


def read_usage(view: View, wall_us: int) -> Generator[None, None, Sheet]:
    """The sheet of a view, running jobs included, in slices."""
    half_life_s = view.config.priority.half_life_s
    usage = yield from usage_now(view, list(view.jobs.values()), wall_us)
    return (yield from sheet_of(usage, wall_us, half_life_s))


def sheet_of(
    usage: Mapping[Association, float], wall_us: int, half_life_s: int
) -> Generator[None, None, Sheet]:
    """The sheet of usage by association, in slices."""
    sums: defaultdict[str, float] = defaultdict(float)
    counts: defaultdict[str, int] = defaultdict(int)
    amounts: list[tuple[float, Association]] = []
    for part in parts(usage.items(), PER_SLICE):
        for key, amount in part:
            if amount > 0.0:
                bounded = min(amount, USAGE_MAX)
                amounts.append((-bounded, key))
                sums[key[0]] = min(sums[key[0]] + bounded, USAGE_MAX)
                counts[key[0]] += 1
        yield
    room = ROOM_BYTES
    rests: dict[str, float] = {}
    # Half of the room is left for users.
    for _, account in (yield from _largest([(-amount, account) for account, amount in sums.items()])):
        # A name that other cells would not read costs its own usage, and not the whole word.
        size = _text_bytes(account) + 4 + _USER_BYTES
        if room - size >= ROOM_BYTES // 2 and _is_name(account):
            room -= size
            rests[account] = sums[account]
    named: dict[Association, float] = {}
    inside = [one for one in amounts if one[1][0] in rests]
    yield
    for negative, (account, user) in (yield from _largest(inside)):
        size = _text_bytes(user) + _USER_BYTES
        if size <= room and _is_name(user):
            room -= size
            named[account, user] = -negative
            counts[account] -= 1
    rows: dict[str, list[tuple[str, float]]] = {account: [] for account in rests}
    for (account, user), amount in named.items():
        rows[account].append((user, amount))
    for account, whole in rests.items():
        if counts[account]:
            rest = max(0.0, whole - math.fsum(amount for _, amount in rows[account]))
            named[account, REST] = rest
            rows[account].append((REST, rest))
    left_out = sum(count for account, count in counts.items() if account not in rests)
    published = tuple((account, tuple(row)) for account, row in rows.items())
    return Sheet(wall_us, half_life_s, published, named, left_out)


def _largest(items: Sequence[T]) -> Generator[None, None, list[T]]:
    """The first FIT_MAX items in order, in slices."""
    found: list[T] = []
    for part in parts(items, PER_SLICE):
        found = sorted(found + part)[:FIT_MAX]
        yield
    return found


_USER_BYTES: Final = 1 + 9
"""Of a pair and its number."""


def _text_bytes(text: str) -> int:
    return len(text.encode(errors="replace")) + 3


def _is_name(text: str) -> bool:
    return len(text) <= NAME_CHARS_MAX and text.isprintable()
