"""A partition as planning looks at it, and the ways in which its jobs may be preempted."""

from __future__ import annotations

from typing import Final

import msgspec

OFF: Final = "off"
REQUEUE: Final = "requeue"
CANCEL: Final = "cancel"
SUSPEND: Final = "suspend"
MODES: Final = (OFF, REQUEUE, CANCEL, SUSPEND)


class PartitionView(msgspec.Struct, frozen=True):
    """A partition: whether it starts jobs, and the memory a job gets that asked for none (0: unlimited).

    Jobs of a higher `tier` may push out those of a lower one, in the way that `preempt_mode` says.
    """

    name: str
    up: bool = True
    memory_per_node_mib: int = 0
    memory_per_cpu_mib: int = 0
    tier: int = 0
    preempt_mode: str = OFF
