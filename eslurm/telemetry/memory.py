"""Tuning of the C library's allocator, so that a daemon's process stays small.

A burst (twenty thousand registrations, a whole address book) leaves free memory behind in the allocator. By default it has
eight arenas for each core and gives little back, which doubled the resident memory of a controller of many nodes.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

M_TRIM_THRESHOLD: Final = -1
M_ARENA_MAX: Final = -8
ARENAS_MAX: Final = 1
TRIM_THRESHOLD_BYTES: Final = 1 << 20


def keep_small() -> None:
    """Few arenas, and free memory goes back early. To be called before there are threads; no effect without glibc."""
    libc = _glibc()
    if libc is not None:
        libc.mallopt(M_ARENA_MAX, ARENAS_MAX)
        libc.mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)


def give_back() -> None:
    """Return to the system what is free by now; some milliseconds at most. No effect without glibc."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
