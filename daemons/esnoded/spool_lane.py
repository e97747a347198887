"""The agent's way to its disk: the actions of its calls in their order, each behind the records that it relies on.

One thread writes, syncs and compacts the spool, so the event loop, and with it the links and the tree, goes on while a disk
takes its time. Invariants: one thing is written at a time, in the order of the calls; the actions of a call are carried out
after its records are in the spool and after the actions of the calls before (`spool_buffer`: when it cannot be
written); a compaction is made of an agent all of whose records are written. What relies on no record waits for none.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from eslurm.core.agent.actions import Action, Answer, Contact, SendReport
from eslurm.core.agent.actions import Spool as SpoolAction
from eslurm.core.agent.machine import Agent
from eslurm.core.agent.records import Folded
from eslurm.core.agent.spool_buffer import RETRY_S, Backlog
from esnoded.spool import Spool

log = logging.getLogger(__name__)

STALL_S = 5.0
"""A write that takes longer is told as one that fails: no new work is taken until it is done."""
WAITING_MAX = 4_096
"""Calls that wait for the disk: of those beyond, reports and answers are dropped, which are sent and asked for again."""
CLOSE_S = 10.0


class SpoolLane:
    """Carries actions out by `carry_out`, which does not raise. `on_writable`: the spool can be written again."""

    def __init__(
        self,
        agent: Agent,
        spool: Spool,
        carry_out: Callable[[Action], None],
        on_writable: Callable[[], None],
    ) -> None:
        self._agent = agent
        self._spool = spool
        self._backlog = Backlog(spool)
        self._carry_out = carry_out
        self._on_writable = on_writable
        self._loop = asyncio.get_running_loop()
        self._writer = ThreadPoolExecutor(1, "spool")
        self._waiting: deque[list[Action]] = deque()
        self._is_busy = False
        self._writing: asyncio.Future[None] | None = None
        self._stalls = ""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._closed = False

    @property
    def error(self) -> str:
        """Why the spool cannot be written; empty when it can, as far as is known."""
        return self._stalls or self._backlog.error

    @property
    def refusal(self) -> str:
        """Why no batch script may be started at present; empty when one may."""
        return self._backlog.refusal

    def take(self, actions: list[Action]) -> None:
        """Carry out the actions of one call in their turn."""
        if self._closed:
            # As if the process had ended before the call: nothing of it was said.
            return
        if not self._is_busy and not any(type(action) is SpoolAction for action in actions):
            self._act(actions)
        else:
            for action in filter(_stands_alone, actions):
                self._carry_out(action)
            rest = [action for action in actions if not _stands_alone(action)]
            if rest and not (len(self._waiting) >= WAITING_MAX and _comes_again(rest)):
                self._waiting.append(rest)
        self._go_on()

    async def close(self) -> None:
        """Let the present write end; what waits behind it is as if it had never been decided."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=CLOSE_S)
        self._writer.shutdown(wait=False)

    # ---- inside ----

    def _go_on(self) -> None:
        while self._waiting and not self._is_busy:
            actions = self._waiting.popleft()
            if any(type(action) is SpoolAction for action in actions):
                self._write(partial(self._backlog.write, actions), actions)
            else:
                self._act(actions)
        if not self._is_busy and self._spool.wants_compaction and not self._backlog.is_behind:
            self._write(partial(self._compact, self._agent.folded()))

    def _act(self, actions: Iterable[Action]) -> None:
        # What a call leads to at once comes behind the rest of it.
        self._is_busy = True
        try:
            for action in actions:
                if not self._backlog.hold(action):
                    self._carry_out(action)
        finally:
            self._is_busy = False

    def _write(self, work: Callable[[], None], actions: Iterable[Action] = ()) -> None:
        self._is_busy = True
        before = self._backlog.error
        self._timers["stall"] = self._loop.call_later(STALL_S, self._on_stall)
        self._writing = self._loop.run_in_executor(self._writer, work)
        self._writing.add_done_callback(partial(self._on_written, before, actions))

    def _on_written(self, before: str, actions: Iterable[Action], done: asyncio.Future[None]) -> None:
        self._writing = None
        self._is_busy = False
        self._timers.pop("stall").cancel()
        fault = done.exception()
        if self._closed:
            return
        if fault is not None:
            log.error("records could not be written: what relies on them is not done", exc_info=fault)
            actions = ()
        if self._stalls:
            log.warning("the spool takes what is written again")
            self._stalls = ""
            self._agent.on_storage(self._backlog.error)
        self._on_storage(before)
        self._act(actions)
        self._go_on()

    def _on_stall(self) -> None:
        self._stalls = f"a write takes longer than {STALL_S:g} s"
        log.error("the spool: %s, no new work is taken until it is done", self._stalls)
        self._agent.on_storage(self._stalls)

    def _on_retry(self) -> None:
        del self._timers["retry"]
        if self._is_busy:
            self._retry_later()
        else:
            self._write(self._backlog.retry)

    def _retry_later(self) -> None:
        if "retry" not in self._timers:
            self._timers["retry"] = self._loop.call_later(RETRY_S, self._on_retry)

    def _on_storage(self, before: str) -> None:
        """See whether the spool has become writable, or ceased to be."""
        error = self._backlog.error
        if error != before:
            self._agent.on_storage(error)
        if error and not before:
            log.error("the spool cannot be written, no new work is taken until it can: %s", error)
        elif before and not error:
            log.warning("the spool can be written again")
        if error:
            self._retry_later()
        self._act(self._backlog.take_released())
        if before and not error:
            # Offers and departures were not sent meanwhile.
            self._on_writable()

    def _compact(self, state: Folded) -> None:
        try:
            self._spool.compact(state)
        except OSError as error:
            log.error("the spool cannot be compacted: %s", error)


def _stands_alone(action: Action) -> bool:
    """Whether it relies on no record and on no action before it."""
    return type(action) is Contact or (type(action) is Answer and action.stands_alone)


def _comes_again(actions: Iterable[Action]) -> bool:
    return all(type(action) is SendReport or type(action) is Answer for action in actions)
