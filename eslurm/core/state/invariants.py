"""Invariants that hold after every fact. Raises `InvariantViolation`; changes nothing.

`check_job` examines one record; `check` walks everything, indexes included (tests, simulation and replay). A live
controller is checked in pieces instead: see `core.doctor`.
"""

from __future__ import annotations

from typing import Protocol

from eslurm.core.model import ranges
from eslurm.core.model.accounts import kind_of
from eslurm.core.model.controller_phases import UNDER_WAY, PhaseStage
from eslurm.core.model.gateways import GatewayStage
from eslurm.core.model.job import Attempt, Job, Span
from eslurm.core.model.job_states import ACTIVE, FINAL, STARTED, AttemptPhase, JobState
from eslurm.core.model.job_weight import weight
from eslurm.core.model.member import JOIN_TOKEN
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.parts import gateway_nodes, part_ids
from eslurm.core.model.step import StepState
from eslurm.core.model.step_key import EPILOG
from eslurm.core.model.token import TOKEN
from eslurm.core.resources.devices import Devices
from eslurm.core.resources.vector import aligned, subtract
from eslurm.core.state import pack_invariants, packs
from eslurm.core.state.allocation_amounts import shares_of, spans_in_use
from eslurm.core.state.boundaries import TIMER
from eslurm.core.state.cluster import (
    State,
    attempts_of,
    is_older,
    is_usable,
    name_key,
    owed_revisions,
    task_slots,
    waits,
)
from eslurm.core.state.job_counts import JobCounts
from eslurm.core.state.job_indexes import all_wait, has_wish
from eslurm.core.state.members import Members
from eslurm.core.state.queue_entries import foreseeable, running_of
from eslurm.core.state.references import References

_EPILOG = (PhaseStage.WAITING, PhaseStage.RUNNING)
PACK_NOT_BEGUN = "PackNotBegun"
"""Reason of a member that starts after the first of its pack, which waits."""


class InvariantViolation(AssertionError):
    """The state contradicts itself: a bug. The text names the record and the rule."""


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise InvariantViolation(what)


def check_job(state: State, job: Job) -> None:
    """Check one job's record."""
    name = f"job {job.job_id} ({job.state.value})"
    attempt = job.attempt
    live = job.state in ACTIVE
    _require((attempt is not None) == live, f"{name} has {'no' if attempt is None else 'an'} attempt")
    _require(job.state not in FINAL or job.outcome is job.state, f"{name} has the outcome {job.outcome}")
    for held in attempts_of(job):
        nodes = {span.node for span in held.spans}
        _require(held.held <= nodes, f"{name} holds nodes outside its spans")
        _check_parts(job, held, name)
        gone = held.gone
        _require(
            not gone & held.held and gone <= nodes, f"{name} goes on without nodes that it holds or never had"
        )
        given = {node for _, node in held.given}
        missed = gone if not job.spec.no_kill else gone & {held.first}
        _require(missed <= given, f"{name} goes on without {missed}")
        _require(bool(held.held), f"{name} keeps a residue that holds nothing")
    if attempt is not None:
        _require(
            attempt.number == job.attempts, f"{name} lives in attempt {attempt.number} of {job.attempts}"
        )
        running = attempt.phase is AttemptPhase.RUNNING
        _require(running == (job.state in STARTED), f"{name} is in phase {attempt.phase.value}")
        still = job.state is JobState.SUSPENDED
        _require(not running or still == bool(attempt.suspended_us), f"{name} stands still: {not still}")
        _require(attempt.informing <= attempt.held, f"{name} is to tell nodes that it does not hold")
        preparing = attempt.preparing
        may_prepare = attempt.phase is AttemptPhase.PREPARING and preparing <= attempt.waiting
        _require(not preparing or may_prepare, f"{name} prepares nodes that it does not wait for")
        if job.spec.gateway is not None or attempt.gateway is not None:
            _check_gateways(job, attempt, name)
        settles = attempt.phase is AttemptPhase.SETTLING
        _require(settles or bool(attempt.held), f"{name} keeps an attempt that holds nothing")
        _require(not settles or not attempt.held, f"{name} settles and holds nodes")
        if settles or attempt.controller is not None:
            _check_controller_phase(attempt, name)
    for residue in job.residues:
        _require(residue.end is None and not residue.started_us, f"{name} left a residue that ran its script")
    if job.state is JobState.PENDING:
        in_queue = job.job_id in state.queue
        _require(in_queue == bool(waits(job) and state.startable(job)), f"{name} in queue: {in_queue}")
        _require(in_queue or bool(pending_reason(state, job)), f"{name} waits without a reason")
    if job.is_array:
        _check_array(state, job, name)
    said = job.forecast
    is_sane = said is None or (1 <= said.p10_s <= said.p50_s <= said.p90_s and said.estimate_s >= 1)
    _require(is_sane, f"{name} is foretold {said}")
    _require(said is not None or not job.first_estimate_s, f"{name} was estimated, and has no forecast")


