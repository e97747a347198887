"""The agent's uplink, opened on demand: one satellite, a controller as the last resort (E-16).

Invariant: a link that was closed as unused (parked) is no loss: another is found on demand, or when nothing has come down
for so long that the cluster may have lost sight of this process. A satellite that has a link to us already is as good as
one that we dial.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from eslurm.api.methods import Method
from eslurm.links.links import Rng
from eslurm.ports.api import Answered, Answerer, Caller
from eslurm.ports.link import Link, LinkBusy, LinkError, LinkRefused, Links, LinkSilent, Wanted, is_idle_end

log = logging.getLogger(__name__)

SATELLITE = Wanted("satellite")
CONTROLLER = Wanted("controller")
RETRY_MIN_S = 0.1
RETRY_MAX_S = 2.0
SATELLITE_RETRY_S = 10.0
LINE_S = 1.0
"""A satellite that is busy is waited for up to here; with a longer line the next one is asked, too."""
HOPE_S = 15.0
"""Time for which the agent prefers busy or slow satellites over the controller, which could not bear all agents at once;
when no satellite listens any more, it is asked at once.
"""
SILENCE_S = 30.0
"""Without a broadcast for this long (up to twice, so that not all come at once) the way up is opened."""
WAIT_S = 5.0
"""Time for which a call or a blob waits for the uplink."""


class Uplink:
    """`first` says where the round begins, so that many agents spread over the satellites.

    `on_change` is called with the new link, or None when it was lost; of a parked link it does not hear: what was
    on its way then is sent again by the timer of the report queue.
    """

    def __init__(
        self,
        links: Links,
        satellites: Sequence[str],
        controllers: Sequence[str],
        first: int,
        on_change: Callable[[Link | None], None],
        rng: Rng,
    ) -> None:
        turn = first % len(satellites) if satellites else 0
        self._satellites = (*satellites[turn:], *satellites[:turn])
        self._controllers = tuple(controllers)
        self._links = links
        self._on_change = on_change
        self._rng = rng
        self._next = 0
        self._next_controller = 0
        self._told: dict[str, str] = {}
        self._away: set[str] = set()
        self._wanted = asyncio.Event()
        self._found = asyncio.Event()
        self._heard_s = asyncio.get_running_loop().time()
        self.link: Link | None = None

    # ---- senders ----

    def want(self) -> None:
        """Find a way up, unless there is one."""
        self._wanted.set()

    def on_heard(self) -> None:
        """Something came down: the cluster knows where we are."""
        self._heard_s = asyncio.get_running_loop().time()

    def on_epoch(self, owner: str, epoch: int) -> None:
        """A controller leads under this epoch: a link to the one before it leads nowhere. It may have fallen silent
        without an end, and would be noticed by keepalive a minute later.
        """
        link = self.link
        if link is None or link.peer.role != "controller" or link.closed.is_set():
            return
        if link.peer.owner == owner and link.peer.epoch < epoch:
            link.close("another controller leads")

    @property
    def silence_s(self) -> float:
        """Seconds since something came down, or since the start."""
        return max(0.0, asyncio.get_running_loop().time() - self._heard_s)

    async def get(self) -> Link | None:
        """The way up, opened if need be; None when none is found for a while."""
        if self.link is None or self.link.closed.is_set():
            # One that has just ended may not have been noticed yet.
            self._found.clear()
            self.want()
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    await self._found.wait()
        return self.link

    # ---- keeping it ----

    async def run(self) -> None:
        """Open the way up at first and whenever it is wanted, until cancelled."""
        self.on_heard()
        self.want()
        while True:
            await self._until_wanted()
            link, at_controller = await self._seek()
            await self._use(link, at_controller)

    async def _until_wanted(self) -> None:
        loop = asyncio.get_running_loop()
        patience_s = SILENCE_S * (1.0 + self._rng.random())
        while not self._wanted.is_set():
            left_s = self._heard_s + patience_s - loop.time()
            if left_s <= 0:
                log.info("nothing has come down for %.0f s: looking for a way up", patience_s)
                self.on_heard()
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._wanted.wait()

    async def _use(self, link: Link, at_controller: bool) -> None:
        """Stay with this link until it ends, or until a satellite is back when it leads to the controller."""
        self._set(link)
        while not link.closed.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(SATELLITE_RETRY_S if at_controller else None):
                    await link.closed.wait()
            if at_controller and not link.closed.is_set():
                better, _busy_s = await self._ask_satellites()
                if better is not None:
                    link, at_controller = better, False
                    self._set(link)
        self.link = None
        self._found.clear()
        if is_idle_end(link.close_reason):
            log.debug("the way up was parked")
            return
        log.info("the way up has ended: %s", link.close_reason)
        self.want()
        self._on_change(None)

    def _set(self, link: Link) -> None:
        self.link = link
        self._wanted.clear()
        self._found.set()
        log.debug("the way up is %s %s", link.peer.role, link.peer.endpoint)
        self._on_change(link)

    # ---- finding it ----

    async def _seek(self) -> tuple[Link, bool]:
        """A live link, and whether it leads to the controller."""
        loop = asyncio.get_running_loop()
        wait_s = RETRY_MIN_S
        lost_hope_s = loop.time() + HOPE_S
        while True:
            link, busy_s = await self._ask_satellites()
            if link is not None:
                return link, False
            if self._controllers and (busy_s is None or loop.time() > lost_hope_s):
                link, busy_s = await self._ask_controllers()
                if link is not None:
                    return link, True
            if busy_s is None:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_MAX_S)
            else:
                await asyncio.sleep(busy_s)

    async def _ask_satellites(self) -> tuple[Link | None, float | None]:
        """A link to a satellite; or, when one lives but is busy, the time to wait."""
        for endpoint in self._satellites:
            link = self._links.find(endpoint, SATELLITE)
            if link is not None:
                return link, None
        shortest_s: float | None = None
        for _ in self._satellites:
            link, busy_s = await self._dial(self._satellites[self._next], SATELLITE)
            if link is not None:
                return link, None
            if busy_s is not None:
                shortest_s = busy_s if shortest_s is None else min(busy_s, shortest_s)
                if busy_s <= LINE_S:
                    break
            self._next = (self._next + 1) % len(self._satellites)
        return None, shortest_s

    async def _ask_controllers(self) -> tuple[Link | None, float | None]:
        """Like `_ask_satellites`. A standby does not listen, so a controller that answers leads."""
        shortest_s: float | None = None
        for _ in self._controllers:
            link, busy_s = await self._dial(self._controllers[self._next_controller], CONTROLLER)
            if link is not None:
                return link, None
            if busy_s is not None:
                shortest_s = busy_s if shortest_s is None else min(busy_s, shortest_s)
            self._next_controller = (self._next_controller + 1) % len(self._controllers)
        return None, shortest_s

    async def _dial(self, endpoint: str, wanted: Wanted) -> tuple[Link | None, float | None]:
        try:
            link = await self._links.get(endpoint, wanted)
        except (LinkBusy, LinkSilent) as busy:
            # Only a satellite that is busy itself says when to come back.
            return None, busy.retry_after_s or RETRY_MIN_S * (1.0 + self._rng.random())
        except LinkError as error:
            if self._is_news(endpoint, error):
                log.warning("no link to %s: %s", endpoint, error)
            return None, None
        self._told.pop(endpoint, None)
        self._away.discard(endpoint)
        return (None if link.closed.is_set() else link), None

    def _is_news(self, endpoint: str, error: LinkError) -> bool:
        """Check whether to log it: once for each endpoint; once for all when this process is refused for its identity, and
        of controllers only when none answers: a standby does not listen.
        """
        text = str(error)
        if self._told.get(endpoint) == text:
            return False
        is_told = False
        if isinstance(error, LinkRefused):
            self._away.discard(endpoint)
            reason = text.removeprefix(f"{endpoint}: ")
            is_told = any(told.endswith(reason) for told in self._told.values())
        else:
            self._away.add(endpoint)
            if endpoint in self._controllers and not self._away.issuperset(self._controllers):
                return False
        self._told[endpoint] = text
        return not is_told


class OnDemand:
    """A node's API over a way up that may have to be opened first. Implements `ports.api.Answerer`."""

    def __init__(self, uplink: Uplink, answerer: Answerer) -> None:
        self._uplink = uplink
        self._answerer = answerer

    async def answer(self, method: Method[Any, Any], payload: bytes, caller: Caller) -> Answered:
        """See `ports.api.Answerer`."""
        await self._uplink.get()
        return await self._answerer.answer(method, payload, caller)
