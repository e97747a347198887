"""The choice of victims against brute force on small clusters, and the rules that need no search to be seen."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.model.partition import CANCEL, OFF, REQUEUE, SUSPEND
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.victims import Claim, Preemptable, Victim, victims
from eslurm.core.plan.placement.protocols import Availability
from eslurm.core.resources.nodes import NodeView, Topology
from eslurm.core.resources.vector import Vector, add, fits, subtract

NODES = 4
TOTAL = (4, 8)
NOW_US = 1_000


class PlainRoom:
    """The free amounts on each node, kept as a list: the naive twin of the rooms of the planner."""

    def __init__(self, free: list[Vector], wide: Vector = ()) -> None:
        self.topology = Topology([NodeView(number, f"cn{number}", TOTAL) for number in range(NODES)])
        self.free = free
        self.usable = self.topology.everything
        self.idle = sum(1 << at for at, amounts in enumerate(free) if amounts == TOTAL)
        self.wide_free = wide

    def fitting(self, amounts: Vector) -> int:
        return sum(1 << at for at, free in enumerate(self.free) if fits(amounts, free))

    def free_on(self, position: int) -> Vector:
        return self.free[position]


def wanting(
    nodes: int, amounts: Vector, wide: Vector = (), *, exclusive: bool = False
) -> Callable[[Availability], bool]:
    """A job that takes so much on so many nodes."""

    def fitting(room: Availability) -> bool:
        found = room.fitting(amounts) & room.usable
        if exclusive:
            found &= room.idle
        return found.bit_count() >= nodes and fits(wide, room.wide_free)

    return fitting


@st.composite
def clusters(draw: st.DrawFn) -> tuple[PlainRoom, list[Preemptable]]:
    """Up to six running jobs that fit together, some with equal priorities, some exempt, some on their way out."""
    free: list[Vector] = [TOTAL] * NODES
    running = []
    for job_id in range(1, draw(st.integers(0, 6)) + 1):
        shares = []
        for node in sorted(draw(st.sets(st.integers(0, NODES - 1), min_size=1, max_size=3))):
            amounts = (draw(st.integers(1, 4)), draw(st.integers(0, 4)))
            if fits(amounts, free[node]):
                free[node] = subtract(free[node], amounts)
                shares.append((node, amounts))
        if shares:
            running.append(
                Preemptable(
                    job_id,
                    1,
                    priority=draw(st.integers(0, 2)),
                    started_us=draw(st.integers(0, 2)),
                    shares=tuple(shares),
                    wide=(draw(st.integers(0, 1)),),
                    qos=draw(st.sampled_from(("low", "mid", ""))),
                    tier=draw(st.integers(0, 1)),
                    by_qos=draw(st.sampled_from((OFF, REQUEUE, CANCEL, SUSPEND))),
                    by_tier=draw(st.sampled_from((OFF, REQUEUE, SUSPEND))),
                    exempt_until_us=draw(st.sampled_from((0, 0, NOW_US, NOW_US + 1))),
                    is_going=draw(st.sampled_from((False, False, False, True))),
                )
            )
    return PlainRoom(free, (draw(st.integers(0, 1)),)), running


def without(room: PlainRoom, gone: list[tuple[Preemptable, str]]) -> PlainRoom:
    free, wide = list(room.free), room.wide_free
    for work, mode in gone:
        for node, amounts in work.shares:
            free[node] = add(free[node], (amounts[0], 0) if mode == SUSPEND else amounts)
        if mode != SUSPEND:
            wide = add(wide, work.wide)
    return PlainRoom(free, wide)


def by_search(
    claim: Claim, room: PlainRoom, fitting: Callable[[Availability], bool], running: list[Preemptable]
) -> list[Victim] | None:
    """Of all sets that would do, the one whose dearest member is cheapest, then its second, and so on."""
    base = without(room, [(one, CANCEL) for one in running if one.is_going])
    if base is not room and any(one.is_going for one in running) and fitting(base):
        return []
    allowed = [
        Victim(one, claim.mode(one))
        for one in running
        if not one.is_going and claim.mode(one) != OFF and one.exempt_until_us <= NOW_US
    ]
    allowed.sort(key=lambda one: (one.work.priority, -one.work.started_us, -one.work.job_id))
    best: tuple[int, list[Victim]] | None = None
    for size in range(1, len(allowed) + 1):
        for chosen in itertools.combinations(range(len(allowed)), size):
            gone = [(allowed[index].work, allowed[index].mode) for index in chosen]
            cost = sum(1 << index for index in chosen)
            if (best is None or cost < best[0]) and fitting(without(base, gone)):
                best = (cost, [allowed[index] for index in chosen])
    return best[1] if best is not None else None


@given(
    clusters(),
    st.integers(1, NODES),
    st.tuples(st.integers(1, 4), st.integers(0, 8)),
    st.integers(0, 2),
    st.booleans(),
    st.integers(0, 2),
)
def test_the_cheapest_victims_as_brute_force_finds_them(
    cluster: tuple[PlainRoom, list[Preemptable]],
    nodes: int,
    amounts: Vector,
    wide: int,
    exclusive: bool,
    tier: int,
) -> None:
    room, running = cluster
    fitting = wanting(nodes, amounts, (wide,), exclusive=exclusive)
    if fitting(room):
        return
    claim = Claim(99, ("low",), tier, 1)
    found = exhaust(victims(claim, room, fitting, running, NOW_US))
    expected = by_search(claim, room, fitting, running)
    assert (None if found is None else list(found)) == expected
    before = list(room.free)
    for victim in found or ():
        others = [(one.work, one.mode) for one in found or () if one is not victim]
        going = [(one, CANCEL) for one in running if one.is_going]
        assert not fitting(without(room, [*going, *others])), "nobody is pushed out in vain"
    assert room.free == before


def work(job_id: int, node: int, priority: int = 0, started_us: int = 0, **fields: object) -> Preemptable:
    values: dict[str, object] = {"qos": "low", "by_qos": REQUEUE} | fields
    return Preemptable(job_id, 1, priority, started_us, ((node, TOTAL),), **values)  # type: ignore[arg-type]


FULL = PlainRoom([(0, 0)] * NODES)
CLAIM = Claim(99, ("low",), level=1)


def ids(found: tuple[Victim, ...] | None) -> list[int] | None:
    return None if found is None else [one.work.job_id for one in found]


def test_the_lowest_priority_goes_first_and_of_equals_the_youngest() -> None:
    running = [work(1, 0, 5), work(2, 1, 1, started_us=10), work(3, 2, 1, started_us=20), work(4, 3, 5)]
    assert ids(exhaust(victims(CLAIM, FULL, wanting(1, TOTAL), running, NOW_US))) == [3]
    assert ids(exhaust(victims(CLAIM, FULL, wanting(2, TOTAL), running, NOW_US))) == [3, 2]
    assert ids(exhaust(victims(CLAIM, FULL, wanting(3, TOTAL), running, NOW_US))) == [3, 2, 4]


def test_one_who_was_looked_at_in_vain_stays() -> None:
    small = Preemptable(1, 1, 0, 0, ((0, (1, 1)),), qos="low", by_qos=REQUEUE)
    large = Preemptable(2, 1, 9, 0, ((1, TOTAL),), qos="low", by_qos=REQUEUE)
    assert ids(exhaust(victims(CLAIM, FULL, wanting(1, TOTAL), [small, large], NOW_US))) == [2]


def test_who_goes_anyway_is_waited_for() -> None:
    running = [work(1, 0), work(2, 1, is_going=True)]
    assert ids(exhaust(victims(CLAIM, FULL, wanting(1, TOTAL), running, NOW_US))) == []
    assert ids(exhaust(victims(CLAIM, FULL, wanting(2, TOTAL), running, NOW_US))) == [1]


def test_what_nobody_can_give_nobody_is_pushed_out_for() -> None:
    assert exhaust(victims(CLAIM, FULL, wanting(1, (5, 0)), [work(1, 0)], NOW_US)) is None
    assert exhaust(victims(CLAIM, FULL, wanting(1, TOTAL), [work(1, 0, qos="mid")], NOW_US)) is None
    assert (
        exhaust(victims(CLAIM, FULL, wanting(1, TOTAL), [work(1, 0, exempt_until_us=NOW_US + 1)], NOW_US))
        is None
    )
    assert exhaust(victims(CLAIM, FULL, wanting(1, TOTAL), [], NOW_US)) is None


def test_the_stopped_give_their_cores_and_not_their_memory() -> None:
    still = work(1, 0, by_qos=SUSPEND)
    assert exhaust(victims(CLAIM, FULL, wanting(1, (4, 1)), [still], NOW_US)) is None
    (found,) = exhaust(victims(CLAIM, FULL, wanting(1, (4, 0)), [still], NOW_US)) or ()
    assert found.mode == SUSPEND