def _check_parts(job: Job, attempt: Attempt, name: str) -> None:
    """Check that every part has its place, in the parts' order, and none a node twice."""
    parts = len(job.spec.components)
    _require(len(job.spec.parts) in (0, parts), f"{name} has {parts} requests, {len(job.spec.parts)} parts")
    if parts == 1 and not attempt.has_parts:
        _require(len(set(attempt.nodes)) == len(attempt.spans), f"{name} has a node twice")
        return
    order = [span.component for span in attempt.spans]
    _require(order == sorted(order), f"{name} has its parts in the order {order}")
    _require(
        set(order) == set(range(parts)), f"{name} has places for the parts {sorted(set(order))} of {parts}"
    )
    places = {(span.component, span.node) for span in attempt.spans}
    _require(len(places) == len(attempt.spans), f"{name} has a node twice in one part")
    _check_finished(attempt, places, parts, name)


def _check_finished(attempt: Attempt, places: set[tuple[int, int]], parts: int, name: str) -> None:
    """Check what finished parts have left: nothing is given back twice, and no held node is without a use."""
    finished, leaving, given = attempt.finished, attempt.leaving, attempt.given
    in_order = len(set(finished)) == len(finished) and all(0 < part < parts for part in finished)
    _require(in_order, f"{name} has given back the parts {finished}")
    mine = given <= places and all(part in finished for part, _ in given)
    _require(mine, f"{name} has given back {sorted(given - places)}, or more than its finished parts")
    _require(leaving <= attempt.held, f"{name} waits for nodes that it does not hold")
    used = {node for _, node in places - given}
    _require(attempt.held <= used, f"{name} holds nodes of which it has given everything back")
    kept = {span.node for span in attempt.spans if span.component not in finished}
    _require(not leaving & kept, f"{name} ends nodes that other parts use: {sorted(leaving & kept)}")


def _check_gateways(job: Job, attempt: Attempt, name: str) -> None:
    """Check that the script starts only when every gateway has told its address and the routes are written."""
    gateway, request = attempt.gateway, job.spec.gateway
    assert request is not None, f"{name} has gateways that it has not asked for"
    nodes = set(gateway_nodes(job.spec, attempt))
    _require(len(nodes) == request.count, f"{name} holds {len(nodes)} gateways of {request.count}")
    if attempt.phase is AttemptPhase.PREPARING:
        _require((gateway is None) == bool(attempt.waiting), f"{name} waits for {attempt.waiting}, {gateway}")
    elif attempt.phase in (AttemptPhase.STARTING, AttemptPhase.RUNNING):
        _require(gateway is not None and gateway.stage == GatewayStage.READY, f"{name} starts with {gateway}")
    else:
        _require(gateway is None, f"{name} ends with {gateway}")
    if gateway is None:
        return
    is_ready = gateway.stage == GatewayStage.READY
    _require(is_ready == (attempt.phase is not AttemptPhase.PREPARING), f"{name} waits with {gateway}")
    _require(is_ready == (not gateway.until_us), f"{name} has the stage {gateway.stage} for ever")
    told = {number for number, _ in gateway.addresses}
    _require(told <= nodes and gateway.waiting <= attempt.held, f"{name} has the gateways {gateway}")
    is_complete = gateway.stage not in (GatewayStage.ROUTES, GatewayStage.READY) or told == nodes
    _require(is_complete, f"{name} has addresses of {told}, its gateways are {nodes}")


