"""The agent's way up: one satellite at a time, round robin; the controller as the last resort (E-16)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from eslurm.ports.link import Link, LinkError, Links

log = logging.getLogger(__name__)

RETRY_MIN_S = 0.1
RETRY_MAX_S = 2.0
SATELLITE_RETRY_S = 10.0


class Uplink:
    """`first` says where the round begins, so that many agents spread over the satellites.

    `on_change` is called with the new link, or None when there is none.
    """

    def __init__(
        self,
        links: Links,
        satellites: Sequence[str],
        controller: str,
        first: int,
        on_change: Callable[[Link | None], None],
    ) -> None:
        turn = first % len(satellites) if satellites else 0
        self._satellites = (*satellites[turn:], *satellites[:turn])
        self._controller = controller
        self._links = links
        self._on_change = on_change
        self._next = 0
        self._told: dict[str, str] = {}
        self.link: Link | None = None

    async def run(self) -> None:
        """Keep a way up until cancelled."""
        wait_s = RETRY_MIN_S
        while True:
            link = await self._find_satellite()
            at_controller = False
            if link is None and self._controller:
                link = await self._dial(self._controller)
                at_controller = link is not None
            if link is None:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_MAX_S)
                continue
            wait_s = RETRY_MIN_S
            await self._use(link, at_controller)

    async def _use(self, link: Link, at_controller: bool) -> None:
        """Stay with this link until it ends, or until a satellite is back when it leads to the controller."""
        self._set(link)
        while not link.closed.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(SATELLITE_RETRY_S if at_controller else None):
                    await link.closed.wait()
            if at_controller and not link.closed.is_set():
                better = await self._find_satellite()
                if better is not None:
                    link, at_controller = better, False
                    self._set(link)
        log.info("the way up has ended: %s", link.close_reason)
        self._set(None)

    async def _find_satellite(self) -> Link | None:
        for _ in self._satellites:
            link = await self._dial(self._satellites[self._next])
            if link is not None:
                return link
            self._next = (self._next + 1) % len(self._satellites)
        return None

    async def _dial(self, endpoint: str) -> Link | None:
        try:
            link = await self._links.get(endpoint)
        except LinkError as error:
            if self._told.get(endpoint) != str(error):
                self._told[endpoint] = str(error)
                log.warning("no link to %s: %s", endpoint, error)
            return None
        self._told.pop(endpoint, None)
        return None if link.closed.is_set() else link

    def _set(self, link: Link | None) -> None:
        self.link = link
        if link is not None:
            log.info("the way up is %s %s", link.peer.role, link.peer.endpoint)
        self._on_change(link)
