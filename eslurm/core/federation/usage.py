"""Usage in other cells, for fair share: this cell's word of its own, and the sum of those of the others.

A word says usage as of one moment, so a lost or late one costs nothing but time: usage fades on by this cell's half-life
until the next word comes. Invariants: words of cells that have left or are not trusted count nothing, and neither does one
after HALF_LIVES_MAX half-lives; what a word says changes the order of waiting jobs, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

import msgspec

from eslurm.core.federation.actions import Failure, SwapAnswer, SwapKeys
from eslurm.core.federation.membership import Membership, Standing
from eslurm.core.federation.mirror import Mirror, Word
from eslurm.core.federation.own_word import OwnWord
from eslurm.core.federation.usage_sheet import Sheet
from eslurm.core.federation.values import Reader, Unreadable, encode, name_in
from eslurm.core.model.federation import FORMAT, USAGE_AGE_MAX_US, CellRecord, CellUsage
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.fair_tree import Association
from eslurm.core.state.usage import decay

READ_US: Final = 10 * SECOND_US
"""Least time between two readings, and between two writings."""
WRITE_US: Final = 60 * SECOND_US
READ_US_PER_SLICE: Final = 200_000
"""Least time between two readings for each slice of one: readings cost about a hundredth of the time."""
SLICE_US: Final = 1_000
HALF_LIVES_MAX: Final = 7
"""Usage counts for so many half-lives after the cell's last word; less than a hundredth is left then."""
CLOCKS_US: Final = 600 * SECOND_US
"""Clocks of cells may differ by so much: a word that seems to be no older is as old as its hearing."""

UsageReading = Generator[None, None, Sheet]


class Heard(msgspec.Struct, frozen=True):
    """The time at which a word came here: monotonic, and by the clock of this cell."""

    version: int
    at_us: int
    wall_us: int


class OtherUsage(msgspec.Struct, frozen=True):
    """The word of another cell. `age_us` is the age of its figures; `problem` says why it does not count, empty: it does."""

    cell: str
    age_us: int
    usage: CellUsage | None = None
    problem: str = ""
    is_readable: bool = True


