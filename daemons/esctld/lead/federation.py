"""The cell's part in its federation: drives its machines against the shared store.

Invariants: whatever happens here, the controller goes on, and so does the cluster: an error is logged and counted, and this
part begins anew; a machine's action becomes one call, and its answer goes back once; what waits for the store waits in tasks
of its own, never in the dispatcher.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from esctld.lead.site import SiteSigner
from eslurm.core.federation.actions import (
    Failure,
    GrantLease,
    KeepLease,
    List,
    MemberAction,
    MirrorAction,
    Problem,
    RevokeLease,
    SwapKeys,
    Watch,
    Write,
)
from eslurm.core.federation.membership import Identity, Lead, Membership
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.summaries import HORIZON_US, Horizon, NodeClasses, Summaries
from eslurm.core.federation.values import Keys
from eslurm.core.federation.view import FederationView, Observer
from eslurm.core.model.federation import FederationConfig, Summary
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.core.state.view import View
from eslurm.ports.kv import (
    Delete,
    Expect,
    KeyValueStore,
    KvAmbiguous,
    KvDenied,
    KvError,
    KvFull,
    KvMember,
    KvUnavailable,
    LeaseLost,
    Operation,
    Put,
    WatchBroken,
)
from eslurm.security.sealing import BadSeal, Purpose

log = logging.getLogger("esctld.federation")

LOOK_S = 1.0
"""Longest time between two looks at what is due."""
AGAIN_S = 5.0
STOP_S = 0.3
"""A lead passes on no later than this because etcd is away."""
MEMBERS_S = 10.0
"""Age at which the state of the store's servers is asked again, and only when a caller wants it."""

_PROBLEMS = (
    (KvUnavailable, Problem.UNAVAILABLE),
    (KvFull, Problem.FULL),
    (KvAmbiguous, Problem.AMBIGUOUS),
    (KvDenied, Problem.DENIED),
    (LeaseLost, Problem.LEASE_LOST),
    (WatchBroken, Problem.BROKEN),
)


def monotonic_us() -> int:
    """The clock of the machines."""
    return time.monotonic_ns() // 1_000


def failure_of(error: KvError) -> Failure:
    """The machines' word for an error of the port."""
    for kind, problem in _PROBLEMS:
        if isinstance(error, kind):
            return Failure(problem, str(error))
    return Failure(Problem.REFUSED, str(error))


