"""I/O around the core's broadcaster: committed effects go out, answers enter the inbox; ticks, addresses.

`core.dispatch.broadcaster` decides content, addressees, retries and time-outs, as in the simulator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from esctld.lead.dispatcher import Dispatcher
from esctld.lead.launch_attachments import BlobAttachments
from esctld.lead.planner import Planner
from esctld.lead.satellites import LinkedSatellites
from esctld.lead.site import SiteSigner
from eslurm.core.control.reactor import Batch
from eslurm.core.control.timers import next_tick_in_us
from eslurm.core.dispatch.broadcaster import DEADLINE_US, Broadcaster, Deliver, Gathered
from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.dispatch.satellite_pool import SatelliteStatus
from eslurm.core.model import facts
from eslurm.core.model.messages import Message, Tick
from eslurm.core.model.node import Node
from eslurm.core.model.protocol import Command, Measure
from eslurm.core.model.units import SECOND_US
from eslurm.core.relay.messages import DEFAULT_TUNING
from eslurm.core.relay.results import EMPTY, Results
from eslurm.core.state.cluster import State
from eslurm.links.codec import encode_command
from eslurm.links.endpoint_directory import EndpointDirectory
from eslurm.links.hello import LocalPeer
from eslurm.links.relay_driver import RelayDriver
from eslurm.ports.link import Links, Wanted
from eslurm.security.sealing import Purpose
from eslurm.telemetry.clocks import boot_us

log = logging.getLogger("esctld.broadcast_driver")
ASK_MARGIN_S = 2.0
"""The relay answers by a question's deadline; so much later it is given up all the same."""


def _tell_bug(bug: Exception) -> None:
    log.error("an effect could not be sent", exc_info=bug)


def _not_counted_us() -> int:
    """Lead of CLOCK_BOOTTIME over the event loop's clock, which stops while the host sleeps."""
    return boot_us() - int(asyncio.get_running_loop().time() * SECOND_US)


class BroadcastDriver:
    """Call `on_committed` after each batch; run `tick` as a task. `driver` carries the broadcaster's relay over links."""

    def __init__(
        self,
        state: State,
        book: EndpointDirectory,
        local: LocalPeer,
        planner: Planner,
        satellites: LinkedSatellites,
        site: SiteSigner,
        attachments: BlobAttachments,
    ) -> None:
        self._state = state
        self._book = book
        self._local = local
        self._planner = planner
        self._satellites = satellites
        self._site = site
        self._attachments = attachments
        self._began_awake_us = _not_counted_us()
        self.broadcaster = Broadcaster(
            state, satellites.roster, self._seal, DEFAULT_TUNING, attachments, _tell_bug, self._asleep_us
        )
        self._leads = False
        self._told_ahead_us = 0
        self._asked: dict[int, asyncio.Future[Results]] = {}
        self._enter(list(state.nodes.values()))

    def attach(self, dispatcher: Dispatcher, links: Links) -> RelayDriver:
        """Connect the inbox and the links; returns the driver for the links' items."""
        self._dispatcher = dispatcher
        # The broadcaster's times are the cluster's, because commands expire by them, but they never jump.
        origin_us = dispatcher.now_us() - int(asyncio.get_running_loop().time() * SECOND_US)
        self.driver = RelayDriver(
            self.broadcaster,
            links,
            self._find_endpoint,
            deliver=self._deliver,
            origin_us=origin_us,
            wanted=self._wanted,
        )
        self._attachments.connect(self.driver.attach, self.driver.detach, self._send_all)
        return self.driver

    def lead(self) -> None:
        """After a start: owed effects are sent again as their nodes register, and nodes are called."""
        self._leads = True
        self.driver.perform(self.broadcaster.lead(self.driver.now_us()))

    def awake_us(self) -> int:
        """The broadcaster's time plus this host's sleep: for ages that must not seem smaller."""
        return self.driver.now_us() + self._asleep_us()

    def _asleep_us(self) -> int:
        return _not_counted_us() - self._began_awake_us

    def on_satellite_status(self, number: int, status: SatelliteStatus) -> None:
        """A satellite answered a ping."""
        if self._leads:
            self.driver.perform(self.broadcaster.on_satellite_status(number, status, self.driver.now_us()))

    def on_satellite_down(self, number: int, why: str) -> None:
        """The last link to a satellite has ended."""
        self.driver.perform(self.broadcaster.on_satellite_down(number, why, self.driver.now_us()))

    async def ask(self, nodes: tuple[int, ...], question: Measure) -> Results:
        """The answers of these nodes to a question; those that are silent until its deadline are unreached, or missing."""
        number, actions = self.broadcaster.ask(nodes, question, self.driver.now_us())
        answered: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        self._asked[number] = answered
        try:
            self.driver.perform(actions)
            async with asyncio.timeout(DEADLINE_US["measure"] / SECOND_US + ASK_MARGIN_S):
                return await answered
        except TimeoutError:
            return EMPTY
        finally:
            self._asked.pop(number, None)

    # ---- after a commit ----

    def on_committed(self, messages: Sequence[Message], batch: Batch) -> None:
        """The batch is durable: its effects may go out."""
        registered = [fact.number for fact in batch.facts if isinstance(fact, facts.NodeRegistered)]
        if registered:
            self._enter([self._state.nodes[number] for number in registered])
        self._planner.look()
        self.driver.perform(self.broadcaster.on_committed(messages, batch, self.driver.now_us()))

    def _enter(self, nodes: list[Node]) -> None:
        """Enter nodes' addresses into the book under a new revision."""
        entries = [
            (node.number, node.name, node.endpoint, node.incarnation) for node in nodes if node.endpoint
        ]
        if entries:
            self._book.put(self._book.revision + 1, entries)
            self._local.book_revision = self._book.revision

    # ---- for the broadcaster ----

    def _find_endpoint(self, number: int) -> str | None:
        return self._satellites.endpoint(number) or self._book.find_endpoint(number)

    def _wanted(self, number: int) -> Wanted:
        if self._satellites.endpoint(number) is not None:
            return Wanted("satellite")
        return self._book.wanted(number)

    def _seal(self, commands: Sequence[Command]) -> list[bytes]:
        ahead_us = self.broadcaster.dating.ahead_us
        if ahead_us != self._told_ahead_us:
            self._told_ahead_us = ahead_us
            log.error(
                "the clocks of most nodes are more than %d s ahead of the cluster's time: commands are dated so much later; "
                "check the time service of this host",
                ahead_us // SECOND_US,
            )
        return self._site.seal_together(Purpose.COMMAND, [encode_command(command) for command in commands])

    def _deliver(self, news: Deliver) -> None:
        if isinstance(news.message, Gathered):
            answered = self._asked.pop(news.message.question, None)
            if answered is not None and not answered.done():
                answered.set_result(news.message.results)
            return
        self._dispatcher.post(news.message)

    def _send_all(self, sends: Sequence[Send]) -> None:
        now_us = self.driver.now_us()
        self.driver.perform(self.broadcaster.send(sends, now_us))

    # ---- around the clock ----

    async def tick(self) -> None:
        """Fire the core's timers as they are due."""
        while True:
            await asyncio.sleep(next_tick_in_us(self._state, self._dispatcher.now_us()) / SECOND_US)
            await self._dispatcher.decided(Tick())
