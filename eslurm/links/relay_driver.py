"""Carries the relay's actions to links and arriving items to the relay; keeps its timer.

One per process: satellite, agent, controller. Invariants: the relay is only ever called on the event loop and never from
within one of its own calls; a failed send is reported to the relay, so its list is adopted at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from eslurm.core.relay.messages import (
    Ack,
    Action,
    Broadcast,
    BroadcastId,
    Peer,
    Reallocated,
    Reply,
    RunLocal,
    SendAck,
    SendBroadcast,
    SendReply,
    Suspect,
    TookOver,
)
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import Outcome
from eslurm.links.relay_counters import RelayCounters
from eslurm.links.relay_envelopes import (
    ack_item,
    broadcast_item,
    read_ack,
    read_broadcast,
    read_reply,
    reply_item,
)
from eslurm.ports.link import ANYBODY, Link, LinkError, Links, Wanted
from eslurm.v1 import link_pb2

if TYPE_CHECKING:
    # Not in satellites and agents: with it comes all that a controller decides by.
    from eslurm.core.dispatch.broadcaster import Deliver

log = logging.getLogger(__name__)

ATTACHED_BROADCASTS_MAX = 2_048
UNADDRESSED_MAX = 65_536
TIMER_AGAIN_US = 1_000_000
REFUSED = "connection refused"
"""The failure of a node that simulates death."""

Attachments = tuple[link_pb2.Blob, ...]


class Machine(Protocol):
    """The driven machine: a `Relay`, or the controller's `Broadcaster` around one. Each input returns actions."""

    def on_ack(self, peer: Peer, ack: Ack, now_us: int) -> Sequence[Action | Deliver]: ...

    def on_reply(self, peer: Peer, reply: Reply, now_us: int) -> Sequence[Action | Deliver]: ...

    def on_refused(
        self, broadcast_id: BroadcastId, heads: Sequence[int], why: str, now_us: int
    ) -> Sequence[Action | Deliver]: ...

    def on_link_down(self, peer: Peer, now_us: int) -> Sequence[Action | Deliver]: ...

    def on_timer(self, now_us: int) -> Sequence[Action | Deliver]: ...

    def next_timer_us(self) -> int | None: ...


