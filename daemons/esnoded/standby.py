"""A step runner whose supervisor is started with the first step, for hosts with very many agent processes.

Invariant: a supervisor that has, or may have, steps of this agent is connected to from the start; without one there is
nothing to list, to signal or to hear of.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from eslurm.core.model.step_key import NodeAttempt, StepKey
from eslurm.core.model.step_usage import StepUse
from eslurm.ports.step_runner import StepEndCause, StepOrder, StepOutcomeSink, StepState
from esnoded.stepd.client import SupervisorClient
from esnoded.stepd.launcher import Connect
from esnoded.stepd.place import Place


class StandbyRunner:
    """Implements `eslurm.ports.step_runner.StepRunner` around a `SupervisorClient`; `start` and `close` as there."""

    def __init__(
        self, state_dir: Path, connect: Connect, on_ended: StepOutcomeSink, ring: Callable[[], bytes] = bytes
    ) -> None:
        self._client = SupervisorClient(connect, on_ended, ring=ring)
        self._place = Place(state_dir)
        self._is_started = False

    def start(self) -> None:
        """Connect if there is a past: the journal holds what a supervisor left behind."""
        if os.path.exists(self._place.journal):
            self._begin()

    def _begin(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._client.start()

    async def close(self) -> None:
        """See `SupervisorClient.close`."""
        await self._client.close()

    def tell_ring(self) -> None:
        """See `SupervisorClient.tell_ring`."""
        self._client.tell_ring()

    @property
    def is_older(self) -> bool:
        """See `SupervisorClient.is_older`."""
        return self._client.is_older

    async def launch(self, order: StepOrder) -> StepState:
        """See `StepRunner.launch`."""
        self._begin()
        return await self._client.launch(order)

    async def signal(self, key: StepKey, signum: int) -> bool:
        """See `StepRunner.signal`."""
        return self._is_started and await self._client.signal(key, signum)

    async def terminate(self, key: StepKey, cause: StepEndCause, grace_us: int) -> bool:
        """See `StepRunner.terminate`."""
        return self._is_started and await self._client.terminate(key, cause, grace_us)

    async def suspend(self, key: StepKey, resume: bool = False) -> bool:
        """See `StepRunner.suspend`."""
        return self._is_started and await self._client.suspend(key, resume)

    async def set_limit(self, key: StepKey, time_limit_us: int, credential: bytes = b"") -> bool:
        """See `StepRunner.set_limit`."""
        return self._is_started and await self._client.set_limit(key, time_limit_us, credential)

    async def list_steps(self) -> Sequence[StepState]:
        """See `StepRunner.list_steps`."""
        return await self._client.list_steps() if self._is_started else ()

    async def acknowledge(self, keys: Collection[StepKey]) -> None:
        """See `StepRunner.acknowledge`."""
        if self._is_started:
            await self._client.acknowledge(keys)

    async def contact(self, nodes: Collection[int] = (), at_us: int | None = None) -> None:
        """See `StepRunner.contact`."""
        if self._is_started:
            await self._client.contact(nodes, at_us)

    async def measure(
        self, attempt: NodeAttempt, steps: Collection[int], *, with_pids: bool = False
    ) -> Sequence[StepUse]:
        """See `StepRunner.measure`."""
        return await self._client.measure(attempt, steps, with_pids=with_pids) if self._is_started else ()

    async def vacate(self, attempts: Collection[NodeAttempt]) -> None:
        """See `StepRunner.vacate`."""
        if self._is_started:
            await self._client.vacate(attempts)
