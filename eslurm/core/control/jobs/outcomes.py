"""Answers and reports of nodes about jobs, turned into facts.

Unreached means unknown: it changes nothing here, except that a job of many nodes whose preparation missed some is tried
again elsewhere (its script has certainly not run). The effect delivery repeats owed effects.
"""

from __future__ import annotations

import msgspec

from eslurm.core.control.effects import Owing, find_owing
from eslurm.core.control.jobs import gateways, growing
from eslurm.core.control.jobs.grown_retries import grown
from eslurm.core.control.jobs.launch_answers import launch_answers
from eslurm.core.control.jobs.parts import SIGKILL
from eslurm.core.control.jobs.retries import judged
from eslurm.core.control.jobs.step_ends import left
from eslurm.core.control.jobs.stopping import ended, ended_by, outcome_of, stop_text
from eslurm.core.control.jobs.times import end_in_time, start_in_time
from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.job_states import AttemptPhase, JobState, StopCause
from eslurm.core.model.messages import EffectDone
from eslurm.core.model.protocol import Gone, NodeGone, Started, StepEnded
from eslurm.core.model.step_key import EPILOG
from eslurm.core.relay.results import USER_REFUSED
from eslurm.core.state import faults, launch_failures
from eslurm.core.state.cluster import State

_started = msgspec.msgpack.Decoder(Started)
_gone = msgspec.msgpack.Decoder(Gone)


def on_effect_done(state: State, message: EffectDone, now_us: int) -> list[facts.Fact]:
    """Process the outcome of an owed effect. Answers to effects that are settled meanwhile change nothing."""
    if message.revision in state.step_owed:
        return _on_step_launched(state, message)
    found = find_owing(state, message.revision)
    if found is None:
        return []
    job, attempt, owing = found
    match owing:
        case Owing.LAUNCH if attempt.prepares_first:
            return _on_prepared(state, job, attempt, message, now_us)
        case Owing.LAUNCH | Owing.START:
            return _on_started(state, job, attempt, message, now_us)
        case Owing.SUSPEND | Owing.SET_TIME:
            return _on_informed(job, attempt, message)
        case Owing.JOIN:
            return growing.on_prepared(state, job, attempt, message, now_us)
        case Owing.EXCLUDE:
            return _on_excluded(job, attempt, message)
        case Owing.GATEWAYS:
            return gateways.on_launched(state, job, attempt, message, now_us)
        case _:
            return _on_end_answered(state, job, attempt, message, now_us)


def _on_started(
    state: State, job: Job, attempt: Attempt, message: EffectDone, now_us: int
) -> list[facts.Fact]:
    first = attempt.first
    for outcome in message.outcomes:
        if first not in outcome.nodes:
            continue
        if outcome.status == "ok":
            said_us = _started.decode(outcome.payload).at_us if outcome.payload else now_us
            started_us = start_in_time(attempt, said_us, now_us)
            begun: list[facts.Fact] = [facts.AttemptStarted(job.job_id, attempt.number, started_us)]
            if attempt.gateway is not None and attempt.gateway.ended:
                begun += gateways.signals(state, job, attempt)
            return begun
        if outcome.status == "failed" and outcome.code == USER_REFUSED:
            return _user_refused(state, job, attempt, now_us, outcome.text)
        if outcome.status == "failed":
            # The node vouches that the script has not run there and never will.
            released = (first,) if not attempt.prepares_first else ()
            return launch_failed(state, job, attempt, now_us, released, (first,), (first,), outcome.text)
    return []


def _on_prepared(
    state: State, job: Job, attempt: Attempt, message: EffectDone, now_us: int
) -> list[facts.Fact]:
    answers = launch_answers(message, attempt.waiting, has_phases=bool(attempt.phases))
    if not answers.bad:
        found: list[facts.Fact] = []
        if answers.preparing:
            until_us = answers.report_until_us(now_us)
            found.append(facts.NodesPreparing(job.job_id, attempt.number, answers.preparing, until_us))
        if answers.ok:
            found.append(facts.NodesPrepared(job.job_id, attempt.number, answers.ok))
        return found
    text = answers.text or f"{len(answers.unreached)} of its {len(attempt.nodes)} nodes did not answer"
    # A node that refuses a late copy of the launch may have run its prolog: it says when its epilog has ended.
    free = () if attempt.phases else answers.failed
    return launch_failed(state, job, attempt, now_us, free, answers.bad, answers.failed, text)


