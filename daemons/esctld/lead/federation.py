"""The cell's part in its federation: drives its machines against the shared store.

Invariants: whatever happens here, the controller goes on, and so does the cluster: an error is logged and counted, and this
part begins anew; a machine's action becomes one call, and its answer goes back once; what waits for the store waits in tasks
of its own, never in the dispatcher.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from esctld.lead.site import SiteSigner
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
from eslurm.core.federation.blocks import IdBlocks
from eslurm.core.federation.membership import Identity, Lead
from eslurm.core.federation.participant import Inputs, Participant
from eslurm.core.federation.transfers.transfers import Transfers, concerns_cells
from eslurm.core.federation.usage import SharedUsage
from eslurm.core.federation.values import Keys
from eslurm.core.federation.view import FederationView
from eslurm.core.model.endpoint import split_endpoint
from eslurm.core.model.federation import FederationConfig
from eslurm.federation.calls import conditions_of, failure_of, operations_of
from eslurm.ports.kv import KeyValueStore, KvError, KvMember
from eslurm.security.sealing import BadSeal, Purpose

log = logging.getLogger("esctld.federation")

LOOK_S = 1.0
"""Longest time between two looks at what is due."""
TIMER_S = 0.002
"""The event loop counts whole milliseconds: a timer that ends a little too early costs a look in vain, and another timer."""
AGAIN_S = 5.0
STOP_S = 0.3
"""A lead passes on no later than this because etcd is away."""
MEMBERS_S = 10.0
"""Age at which the state of the store's servers is asked again, and only when a caller wants it."""


def monotonic_us() -> int:
    """The clock of the machines."""
    return time.monotonic_ns() // 1_000


CallCell = Callable[[CellCall], Awaitable[CellAnswer]]
"""Makes a call to another cell; never raises."""


async def no_calls(action: CellCall) -> CellAnswer:
    """The answer while no links to other cells are there."""
    return CellAnswer(is_done=False, text=f"there are no links to cell {action.cell}")


