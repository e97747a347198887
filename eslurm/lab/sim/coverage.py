"""Rare paths that a run has taken, counted from outside: a simulator that never gets there proves nothing about them.

Invariant: counting changes nothing, so a run is the same whatever is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from eslurm.core.model import facts
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.protocol import Report, StepEnded
from eslurm.core.model.step_key import StepKey
from eslurm.core.state import faults
from eslurm.core.state.cluster import State
from eslurm.ports.step_runner import StepEndCause, StepOutcome

SILENT: Final = "silent"
IN_A_RUN: Final = ("node lost", "takeover", "agent restarted", "job stopped")
IN_A_START: Final = ("failure", "limit reached", *IN_A_RUN)
PATHS: Final = (
    "node lost by silence",
    "node lost with jobs",
    "script orphaned",
    "attempt returned late",
    "end of a lost attempt accounted",
    "job requeued after a loss",
    "job requeued elsewhere before its node came back",
    "lost node came back",
    "job went on without a lost node",
    "takeover while a node with jobs was unreachable",
    "launch refused for want of contact",
    "two parts on one node",
    "pack taken over before its second start",
    "follower lost its node",
    "first member requeued before the second began",
    "part given back",
    "running job asked for nodes",
    "node joined a running job",
    "growth failed and waited again",
    "node given back by a running job",
    "request unsettled when the store went away",
    "unsettled request asked again",
    "prolog under way across a restart of its agent",
    "epilog under way across a restart of its agent",
    "fault of a node cleared by its check",
    "program run again by a new leader",
    "node taken out for its clock",
    *(f"{what} while gateway daemons start" for what in IN_A_START),
    *(f"{what} while routes are written" for what in IN_A_START),
    *(f"{what} while an error file is written" for what in IN_A_START if what != "failure"),
    *(f"{what} while a job has gateways" for what in IN_A_RUN),
    "gateway daemon died while its job ran",
    "job retried after a timeout",
    "job retried after a node failure",
    "retries used up",
    "retried job cancelled",
    "configuration read again",
    "node removed from a running cluster",
    "cores excluded",
    "cores given back",
    "request to exclude cores granted",
    "job placed on borrowed cores",
    "link out for longer than node_lost_after_s",
    "link in for longer than node_lost_after_s",
    "link slow for longer than node_lost_after_s",
    "link lossy for longer than node_lost_after_s",
    "link flapping for longer than node_lost_after_s",
)
"""Every path that is counted."""


class Coverage:
    """Counts of one run, by path."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(PATHS, 0)
        self._lost: dict[int, None] = {}
        self._given_up: dict[tuple[int, int], int] = {}
        """Attempts that ended because their first node was lost by silence: the node's host is another matter."""
        self._returned: set[tuple[int, int]] = set()
        # In the commit at hand: the node that was lost by silence last, and whether a job of it is counted.
        self._silent = -1
        self._with_jobs = False

    def count(self, path: str, times: int = 1) -> None:
        """It was taken once more, or so many times."""
        self.counts[path] += times

    def on_durable(self, batch: Iterable[facts.Fact]) -> None:
        """The facts of one commit, in order; of the kinds in `COUNTED`."""
        self._silent = -1
        for fact in batch:
            _COUNTERS[type(fact)](self, fact)

    def _on_node_state(self, fact: facts.NodeStateChanged) -> None:
        if fact.state is NodeState.LOST and fact.reason.startswith(SILENT):
            self._silent, self._with_jobs = fact.number, False
            self._lost[fact.number] = None
            self.count("node lost by silence")

    def _on_attempt_ended(self, fact: facts.AttemptEnded) -> None:
        if self._silent not in fact.released:
            return
        if not self._with_jobs:
            self._with_jobs = True
            self.count("node lost with jobs")
        self._given_up[fact.job_id, fact.attempt] = self._silent

    def _on_nodes_lost(self, _fact: facts.NodesLost) -> None:
        self.count("job went on without a lost node")

    def _on_placed(self, fact: facts.JobPlaced) -> None:
        if fact.loans:
            self.count("job placed on borrowed cores")

    def _on_part_finished(self, _fact: facts.PartFinished) -> None:
        self.count("part given back")

    def _on_faulted(self, fact: facts.NodeFaulted) -> None:
        if fact.kind == faults.CLOCK:
            self.count("node taken out for its clock")

    def _on_cleared(self, fact: facts.NodeCleared) -> None:
        if faults.CLOCK not in fact.kinds:
            self.count("fault of a node cleared by its check")

    def _on_registered(self, fact: facts.NodeRegistered) -> None:
        if self._lost.pop(fact.number, SILENT) is None:
            self.count("lost node came back")

    def on_lead(self, state: State) -> None:
        """A controller begins to lead from this state."""
        silent = [n for n, node in state.nodes.items() if node.state is NodeState.UNREACHABLE]
        if any(number in state.jobs_on for number in silent):
            self.count("takeover while a node with jobs was unreachable")

    def on_reports(self, reports: Iterable[Report]) -> None:
        """Count reports of agents to the leader."""
        for report in reports:
            body = report.body
            if isinstance(body, StepEnded):
                key = (body.job_id, body.attempt)
                if key in self._given_up and key not in self._returned:
                    self._returned.add(key)
                    self.count("attempt returned late")

    def on_restart(self, live: Iterable[StepKey]) -> None:
        """An agent begins anew while these steps live on its host."""
        for key in live:
            if key.is_phase:
                self.count(f"{key.phase} under way across a restart of its agent")

    def on_spawn(self, key: StepKey) -> None:
        """A script begins to run."""
        before = self._given_up.get((key.job_id, key.attempt - 1))
        if before is not None:
            self.count("job requeued after a loss")
            if before != key.node and before in self._lost:
                self.count("job requeued elsewhere before its node came back")

    def on_ended(self, outcome: StepOutcome) -> None:
        """A step is over."""
        if outcome.cause is StepEndCause.ORPHANED:
            self.count("script orphaned")

    def on_refused(self, why: str) -> None:
        """A runner has not taken a step."""
        if why.startswith("no contact"):
            self.count("launch refused for want of contact")


_COUNTERS: Final[Mapping[type[facts.Fact], Callable[[Coverage, Any], None]]] = {
    facts.NodeStateChanged: Coverage._on_node_state,
    facts.AttemptEnded: Coverage._on_attempt_ended,
    facts.NodesLost: Coverage._on_nodes_lost,
    facts.PartFinished: Coverage._on_part_finished,
    facts.JobPlaced: Coverage._on_placed,
    facts.NodeFaulted: Coverage._on_faulted,
    facts.NodeCleared: Coverage._on_cleared,
    facts.NodeRegistered: Coverage._on_registered,
}
COUNTED: Final = frozenset(kind.__name__ for kind in _COUNTERS)
"""Kinds of the facts that `on_durable` takes, and no others: decoding all of them would take as long as the run."""


def merged(runs: Iterable[Mapping[str, int]], paths: Iterable[str] = PATHS) -> dict[str, int]:
    """The sums over many runs, every path in its order."""
    sums = dict.fromkeys(paths, 0)
    for counts in runs:
        for path, count in counts.items():
            sums[path] = sums.get(path, 0) + count
    return sums


def table(counts: Mapping[str, int]) -> list[str]:
    """One line per path, the number first."""
    return [f"{count:8,}  {path}" for path, count in counts.items()]


def missing(counts: Mapping[str, int], least: int) -> list[str]:
    """The paths that were taken less often."""
    return [path for path, count in counts.items() if count < least]
