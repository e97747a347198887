"""Packs: jobs that are submitted and planned together, each with a delay after the start of the first (D-04, D-05).

The members of a pack have consecutive places, the first has no delay, and the pack's id is the first member's. The planner
keeps room for all of them or for none. Once the first has been placed, its planned start is the pack's *anchor*: each other
member starts at the anchor plus its delay.
"""

from __future__ import annotations

import msgspec


class PackDraft(msgspec.Struct, frozen=True, gc=False):
    """A pack in a submission: its jobs are `specs[first : first + len(delays_s)]`; `delays_s[0]` is 0.

    `cancels`: the end of one of them otherwise than well cancels those that have not begun.
    """

    first: int
    delays_s: tuple[int, ...]
    cancels: bool = False


class MoveWish(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A demand to start the members that have not begun earlier (D-06), which the next planning cycle grants or refuses.

    By `earlier_us`, or such that the first of them starts at `to_us`; both 0: as early as possible. `serial` is the revision
    at which it was made. It is open until `said` has the planner's answer.
    """

    serial: int
    by: str
    earlier_us: int = 0
    to_us: int = 0
    said: str = ""


class PackPlace(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A job's place in its pack. `delay_us` counts from the start of the first member.

    `anchor_us` is the planned start of the first member; 0: the pack has not begun. `moved`: the job itself has asked for
    an earlier start than was submitted. `wish` is the pack's latest, in the places of all members that had not begun then.
    `cancels` is that of its `PackDraft`. `failed`, in the first member's place only, is the id of the member that was the
    first to end otherwise than well; 0: none has.
    """

    pack_id: int
    index: int
    count: int
    delay_us: int = 0
    anchor_us: int = 0
    moved: bool = False
    wish: MoveWish | None = None
    cancels: bool = False
    failed: int = 0

    @property
    def waits_for_first(self) -> bool:
        """Check whether it is planned in the first member's entry only: it is another one, and the pack has not begun."""
        return self.index > 0 and not self.anchor_us

    def includes(self, started_us: int) -> bool:
        """Check whether a member that last started then (0: never) has started since the pack began, not before it waited
        as a whole again.
        """
        return 0 < self.anchor_us <= started_us

    @property
    def start_us(self) -> int:
        """The time at which the member starts; 0: the pack has not begun."""
        return self.anchor_us + self.delay_us if self.anchor_us else 0