class RelayDriver:
    """`find_endpoint` is the address book. Give it items with `on_*`, links with `on_up` and `on_down`.

    `wanted` is the required membership of a number's peer; `is_behind`: a newer book is on its way, and a failed dial then
    waits for it. `deliver` gets the messages of a controller's machine for its core. The machine's time begins at
    `origin_us`.
    """

    def __init__(
        self,
        machine: Machine,
        links: Links,
        find_endpoint: Callable[[int], str | None],
        is_behind: Callable[[], bool] | None = None,
        deliver: Callable[[Deliver], None] | None = None,
        origin_us: int = 0,
        wanted: Callable[[int], Wanted] = lambda _number: ANYBODY,
    ) -> None:
        self._machine = machine
        self._wanted = wanted
        self._links = links
        self._find_endpoint = find_endpoint
        self._deliver = deliver
        self._origin_us = origin_us
        self._is_behind = is_behind
        self._loop = asyncio.get_running_loop()
        self._peers: dict[str, list[Link]] = {}
        self._attached: OrderedDict[BroadcastId, Attachments] = OrderedDict()
        self._undelivered: dict[str, list[SendBroadcast]] = {}
        self._unaddressed: list[SendBroadcast] = []
        self._dials: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = 0
        self._timer_asked = False
        self._closed = False
        self.counters = RelayCounters()

    def now_us(self) -> int:
        """The machine's clock: microseconds of the event loop after `origin_us`; it never jumps."""
        return self._origin_us + int(self._loop.time() * 1_000_000)

    # ---- from links ----

    def on_up(self, link: Link) -> None:
        """A link to a peer process is up."""
        self._peers.setdefault(link.peer.process, []).append(link)

    def on_down(self, link: Link) -> None:
        """A link ended; the relay hears of the last one to that process."""
        process = link.peer.process
        links = self._peers.get(process, [])
        if link in links:
            links.remove(link)
        if not links and self._peers.pop(process, None) is not None:
            self.perform(self._machine.on_link_down(process, self.now_us()))

    def on_ack(self, link: Link, message: link_pb2.BroadcastAck) -> None:
        """Raises `EnvelopeError`."""
        ack = read_ack(message)
        if ack.refused:
            self.counters.refusals += 1
        else:
            self.counters.acknowledgements += len(ack.heads)
        self.perform(self._machine.on_ack(link.peer.process, ack, self.now_us()))

    def on_reply(self, link: Link, message: link_pb2.BroadcastReply) -> None:
        """Raises `EnvelopeError`."""
        self.counters.replies += 1
        self.perform(self._machine.on_reply(link.peer.process, read_reply(message), self.now_us()))

    # ---- from this process ----

    def on_book(self) -> None:
        """The address book has grown: send messages that lacked an address."""
        waiting, self._unaddressed = self._unaddressed, []
        for send in waiting:
            self._send(send)

    async def close(self) -> None:
        """Stop the timer and the dials."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        dials = list(self._dials)
        for dial in dials:
            dial.cancel()
        await asyncio.gather(*dials, return_exceptions=True)

    # ---- performing ----

    def perform(self, actions: Sequence[Action | Deliver]) -> None:
        for action in actions:
            try:
                self._carry_out(action)
            except Exception:
                # The relay times out on what is missing now, as for a lost message.
                log.exception("%s could not be carried out", type(action).__name__)
        self._ask_timer()

    def _carry_out(self, action: Action | Deliver) -> None:
        match action:
            case SendBroadcast():
                self._send(action)
            case SendAck(source, ack):
                self._tell(source, ack_item(ack))
            case SendReply(source, reply):
                if reply.final:
                    # A late copy brings its own; keeping them would cost more than they weigh.
                    self.detach(reply.broadcast_id)
                self._tell(source, reply_item(reply))
            case RunLocal():
                self.run_local(action)
            case Suspect():
                self.counters.suspects += 1
                log.info("broadcast %s: node %d is suspect: %s", action.broadcast_id, action.node, action.why)
            case Reallocated(broadcast_id, from_node, to_node, nodes):
                log.warning(
                    "broadcast %s: %d nodes of satellite %d go to satellite %d",
                    broadcast_id,
                    nodes,
                    from_node,
                    to_node,
                )
            case TookOver(broadcast_id, from_node, nodes):
                log.warning(
                    "broadcast %s: %d nodes of satellite %d are sent from here",
                    broadcast_id,
                    nodes,
                    from_node,
                )
            case message:
                assert self._deliver is not None, "only the controller's machine has messages for a core"
                self._deliver(message)

    def _tell(self, source: Peer, item: link_pb2.Item) -> None:
        links = self._peers.get(source) if isinstance(source, str) else None
        if links:
            links[-1].send(item)

    def _send(self, send: SendBroadcast) -> None:
        endpoint = self._find_endpoint(send.to_node)
        if endpoint is None:
            self._park(send)
            return
        wanted = self._wanted(send.to_node)
        link = self._links.find(endpoint, wanted)
        if link is not None:
            self._hand_over(link, send)
            return
        waiting = self._undelivered.get(endpoint)
        if waiting is not None:
            waiting.append(send)
            return
        self._undelivered[endpoint] = [send]
        dial = self._loop.create_task(self._dial(endpoint, wanted), name=f"relay to {endpoint}")
        self._dials.add(dial)
        dial.add_done_callback(self._dials.discard)

    def _park(self, send: SendBroadcast) -> None:
        # The book may be on its way; if it is not, the relay loses patience as with any silent child.
        if len(self._unaddressed) < UNADDRESSED_MAX:
            self._unaddressed.append(send)

    async def _dial(self, endpoint: str, wanted: Wanted) -> None:
        try:
            link = await self._links.get(endpoint, wanted)
        except LinkError as error:
            for send in self._undelivered.pop(endpoint):
                self._on_undeliverable(send, endpoint, str(error))
            return
        except BaseException:
            self._undelivered.pop(endpoint, None)
            raise
        for send in self._undelivered.pop(endpoint):
            if self._wanted(send.to_node).fits(link.peer):
                self._hand_over(link, send)
            else:
                self._on_undeliverable(send, endpoint, f"{link.peer.names} is served there")

    def _on_undeliverable(self, send: SendBroadcast, endpoint: str, why: str) -> None:
        """No process listens there. The node may have moved: look again, now or with the next book."""
        if self._find_endpoint(send.to_node) != endpoint:
            self._send(send)
        elif self._is_behind is not None and self._is_behind():
            self._park(send)
        else:
            self._refuse(send, why)

    def _hand_over(self, link: Link, send: SendBroadcast) -> None:
        attachments = self._attached.get(send.broadcast.broadcast_id, ())
        if link.send(broadcast_item(send.broadcast, attachments)):
            self.counters.lists_sent += 1
        else:
            why = "the link has just ended" if link.closed.is_set() else "the link does not take it"
            self._loop.call_soon(self._refuse, send, why)

    def _refuse(self, send: SendBroadcast, why: str) -> None:
        if not self._closed:
            self.counters.refusals += 1
            broadcast = send.broadcast
            heads = broadcast.nodes[:1]
            self.perform(self._machine.on_refused(broadcast.broadcast_id, heads, why, self.now_us()))

    def attach(self, broadcast_id: BroadcastId, attachments: Attachments) -> None:
        if attachments:
            self._attached[broadcast_id] = attachments
            while len(self._attached) > ATTACHED_BROADCASTS_MAX:
                self._attached.popitem(last=False)

    def run_local(self, run: RunLocal) -> None:
        """Run a command for nodes of this process: only a `RelayServer` can."""
        raise AssertionError(f"this process serves no nodes, but {run.nodes[:1]} was to run here")

    def detach(self, broadcast_id: BroadcastId) -> None:
        """Its answer is known: drop its attachments."""
        self._attached.pop(broadcast_id, None)

    # ---- time ----

    def _ask_timer(self) -> None:
        """Ask the machine for its timer once per turn of the loop: a query costs as much as a message."""
        if not self._timer_asked:
            self._timer_asked = True
            self._loop.call_soon(self._set_timer)

    def _set_timer(self) -> None:
        self._timer_asked = False
        due_us = self._machine.next_timer_us()
        if self._timer is not None:
            if due_us is not None and self._timer_us <= due_us:
                # It fires early at worst, and is then set anew: cheaper than one timer per message.
                return
            self._timer.cancel()
            self._timer = None
        if due_us is not None and not self._closed:
            self._timer_us = due_us
            self._timer = self._loop.call_at((due_us - self._origin_us) / 1_000_000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_us = self.now_us()
        # Only a call at the relay's own due time says how late this process runs.
        due_us = self._machine.next_timer_us()
        if due_us is None or due_us > now_us + 1_000:
            self._set_timer()
            return
        try:
            actions = self._machine.on_timer(max(now_us, due_us))
        except Exception:
            log.exception("the relay's timers could not be run")
            if not self._closed:
                # Not at once: it may be due, and fail, for ever.
                self._timer_us = now_us + TIMER_AGAIN_US
                self._timer = self._loop.call_later(TIMER_AGAIN_US / 1_000_000, self._on_timer)
            return
        self.perform(actions)


class RelayServer(RelayDriver):
    """The driver of a process that serves lists of others: satellite or agent. `run` runs commands for local nodes."""

    def __init__(
        self,
        relay: Relay,
        links: Links,
        find_endpoint: Callable[[int], str | None],
        run: Callable[[RunLocal], None] | None = None,
        is_behind: Callable[[], bool] | None = None,
        wanted: Callable[[int], Wanted] = lambda _number: ANYBODY,
    ) -> None:
        super().__init__(relay, links, find_endpoint, is_behind, wanted=wanted)
        self.relay = relay
        self._run = run

    def serve(self, nodes: Iterable[int]) -> None:
        """These node numbers are served by this process from now on."""
        self.relay.add_local(nodes)

    def on_broadcast(self, link: Link, message: link_pb2.Broadcast) -> None:
        """Raises `EnvelopeError`."""
        broadcast = read_broadcast(message)
        self.counters.lists_received += 1
        self._serve(link.peer.process, broadcast, tuple(message.attachments))

    def _serve(self, source: Peer, broadcast: Broadcast, attachments: Attachments) -> None:
        self.attach(broadcast.broadcast_id, attachments)
        self.perform(self.relay.on_broadcast(source, broadcast, self.now_us()))

    def on_local_result(self, broadcast_id: BroadcastId, nodes: Sequence[int], outcome: Outcome) -> None:
        """Local nodes have finished."""
        self.perform(self.relay.on_local_result(broadcast_id, nodes, outcome, self.now_us()))

    def run_local(self, run: RunLocal) -> None:
        """Run it later: its outcomes must not enter the relay during one of its calls."""
        assert self._run is not None, f"a satellite serves no nodes, but {run.nodes[:1]} was to run here"
        self._loop.call_soon(self._run, run)
