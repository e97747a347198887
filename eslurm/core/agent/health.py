"""Health checks of this process's nodes: when they run, and which fail (F-03).

The controller is told when the set of failing checks is another one than it holds, which a registration says; nothing
is kept over a restart: checks run anew. Invariants: one run of each check at a time; a check that has not run here yet
counts as the controller holds it; a check that fails runs in any state of its node.
"""

from __future__ import annotations

from collections.abc import Mapping

from eslurm.core.agent.action_buffer import ActionBuffer
from eslurm.core.agent.actions import RunHealthCheck
from eslurm.core.agent.node import LocalNode
from eslurm.core.agent.reports import Reports
from eslurm.core.model.node_health import CheckTerms, FailingCheck, bounded
from eslurm.core.model.protocol import HealthReported
from eslurm.core.model.units import SECOND_US


class _Check:
    """One check of one node. `due_us` is the time of its next turn; 0: at once."""

    __slots__ = ("due_us", "has_ended", "runs", "terms", "text")

    def __init__(self, terms: CheckTerms) -> None:
        self.terms = terms
        self.due_us = 0
        self.runs = False
        self.has_ended = False
        self.text: str | None = None
        """The words for its failure; None: it passed, or has not run."""

    def fits(self, node: LocalNode) -> bool:
        """Check whether it runs in the node's present state."""
        if self.text is not None or self.terms.when == "any":
            return True
        return bool(node.attempts) is (self.terms.when == "allocated")


class HealthChecks:
    """Asks for checks when they are due and owes the controller what has changed. `nodes` are by name."""

    def __init__(self, buffer: ActionBuffer, reports: Reports, nodes: Mapping[str, LocalNode]) -> None:
        self._buffer = buffer
        self._reports = reports
        self._nodes = nodes
        self._checks: dict[str, dict[str, _Check]] = {}
        # Names of failing checks as the controller holds them, of nodes whose controller knows of checks.
        self._told: dict[str, frozenset[str]] = {}
        self._serial = 0
        self._next_us: int | None = None

    def watch(self, node: LocalNode) -> None:
        """Begin with the checks of a node."""
        if node.offer.health:
            self._checks[node.offer.name] = {terms.name: _Check(terms) for terms in node.offer.health}
            self._next_us = 0

    def on_registered(self, node: LocalNode, failing: tuple[str, ...] | None) -> None:
        """These checks fail as far as the controller knows; None: it knows of no checks."""
        name = node.offer.name
        self._reports.withdraw_health(node)
        if failing is None:
            self._told.pop(name, None)
            return
        checks = self._checks.get(name, {})
        for check in checks.values():
            if not check.has_ended:
                check.text = "" if check.terms.name in failing else None
        self._told[name] = frozenset(failing)
        self._tell(node)

    def on_committed(self, node: LocalNode, body: HealthReported) -> None:
        """The controller holds this now."""
        self._told[node.offer.name] = frozenset(one.name for one in body.failing)

    def on_ended(self, name: str, check_name: str, text: str | None) -> None:
        """A run ended; `text` says how it failed, None: it passed."""
        check = self._checks.get(name, {}).get(check_name)
        if check is None:
            return
        check.runs, check.has_ended = False, True
        # The words of its first failure stand.
        check.text = None if text is None else check.text or text
        self._plan()
        self._tell(self._nodes[name])

    def on_timer(self, now_us: int) -> None:
        """Run the checks that are due. A turn that does not fit the state of the node is left out."""
        if self._next_us is None or self._next_us > now_us:
            return
        for name, checks in self._checks.items():
            node = self._nodes[name]
            for check in checks.values():
                if check.runs or check.due_us > now_us:
                    continue
                check.due_us = now_us + check.terms.interval_s * SECOND_US
                if check.fits(node):
                    check.runs = True
                    self._buffer.emit(RunHealthCheck(name, check.terms.name))
        self._plan()

    def next_timer_us(self) -> int | None:
        """Time of the next turn."""
        return self._next_us

    def _plan(self) -> None:
        waiting = (
            check.due_us for checks in self._checks.values() for check in checks.values() if not check.runs
        )
        self._next_us = min(waiting, default=None)

    def _tell(self, node: LocalNode) -> None:
        """Owe the report, if the controller holds something else than is on its way or true."""
        told = self._told.get(node.offer.name)
        if told is None:
            return
        checks = self._checks.get(node.offer.name, {})
        failing = bounded(FailingCheck(key, one.text) for key, one in checks.items() if one.text is not None)
        names = frozenset(one.name for one in failing)
        owed = self._reports.owed_health(node)
        if names == (told if owed is None else frozenset(one.name for one in owed.failing)):
            return
        self._serial += 1
        self._reports.owe_health(node, self._serial, failing)
