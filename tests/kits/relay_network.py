"""A network of relays in virtual time for tests: one heap of (instant, sequence), one seed.

Owns processes, links, faults and the record of who acted. A message is delivered to a node number
through the address book `process_of`; process 0 is the root and hosts no node.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from eslurm.core.relay.grouping import split
from eslurm.core.relay.legs import LegKeeper
from eslurm.core.relay.messages import (
    DEFAULT_TUNING,
    Ack,
    Action,
    Broadcast,
    Leg,
    Reallocated,
    Reply,
    RunLocal,
    SendAck,
    SendBroadcast,
    SendReply,
    Suspect,
    TookOver,
    Tuning,
)
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import OK, Outcome, failed

CALLER = "caller"
ROOT = 0


@dataclass
class Faults:
    """Faults of the network and of processes. Probabilities are per message."""

    refused: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    dying: set[int] = field(default_factory=set)
    """Nodes whose process falls silent right after its first acknowledgement."""
    dying_breaks_link: bool = False
    slow_us: dict[int, int] = field(default_factory=dict)
    """The extra delay of each message of a process."""
    loss: float = 0.0
    duplication: float = 0.0
    delay_max_us: int = 20_000
    run_max_us: int = 50_000


class Network:
    """Relays, links and virtual time; `run` plays until the root's caller has its final answer."""

    def __init__(
        self,
        process_of: Mapping[int, int],
        faults: Faults,
        seed: int = 0,
        tuning: Tuning = DEFAULT_TUNING,
        satellites: Sequence[int] = (),
        keeper: LegKeeper | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.process_of = dict(process_of)
        self.faults = faults
        self.now_us = 1_000_000
        self.relays: dict[int, Relay] = {ROOT: Relay(root=True, keeper=keeper, tuning=tuning)}
        for satellite in satellites:
            self.relays[satellite] = Relay(root=True, tuning=tuning)
            self.process_of[satellite] = satellite
        self.address_book = dict(self.process_of)
        homes: dict[int, list[int]] = {}
        dead = faults.refused | faults.silent
        for node, process in process_of.items():
            homes.setdefault(process, [])
            if node not in dead:
                homes[process].append(node)
        for process, nodes in homes.items():
            self.relays[process] = Relay(nodes, tuning=tuning)
        self.dead_processes: set[int] = set()
        self.acted: Counter[int] = Counter()
        self.suspects: list[Suspect] = []
        self.notices: list[Reallocated | TookOver] = []
        self._held: dict[int, list[tuple[str, tuple[Any, ...]]]] = {}
        self.sent: Counter[str] = Counter()
        self.lists: list[tuple[int, ...]] = []
        self.answers: list[Reply] = []
        self.finished_us: int | None = None
        self.outcome_of: Callable[[int], Outcome] = lambda node: OK
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._timer_at: dict[int, int] = {}

    def at(self, delay_us: int, what: Callable[[], None]) -> None:
        """Do something later."""
        self._sequence += 1
        heappush(self._heap, (self.now_us + delay_us, self._sequence, what))

    def broadcast(
        self,
        nodes: Sequence[int],
        width: int,
        deadline_us: int = 60_000_000,
        legs: Sequence[Leg] = (),
        **more: Any,
    ) -> None:
        """Let the root's caller begin broadcast 1."""
        message = Broadcast(1, tuple(nodes), width, deadline_us, "test", b"command", **more)
        relay = self.relays[ROOT]
        if legs:
            actions = relay.start(CALLER, message, legs, self.now_us)
        else:
            actions = relay.on_broadcast(CALLER, message, self.now_us)
        self._perform(ROOT, actions)

    def run(self, after_us: int = 0, steps_max: int = 3_000_000) -> None:
        """Play until the final answer, then `after_us` longer."""
        for _ in range(steps_max):
            if not self._heap:
                return
            at_us, _, what = self._heap[0]
            if self.finished_us is not None and at_us > self.finished_us + after_us:
                return
            heappop(self._heap)
            self.now_us = at_us
            what()
        raise AssertionError("the network does not come to rest")

    def final(self) -> dict[int, Outcome]:
        """The root's final answer by node."""
        assert self.answers, "no final answer"
        return self.answers[0].results.expand()

    def call(self, process: int, name: str, *arguments: Any) -> None:
        """Give one input to a process, if it lives."""
        if process in self.dead_processes:
            return
        if process in self._held:
            self._held[process].append((name, arguments))
            return
        actions = getattr(self.relays[process], name)(*arguments, self.now_us)
        self._perform(process, actions)

    def pause(self, process: int, for_us: int) -> None:
        """The process stands still for a while; what comes meanwhile it finds when it goes on."""
        if process not in self._held:
            self._held[process] = []
            self.at(for_us, lambda: self._go_on(process))

    def _go_on(self, process: int) -> None:
        for name, arguments in self._held.pop(process):
            self.call(process, name, *arguments)

    def kill(self, process: int) -> None:
        """The process stops for good; peers learn of it when links break."""
        self.dead_processes.add(process)
        if self.faults.dying_breaks_link:
            for other in self.relays:
                if other != process:
                    self._later(lambda other=other: self.call(other, "on_link_down", process))

    def _perform(self, process: int, actions: list[Action]) -> None:
        for action in actions:
            if process in self.dead_processes:
                return
            if isinstance(action, SendBroadcast):
                self._send_broadcast(process, action)
            elif isinstance(action, SendAck):
                self._send_ack(process, action.to_source, action.ack)
            elif isinstance(action, SendReply):
                self._send_reply(process, action.to_source, action.reply)
            elif isinstance(action, RunLocal):
                self._run_local(process, action)
            elif isinstance(action, Suspect):
                self.suspects.append(action)
            else:
                self.notices.append(action)
        self._arm(process)

    def _arm(self, process: int) -> None:
        due_us = self.relays[process].next_timer_us()
        if due_us is None or self._timer_at.get(process, 1 << 62) <= due_us:
            return
        self._timer_at[process] = due_us
        self.at(max(0, due_us - self.now_us), lambda: self._fire(process, due_us))

    def _fire(self, process: int, due_us: int) -> None:
        if self._timer_at.get(process) == due_us:
            del self._timer_at[process]
        self.call(process, "on_timer")
        if process not in self.dead_processes and process not in self._held:
            self._arm(process)

    def _later(self, what: Callable[[], None], slow_us: int = 0) -> None:
        self.at(self.rng.randint(100, self.faults.delay_max_us) + slow_us, what)

    def _deliver(self, kind: str, process: int, what: Callable[[], None]) -> None:
        """One message over the wire: lost, doubled and reordered as the faults say."""
        self.sent[kind] += 1
        copies = 1 + (self.rng.random() < self.faults.duplication)
        for _ in range(copies):
            if self.rng.random() >= self.faults.loss:
                self._later(what, self.faults.slow_us.get(process, 0))

    def _send_broadcast(self, process: int, action: SendBroadcast) -> None:
        message = action.broadcast
        node = action.to_node
        self.lists.append(message.nodes)
        if node in self.faults.refused:
            self.sent["broadcast"] += 1
            heads = message.nodes[:1]
            self._later(lambda: self.call(process, "on_refused", 1, heads, "connection refused"))
        elif node in self.faults.silent:
            self.sent["broadcast"] += 1
        else:
            target = self.address_book[node]
            self._deliver(
                "broadcast", process, lambda: self._receive_broadcast(target, node, process, message)
            )

    def _receive_broadcast(self, process: int, node: int, source: int, message: Broadcast) -> None:
        if process in self.dead_processes:
            return
        if node in self.faults.dying:
            actions = self.relays[process].on_broadcast(source, message, self.now_us)
            self._perform(process, [a for a in actions if isinstance(a, SendAck)])
            if self.rng.random() < 0.5:
                self._perform(process, [a for a in actions if not isinstance(a, SendAck)])
            self.kill(process)
        else:
            self.call(process, "on_broadcast", source, message)

    def _send_ack(self, process: int, target: Any, ack: Ack) -> None:
        if target != CALLER:
            self._deliver("ack", process, lambda: self.call(target, "on_ack", process, ack))

    def _send_reply(self, process: int, target: Any, reply: Reply) -> None:
        if target != CALLER:
            kind = "reply" if reply.results.rows else "keepalive"
            self._deliver(kind, process, lambda: self.call(target, "on_reply", process, reply))
        elif reply.final:
            self.answers.append(reply)
            self.finished_us = self.now_us

    def _run_local(self, process: int, action: RunLocal) -> None:
        self.acted.update(action.nodes)
        for node in action.nodes:
            delay_us = self.rng.randint(0, self.faults.run_max_us)
            outcome = self.outcome_of(node)
            self.at(
                delay_us,
                lambda node=node, outcome=outcome: self.call(
                    process, "on_local_result", action.broadcast_id, (node,), outcome
                ),
            )


class Keeper:
    """Names the satellites in turn, each at most once, and checks that every leg ends exactly once."""

    def __init__(self, satellites: Sequence[int], tries_max: int = 2) -> None:
        self.open: Counter[int] = Counter()
        self.done: list[int] = []
        self.failed: list[tuple[int, int, str]] = []
        self._healthy = list(satellites)
        self._tries_max = tries_max

    def legs(self, nodes: Sequence[int]) -> list[Leg]:
        """A share for each satellite."""
        shares = split(nodes, len(self._healthy))
        legs = [Leg(to, tuple(share)) for to, share in zip(self._healthy, shares, strict=False)]
        self.open.update(leg.to_node for leg in legs)
        return legs

    def on_leg_done(self, to_node: int, now_us: int) -> None:
        assert self.open[to_node] > 0
        self.open[to_node] -= 1
        self.done.append(to_node)

    def on_leg_failed(self, to_node: int, tries: int, why: str, now_us: int) -> int | None:
        assert self.open[to_node] > 0
        self.open[to_node] -= 1
        self.failed.append((to_node, tries, why))
        if to_node in self._healthy:
            self._healthy.remove(to_node)
        if tries >= self._tries_max or not self._healthy:
            return None
        self._healthy.append(self._healthy.pop(0))
        self.open[self._healthy[0]] += 1
        return self._healthy[0]


def some_fail(node: int) -> Outcome:
    """Every seventh node's command fails, with one of two texts."""
    if node % 7 == 3:
        return failed("disk full" if node % 2 else "no such user", 1 + node % 2)
    return OK
