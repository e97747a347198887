"""The relay protocol as a state machine: messages and timers in, actions out.

One `Relay` per process serves all its node numbers: thousands in an agent process, none in a
satellite or in a controller that takes over. It owns every live broadcast of the process.

Protocol: acknowledge at once, split the list as the positional tree says (E-20), send each group to
its first node, do the own part, merge what comes back, answer each requester before its own deadline
with what is known. A child that does not acknowledge in time, or acknowledges and then breaks its
link or falls silent, is a suspect: its groups are adopted at once (E-31, X-15), and the root of the
tree looks at each suspect directly, once, before it calls a node unreached. A root puts nodes that are
predicted to fail on leaves before it splits (E-22); a satellite's share that fails goes to the next
satellite or becomes this relay's own tree (E-15, E-16).

Invariants:
- a local node is started at most once per broadcast, however many copies arrive;
- a list is only ever shortened, never reordered (X-02), and a request waits on another's send only
  if that send's head is in its own list, hence later in the order: no circle of waiting can close;
- no node is called unreached on hearsay alone while its own send may still answer for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eslurm.core.relay.children import Children
from eslurm.core.relay.construct import arrange
from eslurm.core.relay.differences import expected_by
from eslurm.core.relay.grouping import find_grouping
from eslurm.core.relay.learning import learn
from eslurm.core.relay.legs import LegKeeper
from eslurm.core.relay.memory import Memory
from eslurm.core.relay.messages import (
    DEFAULT_TUNING,
    Ack,
    Action,
    Broadcast,
    BroadcastId,
    Leg,
    Peer,
    Reply,
    SendAck,
    SendReply,
    Tuning,
)
from eslurm.core.relay.record import Record, Requester, SendState
from eslurm.core.relay.reporting import close_overdue, next_report_us, take_final, take_progress
from eslurm.core.relay.results import EMPTY, Outcome, unreached
from eslurm.core.relay.timers import Timers
from eslurm.core.relay.trace import LINK_LOST, NO_ACK, ROOT
from eslurm.core.relay.tracing import keep


class Relay:
    """The relay of one process. Every input takes the time in microseconds and returns actions.

    `root` is for processes that receive lists they are no part of (satellite, controller): they
    arrange lists and re-check suspects. Others refuse a list whose first node they do not serve. `keeper`
    is the controller's, for the broadcasts that it starts with legs.
    """

    def __init__(
        self,
        local: Iterable[int] = (),
        *,
        root: bool = False,
        keeper: LegKeeper | None = None,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        self._local = set(local)
        self._root = root
        self._starts = keeper is not None
        self._tuning = tuning
        self._live: dict[BroadcastId, Record] = {}
        self._resting: dict[Record, None] = {}
        self._memory = Memory(tuning)
        self._timers = Timers()
        self._children = Children(self._local, root, keeper, tuning, self._timers)
        self._outbound = self._children.outbound
        self._touched: dict[Record, None] = {}

    # What is watched from outside (each has a bound in `Tuning`).

    @property
    def live(self) -> int:
        """Broadcasts under way."""
        return len(self._live) - len(self._resting)

    @property
    def live_nodes(self) -> int:
        """Nodes of those."""
        return sum(len(record.waiters) for record in self._live.values() if record.unreported)

    @property
    def remembered(self) -> int:
        """Finished broadcasts kept for late copies."""
        return len(self._memory)

    @property
    def unacknowledged(self) -> int:
        """Sends that no child has acknowledged yet."""
        return self._outbound.in_flight

    @property
    def queued(self) -> int:
        """Sends held back by the cap on unacknowledged ones."""
        return self._outbound.queued

    @property
    def adoptions(self) -> int:
        """Lists of suspects whose other nodes were served from here, since the start (E-31)."""
        return self._children.adoptions

    @property
    def ack_timeout_us(self) -> int:
        """The acknowledgement time-out in force now."""
        return self._outbound.patience.timeout_us()

    # Inputs.

    def add_local(self, nodes: Iterable[int]) -> None:
        """These node numbers are served by this process from now on."""
        self._local.update(nodes)

    def remove_local(self, nodes: Iterable[int], now_us: int) -> list[Action]:
        """These nodes stopped: they start nothing, answer nothing and owe nothing any more."""
        gone = self._local.intersection(nodes)
        self._local -= gone
        for record in self._live.values():
            for requester in record.requesters.values():
                for request in requester.requests.values():
                    request.muted |= request.head in gone
            silent = [node for node in gone & record.started if node not in record.outcomes]
            record.resolve(silent, unreached("the node stopped"))
            self._touched[record] = None
        return self._conclude(now_us, [])

    def start(self, source: Peer, broadcast: Broadcast, legs: Sequence[Leg], now_us: int) -> list[Action]:
        """Begin a broadcast whose first level is given: one leg per satellite, none of them a node.

        `broadcast.nodes` must be the legs' nodes. The rest of a failed leg goes to the satellite that the pool names, or
        becomes this relay's own tree (E-15, E-16). The answer comes as a `SendReply` to `source`, complete even if the
        satellites report differences only.
        """
        return self._serve(source, broadcast, legs, now_us)

    def on_broadcast(self, source: Peer, broadcast: Broadcast, now_us: int) -> list[Action]:
        """A list to serve, from a parent or from this process' own caller. A second copy joins the first."""
        return self._serve(source, broadcast, None, now_us)

    def on_ack(self, peer: Peer, ack: Ack, now_us: int) -> list[Action]:
        """A child has, or refuses, the lists that begin with these heads."""
        if ack.refused:
            return self.on_refused(ack.broadcast_id, ack.heads, ack.refused, now_us)
        record = self._live.get(ack.broadcast_id)
        if record is None:
            return []
        for send in record.addressed(ack.heads, peer):
            self._children.on_heard(send, peer, now_us)
        return self._conclude(now_us, [])

    def on_refused(
        self, broadcast_id: BroadcastId, heads: Iterable[int], why: str, now_us: int
    ) -> list[Action]:
        """Sends that could not be delivered (no address, connection refused) or were turned down."""
        out: list[Action] = []
        record = self._live.get(broadcast_id)
        if record is None:
            return out
        for send in record.sends_of(heads):
            if send.state is SendState.SENT:
                self._children.suspect(send, why, now_us, out)
                self._touched[record] = None
        return self._conclude(now_us, out)

    def on_reply(self, peer: Peer, reply: Reply, now_us: int) -> list[Action]:
        """News from a child; without results it only shows that the child is at work."""
        record = self._live.get(reply.broadcast_id)
        if record is None:
            return []
        sends = record.addressed(reply.heads, peer)
        for send in sends:
            self._children.on_heard(send, peer, now_us)
        doubts = learn(record, reply, sends)
        if sends:
            self._children.doubt(record, sends[0].request, doubts, now_us)
        if reply.final:
            for send in sends:
                self._children.on_final(send, now_us)
            if reply.trace is not None and sends:
                keep(sends[0], reply.trace)
        self._touched[record] = None
        return self._conclude(now_us, [])

    def on_link_down(self, peer: Peer, now_us: int) -> list[Action]:
        """The link to `peer` broke: its lists are adopted, and no message reaches it any more."""
        out: list[Action] = []
        for record in list(self._live.values()):
            requester = record.requesters.get(peer)
            if requester is not None:
                for request in requester.requests.values():
                    request.muted = True
            for send in list(record.all_sends()):
                if send.state is SendState.ACKED and send.peer == peer:
                    self._children.suspect(send, LINK_LOST, now_us, out)
                    self._touched[record] = None
        return self._conclude(now_us, out)

    def on_local_result(
        self, broadcast_id: BroadcastId, nodes: Iterable[int], outcome: Outcome, now_us: int
    ) -> list[Action]:
        """Local nodes that were told to run have finished."""
        record = self._live.get(broadcast_id)
        if record is None:
            self._memory.add(broadcast_id, nodes, outcome)
            return []
        record.resolve([node for node in nodes if node in record.started], outcome)
        self._touched[record] = None
        return self._conclude(now_us, [])

    def on_timer(self, now_us: int, lag_us: int = 0) -> list[Action]:
        """Do what is due. `lag_us` is how late the process' loop runs, if the caller knows better."""
        out: list[Action] = []
        due_us = self.next_timer_us()
        late_us = max(0, now_us - due_us) if due_us is not None else 0
        self._outbound.patience.note_lag(max(lag_us, late_us))
        for send in self._outbound.overdue(now_us):
            self._children.suspect(send, NO_ACK, now_us, out)
            self._touched[send.record] = None
        for item in self._timers.pop_due(now_us):
            if isinstance(item, Record):
                self._look_at(item, now_us, out)
            else:
                self._attend(item, now_us, out)
        self._memory.purge(now_us)
        return self._conclude(now_us, out)

    def _look_at(self, record: Record, now_us: int, out: list[Action]) -> None:
        if record.unreported:
            self._children.check_progress(record, now_us, out)
            self._touched[record] = None
        elif record.rests_until_us <= now_us:
            self._close(record, now_us)
        else:
            self._timers.schedule(record, record.rests_until_us)

    def next_timer_us(self) -> int | None:
        """Time of the next `on_timer`; None when nothing is pending."""
        due_us = self._outbound.next_due_us()
        for at_us in (self._timers.next_us(), self._memory.next_expiry_us()):
            if at_us is not None and (due_us is None or at_us < due_us):
                due_us = at_us
        return due_us

    # Serving a list.

    def _serve(
        self, source: Peer, broadcast: Broadcast, legs: Sequence[Leg] | None, now_us: int
    ) -> list[Action]:
        nodes = tuple(dict.fromkeys(broadcast.nodes))
        broadcast_id = broadcast.broadcast_id
        if not nodes:
            return [SendReply(source, Reply(broadcast_id, (), EMPTY, True))]
        refusal = self._refusal(broadcast, nodes[0])
        if refusal:
            return [SendAck(source, Ack(broadcast_id, nodes[:1], refusal))]
        out: list[Action] = [SendAck(source, Ack(broadcast_id, nodes[:1]))]
        record = self._open(broadcast, now_us)
        requester = record.requester(source)
        if not requester.open:
            requester.keepalive_at_us = now_us + self._tuning.keepalive_us
        deadline_us = now_us + broadcast.deadline_us
        expected = expected_by(broadcast) if self._root else None
        request, unknown = record.ask(requester, nodes, deadline_us, expected)
        self._timers.schedule(requester, min(deadline_us, requester.keepalive_at_us))
        if legs is not None:
            self._children.give_legs(record, request, legs)
        elif self._root:
            order = arrange(nodes, broadcast.predicted, record.shape) if broadcast.predicted else nodes
            groups = record.shape.split_root(order if unknown else self._uncovered(record, order))
            self._children.give(record, request, groups, ROOT, broadcast.hop + 1, now_us, out)
        else:
            run = () if nodes[0] in record.started else nodes[:1]
            record.started.update(run)
            tail = nodes[1:] if unknown else self._uncovered(record, nodes[1:])
            groups = record.shape.grouping.split(tail, record.shape.width)
            self._children.give(record, request, groups, nodes[0], broadcast.hop + 1, now_us, out, run=run)
        self._touched[record] = None
        return self._conclude(now_us, out)

    def _refusal(self, broadcast: Broadcast, head: int) -> str:
        """The reason why this list is refused, or an empty text."""
        if broadcast.width < 1:
            return f"tree width {broadcast.width}"
        try:
            find_grouping(broadcast.grouping)
        except ValueError as error:
            return str(error)
        if broadcast.deadline_us <= 0:
            return "the deadline has passed"
        if broadcast.hop > self._tuning.max_hops:
            return "too many hops"
        if not self._root and head not in self._local:
            return "the node is not served here"
        record = self._live.get(broadcast.broadcast_id)
        if record is None:
            return "busy" if self.live >= self._tuning.max_live else ""
        if record.broadcast.command != broadcast.command:
            return "another command has this broadcast id"
        return ""

    def _open(self, broadcast: Broadcast, now_us: int) -> Record:
        record = self._live.get(broadcast.broadcast_id)
        if record is None:
            if self._resting and len(self._live) >= self._tuning.max_live:
                self._close(next(iter(self._resting)), now_us)
            record = self._live[broadcast.broadcast_id] = Record(broadcast)
            self._memory.restore(record)
        self._resting.pop(record, None)
        return record

    def _uncovered(self, record: Record, tail: Sequence[int]) -> list[int]:
        """The nodes of a further copy for which nothing is under way that it may wait for.

        Waiting on a send whose head is not in the copy's own list could close a circle between
        processes that host nodes for each other, and a send with a much earlier deadline would give
        up too soon; both are sent anew.
        """
        own = set(tail)
        latest_us = record.deadline_us - 2 * self._tuning.margin_max_us
        todo = []
        for node in tail:
            if node in record.outcomes or node in record.started:
                continue
            send = record.cover.get(node)
            if send is None or send.state >= SendState.DONE or send.to_node not in own:
                todo.append(node)
                continue
            gives_up_early = send.state is not SendState.QUEUED and send.deadline_us < latest_us
            if gives_up_early:
                todo.append(node)
        return todo

    # Answering the requesters.

    def _attend(self, requester: Requester, now_us: int, out: list[Action]) -> None:
        """A requester's timer fired: close what is out of time, report what is ready."""
        record = requester.record
        close_overdue(requester, now_us)
        self._touched[record] = None
        if requester.finished:
            _put(take_final(requester), out)
        flush_due = requester.flush_at_us is not None and requester.flush_at_us <= now_us
        if flush_due or (requester.open and requester.keepalive_at_us <= now_us):
            _put(take_progress(requester, self._tuning, now_us), out)
        self._schedule_report(requester, now_us)

    def _schedule_report(self, requester: Requester, now_us: int) -> None:
        due_us = next_report_us(requester, self._tuning, now_us)
        if due_us is not None:
            self._timers.schedule(requester, due_us)

    # Concluding an input.

    def _conclude(self, now_us: int, out: list[Action]) -> list[Action]:
        """After every input: report, close, and let queued sends go."""
        for record in self._touched:
            for requester in record.dirty:
                self._settle(requester, now_us, out)
            record.dirty.clear()
            if record.unreported == 0 and not record.closed and record not in self._resting:
                self._rest(record, now_us)
        self._touched.clear()
        if self._outbound.queued:
            out.extend(self._outbound.pump(now_us))
        return out

    def _settle(self, requester: Requester, now_us: int, out: list[Action]) -> None:
        if requester.open:
            self._schedule_report(requester, now_us)
        elif requester.finished:
            _put(take_final(requester), out)

    def _rest(self, record: Record, now_us: int) -> None:
        """All lists are answered. Where one process serves many nodes the next list of the broadcast may be on its way:
        to store and restore all that is known for each of them would cost the square of their number.
        """
        if self._root or not self._tuning.linger_us:
            self._close(record, now_us)
            return
        self._children.close(record, now_us)
        record.forget_unreached()
        self._resting[record] = None
        record.rests_until_us = now_us + self._tuning.linger_us
        self._timers.schedule(record, record.rests_until_us)

    def _close(self, record: Record, now_us: int) -> None:
        del self._live[record.broadcast.broadcast_id]
        self._resting.pop(record, None)
        self._children.close(record, now_us)
        if not self._starts:
            # No other process requests a controller's broadcast: no copy of it can come late.
            self._memory.store(record, now_us)
        record.close()


def _put(reply: SendReply | None, out: list[Action]) -> None:
    if reply is not None:
        out.append(reply)