def _check_controller_phase(attempt: Attempt, name: str) -> None:
    """Check that nothing reaches a node before the prolog has ended well, and that the epilog follows the last node."""
    phase = attempt.controller
    assert phase is not None, f"{name} settles without a phase"
    what = f"{name} is {attempt.phase.value} with {phase}"
    _require(phase.stage not in UNDER_WAY or phase.run > 0, what)
    stages: tuple[PhaseStage, ...]
    if attempt.phase is AttemptPhase.SETTLING:
        stages = _EPILOG if phase.name == EPILOG else (PhaseStage.ENDING,)
    elif attempt.phase is AttemptPhase.PREPARING:
        # A prolog that failed ends its attempt with the next fact.
        stages = (*_EPILOG, PhaseStage.OVER, PhaseStage.FAILED)
    else:
        stages = (PhaseStage.OVER,)
    _require(phase.stage in stages, what)
    _require((phase.name == EPILOG) <= (attempt.phase is AttemptPhase.SETTLING), what)
    if attempt.awaits_prolog:
        untouched = attempt.waiting == attempt.held and not attempt.preparing and attempt.gateway is None
        _require(untouched and attempt.stop is None, f"{what} and its nodes have heard of it")


def _check_array(state: State, job: Job, name: str) -> None:
    assert job.tasks_left is not None and job.spec.array is not None
    live = sum(
        state.jobs[task].attempt is not None
        for task in state.tasks_of.get(job.job_id, ())
        if task in state.jobs
    )
    _require(live == job.tasks_running, f"{name} counts {job.tasks_running} running tasks, there are {live}")
    overlap = ranges.intersection(job.tasks_left, job.tasks_ok) + ranges.intersection(
        job.tasks_left, job.tasks_failed
    )
    _require(not overlap, f"{name} has tasks that wait and have ended: {overlap}")


class Startable(Protocol):
    """The state, or the committed view."""

    def startable(self, job: Job) -> int:
        """See `job_indexes.startable`."""


def pending_reason(jobs: Startable, job: Job) -> str:
    """The reason why a pending job is not in the queue; "" when it is."""
    if job.hold:
        held = {"user": "JobHeldUser", "account": "JobHeldAdmin", "admin": "JobHeldAdmin"}
        return held.get(job.hold, "JobHeldSystem")
    if job.pack is not None and job.pack.waits_for_first:
        return PACK_NOT_BEGUN
    if all_wait(job):
        return "Dependency"
    if job.not_before_us:
        return "BeginTime"
    if job.is_array and not ranges.count(job.tasks_left or ()):
        return "TasksRunning"
    if (
        job.is_array
        and job.tasks_ready is not None
        and not ranges.intersection(job.tasks_left or (), job.tasks_ready)
    ):
        return "Dependency"
    if (job.is_array or job.array_job_id) and not jobs.startable(job):
        return "JobArrayTaskLimit"
    if job.pack is not None and not jobs.startable(job):
        return PACK_NOT_BEGUN
    return ""


def _hold(devices: Devices, job_id: int, span: Span) -> None:
    try:
        devices.hold(span.node, span.devices)
    except ValueError as error:
        raise InvariantViolation(f"job {job_id}: {error}") from None


