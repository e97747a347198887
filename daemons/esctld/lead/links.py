"""The controller's ends of links: relay items to the driver, reports into the inbox, acknowledgements after the commit;
calls through other API sockets: a standby's, which equals our own, a login host's, open to every user, and a node's, open
to users with jobs there. Items of other cells go to `cell_links`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from esctld.lead.dispatcher import Dispatcher
from esctld.lead.leadership import Standbys
from esctld.lead.origins import origin_of, why_not_call, why_not_process, why_not_report
from esctld.lead.satellites import LinkedSatellites, status_from_pb
from eslurm.api.audit import CallAudit
from eslurm.api.authoriser import root_text
from eslurm.api.forward import CallParts, answer_door_call, send_reply
from eslurm.api.principals import Principals
from eslurm.api.status import refusal_of
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.dispatch.satellite_pool import SatelliteStatus
from eslurm.core.model.hostlist import fold, holds
from eslurm.core.model.messages import Reports
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.protocol import Registration, RegistrationReply, Report, ReportAck
from eslurm.core.state.cluster import State
from eslurm.links.blobs import BlobExchange
from eslurm.links.codec import CodecError, report_ack_to_pb, report_from_pb
from eslurm.links.endpoint_directory import EndpointDirectory
from eslurm.links.relay_driver import RelayDriver
from eslurm.links.relay_envelopes import EnvelopeError
from eslurm.ports.api import Answerer, ApiError, Status
from eslurm.ports.link import Link
from eslurm.telemetry.clocks import wall_us
from eslurm.v1 import link_pb2

if TYPE_CHECKING:
    from esctld.lead.cell_links import CellLinks

log = logging.getLogger("esctld.links")

DOOR_CALLS_MAX = 4096
DOOR_CALLS_PER_NODE_MAX = 1024
"""Calls under way from one node or login host: what one of them keeps waiting must not keep the others out."""
RETRY_AFTER_MS = 250
"""Retry time of a call that found no room: most calls take a few milliseconds."""


class Caller(Protocol):
    """Sends commands to nodes, and needs the satellites' state: the broadcast driver."""

    def on_satellite_status(self, number: int, status: SatelliteStatus) -> None:
        """A satellite answered a ping."""
        ...

    def on_satellite_down(self, number: int, why: str) -> None:
        """The last link to a satellite has ended."""
        ...


