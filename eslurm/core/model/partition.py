"""A partition as the planner sees it, its states, and the modes of preemption."""

from __future__ import annotations

from typing import Final

import msgspec

OFF: Final = "off"
REQUEUE: Final = "requeue"
CANCEL: Final = "cancel"
SUSPEND: Final = "suspend"
MODES: Final = (OFF, REQUEUE, CANCEL, SUSPEND)


UP: Final = "UP"
DOWN: Final = "DOWN"
"""It takes jobs and starts none."""
DRAIN: Final = "DRAIN"
"""It starts the jobs that wait and takes no more."""
INACTIVE: Final = "INACTIVE"
"""It does neither."""
STATES: Final = (UP, DOWN, DRAIN, INACTIVE)
STARTING: Final = (UP, DRAIN)
TAKING: Final = (UP, DOWN)


class PartitionView(msgspec.Struct, frozen=True):
    """A partition: whether it starts jobs, and the default memory of its jobs (0: unlimited).

    Jobs of a higher `tier` may preempt those of a lower one, by `preempt_mode`. With a `role` its part of a job is none that
    users named.
    """

    name: str
    up: bool = True
    memory_per_node_mib: int = 0
    memory_per_cpu_mib: int = 0
    tier: int = 0
    preempt_mode: str = OFF
    role: str = ""
