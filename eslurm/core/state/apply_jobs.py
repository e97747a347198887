"""Application of facts about jobs. The only place where a job's record is written."""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.model import facts, ranges
from eslurm.core.model.guests import KEEP_US, Guests
from eslurm.core.model.job import Attempt, AttemptMore, Dependency, Job
from eslurm.core.model.job_states import ACTIVE, FINAL, AttemptPhase, JobState
from eslurm.core.model.parts import ids_taken
from eslurm.core.model.units import SECOND_US
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state import (
    apply_controller_phases,
    apply_elastic,
    apply_gateways,
    apply_lending,
    apply_mail,
    apply_moves,
    apply_packs,
    apply_parts,
    apply_phases,
    apply_retries,
    launch_failures,
)
from eslurm.core.state.allocation_amounts import (
    UNLIMITED_S,
    end_us,
    lends,
    limit_s,
    paused_us,
    spans_in_use,
)
from eslurm.core.state.cluster import State, task_slots
from eslurm.core.state.endings import MAKING_ROOM, grace_s, requeue_or_fail
from eslurm.core.state.transitions import moved, phased
from eslurm.core.state.usage import charge, charge_left

GIVEN_UP_MAX = 4
GIVEN_UP = "its node was given up before it told of the end"


def apply_submitted(state: State, fact: facts.JobSubmitted) -> None:
    if fact.transfer is None:
        state.next_id = max(state.next_id, fact.job_id + ids_taken(fact.spec))
        state.touched.settings = True
    state.put_job(record_of(fact, state.now_us))


def record_of(fact: facts.JobSubmitted, now_us: int) -> Job:
    """The first record of a job that is submitted now."""
    spec, guest_of = fact.spec, fact.guest_of
    return Job(
        job_id=fact.job_id,
        spec=spec,
        state=JobState.PENDING,
        submitted_us=now_us,
        priority=fact.priority,
        hold="user" if spec.held else "",
        open=fact.open,
        not_before_us=fact.not_before_us,
        tasks_left=spec.array.tasks if spec.array is not None else None,
        tasks_ready=() if spec.array is not None and _corresponds(fact.open) else None,
        pack=fact.pack,
        transfer=fact.transfer,
        guests=Guests(is_wide=fact.is_wide) if spec.span else None,
        guest_of=replace(guest_of, until_us=now_us + KEEP_US) if guest_of is not None else None,
    )


def _corresponds(still_open: tuple[Dependency, ...]) -> bool:
    return any(dependency.kind == "aftercorr" for dependency in still_open)


def apply_changed(state: State, fact: facts.JobChanged) -> None:
    job = state.get_job(fact.job_id)
    if fact.open is not None:
        ready = () if job.is_array and _corresponds(fact.open) else None
        job = replace(job, open=fact.open, tasks_ready=ready)
    state.put_job(replace(job, spec=fact.spec, priority=fact.priority, not_before_us=fact.not_before_us))
    state.note_change(fact.job_id)
    if job.pack is not None and job.pack.waits_for_first:
        # It is planned in the entry of the first member.
        state.note_change(job.pack.pack_id)


def apply_forecasts(state: State, fact: facts.JobsForecast) -> None:
    for job_id, forecast in fact.forecasts:
        job = state.get_job(job_id)
        # A forecast for a job that has already run does not measure the model.
        first_s = job.first_estimate_s or (0 if job.started_us else forecast.estimate_s)
        state.put_job(replace(job, forecast=forecast, first_estimate_s=first_s))
        if job.attempt is not None:
            # Running jobs may end at another time: others may be replanned.
            state.want_plan()


def apply_promised(state: State, fact: facts.JobsPromised) -> None:
    for promise in fact.promises:
        state.put_promise(promise)


def apply_held(state: State, fact: facts.JobHeld) -> None:
    job = state.get_job(fact.job_id)
    for one in (job,) if job.pack is None else apply_packs.held_with(state, job, fact.hold):
        failures = one.launch_failures if fact.hold else 0
        state.put_job(replace(one, hold=fact.hold, reason_text=fact.text, launch_failures=failures))


