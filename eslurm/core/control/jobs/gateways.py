"""The start of a job's gateways, and their failures (X-52, X-53).

When all nodes of an attempt are prepared the daemons start, each tells its address, and the helper on the first node writes
the routes: then the script may start. If any of it fails or takes too long, the helper writes the error file into the user's
directory, the attempt ends with all that runs of it, and the job is tried again later. A daemon that ends while the script
runs does not end the job: the script gets a signal.
"""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.control.jobs.stopping import ended, stop_text, stopped_outcome
from eslurm.core.model import facts
from eslurm.core.model.gateways import (
    LIMITS_S,
    RETRY_S,
    TEXT_CHARS_MAX,
    GatewayStage,
    GatewayState,
    is_address,
)
from eslurm.core.model.job import Attempt, Job, StepEnd
from eslurm.core.model.job_states import AttemptPhase, JobState
from eslurm.core.model.messages import EffectDone
from eslurm.core.model.parts import gateway_nodes
from eslurm.core.model.protocol import GatewayReported, PhaseReported
from eslurm.core.model.step_key import GATEWAY, ROUTES
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State


def on_launched(
    state: State, job: Job, attempt: Attempt, message: EffectDone, now_us: int
) -> list[facts.Fact]:
    """Nodes have answered the command of the present stage."""
    gateway = attempt.gateway
    assert gateway is not None
    started: list[int] = []
    refused: list[tuple[int, str]] = []
    for outcome in message.outcomes:
        nodes = [number for number in outcome.nodes if number in gateway.waiting]
        if outcome.status == "ok":
            started += nodes
        elif outcome.status == "failed":
            refused += [(number, outcome.text) for number in nodes]
    if not refused:
        return [facts.GatewaysAnswered(job.job_id, attempt.number, tuple(started))] if started else []
    number, text = refused[0]
    if gateway.stage == GatewayStage.FAILED:
        return _given_up(state, job, attempt, gateway, now_us)
    if gateway.stage == GatewayStage.ROUTES:
        return _failed(state, job, attempt, gateway, now_us, f"routes could not be written: {text}")
    return _daemon_failed(state, job, attempt, gateway, number, f"its daemon could not start: {text}", now_us)


def on_addresses(state: State, report: GatewayReported, now_us: int) -> list[facts.Fact]:
    """A gateway tells the addresses of its daemons. When all have, the routes are written."""
    found = _starting(state, report.job_id, report.attempt)
    if found is None or found[2].stage != GatewayStage.DAEMONS:
        return []
    job, attempt, gateway = found
    numbers = gateway_nodes(job.spec, attempt)
    told = {number for number, _ in gateway.addresses}
    if report.node not in numbers or report.node in told:
        return []
    assert job.spec.gateway is not None
    if len(report.addresses) != job.spec.gateway.per_node or not all(map(is_address, report.addresses)):
        said = ", ".join(report.addresses)[:TEXT_CHARS_MAX]
        text = f"{said!r} is no address ip:port"
        return _daemon_failed(state, job, attempt, gateway, report.node, text, now_us)
    up = facts.GatewayUp(job.job_id, attempt.number, report.node, report.addresses)
    if told.union((report.node,)).issuperset(numbers):
        return [up, _staged(job, attempt, GatewayStage.ROUTES, now_us)]
    return [up]


def on_step_ended(state: State, report: PhaseReported, now_us: int) -> list[facts.Fact]:
    """A daemon or a helper ended."""
    if report.phase == GATEWAY:
        return _on_daemon_ended(state, report, now_us)
    found = _starting(state, report.job_id, report.attempt)
    if found is None or report.node != found[1].first:
        return []
    job, attempt, gateway = found
    if gateway.stage == GatewayStage.FAILED and report.phase != ROUTES:
        return _given_up(state, job, attempt, gateway, now_us)
    if gateway.stage != GatewayStage.ROUTES or report.phase != ROUTES:
        return []
    if report.end.is_good:
        return [_staged(job, attempt, GatewayStage.READY, now_us)]
    return _failed(state, job, attempt, gateway, now_us, f"routes could not be written: {how(report.end)}")


def _on_daemon_ended(state: State, report: PhaseReported, now_us: int) -> list[facts.Fact]:
    found = state.find_attempt(report.job_id, report.attempt)
    gateway = found[1].gateway if found is not None else None
    if found is None or gateway is None or found[1] is not found[0].attempt:
        return []
    job, attempt = found
    if report.node not in gateway_nodes(job.spec, attempt) or report.node in dict(gateway.ended):
        return []
    text = f"daemon ended with {how(report.end)}"
    if gateway.stage in (GatewayStage.DAEMONS, GatewayStage.ROUTES):
        return _daemon_failed(state, job, attempt, gateway, report.node, text, now_us)
    if gateway.stage != GatewayStage.READY or attempt.stop is not None:
        return []
    down = facts.GatewayDown(job.job_id, attempt.number, report.node, text)
    if attempt.phase is not AttemptPhase.RUNNING:
        return [down]
    return [down, *signals(state, job, attempt)]


