"""No later job delays a promised start: all policies, under arrivals, early ends, reservations, pools, limits and licences.

Jobs wait in the order of their arrival, so each job behind a promised one came later. A start that was promised holds
until the job begins; under EASY it may move only when a job that is ahead of it starts or is promised a start instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eslurm.core.model.accounts import Access, Amount, FreePool, Limit, Policy, Reservation, Validity
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.plan.cycle.policies import BUILT_IN
from eslurm.core.plan.cycle.queue import Pending
from tests.property.test_kept_promises import NOW, Event, Site, requests
from tests.support.profiles import draws

UNIT_US = 100_000
"""The unit of all lengths here: limits on areas and durations are in seconds."""


@st.composite
def validities(draw: st.DrawFn) -> Validity:
    from_us = NOW + draw(st.integers(0, 40)) * UNIT_US
    return Validity(from_us, from_us + draw(st.integers(1, 60)) * UNIT_US)


access = st.sampled_from(
    [
        (),
        (Access(users=("ada",)),),
        (Access(users=("bob",)),),
        (Access(users=("bob",), items_below=3),),
        (Access(items_below=2),),
    ]
)
always_or_then = st.one_of(st.just(Validity()), validities())
rules = st.lists(
    st.one_of(
        st.builds(
            lambda most, when: Limit("a", "user", "ada", "cores", Amount(most), validity=when),
            st.integers(2, 12),
            always_or_then,
        ),
        st.builds(lambda most: Limit("b", "user", "bob", "jobs", Amount(most)), st.integers(1, 3)),
        st.builds(
            lambda area_s, when: Limit(
                "area", "user", "ada", "cores", Amount(), area_s=area_s, validity=when
            ),
            st.integers(5, 25),
            always_or_then,
        ),
        st.builds(
            lambda duration_s, when: Limit(
                "long", "user", "bob", "cores", Amount(), duration_s=duration_s, validity=when
            ),
            st.integers(1, 5),
            validities(),
        ),
        st.builds(
            lambda name, resource, least, ways, when: FreePool(
                name, resource, Amount(least), ways, validity=when
            ),
            st.sampled_from("pq"),
            st.sampled_from(["cores", "cores", "cores", "memory_mib", "gpu", "matlab"]),
            st.integers(1, 4),
            access,
            always_or_then,
        ),
        st.builds(
            lambda node, ways, when: FreePool("w", access=ways, nodes=node, validity=when),
            st.sampled_from(["n0", "n[0-1]", "n2"]),
            access,
            always_or_then,
        ),
        st.builds(
            lambda name, when, nodes, users: Reservation(
                name, when, nodes, users=users, maintenance=not users
            ),
            st.sampled_from("rst"),
            validities(),
            st.sampled_from([("n0",), ("n0", "n1"), ("n2",), ("n1", "n3")]),
            st.sampled_from([(), ("ada",), ("bob",)]),
        ),
    ),
    max_size=3,
    unique_by=lambda one: one.name,
)
events = st.tuples(
    st.sampled_from(
        ["submit"] * 6 + ["inside", "array", "fixed", "end", "end", "end", "cancel", "wait", "wait"]
    ),
    st.integers(0, 40),
    st.integers(1, 60),
    requests,
    st.just(0),
)


class World(Site):
    """Time passes from instant to instant, so that nothing begins or ends late."""

    def __init__(self, policy: str, nodes: int, policies: list[Policy], *, refresh_us: int) -> None:
        super().__init__(policy, nodes, policies, 100)
        self.limits = PlanLimits(overdue_grace_us=7, promise_refresh_us=refresh_us * UNIT_US)
        self.promised: dict[int, int] = {}
        self.edges = [
            edge
            for one in policies
            if isinstance(one, Limit | FreePool | Reservation)
            for edge in (one.validity.from_us, one.validity.until_us)
        ]

    def happen(self, event: Event) -> None:
        kind, number, length, request, _ = event
        length_us = length * UNIT_US
        if kind == "inside":
            self.submit(replace(request, exclusive=False), length_us, reservation="rst"[number % 3])
        elif kind == "wait":
            self.wait_until(self.now_us + number * UNIT_US)
        elif kind == "fixed":
            # A start at this very instant is no promise.
            super().happen((kind, (number + 1) * UNIT_US, length_us, request, 0))
        else:
            super().happen((kind, number, length_us, request, 0))

    def wait_until(self, until_us: int) -> None:
        while self.now_us < until_us:
            assert self.plan is not None
            ends = [one.until_us for one in self.live.values()]
            edges = [edge for edge in self.edges if edge > self.now_us]
            self.now_us = max(self.now_us + 1, min([until_us, self.plan.next_us, *ends, *edges]))
            for key in [key for key, one in self.live.items() if one.until_us <= self.now_us]:
                self.end(key)
            self.cycle_and_check()

    def cycle_and_check(self) -> None:
        """One more cycle: none of the starts that have been promised is lost or later."""
        waiting = {job.job_id: job for job in self.jobs()}
        plan = self.cycle()
        started = {placement.job_id for placement in plan.placements}
        first = min([*started, *plan.bookings], default=0)
        for job_id, promised_us in list(self.promised.items()):
            if job_id not in waiting:
                del self.promised[job_id]
            elif job_id in started:
                del self.promised[job_id]
                assert self.now_us <= promised_us, (
                    f"job {job_id} starts at {self.now_us}, promised {promised_us}"
                )
            else:
                now_us = plan.start_us(job_id)
                is_kept = now_us is not None and now_us <= promised_us
                is_passed = self.policy == "easy" and first < job_id and not waiting[job_id].start_at_us
                assert is_kept or is_passed, (
                    f"job {job_id} was promised {promised_us}, now it is {now_us}: {plan.why(job_id).text}"
                )
                if not is_kept:
                    del self.promised[job_id]
        for job_id in plan.bookings:
            start_us = plan.start_us(job_id)
            assert start_us is not None
            self.promised[job_id] = start_us

    def jobs(self) -> Iterator[Pending]:
        for job_id in self.queue.ids():
            job = self.queue.find(job_id)
            assert job is not None
            yield job


@settings(max_examples=draws(200), deadline=None)
@given(
    st.sampled_from(sorted(BUILT_IN)),
    st.integers(2, 5),
    rules,
    st.sampled_from([1, 5, 1_000]),
    st.lists(events, min_size=4, max_size=20),
)
def test_no_later_job_delays_a_promised_one(
    policy: str, nodes: int, policies: list[Policy], refresh_us: int, history: list[Event]
) -> None:
    world = World(policy, nodes, policies, refresh_us=refresh_us)
    world.cycle_and_check()
    for event in history:
        world.happen(event)
        world.cycle_and_check()
    world.wait_until(world.now_us + 200 * UNIT_US)


simple = st.builds(Request, tasks=st.integers(1, 4), cpus_per_task=st.integers(1, 2))
crowd = st.lists(
    st.tuples(
        st.sampled_from(["submit"] * 8 + ["end", "cancel", "wait", "wait", "wait"]),
        st.integers(0, 40),
        st.integers(1, 60),
        simple,
        st.just(0),
    ),
    min_size=8,
    max_size=24,
)
kept = st.builds(
    lambda least, ways: FreePool("p", "cores", Amount(least), ways), st.integers(1, 6), access.filter(bool)
)


@settings(max_examples=draws(200), deadline=None)
@given(st.sampled_from(sorted(BUILT_IN)), st.integers(2, 5), kept, st.sampled_from([1, 1_000]), crowd)
def test_a_job_that_a_pool_lets_in_delays_no_promise_outside(
    policy: str, nodes: int, pool: FreePool, refresh_us: int, history: list[Event]
) -> None:
    world = World(policy, nodes, [pool], refresh_us=refresh_us)
    world.cycle_and_check()
    for event in history:
        world.happen(event)
        world.cycle_and_check()
    world.wait_until(world.now_us + 200 * UNIT_US)
