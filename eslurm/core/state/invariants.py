"""Invariants of one job's record. Raises `InvariantViolation`; changes nothing.

A live controller is checked job by job (`core.doctor`), the whole state by `eslurm.replay.state_check`.
"""

from __future__ import annotations

from eslurm.core.model import ranges
from eslurm.core.model.controller_phases import UNDER_WAY, PhaseStage
from eslurm.core.model.gateways import GatewayStage
from eslurm.core.model.guests import Guests, GuestStage
from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.job_states import ACTIVE, FINAL, STARTED, AttemptPhase, JobState
from eslurm.core.model.parts import gateway_nodes
from eslurm.core.model.retry import RetryRecord
from eslurm.core.model.step_key import EPILOG
from eslurm.core.model.transfer import Transfer, TransferStage
from eslurm.core.resources.vector import CORES
from eslurm.core.state.cluster import (
    State,
    attempts_of,
    waits,
)
from eslurm.core.state.pending_reason import pending_reason

_EPILOG = (PhaseStage.WAITING, PhaseStage.RUNNING)


class InvariantViolation(AssertionError):
    """The state contradicts itself: a bug. The text names the record and the rule."""


def require(condition: bool, what: str) -> None:
    """Raise `InvariantViolation` unless the condition holds."""
    if not condition:
        raise InvariantViolation(what)


def check_job(state: State, job: Job) -> None:
    """Check one job's record."""
    name = f"job {job.job_id} ({job.state.value})"
    attempt = job.attempt
    live = job.state in ACTIVE
    require((attempt is not None) == live, f"{name} has {'no' if attempt is None else 'an'} attempt")
    require(job.state not in FINAL or job.outcome is job.state, f"{name} has the outcome {job.outcome}")
    for held in attempts_of(job):
        nodes = {span.node for span in held.spans}
        require(held.held <= nodes, f"{name} holds nodes outside its spans")
        _check_parts(job, held, name)
        if held.more is not None and (held.more.loans or held.more.exclusions):
            _check_lending(state, job, held, name)
        gone = held.gone
        require(
            not gone & held.held and gone <= nodes, f"{name} goes on without nodes that it holds or never had"
        )
        given = {node for _, node in held.given}
        missed = gone if not job.spec.no_kill else gone & {held.first}
        require(missed <= given, f"{name} goes on without {missed}")
        require(bool(held.held), f"{name} keeps a residue that holds nothing")
    if attempt is not None:
        require(attempt.number == job.attempts, f"{name} lives in attempt {attempt.number} of {job.attempts}")
        running = attempt.phase is AttemptPhase.RUNNING
        require(running == (job.state in STARTED), f"{name} is in phase {attempt.phase.value}")
        still = job.state is JobState.SUSPENDED
        require(not running or still == bool(attempt.suspended_us), f"{name} stands still: {not still}")
        require(attempt.informing <= attempt.held, f"{name} is to tell nodes that it does not hold")
        preparing = attempt.preparing
        may_prepare = attempt.phase is AttemptPhase.PREPARING and preparing <= attempt.waiting
        require(not preparing or may_prepare, f"{name} prepares nodes that it does not wait for")
        if job.spec.gateway is not None or attempt.gateway is not None:
            _check_gateways(job, attempt, name)
        settles = attempt.phase is AttemptPhase.SETTLING
        require(settles or bool(attempt.held), f"{name} keeps an attempt that holds nothing")
        require(not settles or not attempt.held, f"{name} settles and holds nodes")
        if attempt.more is not None and (attempt.more.growth is not None or attempt.more.grown):
            _check_growth(state, job, attempt, name)
        if settles or attempt.controller is not None:
            _check_controller_phase(attempt, name)
    for residue in job.residues:
        require(residue.end is None and not residue.started_us, f"{name} left a residue that ran its script")
    if job.state is JobState.PENDING:
        in_queue = job.job_id in state.queue
        require(in_queue == bool(waits(job) and state.startable(job)), f"{name} in queue: {in_queue}")
        require(in_queue or bool(pending_reason(state, job)), f"{name} waits without a reason")
    if job.transfer is not None:
        _check_transfer(state, job, job.transfer, name)
    if job.guests is not None:
        _check_guests(state, job, job.guests, name)
    require(job.state is not JobState.TRANSFERRED or job.transfer is not None, f"{name} has no owner")
    if job.is_array:
        _check_array(state, job, name)
    said = job.forecast
    is_sane = said is None or (1 <= said.p10_s <= said.p50_s <= said.p90_s and said.estimate_s >= 1)
    require(is_sane, f"{name} is foretold {said}")
    require(said is not None or not job.first_estimate_s, f"{name} was estimated, and has no forecast")
    if job.retry is not None:
        _check_retry(job, job.retry, name)