def apply_due(state: State, fact: facts.JobDue) -> None:
    state.put_job(replace(state.get_job(fact.job_id), not_before_us=0))


def apply_dependencies(state: State, fact: facts.DependenciesChanged) -> None:
    job = state.get_job(fact.job_id)
    state.put_job(
        replace(
            job,
            open=fact.open,
            not_before_us=max(job.not_before_us, fact.not_before_us),
            tasks_ready=job.tasks_ready if _corresponds(fact.open) else None,
        )
    )


def apply_tasks_released(state: State, fact: facts.TasksReleased) -> None:
    job = state.get_job(fact.job_id)
    state.put_job(replace(job, tasks_ready=ranges.union(job.tasks_ready or (), fact.tasks)))
    state.want_plan()


def apply_tasks_dropped(state: State, fact: facts.TasksDropped) -> None:
    job = state.get_job(fact.job_id)
    dropped = ranges.intersection(job.tasks_left or (), fact.tasks)
    left = ranges.difference(job.tasks_left or (), dropped)
    failed = ranges.union(job.tasks_failed, dropped)
    _put_array(
        state, replace(job, tasks_left=left, tasks_failed=failed, exit_text=fact.text or job.exit_text)
    )


def apply_placed(state: State, fact: facts.JobPlaced) -> None:
    if fact.array_job_id:
        job = _split_task(state, fact)
    else:
        job = state.get_job(fact.job_id)
        if job.array_job_id:
            _count_task(state, job, +1)
    nodes = frozenset(span.node for span in fact.spans)
    attempt = Attempt(
        number=fact.attempt,
        phase=AttemptPhase.PREPARING,
        spans=apply_lending.marked(fact.spans, fact.loans),
        placed_us=state.now_us,
        placed_revision=state.revision,
        until_us=fact.until_us,
        held=nodes,
        waiting=nodes,
        wide=fact.wide,
        forecast=job.forecast,
        planned_us=fact.until_us - fact.late_us if fact.until_us < INFINITY_US else 0,
        more=apply_lending.of_placement(apply_phases.of_placement(state, nodes), fact.loans, state.now_us),
    )
    state.put_job(
        replace(
            job,
            state=moved(job, JobState.LAUNCHING),
            attempt=attempt,
            attempts=fact.attempt,
            pack=apply_moves.placed(job.pack, fact.anchor_us) if job.pack is not None else None,
            outcome=None,
            exit_code=0,
            exit_signal=0,
            exit_text="",
            started_us=0,
            ended_us=0,
            reason_text="",
        )
    )
    if fact.anchor_us and job.pack is not None:
        apply_packs.begin(state, job.pack.pack_id, fact.anchor_us)


def _split_task(state: State, fact: facts.JobPlaced) -> Job:
    """Give one waiting task of an array a record of its own."""
    array = state.get_job(fact.array_job_id)
    assert array.tasks_left is not None and task_slots(array) > 0
    state.next_id = max(state.next_id, fact.job_id + 1)
    state.touched.settings = True
    state.put_job(
        replace(
            array,
            tasks_left=ranges.remove(array.tasks_left, fact.task),
            tasks_running=array.tasks_running + 1,
        )
    )
    return Job(
        job_id=fact.job_id,
        spec=array.spec,
        state=JobState.PENDING,
        submitted_us=array.submitted_us,
        priority=array.priority,
        array_job_id=fact.array_job_id,
        array_task=fact.task,
        forecast=array.forecast,
        first_estimate_s=array.first_estimate_s,
    )


