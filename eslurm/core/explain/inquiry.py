"""The answer to "why is my job not running?", from the cluster's state and the kept plan (C-49).

Reasons, expected start, and alternatives: in slices, on copies of the planner's data. Invariants: nothing here changes
state or schedule, and a waiting job gets at least one reason. After the first slice only records of that time are read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from eslurm.core.control.jobs.admission import admitted, checked, empty_of, first_priority, on_submit
from eslurm.core.control.jobs.dependency import open_dependencies
from eslurm.core.control.jobs.pack_requests import check_changed, is_whole
from eslurm.core.control.jobs.updating import accepted
from eslurm.core.control.planning import take_snapshot
from eslurm.core.explain import packs
from eslurm.core.explain.alternatives import TRIES_MAX, Alternative, alternatives
from eslurm.core.explain.own_reasons import expected_end_of, job_holder, older_agents, own_reasons
from eslurm.core.explain.part_variants import (
    is_gateways,
    named_with_job,
    named_with_part,
    only_part,
    with_part,
)
from eslurm.core.explain.request_variants import Choices
from eslurm.core.explain.whatif import WhatIf
from eslurm.core.explain.why import Holder, Reason, Sources, known_us, plan_reasons
from eslurm.core.model import ranges
from eslurm.core.model.accounts import Account
from eslurm.core.model.facts import JobSubmitted
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import Job, JobSpec
from eslurm.core.model.messages import Refused, SubmitJobs
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.pack import PackPlace
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle import reasons as explain
from eslurm.core.plan.cycle.packs import NoPlaces, PackQuery
from eslurm.core.plan.cycle.priority import Ranking, weighs
from eslurm.core.plan.cycle.queue import Follower, Pending, QueueEntry
from eslurm.core.plan.cycle.reasons import Why, WhyKind
from eslurm.core.plan.cycle.schedule import Booking, Schedule
from eslurm.core.plan.cycle.snapshot import Running, RunningKey
from eslurm.core.plan.placement.mapping import spans_of
from eslurm.core.plan.profile.search import PlacementQuery, Start
from eslurm.core.plan.rules.limits import Area, Consumer, Items
from eslurm.core.plan.rules.pools import KeptAmount, Licence
from eslurm.core.resources import bits
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.apply_jobs import record_of
from eslurm.core.state.cluster import State, task_slots
from eslurm.core.state.faults import standing
from eslurm.core.state.packs import followers
from eslurm.core.state.queue_entries import UNFORESEEN, pending_of

STRICT_POLICY = "fcfs"
"""The policy under which no job starts before those ahead."""
NAMES_MAX = 4
NODES_FEW = 1_000
"""Up to this number of nodes, queries for new amounts are cheap."""
REQUESTS_LOOKED_AT = 1_000
PACK_TRIES_MIN = 16
"""Plans made for alternatives to a large pack: each plans all of its members."""


class Answer(msgspec.Struct, frozen=True):
    """`reasons`: blocking ones first, the longest on top; then the filters of nodes, in their order.

    `start_us` 0: no start can be foretold. `is_estimate`: nothing is booked; it is the possible start behind earlier jobs.
    `nodes` are names, `ahead` counts the waiting jobs before it.
    """

    reasons: tuple[Reason, ...]
    start_us: int = 0
    is_estimate: bool = False
    nodes: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    ahead: int = 0


Inquiry: TypeAlias = Generator[None, None, Answer]


def why_waiting(
    state: State,
    schedule: Schedule,
    job: Job,
    now_us: int,
    *,
    said: Why | None = None,
    ranking: Ranking | None = None,
    with_alternatives: bool = True,
) -> Inquiry:
    """The reasons of a pending job. `said` is that of the last plan, `ranking` the planner's order of the queue."""
    return _Case(state, schedule, job, now_us, ranking).answer(said, with_alternatives=with_alternatives)


