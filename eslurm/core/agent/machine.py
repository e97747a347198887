"""Decisions of a node agent: one `Agent` per process, serving one node or thousands.

Synchronous and pure: each input takes the time in microseconds where it matters and returns actions for the shell. Owns
the order of checks on a command: cluster, epoch; then per node: addressee, expiry, registration, kept outcome,
incarnation; then the attempt itself (`lifecycle`).

A `failed` answer to a launch is a promise that the script has not run here and never will: see `Lifecycle.refuse`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from eslurm.core.agent.action_buffer import ActionBuffer
from eslurm.core.agent.actions import Action, Contact, MeasureSteps, Overtaken, Ref
from eslurm.core.agent.adjustments import adjusted
from eslurm.core.agent.attempt import Attempt, Stage, Waiter
from eslurm.core.agent.blob_waiters import BlobWaiters
from eslurm.core.agent.cooperation import Cooperation, CoresView, noted
from eslurm.core.agent.faults import Faults
from eslurm.core.agent.fence import Addressed
from eslurm.core.agent.health import HealthChecks
from eslurm.core.agent.lifecycle import Lifecycle
from eslurm.core.agent.node import LocalNode, NodeOffer, Parked
from eslurm.core.agent.outcomes import alive_outcome
from eslurm.core.agent.phases import Phases
from eslurm.core.agent.records import Buried, EpilogOwed, FloorRaised, Folded, Prepared, Preparing, Signalled
from eslurm.core.agent.registration import NodeRegistry, Site
from eslurm.core.agent.report_queue import ReportQueue
from eslurm.core.agent.reports import Reports
from eslurm.core.model.contact import Heard
from eslurm.core.model.job import StepEnd
from eslurm.core.model.protocol import (
    AskCores,
    CheckPassed,
    Command,
    CoresReported,
    End,
    Exclude,
    HealthReported,
    Heartbeat,
    LaunchStep,
    Measure,
    Prepare,
    Registration,
    RegistrationReply,
    ReportAck,
    SetTime,
    Signal,
    Start,
    Suspend,
)
from eslurm.core.model.step_key import StepKey
from eslurm.core.relay.command_dates import has_expired, is_dated, told_clock_us
from eslurm.core.relay.results import FAILED, failed

PARKED_MAX = 256


class Agent:
    """The nodes of one process. `process` and `session` are new at each start; `has_blob` looks into the cache."""

    def __init__(
        self,
        *,
        cluster: str,
        process: str,
        session: str,
        boot_id: str,
        endpoint: str,
        offers: Iterable[NodeOffer],
        has_blob: Callable[[bytes], bool],
    ) -> None:
        self.cluster = cluster
        self.boot_id = boot_id
        self.buffer = ActionBuffer()
        self.report_queue = ReportQueue(process)
        reports = Reports(self.report_queue)
        by_number: dict[int, LocalNode] = {}
        self.lifecycle = Lifecycle(self.buffer, reports, BlobWaiters(self.buffer, has_blob), by_number)
        self.registry = NodeRegistry(
            Site(cluster, boot_id, session, endpoint),
            self.buffer,
            self.report_queue,
            reports,
            self.lifecycle,
            by_number,
        )
        self.faults = Faults(self.buffer, reports, by_number)
        self.health = HealthChecks(self.buffer, reports, self.registry.by_name)
        self.cooperation = Cooperation(self.buffer, reports, by_number)
        self.registry.on_accepted = self._on_accepted
        for offer in offers:
            self.registry.by_name[offer.name] = LocalNode(offer)
            self.health.watch(self.registry.by_name[offer.name])
        self._reports = reports
        self._addressed: tuple[Command, Addressed] | None = None
        self._problems: tuple[str, ...] = ()
        self._handlers: dict[type, Callable[[LocalNode, Any, Waiter], None]] = {
            Prepare: self.lifecycle.starts.prepare,
            Start: self.lifecycle.starts.start,
            Signal: self.lifecycle.signal,
            Suspend: self.lifecycle.adjustments.suspend,
            SetTime: self.lifecycle.adjustments.set_time,
            LaunchStep: self.lifecycle.tasks.launch,
            Exclude: self.cooperation.exclude,
            AskCores: self.cooperation.ask,
        }

    # ---- inputs ----

    def on_command_many(
        self,
        nodes: Sequence[int],
        command: Command,
        ref: Ref,
        now_us: int,
        answer_by_us: int,
        *,
        dated_us: int | None = None,
        sealed: bytes = b"",
    ) -> list[Action]:
        """A verified command for these of our nodes. Each is answered once under `ref`, by `answer_by_us`.

        `dated_us`: the present as compared with what the controller has dated, if that is another clock than `now_us`.
        `sealed`: the command as the controller has signed it, for a runner that verifies it itself.
        """
        dated_us = now_us if dated_us is None else dated_us
        refusal = self._command_refusal(command)
        if refusal:
            self.buffer.answer_alone(ref, nodes, failed(refusal))
        else:
            self.registry.see_epoch(command.owner, command.epoch)
            if type(command.body) is Heartbeat:
                self._on_heartbeat(nodes, command, command.body, ref, now_us, dated_us)
            elif type(command.body) is Measure:
                self._on_measure(nodes, command, command.body, ref, expired=has_expired(command, dated_us))
            else:
                expired = has_expired(command, dated_us) and is_dated(command)
                self._on_effect(nodes, command, ref, answer_by_us, sealed, expired=expired)
        return self._done(now_us)

    def on_blobs(self, hashes: tuple[bytes, ...], now_us: int) -> list[Action]:
        """These blobs are in the cache now."""
        self.lifecycle.on_blobs(hashes)
        return self._done(now_us)

    def on_blobs_missing(self, hashes: tuple[bytes, ...], now_us: int) -> list[Action]:
        """These blobs cannot be had in time."""
        self.lifecycle.on_blobs_missing(hashes)
        return self._done(now_us)

    def on_step_started(
        self, step: StepKey, at_us: int, now_us: int, lines: tuple[str, ...] = ()
    ) -> list[Action]:
        """The runner has started a step; `at_us` is wall time, `lines` are what makes a step of gateways ready."""
        self.lifecycle.on_step_started(step, at_us, lines)
        return self._done(now_us)

    def on_step_ended(self, step: StepKey, end: StepEnd, now_us: int) -> list[Action]:
        """The runner says how a step ended; it may say so many times."""
        self.lifecycle.on_step_ended(step, end)
        return self._done(now_us)

    def on_step_refused(self, step: StepKey, text: str, now_us: int, code: int = FAILED) -> list[Action]:
        """The runner, or the shell before it, could not start a step: the node's fault, or (`code`) a setting's."""
        self.lifecycle.on_step_refused(step, text, code)
        return self._done(now_us)

    def on_checked(self, node: int, now_us: int, *, passed: bool) -> list[Action]:
        """The check of a node of this process ended."""
        self.faults.on_checked(node, passed=passed)
        return self._done(now_us)

    def on_health_checked(self, name: str, check: str, now_us: int, text: str | None) -> list[Action]:
        """A health check of the node of this name ended; `text` says how it failed, None: it passed."""
        self.health.on_ended(name, check, text)
        return self._done(now_us)

    def on_cores(
        self,
        attempt: Attempt,
        worker: int,
        idle: int | None,
        remaining_s: int,
        now_us: int,
        *,
        rejects: bool = False,
    ) -> tuple[list[Action], CoresView]:
        """A process of the attempt reports its cores. Raises ValueError for numbers that cannot be."""
        view = self.cooperation.report(attempt, worker, idle, remaining_s, now_us, rejects=rejects)
        return self._done(now_us), view

    def on_ack(self, ack: ReportAck, now_us: int) -> list[Action]:
        """The controller has committed reports of this process."""
        if ack.process != self.report_queue.process:
            return []
        replies = {reply.name: reply for reply in ack.registrations}
        for seq in ack.seqs:
            sent_us = self.report_queue.first_sent_us(seq)
            body = self.report_queue.acknowledge(seq)
            if isinstance(body, Registration):
                self.registry.on_reply(body.name, replies.get(body.name), now_us, sent_us)
            elif body is not None:
                node = self.registry.by_number[body.node]
                self._reports.settle(node, body)
                if isinstance(body, HealthReported):
                    self.health.on_committed(node, body)
                if isinstance(body, CoresReported | HealthReported):
                    continue
                self.faults.on_committed(node, body)
                if not isinstance(body, CheckPassed):
                    self.lifecycle.on_committed(node, body, ack.revision)
        return self._done(now_us)

    def on_link_up(self, now_us: int, owner: str = "", epoch: int = 0) -> list[Action]:
        """The uplink is up: everything unacknowledged is sent (again). The peer may know the leader."""
        if owner:
            self.registry.see_epoch(owner, epoch)
        self.report_queue.on_link(True)
        return self._done(now_us)

    def on_link_down(self, now_us: int) -> list[Action]:
        """There is no way up for now."""
        self.report_queue.on_link(False)
        return self._done(now_us)

    def on_storage(self, error: str) -> None:
        """The spool cannot be written (`error` says why) or can be again (empty): no work comes here meanwhile."""
        self.lifecycle.starts.storage_error = error

    def set_problems(self, problems: tuple[str, ...]) -> None:
        """Set this host's problems, sorted: they are in each answer to a heartbeat from now on."""
        self._problems = problems

    def on_timer(self, now_us: int) -> list[Action]:
        """Time has passed."""
        self.lifecycle.ends.on_timer(now_us)
        self.report_queue.on_timer(now_us)
        self.registry.on_timer(now_us)
        self.faults.on_timer(now_us)
        self.health.on_timer(now_us)
        self.cooperation.on_timer(now_us)
        return self._done(now_us)

    def next_timer_us(self) -> int | None:
        """Time of the next `on_timer`."""
        due_us = self.lifecycle.ends.next_timer_us()
        others = (
            self.report_queue.next_timer_us(),
            self.registry.next_timer_us(),
            self.faults.next_timer_us(),
            self.health.next_timer_us(),
            self.cooperation.next_timer_us(),
        )
        for at_us in others:
            if at_us is not None and (due_us is None or at_us < due_us):
                due_us = at_us
        return due_us

    # ---- state ----

    def folded(self) -> Folded:
        """The records that the spool must keep, for its compaction."""
        state = Folded(self.cluster, self.boot_id, self.registry.site.starts)
        for node in self.registry.by_name.values():
            state.identities[node.offer.name] = node.offer.node_uid
            if node.number >= 0:
                state.numbers[node.offer.name] = node.number
            for attempt in node.attempts.values():
                _fold_attempt(state, attempt, self.lifecycle.phases)
        for owner, fence in self.buffer.fences.items():
            state.epochs[owner] = fence.epoch
            state.floors[owner] = fence.floor
            for key, tombstone in fence.tombstones.items():
                if key in state.preparing or key in state.epilogs:
                    continue
                state.prepared.pop(key, None)
                state.adjusted.pop(key, None)
                state.cores.pop(key, None)
                state.buried[key] = Buried(*key, owner, tombstone.revision, tombstone.started)
            for revision, index, number in fence.signals:
                state.signalled[number, owner, revision, index] = Signalled(number, owner, revision, index)
        return state

    # ---- inside ----

    def _done(self, now_us: int) -> list[Action]:
        return self.buffer.take(self.report_queue.pump(now_us))

    def _command_refusal(self, command: Command) -> str:
        """The reason why the command is not for this agent, so that its sender does not wait; empty when it is."""
        if command.cluster != self.cluster:
            return f"the command is for cluster {command.cluster!r}, this is {self.cluster!r}"
        fence = self.buffer.fences.get(command.owner)
        if fence is not None and command.epoch < fence.epoch:
            return f"epoch {command.epoch} of {command.owner!r} is over, {fence.epoch} is in force"
        return ""

    def _on_heartbeat(
        self, nodes: Sequence[int], command: Command, body: Heartbeat, ref: Ref, now_us: int, dated_us: int
    ) -> None:
        fence = self.buffer.fence(command.owner)
        if fence.raise_floor(body.floor):
            self.buffer.write(FloorRaised(command.owner, body.floor))
        by_number = self.registry.by_number
        served = [number for number in nodes if number in by_number]
        self.buffer.answer_alone(ref, served, alive_outcome(self._problems, told_clock_us(command, dated_us)))
        self._offer_anew(command, served)
        if len(served) < len(nodes):
            strangers = [number for number in nodes if number not in by_number]
            self.buffer.answer_alone(ref, strangers, failed("the node is not served here"))
        self._note_contact(command, body, served, now_us)

    def _note_contact(self, command: Command, body: Heartbeat, served: Sequence[int], now_us: int) -> None:
        """Date the round, and take over what the controller says that it has heard (see `contact`)."""
        rounds = self.buffer.fence(command.owner).rounds
        if body.round:
            rounds.note(command.epoch, body.round, now_us)
        elif rounds.numbers(command.epoch):
            return
        heard = Heard(body.heard, body.unheard)
        busy: dict[int, list[int]] = {}
        for number, incarnation in zip(served, self._incarnations(command, served), strict=True):
            node = self.registry.by_number[number]
            if not node.registered or node.owner != command.owner or incarnation != node.incarnation:
                continue
            at_us: int | None = now_us
            if body.round:
                node.rounds_from = node.rounds_from or body.round
                confirmed = heard.round_of(number)
                at_us = rounds.answered_us(confirmed) if confirmed >= node.rounds_from else None
            if at_us is not None and at_us > node.contact_us:
                node.contact_us = at_us
                if node.attempts:
                    busy.setdefault(at_us, []).append(number)
        for at_us, numbers in busy.items():
            self.buffer.emit(Contact(tuple(numbers), at_us))

    def _offer_anew(self, command: Command, served: Sequence[int]) -> None:
        """Nodes for which no incarnation is named (the controller has given them up) or a later one register anew."""
        given_up: list[LocalNode] = []
        overtaken: list[LocalNode] = []
        for number, incarnation in zip(served, self._incarnations(command, served), strict=True):
            node = self.registry.by_number[number]
            if incarnation == 0 and node.registered and node.owner == command.owner:
                given_up.append(node)
            elif incarnation is not None and _is_overtaken(node, command, incarnation):
                overtaken.append(node)
        if given_up:
            self.registry.offer(given_up)
        if overtaken:
            self._claim_again(overtaken)

    def _on_measure(
        self, nodes: Sequence[int], command: Command, body: Measure, ref: Ref, *, expired: bool
    ) -> None:
        """Have the nodes measured that the question is for. It is no effect: nothing of it is kept."""
        for number, incarnation in zip(nodes, self._incarnations(command, nodes), strict=True):
            node = self.registry.by_number.get(number)
            is_meant = node is not None and node.registered and node.owner == command.owner
            if expired:
                self.buffer.answer_alone(ref, (number,), failed("the question has expired"))
            elif node is None or not is_meant or incarnation != node.incarnation:
                self.buffer.answer_alone(ref, (number,), failed("the question is not for this node"))
            else:
                attempt = (number, body.job_id, body.attempt)
                self.buffer.emit(MeasureSteps(ref, attempt, body.steps, body.with_pids))

    def _on_effect(
        self,
        nodes: Sequence[int],
        command: Command,
        ref: Ref,
        answer_by_us: int,
        sealed: bytes,
        *,
        expired: bool,
    ) -> None:
        waiter = Waiter(ref, command.owner, command.revision, command.index, answer_by_us, sealed)
        overtaken: list[LocalNode] = []
        for number, incarnation in zip(nodes, self._incarnations(command, nodes), strict=True):
            node = self.registry.by_number.get(number)
            if node is None or incarnation is None:
                self.buffer.answer(ref, number, failed("the command is not for this node"))
            elif expired:
                self.lifecycle.refuse(node, command.body, waiter, "the command has expired")
            elif not node.registered:
                if len(node.parked) < PARKED_MAX:
                    node.parked.append(Parked(command, incarnation, waiter))
            else:
                self._on_node(node, command, incarnation, waiter)
                if _is_overtaken(node, command, incarnation):
                    overtaken.append(node)
        if overtaken:
            self._claim_again(overtaken)

    def _on_node(self, node: LocalNode, command: Command, incarnation: int, waiter: Waiter) -> None:
        body = command.body
        if type(body) is End:
            # Always right: an attempt that was ever told to end must never run again.
            self.lifecycle.ends.end(node, body, waiter)
            return
        effect = (command.revision, command.index, node.number)
        outcome = self.buffer.fence(command.owner).outcomes.get(effect)
        if outcome is not None:
            self.buffer.answer(waiter.ref, node.number, outcome)
        elif incarnation != node.incarnation or node.owner != command.owner:
            why = f"the command is for incarnation {incarnation}, this is {node.incarnation}"
            self.lifecycle.refuse(node, body, waiter, why)
        else:
            self._handlers[type(body)](node, body, waiter)

    def _on_accepted(self, node: LocalNode, reply: RegistrationReply) -> None:
        """Commands may overtake the registration's reply, which says whether they are for this incarnation."""
        self.faults.on_registered(node, reply.faults)
        self.health.on_registered(node, reply.failing)
        self.cooperation.on_registered(node)
        parked, node.parked = node.parked, []
        for command, incarnation, waiter in ((p.command, p.incarnation, p.waiter) for p in parked):
            if not self._command_refusal(command):
                self._on_node(node, command, incarnation, waiter)
        if any(_is_overtaken(node, late.command, late.incarnation) for late in parked):
            self._claim_again((node,))

    def _claim_again(self, nodes: Sequence[LocalNode]) -> None:
        for node in nodes:
            self.buffer.emit(Overtaken(node.offer.name))
        self.registry.renew(nodes)

    def _incarnations(self, command: Command, nodes: Sequence[int]) -> list[int | None]:
        # One broadcast may come in several portions, each with the same command object.
        if self._addressed is None or self._addressed[0] is not command:
            self._addressed = (command, Addressed(command))
        return self._addressed[1].incarnations(nodes)