def apply_prepared(state: State, fact: facts.NodesPrepared) -> None:
    job = state.get_job(fact.job_id)
    attempt = job.attempt
    assert attempt is not None
    if fact.prolog_us:
        apply_phases.learn_prolog(state, fact, attempt.placed_us)
    attempt = apply_phases.prepared(attempt, fact.nodes)
    waiting = attempt.waiting.difference(fact.nodes)
    if waiting:
        state.put_job(replace(job, attempt=replace(attempt, waiting=waiting)))
        return
    if job.spec.gateway is not None:
        state.put_job(replace(job, attempt=apply_gateways.begun(state, job, attempt)))
        return
    attempt = replace(
        attempt,
        phase=phased(job, attempt, AttemptPhase.STARTING),
        waiting=frozenset((attempt.first,)),
        owed_revision=state.revision,
    )
    state.put_job(replace(job, attempt=attempt))


def apply_started(state: State, fact: facts.AttemptStarted) -> None:
    job = state.get_job(fact.job_id)
    attempt = job.attempt
    assert attempt is not None
    attempt = replace(
        attempt,
        phase=phased(job, attempt, AttemptPhase.RUNNING),
        waiting=frozenset(),
        started_us=fact.started_us,
    )
    if attempt.more is not None and attempt.stop is None and attempt.until_us < INFINITY_US:
        # Its prolog or its gateways took their time, and the limit counts from the script's start.
        late_us = end_us(attempt, limit_s(job, attempt))
        attempt = replace(attempt, until_us=max(attempt.until_us, late_us))
    running = replace(
        job,
        state=moved(job, JobState.RUNNING),
        attempt=attempt,
        started_us=fact.started_us,
        launch_failures=0,
        avoid=frozenset(),
        avoid_until_us=0,
    )
    state.put_job(apply_mail.begun(state, running) if job.spec.mail_type else running)
    launch_failures.apply_launched(state, attempt)
    _note_start(state, job, fact.started_us)


def _note_start(state: State, task: Job, started_us: int) -> None:
    """Start the array's record with its first task."""
    array = state.find_job(task.array_job_id) if task.array_job_id else None
    if array is not None and started_us and not array.started_us:
        started = replace(array, started_us=started_us)
        state.put_job(apply_mail.begun(state, started) if array.spec.mail_type else started)


def apply_suspended(state: State, fact: facts.AttemptSuspended) -> None:
    job = state.get_job(fact.job_id)
    attempt = job.attempt
    assert attempt is not None
    has_lent = lends(attempt)
    if fact.suspended:
        # An operator resumes it: until then the release of its nodes is unknown.
        attempt = replace(attempt, suspended_us=state.now_us, until_us=INFINITY_US, room_for=fact.room_for)
    else:
        paused_us = attempt.paused_us + state.now_us - attempt.suspended_us
        attempt = replace(attempt, suspended_us=0, paused_us=paused_us, room_for=0)
        attempt = replace(attempt, until_us=end_us(attempt, limit_s(job, attempt)))
    attempt = replace(attempt, suspend_revision=state.revision, informing=attempt.held)
    if attempt.growth is not None:
        attempt = apply_elastic.pause(state, attempt, pauses=fact.suspended)
    to = JobState.SUSPENDED if fact.suspended else JobState.RUNNING
    text = f"suspended {fact.by}" if fact.suspended else ""
    state.put_job(replace(job, state=moved(job, to), attempt=attempt, reason_text=text))
    if attempt.growth is not None:
        apply_elastic.follow_time(state, attempt)
    if has_lent:
        state.cores_returned = state.generation


def apply_time(state: State, fact: facts.TimeChanged) -> None:
    job = state.get_job(fact.job_id)
    assert job.attempt is not None
    attempt = replace(
        job.attempt, time_limit_s=fact.time_limit_s, until_us=fact.until_us, time_revision=state.revision
    )
    state.put_job(replace(job, attempt=attempt))
    if attempt.growth is not None:
        apply_elastic.follow_time(state, attempt)


def apply_noted(state: State, fact: facts.JobNoted) -> None:
    job = state.get_job(fact.job_id)
    state.put_job(replace(job, spec=replace(job.spec, comment=fact.comment)))