def launch_failed(
    state: State,
    job: Job,
    attempt: Attempt,
    now_us: int,
    released: tuple[int, ...],
    avoid: tuple[int, ...],
    blamed: tuple[int, ...],
    text: str,
) -> list[facts.Fact]:
    """Put the job back into the queue, elsewhere if possible; after too many tries hold it. Nodes that also failed
    launches of other jobs are set aside.
    """
    if attempt.stop is not None:
        outcome = ended_by(job, attempt.stop)
        return [ended(state, job, attempt, now_us, outcome=outcome, released=released, text=text)]
    names = ", ".join(state.node_names(list(avoid[:4]))) + (", ..." if len(avoid) > 4 else "")
    why = f"could not be launched on {names}: {text}"
    end = ended(
        state,
        job,
        attempt,
        now_us,
        outcome=JobState.PENDING,
        released=released,
        text=why,
        avoid=avoid,
        # A step that was started meanwhile may run: then every node must confirm its end first.
        residue=not state.steps_of.get(job.job_id),
        blamed=blamed,
    )
    aside = launch_failures.set_aside(state, job, blamed, now_us)
    if job.launch_failures + 1 >= state.config.launch_failures_max:
        return [end, *aside, facts.JobHeld(job.job_id, "system", why)]
    return [end, *aside]


def _user_refused(state: State, job: Job, attempt: Attempt, now_us: int, text: str) -> list[facts.Fact]:
    """Handle a node whose settings refuse this user's jobs: no fault of the node, and no retry before a change."""
    released = (attempt.first,) if not attempt.prepares_first else ()
    if attempt.stop is not None:
        return launch_failed(state, job, attempt, now_us, released, (), (), text)
    (name,) = state.node_names([attempt.first])
    why = f"could not be launched on {name}: {text}"
    residue = not state.steps_of.get(job.job_id)
    end = ended(
        *(state, job, attempt, now_us),
        outcome=JobState.PENDING,
        released=released,
        text=why,
        residue=residue,
    )
    return [end, facts.JobHeld(job.job_id, "system", why)]


def _on_informed(job: Job, attempt: Attempt, message: EffectDone) -> list[facts.Fact]:
    told = [number for outcome in message.outcomes if outcome.status == "ok" for number in outcome.nodes]
    known = tuple(number for number in told if number in attempt.held)
    return [facts.AttemptInformed(job.job_id, attempt.number, message.revision, known)] if known else []


def _on_excluded(job: Job, attempt: Attempt, message: EffectDone) -> list[facts.Fact]:
    waiting = {one.node for one in attempt.exclusions if one.revision == message.revision}
    done: list[int] = []
    refused: list[int] = []
    for outcome in message.outcomes:
        if outcome.status in ("ok", "failed"):
            told = done if outcome.status == "ok" else refused
            told += [node for node in outcome.nodes if node in waiting]
    if not done and not refused:
        return []
    key = job.job_id, attempt.number, message.revision
    return [facts.CoresConfirmed(*key, tuple(done), tuple(refused))]


def _on_end_answered(
    state: State, job: Job, attempt: Attempt, message: EffectDone, now_us: int
) -> list[facts.Fact]:
    gone: list[int] = []
    never_started = False
    for outcome in message.outcomes:
        if outcome.status != "ok" or not outcome.payload:
            continue
        for number in outcome.nodes:
            if number not in attempt.held:
                continue
            if number == attempt.first and attempt.phase is not AttemptPhase.RELEASING:
                # If it had started, its outcome is in the node's spool and decides.
                never_started = not _gone.decode(outcome.payload).started
                if never_started:
                    gone.append(number)
            else:
                gone.append(number)
    if never_started and attempt.stop is not None:
        return [_never_started(state, job, attempt, now_us, tuple(gone))]
    return [facts.NodesReleased(job.job_id, attempt.number, tuple(gone))] if gone else []


def _never_started(
    state: State, job: Job, attempt: Attempt, now_us: int, gone: tuple[int, ...]
) -> facts.AttemptEnded:
    """The end of an attempt that was stopped before its script ran on its first node, which vouches for it."""
    assert attempt.stop is not None
    text = stop_text(attempt.stop.cause, attempt.stop.by)
    return ended(state, job, attempt, now_us, outcome=ended_by(job, attempt.stop), released=gone, text=text)


