"""Actions of one call into the agent: in order, with answers gathered per broadcast.

Invariant: all answers of a call come after all its other actions, so a record is written before the answer that relies on
it; nodes with the same answer to the same broadcast share one `Answer`.
"""

from __future__ import annotations

from collections.abc import Sequence

from eslurm.core.agent.actions import Action, Answer, Ref, SendReport, Spool
from eslurm.core.agent.attempt import Waiter
from eslurm.core.agent.fence import Fence
from eslurm.core.agent.records import Record
from eslurm.core.model.protocol import Report
from eslurm.core.relay.results import Outcome


class ActionBuffer:
    """Actions of the present call, and the fences, which keep answers. `owner`: the controller that registered the nodes."""

    def __init__(self) -> None:
        self.owner = ""
        self.fences: dict[str, Fence] = {}
        self._actions: list[Action] = []
        self._answers: dict[tuple[Ref, Outcome, bool], list[int]] = {}

    def fence(self, owner: str) -> Fence:
        """The fence of this owner, made when first heard of."""
        fence = self.fences.get(owner)
        if fence is None:
            fence = self.fences[owner] = Fence()
        return fence

    def emit(self, action: Action) -> None:
        """Add one action."""
        self._actions.append(action)

    def write(self, record: Record, durable: bool = False) -> None:
        """Add a spool record."""
        self._actions.append(Spool(record, durable))

    def answer(self, ref: Ref, node: int, outcome: Outcome) -> None:
        """Answer a broadcast for one node, without keeping the outcome."""
        self._answers.setdefault((ref, outcome, False), []).append(node)

    def answer_alone(self, ref: Ref, nodes: Sequence[int], outcome: Outcome) -> None:
        """Answer a broadcast for these nodes with what relies on no record."""
        self._answers.setdefault((ref, outcome, True), []).extend(nodes)

    def settle(self, waiter: Waiter, node: int, outcome: Outcome, *, stands_alone: bool = False) -> None:
        """Answer, and keep the outcome for later copies of the effect."""
        self._answers.setdefault((waiter.ref, outcome, stands_alone), []).append(node)
        self.fence(waiter.owner).keep((waiter.revision, waiter.index, node), outcome)

    def take(self, reports: Sequence[Report] = ()) -> list[Action]:
        """All actions since the last call, with these reports before the answers."""
        actions = self._actions
        self._actions = []
        actions.extend(map(SendReport, reports))
        if self._answers:
            actions.extend(
                Answer(ref, tuple(nodes), outcome, stands_alone)
                for (ref, outcome, stands_alone), nodes in self._answers.items()
            )
            self._answers.clear()
        return actions
