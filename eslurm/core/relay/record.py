"""A relay's record of one live broadcast.

Owns the requesters and their lists, the sends, the started local nodes and every outcome known so far.

Invariant: a node of any list is in `waiters`; it is in `outcomes` once something is known of it; a local node in `started`
is never started again; a request is `closed` when all its nodes have an outcome or its deadline passed, and is then
reported exactly once per time it was asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache

from eslurm.core.relay.construct import TreeShape
from eslurm.core.relay.grouping import find_grouping
from eslurm.core.relay.messages import Broadcast, Peer
from eslurm.core.relay.results import Outcome, Status
from eslurm.core.relay.trace import Trace, TraceSpan

NEVER_US = 1 << 62


class SendState(IntEnum):
    """The life of one sub-list given to a child. Below DONE, the child is trusted to serve it."""

    QUEUED = 0
    SENT = 1
    ACKED = 2
    DONE = 3
    SUSPECT = 4


@dataclass(slots=True, eq=False)
class Send:
    """One sub-list given to one child. `nodes[0]` names it in acknowledgements and replies.

    `request` is the list it serves, `parent` the node of this process (or the root) that sends it, `hop` the
    child's distance from the controller. `recheck` marks the direct look at a suspect. `older` are earlier
    sends of the same head.

    `via` marks a child that is not one of the nodes (a satellite), whose verdicts are final. Such a leg
    has `predicted` nodes to arrange (E-24), `tries` says how often it was handed on (E-15), `judged` that
    the keeper of the satellites knows its end.
    """

    record: Record
    to_node: int
    nodes: list[int]
    request: Request
    parent: int
    hop: int
    via: bool = False
    recheck: bool = False
    predicted: tuple[int, ...] = ()
    tries: int = 0
    judged: bool = False
    older: Send | None = None
    state: SendState = SendState.QUEUED
    sent_us: int = 0
    acked_us: int = 0
    progress_us: int = 0
    done_us: int = 0
    deadline_us: int = 0
    peer: Peer = None
    cause: str = ""
    trace: Trace | None = None

    def chain(self) -> Iterator[Send]:
        """This send and the older ones of the same head."""
        send: Send | None = self
        while send is not None:
            yield send
            send = send.older


@dataclass(slots=True, eq=False)
class Request:
    """One list of one requester.

    With `expected` the requester wants differences only: nodes that are not ok, and nodes of this set that are not
    unreached. A traced request keeps its sends.
    """

    requester: Requester
    head: int
    members: tuple[int, ...]
    deadline_us: int
    missing: int = 0
    closed: bool = True
    muted: bool = False
    expected: frozenset[int] | None = None
    sends: list[Send] | None = None
    walked: list[TraceSpan] | None = None


@dataclass(slots=True, eq=False)
class Requester:
    """One source of lists: nodes still open and news not yet reported.

    `due_us` is not after the earliest deadline of its open lists; `fresh` are nodes with news.
    """

    record: Record
    source: Peer
    requests: dict[int, Request] = field(default_factory=dict)
    open: int = 0
    due_us: int = NEVER_US
    finished: list[Request] = field(default_factory=list)
    fresh: list[int] = field(default_factory=list)
    gather_until_us: int | None = None
    flush_at_us: int | None = None
    keepalive_at_us: int = 0
    timer_us: int | None = None

    def open_requests(self) -> list[Request]:
        """The lists that are neither complete nor past their deadline."""
        return [request for request in self.requests.values() if not request.closed]


class Record:
    """One live broadcast in one process; see the module's invariant.

    Raises ValueError when the broadcast's grouping is unknown.
    """

    __slots__ = (
        "broadcast",
        "closed",
        "cover",
        "deadline_us",
        "dirty",
        "missing_nodes",
        "outcomes",
        "requesters",
        "rests_until_us",
        "sends",
        "shape",
        "started",
        "timer_us",
        "unreached",
        "unreported",
        "waiters",
    )

    def __init__(self, broadcast: Broadcast) -> None:
        self.broadcast = broadcast
        self.shape = _shape(broadcast.width, broadcast.root_width, broadcast.grouping)
        self.missing_nodes = frozenset(broadcast.missing)
        self.deadline_us = 0
        self.closed = False
        self.rests_until_us = 0
        self.waiters: dict[int, Request | list[Request] | None] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.unreached: set[int] = set()
        self.started: set[int] = set()
        self.sends: dict[int, Send] = {}
        self.cover: dict[int, Send] = {}
        self.requesters: dict[Peer, Requester] = {}
        # In order of mention, not a set: what a relay says must not depend on where objects lie in memory.
        self.dirty: dict[Requester, None] = {}
        self.unreported = 0
        self.timer_us: int | None = None

    def requester(self, source: Peer) -> Requester:
        """The requester of that name, made on first sight."""
        known = self.requesters.get(source)
        if known is None:
            known = self.requesters[source] = Requester(self, source)
        return known

    def ask(
        self, requester: Requester, nodes: tuple[int, ...], deadline_us: int, expected: frozenset[int] | None
    ) -> tuple[Request, bool]:
        """Register a requester's list; True beside it when none of its nodes was known before.

        The same list asked again is one request with the later deadline, and is answered again.
        """
        self.deadline_us = max(self.deadline_us, deadline_us)
        requester.due_us = min(requester.due_us, deadline_us)
        request = requester.requests.get(nodes[0])
        if request is None:
            request = Request(requester, nodes[0], nodes, deadline_us, expected=expected)
            if self.broadcast.traced:
                request.sends, request.walked = [], []
            requester.requests[nodes[0]] = request
            self._open(request)
        else:
            self._ask_again(request, nodes, deadline_us)
            if request.expected is None or expected is None:
                request.expected = None
            else:
                request.expected |= expected
        unknown = self._await(request, nodes)
        request.missing = len(request.members)
        if self.outcomes:
            request.missing -= sum(node in self.outcomes for node in request.members)
        if request.missing == 0:
            self.finish(request)
        return request, unknown

    def _open(self, request: Request) -> None:
        request.closed = False
        request.requester.open += 1
        self.unreported += 1

    def _ask_again(self, request: Request, nodes: tuple[int, ...], deadline_us: int) -> None:
        request.members = tuple(dict.fromkeys(request.members + nodes))
        request.deadline_us = max(request.deadline_us, deadline_us)
        request.muted = False
        if not request.closed:
            return
        if request in request.requester.finished:
            request.requester.finished.remove(request)
            self.unreported -= 1
        self._open(request)

    def _await(self, request: Request, nodes: tuple[int, ...]) -> bool:
        waiters = self.waiters
        if not waiters or waiters.keys().isdisjoint(nodes):
            waiters.update(dict.fromkeys(nodes, request))
            return True
        for node in nodes:
            waiting = waiters.get(node)
            if waiting is None:
                waiters[node] = request
            elif isinstance(waiting, list):
                if request not in waiting:
                    waiting.append(request)
            elif waiting is not request:
                waiters[node] = [waiting, request]
        return False

    def finish(self, request: Request) -> None:
        """The request is complete or out of time: it is owed one final reply."""
        request.closed = True
        request.requester.open -= 1
        request.requester.finished.append(request)
        self.dirty[request.requester] = None

    def resolve(self, nodes: Iterable[int], outcome: Outcome) -> None:
        """Merge one outcome of many nodes and pass it to the broadcasts that wait for them."""
        outcomes = self.outcomes
        waiters = self.waiters
        for node in nodes:
            old = outcomes.get(node)
            if old is None:
                if node not in waiters:
                    continue
            elif outcome is old or outcome <= old:
                continue
            outcomes[node] = outcome
            if outcome.status is Status.UNREACHED:
                self.unreached.add(node)
            elif old is not None:
                self.unreached.discard(node)
            waiting = waiters[node]
            if waiting is None:
                continue
            if isinstance(waiting, Request):
                self._tell(waiting, node, old is None)
            else:
                for request in waiting:
                    self._tell(request, node, old is None)

    def forget_unreached(self) -> None:
        """Forget these nodes: a repeated question asks for another try."""
        for node in self.unreached:
            del self.outcomes[node]
        self.unreached.clear()

    def _tell(self, request: Request, node: int, first: bool) -> None:
        if request.closed:
            return
        if first:
            request.missing -= 1
            if request.missing == 0:
                self.finish(request)
                return
        request.requester.fresh.append(node)
        self.dirty[request.requester] = None

    def add_send(self, send: Send) -> None:
        """Make `send` the one that answers for its nodes."""
        head = send.nodes[0]
        send.older = self.sends.get(head)
        self.sends[head] = send
        self.cover.update(dict.fromkeys(send.nodes, send))
        if send.request.sends is not None:
            send.request.sends.append(send)

    def all_sends(self) -> Iterator[Send]:
        """Every send of this broadcast."""
        for newest in self.sends.values():
            yield from newest.chain()

    def sends_of(self, heads: Iterable[int]) -> list[Send]:
        """Every send that began with one of these nodes."""
        return [send for head in heads if head in self.sends for send in self.sends[head].chain()]

    def addressed(self, heads: Iterable[int], peer: Peer) -> list[Send]:
        """The sends that a message of `peer` about these heads is about."""
        found: list[Send] = []
        sends = self.sends
        for head in heads:
            newest = sends.get(head)
            if newest is None:
                continue
            if newest.older is None:
                found.append(newest)
            else:
                found.extend(_meant(list(newest.chain()), peer))
        return found

    def owed_by(self, send: Send) -> list[int]:
        """The nodes without an outcome for which this very send answers, in list order."""
        outcomes = self.outcomes
        cover = self.cover
        return [node for node in send.nodes if node not in outcomes and cover.get(node) is send]

    def close(self) -> None:
        """Let go of everything. Cutting the circles of references here spares the garbage collector."""
        self.closed = True
        for requester in self.requesters.values():
            requester.requests.clear()
        self.requesters.clear()
        self.waiters.clear()
        self.sends.clear()
        self.cover.clear()

    def is_alive(self, node: int) -> bool:
        """Check whether the node itself has answered."""
        outcome = self.outcomes.get(node)
        return outcome is not None and outcome.status is not Status.UNREACHED


@lru_cache(maxsize=64)
def _shape(width: int, root_width: int, grouping: str) -> TreeShape:
    return TreeShape(width, root_width, find_grouping(grouping))


def _meant(chain: list[Send], peer: Peer) -> list[Send]:
    """The sends of one head, newest first, that `peer` has been given.

    Processes of nodes all work for the same head. But of a leg that was handed on several satellites have a list with this
    head, and each speaks for its own: one that is known by its earlier messages, else one that is still to acknowledge,
    else one that never did in time.
    """
    if not any(send.via for send in chain):
        return chain
    known = [send for send in chain if send.peer == peer]
    waiting = [send for send in chain if send.state is SendState.SENT]
    late = [send for send in chain if send.state is SendState.SUSPECT and send.peer is None]
    return known or waiting[:1] or late[:1]
