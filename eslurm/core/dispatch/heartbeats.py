"""Schedule of heartbeats: times, nodes, and the meaning of silence.

All nodes are called once per interval; those that missed a call are called again, by themselves, half an interval later,
so that a death is noticed within two intervals. Invariants: a call is answered before the next one begins, unless an extra
one was requested; a node's misses are counted at most once per half interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from eslurm.core.dispatch.heartbeat_rule import HeartbeatRule
from eslurm.core.model.messages import HeartbeatDone
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.units import SECOND_US
from eslurm.core.relay.results import Results, Status
from eslurm.core.state.cluster import State
from eslurm.core.state.faults import has_wrong_clock

DEADLINE_SHARE = 0.9
"""Part of the time until the next call after which a call's answers are counted."""
AGAIN_SHARE = 0.5
"""Part of the interval after which those that missed a call are called again."""
AGAIN_SHARE_MAX = 0.8
"""Beyond this share of the interval the next regular call is near enough."""
COUNT_SHARE = 0.4
IN_DATE_CALLS = 6
"""A node whose clock was wrong takes work again after so many answers in a row that were in date: one that is exactly at
the tolerance would come and go with each heartbeat."""
SOON_US = SECOND_US // 2
"""Least interval between requested calls."""


class Call(msgspec.Struct, frozen=True):
    """Call these nodes; `missing` of them are not expected to answer. `counts`: silence is a missed heartbeat."""

    nodes: tuple[int, ...]
    deadline_us: int
    missing: tuple[int, ...] = ()
    counts: bool = True


class NodeCalls:
    """Call `take_due` at `next_us`; pass it the answers of each call."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._rule = HeartbeatRule(state.config.heartbeats_missed_max)
        self._rule_revision = state.config_revision
        self._next_us: int | None = None
        self._again_us: int | None = None
        self._called_us = 0
        self._counted_us = 0
        # Answers in a row that were in date, of nodes whose wrong clock stands as a fault.
        self._in_date: dict[int, int] = {}

    # ---- when ----

    def begin(self, now_us: int) -> None:
        """This controller leads: call at once."""
        self._next_us = now_us
        self._called_us = self._counted_us = now_us - self._interval_us

    def call_soon(self, now_us: int) -> None:
        """Call the nodes now, not at the next interval."""
        if self._next_us is not None:
            self._next_us = min(self._next_us, max(now_us, self._called_us + SOON_US))

    def next_us(self) -> int | None:
        """Time of the next `take_due`."""
        return min((at_us for at_us in (self._next_us, self._again_us) if at_us is not None), default=None)

    def take_due(self, now_us: int) -> Call | None:
        """The call to make now, if one is due and there are nodes to call."""
        if self._next_us is not None and self._next_us <= now_us:
            return self._call_all(now_us)
        if self._again_us is not None and self._again_us <= now_us:
            return self._call_again(now_us)
        return None

    @property
    def _interval_us(self) -> int:
        return max(1, int(self._state.config.heartbeat_s * SECOND_US))

    def _call_all(self, now_us: int) -> Call | None:
        state = self._state
        self._next_us = now_us + self._interval_us
        self._again_us = None
        # A node that never registered has no address and finds the controller itself.
        nodes = tuple(sorted(number for number, node in state.nodes.items() if node.endpoint))
        if not nodes:
            return None
        self._called_us = now_us
        absent = (NodeState.UNREACHABLE, NodeState.LOST)
        missing = tuple(number for number in nodes if state.nodes[number].state in absent)
        counts = now_us - self._counted_us >= self._interval_us * COUNT_SHARE
        if counts:
            self._counted_us = now_us
        return Call(nodes, int(self._interval_us * DEADLINE_SHARE), missing, counts)

    def _call_again(self, now_us: int) -> Call | None:
        assert self._next_us is not None
        self._again_us = None
        self._counted_us = now_us
        nodes = self._doubtful()
        return Call(nodes, int((self._next_us - now_us) * DEADLINE_SHARE)) if nodes else None

    # ---- what came back ----

    def on_registered(self, number: int) -> None:
        """A registration counts as an answer."""
        self._rule.on_registered(number)

    def on_results(
        self, call: Call, results: Results, now_us: int, ahead_us: Mapping[int, int] | None = None
    ) -> HeartbeatDone | None:
        """Process a call's answers; returns the differences that they make.

        `ahead_us`: by how much clocks are ahead of nodes that refuse commands because of it; None: it is not known.
        """
        self._renew_rule()
        nodes = self._state.nodes
        reached = results.nodes(Status.OK)
        # A process that does not serve the node (any more) is no sign of life of the node.
        silent = results.nodes(Status.UNREACHED) + results.nodes(Status.FAILED)
        news = self._rule.on_answers(reached, sorted(silent) if call.counts else ())
        missing = news.missing if news is not None else ()
        # Not the rule's memory: a node may have registered while the news of its absence was on its way.
        back = tuple(
            number for number in reached if number in nodes and nodes[number].state is NodeState.UNREACHABLE
        )
        ahead, in_date = self._clocks(reached, ahead_us) if ahead_us is not None else ((), ())
        self._plan_again(now_us)
        found = HeartbeatDone(back, missing, ahead, in_date)
        return found if back or missing or ahead or in_date else None

    def _clocks(
        self, reached: Sequence[int], ahead_us: Mapping[int, int]
    ) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
        """The nodes that begin and cease to refuse commands, as against the state: another leader may have noted them."""
        for number in ahead_us:
            self._in_date.pop(number, None)
        nodes = self._state.nodes
        ahead = tuple(
            (number, by_us)
            for number, by_us in sorted(ahead_us.items())
            if number in nodes and not has_wrong_clock(nodes[number])
        )
        in_date = tuple(
            number
            for number in reached
            if number not in ahead_us
            and number in nodes
            and has_wrong_clock(nodes[number])
            and self._stays_in_date(number)
        )
        return ahead, in_date

    def _stays_in_date(self, number: int) -> bool:
        count = self._in_date.pop(number, 0) + 1
        if count < IN_DATE_CALLS:
            self._in_date[number] = count
        return count >= IN_DATE_CALLS

    def _renew_rule(self) -> None:
        if self._rule_revision != self._state.config_revision:
            self._rule = HeartbeatRule(self._state.config.heartbeats_missed_max)
            self._rule_revision = self._state.config_revision

    def _plan_again(self, now_us: int) -> None:
        if self._next_us is None or not self._doubtful():
            return
        began_us = self._next_us - self._interval_us
        at_us = max(now_us, self._counted_us + int(self._interval_us * AGAIN_SHARE))
        if at_us <= began_us + self._interval_us * AGAIN_SHARE_MAX:
            self._again_us = at_us

    def _doubtful(self) -> tuple[int, ...]:
        """Nodes that have missed a call and still count as present."""
        nodes = self._state.nodes
        return tuple(
            number
            for number in self._rule.doubtful()
            if number in nodes and nodes[number].state is NodeState.UP and nodes[number].endpoint
        )
