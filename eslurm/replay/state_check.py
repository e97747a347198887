"""Check of a whole state, indexes included, after any fact: for replay, simulation and tests. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping

from eslurm.core.model.accounts import kind_of
from eslurm.core.model.controller_phases import UNDER_WAY, PhaseStage
from eslurm.core.model.job import Span
from eslurm.core.model.job_states import ACTIVE, FINAL, JobState
from eslurm.core.model.job_weight import weight
from eslurm.core.model.member import JOIN_TOKEN
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.parts import part_ids
from eslurm.core.model.step import LIVE, StepState
from eslurm.core.model.token import TOKEN
from eslurm.core.resources.devices import Devices
from eslurm.core.resources.vector import aligned, subtract
from eslurm.core.state import packs
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
)
from eslurm.core.state.invariants import InvariantViolation, check_job, require
from eslurm.core.state.job_counts import JobCounts
from eslurm.core.state.job_indexes import has_wish, shorter_at_us
from eslurm.core.state.members import Members
from eslurm.core.state.queue_entries import foreseeable, running_of
from eslurm.core.state.references import References
from eslurm.core.state.step_use import Place, StepUse, Taken
from eslurm.replay import pack_check


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
        require(
            job.job_id == job_id and (job_id < state.next_id or bool(job.home)),
            f"job {job_id} is filed wrongly",
        )
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
                require(0 < revision <= state.revision, f"job {job_id} owes revision {revision}")
                owed[revision] = job_id
    require(owed == state.owed, "the index of owed effects disagrees with the jobs")
    require(jobs_on == state.jobs_on, "the index of jobs per node disagrees with the jobs")
    require(devices == state.devices, "the devices in use are not those that jobs hold")
    wide = tuple(max(0, free) for free in wide)
    require(wide == state.ledger.wide_free, f"licences free: {state.ledger.wide_free}, by the jobs {wide}")
    lending = {job.job_id for job in state.jobs.values() if job.attempt is not None and job.attempt.room_for}
    require(lending == state.lending, "the index of jobs that make room disagrees with the jobs")
    loans: dict[tuple[int, int, int], dict[tuple[int, int], int]] = {}
    for job in state.jobs.values():
        for attempt in attempts_of(job):
            for loan in attempt.loans:
                there = loans.setdefault((loan.owner, loan.attempt, loan.node), {})
                borrower = job.job_id, attempt.number
                there[borrower] = there.get(borrower, 0) + loan.cores
    require(loans == state.loans, "the index of loans disagrees with the jobs")
    require(not state.loan_ends and not state.owners_gone, "ends of loans are not followed")
    excluding = {
        job.job_id for job in state.jobs.values() if job.attempt is not None and job.attempt.exclusions
    }
    require(excluding == state.excluding, "the index of jobs that lend cores disagrees with the jobs")
    phased = {number: node.phases for number, node in state.nodes.items() if node.phases}
    require(phased == state.phased, "the index of nodes with phases disagrees with the nodes")
    for position, number in enumerate(state.ledger.topology.numbers):
        node = state.nodes[number]
        booked = sorted((amounts, until) for until, amounts in state.ledger.holds_on(position))
        require(booked == sorted(held.get(number, [])), f"node {node.name}: the ledger holds {booked}")
        usable = bool(state.ledger.usable >> position & 1)
        require(
            usable == (is_usable(node) and number not in state.removed), f"node {node.name} usable: {usable}"
        )
        older = bool(state.ledger.older >> position & 1)
        require(older == is_older(node), f"node {node.name} with an older agent: {older}")
    login = {state.numbers[name] for name in state.config.login_nodes}
    require(login == state.login, "the index of login hosts disagrees with the configuration")
    for number in login:
        is_free = number not in state.ledger.topology.positions and number not in state.jobs_on
        require(is_free, f"jobs run on login host {state.nodes[number].name}, or may")
    queued = set(state.queue_ids())
    require(queued <= state.jobs.keys(), f"the queue holds unknown jobs {queued - state.jobs.keys()}")
    _check_planning(state, queued)
    pending = sum(job.state is JobState.PENDING for job in state.jobs.values())
    require(pending == state.pending_count, f"{pending} jobs wait, counted {state.pending_count}")
    waiting: dict[int, int] = {}
    for job in state.jobs.values():
        if job.state is JobState.PENDING:
            uid = job.spec.user.uid
            waiting[uid] = waiting.get(uid, 0) + weight(job.spec)
    require(waiting == state.pending_of, f"of users wait {waiting}, counted {state.pending_of}")
    stages = {
        job_id: job.attempt.controller.stage
        for job_id, job in state.jobs.items()
        if job.attempt is not None and job.attempt.controller is not None
    }
    waiting_turn = {job_id for job_id, stage in stages.items() if stage is PhaseStage.WAITING}
    require(
        waiting_turn == state.phases_waiting.keys(), "the index of programs that wait disagrees with the jobs"
    )
    under_way = {job_id for job_id, stage in stages.items() if stage in UNDER_WAY}
    require(
        under_way == state.phases_running.keys(), "the index of programs that run disagrees with the jobs"
    )
    active = sum(job.state in ACTIVE for job in state.jobs.values())
    require(active == state.active_count, f"{active} jobs are active, counted {state.active_count}")
    for problem in pack_check.problems(state):
        require(False, problem)
    _check_names(state)
    _check_policies(state)
    _check_members(state)
    _check_crontabs(state)
    _check_steps(state)
    _check_timers(state)


def _check_planning(state: State, queued: set[int]) -> None:
    """Check the planner's view of running and expected jobs."""
    live = {
        (job_id, attempt.number): running_of(job, attempt, use_forecasts=state.config.use_forecasts)
        for job_id, job in state.jobs.items()
        for attempt in attempts_of(job)
    }
    require(live == state.live, "the index of what runs disagrees with the jobs")
    wishing = {job_id for job_id, job in state.jobs.items() if has_wish(job)}
    require(wishing == state.wishing, f"jobs {wishing ^ state.wishing} have wishes that are indexed wrongly")
    growing = {
        job.grows.job_id: job_id
        for job_id, job in state.jobs.items()
        if job.grows is not None and job.state is JobState.PENDING
    }
    require(growing == state.growing, "the index of growths disagrees with the jobs")
    borrowers = {
        job_id for job_id in queued if state.jobs[job_id].spec.borrow and state.jobs[job_id].grows is None
    }
    require(borrowers == state.borrowers, "the index of jobs that would borrow disagrees with the jobs")
    later = set(state.later.ids())
    require(not later & queued, f"jobs {later & queued} wait for resources and for something else")
    for job_id, promise in state.promises.items():
        job = state.jobs.get(job_id)
        waiting = job is not None and job.state is JobState.PENDING
        require(waiting and bool(promise.starts), f"job {job_id} waits no more and has the promise {promise}")
    expected = {
        job_id
        for job_id, job in state.jobs.items()
        if job_id not in queued and foreseeable(job) and task_slots(job)
        if job.pack is None or packs.is_whole(state.packs, job.pack)
    }
    require(later == expected, f"jobs {later ^ expected} are planned ahead wrongly, or not at all")


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
            if not dependency.needs_record:
                continue
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
    require(dependents == state.dependents, "the index of dependents disagrees with the jobs")
    require(
        task_dependents == state.task_dependents, "the index of tasks' dependents disagrees with the jobs"
    )
    require(task_ids == state.task_ids, "the index of tasks' records disagrees with the jobs")
    require(same_name == state.same_name, "the index of names disagrees with the jobs")
    require(alias == state.alias, "the index of parts' ids disagrees with the jobs")
    require(not alias.keys() & state.jobs.keys(), "a job has the id of another job's part")
    require(tasks_of == state.tasks_of, "the index of array tasks disagrees with the jobs")
    require(tasks_pending == state.tasks_pending, "the index of waiting tasks disagrees with the jobs")


