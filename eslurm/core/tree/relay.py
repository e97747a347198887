"""The relay protocol as a state machine: messages and timers in, actions out.

One `Relay` per process serves all its node numbers: thousands in an agent process, none in a
satellite or in a controller that takes over. It owns every live broadcast of the process.

Protocol: acknowledge at once, split the list as the positional tree says (E-20), send each group to
its first node, do the own part, merge what comes back, answer each requester before its own deadline
with what is known. A child that does not acknowledge in time, or acknowledges and then breaks its
link or falls silent, is a suspect: its groups are adopted at once (E-31, X-15), and the root of the
tree looks at each suspect directly, once, before it calls a node unreached.

Invariants:
- a local node is started at most once per broadcast, however many copies arrive;
- a list is only ever shortened, never reordered (X-02), and a request waits on another's send only
  if that send's head is in its own list, hence later in the order: no circle of waiting can close;
- no node is called unreached on hearsay alone while its own send may still answer for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eslurm.core.tree.grouping import POSITIONAL, Grouping
from eslurm.core.tree.memory import Memory
from eslurm.core.tree.messages import (
    DEFAULT_TUNING,
    Ack,
    Action,
    Broadcast,
    BroadcastId,
    Leg,
    Peer,
    Reply,
    RunLocal,
    SendAck,
    SendReply,
    Suspect,
    Tuning,
)
from eslurm.core.tree.outbound import Outbound
from eslurm.core.tree.record import Record, Requester, Send, SendState
from eslurm.core.tree.reporting import close_overdue, next_report_us, take_final, take_progress
from eslurm.core.tree.results import EMPTY, Outcome, Status, unreached
from eslurm.core.tree.timers import Timers


class Relay:
    """The relay of one process. Every input takes the time in microseconds and returns actions.

    `root` is for processes that receive lists they are no part of (satellite, controller): they
    re-check suspects. Others refuse a list whose first node they do not serve.
    """

    def __init__(
        self,
        local: Iterable[int] = (),
        *,
        root: bool = False,
        grouping: Grouping = POSITIONAL,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        self._local = set(local)
        self._root = root
        self._grouping = grouping
        self._tuning = tuning
        self._live: dict[BroadcastId, Record] = {}
        self._memory = Memory(tuning)
        self._outbound = Outbound(tuning)
        self._timers = Timers()
        self._touched: dict[Record, None] = {}

    # What is watched from outside (each has a bound in `Tuning`).

    @property
    def live(self) -> int:
        """Broadcasts under way."""
        return len(self._live)

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

        `broadcast.nodes` must be the legs' nodes in order. A leg that fails is taken over: its nodes
        become this relay's own tree (E-16). The answer comes as a `SendReply` to `source`.
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
        for send in _sends(record, ack.heads):
            self._heard(send, peer, now_us)
        return self._conclude(now_us, [])

    def on_refused(
        self, broadcast_id: BroadcastId, heads: Iterable[int], why: str, now_us: int
    ) -> list[Action]:
        """Sends that could not be delivered (no address, connection refused) or were turned down."""
        out: list[Action] = []
        record = self._live.get(broadcast_id)
        if record is None:
            return out
        for send in _sends(record, heads):
            if send.state is SendState.SENT:
                self._suspect(send, why, now_us, out)
        return self._conclude(now_us, out)

    def on_reply(self, peer: Peer, reply: Reply, now_us: int) -> list[Action]:
        """News from a child; without results it only shows that the child is at work."""
        record = self._live.get(reply.broadcast_id)
        if record is None:
            return []
        sends = _sends(record, reply.heads)
        for send in sends:
            self._heard(send, peer, now_us)
        self._learn(record, reply, any(send.via for send in sends))
        if reply.final:
            for send in sends:
                if send.state is SendState.ACKED and not record.owed_by(send):
                    self._outbound.end(send, SendState.DONE)
        self._touched[record] = None
        return self._conclude(now_us, [])

    def on_link_down(self, peer: Peer, now_us: int) -> list[Action]:
        """The link to `peer` broke: its lists are adopted, and nothing can be told to it any more."""
        out: list[Action] = []
        for record in list(self._live.values()):
            requester = record.requesters.get(peer)
            if requester is not None:
                for request in requester.requests.values():
                    request.muted = True
            for send in list(record.all_sends()):
                if send.state is SendState.ACKED and send.peer == peer:
                    self._suspect(send, "link lost", now_us, out)
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
            self._suspect(send, "no acknowledgement", now_us, out)
        for item in self._timers.pop_due(now_us):
            if isinstance(item, Record):
                self._check_progress(item, now_us, out)
            else:
                self._attend(item, now_us, out)
        self._memory.purge(now_us)
        return self._conclude(now_us, out)

    def next_timer_us(self) -> int | None:
        """When `on_timer` wants to be called next; None when nothing is pending."""
        due = (self._outbound.next_due_us(), self._timers.next_us(), self._memory.next_expiry_us())
        return min((at_us for at_us in due if at_us is not None), default=None)

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
        record = self._open(broadcast)
        requester = record.requester(source)
        if not requester.open:
            requester.keepalive_at_us = now_us + self._tuning.keepalive_us
        deadline_us = now_us + broadcast.deadline_us
        unknown = record.ask(requester, nodes, deadline_us)
        self._timers.schedule(requester, min(deadline_us, requester.keepalive_at_us))
        run: list[int] = []
        if legs is not None:
            for leg in legs:
                self._send(record, Send(record, leg.to_node, list(leg.nodes), via=True))
        else:
            tail = self._start_head(record, nodes, run)
            self._spread(record, tail if unknown else self._uncovered(record, tail), run)
        self._run(record, run, now_us, out)
        self._touched[record] = None
        return self._conclude(now_us, out)

    def _refusal(self, broadcast: Broadcast, head: int) -> str:
        """Why this list is not served, or an empty text."""
        if broadcast.width < 1:
            return f"tree width {broadcast.width}"
        if broadcast.deadline_us <= 0:
            return "the deadline has passed"
        if broadcast.hop > self._tuning.max_hops:
            return "too many hops"
        if not self._root and head not in self._local:
            return "the node is not served here"
        record = self._live.get(broadcast.broadcast_id)
        if record is None:
            return "busy" if len(self._live) >= self._tuning.max_live else ""
        if record.broadcast.command != broadcast.command:
            return "another command has this broadcast id"
        return ""

    def _open(self, broadcast: Broadcast) -> Record:
        record = self._live.get(broadcast.broadcast_id)
        if record is None:
            record = self._live[broadcast.broadcast_id] = Record(broadcast)
            self._memory.restore(record)
        return record

    def _start_head(self, record: Record, nodes: tuple[int, ...], run: list[int]) -> tuple[int, ...]:
        """Start the addressee if it is ours; what is left is to be split."""
        if nodes[0] not in self._local:
            return nodes
        if nodes[0] not in record.started:
            run.append(nodes[0])
            record.started.add(nodes[0])
        return nodes[1:]

    def _uncovered(self, record: Record, tail: tuple[int, ...]) -> list[int]:
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

    def _spread(
        self, record: Record, nodes: Sequence[int], run: list[int], wanted: set[int] | None = None
    ) -> None:
        """Split, walking through local heads in this very call, and send the other groups.

        With `wanted` (an adoption) the groups are those of the whole list, as the suspect would have
        made them, but only the wanted nodes and the living heads on the way to them are sent.
        """
        width = record.broadcast.width
        pending: list[Sequence[int]] = [nodes] if nodes else []
        while pending:
            for group in self._grouping.split(pending.pop(), width):
                head = group[0]
                if head in self._local:
                    if head not in record.started:
                        record.started.add(head)
                        run.append(head)
                elif wanted is None:
                    self._send(record, Send(record, head, group))
                    continue
                elif head in wanted or record.is_alive(head):
                    rest = [node for node in group[1:] if node in wanted]
                    if rest or head in wanted:
                        self._send(record, Send(record, head, [head, *rest]))
                    continue
                if len(group) > 1:
                    pending.append(group[1:])

    def _send(self, record: Record, send: Send) -> None:
        record.add_send(send)
        self._outbound.submit(send)

    def _run(self, record: Record, run: list[int], now_us: int, out: list[Action]) -> None:
        if run:
            origin = record.broadcast
            out.append(
                RunLocal(
                    origin.broadcast_id,
                    tuple(run),
                    origin.kind,
                    origin.command,
                    record.deadline_us - now_us,
                )
            )

    # Watching the children.

    def _heard(self, send: Send, peer: Peer, now_us: int) -> None:
        """A sign of life for a send; a reply that overtook its acknowledgement counts as one."""
        self._outbound.acknowledged(send, peer, now_us)
        if send.state is SendState.ACKED:
            send.progress_us = now_us
            self._timers.schedule(send.record, now_us + self._tuning.progress_timeout_us)

    def _check_progress(self, record: Record, now_us: int, out: list[Action]) -> None:
        patience_us = self._tuning.progress_timeout_us + self._outbound.patience.lag_us
        for send in list(record.all_sends()):
            if send.state is not SendState.ACKED:
                continue
            if send.progress_us + patience_us <= now_us:
                self._suspect(send, "no progress", now_us, out)
            else:
                self._timers.schedule(record, send.progress_us + patience_us)

    def _suspect(self, send: Send, why: str, now_us: int, out: list[Action]) -> None:
        """Take a child's list back: recheck or report the child, adopt what it was to relay."""
        record = send.record
        owed = record.owed_by(send)
        self._outbound.end(send, SendState.SUSPECT if owed else SendState.DONE)
        self._touched[record] = None
        if not owed:
            return
        if send.recheck:
            record.resolve(owed, unreached(why))
            return
        out.append(Suspect(record.broadcast.broadcast_id, send.to_node, why))
        wanted = set(owed)
        tail = send.nodes
        if not send.via:
            wanted.discard(send.to_node)
            tail = tail[1:]
            if owed[0] == send.to_node:
                self._doubt(record, send.to_node, unreached(why))
        run: list[int] = []
        if wanted:
            self._spread(record, tail, run, wanted)
        self._run(record, run, now_us, out)

    def _doubt(self, record: Record, node: int, outcome: Outcome) -> None:
        """Nobody reached the node: the root looks for itself, others pass the doubt on."""
        if self._root:
            self._send(record, Send(record, node, [node], recheck=True))
        else:
            record.resolve((node,), outcome)

    # Results.

    def _learn(self, record: Record, reply: Reply, via: bool) -> None:
        heads = set(reply.heads)
        longest = len(record.waiters)
        for row in reply.results.rows:
            for start, length in zip(row.starts, row.lengths, strict=False):
                if length > longest:
                    # Nobody asked for that many nodes: a broken sender must not cost us the time.
                    continue
                nodes = range(start, start + length)
                if row.outcome.status is Status.UNREACHED:
                    self._hear_unreached(record, nodes, row.outcome, heads, via)
                else:
                    record.resolve(nodes, row.outcome)

    def _hear_unreached(
        self, record: Record, nodes: range, outcome: Outcome, heads: set[int], via: bool
    ) -> None:
        for node in nodes:
            if node in record.outcomes or node in record.started or node not in record.waiters:
                continue
            send = record.cover.get(node)
            if send is not None and send.state < SendState.DONE and send.nodes[0] not in heads:
                continue
            if via or (send is not None and send.recheck):
                record.resolve((node,), outcome)
            else:
                self._doubt(record, node, outcome)

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
            _put(take_progress(requester, now_us + self._tuning.keepalive_us), out)
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
            if record.unreported == 0 and not record.closed:
                self._close(record, now_us)
        self._touched.clear()
        out.extend(self._outbound.pump(now_us))
        return out

    def _settle(self, requester: Requester, now_us: int, out: list[Action]) -> None:
        if requester.open:
            self._schedule_report(requester, now_us)
        elif requester.finished:
            _put(take_final(requester), out)

    def _close(self, record: Record, now_us: int) -> None:
        del self._live[record.broadcast.broadcast_id]
        for send in record.all_sends():
            self._outbound.end(send, SendState.DONE)
        self._memory.store(record, now_us)
        record.close()


def _sends(record: Record, heads: Iterable[int]) -> list[Send]:
    """Every send of this broadcast that began with one of these nodes."""
    found = []
    for head in heads:
        send = record.sends.get(head)
        while send is not None:
            found.append(send)
            send = send.older
    return found


def _put(reply: SendReply | None, out: list[Action]) -> None:
    if reply is not None:
        out.append(reply)