def _check_retry(job: Job, record: RetryRecord, name: str) -> None:
    """Check that a job has no more retries than it asked for, and limits that wait only while nodes are given back."""
    wish = job.spec.retry
    require(wish is not None and record.count <= wish.retries_max, f"{name} was retried {record.count} times")
    require(record.count <= job.attempts, f"{name} had {record.count} retries in {job.attempts} attempts")
    is_settling = job.state is JobState.COMPLETING
    require(record.grown is None or is_settling, f"{name} has limits that wait for its nodes")
    require(record.count == 0 or record.latest is not None, f"{name} was retried for no cause")


def _check_lending(state: State, job: Job, attempt: Attempt, name: str) -> None:
    """Check that a loan is confirmed, lies within both spans, and that no core is lent twice."""
    cores = {span.node: span.amounts[CORES] for span in attempt.spans}
    marked = {span.node for span in attempt.spans if span.lent}
    borrowed: dict[int, int] = {}
    for loan in attempt.more.loans if attempt.more is not None else ():
        require(loan.node in marked, f"{name} has a loan on node {loan.node}, where its span has none")
        if loan.until_us:
            owner = state.find_attempt(loan.owner, loan.attempt)
            is_left = owner is None or loan.node not in owner[1].held
            require(is_left, f"{name} owns what job {loan.owner} still holds: {loan}")
    for loan in attempt.loans:
        borrowed[loan.node] = borrowed.get(loan.node, 0) + loan.cores
        found = state.find_attempt(loan.owner, loan.attempt)
        require(found is not None and loan.owner != job.job_id, f"{name} borrows from nothing: {loan}")
        assert found is not None
        one = next((one for one in found[1].exclusions if one.node == loan.node), None)
        lent = sum(state.loans.get((loan.owner, loan.attempt, loan.node), {}).values())
        require(one is not None and lent <= one.cores, f"{name}: {lent} cores are lent of {one}")
    within = all(0 < count <= cores[node] for node, count in borrowed.items())
    require(within, f"{name} borrows {borrowed}, its spans have {cores}")
    for one in attempt.exclusions:
        own = cores[one.node] - borrowed.get(one.node, 0)
        is_sane = 0 <= one.cores <= one.wanted <= own
        require(is_sane, f"{name} leaves {one} to others of its {own} cores")
        require((one.wanted > one.cores) <= bool(one.revision), f"{name} waits for nothing with {one}")


def _check_parts(job: Job, attempt: Attempt, name: str) -> None:
    """Check that every part has its place, in the parts' order, and none a node twice."""
    parts = len(job.spec.components)
    require(len(job.spec.parts) in (0, parts), f"{name} has {parts} requests, {len(job.spec.parts)} parts")
    if parts == 1 and not attempt.has_parts:
        require(len(set(attempt.nodes)) == len(attempt.spans), f"{name} has a node twice")
        _check_shrunk(attempt, name)
        return
    order = [span.component for span in attempt.spans]
    require(order == sorted(order), f"{name} has its parts in the order {order}")
    require(
        set(order) == set(range(parts)), f"{name} has places for the parts {sorted(set(order))} of {parts}"
    )
    places = {(span.component, span.node) for span in attempt.spans}
    require(len(places) == len(attempt.spans), f"{name} has a node twice in one part")
    _check_finished(attempt, places, parts, name)