class _AskedAgain(Exception):
    """The part begins anew at once, with nothing known of the store."""


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
        """Fresh starts of the participant after an error of this program."""
        self._open_store = open_store
        self._store: KeyValueStore | None = None
        self._config = config
        self._identity = identity
        self._lead = lead
        self._site = site
        self._inputs = inputs
        self._now_us = now_us
        self._call_cell: CallCell = no_calls
        self._problem = ""
        self._members: tuple[KvMember, ...] = ()
        self._members_at_us: int | None = None
        self._asking = asyncio.Lock()
        self._driver: StoreDriver | None = None
        self._must_begin = False
        self._stepped = asyncio.Event()
        self._recorded = asyncio.Event()
        self._records_seen: object = None
        self._begin()

    def attach(self, call_cell: CallCell) -> None:
        """Set the way to other cells. Once, before `run`."""
        self._call_cell = call_cell

    def _begin(self, *, rejoins: bool = False) -> None:
        self._part = Participant(self._config, self._identity, self._is_own_ring, self._inputs)
        if rejoins:
            self._part.rejoin(self._now_us())

    # ---- reading ----

    def view(self) -> FederationView:
        """All cells, as they are known now."""
        return self._part.view(self._now_us())

    @property
    def cell(self) -> str:
        """Name of this cell."""
        return self._config.cell

    @property
    def records_version(self) -> object:
        """Equal as long as no cell's record has changed."""
        return self._part.cells, self._part.cells.changes

    async def records_changed(self, timeout_s: float) -> None:
        """Wait until a cell's record has changed since the last call ended, but no longer than this. For one caller."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._recorded.wait()
        self._recorded.clear()

    def rings(self) -> dict[str, bytes] | None:
        """The sealed keys in the records of the other cells; None: no record has come yet."""
        if not self._part.cells.is_listed:
            return None
        return {
            one.name: one.record.ring
            for one in self.view().cells
            if one.record is not None and not one.record.left and one.name != self.cell
        }

    @property
    def usage(self) -> SharedUsage | None:
        """Usage in the other cells; None: this cell counts its own alone."""
        return self._part.usage

    def now_us(self) -> int:
        """The clock of the machines."""
        return self._now_us()

    @property
    def ids(self) -> IdBlocks:
        """Job ids in hand, and whose the others are."""
        return self._part.ids

    def cell_of(self, job_id: int) -> str:
        """The cell that has leased this id; empty: none has, as far as is known."""
        return self._part.ids.table.cell_of(job_id)

    def bids_of(self, job_id: int) -> Mapping[str, str]:
        """By cell why it does not get this waiting job."""
        return self._part.transfers.reasons(job_id)

    def host_of(self, cell: str) -> str:
        """The host of the cell's leading controller, as its record says; empty: not known."""
        found = next((one for one in self.view().cells if one.name == cell), None)
        return (
            split_endpoint(found.alive.endpoint)[0] if found is not None and found.alive is not None else ""
        )

    def heard_guest(self, job_id: int) -> None:
        """Another cell has named the job that holds nodes here for one of its own."""
        self._part.transfers.hosting.heard(job_id, self._now_us())

    @property
    def transfers(self) -> Transfers:
        """Jobs that change their cell."""
        return self._part.transfers

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

    async def time_answer(self) -> tuple[int | None, str]:
        """Microseconds that a read takes which the servers agree on; None: there is no answer, and why."""
        store = self._store
        if store is None:
            return None, self._problem or "there is no connection"
        began_us = self._now_us()
        try:
            await store.get(Keys(self._config.name).number)
        except KvError as error:
            return None, str(error)
        return self._now_us() - began_us, ""

    def on_committed(self, batch: Batch) -> None:
        """A batch is durable and shown: jobs between cells go on at once."""
        if concerns_cells(self._inputs.view(), batch.touched):
            self._wake()

    # ---- orders ----

    def write_ids_again(self) -> None:
        """If the store lacks job ids of this cell, write them there once more."""
        self._part.rejoin(self._now_us())
        self._wake()

    def begin_again(self) -> None:
        """Take the store for what it is now, whatever it was: what was seen of it before is forgotten."""
        self._must_begin = True
        self._wake()

    @property
    def is_draining(self) -> bool:
        """True when the cell takes no work of others, by the latest order."""
        return self._part.membership.is_draining

    async def is_ordered(self, timeout_s: float) -> bool:
        """Wait until the store has what was ordered, and say whether it has."""
        self._wake()
        try:
            async with asyncio.timeout(timeout_s):
                while not self._is_settled():
                    self._stepped.clear()
                    await self._stepped.wait()
        except TimeoutError:
            return False
        return True

    def _is_settled(self) -> bool:
        if self._must_begin or self._store is None:
            return False
        return self._part.is_ordered

    def _wake(self) -> None:
        if self._driver is not None:
            self._driver.wake()

    # ---- its loop ----

    async def run(self) -> None:
        """Take part until cancelled; then leave in good order, so that others see it at once."""
        while True:
            try:
                await self._once()
            except _AskedAgain:
                self._begin(rejoins=self._part.ids.rejoins)
                continue
            except KvError as error:
                if self._problem != str(error):
                    log.error("federation %s: %s", self._config.name, error)
                self._problem = str(error)
            except Exception:
                self.restarts += 1
                self._problem = "an error of this program ended this part: the controller's log has it"
                log.exception("the part in federation %s begins anew in %g s", self._config.name, AGAIN_S)
            await asyncio.sleep(AGAIN_S)
            self._begin(rejoins=self._part.ids.rejoins)

    async def _once(self) -> None:
        """Take part until something breaks. Raises `KvError` when the store is not to be had from the start."""
        store = self._open_store()
        driver = StoreDriver(store, self._part, self._now_us, self._call_cell)
        try:
            await store.open()
            self._store, self._driver = store, driver
            self._problem = ""
            await self._take_part(driver)
        except asyncio.CancelledError:
            await self._leave(driver)
            raise
        finally:
            self._store = self._driver = None
            self._members_at_us = None
            await driver.end()
            await store.close()

    async def _take_part(self, driver: StoreDriver) -> None:
        self._part.leads(self._lead)
        membership = self._part.membership
        told = ""
        self._must_begin = False
        while True:
            if self._must_begin:
                raise _AskedAgain
            self._follow_ring()
            await driver.look()
            self._stepped.set()
            if self.records_version != self._records_seen:
                self._records_seen = self.records_version
                self._recorded.set()
            standing = f"{membership.standing.value} {membership.problem}".strip()
            if standing != told:
                told = standing
                log.info("federation %s: cell %s: %s", self._config.name, self._config.cell, standing)
            await driver.wait()

    def _follow_ring(self) -> None:
        """A record that only retired keys vouch for would be taken for another site's."""
        ring = self._site.ring.sealed
        if ring != self._identity.ring:
            self._identity = msgspec.structs.replace(self._identity, ring=ring)
            self._part.identify(self._identity)

    async def _leave(self, driver: StoreDriver) -> None:
        """Revoke the lease, as far as the store answers in useful time."""
        self._part.stop()
        try:
            async with asyncio.timeout(STOP_S):
                while not self._part.is_stopped:
                    await driver.look()
                    await driver.wait()
        except (TimeoutError, asyncio.CancelledError):
            log.warning("federation %s: the lease of cell %s runs out", self._config.name, self._config.cell)
        except Exception:
            log.exception("federation %s: cell %s did not leave", self._config.name, self._config.cell)

    def _is_own_ring(self, sealed: bytes) -> bool:
        """Check that a key of this site seals the ring: a ring that only vouches for itself may be forged."""
        try:
            self._site.ring.keys.open(Purpose.RING, sealed)
        except BadSeal:
            return False
        return True