def apply_informed(state: State, fact: facts.AttemptInformed) -> None:
    job = state.get_job(fact.job_id)
    attempt = job.attempt
    assert attempt is not None and fact.revision in (attempt.suspend_revision, attempt.time_revision)
    if fact.revision == attempt.time_revision:
        attempt = replace(attempt, time_revision=0)
    else:
        attempt = _informed(attempt, fact.nodes)
    state.put_job(replace(job, attempt=attempt))


def _informed(attempt: Attempt, nodes: tuple[int, ...]) -> Attempt:
    """Record that these nodes know whether the attempt is suspended, or are out of it."""
    informing = attempt.informing.difference(nodes)
    return replace(
        attempt, informing=informing, suspend_revision=attempt.suspend_revision if informing else 0
    )


def apply_stop(state: State, fact: facts.StopRequested) -> None:
    job = state.get_job(fact.job_id)
    attempt, stop = job.attempt, fact.stop
    assert attempt is not None
    until_us = attempt.until_us
    if attempt.suspended_us or stop.cause in MAKING_ROOM:
        # Others are waiting for just these nodes, or it had no end at all.
        until_us = min(until_us, state.now_us + int(grace_s(state, stop) * SECOND_US))
    state.put_job(
        replace(job, attempt=replace(attempt, stop=stop, stop_revision=state.revision, until_us=until_us))
    )


def apply_attempt_ended(state: State, fact: facts.AttemptEnded) -> None:
    job = state.get_job(fact.job_id)
    attempt = job.attempt
    assert attempt is not None and attempt.number == fact.attempt
    held = attempt.held.difference(fact.released)
    end = fact.end
    started_us = attempt.started_us or (end.started_us if end is not None else 0)
    ended_us = (end.ended_us if end is not None and end.ended_us else 0) or state.now_us
    was, before = attempt.phase, attempt
    phase = AttemptPhase.RELEASING if held else AttemptPhase.ENDED
    attempt = replace(
        attempt,
        phase=phased(job, attempt, phase),
        held=held,
        waiting=held,
        owed_revision=state.revision if held else 0,
        started_us=started_us,
        end=end,
        ended_us=ended_us,
    )
    attempt = apply_gateways.over(apply_phases.prepared(attempt, attempt.preparing))
    if attempt.more is not None and attempt.more.exclusions:
        lent_core_us = apply_lending.lent_core_us(state, job, attempt)
        attempt = replace(attempt, more=replace(attempt.more, lent_core_us=lent_core_us))
    if attempt.informing:
        attempt = _informed(attempt, fact.released)
    job = replace(
        job,
        state=moved(job, JobState.COMPLETING),
        attempt=attempt,
        outcome=fact.outcome,
        exit_code=end.exit_code if end is not None else 0,
        exit_signal=end.signal if end is not None else 0,
        exit_text=fact.text or (end.text if end is not None else ""),
        started_us=started_us,
        ended_us=ended_us,
        paused_us=paused_us(attempt, ended_us),
        avoid=job.avoid.union(fact.avoid),
        avoid_until_us=fact.avoid_until_us if fact.avoid else job.avoid_until_us,
        not_before_us=fact.not_before_us,
        launch_failures=job.launch_failures + (1 if fact.avoid and fact.outcome is JobState.PENDING else 0),
    )
    state.drop_steps(job.job_id)
    charge(state, job, attempt)
    launch_failures.apply_failed(state, job, fact.blamed)
    state.touched.ended.append((job, attempt))
    if end is None and not fact.avoid and attempt.first in fact.released:
        job = replace(job, given_up=(*job.given_up, _as_limited(job, attempt))[-GIVEN_UP_MAX:])
    if job.spec.retry is not None:
        job = replace(job, retry=apply_retries.noted(job, attempt, fact, state.now_us))
    if job.spec.mail_type:
        job = apply_mail.ended(state, job, before, fact)
    if held and fact.residue:
        job = replace(job, attempt=None, residues=(*job.residues, attempt))
    elif not held:
        job = replace(job, attempt=_left_of(job, replace(attempt, phase=was)))
    _put_settled(state, job)
    if job.pack is not None:
        apply_packs.note_failure(state, job, fact.outcome)
    _note_start(state, job, started_us)