def would_wait(
    state: State, schedule: Schedule, spec: JobSpec, now_us: int, ranking: Ranking | None = None
) -> Inquiry:
    """The start of such a job if it were submitted now, and its waiting reasons. Raises `Refused`."""
    spec = admitted(state, spec, now_us)
    still_open, delayed_us = open_dependencies(state, spec, state.next_id)
    due_us = max(spec.begin_us, delayed_us)
    fact = JobSubmitted(0, spec, first_priority(state, spec), still_open, due_us if due_us > now_us else 0)
    draft = record_of(fact, now_us)
    return _Case(state, schedule, draft, now_us, ranking).answer(None, with_alternatives=False)


def would_wait_together(
    state: State, schedule: Schedule, message: SubmitJobs, now_us: int, ranking: Ranking | None = None
) -> Generator[None, None, tuple[Answer, ...]]:
    """The same for a submission that is one pack: the answer for each of its jobs. Raises `Refused`."""
    submitted, _ = on_submit(state, message, now_us)
    drafts = [record_of(fact, now_us) for fact in submitted if isinstance(fact, JobSubmitted)]
    # Ids below 1: none of them is a job's.
    jobs = [msgspec.structs.replace(draft, job_id=-index) for index, draft in enumerate(drafts)]
    known, place = {job.job_id: job for job in jobs}, jobs[0].pack
    assert place is not None
    counts, phases_us = state.config.use_forecasts, state.phases_us
    others = followers({place.pack_id: tuple(known)}, known, jobs[0], counts=counts, phases_us=phases_us)
    case = _Case(state, schedule, jobs[0], now_us, ranking, others)
    first = yield from case.answer(None, with_alternatives=False)
    return first, *[case.of_draft(job) for job in jobs[1:]]


