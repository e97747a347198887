"""Identity of a step on a node. Agents, supervisors and the root part share it, so it imports nothing else."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

BATCH_STEP = -1
"""The step number of the batch script."""
PROLOG_STEP = -2
"""The step number of the prolog of a node, which runs before anything of the attempt does."""
EPILOG_STEP = -3
"""The step number of the epilog of a node, which runs when nothing else of the attempt is left there."""
ROUTE_STEP = -4
"""The step number of the helper that writes a job's routes, as its user on its first node, before the script starts."""
GATEWAY_STEP = -5
"""The step number of a job's gateway daemons, as its user on its gateway nodes, from before the script to the end."""
ROUTE_ERROR_STEP = -6
"""The step number of the helper that writes the error file of failed gateways, as the job's user on its first node."""
PROLOG, EPILOG, CHECK = "prolog", "epilog", "check"
"""Programs of the site that a node may have configured: two phases of each attempt, and the check of a faulted node."""
PROGRAMS = (PROLOG, EPILOG, CHECK)
PHASES = {PROLOG: PROLOG_STEP, EPILOG: EPILOG_STEP}
"""The step number of each phase of a node."""
ROUTES, GATEWAY, ROUTE_ERROR = "routes", "gateway", "route_error"
GATEWAY_STEPS = {ROUTES: ROUTE_STEP, GATEWAY: GATEWAY_STEP, ROUTE_ERROR: ROUTE_ERROR_STEP}
"""The step numbers of a job's gateways by the name under which their ends are reported (`protocol.PhaseReported`)."""


NodeAttempt: TypeAlias = tuple[int, int, int]
"""An attempt on a node: (node, job, attempt)."""


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
    def is_gateway(self) -> bool:
        """Check whether this is a daemon or a helper of the job's gateways."""
        return self.step in (ROUTE_STEP, GATEWAY_STEP, ROUTE_ERROR_STEP)

    @property
    def phase(self) -> str:
        """The name of that phase; empty for any other step."""
        return {PROLOG_STEP: PROLOG, EPILOG_STEP: EPILOG}.get(self.step, "")

    def __str__(self) -> str:
        return f"{self.job_id}.{self.attempt}.{self.step}.{self.node}"
