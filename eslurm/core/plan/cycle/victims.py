"""Choice of preemption victims, so that a waiting job can start now.

Pure: running attempts and an availability in, victims out. Invariants: every victim is preemptable by the job, with all
victims gone the job fits, and it would not fit if any one of them stayed; a victim is of a lower rank.

A job that no other may preempt has the highest rank; any other's is the level of its QOS and then the tier of its
partition. A QOS that lists no other is at level 0, any other one level above the highest that it lists. (QOS that list
each other in a cycle are refused when they are set, and would preempt no job.) A victim never preempts its preemptor,
neither itself nor through others: so no cycle of preemptions closes, whatever QOS and partitions a site combines.

A job of several parts claims with the lowest tier of its partitions, and is preempted as a job of the highest tier, by the
gentlest of their modes (`Standing`): it never preempts more than each of its parts may, and has no lower rank than any.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from eslurm.core.model.accounts import Policy, Qos
from eslurm.core.model.partition import CANCEL, OFF, REQUEUE, SUSPEND
from eslurm.core.model.references import heights_of
from eslurm.core.plan.placement.protocols import Availability
from eslurm.core.resources import bits
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import Vector, add, fits

ABOVE_ALL: Final = 1 << 62
"""The level of jobs that may not be preempted."""

_GENTLEST_FIRST: Final = (OFF, SUSPEND, REQUEUE, CANCEL)

Share = tuple[int, Vector]
"""(node number, amounts) that come free there."""


class Tiered(Protocol):
    """A partition as preemption sees it."""

    @property
    def tier(self) -> int: ...
    @property
    def preempt_mode(self) -> str: ...


class Preemptable(msgspec.Struct, frozen=True, gc=False):
    """A started attempt as preemption sees it.

    `level` is that of its QOS. `by_qos` and `by_tier` are the modes (`MODES`) when a preempting QOS or a partition of a
    higher tier asks. It is exempt before `exempt_until_us`. `is_going`: it is already ending, so it releases its nodes
    anyway and is no victim.
    """

    job_id: int
    attempt: int
    priority: int
    started_us: int
    shares: tuple[Share, ...]
    wide: Vector = ()
    qos: str = ""
    tier: int = 0
    by_qos: str = OFF
    by_tier: str = OFF
    exempt_until_us: int = 0
    is_going: bool = False
    level: int = 0


class Standing(msgspec.Struct, frozen=True, gc=False):
    """A job's place among partitions: the tier with which it claims, the tier at which it is preempted, by which mode."""

    claims: int = 0
    tier: int = 0
    by_tier: str = OFF

    @classmethod
    def of(cls, partitions: Sequence[Tiered | None]) -> Standing:
        """The standing of a job in these partitions; None: a partition that does not exist (any more)."""
        tiers = [one.tier if one is not None else 0 for one in partitions]
        modes = [one.preempt_mode if one is not None else OFF for one in partitions]
        return cls(min(tiers), max(tiers), min(modes, key=_GENTLEST_FIRST.index))


class Claim(msgspec.Struct, frozen=True, gc=False):
    """The attempts that a waiting job may preempt: of these QOS, and of partitions of a lower tier, if of a lower rank."""

    job_id: int
    preempts: tuple[str, ...] = ()
    tier: int = 0
    level: int = 0

    def mode(self, victim: Preemptable) -> str:
        """The preemption mode for that victim; `OFF` when it is not allowed. A QOS takes precedence over a partition."""
        if victim.level > self.level:
            return OFF
        if victim.level < self.level and victim.qos in self.preempts and victim.by_qos != OFF:
            return victim.by_qos
        return victim.by_tier if victim.tier < self.tier else OFF


class Ranks:
    """Preemption ranks from a site's QOS and the tiers of its partitions."""

    __slots__ = ("_highest", "_levels", "_listed")

    def __init__(self, qos: Mapping[str, Policy], tiers: Iterable[int]) -> None:
        self._levels = heights_of(qos)
        known = [one for one in qos.values() if isinstance(one, Qos)]
        listed = {name for one in known for name in one.preempts}
        self._listed = {one.name for one in known if one.name in listed and one.preempt_mode != OFF}
        self._highest = max(tiers, default=0)

    def level(self, qos: str) -> int:
        """The level of a QOS; 0 without one."""
        return self._levels.get(qos, 0)

    def claim(self, job_id: int, qos: Qos | None, standing: Standing) -> Claim:
        """The claim of a waiting job of that QOS, with that standing."""
        name = qos.name if qos is not None else ""
        is_safe = name not in self._listed and (standing.by_tier == OFF or standing.tier >= self._highest)
        level = ABOVE_ALL if is_safe else self.level(name)
        return Claim(job_id, qos.preempts if qos is not None else (), standing.claims, level)


