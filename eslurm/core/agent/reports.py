"""Reports that the nodes of this process owe the controller: ends of scripts, phases and gateways, attempts that are gone.

Owns each node's `owed`. Invariant: an owed report is in the outbox exactly while its node is registered, and names that
registration's incarnation; it is owed until the controller has committed it.
"""

from __future__ import annotations

import msgspec

from eslurm.core.agent.attempt import Attempt
from eslurm.core.agent.node import LocalNode, OwedBody, OwedKey
from eslurm.core.agent.report_queue import ReportQueue
from eslurm.core.model.job import StepEnd
from eslurm.core.model.node_health import FailingCheck
from eslurm.core.model.protocol import (
    CheckPassed,
    CoresReported,
    GatewayReported,
    HealthReported,
    NodeGone,
    PhaseReported,
    StepEnded,
    TasksOver,
)
from eslurm.core.model.step_key import PROLOG


class Reports:
    """Puts owed reports into the report queue when they may go, and takes them back when they may not."""

    def __init__(self, report_queue: ReportQueue) -> None:
        self._report_queue = report_queue

    def owe_end(self, node: LocalNode, attempt: Attempt, end: StepEnd, *, gone: bool = True) -> None:
        """The batch step ended; `gone`: nothing else of the attempt is left here."""
        body = StepEnded(node.number, node.incarnation, attempt.job_id, attempt.number, end, gone)
        self._owe(node, body)

    def owe_gone(self, node: LocalNode, attempt: Attempt, epilog: StepEnd | None = None) -> None:
        """Owe the report that nothing of the attempt is left here, which the answer to `End` came too early for."""
        about = (node.number, node.incarnation, attempt.job_id, attempt.number)
        self._owe(node, NodeGone(*about, epilog, not attempt.batch_was_started))

    def repeat_gone(self, node: LocalNode, attempt: Attempt) -> None:
        """Send the report that nothing of the attempt is left again, under another number, if it is on its way.

        It may have overtaken that of the batch step's end: then the controller, which orders the end now, has acknowledged
        it and given nothing back.
        """
        key = (NodeGone, *attempt.key, "")
        seq = node.sent.get(key)
        if seq is not None:
            self._report_queue.withdraw(seq)
            node.sent[key] = self._report_queue.add(node.owed[key])

    def owe_phase(self, node: LocalNode, attempt: Attempt, phase: str, end: StepEnd) -> None:
        """Owe the report of a phase's end."""
        body = PhaseReported(node.number, node.incarnation, attempt.job_id, attempt.number, phase, end)
        self._owe(node, body)

    def owe_tasks(self, node: LocalNode, attempt: Attempt, step: int, end: StepEnd) -> None:
        """Owe the report that no task of this step is left here."""
        self._owe(node, TasksOver(node.number, node.incarnation, attempt.job_id, attempt.number, step, end))

    def owe_addresses(self, node: LocalNode, attempt: Attempt, addresses: tuple[str, ...]) -> None:
        """Owe the report of the addresses at which an attempt's gateway daemons serve."""
        body = GatewayReported(node.number, node.incarnation, attempt.job_id, attempt.number, addresses)
        self._owe(node, body)

    def owe_cores(
        self,
        node: LocalNode,
        attempt: Attempt,
        idle: int,
        excluded: int,
        remaining_s: int,
        rejects: bool,
    ) -> None:
        """Owe the latest word of an attempt's application for its cores here: it replaces the one before."""
        key = (node.number, node.incarnation, attempt.job_id, attempt.number)
        body = CoresReported(*key, idle, excluded, remaining_s, rejects)
        self._withdraw(node, _key(body))
        self._owe(node, body)

    def owe_check(self, node: LocalNode) -> None:
        """Owe the report that the node's check passed, for the faults that stand."""
        self._owe(node, CheckPassed(node.number, node.incarnation, tuple(sorted(node.faults))))

    def withdraw_check(self, node: LocalNode) -> None:
        """Take it back: another fault began since."""
        self._withdraw(node, _CHECK)

    def owe_health(self, node: LocalNode, serial: int, failing: tuple[FailingCheck, ...]) -> None:
        """Owe the report of the health checks that fail now: it replaces the one before."""
        self.withdraw_health(node)
        self._owe(node, HealthReported(node.number, node.incarnation, serial, failing))

    def owed_health(self, node: LocalNode) -> HealthReported | None:
        """The report of the health checks that the controller has not committed."""
        body = node.owed.get(_HEALTH)
        return body if isinstance(body, HealthReported) else None

    def withdraw_health(self, node: LocalNode) -> None:
        """Take it back."""
        self._withdraw(node, _HEALTH)

    def on_registered(self, node: LocalNode) -> None:
        """The node has a new incarnation: everything owed goes out under it."""
        for key, body in node.owed.items():
            renewed = msgspec.structs.replace(body, node=node.number, incarnation=node.incarnation)
            node.owed[key] = renewed
            node.sent[key] = self._report_queue.add(renewed)

    def on_unregistered(self, node: LocalNode) -> None:
        """The node registers anew: what is under way names an incarnation that will not count."""
        for seq in node.sent.values():
            self._report_queue.withdraw(seq)
        node.sent.clear()

    def settle(self, node: LocalNode, body: OwedBody) -> None:
        """The controller has committed this."""
        key = _key(body)
        node.owed.pop(key, None)
        node.sent.pop(key, None)

    def is_settled(self, node: LocalNode, attempt: Attempt) -> bool:
        """Check whether the controller has committed how the attempt ended here: a prolog that went well is no end."""
        if not attempt.was_prepared and (PhaseReported, *attempt.key, PROLOG) in node.owed:
            return False
        return not any((kind, *attempt.key, "") in node.owed for kind in (StepEnded, NodeGone))

    def owes_phase(self, node: LocalNode, attempt: Attempt) -> bool:
        """Check whether the controller is still to hear how a phase of the attempt ended."""
        return any(
            key in node.owed for key in ((NodeGone, *attempt.key, ""), (PhaseReported, *attempt.key, PROLOG))
        )

    def _withdraw(self, node: LocalNode, key: OwedKey) -> None:
        node.owed.pop(key, None)
        seq = node.sent.pop(key, None)
        if seq is not None:
            self._report_queue.withdraw(seq)

    def _owe(self, node: LocalNode, body: OwedBody) -> None:
        key = _key(body)
        if key in node.owed:
            return
        node.owed[key] = body
        if node.registered:
            node.sent[key] = self._report_queue.add(body)


_CHECK: OwedKey = (CheckPassed, 0, 0, "")
_HEALTH: OwedKey = (HealthReported, 0, 0, "")


def _key(body: OwedBody) -> OwedKey:
    if isinstance(body, CheckPassed):
        return _CHECK
    if isinstance(body, HealthReported):
        return _HEALTH
    what = ""
    if isinstance(body, PhaseReported):
        what = body.phase
    elif isinstance(body, TasksOver):
        what = str(body.step)
    return type(body), body.job_id, body.attempt, what
