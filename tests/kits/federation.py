"""Cells of a federation over one image of the shared store: their machines, and a network that loses and delays.

A step is drawn: a call reaches the store or not, an answer comes or not, a swap is made after its caller was told that the
outcome is unknown, a watch tells some of what happened or breaks, a lease ends, revisions are compacted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NoReturn

import msgspec

from eslurm.core.control.decide import decide
from eslurm.core.control.job_ids import take_ids
from eslurm.core.federation.actions import (
    Action,
    CancelThere,
    DeliverJob,
    Failure,
    GrantLease,
    KeepLease,
    List,
    Problem,
    RevokeLease,
    SwapKeys,
    Watch,
)
from eslurm.core.federation.blocks import IdsWish, OwnIds
from eslurm.core.federation.membership import Identity, Lead
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.participant import Inputs, Participant
from eslurm.core.federation.values import Keys
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.facts import Fact
from eslurm.core.model.federation import FORMAT, FederationConfig, NodeClass, Summary
from eslurm.core.model.messages import TransferMessage
from eslurm.core.state.apply import apply
from eslurm.core.state.cluster import State
from eslurm.core.state.view import View
from eslurm.federation.calls import conditions_of, failure_of, operations_of
from eslurm.lab.kv.image import KvImage
from eslurm.ports.kv import (
    Delete,
    Entry,
    Expect,
    KvError,
    Put,
    Swapped,
    WatchBroken,
)

FEDERATION = "lab"
KEYS = Keys(FEDERATION)
LEASE_S = 5.0
LIST_LIMIT = 2
CHANGES = SwapKeys | DeliverJob | CancelThere
"""Actions that may be done after their caller was told that their outcome is unknown."""


def swap(image: KvImage, action: SwapKeys) -> Swapped:
    """Make the call that the action asks for."""
    return image.swap(conditions_of(action), operations_of(action))


def put(image: KvImage, key: str, value: bytes, lease: int = 0) -> int:
    """Write a key whatever it holds, as a stranger may. Returns the revision."""
    entry = image.get(key).entry
    image.swap([Expect(key, entry.version if entry else 0)], [Put(key, value, lease)])
    return image.revision


def remove(image: KvImage, key: str) -> None:
    """Remove a key, if it is there."""
    entry = image.get(key).entry
    if entry is not None:
        image.swap([Expect(key, entry.version)], [Delete(key)])


def summary(free: int = 2, total: int = 4) -> Summary:
    """The summary of a cell of some nodes with 8 cores."""
    one = NodeClass(8, 64_000, total=total, free=free, cores_free=free * 8, partitions=("batch",))
    return Summary(FORMAT, 1, 0, 0, (one,))


NO_JOBS = View(State("none"))
"""The view of a cell without a cluster behind it."""


class CellLog:
    """The log of a cell: what its core makes of messages about ids. Only the newest leader writes to it."""

    def __init__(self, name: str) -> None:
        self.state = State(name)
        self.state.config = ClusterConfig(name, job_id_block=50)
        self.epoch = 0
        self.drawn: list[tuple[int, bool]] = []
        """Ids in order, and whether they were leased."""

    def commit(self, epoch: int, message: IdsWish) -> None:
        """A message of a leader; one that does not lead any more is not heard."""
        if epoch == self.epoch:
            facts, _ = decide(self.state, message, 0)
            self._apply(facts)

    def draw(self, count: int) -> None:
        """Use so many ids. Raises `Refused` when there are not so many in a row."""
        facts, ids = take_ids(self.state, count)
        leased = {one.first: one for one in self.state.id_blocks if one.version}
        for job_id in ids:
            is_leased = any(one.first <= job_id < one.end for one in leased.values())
            self.drawn.append((job_id, is_leased))
        self._apply(facts)
        self.state.next_id = ids.stop

    def _apply(self, facts: list[Fact]) -> None:
        for fact in facts:
            apply(self.state, fact, self.state.revision + 1, 0)


class Controller(Participant):
    """One controller that leads its cell, or believes so. With a `log`, what it wishes is committed by `commit`."""

    def __init__(
        self,
        name: str,
        epoch: int = 1,
        ring: bytes = b"",
        *,
        lease_s: float = LEASE_S,
        log: CellLog | None = None,
        inputs: Inputs | None = None,
        fair_share: str = "own",
    ) -> None:
        self.name = name
        self.epoch = epoch
        self.shows: Summary | None = None
        """The summary that it shows; None: one that changes every second."""
        self.log = log or CellLog(name)
        self.log.epoch = max(self.log.epoch, epoch)
        self._seen = OwnIds(1)
        self.wished: list[IdsWish | TransferMessage] = []
        """Messages that its log is to take up."""
        own = ring or f"ring of {name}".encode()
        identity = Identity(name, own, "2.0", 3)
        inputs = inputs or Inputs(lambda: NO_JOBS, _no_cluster, _no_cluster, self.wished.append)
        super().__init__(
            FederationConfig(FEDERATION, name, lease_s, fair_share=fair_share),
            identity,
            lambda sealed: sealed == own,
            inputs,
        )
        self.leads(Lead(epoch, f"host-{name}:{epoch}", since_us=epoch))
        self.mirrors = (self.cells, self.alive, self.shown, self.leases)

    def commit(self) -> None:
        """Commit all that it has wished."""
        while self.wished:
            message = self.wished.pop(0)
            assert isinstance(message, IdsWish)
            self.log.commit(self.epoch, message)

    def _own_ids(self) -> OwnIds:
        if self.log.epoch == self.epoch:
            # A former leader hears nothing any more.
            self._seen = OwnIds(self.log.state.next_id, self.log.state.id_blocks)
        return self._seen

    def _read(self, now_us: int) -> Summary:
        return self.shows or summary(now_us // 1_000_000 % 5)

    def _follow_orders(self) -> None:
        """Tests give them to the membership."""


def _no_cluster() -> NoReturn:
    raise AssertionError("these cells have no cluster behind them")


class Call(msgspec.Struct, eq=False):
    """An action on its way. `answer` delivers what the store said; None: it has not been there."""

    controller: Controller
    action: Action
    answer: Callable[[int], None] | None = None
    is_told: bool = False
    """The caller has an answer already: that the outcome is unknown."""


class Watching(msgspec.Struct, eq=False):
    """A watch that has told everything up to a revision."""

    controller: Controller
    action: Watch
    revision: int


class Network:
    """Carries calls between controllers and the image. `before_swap` and `after_swap` see every swap that is made."""

    def __init__(self, image: KvImage, draws: random.Random) -> None:
        self.image = image
        self.draws = draws
        self.now_us = 1_000_000
        self.faults = 0.2
        self.controllers: list[Controller] = []
        self.calls: list[Call] = []
        self.watches: list[Watching] = []
        self.made: list[tuple[Controller, SwapKeys]] = []

    def step(self) -> None:
        """One thing happens."""
        self._ask()
        roll = self.draws.random()
        if self.calls and roll < 0.5:
            self._carry(self.draws.choice(self.calls))
        elif self.watches and roll < 0.9:
            self._tell(self.draws.choice(self.watches))
        else:
            self.advance(int(self.draws.random() * 400_000))

    def settle(self, seconds: float) -> None:
        """Let so much time pass without a fault."""
        self.faults = 0.0
        until_us = self.now_us + int(seconds * 1e6)
        while True:
            self._ask()
            while self.calls:
                self._carry(self.calls[0])
                self._ask()
            for watch in list(self.watches):
                self._tell(watch)
            self._ask()
            if not self.calls and self.now_us >= until_us:
                return
            if not self.calls:
                self.advance(200_000)

    def advance(self, us: int) -> None:
        """Time passes; leases end."""
        self.now_us += us
        self.image.expire(self.now_us)

    def stop(self, controller: Controller) -> None:
        """The process dies: what it sent may still be on its way."""
        self.controllers.remove(controller)
        self.calls = [
            one for one in self.calls if one.controller is not controller or isinstance(one.action, CHANGES)
        ]
        self.watches = [one for one in self.watches if one.controller is not controller]

    # ---- within ----

    def _ask(self) -> None:
        for controller in self.controllers:
            for action in controller.tick(self.now_us, self.draws.random()):
                if isinstance(action, Watch):
                    self.watches.append(Watching(controller, action, action.revision))
                else:
                    self.calls.append(Call(controller, action))

    def _carry(self, call: Call) -> None:
        lost = self.draws.random() < self.faults
        if call.answer is not None:
            # On the way back.
            self.calls.remove(call)
            if call.is_told:
                return
            if lost:
                self._fail(call, Problem.AMBIGUOUS)
            elif call.controller in self.controllers:
                call.answer(self.now_us)
            return
        if lost and not call.is_told:
            is_late = isinstance(call.action, CHANGES) and self.draws.random() < 0.5
            self._fail(call, Problem.AMBIGUOUS if is_late else Problem.UNAVAILABLE)
            if is_late:
                call.is_told = True
            else:
                self.calls.remove(call)
            return
        try:
            call.answer = self._make(call.controller, call.action)
        except KvError as error:
            self.calls.remove(call)
            if not call.is_told and call.controller in self.controllers:
                call.controller.failed(call.action, failure_of(error), self.now_us)

    def _fail(self, call: Call, problem: Problem) -> None:
        if call.controller in self.controllers:
            call.controller.failed(call.action, Failure(problem, "cut off"), self.now_us)

    def _make(self, controller: Controller, action: Action) -> Callable[[int], None]:
        image = self.image
        match action:
            case SwapKeys():
                answer = swap(image, action)
                if answer.done and action.then:
                    self.made.append((controller, action))

                return lambda _: controller.swapped(action, answer)
            case List():
                page = image.list(action.prefix, action.after, action.revision, LIST_LIMIT)
                return lambda now_us: controller.listed(action, page, now_us)
            case GrantLease():
                lease = image.grant(int(action.ttl_s * 1e6), self.now_us)
                return lambda now_us: controller.granted(action, lease, now_us)
            case KeepLease():
                ttl_s = image.keep(action.lease, self.now_us)
                return lambda now_us: controller.kept(action, ttl_s, now_us)
            case RevokeLease():
                image.revoke(action.lease)
                return lambda _: controller.revoked(action)
        raise AssertionError(action)

    def _tell(self, watch: Watching) -> None:
        if self.draws.random() < self.faults / 4:
            self._break(watch, Failure(Problem.UNAVAILABLE, "cut off"))
            return
        until = 0
        if self.faults and watch.revision < self.image.revision:
            until = self.draws.randint(watch.revision, self.image.revision)
        try:
            changes = self.image.changes(watch.action.prefix, watch.revision, until)
        except WatchBroken as error:
            self._break(watch, failure_of(error))
            return
        watch.revision = changes.revision
        watch.controller.changed(watch.action, changes, self.now_us)

    def _break(self, watch: Watching, failure: Failure) -> None:
        self.watches.remove(watch)
        watch.controller.failed(watch.action, failure, self.now_us)


def held(image: KvImage, prefix: str) -> dict[str, tuple[bytes, int]]:
    """Keys below a prefix with their values and versions, as the store has them."""
    return {one.key: (one.value, one.version) for one in _entries(image, prefix)}


def copied(mirror: Mirror) -> dict[str, tuple[bytes, int]]:
    """The same as a mirror has it."""
    return {word.key: (word.value, word.version) for word in mirror.words.values()}


def _entries(image: KvImage, prefix: str) -> Iterator[Entry]:
    after, revision = "", 0
    while True:
        page = image.list(prefix, after, revision, 100)
        yield from page.entries
        if not page.more:
            return
        after, revision = page.entries[-1].key, page.revision
