"""A simulated controller that does not lead: the core's standby over the simulated disk and network.

`StandbyTerm`, `Replica` and `LeaderLease` are those of the daemon; here are the reads and writes, which take virtual time,
and the calls that are passed on to the leader.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from eslurm.config.sections import ControllerSection
from eslurm.core.control.replica import Replica
from eslurm.core.dispatch.election import is_dialled, is_led_under
from eslurm.core.dispatch.standby import FOLLOW_RETRY_US, Action, Claim, Follow, Lead, StandbyTerm
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State
from eslurm.lab.sim import wire
from eslurm.lab.sim.place import Place
from eslurm.lab.sim.process import Process
from eslurm.lab.sim.store_lane import LeaseWriter, StoreLane
from eslurm.lab.sim.world_view import WorldView
from eslurm.ports import store
from eslurm.ports.store import Leader, LogPruned, StoreError

LEASE_US = int(ControllerSection().lease_s * SECOND_US)
FOLLOW_US = 500_000
"""The longest time that reading the log takes: what is new in it may be missing when the lead is won."""


class Standby(Process):
    """One term as a standby, in the process at this seat."""

    takes_links = False

    def __init__(self, world: WorldView, seat: Place) -> None:
        super().__init__(world, seat.address)
        self._seat = seat
        self._term: StandbyTerm[Leader] = StandbyTerm(seat.name, self.address, LEASE_US, Leader())
        self._replica = Replica()
        self._lane = StoreLane(self, seat)
        self._is_following = False
        self._leader = ""
        self._leader_epoch = 0
        self._calls: dict[bytes, str] = {}

    def start(self) -> None:
        """Look for a leader."""
        self._look()

    @property
    def state(self) -> State | None:
        """Its state of the cluster; None while it is cold."""
        return self._replica.state

    @property
    def is_warm(self) -> bool:
        """Check whether its state is where the log stands."""
        return (
            self.state is not None and self.state.revision == self.world.disk.head(self.world.owner).revision
        )

    # ---- electing ----

    def _look(self) -> None:
        if self._term.epoch:
            return
        self.later(self._term.look_every_us, self._look)
        if self._seat.reaches_store:
            row = self.world.disk.leader(self.world.owner)
            actions = self._term.looked(row, self.world.scheduler.at_us)
            self._dial()
            self._perform(actions)

    def _perform(self, actions: list[Action[Leader]]) -> None:
        for action in actions:
            if isinstance(action, Claim):
                claim = store.Claim(self._seat.name, self.address, action.seen)
                write = partial(self.world.disk.open, self.world.owner, claim)
                self._lane.ask("claim", write, self._on_claimed)
            elif isinstance(action, Follow):
                self._begin_following()
            elif isinstance(action, Lead):
                self._seat.lead(action.state, action.epoch)
            else:
                self.world.note(f"{self.name} ends: {action.reason}")
                self._seat.end()

    def _on_claimed(self, result: int | StoreError) -> None:
        if not isinstance(result, int):
            self._term.not_claimed()
            return
        self._term.claimed(result)
        LeaseWriter(self, self._lane, self._term.lease, result, self._seat.end).turn()
        self._prepare()

    def _prepare(self) -> None:
        if not self._seat.reaches_store:
            self.later(FOLLOW_RETRY_US, self._prepare)
            return
        row = self.world.disk.leader(self.world.owner)
        for action in self._term.looked(row, self.world.scheduler.at_us):
            if isinstance(action, Follow):
                self._perform(self._term.followed(self._follow(action.revision)))
            else:
                self._perform([action])

    # ---- following ----

    def _begin_following(self) -> None:
        if not self._is_following:
            self._is_following = True
            self.later(int(self.world.random.random() * FOLLOW_US), self._go_on_following)

    def _go_on_following(self) -> None:
        self._is_following = False
        if self._term.epoch:
            return
        if self._seat.reaches_store:
            self._follow(self._term.leader.revision)
            self._seat.has_begun = True
        else:
            self.later(FOLLOW_RETRY_US, self._begin_following)

    def _follow(self, revision: int) -> State:
        """The state at this revision or a later one."""
        world, replica = self.world, self._replica
        if replica.state is not None and replica.revision < revision:
            try:
                facts = list(world.disk.load_facts(world.owner, replica.revision + 1))
            except LogPruned as error:
                world.note(f"{self.name}: {error}")
                replica.drop()
            else:
                for _ in replica.advance(facts):
                    pass
                world.checks.on_followed(replica.state)
                if replica.lacks_record:
                    replica.drop()
        return replica.state or replica.begin(world.load_state())

    # ---- passing on ----

    def _dial(self) -> None:
        row = self._term.leader
        if self._leader and not is_led_under(row, self._leader_epoch):
            self._lose_leader()
        if is_dialled(row, self._seat.name):
            target = self.world.network.find_dialled(row.endpoint)
            if target and target != self._leader:
                self.send(target, wire.Hello(controller=self._seat.name))

    def on_message(self, source: str, message: Any) -> None:
        """A call at its own socket, its answer from the leader, or the leader's greeting."""
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
            case wire.Welcome(_, epoch) if is_led_under(self._term.leader, epoch):
                self._leader, self._leader_epoch = source, epoch
            case _:
                pass

    def on_link_down(self, peer: str) -> None:
        """The leader is out of reach."""
        if peer == self._leader:
            self._lose_leader()

    def _lose_leader(self) -> None:
        """Its callers may ask again."""
        self._leader = ""
        calls, self._calls = self._calls, {}
        for request_id, source in calls.items():
            self.send(source, wire.Result(request_id))