def _check_finished(attempt: Attempt, places: set[tuple[int, int]], parts: int, name: str) -> None:
    """Check what finished parts have left: nothing is given back twice, and no held node is without a use."""
    finished, leaving, given = attempt.finished, attempt.leaving, attempt.given
    in_order = len(set(finished)) == len(finished) and all(0 < part < parts for part in finished)
    require(in_order, f"{name} has given back the parts {finished}")
    mine = given <= places and all(part in finished for part, _ in given)
    require(mine, f"{name} has given back {sorted(given - places)}, or more than its finished parts")
    require(leaving <= attempt.held, f"{name} waits for nodes that it does not hold")
    used = {node for _, node in places - given}
    require(attempt.held <= used, f"{name} holds nodes of which it has given everything back")
    kept = {span.node for span in attempt.spans if span.component not in finished}
    require(not leaving & kept, f"{name} ends nodes that other parts use: {sorted(leaving & kept)}")


def _check_shrunk(attempt: Attempt, name: str) -> None:
    """Check that each node that a job of one part gave back was given back once, and that its first node stays."""
    leaving, given = attempt.leaving, {node for _, node in attempt.given}
    require(leaving <= attempt.held and attempt.first not in leaving, f"{name} waits for {sorted(leaving)}")
    require(
        not given & attempt.held, f"{name} holds nodes that it has given back: {sorted(given & attempt.held)}"
    )
    left = [node for _, nodes in attempt.more.shrunk for node in nodes] if attempt.more is not None else []
    require(
        len(set(left)) == len(left) and given <= set(left), f"{name} has shrunk by {left}, and gave {given}"
    )


def _check_growth(state: State, job: Job, attempt: Attempt, name: str) -> None:
    """Check that the nodes of a growth are held, not in use, and prepared for the growth that waits for them."""
    growth = attempt.growth
    got = [node for joined in attempt.more.grown for node in joined.nodes] if attempt.more is not None else []
    order = [span.node for span in attempt.spans]
    require(order[len(order) - len(got) :] == got, f"{name} got {got} and has {order}")
    if growth is None:
        return
    in_use = growth.joining <= attempt.held and not growth.joining & attempt.leaving
    require(in_use and attempt.first not in growth.joining, f"{name} gets {sorted(growth.joining)}")
    require(growth.preparing <= growth.waiting <= growth.joining, f"{name} waits for {growth}")
    require(bool(growth.preparing_until_us) == bool(growth.preparing), f"{name} prepares for ever: {growth}")
    record = state.find_job(growth.growth_id)
    is_its = record is not None and record.grows is not None and record.grows.job_id == job.job_id
    require(is_its, f"{name} waits for the growth {growth.growth_id}")
    assert record is not None and record.grows is not None
    if attempt.phase is AttemptPhase.RUNNING and attempt.stop is None and growth.joining:
        require(record.grows.joins, f"{name} gets nodes of growth {record.job_id}, which waits")
    apart = {span.node for span in attempt.spans if span.node not in growth.joining}
    require(apart <= record.grows.apart | set(got), f"{name} may get nodes again that it has or had")


def _check_gateways(job: Job, attempt: Attempt, name: str) -> None:
    """Check that the script starts only when every gateway has told its address and the routes are written."""
    gateway, request = attempt.gateway, job.spec.gateway
    assert request is not None, f"{name} has gateways that it has not asked for"
    nodes = set(gateway_nodes(job.spec, attempt))
    require(len(nodes) == request.count, f"{name} holds {len(nodes)} gateways of {request.count}")
    if attempt.phase is AttemptPhase.PREPARING:
        require((gateway is None) == bool(attempt.waiting), f"{name} waits for {attempt.waiting}, {gateway}")
    elif attempt.phase in (AttemptPhase.STARTING, AttemptPhase.RUNNING):
        require(gateway is not None and gateway.stage == GatewayStage.READY, f"{name} starts with {gateway}")
    else:
        require(gateway is None, f"{name} ends with {gateway}")
    if gateway is None:
        return
    is_ready = gateway.stage == GatewayStage.READY
    require(is_ready == (attempt.phase is not AttemptPhase.PREPARING), f"{name} waits with {gateway}")
    require(is_ready == (not gateway.until_us), f"{name} has the stage {gateway.stage} for ever")
    told = {number for number, _ in gateway.addresses}
    require(told <= nodes and gateway.waiting <= attempt.held, f"{name} has the gateways {gateway}")
    is_complete = gateway.stage not in (GatewayStage.ROUTES, GatewayStage.READY) or told == nodes
    require(is_complete, f"{name} has addresses of {told}, its gateways are {nodes}")


