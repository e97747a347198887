"""Timers that are due, one at a time: a timer that fired is a fact like any other.

The heap is an index: an entry whose record has moved on since is simply dropped.
"""

from __future__ import annotations

import heapq
from typing import Final

from eslurm.core.control.jobs import gateways, growing, guests, mail, phases
from eslurm.core.control.jobs.dependency import delay_over
from eslurm.core.control.members import token_expired
from eslurm.core.control.nodes import lost
from eslurm.core.control.tokens import expired
from eslurm.core.model import facts
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.member import JOIN_TOKEN
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.timekeeping import lost_after_s
from eslurm.core.model.token import ID_BYTES, TOKEN
from eslurm.core.model.units import SECOND_US
from eslurm.core.state import boundaries, faults
from eslurm.core.state.cluster import MAIL_TIMER, REMOVED_LOOK_US, State, Timer
from eslurm.core.state.job_indexes import next_mail, shorter_at_us

TICK_US: Final = (20_000, SECOND_US)
"""Least and most time between two ticks: the clock may jump, so it is looked at again before long."""


def next_timer_us(state: State) -> int | None:
    """Time of the next timer, if any is set (it may turn out to be stale)."""
    if state.unsettled or len(state.finished) > state.config.finished_jobs_max:
        return state.now_us
    return state.timers[0][0] if state.timers else None


def next_tick_in_us(state: State, now_us: int) -> int:
    """Time until the next `Tick`."""
    least_us, most_us = TICK_US
    due_us = next_timer_us(state)
    return most_us if due_us is None else min(max(due_us - now_us, least_us), most_us)


def pop_due(state: State, now_us: int) -> list[facts.Fact] | None:
    """The facts of the next due timer (perhaps none); None when no timer is due."""
    if len(state.finished) > state.config.finished_jobs_max:
        job_id, _ = state.finished.popitem(last=False)
        if state.is_awaited(job_id):
            # They still have to look at its record: its turn comes again.
            state.finished[job_id] = None
            return []
        return _forget(state, job_id, now_us)
    if not state.timers or state.timers[0][0] > now_us:
        return None
    _, kind, key = heapq.heappop(state.timers)
    if kind == "due":
        return _due(state, key, now_us)
    if kind == "lost":
        return _lost(state, key, now_us)
    if kind == "avoid":
        return _avoids_no_more(state, key, now_us)
    if kind == "depend":
        return delay_over(state, key, now_us)
    if kind == "aside":
        return _tried_again(state, key, now_us)
    if kind == "fault":
        return faults.due(node, now_us) if (node := state.nodes.get(key)) is not None else []
    if kind == "preparing":
        return phases.overdue(state, key, now_us)
    if kind == "gateway":
        return gateways.overdue(state, key, now_us)
    if kind == "guests":
        return guests.overdue(state, key, now_us)
    if kind == "guest":
        return guests.expired(state, key, now_us)
    if kind == "growth":
        return growing.overdue(state, key, now_us)
    if kind == "shorter":
        return growing.shorter(state, key, now_us)
    if kind == "removed":
        return _left(state, now_us)
    if kind == MAIL_TIMER:
        return mail.due(state, key, now_us)
    if kind == boundaries.TIMER:
        if 0 < state.policy_due_us <= now_us:
            boundaries.rearm(state, now_us)
        return []
    if kind == TOKEN:
        return expired(state, key.to_bytes(ID_BYTES), now_us)
    if kind == JOIN_TOKEN:
        return token_expired(state, key.to_bytes(ID_BYTES), now_us)
    return _forget(state, key, now_us)


def drop_stale(state: State) -> None:
    """Drop the timers that would make no fact any more: a state that only applies never pops one."""
    state.timers[:] = [timer for timer in state.timers if _may_fire(state, timer)]
    heapq.heapify(state.timers)