def check(state: State) -> None:
    """Check everything, indexes included. Time proportional to the whole state."""
    state.ledger.check()
    held: dict[int, list[tuple[tuple[int, ...], int]]] = {}
    owed: dict[int, int] = {}
    devices = Devices()
    wide = state.ledger.topology.wide_totals
    jobs_on: dict[int, set[int]] = {}
    for job_id, job in state.jobs.items():
        _require(job.job_id == job_id < state.next_id, f"job {job_id} is filed wrongly")
        check_job(state, job)
        for attempt in attempts_of(job):
            if attempt.held:
                wide = subtract(wide, aligned(attempt.wide, len(wide)))
            for number, share in shares_of(attempt):
                amounts = aligned(share, len(state.ledger.free(number)))
                held.setdefault(number, []).append((amounts, attempt.until_us))
                jobs_on.setdefault(number, set()).add(job_id)
            for span in spans_in_use(attempt):
                if span.node in attempt.held:
                    _hold(devices, job_id, span)
            for revision in owed_revisions(attempt):
                _require(0 < revision <= state.revision, f"job {job_id} owes revision {revision}")
                owed[revision] = job_id
    _require(owed == state.owed, "the index of owed effects disagrees with the jobs")
    _require(jobs_on == state.jobs_on, "the index of jobs per node disagrees with the jobs")
    _require(devices == state.devices, "the devices in use are not those that jobs hold")
    wide = tuple(max(0, free) for free in wide)
    _require(wide == state.ledger.wide_free, f"licences free: {state.ledger.wide_free}, by the jobs {wide}")
    lending = {job.job_id for job in state.jobs.values() if job.attempt is not None and job.attempt.room_for}
    _require(lending == state.lending, "the index of jobs that make room disagrees with the jobs")
    phased = {number: node.phases for number, node in state.nodes.items() if node.phases}
    _require(phased == state.phased, "the index of nodes with phases disagrees with the nodes")
    for position, number in enumerate(state.ledger.topology.numbers):
        node = state.nodes[number]
        booked = sorted((amounts, until) for until, amounts in state.ledger.holds_on(position))
        _require(booked == sorted(held.get(number, [])), f"node {node.name}: the ledger holds {booked}")
        usable = bool(state.ledger.usable >> position & 1)
        _require(
            usable == (is_usable(node) and number not in state.removed), f"node {node.name} usable: {usable}"
        )
        older = bool(state.ledger.older >> position & 1)
        _require(older == is_older(node), f"node {node.name} with an older agent: {older}")
    login = {state.numbers[name] for name in state.config.login_nodes}
    _require(login == state.login, "the index of login hosts disagrees with the configuration")
    for number in login:
        is_free = number not in state.ledger.topology.positions and number not in state.jobs_on
        _require(is_free, f"jobs run on login host {state.nodes[number].name}, or may")
    queued = set(state.queue_ids())
    _require(queued <= state.jobs.keys(), f"the queue holds unknown jobs {queued - state.jobs.keys()}")
    _check_planning(state, queued)
    pending = sum(job.state is JobState.PENDING for job in state.jobs.values())
    _require(pending == state.pending_count, f"{pending} jobs wait, counted {state.pending_count}")
    waiting: dict[int, int] = {}
    for job in state.jobs.values():
        if job.state is JobState.PENDING:
            uid = job.spec.user.uid
            waiting[uid] = waiting.get(uid, 0) + weight(job.spec)
    _require(waiting == state.pending_of, f"of users wait {waiting}, counted {state.pending_of}")
    stages = {
        job_id: job.attempt.controller.stage
        for job_id, job in state.jobs.items()
        if job.attempt is not None and job.attempt.controller is not None
    }
    waiting_turn = {job_id for job_id, stage in stages.items() if stage is PhaseStage.WAITING}
    _require(
        waiting_turn == state.phases_waiting.keys(), "the index of programs that wait disagrees with the jobs"
    )
    under_way = {job_id for job_id, stage in stages.items() if stage in UNDER_WAY}
    _require(
        under_way == state.phases_running.keys(), "the index of programs that run disagrees with the jobs"
    )
    active = sum(job.state in ACTIVE for job in state.jobs.values())
    _require(active == state.active_count, f"{active} jobs are active, counted {state.active_count}")
    for problem in pack_invariants.problems(state):
        _require(False, problem)
    _check_names(state)
    _check_policies(state)
    _check_members(state)
    _check_steps(state)
    _check_timers(state)


