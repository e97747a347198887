"""Steps under a supervisor of an earlier version: they end there, and no new ones start there.

Before version 0.2 a supervisor started everything that an agent wrote; now it starts only sealed commands. Invariant: a
step belongs to the one supervisor that has it, and the predecessor is left alone once its last outcome is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Sequence

from eslurm.core.model.step_key import NodeAttempt, StepKey
from eslurm.core.model.step_usage import StepUse
from eslurm.ports.step_runner import (
    StepEndCause,
    StepOrder,
    StepOutcomeSink,
    StepRunnerError,
    StepState,
)
from esnoded.stepd.client import SupervisorClient
from esnoded.stepd.launcher import Connect, SupervisorUnavailable

log = logging.getLogger("esnoded")


class PairedRunner:
    """Implements `eslurm.ports.step_runner.StepRunner` over two supervisors; `start` and `close` as `SupervisorClient`.

    When the predecessor is gone, its successor settles what it has left behind.
    """

    def __init__(
        self, connect: Connect, predecessor: Connect, on_ended: StepOutcomeSink, ring: Callable[[], bytes]
    ) -> None:
        self._new = SupervisorClient(connect, on_ended, ring=ring)
        self._old = SupervisorClient(self._connect_old, on_ended)
        self._predecessor = predecessor
        self._keys: set[StepKey] = set()
        self._is_over = False
        self._closing: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """See `SupervisorClient.start`."""
        self._new.start()
        self._old.start()

    async def close(self) -> None:
        """See `SupervisorClient.close`."""
        await self._old.close()
        if self._closing is not None:
            await self._closing
        await self._new.close()

    def tell_ring(self) -> None:
        """See `SupervisorClient.tell_ring`."""
        self._new.tell_ring()

    @property
    def is_older(self) -> bool:
        """See `SupervisorClient.is_older`: of the supervisor that starts steps."""
        return self._new.is_older

    async def launch(self, order: StepOrder) -> StepState:
        """See `StepRunner.launch`."""
        return await self._new.launch(order)

    async def signal(self, key: StepKey, signum: int) -> bool:
        """See `StepRunner.signal`."""
        return await self._of(key).signal(key, signum)

    async def terminate(self, key: StepKey, cause: StepEndCause, grace_us: int) -> bool:
        """See `StepRunner.terminate`."""
        return await self._of(key).terminate(key, cause, grace_us)

    async def suspend(self, key: StepKey, resume: bool = False) -> bool:
        """See `StepRunner.suspend`."""
        return await self._of(key).suspend(key, resume)

    async def set_limit(self, key: StepKey, time_limit_us: int, credential: bytes = b"") -> bool:
        """See `StepRunner.set_limit`."""
        return await self._of(key).set_limit(key, time_limit_us, credential)

    async def list_steps(self) -> Sequence[StepState]:
        """See `StepRunner.list_steps`."""
        try:
            old = await self._old.list_steps()
        except StepRunnerError:
            # It ended this moment: its successor tells what became of its steps.
            old = ()
        self._keys = {state.key for state in old}
        if not self._keys:
            self._leave()
        return [*old, *await self._new.list_steps()]

    async def acknowledge(self, keys: Collection[StepKey]) -> None:
        """See `StepRunner.acknowledge`."""
        mine = [key for key in keys if key in self._keys]
        if mine and not self._is_over:
            await self._old.acknowledge(mine)
            self._keys.difference_update(mine)
            if not self._keys:
                self._leave()
        await self._new.acknowledge(keys)

    async def contact(self, nodes: Collection[int] = (), at_us: int | None = None) -> None:
        """See `StepRunner.contact`."""
        await self._new.contact(nodes, at_us)
        await self._old.contact(nodes, at_us)

    async def measure(
        self, attempt: NodeAttempt, steps: Collection[int], *, with_pids: bool = False
    ) -> Sequence[StepUse]:
        """See `StepRunner.measure`: one of that age measures nothing."""
        node, job_id, number = attempt
        if any((key.node, key.job_id, key.attempt) == (node, job_id, number) for key in self._keys):
            raise StepRunnerError("the job's steps are those of a supervisor that does not measure steps")
        return await self._new.measure(attempt, steps, with_pids=with_pids)

    async def vacate(self, attempts: Collection[NodeAttempt]) -> None:
        """See `StepRunner.vacate`: one of that age keeps nothing."""
        await self._new.vacate(attempts)

    def _of(self, key: StepKey) -> SupervisorClient:
        return self._old if key in self._keys and not self._is_over else self._new

    def _connect_old(self) -> socket.socket:
        try:
            return self._predecessor()
        except SupervisorUnavailable:
            self._loop.call_soon_threadsafe(self._on_gone)
            raise

    def _on_gone(self) -> None:
        self._leave()
        # As it comes again it takes over what is left.
        self._new.reconnect()

    def _leave(self) -> None:
        if not self._is_over:
            self._is_over = True
            log.info("the step supervisor of an earlier version is left: it has no steps any more")
            self._closing = self._loop.create_task(self._old.close(), name="predecessor")
