"""Job ids of a federation: each cell draws them from blocks that it leases in the store; a block names its cell for ever.

Invariants: no two cells lease one id, for each lease changes one key; the blocks of a cell rise, and lie above every id that
it has drawn; a block that the store has leased and the cell's log does not know (its leader died between both) is taken up
before another one is leased. Before the first lease the log bounds what the cell draws by its own word, so no lease can be
overtaken, however late it comes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from typing import Final, TypeAlias

import msgspec

from eslurm.core.federation.actions import SwapKeys, Write
from eslurm.core.federation.membership import Membership, Standing
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.one_swap import OneSwap
from eslurm.core.federation.swapping import Entries
from eslurm.core.federation.values import Keys, Reader, encode, first_id_in
from eslurm.core.model.federation import FORMAT, ID_COUNT_MAX, FederationConfig, IdBlock, NextId
from eslurm.core.model.job_ids import ID_BLOCK, JOB_ID_MAX, IdRange, left_of
from eslurm.core.model.messages import IdsBounded, IdsTaken

BLOCKS_MAX: Final = 32_768
"""Keys below the prefix of ids: more than there are blocks of the least size."""
HOUR_US: Final = 3_600_000_000
DAY_HOURS: Final = 24

IdsWish: TypeAlias = IdsTaken | IdsBounded


class OwnIds(msgspec.Struct, frozen=True):
    """The cell's ids as of its last commit."""

    next_id: int
    blocks: tuple[IdRange, ...] = ()


class Leased(msgspec.Struct, frozen=True, order=True):
    """A block in the store."""

    first: int
    count: int
    cell: str
    version: int

    @property
    def end(self) -> int:
        """The first id after it."""
        return self.first + self.count


