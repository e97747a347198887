"""What a relay holds of one live broadcast.

Owns who asked (requesters and their lists), who was asked (sends), which local nodes were started
and every outcome known so far.

Invariant: a node of any list is in `waiters`; it is in `outcomes` once something is known of it; a
local node in `started` is never started again; a request is `closed` when all its nodes have an
outcome or its deadline passed, and is then reported exactly once per time it was asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from eslurm.core.tree.messages import Broadcast, Peer
from eslurm.core.tree.results import Outcome, Status

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

    `via` marks a child that is not one of the nodes (a satellite), whose verdicts are final;
    `recheck` marks the direct look at a suspect. `older` are earlier sends of the same head.
    """

    record: Record
    to_node: int
    nodes: list[int]
    via: bool = False
    recheck: bool = False
    older: Send | None = None
    state: SendState = SendState.QUEUED
    sent_us: int = 0
    progress_us: int = 0
    deadline_us: int = 0
    peer: Peer = None

    def chain(self) -> Iterator[Send]:
        """This send and the older ones of the same head."""
        send: Send | None = self
        while send is not None:
            yield send
            send = send.older


@dataclass(slots=True, eq=False)
class Request:
    """One list that one requester asked for."""

    requester: Requester
    head: int
    members: tuple[int, ...]
    deadline_us: int
    missing: int = 0
    closed: bool = True
    muted: bool = False


@dataclass(slots=True, eq=False)
class Requester:
    """One source of lists: what it still waits for and what it has not been told yet.

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
    """One live broadcast in one process; see the module's invariant."""

    __slots__ = (
        "broadcast",
        "closed",
        "cover",
        "deadline_us",
        "dirty",
        "hop",
        "outcomes",
        "requesters",
        "sends",
        "started",
        "timer_us",
        "unreported",
        "waiters",
    )

    def __init__(self, broadcast: Broadcast) -> None:
        self.broadcast = broadcast
        self.hop = broadcast.hop
        self.deadline_us = 0
        self.closed = False
        self.waiters: dict[int, Request | list[Request] | None] = {}
        self.outcomes: dict[int, Outcome] = {}
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

    def ask(self, requester: Requester, nodes: tuple[int, ...], deadline_us: int) -> bool:
        """Register a requester's list; True when none of its nodes was known before.

        The same list asked again is one request with the later deadline, and is answered again.
        """
        self.deadline_us = max(self.deadline_us, deadline_us)
        requester.due_us = min(requester.due_us, deadline_us)
        request = requester.requests.get(nodes[0])
        if request is None:
            request = requester.requests[nodes[0]] = Request(requester, nodes[0], nodes, deadline_us)
            self._open(request)
        else:
            self._ask_again(request, nodes, deadline_us)
        unknown = self._await(request, nodes)
        request.missing = len(request.members)
        if self.outcomes:
            request.missing -= sum(node in self.outcomes for node in request.members)
        if request.missing == 0:
            self.finish(request)
        return unknown

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
        """Merge one outcome of many nodes and tell it to whoever waits for them."""
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
            waiting = waiters[node]
            if waiting is None:
                continue
            if isinstance(waiting, Request):
                self._tell(waiting, node, old is None)
            else:
                for request in waiting:
                    self._tell(request, node, old is None)

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

    def all_sends(self) -> Iterator[Send]:
        """Every send of this broadcast."""
        for newest in self.sends.values():
            yield from newest.chain()

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
        """Whether the node itself has answered."""
        outcome = self.outcomes.get(node)
        return outcome is not None and outcome.status is not Status.UNREACHED