def _check_policies(state: State) -> None:
    """Check the counts of references and the timers of policies."""
    mentions, counts = References(), JobCounts()
    for job in state.jobs.values():
        mentions.follow(None, job)
        counts.follow(None, job)
    require(mentions.counts == state.mentions.counts, "the index of mentions disagrees with the jobs")
    require(counts.counts == state.job_counts.counts, "the counts of jobs disagree with the jobs")
    for kind, named in state.policies.items():
        for name, policy in named.items():
            require((kind, name) == (kind_of(policy), policy.name), f"{kind} {name} is {policy}")
    due_us = state.policy_due_us
    require(not due_us or (due_us, TIMER, 0) in state.timers, "no timer is set for a policy's boundary")


def _check_members(state: State) -> None:
    """Check members: one membership per key, counted token uses, no revoked membership."""
    members, fresh = state.members, Members()
    for member in members.issued.values():
        fresh.enter(member)
    require(fresh.of_key == members.of_key, "the index of keys disagrees with the members")
    require(len(fresh.of_key) == len(members.issued), "two memberships have one key")
    require(fresh.taken == members.taken, "the index of names disagrees with the members")
    require(not members.issued.keys() & members.revoked.keys(), "a revoked membership is one still")
    for token in members.tokens.values():
        require(token.uses_left >= 0, f"join token {token.id.hex()} was used too often")