class Victim(msgspec.Struct, frozen=True, gc=False):
    """One chosen victim and its preemption mode."""

    work: Preemptable
    mode: str


def victims(
    claim: Claim,
    room: Availability,
    fitting: Callable[[Availability], bool],
    running: Iterable[Preemptable],
    now_us: int,
) -> Generator[None, None, tuple[Victim, ...] | None]:
    """The cheapest victims with which the job fits now; empty when leaving attempts suffice; None when none suffice.

    In slices: each calls `fitting` once, which checks whether the whole job fits an availability, by mapping and all other
    conditions. Cheapest: the most important victim (highest priority, then longest running) is as unimportant as possible,
    then the next, and so on; no victim is superfluous.
    """
    everybody = list(running)
    going = [one for one in everybody if one.is_going]
    base = Freed(room, going) if going else room
    if going and fitting(base):
        return ()
    eligible = [Victim(one, claim.mode(one)) for one in everybody if not one.is_going]
    candidates = [one for one in eligible if one.mode != OFF and one.work.exempt_until_us <= now_us]
    candidates.sort(key=_rank)
    yield
    if not candidates or not _fits_without(base, fitting, candidates):
        return None
    chosen = candidates[: (yield from _fewest(base, fitting, candidates))]
    for victim in reversed(chosen[:-1]):
        yield
        others = [one for one in chosen if one is not victim]
        if _fits_without(base, fitting, others):
            chosen = others
    return tuple(chosen)


def _rank(victim: Victim) -> tuple[int, int, int]:
    """The order of victims: the lowest priority first, then the shortest run."""
    return victim.work.priority, -victim.work.started_us, -victim.work.job_id


def _fewest(
    room: Availability, fitting: Callable[[Availability], bool], candidates: Sequence[Victim]
) -> Generator[None, None, int]:
    """Least number of first candidates that must go; more victims never fit less, so the search halves."""
    low, high = 1, len(candidates)
    while low < high:
        middle = (low + high) // 2
        yield
        if _fits_without(room, fitting, candidates[:middle]):
            high = middle
        else:
            low = middle + 1
    return low


def _fits_without(
    room: Availability, fitting: Callable[[Availability], bool], gone: Sequence[Victim]
) -> bool:
    return fitting(Freed(room, [one.work for one in gone], {one.work.job_id: one.mode for one in gone}))


class Freed:
    """A view of a `Room` without some running attempts.

    A suspended attempt releases its cores only: its processes still have their memory and devices.
    """

    def __init__(
        self, room: Availability, gone: Iterable[Preemptable], modes: dict[int, str] | None = None
    ) -> None:
        modes = modes or {}
        self._room = room
        self._free: dict[int, Vector] = {}
        wide = room.wide_free
        positions = room.topology.positions
        for one in gone:
            is_stopped = modes.get(one.job_id) == SUSPEND
            if not is_stopped:
                wide = add(wide, one.wide)
            for node, amounts in one.shares:
                position = positions.get(node)
                if position is None:
                    continue
                free = self._free.get(position)
                free = room.free_on(position) if free is None else free
                self._free[position] = add(free, amounts[:1] if is_stopped else amounts)
        self._wide = wide
        totals = room.topology.totals
        emptied = [position for position, free in self._free.items() if free == totals[position]]
        size = room.topology.size
        self._idle = room.idle | bits.mask_of(emptied, size)

    @property
    def topology(self) -> Topology:
        """The topology of the underlying availability."""
        return self._room.topology

    @property
    def usable(self) -> int:
        """The usable positions of the underlying availability: an end makes no node usable."""
        return self._room.usable

    @property
    def idle(self) -> int:
        """Positions on which nothing is held any more."""
        return self._idle

    @property
    def wide_free(self) -> Vector:
        """Free cluster-wide resources."""
        return self._wide

    def fitting(self, amounts: Vector) -> int:
        """The positions with `amounts` free."""
        found = self._room.fitting(amounts)
        more = [
            position
            for position, free in self._free.items()
            if not found >> position & 1 and fits(amounts, free)
        ]
        return found | bits.mask_of(more, self.topology.size) if more else found

    def free_on(self, position: int) -> Vector:
        """The amounts free at a position."""
        free = self._free.get(position)
        return self._room.free_on(position) if free is None else free
