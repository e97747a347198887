"""Work in slices: generators whose callers decide when the next slice begins.

Invariant: results do not depend on the length of the pauses between slices.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Protocol, TypeVar, overload


class Comparable(Protocol):
    """An object with an order."""

    def __lt__(self, other: Any, /) -> bool: ...


T = TypeVar("T")
C = TypeVar("C", bound=Comparable)
SORTED_PER_SLICE: Final = 8_192
SAMPLES_PER_RUN: Final = 16


def exhaust(slices: Generator[None, None, T]) -> T:
    """The result of sliced work, run without pauses."""
    while True:
        try:
            next(slices)
        except StopIteration as finished:
            result: T = finished.value
            return result


def parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in parts of this size; their source must not change meanwhile."""
    left = iter(items)
    while part := list(islice(left, size)):
        yield part


@overload
def sorting(items: Sequence[C]) -> Generator[None, None, list[C]]: ...
@overload
def sorting(items: Sequence[T], key: Callable[[T], Comparable]) -> Generator[None, None, list[T]]: ...
def sorting(
    items: Sequence[Any], key: Callable[[Any], Any] | None = None
) -> Generator[None, None, list[Any]]:
    """The result of `sorted`: sorts parts, then merges them range by range, which is cheap for nearly sorted parts."""
    runs: list[list[Any]] = []
    for start in range(0, len(items), SORTED_PER_SLICE):
        runs.append(sorted(items[start : start + SORTED_PER_SLICE], key=key))
        yield
    if len(runs) < 2:
        return runs[0] if runs else []
    merged: list[Any] = []
    for span in _ranges(runs, key):
        span.sort(key=key)
        merged += span
        yield
    return merged


def _ranges(runs: Sequence[list[Any]], key: Callable[[Any], Any] | None) -> Iterator[list[Any]]:
    """All items of the sorted runs, in ascending ranges of about one run's length; equal ones are in the same."""
    spacing = max(1, len(runs[0]) // SAMPLES_PER_RUN)
    seen = [item for run in runs for item in run[spacing - 1 :: spacing]]
    bounds = sorted(seen if key is None else map(key, seen))[SAMPLES_PER_RUN - 1 :: SAMPLES_PER_RUN]
    begins = [0] * len(runs)
    for bound in bounds:
        ends = [bisect_left(run, bound, key=key) for run in runs]
        yield _joined(runs, begins, ends)
        begins = ends
    yield _joined(runs, begins, [len(run) for run in runs])


def _joined(runs: Sequence[list[Any]], begins: Sequence[int], ends: Sequence[int]) -> list[Any]:
    joined: list[Any] = []
    for run, begin, end in zip(runs, begins, ends, strict=True):
        joined += run[begin:end]
    return joined
