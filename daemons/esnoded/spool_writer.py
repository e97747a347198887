"""The thread that writes, syncs and compacts the spool, so that the event loop goes on while a disk takes its time.

Invariant: it does one order at a time and reports each on the event loop, by `on_done` (the text of the error, or
empty) or, for a fault that is not the disk's, by `on_fault`; after `close` it reports nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from eslurm.core.agent.pipeline import CompactSpool, SpoolOrder, Storage, carry_out

log = logging.getLogger(__name__)

CLOSE_S = 10.0


class SpoolWriter:
    """Carries out orders about one spool."""

    def __init__(self, spool: Storage, on_done: Callable[[str], None], on_fault: Callable[[], None]) -> None:
        self._spool = spool
        self._on_done = on_done
        self._on_fault = on_fault
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "spool")
        self._writing: asyncio.Future[str] | None = None
        self._closed = False

    def begin(self, order: SpoolOrder) -> None:
        """Do this; the one before is done."""
        self._writing = self._loop.run_in_executor(self._thread, carry_out, order, self._spool)
        self._writing.add_done_callback(partial(self._report, order))

    async def close(self) -> None:
        """Let the present order end, for so long as is reasonable."""
        self._closed = True
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=CLOSE_S)
        self._thread.shutdown(wait=False)

    def _report(self, order: SpoolOrder, done: asyncio.Future[str]) -> None:
        self._writing = None
        fault = done.exception()
        if self._closed:
            return
        if fault is not None:
            log.error("records could not be written: what relies on them is not done", exc_info=fault)
            self._on_fault()
            return
        error = done.result()
        if error and type(order) is CompactSpool:
            log.error("the spool cannot be compacted: %s", error)
        self._on_done(error)
