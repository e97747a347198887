"""Links to other cells, and the calls that pass over them: out for users of this cell, in for those of others.

Invariants: a call passes between cells once, as a user's, never as root's and never with rights over others; another
cell sends calls and answers, at a bounded rate and size, and each that does not fit is one refusal; a link is dialled when
a call needs it, and closed when it is not used.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from eslurm.api.audit import CallAudit
from eslurm.api.authoriser import root_text
from eslurm.api.forward import CONTROL_CALL_BYTES_MAX, CallParts, Forwarder, answer_door_call, send_reply
from eslurm.api.limits import Budget
from eslurm.api.methods import SUBMIT, Method
from eslurm.api.principals import Principals
from eslurm.api.scopes import FROM_CELLS
from eslurm.api.status import refusal_of
from eslurm.core.federation.view import CellState, CellView
from eslurm.core.model.job import Principal
from eslurm.ports.api import Answered, Answerer, ApiError, Caller, Status
from eslurm.ports.link import CELL, Link, LinkError, LinkRefused, LinkUnreachable, Wanted
from eslurm.security.cells import CellTrust
from eslurm.security.credentials import Credentials
from eslurm.transport.fair_quota import FairQuota
from eslurm.v1 import link_pb2

if TYPE_CHECKING:
    from esctld.lead.federation import Federation
    from eslurm.links.links import LinkTable

log = logging.getLogger("esctld.cells")

IDLE_S: Final = 60.0
IDLE_LOOK_S: Final = 10.0
"""Interval of looks for links that are idle."""
CALLS_MAX: Final = 1024
"""Calls under way to one cell, and from one."""
CALLS_USER_MAX: Final = 256
"""Of these, calls of one user."""
BYTES_MAX: Final = 64 * 1024 * 1024
"""Of calls of one cell that are under way, with their large answers; of requests, and of its answers, that come in parts."""
CALLS_PER_S: Final = 500.0
ITEMS_PER_S: Final = 2_000.0
"""A cell that sends more loses its link."""
DEADLINE_MAX_S: Final = 600.0
SEND_S: Final = 30.0
"""For an answer to go out, behind the call's deadline."""
MARGIN_S: Final = 0.2
"""An answer of our own leaves here so long before the caller's deadline."""
BACKOFF_MAX_S: Final = 1.0
RETRY_S: Final = 0.5
TAKEOVER_S: Final = 10.0
"""A cell that has been silent for less may have a standby that is about to lead."""
NEVER_S: Final = 600.0
"""As the time of a retry: longer than callers wait."""
NAME_MAX: Final = 256
TEXT_MAX: Final = 1024


def _printable(text: str) -> str:
    """Words of another cell, or of what listens in its place, for a terminal of ours."""
    return "".join(char if char.isprintable() else "?" for char in text[:TEXT_MAX])


class _Peer:
    """One other cell, as far as calls are concerned."""

    def __init__(self, name: str, process: str, now_s: float) -> None:
        self.name = name
        self.link: Link | None = None
        self.endpoints: tuple[str, ...] = ()
        self.epoch = 0
        self.refused = ""
        """Its own words, when it refused the last link."""
        self.forwarder = Forwarder(
            process,
            lambda: self.link,
            lambda: 0,
            f"there is no link to cell {name} now",
            in_parts=True,
            leader=f"cell {name}",
            is_named=True,
            replies_bytes_max=BYTES_MAX,
        )
        self.out: FairQuota[int] = FairQuota(CALLS_MAX, CALLS_USER_MAX)
        self.items = Budget(ITEMS_PER_S, 1.0, now_s)
        self.calls = Budget(CALLS_PER_S, 1.0, now_s)
        self.tasks: set[asyncio.Task[None]] = set()
        self.bytes_now = 0
        self.parts: dict[Link, CallParts] = {}

    def learn(self, view: CellView) -> None:
        """Take the address of the cell's leader from its record; without one the last address stays."""
        if view.alive is not None:
            self.epoch = view.alive.epoch
            self.endpoints = tuple(dict.fromkeys(filter(None, (view.alive.endpoint, *view.alive.others))))


