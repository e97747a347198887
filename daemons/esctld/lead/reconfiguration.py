"""The configuration file, read again while this controller leads: by a call, or by a signal to the process.

A thread reads and checks, one file at a time; what may change is the core's decision (`core.control.configuration`), and
the change is one fact. Invariant: a file that is wrong anywhere changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from esctld.config_file import Loaded, load
from eslurm.config.problems import ConfigError
from eslurm.config.restarts import restart_keys
from eslurm.config.sections import Config
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.messages import Changed, Message, Reconfigure, RefusalCode, Refused
from eslurm.ports.api import ApiError, Caller, Status
from eslurm.v1 import controller_pb2 as pb

log = logging.getLogger("esctld.reconfiguration")

WAITING_MAX = 4
RETRY_S = 1.0

Decide = Callable[[Message, Caller], Awaitable[BatchAnswer]]
Request = Callable[[Message], Awaitable[BatchAnswer]]


class Reconfiguration:
    """Answers Reconfigure. `started` is the file as this process has it; `standbys` are the names of linked controllers."""

    def __init__(
        self,
        path: Path,
        started: Config,
        decide: Decide,
        request: Request,
        standbys: Callable[[], Sequence[str]],
    ) -> None:
        self._path = path
        self._started = started
        self._decide = decide
        self._request = request
        self._standbys = standbys
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def call(self, request: pb.ReconfigureRequest, caller: Caller) -> pb.ReconfigureReply:
        """Read the file and take its live parts, for an administrator; the reply says line by line what came of it."""
        read = await self._read()
        message = Reconfigure(caller.principal, read.core, read.digest, request.dry_run)
        answer = await self._decide(message, caller)
        assert isinstance(answer, Changed)
        keys = restart_keys(self._started, read.file)
        if not request.dry_run:
            _log(answer, keys, f"by {caller.principal.name}")
        return pb.ReconfigureReply(
            problems=[
                pb.Problem(what=problem.what, code=problem.code.value, text=problem.text)
                for problem in answer.problems
            ],
            changed=answer.notes,
            needs_restart=keys,
            standbys=self._standbys() if answer.count else (),
        )

    async def by_signal(self) -> None:
        """Do the same for a signal; what came of it is in the log."""
        try:
            read = await self._read()
            answer = await self._request(Reconfigure(None, read.core, read.digest))
        except (Refused, ApiError) as error:
            log.error("nothing has changed: %s", error.text)
            return
        if isinstance(answer, Refused):
            log.error("nothing has changed: %s", answer.text)
            return
        assert isinstance(answer, Changed)
        _log(answer, restart_keys(self._started, read.file), "by SIGHUP")

    async def _read(self) -> Loaded:
        """The file as it is now. Raises `Refused` with the key and the way out, `ApiError` when too many wait."""
        if self._waiting >= WAITING_MAX:
            text = "the configuration is being read for others already: try again in a moment"
            raise ApiError(Status.RESOURCE_EXHAUSTED, text, RETRY_S)
        self._waiting += 1
        try:
            async with self._turn:
                read = await asyncio.to_thread(load, self._path)
        except ConfigError as error:
            raise Refused(RefusalCode.INVALID, str(error)) from None
        finally:
            self._waiting -= 1
        name = self._started.cluster.name
        if read.core.cluster != name:
            raise Refused(
                RefusalCode.INVALID,
                f"{self._path}: cluster.name: '{read.core.cluster}' is another cluster: this one is {name}",
            )
        return read


def _log(answer: Changed, keys: Sequence[str], by: str) -> None:
    for problem in answer.problems:
        log.error("nothing has changed (%s): %s: %s", by, problem.what, problem.text)
    for line in answer.notes:
        log.info("configuration (%s): %s", by, line)
    for key in keys:
        log.warning("configuration (%s): %s: needs a restart", by, key)
    if not (answer.problems or answer.notes or keys):
        log.info("configuration (%s): nothing has changed", by)
