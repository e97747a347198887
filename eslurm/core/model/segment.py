"""A stretch of time in which the nodes of a run did not change."""

from __future__ import annotations

import msgspec


class Segment(msgspec.Struct, frozen=True, gc=False):
    """Nodes of a run from then until then (microseconds UTC), and the cores that it had there."""

    from_us: int
    until_us: int
    nodes: tuple[int, ...]
    cores: int