class CellLinks:
    """Implements `api.authoriser.CellCalls`; takes the items of links to cells."""

    def __init__(
        self,
        federation: Federation,
        trust: CellTrust,
        credentials: Credentials,
        process: str,
        principals: Principals,
        users: str,
    ) -> None:
        """`users` is as in the configuration: same or named."""
        self._federation = federation
        self._trust = trust
        self._credentials = credentials
        self._process = process
        self._principals = principals
        self._users = users
        self._peers: dict[str, _Peer] = {}
        self._ended: set[Link] = set()
        self._followed: object = None
        self.calls: Counter[str] = Counter(out=0, **{"in": 0})
        self.refused = 0

    def attach(self, table: LinkTable, answerer: Answerer, audit: CallAudit) -> None:
        """Set the links, and the receiver of calls."""
        self._table = table
        self._answerer = answerer
        self._audit = audit

    @property
    def own(self) -> str:
        """Name of this cell."""
        return self._federation.cell

    # ---- trust ----

    def trusts(self, cell: str) -> bool:
        """Check whether the cell's keys are trusted here."""
        return cell in self._trust.cells

    async def run(self) -> None:
        """Follow the cells' records until cancelled."""
        while True:
            try:
                self.follow()
                self._table.close_quiet(CELL, IDLE_S)
            except Exception:
                log.exception("the other cells' records could not be followed")
            await self._federation.records_changed(IDLE_LOOK_S)

    def follow(self) -> None:
        """Trust the cells whose records say so now. While the store is away the last word counts."""
        version = self._federation.records_version
        if version == self._followed:
            return
        rings = self._federation.rings()
        if rings is None:
            return
        refused = self._trust.refused
        has_changed = True
        try:
            has_changed = self._trust.follow(rings)
        finally:
            # After a fault too: a cell that is trusted no more has no links.
            self._followed = version
            if has_changed:
                self._credentials.cells = dict(self._trust.cells)
                self._table.check_links()
                log.info("calls pass to and from %s", ", ".join(sorted(self._trust.cells)) or "no other cell")
        for name, why in self._trust.refused.items():
            if refused.get(name) == why:
                continue
            if name in self._trust.cells:
                log.warning("the record of cell %s is not taken, its known keys count: %s", name, why)
            else:
                log.warning("calls do not pass to or from cell %s: %s", name, why)
        for name in [name for name, peer in self._peers.items() if name not in rings and not peer.tasks]:
            if self._peers[name].link is None:
                del self._peers[name]

    # ---- calls to other cells ----

    async def pass_on(self, cell: str, method: Method[Any, Any], payload: bytes, caller: Caller) -> Answered:
        """See `api.authoriser.CellCalls`. A call is sent once: whether to repeat it is for its caller to decide."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + (caller.deadline_us or 0) / 1e6
        try:
            peer = self._peer_for(cell, method, caller)
        except ApiError as error:
            return Answered(error.status, _printable(error.text), b"", error.retry_after_s)
        uid = caller.principal.uid
        if not peer.out.enter(uid, privileged=False):
            text = f"too many calls to cell {cell} at once: try again in a moment"
            return Answered(Status.RESOURCE_EXHAUSTED, text, b"", RETRY_S)
        self.calls["out"] += 1
        try:
            async with asyncio.timeout_at(ends_s - MARGIN_S):
                await self._connect(peer)
                left_us = int((ends_s - loop.time()) * 1e6)
                answered = await peer.forwarder.answer(method, payload, caller._replace(deadline_us=left_us))
        except TimeoutError:
            return Answered(Status.DEADLINE_EXCEEDED, f"cell {cell} did not answer in time", b"")
        except ApiError as error:
            return Answered(error.status, _printable(error.text), b"", error.retry_after_s)
        finally:
            peer.out.leave(uid, privileged=False)
        return answered._replace(text=_printable(answered.text))

    def _peer_for(self, cell: str, method: Method[Any, Any], caller: Caller) -> _Peer:
        """Raises `ApiError` when no call of this kind goes there, with the way out."""
        if caller.via == CELL:
            raise ApiError(
                Status.FAILED_PRECONDITION,
                f"a call passes between cells once, and this one came from another cell: ask cell {cell} itself",
            )
        if method.name not in FROM_CELLS:
            raise ApiError(
                Status.PERMISSION_DENIED,
                f"{method.name} does not pass to other cells: use a host of cell {cell[:NAME_MAX]}",
            )
        if caller.principal.uid == 0:
            raise ApiError(Status.PERMISSION_DENIED, root_text(CELL))
        view = self._federation.view()
        found = next((one for one in view.cells if one.name == cell), None)
        peer = self._peers.get(cell)
        if found is None and view.age_us is None and peer is not None and peer.endpoints:
            # The part in the federation has begun anew, and has not heard of any cell yet.
            return peer
        if found is None or found.state is CellState.LEFT:
            alive = [one.name for one in view.cells if one.state is CellState.ALIVE]
            what = "it has left the federation" if found is not None else "no such cell"
            known = f"alive are {', '.join(alive)}" if alive else "the store has not named any cell yet"
            raise ApiError(Status.NOT_FOUND, f"{what}: {known}")
        self.follow()
        if cell not in self._trust.cells:
            why = self._trust.refused.get(cell, "its record has not come yet")
            raise ApiError(Status.FAILED_PRECONDITION, f"calls do not go there: {why}")
        peer = self._peer(cell)
        peer.learn(found)
        return peer

    def _peer(self, cell: str) -> _Peer:
        peer = self._peers.get(cell)
        if peer is None:
            peer = self._peers[cell] = _Peer(cell, self._process, asyncio.get_running_loop().time())
        return peer

    async def _connect(self, peer: _Peer) -> None:
        """Have a link to the cell's leader. Raises `ApiError` saying what is known of the cell."""
        wanted = Wanted(CELL, cell=peer.name)
        failure = "its endpoint is not known here"
        for endpoint in peer.endpoints:
            try:
                link = await self._table.get(endpoint, wanted, BACKOFF_MAX_S)
            except LinkRefused as error:
                peer.refused = failure = (
                    f"{error} (does cell {peer.name} trust this one: [[federation.peer]] there?)"
                )
                continue
            except LinkError as error:
                is_backoff = isinstance(error, LinkUnreachable) and error.retry_after_s > 0
                peer.refused = peer.refused if is_backoff else ""
                failure = str(error)
                continue
            if link.peer.epoch < peer.epoch:
                link.close("another controller leads there")
                failure = f"{endpoint}: another controller leads there"
                continue
            peer.refused = ""
            peer.link = link
            return
        peer.link = None
        found = next((one for one in self._federation.view().cells if one.name == peer.name), None)
        may_return = not peer.refused
        if found is not None and found.state is CellState.SILENT:
            ago_s = float("inf") if found.silent_us is None else found.silent_us / 1e6
            since = f", its lease ended {ago_s:.0f} s ago" if found.silent_us is not None else ""
            failure = f"it is silent{since}; {failure}"
            may_return = may_return and ago_s < TAKEOVER_S
        raise ApiError(Status.UNAVAILABLE, failure, RETRY_S if may_return else NEVER_S)

    # ---- items of links, for `ControllerLinks` ----

    def on_up(self, link: Link) -> None:
        """A link to a cell is up, dialled by either side."""
        self._peer(link.peer.cell).parts[link] = CallParts(BYTES_MAX)
        log.info("cell %s is linked: %s", link.peer.cell, link.peer.process)

    def on_down(self, link: Link, reason: str) -> None:
        """It has ended; calls that were sent over it may have arrived."""
        peer = self._peer(link.peer.cell)
        peer.parts.pop(link, None)
        self._ended.discard(link)
        if peer.link is link:
            peer.link = None
        peer.forwarder.on_link_down(link)
        log.info("the link to cell %s has ended: %s", link.peer.cell, reason)

    def on_items(self, link: Link, items: Sequence[link_pb2.Item]) -> None:
        """Calls of the cell's users, and answers to calls of ours."""
        if link in self._ended:
            return
        peer = self._peer(link.peer.cell)
        now_s = asyncio.get_running_loop().time()
        for item in items:
            # Each one: a frame holds as many as its sender likes.
            if peer.items.left_share(now_s) <= 0:
                self._end(link, f"more than {ITEMS_PER_S:.0f} items a second")
            if link in self._ended:
                return
            peer.items.take(1.0)
            try:
                if item.HasField("door_reply"):
                    peer.forwarder.on_reply(item.door_reply)
                elif item.HasField("door_call"):
                    self._on_call(link, peer, item.door_call, now_s)
            except Exception:
                # A fault of our own ends this item, neither the link nor the daemon.
                log.exception("an item of cell %s could not be taken", peer.name)

    def _end(self, link: Link, why: str) -> None:
        self._ended.add(link)
        log.warning("the link to cell %s ends: %s", link.peer.cell, why)
        link.close(why)

    # ---- calls of other cells ----

    def _on_call(self, link: Link, peer: _Peer, part: link_pb2.DoorCall, now_s: float) -> None:
        if len(part.process) > NAME_MAX:
            # A controller's own name, no user's word; the answer would carry it.
            self._end(link, f"a call of a process whose name has more than {NAME_MAX} characters")
            return
        try:
            for what, word in (("method", part.method), ("request id", part.request_id), ("user", part.user)):
                if len(word) > NAME_MAX:
                    text = f"the {what} of a call has {len(word)} characters: at most {NAME_MAX}"
                    raise ApiError(Status.INVALID_ARGUMENT, text)
            if not part.part:
                if peer.calls.left_share(now_s) <= 0:
                    after_s = peer.calls.retry_after_s(now_s)
                    raise ApiError(
                        Status.RESOURCE_EXHAUSTED, f"cell {peer.name} makes too many calls a second", after_s
                    )
                peer.calls.take(1.0)
            if len(part.request) > CONTROL_CALL_BYTES_MAX:
                text = (
                    f"a part of {len(part.request)} bytes; at most {CONTROL_CALL_BYTES_MAX} are taken at once"
                )
                raise ApiError(Status.RESOURCE_EXHAUSTED, text)
            # All that is kept of it, with what its sender put beside the request.
            beside_bytes = part.ByteSize() - len(part.request)
            call = peer.parts[link].join(part, now_s)
            if call is None:
                return
            size_bytes = beside_bytes + len(call.request)
            if len(peer.tasks) >= CALLS_MAX or peer.bytes_now + size_bytes > BYTES_MAX:
                text = f"too many calls of cell {peer.name} at once: try again in a moment"
                raise ApiError(Status.RESOURCE_EXHAUSTED, text, RETRY_S)
        except ApiError as error:
            self._refuse(link, part, error)
            return
        self.calls["in"] += 1
        peer.bytes_now += size_bytes
        task = asyncio.get_running_loop().create_task(self._answer(link, peer, call), name="cell call")
        peer.tasks.add(task)
        task.add_done_callback(lambda done: self._on_answered(peer, done, size_bytes))

    @staticmethod
    def _on_answered(peer: _Peer, task: asyncio.Task[None], size_bytes: int) -> None:
        peer.tasks.discard(task)
        peer.bytes_now -= size_bytes
        if not task.cancelled() and task.exception() is not None:
            log.error("a call of cell %s could not be answered", peer.name, exc_info=task.exception())

    async def _answer(self, link: Link, peer: _Peer, call: link_pb2.DoorCall) -> None:
        cell = peer.name
        try:
            principal = await self._principal(cell, call)
        except Exception as error:
            known = refusal_of(error)
            self._audit.on_refused(call.method, f"cell {cell}", known.status, known.text, call.uid, CELL)
            self._refuse(link, call, known)
            return
        log.debug("%s of %s came from cell %s", call.method, principal.name, cell)
        call.deadline_us = min(call.deadline_us, int(DEADLINE_MAX_S * 1e6))
        try:
            async with asyncio.timeout(call.deadline_us / 1e6 + SEND_S):
                reply = await answer_door_call(
                    call, principal, self._answerer, CELL, peer=f"cell {cell}", cell=cell
                )
                await self._reply(link, peer, reply)
        except TimeoutError:
            log.warning("cell %s does not take an answer to its call of %s", cell, call.method)

    async def _reply(self, link: Link, peer: _Peer, reply: link_pb2.DoorReply) -> None:
        """Send an answer back. A large one waits until the cell takes it, and counts as long."""
        size_bytes = len(reply.reply)
        if size_bytes <= CONTROL_CALL_BYTES_MAX:
            size_bytes = 0
        elif peer.bytes_now + size_bytes > BYTES_MAX:
            text = f"the calls of cell {peer.name} and their answers have more than {BYTES_MAX} bytes: ask for less"
            self._refuse(link, reply, ApiError(Status.RESOURCE_EXHAUSTED, text, RETRY_S))
            return
        peer.bytes_now += size_bytes
        try:
            await send_reply(link, reply, in_parts=True)
        finally:
            peer.bytes_now -= size_bytes

    async def _principal(self, cell: str, call: link_pb2.DoorCall) -> Principal:
        """The user here, by this host's name service. Raises `ApiError`."""
        if call.method not in FROM_CELLS:
            text = f"{call.method[:NAME_MAX]} does not pass to other cells: use a host of cell {self.own}"
            raise ApiError(Status.PERMISSION_DENIED, text)
        if call.method == SUBMIT.name and not call.retry and self._federation.is_draining:
            # A repeated call may be one whose job was accepted before the order.
            raise ApiError(
                Status.FAILED_PRECONDITION,
                f"cell {self.own} is draining: it takes no jobs of other cells (esctl federation resume there)",
            )
        name = call.user
        if not name or len(name) > NAME_MAX or not name.isprintable():
            raise ApiError(Status.INVALID_ARGUMENT, "a call from another cell names its user")
        if self._users == "named":
            found = await self._principals.find_named(name)
            if found is None:
                raise ApiError(Status.PERMISSION_DENIED, f"there is no user {name} in cell {self.own}")
        else:
            if call.uid == 0:
                raise ApiError(Status.PERMISSION_DENIED, root_text(CELL))
            found = await self._principals.resolve_relayed(call.uid, call.gid)
            if found.name != name:
                raise ApiError(
                    Status.PERMISSION_DENIED,
                    f"uid {call.uid} is {name} in cell {cell} and {found.name} in cell {self.own}: both need the same "
                    'names and uids, or users = "named" in [federation]',
                )
        if found.uid == 0:
            raise ApiError(Status.PERMISSION_DENIED, root_text(CELL))
        return replace(found, via=CELL)

    def _refuse(self, link: Link, call: link_pb2.DoorCall | link_pb2.DoorReply, error: ApiError) -> None:
        self.refused += 1
        reply = link_pb2.DoorReply(
            process=call.process,
            call=call.call,
            status=error.status,
            text=error.text,
            retry_after_ms=int(error.retry_after_s * 1000),
        )
        link.send(link_pb2.Item(door_reply=reply))

    async def close(self) -> None:
        """Cancel calls under way."""
        tasks = [task for peer in self._peers.values() for task in peer.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