class Federation:
    """This cell in its federation, while this controller leads. `run` never ends by itself."""

    def __init__(
        self,
        open_store: Callable[[], KeyValueStore],
        config: FederationConfig,
        identity: Identity,
        lead: Lead,
        site: SiteSigner,
        inputs: Inputs,
        now_us: Callable[[], int] = monotonic_us,
    ) -> None:
        self.restarts = 0
        """How often an error of this program made it begin anew."""
        self._open_store = open_store
        self._store: KeyValueStore | None = None
        self._config = config
        self._identity = identity
        self._lead = lead
        self._site = site
        self._inputs = inputs
        self._now_us = now_us
        self._problem = ""
        self._members: tuple[KvMember, ...] = ()
        self._members_at_us: int | None = None
        self._asking = asyncio.Lock()
        self._begin()

    def _begin(self) -> None:
        keys = Keys(self._config.name)
        self._cells, self._alive, self._shown = Mirror(keys.cells), Mirror(keys.alive), Mirror(keys.summary)
        self.membership = Membership(
            self._config, self._identity, self._cells, self._alive, self._is_own_ring
        )
        self.summaries = Summaries(self._config, self.membership, self._shown)
        self._observer = Observer(self._config.name, self.membership, self._cells, self._alive, self._shown)
        self._classes: NodeClasses | None = None
        self._horizon: Horizon = ()
        self._horizon_at_us = 0

    # ---- reading ----

    def view(self) -> FederationView:
        """All cells, as they are known now."""
        return self._observer.view(self._now_us())

    @property
    def problem(self) -> str:
        """Why the store is not to be had; empty: it is."""
        return self._problem

    async def members(self) -> tuple[KvMember, ...]:
        """The servers of the store, as they were within the last MEMBERS_S; none while there is no connection."""
        async with self._asking:
            at_us = self._members_at_us
            if self._store is None:
                return ()
            if at_us is None or self._now_us() - at_us > MEMBERS_S * 1e6:
                self._members = await self._store.members()
                self._members_at_us = self._now_us()
            return self._members

    # ---- its loop ----

    async def run(self) -> None:
        """Take part until cancelled; then leave in good order, so that others see it at once."""
        while True:
            try:
                await self._once()
            except KvError as error:
                if self._problem != str(error):
                    log.error("federation %s: %s", self._config.name, error)
                self._problem = str(error)
            except Exception:
                self.restarts += 1
                log.exception("the part in federation %s begins anew in %g s", self._config.name, AGAIN_S)
            await asyncio.sleep(AGAIN_S)
            self._begin()

    async def _once(self) -> None:
        """Take part until something breaks. Raises `KvError` when the store is not to be had from the start."""
        store = self._open_store()
        driver = StoreDriver(store, self._now_us)
        try:
            await store.open()
            self._store = store
            self._problem = ""
            await self._take_part(driver)
        except asyncio.CancelledError:
            await self._leave(driver)
            raise
        finally:
            self._store = None
            self._members_at_us = None
            await driver.end()
            await store.close()

    async def _take_part(self, driver: StoreDriver) -> None:
        for mirror in (self._cells, self._alive, self._shown):
            driver.add_mirror(mirror)
        driver.add_machines(self.membership, self.summaries)
        self.membership.leads(self._lead)
        told = ""
        while True:
            now_us = self._now_us()
            self._follow_ring()
            if self.summaries.wants(now_us):
                self.summaries.show(self._read(now_us), now_us)
            await driver.step()
            standing = f"{self.membership.standing.value} {self.membership.problem}".strip()
            if standing != told:
                told = standing
                log.info("federation %s: cell %s: %s", self._config.name, self._config.cell, standing)

    def _follow_ring(self) -> None:
        """A record that only retired keys vouch for would be taken for another site's."""
        ring = self._site.ring.sealed
        if ring != self._identity.ring:
            self._identity = msgspec.structs.replace(self._identity, ring=ring)
            self.membership.identify(self._identity)

    def _read(self, now_us: int) -> Summary:
        view = self._inputs.view()
        if self._classes is None or not self._classes.is_of(view):
            self._classes = NodeClasses(view)
            self._horizon, self._horizon_at_us = (), 0
        profile = self._inputs.profile()
        if profile is not None and profile.topology is view.topology and now_us >= self._horizon_at_us:
            self._horizon = self._classes.horizon(profile)
            self._horizon_at_us = now_us + HORIZON_US
        return self._classes.read(view, self._inputs.wall_us(), self._horizon)

    async def _leave(self, driver: StoreDriver) -> None:
        """Revoke the lease, as far as the store answers in useful time."""
        self.membership.stop()
        try:
            async with asyncio.timeout(STOP_S):
                while not self.membership.is_stopped:
                    await driver.step()
        except (TimeoutError, asyncio.CancelledError):
            log.warning("federation %s: the lease of cell %s runs out", self._config.name, self._config.cell)
        except Exception:
            log.exception("federation %s: cell %s did not leave", self._config.name, self._config.cell)

    def _is_own_ring(self, sealed: bytes) -> bool:
        """Whether a key of this site has sealed it: a ring that vouches for itself alone may be anybody's."""
        try:
            self._site.ring.keys.open(Purpose.RING, sealed)
        except BadSeal:
            return False
        return True


class Inputs(msgspec.Struct, frozen=True):
    """What the cell shows: its last committed state, its plan (None: none yet), the time of day."""

    view: Callable[[], View]
    profile: Callable[[], ResourceProfile | None]
    wall_us: Callable[[], int]