def _may_fire(state: State, timer: Timer) -> bool:
    at_us, kind, key = timer
    if kind == "lost":
        node = state.nodes.get(key)
        if node is None or node.state not in (NodeState.UNREACHABLE, NodeState.UNKNOWN):
            return False
        return state.lost_at_us(node) == at_us
    if kind == "aside":
        return (aside := state.nodes.get(key)) is not None and aside.aside_until_us == at_us
    if kind == "fault":
        faulted = state.nodes.get(key)
        return faulted is not None and any(fault.until_us == at_us for fault in faulted.faults)
    if kind == boundaries.TIMER:
        return at_us == state.policy_due_us
    if kind == TOKEN:
        return key.to_bytes(ID_BYTES) in state.tokens
    if kind == JOIN_TOKEN:
        return key.to_bytes(ID_BYTES) in state.members.tokens
    if kind == "removed":
        return bool(state.removed)
    job = state.find_job(key)
    if job is None:
        return False
    if kind == "avoid":
        return bool(job.avoid) and job.avoid_until_us == at_us and job.state not in FINAL
    if kind == "depend":
        return any(dependency.due_us == at_us for dependency in job.open)
    if kind == "preparing":
        attempt = job.attempt
        return attempt is not None and attempt.more is not None and attempt.more.preparing_until_us == at_us
    if kind == "gateway":
        attempt = job.attempt
        return attempt is not None and attempt.gateway is not None and attempt.gateway.until_us == at_us
    if kind == "guests":
        return job.guests is not None and job.guests.until_us == at_us and guests.is_due(job, job.guests)
    if kind == "guest":
        return job.guest_of is not None and job.guest_of.until_us == at_us and job.state not in FINAL
    if kind == "shorter":
        return job.grows is not None and shorter_at_us(state.find_job(job.grows.job_id), job) == at_us
    if kind == MAIL_TIMER:
        return next_mail(job)[1] == at_us
    if kind == "growth":
        growth = job.attempt.growth if job.attempt is not None else None
        return growth is not None and growth.preparing_until_us == at_us
    return job.not_before_us == at_us if kind == "due" else job.state in FINAL


def _due(state: State, job_id: int, now_us: int) -> list[facts.Fact]:
    job = state.find_job(job_id)
    if job is None or job.state in FINAL or not job.not_before_us or job.not_before_us > now_us:
        return []
    return [facts.JobDue(job_id)]


def _avoids_no_more(state: State, job_id: int, now_us: int) -> list[facts.Fact]:
    job = state.find_job(job_id)
    if job is None or job.state in FINAL or not job.avoid or job.avoid_until_us > now_us:
        return []
    return [facts.AvoidanceEnded(job_id)]


def _tried_again(state: State, number: int, now_us: int) -> list[facts.Fact]:
    node = state.nodes.get(number)
    if node is None or not 0 < node.aside_until_us <= now_us:
        return []
    return [facts.NodeTriedAgain(number)]


def _lost(state: State, number: int, now_us: int) -> list[facts.Fact]:
    node = state.nodes.get(number)
    if node is None or node.state not in (NodeState.UNREACHABLE, NodeState.UNKNOWN):
        return []
    if state.lost_at_us(node) > now_us:
        # Another timer was set when its silence began anew or the configuration changed.
        return []
    if node.state is NodeState.UNKNOWN and number not in state.jobs_on:
        return []
    why = f"silent for {lost_after_s(state.config, node.orphans_dead_s):g} s"
    return lost(state, number, why, now_us, is_silent=True)


def _left(state: State, now_us: int) -> list[facts.Fact]:
    """Let go of nodes that left the configuration with jobs, once no job names them: the same configuration again."""
    if not state.removed:
        return []
    if state.removed <= state.named_nodes():
        heapq.heappush(state.timers, (now_us + REMOVED_LOOK_US, "removed", 0))
        return []
    return [facts.ConfigAccepted(state.config, ())]


def _forget(state: State, job_id: int, now_us: int) -> list[facts.Fact]:
    job = state.find_job(job_id)
    if job is None or job.state not in FINAL or job.residues:
        return []
    if job_id in state.packs:
        # The end of its pack sets another timer.
        return []
    if state.is_awaited(job_id) or (job.is_array and state.tasks_of.get(job_id)):
        # Dependent jobs are settled first, and its tasks are forgotten first.
        heapq.heappush(state.timers, (now_us + SECOND_US, "forget", job_id))
        return []
    return [facts.JobsForgotten((job_id,))]