class SharedUsage:
    """Publishes this cell's usage and keeps that of the others. `tick` it, and bring its answers.

    `read` begins a reading of this cell's usage, in slices.
    """

    def __init__(
        self,
        membership: Membership,
        cells: Mirror,
        mirror: Mirror,
        read: Callable[[], UsageReading],
    ) -> None:
        self._membership = membership
        self._cells = cells
        self._mirror = mirror
        self._read = read
        self._records = Reader(CellRecord, cells.prefix)
        self._reader = Reader(CellUsage, mirror.prefix)
        key = membership.own.usage_key
        self._word = OwnWord(membership, mirror, key, every_us=READ_US, is_leased=False)
        self._reading: UsageReading | None = None
        self._slice_at_us = 0
        self._slices = 0
        self._began_us = 0
        self._latest: Sheet | None = None
        self._latest_us = 0
        self._begun: Sheet | None = None
        self._written: Sheet | None = None
        self._seq = 0
        self._heard: dict[str, Heard] = {}
        self._seen = -1
        self._decoded: dict[str, tuple[int, CellUsage | Unreadable]] = {}

    # ---- what next ----

    def tick(self, now_us: int, wall_us: int, draw: float) -> SwapKeys | None:
        """The next request to the store, given once. `now_us` is monotonic, `wall_us` the time of day."""
        self._hear(now_us, wall_us)
        if self._word.settle(now_us, draw):
            self._written = self._begun
        if self._membership.standing is Standing.MEMBER and now_us >= self._slice_at_us:
            self._read_on(now_us)
        if self._latest is not None and self._word.may_write(now_us) and self._is_due(self._latest, now_us):
            self._begin(self._latest, now_us)
        return self._word.tick(now_us, draw)

    def due_us(self, now_us: int) -> int | None:
        """Time at which `tick` next has something to do, unless an event comes before."""
        times = [self._slice_at_us, self._word.written_us + WRITE_US, self._word.due_us(now_us) or 0]
        return min((at for at in times if at > now_us), default=None)

    def swapped(self, action: SwapKeys, answer: SwapAnswer) -> None:
        """The answer to a swap of this machine; others are ignored."""
        self._word.swapped(action, answer)

    def failed(self, action: SwapKeys, failure: Failure) -> None:
        """The call failed."""
        self._word.failed(action, failure)

    @property
    def problem(self) -> str:
        """Why this cell's usage was not written last; empty: it was."""
        return self._word.failure

    # ---- usage of the others ----

    def words(
        self, now_us: int, half_life_s: int, is_trusted: Callable[[str], bool]
    ) -> Generator[None, None, list[OtherUsage]]:
        """The words of the other cells, by name, in slices. `half_life_s` is that of this cell."""
        found: list[OtherUsage] = []
        if self._membership.standing is Standing.LEFT:
            return found
        for key, heard in sorted(self._heard.items()):
            name, word = name_in(self._mirror.prefix, key), self._mirror.words.get(key)
            if word is None or name == self._membership.own.name or not self._is_member(name):
                continue
            if not is_trusted(name):
                problem = "its keys are not trusted here"
                found.append(OtherUsage(name, max(0, now_us - heard.at_us), problem=problem))
                continue
            found.append(self._judge(name, word, heard, now_us, half_life_s))
            yield
        return found

    def summed(
        self, now_us: int, half_life_s: int, is_trusted: Callable[[str], bool]
    ) -> Generator[None, None, dict[Association, float]]:
        """Usage in the other cells as of now by (account, user), in slices; an empty user stands for those not named."""
        summed: dict[Association, float] = {}
        for one in (yield from self.words(now_us, half_life_s, is_trusted)):
            if one.usage is None or one.problem:
                continue
            factor = decay(one.age_us, half_life_s)
            if half_life_s:
                # Constant use comes to as much under either half-life then.
                factor *= half_life_s / one.usage.half_life_s
            for account, users in one.usage.accounts:
                for user, amount in users:
                    key = account, user
                    summed[key] = summed.get(key, 0.0) + amount * factor
            yield
        return summed

    # ---- within ----

    def _hear(self, now_us: int, wall_us: int) -> None:
        """Note when each word came here: a listing brings the same word again, and as if it was new."""
        if self._mirror.changes == self._seen:
            return
        self._seen = self._mirror.changes
        before = self._heard
        self._heard = {
            key: known
            if (known := before.get(key)) is not None and known.version == word.version
            else Heard(word.version, word.heard_us, wall_us - (now_us - word.heard_us))
            for key, word in self._mirror.words.items()
        }
        self._decoded = {key: one for key, one in self._decoded.items() if key in self._heard}

    def _is_member(self, name: str) -> bool:
        word = self._cells.words.get(self._cells.prefix + name) if name else None
        record = self._records.read(word.key, word.value, word.size) if word is not None else None
        return isinstance(record, CellRecord) and not record.left

    def _judge(self, name: str, word: Word, heard: Heard, now_us: int, half_life_s: int) -> OtherUsage:
        known = self._decoded.get(word.key)
        if known is None or known[0] != word.version:
            known = self._decoded[word.key] = (
                word.version,
                self._reader.read(word.key, word.value, word.size),
            )
        usage = known[1]
        since_us = max(0, now_us - heard.at_us)
        if isinstance(usage, Unreadable):
            return OtherUsage(name, since_us, problem=f"it cannot be read: {usage.reason}", is_readable=False)
        before_us = heard.wall_us - usage.at_us
        age_us = since_us + (before_us if before_us > CLOCKS_US else usage.aged_us)
        problem = ""
        if bool(half_life_s) != bool(usage.half_life_s):
            problem = "usage fades there and not here, or here and not there"
        elif half_life_s and age_us > HALF_LIVES_MAX * half_life_s * SECOND_US:
            problem = f"it is older than {HALF_LIVES_MAX} half-lives"
        return OtherUsage(name, age_us, usage, problem)

    def _read_on(self, now_us: int) -> None:
        """Read the next slice of this cell's usage, or begin to read."""
        if self._reading is None:
            self._reading = self._read()
            self._began_us, self._slices = now_us, 0
        self._slices += 1
        try:
            next(self._reading)
        except StopIteration as finished:
            self._latest, self._latest_us = finished.value, self._began_us
            self._reading = None
            pause_us = max(READ_US, self._slices * READ_US_PER_SLICE)
            self._slice_at_us = self._began_us + min(WRITE_US, pause_us)
            return
        self._slice_at_us = now_us + SLICE_US

    def _is_due(self, latest: Sheet, now_us: int) -> bool:
        written, at_us = self._written, self._word.written_us
        if written is None or not self._word.is_there or now_us >= at_us + WRITE_US:
            return True
        return latest is not written and now_us >= at_us + READ_US and latest.differs(written)

    def _begin(self, sheet: Sheet, now_us: int) -> None:
        self._seq += 1
        self._begun = sheet
        word = CellUsage(
            FORMAT,
            self._membership.epoch,
            self._seq,
            sheet.wall_us,
            sheet.half_life_s,
            sheet.accounts,
            sheet.left_out,
            min(USAGE_AGE_MAX_US, max(0, now_us - self._latest_us)),
        )
        self._word.write(encode(word))
