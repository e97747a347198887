"""A relay server some of whose nodes simulate failures: for `--allow-chaos` and tests.

Invariant: a node without a switch behaves as in `RelayServer`; what a node that is off had to say is said once it is healed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec

from eslurm.core.relay.messages import Ack, Broadcast, BroadcastId, Peer, RunLocal, SendBroadcast
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import Outcome
from eslurm.faults.switches import Mode, Switch, Switches
from eslurm.links.relay_driver import Attachments, RelayServer
from eslurm.links.relay_envelopes import ack_item
from eslurm.ports.link import ANYBODY, Links, Wanted
from eslurm.v1 import link_pb2

HELD_RESULTS_MAX = 65_536
REFUSED = "connection refused"
"""Reported of a node that pretends to be dead."""


class FaultyRelayServer(RelayServer):
    """Nodes can be struck to simulate a failure: one that is off is none of the relay's own nodes meanwhile, so that its
    neighbours in this process miss it, too. `on_healed` gets the healed nodes.
    """

    def __init__(
        self,
        relay: Relay,
        links: Links,
        find_endpoint: Callable[[int], str | None],
        run: Callable[[RunLocal], None] | None = None,
        is_behind: Callable[[], bool] | None = None,
        on_healed: Callable[[list[int]], None] | None = None,
        wanted: Callable[[int], Wanted] = lambda _number: ANYBODY,
    ) -> None:
        super().__init__(relay, links, find_endpoint, run, is_behind, wanted)
        self.switches = Switches()
        self.is_cut = False
        """Nothing goes out: the process as a whole pretends to be behind a broken network."""
        self._on_healed = on_healed
        self._late_head: int | None = None
        self._held: deque[tuple[BroadcastId, list[int], Outcome]] = deque(maxlen=HELD_RESULTS_MAX)
        self._expiry: asyncio.TimerHandle | None = None

    def _serve(self, source: Peer, broadcast: Broadcast, attachments: Attachments) -> None:
        switch = self.switches.find(broadcast.nodes[0]) if broadcast.nodes else None
        if switch is None:
            super()._serve(source, broadcast, attachments)
        elif not switch.mode.is_off:
            self.attach(broadcast.broadcast_id, attachments)
            self._loop.call_later(switch.delay_us / 1_000_000, self._on_late_broadcast, source, broadcast)
        elif switch.mode is Mode.DEAD:
            self._tell(source, ack_item(Ack(broadcast.broadcast_id, broadcast.nodes[:1], REFUSED)))
        elif switch.mode is Mode.CUT_OUT:
            self.attach(broadcast.broadcast_id, attachments)
            self._run_unheard(broadcast, broadcast.nodes[0])

    def _on_late_broadcast(self, source: Peer, broadcast: Broadcast) -> None:
        if self._closed or self.switches.is_off(broadcast.nodes[0]):
            return
        self._late_head = broadcast.nodes[0]
        try:
            self.perform(self.relay.on_broadcast(source, broadcast, self.now_us()))
        finally:
            self._late_head = None

    def _run_unheard(self, broadcast: Broadcast | SendBroadcast, node: int) -> None:
        """Run the command on a node whose way out is cut; it passes nothing on."""
        message = broadcast.broadcast if isinstance(broadcast, SendBroadcast) else broadcast
        run = RunLocal(message.broadcast_id, (node,), message.kind, message.command, message.deadline_us)
        self._loop.call_soon(self._run_unless_closed, run)

    def on_local_result(self, broadcast_id: BroadcastId, nodes: Sequence[int], outcome: Outcome) -> None:
        """See `RelayServer`."""
        held = [node for node in nodes if self.switches.is_mute(node)]
        if held:
            self._held.append((broadcast_id, held, outcome))
            nodes = [node for node in nodes if not self.switches.is_mute(node)]
        if nodes:
            super().on_local_result(broadcast_id, nodes, outcome)

    def run_local(self, run: RunLocal) -> None:
        """See `RelayServer`."""
        if not self.switches:
            super().run_local(run)
            return
        by_delay: dict[int, list[int]] = {}
        for node in run.nodes:
            # A slow addressee of a list was late already when the list was taken.
            delay_us = 0 if node == self._late_head else self.switches.delay_us(node)
            by_delay.setdefault(delay_us, []).append(node)
        for delay_us, nodes in by_delay.items():
            part = msgspec.structs.replace(run, nodes=tuple(nodes))
            self._loop.call_later(delay_us / 1_000_000, self._run_unless_closed, part)

    def _run_unless_closed(self, run: RunLocal) -> None:
        if not self._closed and self._run is not None:
            self._run(run)

    def serve(self, nodes: Iterable[int]) -> None:
        """See `RelayServer`. A node may be struck while its number is being written: it is served once it is healed."""
        super().serve(node for node in nodes if not self.switches.is_off(node))

    def strike(self, nodes: Sequence[int], switch: Switch) -> None:
        """Let nodes of this process fail in this mode from now on."""
        self.switches.set(nodes, switch)
        if switch.mode.is_off:
            self.perform(self.relay.remove_local(nodes, self.now_us()))
        else:
            self._revive(nodes)
        self._watch_expiry()

    def heal(self, nodes: Sequence[int]) -> list[int]:
        """Undo it; returns those of `nodes` that were struck."""
        healed = self.switches.heal(nodes)
        self._revive(healed)
        self._watch_expiry()
        return healed

    def _revive(self, nodes: Sequence[int]) -> None:
        """Add healed nodes to the relay, and report their held outcomes."""
        if not nodes:
            return
        self.relay.add_local(nodes)
        for _ in range(len(self._held)):
            self.on_local_result(*self._held.popleft())
        if self._on_healed is not None:
            self._on_healed(list(nodes))

    def _watch_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        due_us = self.switches.next_expiry_us()
        self._expiry = None
        if due_us is not None and not self._closed:
            self._expiry = self._loop.call_at((due_us - self._origin_us) / 1_000_000, self._on_expiry)

    def _on_expiry(self) -> None:
        self._revive(self.switches.expire(self.now_us()))
        self._watch_expiry()

    async def close(self) -> None:
        """Stop the timers and the dials."""
        if self._expiry is not None:
            self._expiry.cancel()
        await super().close()

    def _send(self, send: SendBroadcast) -> None:
        # Only nodes of this process have switches here: others are struck where they are.
        switch = self.switches.find(send.to_node)
        if self.is_cut:
            return
        if switch is None or not switch.mode.is_off:
            super()._send(send)
        elif switch.mode is Mode.DEAD:
            self._loop.call_soon(self._refuse, send, REFUSED)
        elif switch.mode is Mode.CUT_OUT:
            self._run_unheard(send, send.to_node)

    def _tell(self, source: Peer, item: link_pb2.Item) -> None:
        if not self.is_cut:
            super()._tell(source, item)