def _as_limited(job: Job, attempt: Attempt) -> Attempt:
    """The attempt with the time limit that it ran with: a retry may give its job another one."""
    if job.spec.retry is None:
        return attempt
    return replace(attempt, time_limit_s=limit_s(job, attempt) or UNLIMITED_S)


def _left_of(job: Job, attempt: Attempt) -> Attempt | None:
    """The attempt that has given back its last node, until its programs on the controller's host have ended."""
    return apply_controller_phases.settling(job, attempt) if attempt.more is not None else None


def apply_returned(state: State, fact: facts.AttemptReturned) -> None:
    """Correct the accounting only: the job may have moved on since."""
    job = state.find_job(fact.job_id)
    found = [one for one in job.given_up if one.number == fact.attempt] if job is not None else []
    if job is None or not found:
        # It has finished, and this state was loaded since: it holds no finished jobs.
        return
    attempt = found[0]
    state.put_job(replace(job, given_up=tuple(one for one in job.given_up if one is not attempt)))
    is_last = attempt.number == job.attempts and job.state in FINAL
    shown = replace(
        job,
        outcome=job.state if is_last else requeue_or_fail(job),
        exit_code=fact.end.exit_code,
        exit_signal=fact.end.signal,
        exit_text="; ".join(filter(None, (GIVEN_UP, fact.end.text))),
    )
    started_us = attempt.started_us or fact.end.started_us
    ended_us = fact.end.ended_us or attempt.ended_us
    state.touched.returned.append(
        (shown, replace(attempt, end=fact.end, started_us=started_us, ended_us=ended_us))
    )


def apply_avoidance_ended(state: State, fact: facts.AvoidanceEnded) -> None:
    state.put_job(replace(state.get_job(fact.job_id), avoid=frozenset(), avoid_until_us=0))


def apply_released(state: State, fact: facts.NodesReleased) -> None:
    found = state.find_attempt(fact.job_id, fact.attempt)
    assert found is not None
    job, attempt = found
    if fact.epilog_us:
        apply_phases.learn_epilog(state, fact, attempt.ended_us or attempt.placed_us)
    held = attempt.held.difference(fact.nodes)
    slim = replace(attempt, held=held, waiting=attempt.waiting.difference(fact.nodes))
    if attempt.leaving:
        slim = apply_parts.released(state, job, slim, fact.nodes)
    slim = apply_phases.prepared(slim, fact.nodes)
    if slim.informing:
        slim = _informed(slim, fact.nodes)
    if attempt is not job.attempt:
        rest = tuple(a if a is not attempt else slim for a in job.residues)
        state.put_job(replace(job, residues=tuple(a for a in rest if a.held)))
    elif attempt.phase is AttemptPhase.RELEASING and not held:
        _put_settled(state, replace(job, attempt=_left_of(job, slim)))
    else:
        state.put_job(replace(job, attempt=slim))


def apply_controller_phase_ended(state: State, fact: facts.ControllerPhaseEnded) -> None:
    _put_settled(state, apply_controller_phases.ended(state, fact))


def apply_lost(state: State, fact: facts.NodesLost) -> None:
    job = state.get_job(fact.job_id)
    attempt = job.attempt
    assert attempt is not None and attempt.number == fact.attempt
    charge_left(state, job, attempt, [span for span in spans_in_use(attempt) if span.node in fact.nodes])
    attempt = apply_lending.closed(attempt, fact.nodes, state.now_us)
    more = attempt.more or AttemptMore()
    more = replace(more, gone=more.gone.union(fact.nodes))
    state.put_job(replace(job, attempt=replace(attempt, more=more)))


