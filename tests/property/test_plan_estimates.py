"""Plans that count on estimates: nothing is overrun that must not be, and nothing that is held is given twice."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eslurm.core.model.accounts import KINDS, Amount, FreePool, Limit, Policy, Reservation, Validity, kind_of
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.placement import Placement
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.policies import BUILT_IN
from eslurm.core.plan.cycle.queue import Pending, PendingQueue
from eslurm.core.plan.cycle.reasons import WhyKind
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import NodeView, Running, RunningKey, Snapshot, changes_since
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from tests.support.profiles import draws

HOUR = 3_600_000_000
NOW = 1_000 * HOUR
GRACE_H = 3
AHEAD = ("conservative", "planned")
CLOSED = (NOW + 40 * HOUR, NOW + 55 * HOUR)
"""The time at which n0 is kept for others."""
POLICIES: tuple[Policy, ...] = (
    Reservation("others", Validity(*CLOSED), ("n0",), users=("bob",)),
    FreePool("fast", nodes="n1", validity=Validity(NOW + 90 * HOUR, NOW + 99 * HOUR)),
    Limit("short", "user", "ada", "cores", duration_s=25 * 3600),
    Limit("budget", "user", "ada", "cores", area_s=120 * 3600),
    Limit("five", "user", "eve", "cores", Amount(5)),
)
BY_KIND = {kind: {one.name: one for one in POLICIES if kind_of(one) == kind} for kind in KINDS}

requests = st.builds(Request, tasks=st.integers(1, 5), nodes_min=st.integers(0, 2))


class Site:
    """Three nodes of four cores under rules; jobs come, are estimated, outlive that, end; forecasts change."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.ledger = Ledger(Topology(NodeView(i, f"n{i}", (4, 0), True, ("all",)) for i in range(3)))
        self.queue = PendingQueue()
        self.live: dict[RunningKey, Running] = {}
        self.schedule = Schedule()
        self.now_us = NOW
        self.next_id = 1
        self.plan: Plan | None = None

    def submit(self, request: Request, limit_h: int, estimate_h: int, deadline_h: int, user: str) -> None:
        self.queue.add(
            Pending(
                self.next_id,
                request,
                "all",
                limit_h * HOUR,
                submitted_us=self.now_us,
                deadline_us=self.now_us + deadline_h * HOUR if deadline_h else 0,
                user=user,
                estimate_us=estimate_h * HOUR,
            )
        )
        self.next_id += 1

    def forecast(self, number: int, estimate_h: int) -> None:
        """Somebody, waiting or running, is expected to take so long now."""
        ids = sorted(self.queue.ids())
        keys = sorted(self.live)
        if not ids and not keys:
            return
        if number % (len(ids) + len(keys)) < len(ids):
            job = self.queue.find(ids[number % len(ids)])
            assert job is not None
            self.queue.replace(replace(job, estimate_us=estimate_h * HOUR))
            return
        key = keys[number % len(keys)]
        one = self.live[key]
        expected_us = min(one.since_us + estimate_h * HOUR, one.until_us) if estimate_h else 0
        self.live[key] = replace(one, expected_us=expected_us)

    def end(self, key: RunningKey) -> None:
        running = self.live.pop(key)
        for node, amounts in running.spans:
            self.ledger.give_back(node, amounts, running.until_us)

    def give_back(self, key: RunningKey) -> None:
        """One of its nodes, if it has several."""
        one = self.live[key]
        (node, amounts), *rest = one.spans
        if rest:
            self.ledger.give_back(node, amounts, one.until_us)
            self.live[key] = replace(one, spans=tuple(rest))

    def cycle(self) -> Plan:
        since = self.schedule.mark
        snapshot = Snapshot.take(
            self.ledger,
            {"all": PartitionView("all")},
            self.queue,
            generation=0,
            now_us=self.now_us,
            running=self.live,
            known=self.schedule.known_jobs(changes_since(since, self.queue, None)),
            policies=BY_KIND,
            policies_changed=1,
            since=since,
        )
        limits = PlanLimits(overdue_grace_us=GRACE_H * HOUR)
        self.plan = plan_at_once(snapshot, policy=self.policy, limits=limits, schedule=self.schedule)
        for placement in self.plan.placements:
            self._place(placement)
        self._check(self.plan)
        return self.plan

    def _place(self, placement: Placement) -> None:
        job = self.queue.remove(placement.job_id)
        assert placement.until_us == self.now_us + job.time_limit_us, "an attempt may stay until its limit"
        self._check_stay(job, self.now_us, (span.node for span in placement.spans))
        # Raises when anything of it is held by somebody else.
        for span in placement.spans:
            self.ledger.hold(span.node, span.amounts, placement.until_us)
        pairs = tuple((span.node, span.amounts) for span in placement.spans)
        key = (job.job_id, 1)
        self.live[key] = Running(
            job.job_id,
            pairs,
            placement.until_us,
            (),
            job,
            expected_us=self._expected_us(job, placement.until_us),
            since_us=self.now_us,
        )
        if job.user == "ada":
            self._check_budget()

    def _expected_us(self, job: Pending, until_us: int) -> int:
        """Some are expected to stay for longer than room was looked for."""
        return min(self.now_us + job.stay_us * (1 + job.job_id % 3), until_us) if job.estimate_us else 0

    def _check_stay(self, job: Pending, start_us: int, nodes: Iterable[int]) -> None:
        """Nothing that must not be overrun could be, if it used all its time."""
        stop_us = start_us + job.time_limit_us
        if job.user != "bob":
            for node, window in ((0, CLOSED), (1, (NOW + 90 * HOUR, NOW + 99 * HOUR))):
                assert node not in set(nodes) or stop_us <= window[0] or start_us >= window[1]
        assert not job.deadline_us or stop_us <= job.deadline_us
        assert job.user != "ada" or job.time_limit_us <= 25 * HOUR

    def _check_budget(self) -> None:
        """Check that the most that ada's jobs may still use, by their limits, is within her area."""
        area = sum(
            sum(amounts[0] for _, amounts in one.spans) * max(0, one.until_us - self.now_us)
            for one in self.live.values()
            if one.job is not None and one.job.user == "ada"
        )
        assert area <= 120 * HOUR

    def _check(self, plan: Plan) -> None:
        book, topology = self.schedule.book, self.ledger.topology
        book.check()
        for position, node in enumerate(topology.numbers):
            due = [
                span.amounts[0]
                for booking in plan.promises()
                if booking.start_us <= self.now_us
                for span in booking.spans
                if span.node == node
            ]
            free = book.free_on(node, self.now_us, self.now_us + 1)[0]
            assert free + sum(due) == self.ledger.free_on(position)[0]
        for held in self.schedule.held.values():
            assert self.now_us < held.booking.stop_us
            assert held.booking.stop_us <= max(held.running.until_us, self.now_us + GRACE_H * HOUR) or (
                held.running.until_us <= self.now_us
            )
        for job_id in self.queue.ids():
            assert plan.why(job_id).text
            if self.policy in AHEAD:
                assert plan.why(job_id).kind is not WhyKind.NOT_EXAMINED
        for booking in plan.promises():
            job = self.queue.find(booking.job_id)
            assert job is not None
            assert booking.stop_us - booking.start_us == job.stay_us
            self._check_stay(job, booking.start_us, (span.node for span in booking.spans))
        late = self.schedule.slack
        assert set(late.jobs()) <= set(self.queue.ids())
        assert set(late.late) | set(late.by) <= set(self.queue.ids())


