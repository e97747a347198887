"""Identity of a step on a node. Agents, supervisors and the root part share it, so it imports nothing else."""

from __future__ import annotations

import msgspec

BATCH_STEP = -1
"""The step number of the batch script."""
PROLOG_STEP = -2
"""The step number of the prolog of a node, which runs before anything of the attempt does."""
EPILOG_STEP = -3
"""The step number of the epilog of a node, which runs when nothing else of the attempt is left there."""
PROLOG, EPILOG, CHECK = "prolog", "epilog", "check"
"""Programs of the site that a node may have configured: two phases of each attempt, and the check of a faulted node."""
PROGRAMS = (PROLOG, EPILOG, CHECK)
PHASES = {PROLOG: PROLOG_STEP, EPILOG: EPILOG_STEP}
"""The step number of each phase of a node."""


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

    @property
    def is_phase(self) -> bool:
        """Check whether this is the prolog or epilog of the node."""
        return self.step in (PROLOG_STEP, EPILOG_STEP)

    @property
    def phase(self) -> str:
        """The name of that phase; empty for any other step."""
        return {PROLOG_STEP: PROLOG, EPILOG_STEP: EPILOG}.get(self.step, "")

    def __str__(self) -> str:
        return f"{self.job_id}.{self.attempt}.{self.step}.{self.node}"
