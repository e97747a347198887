"""A few threads with a bounded queue in front, awaited from the event loop.

Invariant: at most `waiting_max` calls are queued or running; one more is refused, never blocked. No call waits for ever: a
database that does not answer counts as absent.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from eslurm.ports.store import StoreFailed, StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")


class Lane:
    """Runs blocking calls; with one thread they run one at a time, in the order they came."""

    def __init__(self, name: str, threads: int, waiting_max: int, answer_s: float) -> None:
        """`answer_s` bounds the wait of `run` for a call, in seconds."""
        self._name = name
        self._answer_s = answer_s
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=f"eslurm-{name}")
        self._waiting_max = waiting_max
        self._waiting = 0
        self._lock = threading.Lock()
        self._closed = False

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The call's result. StoreUnavailable if the queue is full or the call takes too long, StoreFailed after `close`.

        Cancelling and time-outs end the wait; a started call still goes on.
        """
        try:
            async with asyncio.timeout(self._answer_s) as limit:
                return await self.run_to_its_end(call, *args, **kwargs)
        except TimeoutError:
            if not limit.expired():
                raise
            raise StoreUnavailable(f"the {self._name} has not answered for {self._answer_s:g} s") from None

    async def run_to_its_end(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `run`, for a call that may take any time."""
        if self._closed:
            raise StoreFailed("the store is closed")
        with self._lock:
            if self._waiting >= self._waiting_max:
                raise StoreUnavailable(f"{self._waiting} calls wait for the {self._name} already")
            self._waiting += 1
        future = self._executor.submit(call, *args, **kwargs)
        future.add_done_callback(self._leave)
        return await asyncio.wrap_future(future)

    @property
    def waiting(self) -> int:
        """Number of calls queued or running now."""
        return self._waiting

    def drop(self, call: Callable[[], object]) -> None:
        """Run a clean-up without waiting for it: on a thread, or here and now after `close`."""
        if self._closed:
            call()
        else:
            self._executor.submit(call)

    async def close(self, last: Callable[[], object]) -> None:
        """Refuses new calls, lets those under way finish, then runs `last`. Safe to repeat."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._finish, last)

    def _finish(self, last: Callable[[], object]) -> None:
        self._executor.shutdown(wait=True)
        last()

    def _leave(self, _: object) -> None:
        with self._lock:
            self._waiting -= 1
