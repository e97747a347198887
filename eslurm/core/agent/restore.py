"""Restart of an agent: the state from the spool's records and the runner's steps.

Invariant: a step that was ordered to start is in the runner's list, or is started now (the same step to the same runner,
which is idempotent), or is behind a tombstone.

When the host was booted since the spool was written, `records.fold` has already turned every started attempt into a
tombstone and forgotten the prepared ones. Their processes are gone; the registration's new boot id and an inventory
without them say so, unless the runner still knows how a batch step ended (or that it was lost), which is then reported
like any other end.
"""

from __future__ import annotations

from collections.abc import Iterable

from eslurm.core.agent.actions import AcknowledgeSteps, Action, Vacate
from eslurm.core.agent.adjustments import readjust
from eslurm.core.agent.attempt import Attempt, Stage
from eslurm.core.agent.machine import Agent
from eslurm.core.agent.node import LocalNode
from eslurm.core.agent.records import EpilogOwed, Folded, Identity, Preparing
from eslurm.core.model.job import StepEnd
from eslurm.core.model.step_key import BATCH_STEP, PROLOG_STEP, StepKey


def restore(
    agent: Agent,
    spool: Folded,
    live: Iterable[tuple[StepKey, int]],
    ended: Iterable[tuple[StepKey, StepEnd]],
    now_us: int,
) -> list[Action]:
    """Fill a new `agent` and offer its nodes. `live` steps come with their start, `ended` ones with their end.

    `spool` has been folded up to and including a `Booted` record of this boot. Also for a first start,
    with nothing in the spool and no steps.
    """
    agent.registry.begin(spool.starts)
    _restore_nodes(agent, spool)
    _restore_fences(agent, spool)
    _restore_prepared(agent, spool)
    _restore_phases(agent, spool)
    for step, at_us in live:
        _restore_live(agent, step, at_us)
    ends = list(ended)
    for step, _ in ends:
        if step.is_phase:
            _restore_phase(agent, step)
    for step, end in ends:
        if step.is_batch:
            _restore_end(agent, step, end)
    for node in agent.registry.by_number.values():
        _resume(agent, node)
    agent.registry.on_numbered = lambda node: _claim_orphan_steps(agent, node)
    _close_orphan_steps(agent)
    agent.registry.offer(agent.registry.by_name.values())
    _vacate(agent, spool)
    actions = agent.on_timer(now_us)
    for step, end in ends:
        if step.is_phase and (step.node, step.job_id, step.attempt) in spool.before_boot:
            actions.append(AcknowledgeSteps((step,)))
        elif not step.is_batch:
            actions += agent.on_step_ended(step, end, now_us)
    return actions


def _vacate(agent: Agent, spool: Folded) -> None:
    """Say again which attempts have left, of which the former process may not have said it."""
    present = {(number, *key) for number, node in agent.registry.by_number.items() for key in node.attempts}
    if gone := spool.buried.keys() - present:
        agent.buffer.emit(Vacate(tuple(sorted(gone))))


def _resume(agent: Agent, node: LocalNode) -> None:
    for attempt in list(node.attempts.values()):
        agent.lifecycle.resume(attempt)


def _claim_orphan_steps(agent: Agent, node: LocalNode) -> bool:
    """The node has its number again: whether the runner knew steps of it."""
    live, ended = agent.lifecycle.orphan_steps.take(node.number)
    for step, at_us in live:
        _restore_live(agent, step, at_us)
    for step, end in ended:
        _restore_end(agent, step, end)
    _resume(agent, node)
    _close_orphan_steps(agent)
    return bool(live or ended)


def _close_orphan_steps(agent: Agent) -> None:
    orphan_steps = agent.lifecycle.orphan_steps
    if orphan_steps.is_open and all(node.number >= 0 for node in agent.registry.by_name.values()):
        orphan_steps.close()


def _restore_nodes(agent: Agent, spool: Folded) -> None:
    for name, node in agent.registry.by_name.items():
        if name in spool.numbers:
            agent.registry.set_number(node, spool.numbers[name])
        if spool.identities.get(name) != node.offer.node_uid:
            agent.buffer.write(Identity(name, node.offer.node_uid), durable=True)


def _restore_fences(agent: Agent, spool: Folded) -> None:
    for owner, epoch in spool.epochs.items():
        agent.buffer.fence(owner).epoch = epoch
        agent.buffer.owner = owner
    for owner, floor in spool.floors.items():
        agent.buffer.fence(owner).raise_floor(floor)
    for key, buried in spool.buried.items():
        agent.buffer.fence(buried.owner).bury(key, buried.revision, buried.started)
    for number, owner, revision, index in spool.signalled:
        agent.buffer.fence(owner).keep_signal((revision, index, number))


