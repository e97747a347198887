"""Swaps of several jobs' keys at once, at most one for each job."""

from __future__ import annotations

from typing import Generic, TypeVar

from eslurm.core.federation.actions import Failure, SwapAnswer, SwapKeys
from eslurm.core.federation.swapping import Change, Entries, Swap

C = TypeVar("C", bound=Change)


class KeySwaps(Generic[C]):
    """Drives at most `most` changes. What has ended waits for `take_ended`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changes: dict[int, tuple[C, Swap]] = {}
        self._sent: dict[int, Swap] = {}

    @property
    def has_room(self) -> bool:
        """Check whether another one may begin."""
        return len(self._changes) < self._most

    def is_busy(self, job_id: int) -> bool:
        """Check whether a change of the job's key is under way."""
        return job_id in self._changes

    def begin(self, job_id: int, change: C, known: Entries | None) -> None:
        """Begin a change. `known` None: nothing is known of the keys, they are read first."""
        self._changes[job_id] = change, Swap(change, known or {}, reads_first=known is None)

    def drop(self, job_id: int) -> None:
        """Give a change up. It may be made all the same."""
        self._changes.pop(job_id, None)

    def take_ended(self) -> list[tuple[int, C, Swap]]:
        """The changes that have a result, each once."""
        ended = [
            (job_id, change, swap)
            for job_id, (change, swap) in self._changes.items()
            if swap.result is not None
        ]
        for job_id, _, _ in ended:
            del self._changes[job_id]
        return ended

    def tick(self, now_us: int, draw: float) -> list[SwapKeys]:
        """The next requests, each once."""
        actions = []
        for _, swap in self._changes.values():
            if (action := swap.tick(now_us, draw)) is not None:
                self._sent[id(action)] = swap
                actions.append(action)
        return actions

    def due_us(self, now_us: int) -> int | None:
        """The next instant at which `tick` or `take_ended` has something."""
        if any(swap.result is not None for _, swap in self._changes.values()):
            return now_us
        times = (swap.due_us for _, swap in self._changes.values())
        return min((at_us for at_us in times if at_us is not None), default=None)

    def swapped(self, action: SwapKeys, answer: SwapAnswer) -> None:
        """The answer to a swap of these; others are ignored."""
        if (swap := self._sent.pop(id(action), None)) is not None:
            swap.swapped(action, answer)

    def failed(self, action: SwapKeys, failure: Failure) -> None:
        """The call failed."""
        if (swap := self._sent.pop(id(action), None)) is not None:
            swap.failed(action, failure)
