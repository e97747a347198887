"""Lengths of prologs and epilogs that plans count on.

Learnt from facts alone, so a replay and a standby know the same. Invariants: of each `WINDOW_US` the greatest length counts
that is not the slowest node's, so one node that is slow or lies says nothing where there are others; what is planned for
grows at once and shrinks once a window at most; a sample that says nothing new changes nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from eslurm.core.model.units import SECOND_US

WINDOW_US: Final = 600 * SECOND_US
SAMPLE_MAX_US: Final = 3_600 * SECOND_US
"""Plans count on no longer phase: a slow one is no reason to keep a cluster empty."""
_STEPS: Final = 4
"""Lengths are rounded up to this many steps an octave: plans are made anew with each change."""


class PhaseLength(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One phase: `planned_us` is what plans count on, `first_us` the greatest sample since `since_us`, of `first_node`;
    `second_us` is the greatest of any other node.
    """

    planned_us: int = 0
    first_us: int = 0
    first_node: int = -1
    second_us: int = 0
    since_us: int = 0

    def after(self, sample_us: int, node: int, now_us: int) -> PhaseLength:
        """The lengths after another sample; the same object if it says nothing new."""
        sample_us = min(_rounded(max(sample_us, 1)), SAMPLE_MAX_US)
        if now_us - self.since_us >= WINDOW_US:
            # What the past window has shown holds on: where only one node had anything to say, that.
            return PhaseLength(self.second_us or self.first_us, sample_us, node, 0, now_us)
        if sample_us <= (self.first_us if node == self.first_node else self.second_us):
            return self
        if node == self.first_node:
            return replace(self, first_us=sample_us)
        first = (self.first_us, self.first_node)
        (second_us, _), (first_us, first_node) = sorted((first, (sample_us, node)))
        planned_us = max(self.planned_us, second_us)
        return PhaseLength(planned_us, first_us, first_node, second_us, self.since_us)


class PhaseLengths(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Lengths of each phase: those of a node, and the prolog on the controller's host from the placement on.

    The epilog there runs when a job's nodes are free.
    """

    prolog: PhaseLength = PhaseLength()
    epilog: PhaseLength = PhaseLength()
    controller: PhaseLength = PhaseLength()


def _rounded(us: int) -> int:
    """Rounded up to whole seconds, and longer ones to `_STEPS` an octave."""
    seconds = -(-us // SECOND_US)
    grain = max(1, (1 << (seconds.bit_length() - 1)) // _STEPS)
    return -(-seconds // grain) * grain * SECOND_US
