"""A simulated controller that does not lead: it watches the leader row, follows the log, and passes calls on.

Mirrors the daemon's standby over the core's election and apply. Invariants: it writes nothing but a claim; it leads only
with a state that stands where the log does.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from eslurm.core.control.timers import drop_stale
from eslurm.core.dispatch.election import Election
from eslurm.core.model.facts import decode_fact
from eslurm.core.state.apply import apply
from eslurm.core.state.cluster import State
from eslurm.lab.sim import wire
from eslurm.lab.sim.place import Place
from eslurm.lab.sim.process import Process
from eslurm.lab.sim.store_lane import StoreLane
from eslurm.lab.sim.surroundings import Surroundings
from eslurm.ports.store import Claim, FenceLost, Leader, LogPruned, StoreError

LEASE_US = 2_000_000
FOLLOW_US = 800_000
"""The longest time between two looks at the log: what is new in it may be missing when the lead is won."""
PREPARE_AGAIN_US = 200_000
TIMERS_SLACK = 1_000


class Standby(Process):
    """One term as a standby, in the process at this seat."""

    takes_links = False

    def __init__(self, world: Surroundings, seat: Place) -> None:
        super().__init__(world, seat.address)
        self.state: State | None = None
        self._seat = seat
        self._election = Election(seat.name, self.address, LEASE_US)
        self._lane = StoreLane(self, seat)
        self._row = Leader()
        self._leader = ""
        self._calls: dict[bytes, str] = {}
        self._epoch = 0
        self._timers_alive = 0

    def start(self) -> None:
        """Look for a leader."""
        self._look()
        self._keep_up()

    @property
    def is_warm(self) -> bool:
        """Whether its state is where the log stands."""
        head = self.world.disk.head(self.world.owner)
        return self.state is not None and self.state.revision == head.revision

    # ---- electing ----

    def _look(self) -> None:
        if self._epoch:
            return
        self.later(self._election.look_every_us, self._look)
        if not self._lane.is_idle or not self._seat.reaches_store:
            return
        world = self.world
        self._row = world.disk.leader(world.owner)
        self._dial()
        if self._election.look(self._row, world.scheduler.at_us):
            claim = Claim(self._seat.name, self.address, self._row)
            self._lane.ask("claim", partial(world.disk.open, world.owner, claim), self._on_claimed)

    def _on_claimed(self, result: int | StoreError) -> None:
        """Too late, or nobody knows: the row will say."""
        if isinstance(result, int):
            self._epoch = result
            self.later(self._election.renew_every_us, self._renew)
            self._prepare()

    def _renew(self) -> None:
        self.later(self._election.renew_every_us, self._renew)
        if self._lane.is_idle:
            renew = partial(self.world.disk.renew, self.world.owner, self._epoch)
            self._lane.ask("renew", renew, self._on_renewed)

    def _on_renewed(self, result: object) -> None:
        if isinstance(result, FenceLost):
            self._seat.end()

    def _prepare(self) -> None:
        """Nobody else writes any more: come to where the log stands, and lead."""
        if not self._seat.reaches_store:
            self.later(PREPARE_AGAIN_US, self._prepare)
            return
        head = self.world.disk.head(self.world.owner)
        if head.epoch != self._epoch:
            self._seat.end()
            return
        state = self._follow()
        # The last commit may have had answers only: its time is in no fact.
        state.now_us = max(state.now_us, head.at_us)
        state.want_plan()
        self._seat.lead(state, self._epoch)

    # ---- following ----

    def _keep_up(self) -> None:
        if self._seat.reaches_store and not self._epoch:
            self._follow()
        self.later(int(self.world.random.random() * FOLLOW_US), self._keep_up)

    def _follow(self) -> State:
        """The state as of the end of the log."""
        world = self.world
        if self.state is None:
            return self._load()
        state = self.state
        if world.disk.head(world.owner).revision > state.revision:
            try:
                logged_since = world.disk.load_facts(world.owner, state.revision + 1)
            except LogPruned as error:
                world.note(f"{self.name}: {error}")
                return self._load()
            for logged in logged_since:
                fact = decode_fact(logged.kind, logged.version, logged.blob)
                apply(state, fact, logged.revision, logged.at_us)
            state.take_touched()
            world.checks.on_followed(state)
        if len(state.timers) > 2 * self._timers_alive + TIMERS_SLACK:
            drop_stale(state)
            self._timers_alive = len(state.timers)
        return state

    def _load(self) -> State:
        """The state that the rows give."""
        state = self.state = self.world.load_state()
        self._timers_alive = len(state.timers)
        return state

    # ---- passing on ----

    def _dial(self) -> None:
        row = self._row
        if row.released or not row.endpoint or row.holder == self._seat.name:
            return
        target = self.world.network.find_dialled(row.endpoint)
        if target and target != self._leader:
            self.send(target, wire.Hello(controller=self._seat.name))

    def on_message(self, source: str, message: Any) -> None:
        """A call at the own door, its answer from the leader, or the leader's greeting."""
        match message:
            case wire.Call(request_id) if self._leader:
                self._calls[request_id] = source
                self.send(self._leader, message)
            case wire.Call(request_id):
                self.send(source, wire.Result(request_id))
            case wire.Takeover() if self._leader:
                self.send(self._leader, message)
            case wire.Result(request_id) if request_id in self._calls:
                self.send(self._calls.pop(request_id), message)
            case wire.Welcome(_, epoch) if epoch >= self._row.epoch:
                self._leader = source
            case _:
                pass

    def on_link_down(self, peer: str) -> None:
        """The leader is out of reach: whoever asked may ask again."""
        if peer == self._leader:
            self._leader = ""
            calls, self._calls = self._calls, {}
            for request_id, source in calls.items():
                self.send(source, wire.Result(request_id))