def _check_planning(state: State, queued: set[int]) -> None:
    """Check the planner's view of running and expected jobs."""
    live = {
        (job_id, attempt.number): running_of(job, attempt, use_forecasts=state.config.use_forecasts)
        for job_id, job in state.jobs.items()
        for attempt in attempts_of(job)
    }
    _require(live == state.live, "the index of what runs disagrees with the jobs")
    wishing = {job_id for job_id, job in state.jobs.items() if has_wish(job)}
    _require(wishing == state.wishing, f"jobs {wishing ^ state.wishing} have wishes that are indexed wrongly")
    later = set(state.later.ids())
    _require(not later & queued, f"jobs {later & queued} wait for resources and for something else")
    for job_id, promise in state.promises.items():
        job = state.jobs.get(job_id)
        waiting = job is not None and job.state is JobState.PENDING
        _require(
            waiting and bool(promise.starts), f"job {job_id} waits no more and has the promise {promise}"
        )
    expected = {
        job_id
        for job_id, job in state.jobs.items()
        if job_id not in queued and foreseeable(job) and task_slots(job)
        if job.pack is None or packs.is_whole(state.packs, job.pack)
    }
    _require(later == expected, f"jobs {later ^ expected} are planned ahead wrongly, or not at all")


def _check_names(state: State) -> None:
    """Check the indexes by which jobs find each other."""
    dependents: dict[int, set[int]] = {}
    task_dependents: dict[int, dict[int, set[int]]] = {}
    task_ids: dict[tuple[int, int], int] = {}
    same_name: dict[tuple[int, str], set[int]] = {}
    tasks_of: dict[int, set[int]] = {}
    tasks_pending: dict[int, set[int]] = {}
    alias: dict[int, int] = {}
    for job_id, job in state.jobs.items():
        alias.update(dict.fromkeys(part_ids(job), job_id))
        for dependency in job.open:
            if dependency.task < 0:
                dependents.setdefault(dependency.job_id, set()).add(job_id)
            else:
                tasks = task_dependents.setdefault(dependency.job_id, {})
                tasks.setdefault(dependency.task, set()).add(job_id)
        if job.array_job_id:
            tasks_of.setdefault(job.array_job_id, set()).add(job_id)
            task_ids[job.array_job_id, job.array_task] = job_id
            if job.state is JobState.PENDING:
                tasks_pending.setdefault(job.array_job_id, set()).add(job_id)
        elif job.state not in FINAL:
            same_name.setdefault(name_key(job.spec), set()).add(job_id)
    _require(dependents == state.dependents, "the index of dependents disagrees with the jobs")
    _require(
        task_dependents == state.task_dependents, "the index of tasks' dependents disagrees with the jobs"
    )
    _require(task_ids == state.task_ids, "the index of tasks' records disagrees with the jobs")
    _require(same_name == state.same_name, "the index of names disagrees with the jobs")
    _require(alias == state.alias, "the index of parts' ids disagrees with the jobs")
    _require(not alias.keys() & state.jobs.keys(), "a job has the id of another job's part")
    _require(tasks_of == state.tasks_of, "the index of array tasks disagrees with the jobs")
    _require(tasks_pending == state.tasks_pending, "the index of waiting tasks disagrees with the jobs")


def _check_policies(state: State) -> None:
    """Check the counts of references and the timers of policies."""
    mentions, counts = References(), JobCounts()
    for job in state.jobs.values():
        mentions.follow(None, job)
        counts.follow(None, job)
    _require(mentions.counts == state.mentions.counts, "the index of mentions disagrees with the jobs")
    _require(counts.counts == state.job_counts.counts, "the counts of jobs disagree with the jobs")
    for kind, named in state.policies.items():
        for name, policy in named.items():
            _require((kind, name) == (kind_of(policy), policy.name), f"{kind} {name} is {policy}")
    due_us = state.policy_due_us
    _require(not due_us or (due_us, TIMER, 0) in state.timers, "no timer is set for a policy's boundary")


