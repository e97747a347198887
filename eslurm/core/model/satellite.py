"""The persistent part of a satellite's state: DOWN, with its reason. A new leader finds out everything else anew."""

from __future__ import annotations

import msgspec


class SatelliteDown(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A satellite that gets no work until an administrator resumes it (E-13)."""

    name: str
    reason: str
    since_us: int
