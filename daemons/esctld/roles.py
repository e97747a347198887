"""One controller process and its roles: standby until it leads, standby again after a handover.

Invariant: the API socket is open in every role and between two of them; calls that cannot be answered are refused as
UNAVAILABLE, so commands retry. A process has one role at a time, and nothing of a former role runs beside it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from esctld.daemon import OWNER, Controller, ControllerOptions
from esctld.lead.gc_tuning import give_back_to_collector
from esctld.lead.leadership import give_up
from esctld.port import HeldPort
from esctld.standby.leader_link import NO_LEADER, LeaderLink
from esctld.standby.standby import Standby
from esctld.status import LEADER, STANDBY, STARTING, ControllerStatus
from eslurm.api.authoriser import Authoriser
from eslurm.api.methods import Method
from eslurm.api.principals import Principals
from eslurm.api.unix_server import UnixServer
from eslurm.core.control.commit_pipeline import InboxFull, NotNow, Unsettled
from eslurm.core.dispatch.standby import Lead
from eslurm.ports.api import Answered, Answerer, Caller, Status
from eslurm.ports.store import FenceLost, Store
from eslurm.telemetry import logs
from eslurm.telemetry.metrics import ControllerMetrics
from eslurm.telemetry.status import Health
from eslurm.transport.options import reachable

log = logging.getLogger("esctld")


class AnswererSwitch:
    """The `Answerer` of the process's API socket: it passes calls to that of the present role."""

    def __init__(self) -> None:
        self._answerer: Answerer | None = None

    def lead_to(self, answerer: Answerer | None) -> None:
        """Pass calls to this answerer from now on; None: refuse them for the moment."""
        self._answerer = answerer

    async def answer(self, method: Method[Any, Any], payload: bytes, caller: Caller) -> Answered:
        """See `ports.api.Answerer`."""
        if self._answerer is None:
            return Answered(Status.UNAVAILABLE, NO_LEADER, b"")
        return await self._answerer.answer(method, payload, caller)


class ControllerProcess:
    """Make it inside the running loop; `run` returns after `stop`, or raises what ends the process."""

    def __init__(self, options: ControllerOptions, store: Store) -> None:
        self._options = options
        self._store = store
        self._stopped = asyncio.Event()
        self._principals = Principals()
        self._metrics = ControllerMetrics()
        self._status = ControllerStatus(self._metrics, options.tls)
        self._switch = AnswererSwitch()
        self._on_hangup: Callable[[], Awaitable[None]] | None = None
        self._reading: asyncio.Task[None] | None = None
        privileged = frozenset(
            (*options.config.cluster.operators, *(options.config.cluster.administrators or ()))
        )
        self._api_server = UnixServer(
            options.socket, self._switch, self._principals, is_privileged=privileged.__contains__
        )

    def stop(self) -> None:
        """End `run` in good order."""
        self._stopped.set()

    def hang_up(self) -> None:
        """Read the configuration file again (SIGHUP): a leader takes it, a standby compares it with what is in force."""
        if self._on_hangup is None:
            log.warning("the configuration is read when this controller leads, which is not yet")
        elif self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_again(self._on_hangup), name="hang up")
        else:
            log.warning("the configuration is being read already: send the signal again when that is done")

    @staticmethod
    async def _read_again(read: Callable[[], Awaitable[None]]) -> None:
        try:
            await read()
        except (InboxFull, NotNow, Unsettled):
            log.error("nothing has changed: the job store does not answer at present")
        except Exception:
            # One signal fails, not the daemon.
            log.exception("the configuration could not be read again")

    async def run(self, ready: asyncio.Future[str]) -> None:
        """Stand by, lead, stand by again ... `ready` gets the endpoint once it leads or could lead at any moment."""
        port = HeldPort(self._options.listen or self._options.config.controller.listen)
        listen = port.endpoint
        endpoint = reachable(listen)

        def announce() -> None:
            if not ready.done():
                ready.set_result(endpoint)

        try:
            # First: two processes of one name would push each other out for ever.
            await self._api_server.start()
            if self._options.watched_at:
                self._status.open(self._options.watched_at)
            while (lead := await self._stand_by(endpoint, announce)) is not None:
                await self._lead(lead, listen, announce, must_fit=not ready.done())
                if self._stopped.is_set():
                    return
                give_back_to_collector()
        finally:
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.gather(self._reading, return_exceptions=True)
            await self._status.close()
            await self._api_server.stop()
            self._principals.close()
            port.close()

    async def _stand_by(self, endpoint: str, announce: Any) -> Lead | None:
        """Stand by until it leads; None when it is stopped before."""
        options = self._options

        def link(on_lost: Any) -> LeaderLink:
            return LeaderLink(
                *(options.config.cluster.name, OWNER, options.name, endpoint),
                *(options.member.credentials, on_lost, options.tls),
            )

        standby = Standby(
            *(self._store, OWNER, options.name, endpoint, options.lease_us, link),
            on_warm=announce,
            config_file=options.config_file,
        )
        self._on_hangup = standby.look_at_file
        self._switch.lead_to(standby.answerer)
        self._status.becomes(STANDBY, standby.health)
        won = asyncio.create_task(standby.run(), name="standby")
        stopped = asyncio.create_task(self._stopped.wait(), name="stop")
        try:
            await asyncio.wait({won, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return won.result() if won.done() else None
        finally:
            self._on_hangup = None
            self._switch.lead_to(None)
            for task in (won, stopped):
                task.cancel()
            await asyncio.gather(won, stopped, return_exceptions=True)

    async def _lead(self, lead: Lead, listen: str, announce: Any, *, must_fit: bool) -> None:
        controller = Controller(
            self._options.read_again(),
            self._store,
            lead,
            listen,
            self._principals,
            self._metrics,
            self._stopped,
            # The first start is watched by an administrator, a later takeover is not.
            must_fit=must_fit,
        )

        self._status.becomes(LEADER, lambda: Health(False, "takes over the lead, and does not serve yet"))
        logs.set_always(epoch=lead.epoch)

        def serving(authoriser: Authoriser) -> None:
            self._status.becomes(LEADER, controller.status.health, controller.status.families)
            self._switch.lead_to(authoriser)
            self._on_hangup = controller.reconfigure
            log.info("serving %s", self._options.socket)
            announce()

        try:
            await controller.run(serving)
        except FenceLost:
            raise
        except Exception:
            await give_up(self._store)
            raise
        finally:
            self._on_hangup = None
            self._switch.lead_to(None)
            self._status.becomes(STARTING, lambda: Health(False, "does not lead any more"))
            logs.set_always(epoch=None)
