"""A standby's own configuration file beside the configuration in force: a takeover reads this file, so a difference is told.

Invariant: nothing here changes what a takeover does; there the core refuses a file that was replaced
(`core.control.configuration`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from esctld.config_file import load
from eslurm.config.problems import ConfigError
from eslurm.core.state.cluster import State

log = logging.getLogger("esctld.standby")

LOOK_S = 5.0
OLDER = "its configuration file is older than the one in force: copy that one to its host"
OTHER = "its configuration file is not the one in force: it counts when this controller leads"


class OwnFile:
    """Run it as a task; `problem` is empty while nothing is wrong. `on_changed` is called with each new one."""

    def __init__(
        self, path: Path, state: Callable[[], State | None], on_changed: Callable[[str], None]
    ) -> None:
        self._path = path
        self._state = state
        self._on_changed = on_changed
        self._seen: tuple[int, ...] | None = None
        self._digest = b""
        self._unusable = ""
        self.problem = ""

    async def run(self) -> None:
        """Look every few seconds, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Compare the file with what the log has brought into force by now."""
        try:
            await asyncio.to_thread(self._read)
        except Exception:
            # A file that nothing here obeys does not end a standby.
            log.exception("%s could not be checked", self._path)
            self._unusable = "its configuration file could not be checked: see its log"
        state = self._state()
        if state is None:
            return
        problem = self._unusable or _problem(self._digest, state.config_digests)
        if problem != self.problem:
            self.problem = problem
            if problem:
                log.warning("%s: %s", self._path, problem)
            else:
                log.info("%s is the configuration in force", self._path)
            self._on_changed(problem)

    def _read(self) -> None:
        try:
            found = self._path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
            if seen == self._seen:
                return
            self._seen = seen
            self._digest = load(self._path).digest
            self._unusable = ""
        except ConfigError as error:
            self._unusable = f"its configuration file cannot be used: {error}"
        except OSError as error:
            self._seen = None
            self._unusable = f"its configuration file cannot be read: {error.strerror}"


def _problem(digest: bytes, in_force: tuple[bytes, ...]) -> str:
    """The problem of a file with this digest; none is known before a leader of this release has read one."""
    if not in_force or digest == in_force[-1]:
        return ""
    return OLDER if digest in in_force else OTHER
