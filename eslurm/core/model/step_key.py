"""Identity of a step on a node. Agents, supervisors and the root part share it, so it imports nothing else."""

from __future__ import annotations

import msgspec

BATCH_STEP = -1
"""The step number of the batch script."""


class StepKey(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Identity of one step of one attempt of a job on one node. `node` is the node's number."""

    job_id: int
    attempt: int
    step: int
    node: int

    @property
    def is_batch(self) -> bool:
        """Check whether this is the batch script itself."""
        return self.step == BATCH_STEP

    def __str__(self) -> str:
        return f"{self.job_id}.{self.attempt}.{self.step}.{self.node}"
