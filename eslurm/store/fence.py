"""The fence: whether a batch may be written, given the end of the log.

Pure and shared by every store. Invariant: exactly one of "it is next", "it is already there" and an error holds; nothing
is ever written in the last two cases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eslurm.ports.store import Batch, FenceLost, Head, LoggedFact, StoreFailed

ReadBack = Callable[[int, int], Sequence[LoggedFact]]


def is_next(head: Head, owner: str, epoch: int, batch: Batch, read_back: ReadBack) -> bool:
    """True: write it. False: it was committed before, by this epoch and word for word.

    `read_back(first, last)` gives the logged facts of a range of revisions, in order. Raises FenceLost when
    the epoch has passed to another writer or the batch does not continue the log; StoreFailed when its time
    lies before the last commit's.
    """
    if head.epoch != epoch:
        raise FenceLost(f"{owner}: this writer has epoch {epoch}, the store has epoch {head.epoch}")
    if batch.revision_first == head.revision + 1:
        if batch.at_us < head.at_us:
            raise StoreFailed(f"{owner}: time went back from {head.at_us} to {batch.at_us} us")
        return True
    span = f"revisions {batch.revision_first}..{batch.revision_last}"
    if not batch.facts or batch.revision_last > head.revision:
        raise FenceLost(f"{owner}: {span} do not continue the log, which ends at {head.revision}")
    expected = [
        LoggedFact(revision, batch.at_us, fact.kind, fact.version, fact.blob, epoch)
        for revision, fact in enumerate(batch.facts, batch.revision_first)
    ]
    if list(read_back(batch.revision_first, batch.revision_last)) != expected:
        raise FenceLost(f"{owner}: {span} hold other facts")
    return False