kinds = st.sampled_from(
    ["submit"] * 5 + ["forecast"] * 3 + ["end", "part", "wait", "wait", "late", "out", "back"]
)
histories = st.lists(
    st.tuples(
        kinds,
        requests,
        st.integers(1, 40),
        st.integers(0, 45),
        st.sampled_from([0, 0, 0, 30, 80]),
        st.sampled_from(["ada", "bob", "eve"]),
    ),
    min_size=1,
    max_size=20,
)


def happen(site: Site, event: tuple[str, Request, int, int, int, str]) -> None:
    kind, request, length_h, number, deadline_h, user = event
    keys = sorted(site.live)
    if kind == "submit":
        site.submit(request, length_h, number, deadline_h, user)
    elif kind == "forecast":
        site.forecast(number, length_h if number % 4 else 0)
    elif kind == "end" and keys:
        site.end(keys[number % len(keys)])
    elif kind == "part" and keys:
        site.give_back(keys[number % len(keys)])
    elif kind in ("wait", "late"):
        site.now_us += length_h * HOUR
    elif kind in ("out", "back"):
        site.ledger.set_usable(number % 3, kind == "back")
    # Who has reached its limit is ended, unless its node is slow to say so.
    if kind != "late":
        for key in sorted(site.live):
            if site.live[key].until_us <= site.now_us:
                site.end(key)