def _check_members(state: State) -> None:
    """Check members: one membership per key, counted token uses, no revoked membership."""
    members, fresh = state.members, Members()
    for member in members.issued.values():
        fresh.enter(member)
    _require(fresh.of_key == members.of_key, "the index of keys disagrees with the members")
    _require(len(fresh.of_key) == len(members.issued), "two memberships have one key")
    _require(fresh.taken == members.taken, "the index of names disagrees with the members")
    _require(not members.issued.keys() & members.revoked.keys(), "a revoked membership is one still")
    for token in members.tokens.values():
        _require(token.uses_left >= 0, f"join token {token.id.hex()} was used too often")


def _check_steps(state: State) -> None:
    """Check that steps exist only inside a live attempt."""
    steps_of: dict[int, set[int]] = {}
    step_owed: dict[int, tuple[int, int]] = {}
    for (job_id, number), step in state.steps.items():
        job = state.jobs.get(job_id)
        live = job is not None and job.attempt is not None and job.attempt.number == step.attempt
        _require(live, f"step {job_id}.{number} outlives its attempt {step.attempt}")
        steps_of.setdefault(job_id, set()).add(number)
        first = step.launch.first
        whole = first < 0 or 0 <= number - first <= len(state.steps[job_id, first].launch.others)
        _require(whole, f"step {job_id}.{number} is none of the parts of step {job_id}.{first}")
        if step.state is StepState.LAUNCHING:
            step_owed[step.revision] = (job_id, number)
    _require(steps_of == state.steps_of, "the index of steps disagrees with the steps")
    _require(step_owed == state.step_owed, "the index of owed step launches disagrees with the steps")


def _check_timers(state: State) -> None:
    """Check that everything with an end of its own has a timer."""
    timers = set(state.timers)
    for node in state.nodes.values():
        for fault in node.faults:
            waits_for_check = not fault.until_us or (fault.until_us, "fault", node.number) in timers
            _require(waits_for_check, f"node {node.name} has a fault for ever")
        tried = not node.aside_until_us or (node.aside_until_us, "aside", node.number) in timers
        _require(tried and (node.drain or not node.aside_until_us), f"node {node.name} is set aside for ever")
    for job in state.jobs.values():
        more = job.attempt.more if job.attempt is not None else None
        reports_us = more.preparing_until_us if more is not None else 0
        late = not reports_us or (reports_us, "preparing", job.job_id) in timers
        _require(late, f"job {job.job_id} prepares for ever")
        gateway = more.gateway if more is not None else None
        goes_on = (
            gateway is None or not gateway.until_us or (gateway.until_us, "gateway", job.job_id) in timers
        )
        _require(goes_on, f"job {job.job_id} waits for its gateways for ever")
        ends = not job.avoid or job.state in FINAL or (job.avoid_until_us, "avoid", job.job_id) in timers
        _require(ends, f"job {job.job_id} avoids nodes for ever")
    for node in state.nodes.values():
        if node.state in (NodeState.UNREACHABLE, NodeState.UNKNOWN):
            silent = (state.lost_at_us(node), "lost", node.number) in timers
            # One that held nothing when its timer fired is not lost, only unknown.
            idle = node.state is NodeState.UNKNOWN and state.lost_at_us(node) <= state.now_us
            _require(silent or idle, f"node {node.name} is {node.state.value} for ever")
    for token in state.tokens.values():
        end = (token.expires_us, TOKEN, int.from_bytes(token.id)) in timers
        _require(end, f"token {token.id.hex()} is kept for ever")
    for join_token in state.members.tokens.values():
        end = (join_token.expires_us, JOIN_TOKEN, int.from_bytes(join_token.id)) in timers
        _require(end, f"join token {join_token.id.hex()} is kept for ever")
    kept = set(state.finished)
    for job in state.jobs.values():
        if job.not_before_us and job.state not in FINAL:
            due = (job.not_before_us, "due", job.job_id) in timers
            _require(due, f"job {job.job_id} waits for a time that no timer is set for")
        if job.state in FINAL and not job.residues and not job.is_array:
            _require(job.job_id in kept, f"job {job.job_id} has ended and stays in memory for ever")
