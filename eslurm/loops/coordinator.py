"""The coordinator of one loop, as a machine: no socket, clock or process.

In: `joined`, `finished`, `failed`, `lost`, each with the seconds since the loop's start. Out: `grants`, to be asked for
after each of them.

Invariant: every iteration is in exactly one of: not handed out yet, the chunk of one worker, a chunk to be done again,
done. So the results hold each iteration once, whatever workers do. A word on a chunk that its sender does not hold is
ignored.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from eslurm.loops.record import DONE, FAILED, LOST, Chunk, Record
from eslurm.loops.technique import Technique

__all__ = ["Coordinator", "GivenUp", "Grant"]


@dataclass(frozen=True, slots=True)
class Grant:
    """Iterations `start` to `stop` (without it) for one worker. No two grants have one `number`."""

    number: int
    worker: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A chunk that failed, or lost its worker, on its last attempt; `text` is the last error."""

    start: int
    stop: int
    attempts: int
    text: str


@dataclass(slots=True)
class _Piece:
    """A chunk on its way; `failed_on` is the worker that has failed it last, or -1."""

    start: int
    stop: int
    attempt: int = 1
    failed_on: int = -1


@dataclass(slots=True)
class _Worker:
    """A worker with its place among the technique's P, and the chunk that it holds."""

    slot: int
    piece: _Piece | None = None
    number: int = 0
    granted: float = 0.0


class Coordinator:
    """Hands out the chunks of one loop. A chunk is attempted up to `retries` times more than once."""

    def __init__(self, technique: Technique, *, retries: int = 2) -> None:
        self.record = Record(technique.NAME, technique.n)
        self.given_up: GivenUp | None = None
        self._technique = technique
        self._attempts = retries + 1
        self._next_index = 0
        self._next_number = 1
        self._again: deque[_Piece] = deque()
        self._workers: dict[int, _Worker] = {}
        self._free_slots = list(range(technique.workers - 1, -1, -1))
        self._idle: deque[int] = deque()
        # Workers that are told to leave their cores to others, and those among them that the batch system has asked for.
        self._resting: set[int] = set()
        self._away: set[int] = set()

    @property
    def is_done(self) -> bool:
        """Each iteration has its result."""
        return self.record.done == self._technique.n

    @property
    def present(self) -> int:
        """Count the workers that are there."""
        return len(self._workers)

    def joined(self, worker: int, label: str) -> bool:
        """Take a worker under a number that none has had; False when all P places are taken."""
        if not self._free_slots or worker in self.record.labels:
            return False
        self._workers[worker] = _Worker(self._free_slots.pop())
        self.record.joined(worker, label)
        self._idle.append(worker)
        return True

    def finished(self, worker: int, number: int, seconds: float, now: float) -> range | None:
        """Count a chunk as done; the iterations whose results these are, or None when the worker does not hold it."""
        found = self._held(worker, number)
        if found is None or found.piece is None:
            return None
        piece = found.piece
        elapsed = max(now - found.granted, 0.0)
        # The worker's own clock may say anything; NaN fails this comparison, too.
        inside = seconds if 0 <= seconds <= elapsed else elapsed
        self._technique.record(found.slot, piece.stop - piece.start, inside, elapsed - inside)
        self._end(worker, found, now, inside, DONE)
        self._idle.append(worker)
        if self.is_done:
            self._technique.end_loop()
        return range(piece.start, piece.stop)

    def failed(self, worker: int, number: int, text: str, now: float) -> None:
        """Do a chunk again whose function raised."""
        found = self._held(worker, number)
        if found is not None and found.piece is not None:
            piece = found.piece
            self._end(worker, found, now, 0.0, FAILED)
            self._do_again(piece, worker, text)
            self._idle.append(worker)

    def lost(self, worker: int, now: float) -> None:
        """Give the chunk of a worker that has gone to another."""
        found = self._workers.pop(worker, None)
        if found is None:
            return
        self._free_slots.append(found.slot)
        self._resting.discard(worker)
        self._away.discard(worker)
        self.record.left.add(worker)
        if found.piece is not None:
            piece = found.piece
            self._end(worker, found, now, 0.0, LOST)
            self._do_again(piece, worker, f"worker {self.record.labels[worker]} has ended within the chunk")

    @property
    def remaining_s(self) -> float:
        """Estimate the work that is left, in seconds of one core; 0 before the first chunk is done."""
        done = self.record.done
        return (self._technique.n - done) * self.record.busy_s / done if done else 0.0

    def asked(self, worker: int) -> None:
        """Let a worker rest that the batch system asks for its core (R-05), as long as another one works."""
        if worker in self._workers and len(self._workers) - len(self._away) > 1:
            self._away.add(worker)

    def rests(self) -> list[int]:
        """Workers that get no more work as things are, each once: after `grants`."""
        if self.is_done or self.given_up is not None:
            return []
        found = [worker for worker in self._idle if worker in self._workers and worker not in self._resting]
        if self._technique.remaining or self._again:
            found = [worker for worker in found if worker in self._away]
        self._resting.update(found)
        return found

    def grants(self, now: float) -> list[Grant]:
        """Chunks for the workers that have none. One that gets none now gets the next that fails or is lost."""
        if self.given_up is not None:
            return []
        found: list[Grant] = []
        for _ in range(len(self._idle)):
            worker = self._idle.popleft()
            state = self._workers.get(worker)
            if state is None or state.piece is not None:
                continue
            if worker in self._away and len(self._away) < len(self._workers):
                self._idle.append(worker)
                continue
            self._away.discard(worker)
            piece = self._piece_for(worker, state.slot)
            if piece is None:
                self._idle.append(worker)
                continue
            self._resting.discard(worker)
            state.piece, state.number, state.granted = piece, self._next_number, now
            self._next_number += 1
            found.append(Grant(state.number, worker, piece.start, piece.stop))
        return found

    def _piece_for(self, worker: int, slot: int) -> _Piece | None:
        for piece in self._again:
            # Another worker may do what this one cannot, as long as there is something else for this one.
            if piece.failed_on != worker or not self._technique.remaining:
                self._again.remove(piece)
                return piece
        size = self._technique.next_chunk(slot)
        if not size:
            return None
        start = self._next_index
        self._next_index += size
        return _Piece(start, start + size)

    def _held(self, worker: int, number: int) -> _Worker | None:
        state = self._workers.get(worker)
        return state if state is not None and state.piece is not None and state.number == number else None

    def _end(self, worker: int, state: _Worker, now: float, seconds: float, outcome: str) -> None:
        piece, state.piece = state.piece, None
        assert piece is not None
        self.record.add(
            Chunk(worker, piece.start, piece.stop, state.granted, now, seconds, piece.attempt, outcome)
        )

    def _do_again(self, piece: _Piece, worker: int, text: str) -> None:
        if piece.attempt >= self._attempts:
            self.given_up = GivenUp(piece.start, piece.stop, piece.attempt, text)
            return
        piece.attempt += 1
        piece.failed_on = worker
        self._again.append(piece)