@settings(max_examples=draws(80), deadline=None)
@given(st.sampled_from(sorted(BUILT_IN)), histories)
def test_nothing_is_overrun_and_the_book_keeps_in_step(
    policy: str, history: list[tuple[str, Request, int, int, int, str]]
) -> None:
    site = Site(policy)
    for event in history:
        happen(site, event)
        site.cycle()


def asks(tasks: int, limit_h: int) -> tuple[str, Request, int, int, int, str]:
    return "submit", Request(tasks=tasks), limit_h, 0, 0, "ada"


TWO_HOURS_LATER = ("wait", Request(), 2, 0, 0, "ada")


@settings(max_examples=draws(60), deadline=None)
@given(st.sampled_from(AHEAD), histories)
# The last two are planned one after the other, within ada's budget, and both are due when somebody looks again.
@example("conservative", [*[asks(1, 1)] * 3, *[asks(3, 1)] * 2, asks(4, 13), asks(4, 18), TWO_HOURS_LATER])
def test_no_arrival_makes_anybody_later(
    policy: str, history: list[tuple[str, Request, int, int, int, str]]
) -> None:
    """C-59, with estimates: what moves a start back is work that goes on, or another forecast, never who comes.

    Nor does it when who was let in front is seen to run, and expected to stay longer than room was looked for.
    """
    site = Site(policy)
    for event in history:
        happen(site, event)
        if event[0] != "submit":
            site.cycle()
            continue
        newcomer = site.queue.remove(site.next_id - 1)
        before = {booking.job_id: booking.start_us for booking in site.cycle().promises()}
        running = set(site.live)
        site.queue.add(newcomer)
        for _ in ("it comes", "it is seen to run"):
            after = {booking.job_id: booking.start_us for booking in site.cycle().promises()}
            for job_id, start_us in before.items():
                assert (job_id, 1) in site.live.keys() - running or after[job_id] <= start_us


crowds = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "submit", "wait", "end"]),
        st.sampled_from([Request(tasks=tasks) for tasks in (1, 2, 4, 5, 8, 12)]),
        st.integers(8, 40),
        st.integers(1, 12),
        st.just(0),
        st.sampled_from(["bob", "bob", "eve"]),
    ),
    min_size=8,
    max_size=25,
)


@settings(max_examples=draws(120), deadline=None)
@given(st.sampled_from(AHEAD), crowds)
def test_who_is_let_in_front_of_a_crowd_is_in_nobodys_way(
    policy: str, history: list[tuple[str, Request, int, int, int, str]]
) -> None:
    """C-59 where it is tight: many wait, room was looked for by less than is expected of what runs."""
    site = Site(policy)
    for event in history:
        happen(site, event)
        before = {booking.job_id: booking.start_us for booking in site.cycle().promises()}
        running = set(site.live)
        after = {booking.job_id: booking.start_us for booking in site.cycle().promises()}
        for job_id, start_us in before.items():
            assert (job_id, 1) in site.live.keys() - running or after[job_id] <= start_us


@settings(max_examples=draws(60), deadline=None)
@given(st.sampled_from(sorted(BUILT_IN)), histories)
def test_everybody_gets_a_turn(policy: str, history: list[tuple[str, Request, int, int, int, str]]) -> None:
    """However wrong the estimates were: once jobs end at their limits, all that can start at all does."""
    site = Site(policy)
    for event in history:
        happen(site, event)
        site.cycle()
    for node in range(3):
        site.ledger.set_usable(node, True)
    for _ in range(300):
        plan = site.cycle()
        ends = [one.until_us for one in site.live.values()]
        if not ends and plan.next_us > site.now_us + 1_000 * HOUR:
            break
        site.now_us = max(site.now_us, min([*ends, plan.next_us]))
        for key in sorted(site.live):
            if site.live[key].until_us <= site.now_us:
                site.end(key)
    for job_id in site.queue.ids():
        job = site.queue.find(job_id)
        assert job is not None
        never = plan.why(job_id).kind
        assert never in {WhyKind.LIMIT, WhyKind.DEADLINE, WhyKind.RESERVATION, WhyKind.NODES_UNAVAILABLE}, (
            job,
            plan.why(job_id),
        )
