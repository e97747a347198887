"""Sliced work beside the dispatcher: expensive queries run between urgent work.

Invariant: after at most `SLICE_S` of work, or one longer slice, other tasks have the loop for as long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import TypeVar

SLICE_S = 0.002
T = TypeVar("T")


async def paced(slices: Generator[None, None, T]) -> T:
    """The result of sliced work."""
    ends_s = time.perf_counter() + SLICE_S
    while True:
        try:
            next(slices)
        except StopIteration as finished:
            found: T = finished.value
            return found
        if time.perf_counter() >= ends_s:
            await asyncio.sleep(SLICE_S)
            ends_s = time.perf_counter() + SLICE_S