class StoreDriver:
    """Makes the actions of mirrors and machines calls of the store. `end` closes what is under way."""

    def __init__(self, store: KeyValueStore, now_us: Callable[[], int] = monotonic_us) -> None:
        self._store = store
        self._now_us = now_us
        self._draw = random.Random()
        self._mirrors: list[Mirror] = []
        self._machines: tuple[Membership | Summaries, ...] = ()
        self._reading: dict[int, asyncio.Task[None]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._broken: BaseException | None = None

    def add_mirror(self, mirror: Mirror) -> None:
        """Keep this copy of keys."""
        self._mirrors.append(mirror)

    def add_machines(self, *machines: Membership | Summaries) -> None:
        """Carry out what these ask for."""
        self._machines += machines

    async def step(self) -> None:
        """Ask every part what is next, and wait for an answer or a due time. Raises what broke a call unexpectedly."""
        self._wake.clear()
        now_us = self._now_us()
        for number, mirror in enumerate(self._mirrors):
            read = mirror.tick(now_us, self._draw.random())
            if read is not None:
                await self._end(self._reading.pop(number, None))
                self._reading[number] = self._start(self._read(mirror, read), "federation mirror")
        for machine in self._machines:
            for action in _ticked(machine, now_us, self._draw.random()):
                task = self._start(self._call(machine, action), "federation call")
                self._calls.add(task)
                task.add_done_callback(self._calls.discard)
        times = [mirror.due_us for mirror in self._mirrors]
        times += [machine.due_us(now_us) for machine in self._machines]
        due_us = min((at for at in times if at is not None), default=now_us + 1_000_000)
        try:
            async with asyncio.timeout(min(max((due_us - now_us) / 1e6, 0.0), LOOK_S)):
                await self._wake.wait()
        except TimeoutError:
            pass
        if self._broken is not None:
            raise self._broken

    async def end(self) -> None:
        """Leave nothing behind."""
        tasks = [*self._reading.values(), *self._calls]
        self._reading.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- calls ----

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._note)
        return task

    def _note(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._broken = task.exception()
        self._wake.set()

    async def _end(self, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _read(self, mirror: Mirror, action: MirrorAction) -> None:
        try:
            if isinstance(action, List):
                page = await self._store.list(action.prefix, after=action.after, revision=action.revision)
                mirror.listed(action, page, self._now_us())
                return
            await self._watch(mirror, action)
        except KvError as error:
            mirror.failed(action, failure_of(error), self._now_us())

    async def _watch(self, mirror: Mirror, action: Watch) -> None:
        changes: AsyncGenerator[Any, None] = self._store.watch(action.prefix, action.revision)
        async with aclosing(changes):
            async for change in changes:
                mirror.changed(action, change, self._now_us())
                self._wake.set()

    async def _call(self, machine: Membership | Summaries, action: MemberAction) -> None:
        try:
            await self._answer(machine, action)
        except KvError as error:
            if isinstance(machine, Membership):
                machine.failed(action, failure_of(error), self._now_us())
            elif isinstance(action, SwapKeys):
                machine.failed(action, failure_of(error))

    async def _answer(self, machine: Membership | Summaries, action: MemberAction) -> None:
        store = self._store
        if isinstance(action, SwapKeys):
            expect = [Expect(key, version) for key, version in action.expect]
            machine.swapped(action, await store.swap(expect, [_operation(write) for write in action.then]))
        elif isinstance(machine, Membership):
            match action:
                case GrantLease():
                    machine.granted(action, await store.grant(action.ttl_s), self._now_us())
                case KeepLease():
                    machine.kept(action, await store.keep(action.lease), self._now_us())
                case RevokeLease():
                    await store.revoke(action.lease)
                    machine.revoked(action)


def _ticked(machine: Membership | Summaries, now_us: int, draw: float) -> Sequence[MemberAction]:
    if isinstance(machine, Membership):
        return machine.tick(now_us, draw)
    action = machine.tick(now_us, draw)
    return () if action is None else (action,)


def _operation(write: Write) -> Operation:
    return Delete(write.key) if write.value is None else Put(write.key, write.value, write.lease)
