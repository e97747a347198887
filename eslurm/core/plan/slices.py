"""Work in slices: generators whose callers decide when the next slice begins.

Invariant: what comes out does not depend on how long the pauses between two slices are.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def exhaust(slices: Generator[None, None, T]) -> T:
    """The result of sliced work, without the pauses."""
    while True:
        try:
            next(slices)
        except StopIteration as finished:
            result: T = finished.value
            return result
