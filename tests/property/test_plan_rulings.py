"""Rules that come and go over a kept plan: whom they do not bind keeps its place, and who is let go never gets later."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.core.model.accounts import KINDS, Amount, FreePool, Limit, Policy, Reservation, Validity, kind_of
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.plan.cycle.policies import BUILT_IN
from eslurm.core.plan.cycle.queue import Pending, PendingQueue
from eslurm.core.plan.cycle.reasons import WhyKind
from eslurm.core.plan.cycle.schedule import Booking, Schedule
from eslurm.core.plan.cycle.snapshot import Snapshot, build_ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US
from tests.kits.plan_building import NOW, nodes, runs
from tests.support.profiles import draws

AHEAD = ("conservative", "planned")
USERS = ("ada", "bob")

jobs = st.lists(
    st.tuples(
        st.sampled_from(USERS),
        st.integers(1, 3),
        st.integers(1, 3),
        st.integers(5, 60),
        st.sampled_from([1, 1, 4]),
    ),
    min_size=1,
    max_size=10,
)
"""(user, tasks, cores a task, time limit, tasks of an array)."""
validities = st.builds(
    lambda begin, length: (
        Validity(from_us=NOW + begin, until_us=NOW + begin + length) if begin else Validity()
    ),
    st.sampled_from([0, 0, 10, 40]),
    st.integers(5, 80),
)


def limits(name: str, users: st.SearchStrategy[str]) -> st.SearchStrategy[Policy]:
    amounts = st.builds(Amount, st.integers(0, 12))
    return st.builds(
        lambda user, amount, validity: Limit(name, "user", user, "cores", amount, validity=validity),
        users,
        amounts,
        validities,
    )


pools = st.builds(
    lambda items, validity: FreePool("p", "cores", Amount(items), validity=validity),
    st.integers(0, 8),
    validities,
)
reservations = st.builds(
    lambda node, begin, length: Reservation(
        "r", Validity(from_us=NOW + begin, until_us=NOW + begin + length), (f"n{node}",), users=("eve",)
    ),
    st.integers(0, 2),
    st.integers(1, 50),
    st.integers(1, 50),
)
rules = st.lists(
    st.one_of(limits("a", st.sampled_from(USERS)), limits("b", st.sampled_from(USERS)), pools, reservations),
    max_size=4,
    unique_by=lambda policy: policy.name,
)


class Site:
    """Three nodes of four cores that are taken for a while: the whole plan lies ahead."""

    def __init__(self, policy: str, waiting: list[tuple[str, int, int, int, int]]) -> None:
        self.policy = policy
        self.running = {(900 + number, 1): runs(number, 4, NOW + 20) for number in range(3)}
        self.ledger = build_ledger(Topology(nodes(3)), self.running.values())
        self.schedule = Schedule()
        self.queue = PendingQueue(
            Pending(
                number,
                Request(tasks=tasks, cpus_per_task=cores),
                "main",
                length_us,
                submitted_us=number,
                user=user,
                startable=startable,
            )
            for number, (user, tasks, cores, length_us, startable) in enumerate(waiting, 1)
        )
        self.changes = 0

    def plan(self, *policies: Policy) -> dict[int, list[int]]:
        """The planned starts under these policies, task by task."""
        self.changes += 1
        snapshot = Snapshot.take(
            self.ledger,
            {"main": PartitionView("main")},
            self.queue,
            generation=0,
            now_us=NOW + self.changes,
            running=self.running,
            known=self.queue.ids(),
            policies={kind: {one.name: one for one in policies if kind_of(one) == kind} for kind in KINDS},
            policies_changed=self.changes,
        )
        plan = plan_at_once(snapshot, policy=self.policy, schedule=self.schedule)
        self.schedule.book.check()
        assert plan.placements == ()
        self._check(policies, plan)
        return {
            job_id: sorted(booking.start_us for booking in bookings for _ in range(booking.tasks))
            for job_id, bookings in plan.bookings.items()
        }

    def _check(self, policies: tuple[Policy, ...], plan: Plan) -> None:
        """Nothing is planned against the rules, and all that waits has a place or a reason."""
        for job_id in self.queue.ids():
            assert job_id in plan.bookings or plan.why(job_id).kind is not WhyKind.NOT_EXAMINED
        promises = plan.promises()
        for at_us in {booking.start_us for booking in promises}:
            here = [one for one in promises if one.start_us <= at_us < one.stop_us]
            for policy in policies:
                if not isinstance(policy, Limit | FreePool | Reservation) or not _is_in_force(policy, at_us):
                    continue
                if isinstance(policy, Limit):
                    assert (
                        sum(_cores(one) for one in here if self._user(one) == policy.consumer)
                        <= policy.amount.items
                    )
                elif isinstance(policy, FreePool):
                    assert not here or sum(map(_cores, here)) <= 12 - policy.amount.items
                else:
                    assert not any(f"n{span.node}" in policy.nodes for one in here for span in one.spans)

    def _user(self, booking: Booking) -> str:
        job = self.queue.find(booking.job_id)
        assert job is not None
        return job.user


def _cores(booking: Booking) -> int:
    return sum(span.amounts[0] for span in booking.spans)


def _is_in_force(policy: Limit | FreePool | Reservation, at_us: int) -> bool:
    return policy.validity.from_us <= at_us < (policy.validity.until_us or INFINITY_US)


@settings(max_examples=draws(200), deadline=None)
@given(st.sampled_from(AHEAD), jobs, rules, limits("x", st.just("ada")))
def test_a_limit_makes_nobody_later_whom_it_does_not_bind(
    policy: str, waiting: list[tuple[str, int, int, int, int]], before: list[Policy], limit: Policy
) -> None:
    site = Site(policy, waiting)
    old = site.plan(*before)
    new = site.plan(*before, limit)
    for job_id, starts in old.items():
        job = site.queue.find(job_id)
        if job is not None and job.user != "ada":
            assert all(mine <= was for mine, was in zip(new[job_id], starts, strict=True))


@settings(max_examples=draws(200), deadline=None)
@given(st.sampled_from(AHEAD), jobs, rules, st.data())
def test_who_is_let_go_by_a_rule_never_gets_later(
    policy: str, waiting: list[tuple[str, int, int, int, int]], before: list[Policy], data: st.DataObject
) -> None:
    site = Site(policy, waiting)
    old = site.plan(*before)
    left = [one for one in before if data.draw(st.booleans())]
    new = site.plan(*left)
    for job_id, starts in old.items():
        assert len(new[job_id]) >= len(starts)
        assert all(mine <= was for mine, was in zip(new[job_id], starts, strict=False))


@settings(max_examples=draws(200), deadline=None)
@given(st.sampled_from(sorted(BUILT_IN)), jobs, st.lists(rules, min_size=2, max_size=4))
def test_no_plan_is_kept_against_the_rules(
    policy: str, waiting: list[tuple[str, int, int, int, int]], changes: list[list[Policy]]
) -> None:
    site = Site(policy, waiting)
    for policies in changes:
        site.plan(*policies)