def _check_controller_phase(attempt: Attempt, name: str) -> None:
    """Check that nothing reaches a node before the prolog has ended well, and that the epilog follows the last node."""
    phase = attempt.controller
    assert phase is not None, f"{name} settles without a phase"
    what = f"{name} is {attempt.phase.value} with {phase}"
    require(phase.stage not in UNDER_WAY or phase.run > 0, what)
    stages: tuple[PhaseStage, ...]
    if attempt.phase is AttemptPhase.SETTLING:
        stages = _EPILOG if phase.name == EPILOG else (PhaseStage.ENDING,)
    elif attempt.phase is AttemptPhase.PREPARING:
        # A prolog that failed ends its attempt with the next fact.
        stages = (*_EPILOG, PhaseStage.OVER, PhaseStage.FAILED)
    else:
        stages = (PhaseStage.OVER,)
    require(phase.stage in stages, what)
    require((phase.name == EPILOG) <= (attempt.phase is AttemptPhase.SETTLING), what)
    if attempt.awaits_prolog:
        untouched = attempt.waiting == attempt.held and not attempt.preparing and attempt.gateway is None
        require(untouched and attempt.stop is None, f"{what} and its nodes have heard of it")


def _check_transfer(state: State, job: Job, transfer: Transfer, name: str) -> None:
    """Check that a job which another cell may own is nothing but a record here."""
    stage = transfer.stage
    what = f"{name} has the transfer {transfer}"
    if stage in (TransferStage.OFFERED, TransferStage.ARRIVING):
        require(job.state is JobState.PENDING, what)
    if stage is TransferStage.TRANSFERRED:
        require(job.state is JobState.TRANSFERRED or job.state in FINAL, what)
    else:
        require(job.state is not JobState.TRANSFERRED, what)
    require(stage is not TransferStage.TOLD or job.state in FINAL, what)
    if job.is_away:
        is_planned = job.job_id in state.queue or job.job_id in state.later
        require(not is_planned and job.attempt is None and not job.residues, f"{what} and may start here")
    require(transfer.serial > 0 and bool(transfer.cell), what)


def _check_guests(state: State, job: Job, guests: Guests, name: str) -> None:
    """Check that a job which spans cells starts only while all its guests hold their nodes."""
    what = f"{name} has the guests {guests}"
    if guests.stage is GuestStage.NONE:
        require(not guests.guests, what)
        return
    require(bool(guests.guests) or guests.stage is GuestStage.HELD, f"{what} without a guest")
    request = job.spec.components[0]
    is_reduced = guests.stage is GuestStage.HELD
    nodes = guests.own_nodes if is_reduced else guests.total_nodes
    require(request.nodes_min == nodes, f"{what} and asks for {request.nodes_min} nodes")
    if job.gathers:
        is_planned = job.job_id in state.queue or job.job_id in state.later
        require(not is_planned, f"{what} and may start")
    if guests.stage in (GuestStage.ASKED, GuestStage.LEAVING):
        require(job.attempt is None or job.state in FINAL, f"{what} and runs")
    if is_reduced:
        require(job.attempts <= guests.attempt, f"{what} in attempt {job.attempts}")


def _check_array(state: State, job: Job, name: str) -> None:
    assert job.tasks_left is not None and job.spec.array is not None
    live = sum(
        state.jobs[task].attempt is not None
        for task in state.tasks_of.get(job.job_id, ())
        if task in state.jobs
    )
    require(live == job.tasks_running, f"{name} counts {job.tasks_running} running tasks, there are {live}")
    overlap = ranges.intersection(job.tasks_left, job.tasks_ok) + ranges.intersection(
        job.tasks_left, job.tasks_failed
    )
    require(not overlap, f"{name} has tasks that wait and have ended: {overlap}")