class StoreDriver:
    """Makes the actions of a participant calls of the store and of other cells. `end` closes what is under way."""

    def __init__(
        self,
        store: KeyValueStore,
        part: Participant,
        now_us: Callable[[], int] = monotonic_us,
        call_cell: CallCell = no_calls,
    ) -> None:
        self._store = store
        self._call_cell = call_cell
        self._part = part
        self._now_us = now_us
        self._draw = random.Random()
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._looked_us = 0
        self._broken: BaseException | None = None

    async def look(self) -> None:
        """Ask what is next, and begin it."""
        self._wake.clear()
        now_us = self._looked_us = self._now_us()
        for action in self._part.tick(now_us, self._draw.random()):
            if isinstance(action, List | Watch):
                await self._end(self._reading.pop(action.prefix, None))
                self._reading[action.prefix] = self._start(self._call(action), "federation mirror")
            else:
                task = self._start(self._call(action), "federation call")
                self._calls.add(task)
                task.add_done_callback(self._calls.discard)

    async def wait(self) -> None:
        """Wait for an answer or a due time. Raises what broke a call unexpectedly."""
        # What has become due since the look is due at once.
        due_us = self._part.due_us(self._looked_us)
        wait_s = LOOK_S if due_us is None else (due_us - self._now_us()) / 1e6 + TIMER_S
        try:
            async with asyncio.timeout(min(max(wait_s, 0.0), LOOK_S)):
                await self._wake.wait()
        except TimeoutError:
            pass
        if self._broken is not None:
            raise self._broken

    def wake(self) -> None:
        """End the wait: there is something to do."""
        self._wake.set()

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

    async def _call(self, action: Action) -> None:
        try:
            await self._answer(action)
        except KvError as error:
            self._part.failed(action, failure_of(error), self._now_us())

    async def _answer(self, action: Action) -> None:
        store, part = self._store, self._part
        match action:
            case List(prefix, after, revision):
                page = await store.list(prefix, after=after, revision=revision)
                part.listed(action, page, self._now_us())
            case Watch():
                await self._watch(action)
            case SwapKeys():
                part.swapped(action, await store.swap(conditions_of(action), operations_of(action)))
            case GrantLease(ttl_s):
                part.granted(action, await store.grant(ttl_s), self._now_us())
            case KeepLease(lease):
                part.kept(action, await store.keep(lease), self._now_us())
            case RevokeLease(lease):
                await store.revoke(lease)
                part.revoked(action)
            case AskBid() | DeliverJob() | CancelThere() | AskGuest() | TellGuest():
                part.called(action, await self._call_cell(action), self._now_us())

    async def _watch(self, action: Watch) -> None:
        changes: AsyncGenerator[Any, None] = self._store.watch(action.prefix, action.revision)
        async with aclosing(changes):
            async for change in changes:
                self._part.changed(action, change, self._now_us())
                self._wake.set()
