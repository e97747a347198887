"""Work in slices: generators whose callers decide when the next slice begins.

Invariant: what comes out does not depend on how long the pauses between two slices are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Protocol, TypeVar, overload


class Comparable(Protocol):
    """What can be put in order."""

    def __lt__(self, other: Any, /) -> bool: ...


T = TypeVar("T")
C = TypeVar("C", bound=Comparable)
SORTED_PER_SLICE: Final = 8_192


def exhaust(slices: Generator[None, None, T]) -> T:
    """The result of sliced work, without the pauses."""
    while True:
        try:
            next(slices)
        except StopIteration as finished:
            result: T = finished.value
            return result


def parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items by so many; what they come from must not change meanwhile."""
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
    """What `sorted` returns: parts first, then neighbours are merged, which costs little where each is in order."""
    runs = []
    for start in range(0, len(items), SORTED_PER_SLICE):
        runs.append(sorted(items[start : start + SORTED_PER_SLICE], key=key))
        yield
    while len(runs) > 1:
        merged = []
        for at in range(0, len(runs), 2):
            run = runs[at] + runs[at + 1] if at + 1 < len(runs) else runs[at]
            run.sort(key=key)
            merged.append(run)
            yield
        runs = merged
    return runs[0] if runs else []