def _put_settled(state: State, job: Job) -> None:
    """Give the job its final state, or let it wait again, once no attempt is live."""
    if job.attempt is not None or job.outcome is None:
        state.put_job(job)
        return
    outcome = job.outcome
    if job.retry is not None:
        job = apply_retries.settled(job)
    if outcome is JobState.PENDING:
        job = replace(job, state=moved(job, JobState.PENDING), outcome=None)
    else:
        job = replace(job, state=moved(job, outcome), not_before_us=0)
    state.put_job(job)
    if job.pack is not None and outcome is JobState.PENDING:
        apply_packs.wait_again(state, job)
    if job.array_job_id:
        _count_task(state, job, -1)


def _count_task(state: State, task: Job, change: int) -> None:
    """Keep the array's record in step with a task that began to run, waits again, or is final."""
    array = state.find_job(task.array_job_id)
    if array is None:
        return
    if task.state in ACTIVE or change > 0:
        _put_array(state, replace(array, tasks_running=array.tasks_running + change))
        return
    running = array.tasks_running + change
    if task.state is JobState.COMPLETED:
        array = replace(array, tasks_ok=ranges.add(array.tasks_ok, task.array_task), tasks_running=running)
    elif task.state in FINAL:
        array = replace(
            array,
            tasks_failed=ranges.add(array.tasks_failed, task.array_task),
            tasks_running=running,
            exit_code=max(array.exit_code, task.exit_code),
            exit_signal=max(array.exit_signal, task.exit_signal),
        )
    else:
        array = replace(array, tasks_running=running)
    _put_array(state, array)


def _put_array(state: State, array: Job) -> None:
    """End an array with its last task."""
    assert array.spec.array is not None
    total = ranges.count(array.spec.array.tasks)
    settled = ranges.count(array.tasks_ok) + ranges.count(array.tasks_failed)
    if settled == total and array.state is JobState.PENDING:
        outcome = array.outcome or _array_outcome(array)
        array = replace(array, state=moved(array, outcome), outcome=outcome, ended_us=state.now_us, open=())
        if array.spec.mail_type:
            array = apply_mail.finished(state, array)
        state.touched.ended.append((array, None))
    state.put_job(array)
    state.want_plan()


def _array_outcome(array: Job) -> JobState:
    if not array.tasks_failed:
        return JobState.COMPLETED
    return JobState.CANCELLED if array.exit_text and not array.tasks_ok else JobState.FAILED


def apply_finished(state: State, fact: facts.JobFinished) -> None:
    job = state.get_job(fact.job_id)
    job = replace(job, outcome=fact.state, exit_text=fact.text, open=(), not_before_us=0)
    if job.is_array:
        assert job.tasks_left is not None
        failed = ranges.union(job.tasks_failed, job.tasks_left)
        _put_array(state, replace(job, tasks_left=(), tasks_failed=failed))
        return
    # The end of an attempt that it had before was not the job's.
    job = replace(job, ended_us=state.now_us)
    if job.attempt is not None:
        # Its nodes are still giving back what the attempt held; it will not wait for another one.
        if job.spec.mail_type:
            job = apply_mail.finished(state, job)
        state.touched.ended.append((job, job.attempt))
        state.put_job(job)
        apply_packs.note_failure(state, job, fact.state)
        return
    if job.grows is not None:
        apply_elastic.forget(state, job.grows, job.job_id)
    job = replace(job, state=moved(job, fact.state))
    if job.spec.mail_type:
        job = apply_mail.finished(state, job, never_met=fact.never_met)
    state.touched.ended.append((job, None))
    state.put_job(job)
    apply_packs.note_failure(state, job, fact.state)
    if job.array_job_id and (array := state.find_job(job.array_job_id)) is not None:
        # The task was not running (it waited for another attempt), so only its result counts.
        _put_array(state, replace(array, tasks_failed=ranges.add(array.tasks_failed, job.array_task)))


def apply_forgotten(state: State, fact: facts.JobsForgotten) -> None:
    for job_id in fact.job_ids:
        # A state that began with rows never had the jobs that were finished then.
        if job_id in state.jobs:
            state.drop_job(job_id)