class _Case:
    """One inquiry about one job, and the others of its pack."""

    def __init__(
        self,
        state: State,
        schedule: Schedule,
        job: Job,
        now_us: int,
        ranking: Ranking | None,
        followers: tuple[Follower, ...] = (),
    ) -> None:
        self._state = state
        self._schedule = schedule
        self._job = job
        self._now_us = now_us
        snapshot = take_snapshot(state, now_us, None, ranking)
        self._whatif = WhatIf(snapshot, schedule, job.job_id)
        self._sources = _Sources(state, snapshot.running)
        ready = state.queue.find(job.job_id) or state.later.find(job.job_id)
        self._pending = ready if ready is not None else self._pending_of(job, job.spec)
        if followers:
            self._pending = msgspec.structs.replace(self._pending, followers=followers)
        # Of a pack that has none: those that it would get.
        self._places: tuple[Booking, ...] = ()
        self._own = own_reasons(state, schedule, job)
        self._from_us = self._ready_us()
        self._ahead = self._before_it(snapshot.pending)
        # Whether all that comes first is in the copy's book.
        self._is_foreseen = True

    def answer(self, said: Why | None, *, with_alternatives: bool) -> Inquiry:
        """See `why_waiting`."""
        yield
        whatif = self._whatif
        place = self._job.pack
        if place is not None and place.waits_for_first:
            return self._of_follower(place)
        if self._pending.followers:
            return (yield from self._of_pack(said, with_alternatives=with_alternatives))
        query = whatif.query(self._pending)
        if not isinstance(query, Why):
            yield from whatif.preparing(query)
        found = yield from plan_reasons(whatif, self._pending, query, self._sources.port())
        reasons = [*self._own, *found, *older_agents(self._state, self._job)]
        start_us, nodes, is_estimate = yield from self._start(query)
        reasons = self._completed(reasons, said, start_us) + self._overrun()
        others: list[Alternative] = []
        if with_alternatives and self._job.job_id and not self._own:
            others = yield from self._others(start_us, _deciding(reasons))
        return Answer(tuple(_sorted(reasons)), start_us, is_estimate, nodes, tuple(others), len(self._ahead))

    # ---- packs ----

    def _of_follower(self, place: PackPlace) -> Answer:
        """A job whose pack has not begun starts with it."""
        reason, booking = packs.of_follower(self._schedule, place, self._job.job_id)
        reasons = tuple(_sorted([*self._own, reason]))
        if booking is None:
            return Answer(reasons)
        return Answer(reasons, booking.start_us, False, self._names(span.node for span in booking.spans))

    def of_draft(self, job: Job) -> Answer:
        """Another job of a pack that is not submitted, once the first one has its answer."""
        assert job.pack is not None
        reason = packs.of_draft(job.pack)
        booking = next((one for one in self._places if one.job_id == job.job_id), None)
        if booking is None:
            return Answer((reason,))
        nodes = self._names(span.node for span in booking.spans)
        return Answer(
            (msgspec.structs.replace(reason, until_us=booking.start_us),), booking.start_us, True, nodes
        )

    def _of_pack(self, said: Why | None, *, with_alternatives: bool) -> Inquiry:
        """The first job of a pack that has not begun: the member that decides the start of all, and its reasons."""
        whatif, job = self._whatif, self._pending
        pack = whatif.pack(job)
        start_us, nodes, is_estimate, member = yield from self._start_of_pack(pack)
        if said is not None and said.member >= 0:
            member = said.member
        sources = self._sources.port()
        found = yield from packs.reasons_of(whatif, job, pack, member, sources)
        if said is not None:
            words = f"{packs.words_of(job, said.member)}: " if said.member >= 0 else ""
            said = msgspec.structs.replace(said, text=words + packs.own_text(said))
        reasons = self._completed([*self._own, *found], said, start_us) + self._overrun()
        others: list[Alternative] = []
        if with_alternatives and self._job.job_id > 0 and not self._own and member >= 0:
            others = yield from self._others(start_us, _deciding(reasons), member)
        return Answer(tuple(_sorted(reasons)), start_us, is_estimate, nodes, tuple(others), len(self._ahead))

    def _start_of_pack(
        self, pack: PackQuery | Why
    ) -> Generator[None, None, tuple[int, tuple[str, ...], bool, int]]:
        """(start of the first, names of its nodes, is it an estimate, the member that decides)."""
        whatif = self._whatif
        if isinstance(pack, Why):
            return 0, (), True, pack.member
        if whatif.was:
            first, member, is_estimate = whatif.was[0], -1, False
        else:
            if self._from_us is None:
                return 0, (), True, -1
            if self._job.job_id not in whatif.schedule.stuck:
                strict = self._state.config.policy == STRICT_POLICY
                self._is_foreseen = yield from whatif.plan_ahead(self._ahead, strict=strict)
            found = yield from packs.first_places(whatif, self._pending, pack, self._from_us)
            if isinstance(found, NoPlaces):
                return 0, (), True, found.member
            first, member, is_estimate = found.bookings[0], found.member, True
            if not self._is_foreseen:
                return 0, (), True, member
            self._places = found.bookings
        return first.start_us, self._names(span.node for span in first.spans), is_estimate, member

    # ---- when ----

    def _ready_us(self) -> int | None:
        """Earliest time at which the job waits for resources only, as far as it is foreseeable."""
        job, state = self._job, self._state
        if job.hold:
            return None
        from_us = max(self._now_us, job.not_before_us)
        if not job.open:
            return from_us
        ends = [
            0 if one.kind in UNFORESEEN else one.due_us or expected_end_of(state, self._schedule, one)
            for one in job.open
        ]
        if job.spec.dependency_any:
            known = [end_us for end_us in ends if end_us]
            return max(from_us, min(known)) if known else None
        return max(from_us, *ends) if all(ends) else None

    def _before_it(self, pending: Sequence[QueueEntry]) -> Sequence[QueueEntry]:
        """Waiting jobs ahead; for a job outside the queue those of at least its priority."""
        for at, entry in enumerate(pending):
            if entry.job_id == self._job.job_id:
                return pending[:at]
        if weighs(self._state.config.priority) and not self._job.job_id:
            # Its priority is not computed yet: it has just come.
            return pending
        return [entry for entry in pending if -entry.rank >= self._job.priority]

    def _start(self, query: PlacementQuery | Why) -> Generator[None, None, tuple[int, tuple[str, ...], bool]]:
        """(start, names of nodes, is it an estimate); 0: none can be foretold."""
        whatif = self._whatif
        if whatif.was:
            first = min(whatif.was, key=lambda booking: booking.start_us)
            return first.start_us, self._names(span.node for span in first.spans), False
        if self._from_us is None:
            return 0, (), True
        if self._job.job_id not in whatif.schedule.stuck:
            strict = self._state.config.policy == STRICT_POLICY
            self._is_foreseen = yield from whatif.plan_ahead(self._ahead, strict=strict)
        if not self._is_foreseen or isinstance(query, Why):
            return 0, (), True
        found = whatif.find(query, self._pending, self._from_us)
        yield
        if found is None:
            return 0, (), True
        spans = spans_of(whatif.schedule.book.topology, query.need, found.chosen)
        return found.at_us, self._names(span.node for span in spans), True

    def _names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        topology = self._whatif.schedule.book.topology
        positions = (topology.positions.get(number) for number in numbers)
        # Two parts may share a node.
        return tuple(
            dict.fromkeys([topology.names[position] for position in positions if position is not None])
        )

    # ---- what is said ----

    def _completed(self, found: list[Reason], said: Why | None, start_us: int) -> list[Reason]:
        """The reasons, completed by the plan's; never empty."""
        if any(not one.nodes_of for one in found):
            return found
        why = said
        if why is not None and why.kind is not WhyKind.NOT_EXAMINED:
            return [Reason(why.kind.value, why.text, why.planned_start_us or start_us), *found]
        problem = self._never()
        if problem:
            return [Reason("never", problem), *found]
        if self._job.job_id and self._ahead and start_us > self._now_us:
            why = explain.behind(self._ahead[0].job_id)
        elif self._job.job_id:
            why = Why(WhyKind.NOT_EXAMINED, "nothing is in its way: the next plan looks at it")
        else:
            return found
        return [Reason(why.kind.value, why.text, start_us), *found]

    def _overrun(self) -> list[Reason]:
        """The reason that a job overran and moved this one's planned start."""
        late_id = self._schedule.slack.by.get(self._job.job_id)
        job = self._state.find_job(late_id) if late_id is not None else None
        if job is None or job.attempt is None:
            return []
        holder = job_holder(self._state, self._schedule, job.job_id)
        text = f"its planned start moved: job {job.job_id} runs longer than expected"
        return [Reason("overrun", text, holder.until_us, holders=(holder,))]

    def _never(self) -> str:
        """The text with which the job would be refused now, because nodes or rules have changed; else empty."""
        try:
            checked(self._state, self._job.spec, self._now_us, self._job.spec.user)
        except Refused as refused:
            return refused.text
        return ""

    # ---- what else ----

    def _others(self, start_us: int, part: int, member: int = -1) -> Generator[None, None, list[Alternative]]:
        """Alternatives; to a job of several parts those to the request of `part`, which waits longest, and to a pack those
        to the job of the `member` that decides its start.
        """
        job, partitions = self._job_of(member), self._state.config.partitions
        spec = job.spec
        if self._from_us is None or (part < 0 and len(spec.components) > 1):
            return []
        if not self._is_foreseen:
            # Too many come first: what is found would not hold.
            return []
        varied = only_part(spec, part) if part >= 0 else spec
        others = [one.name for one in partitions if one.up and not one.role and one.name != varied.partition]
        memories_mib, cores = self._asked(varied.components[0])
        only_time = is_gateways(spec, part)
        found = yield from alternatives(
            varied,
            start_us or INFINITY_US,
            self._now_us,
            lambda one: self._plan(with_part(spec, part, one), job, member),
            lambda one: self._admit(job, one, part),
            Choices(others, self._types, self._outside, memories_mib, cores, only_time),
            max(PACK_TRIES_MIN, TRIES_MAX // (1 + len(self._pending.followers))),
        )
        found = [named_with_part(one, spec, part) for one in found]
        return [named_with_job(one, job.job_id) for one in found] if member >= 0 else found

    def _job_of(self, member: int) -> Job:
        """The job of a member of the pack that has not begun; -1: the job itself."""
        return self._state.get_job(self._pending.members[member].job_id) if member >= 0 else self._job

    def _types(self, partition: str, resource: str) -> list[str]:
        """Types of a resource's items on a partition's nodes, those free on most nodes first."""
        topology, ledger = self._whatif.schedule.book.topology, self._whatif.cycle.ledger
        if resource not in topology.resources:
            return []
        members = topology.partitions.get(partition, 0)
        free = ledger.fitting((0,) * topology.resources.index(resource) + (1,)) & ledger.usable & members
        prefix = f"{resource}:"
        found = [
            (-(mask & free).bit_count(), word.removeprefix(prefix))
            for word, mask in topology.features.items()
            if word.startswith(prefix) and mask & members
        ]
        return [kind for _, kind in sorted(found)]

    def _outside(self, partition: str, constraint: str) -> int:
        topology = self._whatif.schedule.book.topology
        members = topology.partitions.get(partition, 0)
        return (members & ~topology.mask_of_constraint(constraint)).bit_count()

    def _asked(self, request: Request) -> tuple[list[int] | None, list[int] | None]:
        """(memory, cores): on a large cluster amounts that other jobs request, since the profile has rows for those and
        reads each new one from all nodes. None: any.
        """
        if self._whatif.schedule.book.topology.size <= NODES_FEW:
            return None, None
        entries = self._whatif.snapshot.pending[:REQUESTS_LOOKED_AT]
        requests = [entry.job.request for entry in entries]
        if request.chunks:
            chunks = [chunk for one in requests for chunk in one.chunks]
            return [chunk.memory_mib for chunk in chunks], [chunk.cores for chunk in chunks]
        cores = [one.cpus_per_task for one in requests]
        if request.memory_per_node_mib:
            return [one.memory_per_node_mib for one in requests], cores
        alike = [one for one in requests if one.cpus_per_task == request.cpus_per_task]
        return [one.memory_per_cpu_mib for one in alike], cores

    def _plan(self, spec: JobSpec, job: Job, member: int) -> Generator[None, None, Start | None]:
        assert self._from_us is not None
        changed = self._pending_of(job, spec)
        if member < 0:
            return (yield from self._whatif.start(changed, self._from_us))
        pack = packs.with_member(self._pending, member, changed)
        return (yield from packs.first_start(self._whatif, pack, member, self._from_us))

    def _admit(self, job: Job, varied: JobSpec, part: int) -> JobSpec | None:
        """The request as it would be accepted as an update now; None when it is refused."""
        spec = with_part(job.spec, part, varied)
        try:
            found = accepted(self._state, spec, job.spec, self._now_us, spec.user)
            if is_whole(job):
                check_changed(self._state, job, found, self._now_us, empty_of(self._state))
        except Refused:
            return None
        return only_part(found, part) if part >= 0 else found

    def _pending_of(self, job: Job, spec: JobSpec) -> Pending:
        job = msgspec.structs.replace(job, spec=spec)
        tasks = ranges.count(job.tasks_left) if job.tasks_left is not None else 1
        tasks = max(1, min(tasks, task_slots(job)))
        state = self._state
        return pending_of(job, tasks, use_forecasts=state.config.use_forecasts, phases_us=state.phases_us)


def _deciding(reasons: Iterable[Reason]) -> int:
    """The part of a job of several parts that waits longest, as far as nodes are concerned; -1: none alone."""
    found = [one for one in reasons if one.part >= 0]
    return max(found, key=lambda one: one.until_us or INFINITY_US).part if found else -1


def _sorted(reasons: Iterable[Reason]) -> list[Reason]:
    """Blocking reasons, those without a known end first; then the filters."""
    found = list(reasons)
    blocking = [one for one in found if not one.nodes_of]
    blocking.sort(key=lambda one: -(one.until_us or INFINITY_US))
    return blocking + [one for one in found if one.nodes_of]


# ---- holders ----


class _Sources:
    """The jobs on nodes, as of the snapshot."""

    def __init__(self, state: State, running: Mapping[RunningKey, Running]) -> None:
        self._state = state
        self._running = running

    def port(self) -> Sources:
        return Sources(self.on_nodes, self.out_of_service, self.users_of)

    def on_nodes(self, mask: int) -> list[Holder]:
        """The jobs that hold something on these positions."""
        state = self._state
        numbers = state.ledger.topology.numbers
        # Nodes of one job share one set: each set is looked into once.
        counts: dict[int, int] = {}
        sets: dict[int, frozenset[int]] = {}
        for position in bits.all_positions(mask):
            jobs = state.jobs_on.get(numbers[position])
            if jobs is not None:
                counts[id(jobs)] = counts.get(id(jobs), 0) + 1
                sets[id(jobs)] = jobs
        nodes: dict[int, int] = {}
        for key, count in counts.items():
            for job_id in sets[key]:
                nodes[job_id] = nodes.get(job_id, 0) + count
        return [
            Holder(f"job {job_id}", job_id, count, self._until_us(job_id)) for job_id, count in nodes.items()
        ]

    def _until_us(self, job_id: int) -> int:
        job = self._state.find_job(job_id)
        return known_us(job.attempt.until_us) if job is not None and job.attempt is not None else 0

    def out_of_service(self, mask: int) -> str:
        """`out of service: 2 down (cn[001-002]), 1 drained (cn7: new memory)`."""
        state = self._state
        numbers = state.ledger.topology.numbers
        groups: dict[tuple[str, str], list[str]] = {}
        for position in bits.all_positions(mask):
            node = state.nodes.get(numbers[position])
            if node is None:
                continue
            if node.number in state.removed:
                word = "removed"
            elif node.state is NodeState.UP:
                word = "drained" if node.drain else "with a fault"
            else:
                word = node.state.value.lower()
            reason = "; ".join(filter(None, (node.reason, standing(node))))
            groups.setdefault((word, reason), []).append(node.name)
        parts = []
        for (word, reason), names in sorted(groups.items(), key=lambda item: -len(item[1])):
            named = fold(names[:NAMES_MAX]) + (", ..." if len(names) > NAMES_MAX else "")
            parts.append(f"{len(names)} {word} ({named}{f': {reason}' if reason else ''})")
        shown = parts[:NAMES_MAX] + (
            [f"{len(parts) - NAMES_MAX} more kinds"] if len(parts) > NAMES_MAX else []
        )
        return f"out of service: {', '.join(shown)}"

    def users_of(self, constraint: object) -> list[Holder]:
        """The running jobs that a rule counts."""
        if isinstance(constraint, Items | Area):
            counted = self._bound_by(constraint.ask.consumer)
            resource = constraint.ask.resource
        elif isinstance(constraint, KeptAmount):
            counted, resource = _anybody, constraint.pool.resource
        elif isinstance(constraint, Licence):
            counted, resource = _anybody, constraint.name
        else:
            return []
        amount = self._amount_of(resource)
        found = []
        for one in self._running.values():
            items = amount(one)
            if items and one.job is not None and counted(one.job):
                what = f"job {one.job_id}, {items} {resource}"
                found.append(Holder(what, one.job_id, len(one.spans), known_us(one.until_us)))
        return found

    def _amount_of(self, resource: str) -> Callable[[Running], int]:
        topology = self._state.ledger.topology
        if resource in topology.wide:
            at = topology.wide.index(resource)
            return lambda one: one.wide[at] if at < len(one.wide) else 0
        if resource in topology.resources:
            at = topology.resources.index(resource)
            return lambda one: sum(amounts[at] for _, amounts in one.spans if at < len(amounts))
        return lambda one: len(one.spans)

    def _bound_by(self, consumer: Consumer) -> Callable[[Pending], bool]:
        kind, name = consumer
        match kind:
            case "user":
                return lambda job: job.user == name
            case "group":
                return lambda job: name in job.groups
            case "qos":
                return lambda job: job.qos == name
            case "partition":
                return lambda job: name in job.partitions
            case _:
                return lambda job: name in self._accounts_above(job.account)

    def _accounts_above(self, name: str) -> set[str]:
        found: set[str] = set()
        while name and name not in found:
            found.add(name)
            account = self._state.policies["account"].get(name)
            name = account.parent if isinstance(account, Account) else ""
        return found


def _anybody(_job: Pending) -> bool:
    return True
