"""Sliced work beside the dispatcher: answers to expensive questions are worked out between what cannot wait.

Invariant: after at most `SLICE_S` of work, or one slice that takes longer, the loop is others' for as long.
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