class ControllerLinks:
    """Implements `ports.link.LinkSink`."""

    def __init__(
        self,
        state: State,
        book: EndpointDirectory,
        satellites: LinkedSatellites,
        standbys: Standbys,
        principals: Principals,
        caller: Caller,
        revoked: Callable[[], Collection[bytes]],
        count_foreign: Callable[[], None],
    ) -> None:
        """`revoked` are the serials of revoked memberships; `count_foreign` counts items that a host sends for others."""
        self._revoked = revoked
        self._count_foreign = count_foreign
        self._told: WeakSet[Link] = WeakSet()
        self._state = state
        self._book = book
        self._satellites = satellites
        self._standbys = standbys
        self._principals = principals
        self._caller = caller
        self._reports: list[Report] = []
        self._unanswered: dict[tuple[str, int], Link] = {}
        self._parts: dict[Link, CallParts] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._calls_from: Counter[int] = Counter()

    def attach(
        self,
        driver: RelayDriver,
        dispatcher: Dispatcher,
        blobs: BlobExchange,
        answerer: Answerer,
        audit: CallAudit | None = None,
        cells: CellLinks | None = None,
    ) -> None:
        """Set the receivers of items. Without `cells` no link to one is ever made."""
        self._cells = cells
        self._audit = audit or CallAudit()
        self._driver = driver
        self._dispatcher = dispatcher
        self._blobs = blobs
        self._answerer = answerer

    # ---- LinkSink ----

    def on_up(self, link: Link) -> None:
        """A link to a satellite, a standby, an agent that found no satellite, or another cell is up."""
        if link.peer.cell:
            assert self._cells is not None
            self._cells.on_up(link)
            return
        if link.peer.role == "controller":
            self._parts[link] = CallParts()
            standby = self._standbys.add(link, wall_us())
            log.info("standby %s is linked", standby.name)
            return
        if link.peer.role != "satellite":
            # Not a reason to call all nodes: with no satellite left, hundreds come within seconds.
            self._driver.on_up(link)
            return
        refusal = self._satellites.add(link, self._driver.now_us())
        if refusal:
            log.warning("%s at %s was refused: %s", link.peer.process, link.peer.endpoint, refusal)
            link.close(refusal)
            return
        self._driver.on_up(link)
        log.info("satellite %s is linked", link.peer.process)

    def on_down(self, link: Link, reason: str) -> None:
        """The link is down; its broadcasts are adopted."""
        if link.peer.cell:
            assert self._cells is not None
            self._cells.on_down(link, reason)
            return
        standby = self._standbys.remove(link)
        if standby is not None:
            del self._parts[link]
            log.info("standby %s is gone: %s", standby.name, reason)
            return
        number = self._satellites.remove(link)
        if number is not None:
            # First: what it had to do must not be given back to it.
            self._caller.on_satellite_down(number, reason)
            log.warning("satellite %s is gone: %s", link.peer.process, reason)
        self._parts.pop(link, None)
        self._driver.on_down(link)

    def on_items(self, link: Link, items: Sequence[link_pb2.Item]) -> None:
        """Process items of satellites and agents."""
        if link.peer.cell:
            assert self._cells is not None
            self._cells.on_items(link, items)
            return
        for item in items:
            try:
                self._take(link, item)
            except (CodecError, EnvelopeError) as error:
                trace = {"trace": link.traceparent}
                log.warning("%s sent what cannot be read: %s", link.peer.process, error, extra=trace)
            except Exception:
                # A fault of our own ends this item, neither the link nor the daemon.
                trace = {"trace": link.traceparent}
                log.exception("an item of %s could not be taken", link.peer.process, extra=trace)

    def _take(self, link: Link, item: link_pb2.Item) -> None:
        match item.WhichOneof("kind"):
            case "report":
                self._on_report(link, item.report)
            case "broadcast_reply":
                self._driver.on_reply(link, item.broadcast_reply)
            case "broadcast_ack":
                self._driver.on_ack(link, item.broadcast_ack)
            case "satellite_status":
                number = self._satellites.number_of(link)
                if number is not None:
                    self._caller.on_satellite_status(number, status_from_pb(item.satellite_status))
            case "book_pull":
                for part in self._book.since(item.book_pull.revision):
                    link.send(part)
            case "blob_request":
                self._blobs.on_request(link, item.blob_request)
            case "door_call":
                self._call(link, item.door_call)
            case "standby_status":
                self._standbys.note(link, item.standby_status.configuration)

    # ---- reports: one message per tick, however many came ----

    def _on_report(self, link: Link, message: link_pb2.Report) -> None:
        origin = origin_of(link, message.origin)
        why = why_not_process(link, origin, message.process, self._revoked())
        if why:
            self._drop(link, "report", why)
            return
        report = report_from_pb(message)
        why = why_not_report(origin, report, self._state.nodes)
        if why:
            self._drop(link, "report", why)
            if isinstance(report.body, Registration):
                reply = RegistrationReply(report.body.name, refused=why)
                ack = ReportAck(report.process, (report.seq,), (reply,))
                link.send(link_pb2.Item(report_ack=report_ack_to_pb(ack)))
            return
        # Agents send again what is not acknowledged: while the store is away once is enough.
        known = (report.process, report.seq) in self._unanswered
        self._unanswered[report.process, report.seq] = link
        if known:
            return
        if not self._reports:
            asyncio.get_running_loop().call_soon(self._post_reports)
        self._reports.append(report)

    def _drop(self, link: Link, what: str, why: str) -> None:
        """Count an item that a host sends for others; log the first of each link."""
        self._count_foreign()
        if link not in self._told:
            self._told.add(link)
            log.warning("a %s by %s was refused: %s", what, link.peer.process, why)

    def _post_reports(self) -> None:
        came, self._reports = self._reports, []

        def acknowledge(answer: BatchAnswer) -> None:
            assert isinstance(answer, tuple)
            # By the way that each process came last.
            links = {one.process: self._unanswered.pop((one.process, one.seq)) for one in came}
            for ack in answer:
                assert isinstance(ack, ReportAck)
                links[ack.process].send(link_pb2.Item(report_ack=report_ack_to_pb(ack)))

        self._dispatcher.post(Reports(tuple(came)), acknowledge)

    # ---- calls that came through other API sockets ----

    def _call(self, link: Link, part: link_pb2.DoorCall) -> None:
        call: link_pb2.DoorCall | None = part
        why = self._why_not(link, part)
        if why:
            self._drop(link, "call", why)
            self._audit.on_refused(part.method, link.peer.process, Status.PERMISSION_DENIED, why, part.uid)
            self._refuse(link, part, Status.PERMISSION_DENIED, why)
            return
        try:
            parts = self._parts_of(link, part)
            if parts is not None:
                call = parts.join(part, asyncio.get_running_loop().time())
        except ApiError as error:
            self._refuse(link, part, error.status, error.text)
            return
        if call is None:
            return
        is_ours = link.peer.role == "controller"
        if len(self._calls) >= DOOR_CALLS_MAX:
            text = "too many calls through agents' API sockets at once: try again in a moment"
            self._refuse(link, call, Status.RESOURCE_EXHAUSTED, text)
            return
        if not is_ours and self._calls_from[call.node] >= DOOR_CALLS_PER_NODE_MAX:
            text = f"too many calls from {self._name(call.node)} at once: try again in a moment"
            self._refuse(link, call, Status.RESOURCE_EXHAUSTED, text)
            return
        task = asyncio.get_running_loop().create_task(self._answer(link, call), name="door call")
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        if not is_ours:
            number = call.node
            self._calls_from[number] += 1
            task.add_done_callback(lambda _done: self._on_answered(number))

    def _why_not(self, link: Link, call: link_pb2.DoorCall) -> str:
        """The reason why a call, or a part of one, is not of the place that it names; empty when it is."""
        if link.peer.role == "controller":
            return ""
        origin = origin_of(link, call.origin)
        return why_not_process(link, origin, call.process, self._revoked()) or why_not_call(
            origin, self._state.nodes.get(call.node), login=call.node in self._state.login
        )

    def _on_answered(self, number: int) -> None:
        self._calls_from[number] -= 1
        if not self._calls_from[number]:
            del self._calls_from[number]

    def _parts_of(self, link: Link, part: link_pb2.DoorCall) -> CallParts | None:
        """The joiner of a call's parts. Raises `ApiError` when it may not come in parts."""
        parts = self._parts.get(link)
        if parts is None and (part.more or part.part):
            if link.peer.role != "login":
                raise ApiError(Status.PERMISSION_DENIED, "only login hosts may send what needs several parts")
            parts = self._parts[link] = CallParts()
        return parts

    async def _answer(self, link: Link, call: link_pb2.DoorCall) -> None:
        via = self._way(link, call)
        refusal = "" if via == "socket" else self._refusal(via, call, origin_of(link, call.origin).names)
        if refusal:
            log.debug(
                "%s of uid %d through %s was refused: %s",
                call.method,
                call.uid,
                self._name(call.node),
                refusal,
            )
            self._audit.on_refused(
                call.method, self._name(call.node), Status.PERMISSION_DENIED, refusal, call.uid, via
            )
            self._refuse(link, call, Status.PERMISSION_DENIED, refusal)
            return
        if via != "socket":
            log.debug("%s of uid %d came through %s", call.method, call.uid, self._name(call.node))
        try:
            principal = await self._principals.resolve_relayed(call.uid, call.gid)
        except Exception as error:
            known = refusal_of(error)
            self._audit.on_refused(
                call.method, self._from(link, call), known.status, known.text, call.uid, via
            )
            self._refuse(link, call, known.status, known.text)
            return
        host, peer = self._host(link, call), self._from(link, call)
        reply = await answer_door_call(call, principal, self._answerer, via, host=host, peer=peer)
        is_login = via == "login"
        in_parts = via == "socket" or link.peer.role == "login"
        await send_reply(link, reply, in_parts=in_parts, is_login=is_login)

    def _host(self, link: Link, call: link_pb2.DoorCall) -> str:
        """The host of that API socket, from its daemon's endpoint; empty if unknown."""
        node = self._state.nodes.get(call.node)
        endpoint = link.peer.endpoint if link.peer.role == "controller" else node.endpoint if node else ""
        return endpoint.rpartition(":")[0].removeprefix("[").removesuffix("]")

    def _from(self, link: Link, call: link_pb2.DoorCall) -> str:
        """Name of the API socket's host, for logs."""
        return f"controller {link.peer.process}" if link.peer.role == "controller" else self._name(call.node)

    def _way(self, link: Link, call: link_pb2.DoorCall) -> str:
        """The way in: see `ports.api.Caller.via`."""
        if link.peer.role == "controller":
            return "socket"
        return "login" if call.node in self._state.login else "agent"

    def _refusal(self, via: str, call: link_pb2.DoorCall, names: str) -> str:
        """The reason why this user may not call from there; empty when allowed."""
        if call.uid == 0:
            return root_text(via)
        if via == "login" or self._has_job(call.uid, call.node, names):
            return ""
        return f"uid {call.uid} has no job on this node ({self._name(call.node)}): {self._elsewhere()}"

    def _has_job(self, uid: int, number: int, names: str) -> bool:
        """Check whether a user holds an allocation on the node now; its agent process may serve several nodes, all in
        `names`.
        """
        view = self._dispatcher.view
        node = view.nodes.get(number)
        if node is None:
            return False
        # Where it listens is the node's own word: alone it would let in users of other hosts.
        same_host = [
            other.number
            for other in view.nodes.values()
            if other.endpoint == node.endpoint and holds(names, other.name)
        ]
        return any(
            view.jobs[job_id].spec.user.uid == uid
            for other in same_host
            for job_id in view.jobs_on.get(other, ())
        )

    def _elsewhere(self) -> str:
        """Hosts for commands, in words: login hosts in service, else all of them."""
        nodes = [self._state.nodes[number] for number in sorted(self._state.login)]
        if not nodes:
            return "use a host of the controller (no login hosts are configured)"
        serving = [node.name for node in nodes if node.state is NodeState.UP]
        return f"use a login host: {fold(serving or [node.name for node in nodes])}"

    def _name(self, number: int) -> str:
        (name,) = self._state.node_names([number])
        return f"login host {name}" if number in self._state.login else name

    @staticmethod
    def _refuse(link: Link, call: link_pb2.DoorCall, status: Status, text: str) -> None:
        reply = link_pb2.DoorReply(
            process=call.process,
            call=call.call,
            status=status,
            text=text,
            retry_after_ms=RETRY_AFTER_MS if status is Status.RESOURCE_EXHAUSTED else 0,
        )
        link.send(link_pb2.Item(door_reply=reply))

    async def close(self) -> None:
        """Cancel calls under way."""
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
