"""Whose start has slipped far behind the one that was foretold first, and how those behind are kept from adding to it.

Forecasts that are too short make starts slip: those who were let in front of a job stay longer than was thought, and others
after them. From some point on a job's planned place is shut to those behind it for as long as they may run (ADR 14), and
under a policy that makes few promises, that of whoever has waited for long is shut from the beginning.
Invariant: only waiting jobs are remembered, and only as long as they wait.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from eslurm.core.plan.queue import Entry
from eslurm.core.plan.room import Closure
from eslurm.core.plan.search import Quest

if TYPE_CHECKING:
    from eslurm.core.plan.schedule import Booking, Schedule

    _Place = tuple[Entry, Booking, int]

SLIP_HEAD_US: Final = 600_000_000
"""By how much the one promise of a policy that makes no others may slip: all that is let in front is let in front of it."""
PATIENCE_US: Final = 12 * 3_600_000_000
"""Who has waited for so long when such a policy promises him a start is not to slip at all."""
SLIP_MIN_US: Final = 3_600_000_000
SLIP_MAX_US: Final = 4 * SLIP_MIN_US
"""Where everybody has a planned start, it may slip by as much as it was foretold ahead, within these bounds."""
SHIELDED_MAX: Final = 16
"""Late jobs whose places are shut to others at a time: those that come first."""


def slack_us(ahead_us: int) -> int:
    """How far a start may slip that is foretold so long ahead."""
    return min(max(ahead_us, SLIP_MIN_US), SLIP_MAX_US)


class Slips:
    """Belongs to a schedule. `late` are the entries of jobs whose start has slipped, `by` who stayed longer than thought.

    `version` tells when a place of one of the late has changed.
    """

    __slots__ = ("_latest_us", "by", "late", "version")

    def __init__(self) -> None:
        # When each job's start was foretold for first, and after which instant that is late.
        self._latest_us: dict[int, tuple[int, int]] = {}
        self.late: dict[int, Entry] = {}
        self.by: dict[int, int] = {}
        self.version = 0

    def copy(self) -> Slips:
        """An independent one that knows the same."""
        other = Slips()
        other._latest_us = self._latest_us.copy()
        other.late, other.by = self.late.copy(), self.by.copy()
        return other

    def is_known(self, job_id: int) -> bool:
        """Whether anything is remembered of the job."""
        return job_id in self._latest_us

    def jobs(self) -> list[int]:
        """All jobs of which something is remembered."""
        return list(self._latest_us)

    def note(self, entry: Entry, start_us: int, slack_us: int, *, is_shut: bool = False) -> None:
        """A start is planned for the job; the first one may slip by so much. `is_shut`: its place is shut in any case.

        Tasks of an array begin one after the other: their next start says nothing.
        """
        if entry[4].startable > 1:
            return
        job_id = entry[2]
        known = self._latest_us.get(job_id)
        if known is None:
            known = self._latest_us[job_id] = start_us, start_us + slack_us
        first_us, latest_us = known
        if start_us <= first_us:
            self.by.pop(job_id, None)
        if is_shut or start_us > latest_us:
            self.late[job_id] = entry
            self.version += 1
        elif self.late.pop(job_id, None) is not None:
            self.version += 1

    def forget(self, job_id: int) -> None:
        """It does not wait any more."""
        self._latest_us.pop(job_id, None)
        self.by.pop(job_id, None)
        if self.late.pop(job_id, None) is not None:
            self.version += 1


class Shield:
    """The places of the late, as closures for those behind them; one for each cycle.

    A node is shut as a whole, whatever the late job takes of it: it is one of the few places where it still can begin.
    """

    __slots__ = ("_masks", "_places", "_quests", "_schedule", "_version")

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._version = -1
        self._places: list[_Place] = []
        # By identity of the booking, which is kept with it.
        self._masks: dict[int, _Place] = {}
        # What was made stays: whoever learns something of a quest knows it by identity.
        self._quests: dict[tuple[int, int, int], Quest] = {}

    def around(self, entry: Entry, quest: Quest) -> Quest:
        """What is to be found for the job without running, by its limit, into the places of the late before it."""
        slips = self._schedule.slips
        if not slips.late or not quest.beyond_us:
            return quest
        if self._version != slips.version:
            self._version, self._places = slips.version, self._found()
        before = [place for place in self._places if place[0][:3] < entry[:3]]
        if not before:
            return quest
        # The places are in the order of the entries: how many of them come before says which.
        key = (entry[3], self._version, len(before))
        known = self._quests.get(key)
        if known is None:
            shut = [
                Closure(one.start_us - quest.beyond_us, one.stop_us, mask, f"job {one.job_id}")
                for _, one, mask in before
            ]
            closed = sorted((*quest.closed, *shut), key=lambda closure: (closure.start_us, closure.stop_us))
            known = self._quests[key] = replace(quest, closed=tuple(closed))
        return known

    def _found(self) -> list[_Place]:
        schedule = self._schedule
        topology = schedule.book.topology
        found: list[_Place] = []
        for entry in nsmallest(SHIELDED_MAX, schedule.slips.late.values()):
            for booking in schedule.bookings.get(entry[2], ()):
                known = self._masks.get(id(booking))
                if known is None:
                    mask = topology.mask_of_numbers(span.node for span in booking.spans)
                    known = self._masks[id(booking)] = entry, booking, mask
                found.append((entry, *known[1:]))
        return found
