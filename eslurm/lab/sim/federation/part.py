"""A leader's part in its federation: carries the core's `Participant` over the simulated network, as a daemon does.

Invariants: it does nothing before its controller's epoch is committed and nothing after its process has ended; it stands
still with its process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from eslurm.core.control.reactor import Batch
from eslurm.core.federation.actions import (
    Action,
    AskBid,
    AskGuest,
    CancelThere,
    CellAnswer,
    CellCall,
    DeliverJob,
    GrantLease,
    KeepLease,
    List,
    RevokeLease,
    SwapKeys,
    TellGuest,
    Watch,
)
from eslurm.core.federation.guests.requests import look
from eslurm.core.federation.membership import Identity, Lead, Standing
from eslurm.core.federation.participant import Inputs, Participant
from eslurm.core.federation.transfers.transfers import concerns_cells
from eslurm.core.federation.view import FederationView
from eslurm.core.model.federation import FederationConfig
from eslurm.core.model.guests import GuestOf
from eslurm.core.model.job import Job
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.view import View
from eslurm.federation.calls import conditions_of, failure_of, operations_of
from eslurm.lab.sim import kv_wire as wire
from eslurm.lab.sim.bare_process import Ground
from eslurm.lab.sim.controller import Controller
from eslurm.lab.sim.federation.doors import Door, door_address
from eslurm.lab.sim.kv_client import KvClient
from eslurm.ports.kv import Changes, KvError

LOOK_US = SECOND_US
STOP_US = 300_000


class Witness(msgspec.Struct, frozen=True):
    """Callbacks for events of a part: failed calls, changes of its standing, its end, answers of
    other cells; and whether all is calm."""

    on_failed: Callable[[Part, Action, KvError], None]
    on_standing: Callable[[Part, Standing], None]
    on_end: Callable[[Part], None]
    on_called: Callable[[Part, CellCall, CellAnswer], None]
    is_calm: Callable[[], bool]


class Part:
    """One controller's part, from the start of its lead to its end."""

    def __init__(
        self,
        ground: Ground,
        servers: Sequence[str],
        config: FederationConfig,
        identity: Identity,
        leader: Controller,
        witness: Witness,
        address: str,
    ) -> None:
        self.leader = leader
        self.epoch = leader.epoch
        self.address = address
        self.is_leaving = False
        self.client: KvClient | None = None
        """None before its controller leads."""
        self.door: Door | None = None
        """The same."""
        self._ground = ground
        self._servers = servers
        self._witness = witness
        self._random = random.Random(f"{leader.world.seed}/federation/{leader.name}")
        self._view = View(leader.state)
        inputs = Inputs(
            lambda: self._view,
            lambda: leader.profile,
            lambda: leader.seat.wall_us,
            leader.post,
            # Of some jobs the plan may not say anything.
            lambda job_id: leader.start_us(job_id) if job_id % 2 else None,
        )
        self.participant = Participant(config, identity, lambda sealed: sealed == identity.ring, inputs)
        self._watches: dict[str, int] = {}
        self._standing = Standing.AWAY
        self._timer = 0
        self._is_woken = False

    @property
    def is_at_work(self) -> bool:
        """Check whether it takes part now."""
        return self.client is not None and self.client.alive and not self.client.is_paused

    @property
    def now_us(self) -> int:
        """Its monotonic clock."""
        return self.leader.now_us

    def view(self) -> FederationView:
        """All cells, as this controller would show them now."""
        return self.participant.view(self.now_us)

    def cell_of(self, job_id: int) -> str:
        """The cell that has leased this id, as far as this controller knows."""
        return self.participant.ids.table.cell_of(job_id)

    def find_job(self, job_id: int) -> Job | None:
        """A job, as this controller would show it."""
        return self._view.jobs.get(job_id)

    def look(self, guest_id: int, given: GuestOf) -> CellAnswer:
        """The state of a guest here, for its home."""
        self.participant.transfers.hosting.heard(guest_id, self.now_us)
        return look(self._view, guest_id, given)

    @property
    def transfers(self) -> Mapping[int, Job]:
        """The jobs that concern other cells, as this controller would show them."""
        return self._view.transfers

    # ---- its controller ----

    def lead(self) -> None:
        """Its controller's epoch is committed: begin."""
        offset_us = self.leader.now_us - self._ground.scheduler.at_us
        self.client = KvClient(self._ground, self.address, self._servers, offset_us)
        self._ground.network.attach(self.client)
        luck = f"{self.leader.world.seed}/calls/{self.leader.name}"
        address = door_address(self.address)
        self.door = Door(self._ground, address, offset_us, self, luck, self._witness.is_calm)
        self._ground.network.attach(self.door)
        self.participant.leads(Lead(self.epoch, self.address, since_us=self.leader.seat.wall_us))
        self._step()

    def show(self, batch: Batch) -> None:
        """This is durable now."""
        self._view.advance(batch.touched, self.leader.state.revision, batch.now_us)
        if concerns_cells(self._view, batch.touched):
            self._wake()

    def pause(self, for_us: int) -> None:
        """The process stands still."""
        if self.client is not None:
            self.client.pause(for_us)
        if self.door is not None:
            self.door.pause(for_us)

    def leave(self) -> None:
        """Its controller ends in good order: the lease is revoked, as far as the store answers in useful time."""
        self.is_leaving = True
        self.participant.stop()
        if self.client is not None and self.client.alive:
            self.client.later(STOP_US, self.end)
            self._wake()

    def end(self) -> None:
        """Its process has ended."""
        if self.client is not None and self.client.alive:
            self.client.alive = False
            self._ground.network.detach(self.client)
            if self.door is not None:
                self.door.alive = False
                self._ground.network.detach(self.door)
            self._witness.on_end(self)

    # ---- its loop ----

    def _wake(self) -> None:
        if not self._is_woken and self.client is not None:
            self._is_woken = True
            self.client.later(0, self._step)

    def _on_time(self, timer: int) -> None:
        if timer == self._timer:
            self._step()

    def _step(self) -> None:
        """Ask what is next; again after an answer or at a due time."""
        self._is_woken = False
        now_us = self.now_us
        for action in self.participant.tick(now_us, self._random.random()):
            self._perform(action)
        if self.participant.membership.standing is not self._standing:
            self._standing = self.participant.membership.standing
            self._witness.on_standing(self, self._standing)
        due_us = self.participant.due_us(now_us)
        wait_us = LOOK_US if due_us is None else min(max(due_us - now_us, 1), LOOK_US)
        self._timer += 1
        assert self.client is not None
        self.client.later(wait_us, self._on_time, self._timer)

    def _perform(self, action: Action) -> None:
        part = self.participant
        match action:
            case List(prefix, after, revision):
                self._end_watch(prefix)
                request = wire.ListPage(prefix, after, revision)
                self._ask(action, request, lambda page: part.listed(action, page, self.now_us))
            case Watch(prefix):
                self._end_watch(prefix)
                self._watch(action)
            case SwapKeys():
                swap = wire.Swap(tuple(conditions_of(action)), tuple(operations_of(action)))
                self._ask(action, swap, lambda answer: part.swapped(action, answer))
            case GrantLease(ttl_s):
                grant = wire.Grant(round(ttl_s * 1e6))
                self._ask(action, grant, lambda lease: part.granted(action, lease, self.now_us))
            case KeepLease(lease):
                self._ask(action, wire.Keep(lease), lambda ttl_s: part.kept(action, ttl_s, self.now_us))
            case RevokeLease(lease):
                self._ask(action, wire.Revoke(lease), lambda _: part.revoked(action))
            case AskBid() | DeliverJob() | CancelThere() | AskGuest() | TellGuest():
                self._call(action)

    def _call(self, action: CellCall) -> None:
        def answered(answer: CellAnswer) -> None:
            self._witness.on_called(self, action, answer)
            self.participant.called(action, answer, self.now_us)
            self._wake()

        assert self.door is not None
        self.door.ask(action, answered)

    def _ask(self, action: Action, request: wire.Request, then: Callable[[Any], None]) -> None:
        def answered(result: Any) -> None:
            if isinstance(result, KvError):
                self._fail(action, result)
            else:
                then(result)
                self._wake()

        assert self.client is not None
        self.client.ask(request, answered)

    def _watch(self, action: Watch) -> None:
        def changed(changes: Changes) -> None:
            self.participant.changed(action, changes, self.now_us)
            self._wake()

        def ended(error: KvError) -> None:
            self._watches.pop(action.prefix, None)
            self._fail(action, error)

        assert self.client is not None
        self._watches[action.prefix] = self.client.watch(action.prefix, action.revision, changed, ended)

    def _end_watch(self, prefix: str) -> None:
        number = self._watches.pop(prefix, None)
        if number is not None and self.client is not None:
            self.client.end_watch(number)

    def _fail(self, action: Action, error: KvError) -> None:
        self._witness.on_failed(self, action, error)
        self.participant.failed(action, failure_of(error), self.now_us)
        self._wake()