class IdTable:
    """All blocks, as the mirror has them. Blocks that overlap name no cell: a stranger wrote one of them."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._reader = Reader(IdBlock, mirror.prefix)
        self._changes = -1
        self._blocks: list[Leased] = []
        self._firsts: list[int] = []
        self._end = 1

    @property
    def blocks(self) -> list[Leased]:
        """Those that overlap no other, rising."""
        self._refresh()
        return self._blocks

    @property
    def end(self) -> int:
        """The first id after all blocks."""
        self._refresh()
        return self._end

    def cell_of(self, job_id: int) -> str:
        """The cell that has leased this id; empty: none has."""
        self._refresh()
        at = bisect_right(self._firsts, job_id) - 1
        return self._blocks[at].cell if at >= 0 and job_id < self._blocks[at].end else ""

    def block_at(self, first: int) -> Leased | None:
        """The block that begins with this id."""
        self._refresh()
        at = bisect_right(self._firsts, first) - 1
        return self._blocks[at] if at >= 0 and self._firsts[at] == first else None

    def counts(self) -> Counter[str]:
        """By cell how many ids it has leased."""
        found: Counter[str] = Counter()
        for block in self.blocks:
            found[block.cell] += block.count
        return found

    def _refresh(self) -> None:
        mirror = self._mirror
        if self._changes == mirror.changes:
            return
        self._changes = mirror.changes
        read = [
            Leased(first, value.count, value.cell, word.version)
            for word in mirror.words.values()
            if (first := first_id_in(mirror.prefix, word.key))
            and isinstance(value := self._reader.read(word.key, word.value, word.size), IdBlock)
        ]
        read.sort()
        overlapping: set[int] = set()
        end, last = 0, -1
        for at, block in enumerate(read):
            if block.first < end:
                overlapping |= {at, last}
            if block.end > end:
                end, last = block.end, at
        self._end = max(1, end)
        self._blocks = [block for at, block in enumerate(read) if at not in overlapping]
        self._firsts = [block.first for block in self._blocks]


class IdBlocks(OneSwap):
    """Keeps ids in hand. `show` it the committed ids, `tick` it, pass answers back; what the log is to take is `wish`.

    `problem` says why no more ids are leased; empty: all is well.
    """

    def __init__(self, config: FederationConfig, membership: Membership, mirror: Mirror) -> None:
        super().__init__(mirror)
        self.table = IdTable(mirror)
        self.wish: IdsWish | None = None
        self.problem = ""
        self.rejoins = False
        """An administrator has seen that the store is another one, or an older copy: its ids are written there again."""
        self._keys = Keys(config.name)
        self._cell = config.cell
        self._reserve = config.id_reserve
        self._membership = membership
        self._own: OwnIds | None = None
        self._drawn = 0
        self._drawn_at: deque[tuple[int, int]] = deque(maxlen=DAY_HOURS)

    @property
    def left(self) -> int:
        """Leased ids that have not been drawn."""
        return left_of(self._own.blocks, self._own.next_id) if self._own is not None else 0

    @property
    def in_hand(self) -> list[IdRange]:
        """The leased ranges that are not used up, the one in use first."""
        own = self._own
        return [one for one in own.blocks if one.version and one.end > own.next_id] if own is not None else []

    @property
    def reserve(self) -> int:
        """Ids that are to be in hand: those of the last day, or more."""
        of_a_day = self._drawn - self._drawn_at[0][1] if self._drawn_at else 0
        return min(max(self._reserve, of_a_day), ID_COUNT_MAX)

    def show(self, own: OwnIds, now_us: int) -> None:
        """Take the committed ids; `now_us` is monotonic."""
        if self._own is not None:
            self._drawn += max(0, self.left - left_of(self._own.blocks, own.next_id))
        self._own = own
        if not self._drawn_at or now_us >= self._drawn_at[-1][0] + HOUR_US:
            self._drawn_at.append((now_us, self._drawn))

    def tick(self, now_us: int, draw: float) -> SwapKeys | None:
        """The next request to the store, once. `draw` is of [0, 1), for pauses."""
        self.take(now_us, draw)
        own = self._own
        self.wish, self.problem = None, ""
        if own is None:
            return None
        standing = self._membership.standing
        if standing is Standing.LEFT:
            is_bound = bool(own.blocks) and not own.blocks[-1].is_open
            self.wish = IdsBounded(is_open=True) if is_bound else None
        elif standing is Standing.MEMBER and self._is_known():
            change = self._next_change(own)
            # One that the mirror does not show would be leased twice.
            is_shown = self.is_echoed(now_us)
            if change is not None and is_shown and self.is_free(now_us):
                self.begin(change, {key: self._mirror.words.get(key) for key in change.keys})
        return super().tick(now_us, draw)

    # ---- within ----

    def _is_known(self) -> bool:
        """The table has every block: one that it lacks would be leased twice."""
        mirror = self._mirror
        if mirror.skipped:
            self.problem = (
                f"{mirror.skipped} keys below {mirror.prefix} are left out: remove those that are no cell's"
            )
        else:
            self.problem = mirror.problem
        return mirror.is_listed and not self.problem

    def _next_change(self, own: OwnIds) -> _Lease | None:
        """The next lease to write. With None, `wish` or `problem` may be set, or there is nothing to do."""
        self.problem = self.failure
        if not own.blocks or own.blocks[-1].is_open:
            self.wish = IdsBounded()
            return None
        for one in own.blocks:
            block = self.table.block_at(one.first)
            if not one.version or (
                block is not None and (block.cell, block.count) == (self._cell, one.count)
            ):
                continue
            key = self._keys.id_block(one.first)
            if self.rejoins and key not in self._mirror.words:
                return self._lease(one.first, one.count)
            self.problem = (
                f"the store does not say that ids {one.first} to {one.end - 1} are this cell's ({key}): it has lost data, "
                "is another one, or others wrote there. No more ids are leased; if etcd was replaced or restored, "
                "esctl federation rejoin in each cell writes its ids there again"
            )
            return None
        self.rejoins = False
        least = max([own.next_id, *(one.end for one in own.blocks if one.version)])
        for block in self.table.blocks:
            if block.cell == self._cell and block.first >= least:
                self.wish = IdsTaken(block.first, block.count, block.version)
                return None
        missing = self.reserve - self.left
        if missing <= 0:
            return None
        first = _rounded(
            max(own.next_id, self.table.end, self._next_in_store(), *(one.end for one in own.blocks))
        )
        count = min(_rounded(missing), ID_COUNT_MAX)
        if first + count > JOB_ID_MAX:
            self.problem = "all job ids of the federation are leased"
            return None
        return self._lease(first, count)

    def _lease(self, first: int, count: int) -> _Lease:
        entry = self._mirror.words.get(self._keys.next_id)
        following = max(first + count, self._next_in_store())
        return _Lease(
            self._keys, IdBlock(FORMAT, self._cell, count), first, following, entry.version if entry else 0
        )

    def _next_in_store(self) -> int:
        entry = self._mirror.words.get(self._keys.next_id)
        read = Reader(NextId, self._keys.ids).read_entry(entry) if entry is not None else None
        return read.first if isinstance(read, NextId) else 1


class _Lease:
    """Write a block while no cell has leased one since the table was read."""

    def __init__(self, keys: Keys, block: IdBlock, first: int, following: int, known_version: int) -> None:
        self._next_key = keys.next_id
        self._block_key = keys.id_block(first)
        self.keys = (self._next_key, self._block_key)
        self._block = encode(block)
        self._next = encode(NextId(FORMAT, following))
        self._known_version = known_version

    def writes(self, current: Entries) -> tuple[Write, ...]:
        """None when the table has changed: it is read again first."""
        following = current[self._next_key]
        version = following.version if following is not None else 0
        if current[self._block_key] is not None or version != self._known_version:
            return ()
        return (Write(self._next_key, self._next), Write(self._block_key, self._block))

    def is_mine(self, current: Entries) -> bool:
        """A block of this cell, whichever of its leaders has leased it."""
        entry = current[self._block_key]
        return entry is not None and entry.value == self._block


def _rounded(number: int) -> int:
    return -(-number // ID_BLOCK) * ID_BLOCK