def signals(state: State, job: Job, attempt: Attempt) -> list[facts.Fact]:
    """The signal by which a script hears of the end of a daemon."""
    signal = state.config.gateway_signal
    return [facts.JobSignalled(job.job_id, attempt.number, signal, "a gateway")] if signal else []


def overdue(state: State, job_id: int, now_us: int) -> list[facts.Fact]:
    """The present stage takes too long."""
    job = state.find_job(job_id)
    attempt = job.attempt if job is not None else None
    gateway = attempt.gateway if attempt is not None else None
    if job is None or attempt is None or gateway is None or not 0 < gateway.until_us <= now_us:
        return []
    if gateway.stage == GatewayStage.FAILED:
        return _given_up(state, job, attempt, gateway, now_us)
    limit_s = LIMITS_S[gateway.stage]
    if gateway.stage == GatewayStage.ROUTES:
        return _failed(state, job, attempt, gateway, now_us, f"routes were not written within {limit_s} s")
    silent = _silent(job, attempt, gateway)
    names = ", ".join(state.node_names(silent[:4])) + (", ..." if len(silent) > 4 else "")
    count = f"{len(silent)} of {len(gateway_nodes(job.spec, attempt))} gateways"
    return _failed(
        state, job, attempt, gateway, now_us, f"{count} told no address within {limit_s} s: {names}"
    )


def how(end: StepEnd) -> str:
    """The end of a daemon or a helper, as a shell counts it, with its own last words."""
    code = 128 + end.signal if end.signal else end.exit_code
    text = end.text[:TEXT_CHARS_MAX]
    return f"{code}: {text}" if text else str(code)


def _starting(state: State, job_id: int, number: int) -> tuple[Job, Attempt, GatewayState] | None:
    """An attempt whose gateways are not ready yet."""
    found = state.find_attempt(job_id, number)
    if found is None or found[1] is not found[0].attempt:
        return None
    job, attempt = found
    gateway = attempt.gateway
    if gateway is None or attempt.phase is not AttemptPhase.PREPARING:
        return None
    return job, attempt, gateway


def _silent(job: Job, attempt: Attempt, gateway: GatewayState) -> list[int]:
    told = {number for number, _ in gateway.addresses}
    return [number for number in gateway_nodes(job.spec, attempt) if number not in told]


def _staged(
    job: Job, attempt: Attempt, stage: GatewayStage, now_us: int, text: str = ""
) -> facts.GatewaysStaged:
    limit_s = LIMITS_S[stage]
    until_us = now_us + limit_s * SECOND_US if limit_s else 0
    return facts.GatewaysStaged(job.job_id, attempt.number, stage, until_us, text)


def _daemon_failed(
    state: State, job: Job, attempt: Attempt, gateway: GatewayState, number: int, text: str, now_us: int
) -> list[facts.Fact]:
    down = facts.GatewayDown(job.job_id, attempt.number, number, text)
    (name,) = state.node_names([number])
    gateway = replace(gateway, ended=(*gateway.ended, (number, text)))
    return [down, *_failed(state, job, attempt, gateway, now_us, f"gateway {name}: {text}")]


def _failed(
    state: State, job: Job, attempt: Attempt, gateway: GatewayState, now_us: int, text: str
) -> list[facts.Fact]:
    """Let the helper write the error file, if the user wants one."""
    if job.spec.gateway is not None and job.spec.gateway.quiet:
        return _given_up(state, job, attempt, replace(gateway, text=text), now_us)
    return [_staged(job, attempt, GatewayStage.FAILED, now_us, text)]


def _given_up(
    state: State, job: Job, attempt: Attempt, gateway: GatewayState, now_us: int
) -> list[facts.Fact]:
    """End the attempt; its job waits, after too many failures until an administrator has looked at it."""
    why = f"its gateways failed: {gateway.text}"
    if attempt.stop is not None:
        outcome = stopped_outcome(job, attempt.stop.cause)
        text = stop_text(attempt.stop.cause, attempt.stop.by)
        return [ended(state, job, attempt, now_us, outcome=outcome, text=text)]
    bad = [number for number, _ in gateway.ended] or _silent(job, attempt, gateway) or [attempt.first]
    end = ended(
        *(state, job, attempt, now_us),
        outcome=JobState.PENDING,
        text=why,
        avoid=tuple(bad),
        not_before_us=now_us + RETRY_S * SECOND_US,
    )
    if job.launch_failures + 1 >= state.config.launch_failures_max:
        return [end, facts.JobHeld(job.job_id, "system", why)]
    return [end]