def _check_crontabs(state: State) -> None:
    """Check that each line of a crontab has a live job of its user that repeats."""
    for uid, crontab in state.crontabs.items():
        require(uid == crontab.uid and bool(crontab.text), f"crontab of {uid} is {crontab.uid}'s, or empty")
        for line in crontab.lines:
            job = state.jobs.get(line.job_id)
            lives = (
                job is not None
                and job.spec.user.uid == uid
                and bool(job.spec.cron)
                and job.state not in FINAL
            )
            require(lives, f"job {line.job_id} of line {line.line} of the crontab of {uid} is gone")


def _check_steps(state: State) -> None:
    """Check that steps exist only inside a live attempt."""
    steps_of: dict[int, set[int]] = {}
    step_owed: dict[int, tuple[int, int]] = {}
    use = StepUse()
    for (job_id, number), step in state.steps.items():
        job = state.jobs.get(job_id)
        live = job is not None and job.attempt is not None and job.attempt.number == step.attempt
        require(live, f"step {job_id}.{number} outlives its attempt {step.attempt}")
        steps_of.setdefault(job_id, set()).add(number)
        first = step.launch.first
        whole = first < 0 or 0 <= number - first <= len(state.steps[job_id, first].launch.others)
        require(whole, f"step {job_id}.{number} is none of the parts of step {job_id}.{first}")
        if step.state is StepState.LAUNCHING:
            step_owed[step.revision] = (job_id, number)
        use.add(step)
        is_open = step.launch.demand is not None
        require(is_open or step.state is not StepState.WAITING, f"step {job_id}.{number} waits for nothing")
        require(not is_open or step.state not in LIVE, f"step {job_id}.{number} runs and is not laid out")
        require(
            step.holding <= frozenset(step.nodes), f"step {job_id}.{number} holds nodes that it does not have"
        )
    require(steps_of == state.steps_of, "the index of steps disagrees with the steps")
    require(step_owed == state.step_owed, "the index of owed step launches disagrees with the steps")
    require(use.taken == state.step_use.taken, "the index of what steps take disagrees with the steps")
    require(use.waiting == state.step_use.waiting, "the index of steps that wait disagrees with the steps")
    for job_id, places in state.step_use.taken.items():
        _check_taken(state, job_id, places)


