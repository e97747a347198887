"""Calls between the leaders of cells: over the network between cells, which loses, delays and doubles them.

Invariants: a call gets one answer, in the end that there was none; what comes to a process is decided by its own core, as a
call at its API is.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol

import msgspec

from eslurm.core.federation.actions import (
    AskBid,
    AskGuest,
    CancelThere,
    CellAnswer,
    CellCall,
    DeliverJob,
    TellGuest,
)
from eslurm.core.federation.guests.requests import GUEST_SCRIPT, as_guest
from eslurm.core.federation.transfers.owners import PATIENCE_US
from eslurm.core.federation.view import FederationView
from eslurm.core.model.guests import GuestOf
from eslurm.core.model.job import Job, JobSpec
from eslurm.core.model.messages import (
    Arrival,
    CancelJobs,
    Changed,
    JobRef,
    KeepGuest,
    RefusalCode,
    Refused,
    SubmitJobs,
    Submitted,
)
from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim import wire
from eslurm.lab.sim.bare_process import BareProcess, Ground
from eslurm.lab.sim.controller import Controller
from eslurm.ports.store import BlobRow, content_hash

CALL_US = 8 * SECOND_US
LOST_SHARE = DOUBLED_SHARE = LATE_SHARE = 0.1
"""Of calls, and of answers, before everything is calm."""
LATE_MAX_US = 12 * SECOND_US
AT_ONCE_US = 60_000
WAITS_S = (0, 0, 1, 5, 30, None)
"""Bids; None: the cell refuses."""


class Asked(msgspec.Struct, frozen=True):
    """A call. `request` is None in one that only asks: for a bid, or how a guest is (`tell`)."""

    number: int
    home: str
    request: wire.Call | None = None
    tell: TellGuest | None = None


class Said(msgspec.Struct, frozen=True):
    """Its answer."""

    number: int
    answer: CellAnswer


class Served(Protocol):
    """A part in the federation, as its door sees it."""

    leader: Controller

    def view(self) -> FederationView: ...

    def cell_of(self, job_id: int) -> str: ...

    def find_job(self, job_id: int) -> Job | None: ...

    def look(self, guest_id: int, given: GuestOf) -> CellAnswer: ...


class Door(BareProcess):
    """The calls of one leader, in and out."""

    def __init__(
        self,
        ground: Ground,
        address: str,
        offset_us: int,
        part: Served,
        luck: str,
        is_calm: Callable[[], bool],
    ) -> None:
        super().__init__(ground, address, offset_us)
        self._part = part
        self._luck = random.Random(luck)
        self._is_calm = is_calm
        self._last = 0
        self._waiting: dict[int, Callable[[CellAnswer], None]] = {}

    # ---- out ----

    def ask(self, action: CellCall, then: Callable[[CellAnswer], None]) -> None:
        """Make a call; `then` gets its answer."""
        self._last += 1
        number = self._last
        self._waiting[number] = then
        own = self._part.view().cell
        job = self._part.find_job(action.job_id)
        if job is None:
            self._end(number, CellAnswer(is_done=False, is_refused=True, text="the job is gone"))
            return
        tell = action if isinstance(action, TellGuest) else None
        asked = Asked(number, own, self._request(action, own, job), tell)
        self._carry(self._address_of(action.cell), asked)
        self.later(CALL_US, self._end, number, CellAnswer(is_done=False, text="no answer in time"))

    def _request(self, action: CellCall, own: str, job: Job) -> wire.Call | None:
        match action:
            case AskBid():
                return None
            case CancelThere():
                cancel = CancelJobs(job.spec.user, (JobRef(action.job_id),))
                return wire.Call(_id_of("cancel", self.name, self._last), cancel)
            case DeliverJob(job_id, _, serial, is_repeated):
                submit = SubmitJobs((_as_it_arrives(job.spec),), arrival=Arrival(own, job_id, serial))
                hashes = filter(None, (job.spec.script_hash, job.spec.environment_hash))
                disk, owner = self._part.leader.world.disk, self._part.leader.world.owner
                blobs = tuple(BlobRow(digest, disk.get_blob(owner, digest)) for digest in hashes)
                return wire.Call(_id_of("deliver", own, job_id, serial), submit, blobs, retry=is_repeated)
            case AskGuest(job_id, cell, serial, nodes, is_repeated):
                digest = content_hash(GUEST_SCRIPT)
                spec = as_guest(job.spec, job_id, own, nodes)
                spec = msgspec.structs.replace(spec, script_hash=digest, environment_hash=b"")
                given = GuestOf(own, job_id, serial, since_us=job.submitted_us)
                submit = SubmitJobs((spec,), guest_of=given)
                blob = BlobRow(digest, GUEST_SCRIPT)
                return wire.Call(
                    _id_of("guest", own, job_id, serial, cell), submit, (blob,), retry=is_repeated
                )
            case TellGuest(job_id, _, serial, guest_id, wish):
                if wish == "look":
                    return None
                keep = KeepGuest(guest_id, own, job_id, serial, keep=wish == "keep")
                return wire.Call(_id_of("tell", self.name, self._last), keep)

    def _address_of(self, cell: str) -> str:
        found = next((one for one in self._part.view().cells if one.name == cell), None)
        alive = found.alive if found is not None else None
        return door_address(alive.endpoint) if alive is not None else ""

    def _carry(self, address: str, message: Asked | Said) -> None:
        """To whatever listens there when it leaves."""
        luck = 1.0 if self._is_calm() else self._luck.random()
        if luck < LOST_SHARE:
            return
        self._send_on(address, message)
        if luck < LOST_SHARE + DOUBLED_SHARE:
            self.later(self._luck.randint(0, LATE_MAX_US), self._send_on, address, message)

    def _send_on(self, address: str, message: Asked | Said) -> None:
        target = self._ground.network.find_dialled(address) if "/" in address else ""
        if target:
            self.send(target, message)

    def _end(self, number: int, answer: CellAnswer) -> None:
        if (then := self._waiting.pop(number, None)) is not None:
            then(answer)

    # ---- in ----

    def on_message(self, source: str, message: Asked | Said) -> None:
        """A call of another cell, or an answer."""
        if isinstance(message, Said):
            self._end(message.number, message.answer)
        elif not self._is_calm() and self._luck.random() < LATE_SHARE:
            self.later(self._late_us(), self._serve, source, message)
        else:
            self._serve(source, message)

    def _serve(self, source: str, asked: Asked) -> None:
        def answer(said: CellAnswer) -> None:
            if self._is_calm() or self._luck.random() >= LOST_SHARE:
                self.send(source, Said(asked.number, said))

        if (tell := asked.tell) is not None:
            given = GuestOf(asked.home, tell.job_id, tell.serial)

            def tell_state(_: object = None) -> None:
                answer(self._part.look(tell.guest_id, given))

            if asked.request is not None:
                self._part.leader.ask(asked.request, tell_state)
            else:
                tell_state()
            return
        if asked.request is None:
            answer(self._bid())
            return
        message = asked.request.message
        if isinstance(message, SubmitJobs) and message.arrival is not None:
            owner = self._part.cell_of(message.arrival.job_id)
            if owner != asked.home or message.arrival.home != asked.home:
                answer(CellAnswer(is_done=False, is_refused=True, text=f"the job's id is one of {owner!r}"))
                return
        self._part.leader.ask(asked.request, lambda result: answer(_meaning(result)))

    def _late_us(self) -> int:
        """Any time, or just when the home cell's patience ends: then both cells change the owner at once."""
        if self._luck.random() < 0.5:
            return self._luck.randint(0, LATE_MAX_US)
        return PATIENCE_US - self._luck.randint(0, AT_ONCE_US)

    def _bid(self) -> CellAnswer:
        """The protocol has to hold whatever a cell promises."""
        wait_s = self._luck.choice(WAITS_S)
        if wait_s is None:
            return CellAnswer(is_done=False, is_refused=True, text="no place for it")
        return CellAnswer(is_done=True, wait_us=wait_s * SECOND_US)


def door_address(address: str) -> str:
    """The address for calls of the leader at an address."""
    return f"{address}/calls"


def _id_of(*parts: object) -> bytes:
    return blake2b("/".join(map(str, parts)).encode(), digest_size=16).digest()


def _as_it_arrives(spec: JobSpec) -> JobSpec:
    return msgspec.structs.replace(spec, cells=(), dependencies=(), dependency_any=False, held=False)


def _meaning(result: wire.Result) -> CellAnswer:
    match result.answer:
        case Submitted(job_ids=(first, *_)):
            return CellAnswer(is_done=True, guest_id=first)
        case Changed(problems=problems):
            return CellAnswer(is_done=not problems, text=problems[0].text if problems else "")
        case Refused(code=code, text=text):
            return CellAnswer(is_done=False, is_refused=code is not RefusalCode.EXHAUSTED, text=text)
        case _:
            return CellAnswer(is_done=False, text="not now")