def _is_overtaken(node: LocalNode, command: Command, incarnation: int) -> bool:
    """Check whether the controller takes a registration for the node's latest that is not ours."""
    return node.registered and node.owner == command.owner and incarnation > node.incarnation


def _fold_attempt(state: Folded, attempt: Attempt, phases: Phases) -> None:
    if attempt.launch is None or (attempt.stage is Stage.FETCHING and not attempt.was_prepared):
        return
    key = (attempt.node, attempt.job_id, attempt.number)
    match phases.owed_record(attempt):
        case EpilogOwed() as owed:
            state.epilogs[key] = owed
            return
        case Preparing() as owed:
            state.preparing[key] = owed
            return
    started = attempt.start or attempt.batch_was_started
    state.prepared[attempt.node, attempt.job_id, attempt.number] = Prepared(
        attempt.node,
        attempt.owner,
        attempt.revision,
        attempt.launch,
        started,
        attempt.credential,
        attempt.was_prepared and phases.has_prolog(attempt),
        attempt.phase_credential,
    )
    if attempt.suspend_revision or attempt.time_revision:
        state.adjusted[attempt.node, attempt.job_id, attempt.number] = adjusted(attempt)
    if (cores := noted(attempt)) is not None:
        state.cores[attempt.node, attempt.job_id, attempt.number] = cores