def on_step_ended(state: State, report: StepEnded, now_us: int) -> list[facts.Fact]:
    """The batch script of an attempt ended on its first node (reported at least once)."""
    found = state.find_attempt(report.job_id, report.attempt)
    returned = _returned(state, report, now_us)
    if found is None:
        return returned
    job, attempt = found
    if (
        attempt is job.attempt
        and attempt.phase is not AttemptPhase.RELEASING
        and report.node == attempt.first
    ):
        outcome = outcome_of(job, attempt, report.end)
        released = (report.node,) if report.gone and report.node in attempt.held else ()
        text = ""
        if attempt.stop is not None:
            text = stop_text(attempt.stop.cause, attempt.stop.by)
        end = end_in_time(attempt, report.end, now_us)
        is_released = attempt.stop is not None and attempt.stop.cause is StopCause.RELEASE
        if attempt.stop is not None and is_released and end.cause == "signalled":
            # No process was there to be signalled: it has ended as its command did.
            end = msgspec.structs.replace(
                end, exit_code=attempt.stop.exit_code, signal=0, cause="exited", text=""
            )
        verdict = judged(state, job, attempt, report.end, outcome, now_us, grown)
        text = "; ".join(filter(None, (text, verdict.why)))
        outcome, retry = verdict.outcome, verdict.retry
        return [
            ended(
                *(state, job, attempt, now_us),
                outcome=outcome,
                end=end,
                released=released,
                text=text,
                retry=retry,
            )
        ]
    if report.gone:
        return [*returned, *given_back(state, report.job_id, report.attempt, report.node, now_us)]
    return returned


def _returned(state: State, report: StepEnded, now_us: int) -> list[facts.Fact]:
    """Record the late report of a node that was given up with the attempt; once, and while the job is in memory."""
    job = state.find_job(report.job_id)
    for attempt in job.given_up if job is not None else ():
        if attempt.number == report.attempt and attempt.first == report.node:
            return [
                facts.AttemptReturned(report.job_id, report.attempt, end_in_time(attempt, report.end, now_us))
            ]
    return []


def on_node_gone(state: State, report: NodeGone, now_us: int) -> list[facts.Fact]:
    """Nothing of the attempt is left on the node, its epilog included. One that failed changes nothing for the job."""
    job_id, number = report.job_id, report.attempt
    fault: list[facts.Fact] = []
    epilog = report.epilog
    if epilog is not None and not epilog.is_good:
        fault = faults.failed(
            state.nodes.get(report.node), report.incarnation, EPILOG, epilog, job_id, number, now_us
        )
    epilog_us = epilog.took_us if epilog is not None and epilog.is_good else 0
    found = state.find_attempt(job_id, number)
    if report.is_unstarted and found is not None and found[1].stop is not None:
        job, attempt = found
        is_first = attempt is job.attempt and report.node == attempt.first and report.node in attempt.held
        if is_first and attempt.phase is not AttemptPhase.RELEASING:
            # The order to end has overtaken that to start: nothing else says that the attempt is over.
            return [*fault, _never_started(state, job, attempt, now_us, (report.node,))]
    return [*fault, *given_back(state, job_id, number, report.node, now_us, epilog_us)]


def given_back(
    state: State, job_id: int, number: int, node: int, now_us: int, epilog_us: int = 0
) -> list[facts.Fact]:
    """Give back a node on which nothing of the attempt is left, its epilog included, which ran for so long."""
    found = state.find_attempt(job_id, number)
    if found is None:
        return []
    job, attempt = found
    if node not in attempt.held:
        return []
    if node in attempt.joining and attempt is job.attempt and growing.goes_on(attempt):
        failed = growing.failed(state, job, attempt, now_us, (), "its nodes were ended")
        return [*failed, facts.NodesReleased(job_id, number, (node,), epilog_us)]
    if attempt is job.attempt and attempt.phase is not AttemptPhase.RELEASING and node == attempt.first:
        return []
    own = left(state, job_id, (node,)) if attempt is job.attempt else []
    return [*own, facts.NodesReleased(job_id, number, (node,), epilog_us)]


def _on_step_launched(state: State, message: EffectDone) -> list[facts.Fact]:
    job_id, number = state.step_owed[message.revision]
    step = state.steps[(job_id, number)]
    started: list[int] = []
    failed: list[tuple[int, str]] = []
    for outcome in message.outcomes:
        nodes = [node for node in outcome.nodes if node in step.waiting]
        if outcome.status == "ok":
            started += nodes
        elif outcome.status == "failed":
            failed += [(node, outcome.text) for node in nodes]
    if not started and not failed:
        return []
    answered: list[facts.Fact] = [facts.StepAnswered(job_id, number, tuple(started), tuple(failed))]
    left = step.waiting.difference(started, [node for node, _ in failed])
    if step.launch.files is not None and not left and (failed or step.failed):
        # No command notices it, whose end would end the tasks on the other nodes.
        answered.append(facts.JobSignalled(job_id, step.attempt, SIGKILL, "eslurm", number))
    return answered