def _restore_prepared(agent: Agent, spool: Folded) -> None:
    for (number, job_id, attempt_number), record in spool.prepared.items():
        node = agent.registry.by_number.get(number)
        if node is None:
            continue
        node.attempts[job_id, attempt_number] = Attempt(
            number,
            job_id,
            attempt_number,
            record.owner,
            record.revision,
            record.launch,
            Stage.PREPARED,
            start=record.start,
            credential=record.credential,
        )
        attempt = node.attempts[job_id, attempt_number]
        attempt.was_prepared = bool(record.launch.phases)
        attempt.phase_credential = record.phase_credential
        readjust(attempt, spool.adjusted.get((number, job_id, attempt_number)))
        agent.cooperation.restore(attempt, spool.cores.get((number, job_id, attempt_number)))


def _restore_phases(agent: Agent, spool: Folded) -> None:
    """Attempts of which only phases are left here, or of which the prolog was not known to have ended."""
    owed: list[Preparing | EpilogOwed] = [*spool.preparing.values(), *spool.epilogs.values()]
    for record in owed:
        node = agent.registry.by_number.get(record.node)
        if node is None:
            continue
        launch = record.launch
        is_over = isinstance(record, EpilogOwed)
        stage = Stage.EPILOG if is_over else Stage.PREPARING
        key = (record.node, launch.job_id, launch.attempt)
        started_us = record.started_us if isinstance(record, EpilogOwed) else 0
        if record.ended:
            # Other steps of it may live: if none does, it goes on from there.
            stage = Stage.ENDING
            agent.buffer.fence(record.owner).bury(key, record.revision, started_us > 0)
        attempt = Attempt(*key, record.owner, record.revision, launch, stage)
        attempt.phase_credential = record.credential
        attempt.was_prepared = is_over
        attempt.started_us = started_us
        node.attempts[attempt.key] = attempt
        readjust(attempt, spool.adjusted.get(key))


def _restore_phase(agent: Agent, step: StepKey) -> None:
    """A phase that the runner knows: its end, if it came, is looked at when everything is restored."""
    node = agent.registry.by_number.get(step.node)
    attempt = node.attempts.get((step.job_id, step.attempt)) if node is not None else None
    if attempt is None:
        return
    if step.step != PROLOG_STEP:
        attempt.stage = Stage.EPILOG
        attempt.live.add(step.step)
    elif not attempt.was_prepared:
        attempt.live.add(step.step)


def _restore_live(agent: Agent, step: StepKey, at_us: int) -> None:
    """A running step: its attempt runs, or is being ended if there is a tombstone."""
    if step.is_phase:
        _restore_phase(agent, step)
        return
    node = agent.registry.by_number.get(step.node)
    if node is None:
        agent.lifecycle.orphan_steps.add_live(step, at_us)
        return
    attempt = _attempt_of(agent, node, step)
    attempt.live.add(step.step)
    if step.step == BATCH_STEP:
        attempt.started_us = at_us
        if attempt.stage is Stage.PREPARED:
            attempt.stage = Stage.RUNNING


def _restore_end(agent: Agent, step: StepKey, end: StepEnd) -> None:
    """An unacknowledged end of a batch script."""
    node = agent.registry.by_number.get(step.node)
    if node is None:
        agent.lifecycle.orphan_steps.add_end(step, end)
        return
    attempt = _attempt_of(agent, node, step)
    attempt.end = end
    attempt.started_us = end.started_us
    if not attempt.live and agent.lifecycle.phases.owes_epilog(attempt):
        attempt.stage = Stage.CLOSING
    elif not attempt.live:
        attempt.stage = Stage.ENDED
    elif attempt.stage not in (Stage.ENDING, Stage.EPILOG):
        attempt.stage = Stage.CLOSING


def _attempt_of(agent: Agent, node: LocalNode, step: StepKey) -> Attempt:
    """The step's attempt; one that only the runner and perhaps a tombstone know is to be ended or reported."""
    attempt = node.attempts.get((step.job_id, step.attempt))
    if attempt is not None:
        return attempt
    key = (step.node, step.job_id, step.attempt)
    for owner, fence in agent.buffer.fences.items():
        tombstone = fence.tombstones.get(key)
        if tombstone is not None:
            attempt = Attempt(*key, owner, tombstone.revision, None, Stage.ENDING)
            break
    else:
        attempt = Attempt(*key, agent.buffer.owner, 0, None, Stage.PREPARED)
        attempt.was_prepared = attempt.lost_launch = True
    node.attempts[step.job_id, step.attempt] = attempt
    return attempt
