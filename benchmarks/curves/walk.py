"""Duration of a broadcast and its aggregated answer in one tree: a walk over positions, O(n).

Invariant: times are relative to the moment a group's message leaves its parent, and depend on nothing but the
states of the group's nodes in tree order. So a subtree without a dead node is computed once per size, and a small
one once per pattern of states. What processes do for each other beside the tree (several tree nodes on one host,
two sub-trees adopted by one parent at a time) is not modelled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import repeat

from benchmarks.curves.parameters import ALIVE, REFUSED, SILENT, Message, Rescue, System
from eslurm.core.relay.construct import TreeShape

SHORT = 10
PATTERNS_MAX = 1 << 17
"""Groups of up to `SHORT` nodes are remembered by their states, so many of them."""

Arrival = tuple[float, int]
"""A reply at the parent: its time and its number of nodes."""


class Walk:
    """The times of all lists that are sent by the same system with the same message in the same shape."""

    def __init__(self, system: System, message: Message, shape: TreeShape) -> None:
        self._system = system
        self._message = message
        self._shape = shape
        self._healthy: dict[int, float] = {}
        self._patterns: dict[bytes, float] = {}
        self._sizes: dict[int, Sequence[int]] = {}

    def root_s(self, states: bytes, send_s: float | None = None) -> float:
        """From the moment a root has the list in order until it knows about every node.

        `states` are those of the nodes in tree order; `send_s` is the root's own serial work for each child
        if it is not `System.send_s`. Raises ValueError when a width is out of range.
        """
        sizes = self._shape.root_sizes(len(states))
        arrivals, sent_s = self._fan(states, 0, sizes, 0.0, send_s)
        done_s = self._merged(arrivals, sent_s)
        if self._system.rechecks:
            done_s = max(done_s, self._rechecked(states, sizes, arrivals))
        return done_s

    def _fan(
        self, states: bytes, start: int, sizes: Sequence[int], begin_s: float, send_s: float | None = None
    ) -> tuple[list[Arrival], float]:
        """The replies to one node's sends in the order of the sends, and when the last of these was made."""
        system = self._system
        arrivals: list[Arrival] = []
        child_s = (system.send_s if send_s is None else send_s) + self._message.bulk_s
        clock_s = begin_s
        is_bounded = len(sizes) > system.threads
        open_until: list[float] = []
        for size in sizes:
            if is_bounded and len(open_until) == system.threads:
                clock_s = max(clock_s, heappop(open_until))
            clock_s += child_s + size * system.send_node_s
            at_s = clock_s + self._group_s(states, start, start + size)
            if is_bounded:
                heappush(open_until, self._open_until(states[start], clock_s, at_s))
            arrivals.append((at_s, size))
            start += size
        return arrivals, clock_s

    def _open_until(self, head: int, sent_s: float, answered_s: float) -> float:
        system = self._system
        if not system.frees_on_ack:
            return answered_s
        return sent_s + (system.lost_s(head) if head else system.dial_s + 2 * system.latency_s)

    def _group_s(self, states: bytes, start: int, end: int) -> float:
        """From the sending of a group until the reply for all of it is back."""
        size = end - start
        if states.count(ALIVE, start, end) == size:
            known_s = self._healthy.get(size)
            if known_s is None:
                known_s = self._healthy[size] = self._timed(states, start, end)
            return known_s
        if size > SHORT:
            return self._timed(states, start, end)
        pattern = states[start:end]
        known_s = self._patterns.get(pattern)
        if known_s is None:
            if len(self._patterns) >= PATTERNS_MAX:
                self._patterns.clear()
            known_s = self._patterns[pattern] = self._timed(states, start, end)
        return known_s

    def _timed(self, states: bytes, start: int, end: int) -> float:
        system = self._system
        if states[start] == ALIVE:
            return system.dial_s + 2 * system.latency_s + self._node_s(states, start + 1, end)
        lost_s = system.lost_s(states[start])
        if start + 1 == end:
            return lost_s
        return lost_s + self._rescued(states, start + 1, end)

    def _node_s(self, states: bytes, start: int, end: int) -> float:
        """Time of a live node that has received the list of these positions: relay, act, merge, answer."""
        system = self._system
        acted_s = system.hop_s + self._message.act_s
        if start == end:
            return acted_s
        sizes = self._cut(end - start)
        return max(acted_s, self._merged(*self._fan(states, start, sizes, system.hop_s)))

    def _merged(self, arrivals: Sequence[Arrival], clock_s: float) -> float:
        """Time at which one process has taken in all replies, from `clock_s` on."""
        system = self._system
        for at_s, size in sorted(arrivals):
            clock_s = max(clock_s, at_s) + system.merge_s + size * system.merge_node_s
        return clock_s

    def _cut(self, count: int) -> Sequence[int]:
        sizes = self._sizes.get(count)
        if sizes is None:
            sizes = self._sizes[count] = self._shape.grouping.sizes(count, self._shape.width)
        return sizes

    # The nodes below a dead head.

    def _rescued(self, states: bytes, start: int, end: int) -> float:
        match self._system.rescue:
            case Rescue.ONE_BY_ONE:
                return self._one_by_one(states, start, end)
            case Rescue.NEXT_HEAD:
                return self._next_head(states, start, end)
            case Rescue.AT_ONCE:
                return self._merged(*self._fan(states, start, list(repeat(1, end - start)), 0.0))
            case Rescue.ADOPT:
                return self._merged(*self._fan(states, start, self._cut(end - start), 0.0))

    def _one_by_one(self, states: bytes, start: int, end: int) -> float:
        system = self._system
        live, refused = states.count(ALIVE, start, end), states.count(REFUSED, start, end)
        call_s = system.send_s + self._message.bulk_s + system.send_node_s
        called_s = (end - start) * (call_s + system.merge_s)
        answered_s = live * (system.dial_s + 2 * system.latency_s + self._node_s(states, end, end))
        lost_s = refused * system.lost_s(REFUSED) + (end - start - live - refused) * system.lost_s(SILENT)
        return called_s + answered_s + lost_s

    def _next_head(self, states: bytes, start: int, end: int) -> float:
        system = self._system
        taken_s = 0.0
        for head in range(start, end):
            taken_s += system.send_s + self._message.bulk_s + (end - head) * system.send_node_s
            if states[head] == ALIVE:
                return taken_s + self._group_s(states, head, end)
            taken_s += system.lost_s(states[head])
        return taken_s

    # The second look of a root.

    def _rechecked(self, states: bytes, sizes: Sequence[int], arrivals: Sequence[Arrival]) -> float:
        """Time at which the root has looked at every suspect itself; those of a group are known with the group's answer."""
        system = self._system
        doubts: list[tuple[float, int, int]] = []
        start = 0
        for size, (at_s, _) in zip(sizes, arrivals, strict=True):
            end = start + size
            refused, silent = states.count(REFUSED, start, end), states.count(SILENT, start, end)
            if refused:
                doubts.append((at_s + system.recheck_delay_s, REFUSED, refused))
            if silent:
                doubts.append((at_s, SILENT, silent))
            start = end
        return self._looked(sorted(doubts))

    def _looked(self, doubts: Sequence[tuple[float, int, int]]) -> float:
        """Time at which the last of these second looks is over, so many at a time as the cap allows."""
        system = self._system
        clock_s = done_s = 0.0
        open_until: deque[tuple[float, int]] = deque()
        free = system.rechecks
        for at_s, state, count in doubts:
            clock_s = max(clock_s, at_s)
            while count:
                while open_until and open_until[0][0] <= clock_s:
                    free += open_until.popleft()[1]
                if not free:
                    clock_s = open_until[0][0]
                    continue
                batch = min(free, count)
                clock_s += batch * (system.send_s + system.send_node_s)
                done_s = max(done_s, clock_s + system.lost_s(state))
                if state == SILENT:
                    # A refusal frees its place within a round trip.
                    open_until.append((clock_s + system.lost_s(state), batch))
                    free -= batch
                count -= batch
        return done_s