def _check_taken(state: State, job_id: int, places: Mapping[Place, Taken]) -> None:
    """Check that the steps of a job take no more than the job has."""
    attempt = state.jobs[job_id].attempt
    assert attempt is not None
    spans = {(span.component, span.node): span for span in attempt.spans}
    for place, taken in places.items():
        span = spans.get(place)
        require(
            span is not None,
            f"steps of job {job_id} take resources of node {place[1]}, which it does not have",
        )
        assert span is not None
        for index, amount in enumerate(taken.amounts):
            has = span.amounts[index] if index < len(span.amounts) else 0
            require(
                0 <= amount <= has,
                f"steps of job {job_id} take {amount} of {has} on node {place[1]} (#{index})",
            )
        own = {(index, number) for index, numbers in span.devices for number in numbers}
        require(
            taken.devices <= own,
            f"steps of job {job_id} have devices on node {place[1]} that it does not have",
        )


def _check_timers(state: State) -> None:
    """Check that everything with an end of its own has a timer."""
    timers = set(state.timers)
    for node in state.nodes.values():
        for fault in node.faults:
            waits_for_check = not fault.until_us or (fault.until_us, "fault", node.number) in timers
            require(waits_for_check, f"node {node.name} has a fault for ever")
        tried = not node.aside_until_us or (node.aside_until_us, "aside", node.number) in timers
        require(tried and (node.drain or not node.aside_until_us), f"node {node.name} is set aside for ever")
    for job in state.jobs.values():
        more = job.attempt.more if job.attempt is not None else None
        reports_us = more.preparing_until_us if more is not None else 0
        late = not reports_us or (reports_us, "preparing", job.job_id) in timers
        require(late, f"job {job.job_id} prepares for ever")
        gateway = more.gateway if more is not None else None
        goes_on = (
            gateway is None or not gateway.until_us or (gateway.until_us, "gateway", job.job_id) in timers
        )
        require(goes_on, f"job {job.job_id} waits for its gateways for ever")
        growth = more.growth if more is not None else None
        joins_us = growth.preparing_until_us if growth is not None else 0
        require(
            not joins_us or (joins_us, "growth", job.job_id) in timers, f"job {job.job_id} grows for ever"
        )
        shorter_us = shorter_at_us(state.find_job(job.grows.job_id), job) if job.grows is not None else 0
        trims = (shorter_us, "shorter", job.job_id) in timers or shorter_us <= state.now_us
        require(
            job.state is not JobState.PENDING or trims,
            f"growth {job.job_id} asks for {job.spec.time_limit_s} s for ever",
        )
        ends = not job.avoid or job.state in FINAL or (job.avoid_until_us, "avoid", job.job_id) in timers
        require(ends, f"job {job.job_id} avoids nodes for ever")
    for node in state.nodes.values():
        if node.state in (NodeState.UNREACHABLE, NodeState.UNKNOWN):
            silent = (state.lost_at_us(node), "lost", node.number) in timers
            # One that held nothing when its timer fired is not lost, only unknown.
            idle = node.state is NodeState.UNKNOWN and state.lost_at_us(node) <= state.now_us
            require(silent or idle, f"node {node.name} is {node.state.value} for ever")
    for token in state.tokens.values():
        end = (token.expires_us, TOKEN, int.from_bytes(token.id)) in timers
        require(end, f"token {token.id.hex()} is kept for ever")
    for join_token in state.members.tokens.values():
        end = (join_token.expires_us, JOIN_TOKEN, int.from_bytes(join_token.id)) in timers
        require(end, f"join token {join_token.id.hex()} is kept for ever")
    kept = set(state.finished)
    for job in state.jobs.values():
        if job.not_before_us and job.state not in FINAL:
            due = (job.not_before_us, "due", job.job_id) in timers
            require(due, f"job {job.job_id} waits for a time that no timer is set for")
        if job.state in FINAL and not job.residues and not job.is_array and not job.is_owed_elsewhere:
            require(job.job_id in kept, f"job {job.job_id} has ended and stays in memory for ever")
