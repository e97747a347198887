"""The executor: runs a Python function over an index range on all cores of this machine or of the surrounding job.

    from eslurm import loops
    squares = loops.run(square, 1_000_000, technique="FAC2").results

`run` returns everything; `stream` yields results while the loop goes on. The process that calls them coordinates and
computes nothing; it takes results and hands out chunks while it is asked for the next result, so workers wait for a
caller that is slow.
"""

from __future__ import annotations

import os
import pickle  # nosec B403 # only authenticated frames are unpickled
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from eslurm.loops import task, words
from eslurm.loops.coordinator import Coordinator
from eslurm.loops.cores import COORDINATOR, Core
from eslurm.loops.crew import Crew, crew_of
from eslurm.loops.frames import COOKIE_BYTES, FRAME_BYTES_MAX
from eslurm.loops.progress import Progress
from eslurm.loops.record import Record
from eslurm.loops.server import Asked, Done, Event, Failed, Gone, Joined, Server
from eslurm.loops.technique import checked_count
from eslurm.loops.techniques import technique_of

__all__ = ["ChunkFailed", "LoopError", "Run", "Stream", "run", "stream"]

RETRIES_MAX = 100
START_S = 300.0
"""Patience with the first worker."""
TOGETHER_S = 2.0
"""Patience with the other workers once the first is there: a loop whose workers begin together is what the techniques
assume, and without it one worker takes the chunks of STATIC that belong to those which start a moment later."""
_POLL_S = 0.5
_POLL_BEFORE_S = 0.1


class LoopError(Exception):
    """The loop cannot go on; `record` says how far it came."""

    def __init__(self, text: str, record: Record) -> None:
        super().__init__(text)
        self.record = record


class ChunkFailed(LoopError):
    """A chunk failed on its last attempt; the text ends with the error of the function."""


@dataclass(frozen=True)
class Run:
    """Results in the order of the indices, and which worker computed which chunk when."""

    results: list[Any]
    record: Record


def run(
    function: task.Function | str,
    items: int | range,
    *,
    technique: str = "FAC2",
    workers: int | None = None,
    arguments: tuple[Any, ...] = (),
    whole_chunks: bool = False,
    launch: str = "auto",
    retries: int = 2,
    progress: bool | None = None,
    **options: Any,
) -> Run:
    """Call `function(index, *arguments)` for each index and return all results. The values are those of `stream`."""
    results: list[Any] = [None] * len(task.indices_of(items))
    with Stream(
        function,
        items,
        technique=technique,
        workers=workers,
        arguments=arguments,
        whole_chunks=whole_chunks,
        launch=launch,
        retries=retries,
        progress=progress,
        ordered=False,
        **options,
    ) as going:
        for positions, values in going.chunks():
            results[positions.start : positions.stop] = values
    return Run(results, going.record)


def stream(function: task.Function | str, items: int | range, **options: Any) -> Stream:
    """Yield `(index, result)` while the loop goes on: the arguments of `Stream`. Use it with `with`, or iterate to the
    end.
    """
    return Stream(function, items, **options)


class Stream:
    """A loop that is going on. Iterating gives each index once with its result; leaving early ends the workers.

    `function` is a callable of a module or `"module:function"`; with `whole_chunks` it takes a range of indices and
    returns a sequence of as many values. `workers` is all cores, of the job when the process is in one (`launch`
    `auto`; `local` and `job` force it). A chunk that fails, or loses its worker, is done again up to `retries` times.
    `ordered` holds results back until those before them are there. `progress` shows a bar, by default on a terminal.
    Other options are the technique's.
    """

    def __init__(
        self,
        function: task.Function | str,
        items: int | range,
        *,
        technique: str = "FAC2",
        workers: int | None = None,
        arguments: tuple[Any, ...] = (),
        whole_chunks: bool = False,
        launch: str = "auto",
        retries: int = 2,
        ordered: bool = True,
        progress: bool | None = None,
        **options: Any,
    ) -> None:
        if workers is not None:
            checked_count("workers", workers, 1, 4096)
        checked_count("retries", retries, 0, RETRIES_MAX)
        self._indices = task.indices_of(items)
        self._task = words.TASK + task.pack(function, arguments, self._indices, whole_chunks)
        if len(self._task) > FRAME_BYTES_MAX:
            raise task.TaskError(
                f"the arguments take {len(self._task)} bytes, more than {FRAME_BYTES_MAX}: name files instead"
            )
        self._crew: Crew = crew_of(launch, workers, os.environ)
        self._machine = Coordinator(
            technique_of(technique, len(self._indices), self._crew.workers, **options), retries=retries
        )
        self._server = Server(os.urandom(COOKIE_BYTES))
        self._core = Core(os.environ, COORDINATOR)
        self._progress = Progress(progress)
        self._ordered = ordered
        self._started = self._began = time.monotonic()
        self._first_joined: float | None = None
        self._has_begun = False
        self._is_closed = False
        self._items = self._each()

    @property
    def record(self) -> Record:
        """Which worker computed which chunk when, so far."""
        return self._machine.record

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return self

    def __next__(self) -> tuple[int, Any]:
        return next(self._items)

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; those that still compute are killed."""
        self._items.close()
        self._end()

    def _end(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        is_done = self._machine.is_done
        for worker in self.record.labels:
            self._server.send(worker, words.STOP)
        self._server.close()
        self._crew.end(kill=not is_done)

    def chunks(self) -> Iterator[tuple[range, Sequence[Any]]]:
        """Yield positions in the index range and their results, a chunk at a time, each position once.

        Raises ChunkFailed, LoopError.
        """
        try:
            if not self._machine.is_done:
                self._started = time.monotonic()
                self._crew.start(self._server)
            while not self._machine.is_done:
                yield from self._step()
            self._progress.end(self.record, self._machine.present)
        finally:
            self._end()

    def _each(self) -> Generator[tuple[int, Any], None, None]:
        found = _in_order(self.chunks()) if self._ordered else self.chunks()
        for positions, values in found:
            yield from zip(self._indices[positions.start : positions.stop], values, strict=True)

    def _step(self) -> Iterator[tuple[range, Sequence[Any]]]:
        """Wait for something to happen, and answer it."""
        ready: deque[tuple[range, Sequence[Any]]] = deque()
        for event in self._server.poll(_POLL_S if self._has_begun else _POLL_BEFORE_S):
            self._answer(event, ready)
        # Workers compute while the caller takes the results.
        self._hand_out()
        self._progress.show(self.record, self._machine.present)
        while ready:
            yield ready.popleft()
        self._check()

    def _answer(self, event: Event, ready: deque[tuple[range, Sequence[Any]]]) -> None:
        now = self._now()
        match event:
            case Joined(worker, label):
                if self._machine.joined(worker, label):
                    self._first_joined = self._first_joined or time.monotonic()
                    self._server.send(worker, words.WELCOME)
                    self._server.send(worker, self._task)
                else:
                    self._server.drop(worker)
            case Done(worker, number, seconds, pickled):
                positions = self._machine.finished(worker, number, seconds, now)
                if positions is not None:
                    # Only a worker that knows the loop's cookie comes here.
                    ready.append((positions, pickle.loads(pickled)))  # nosec B301 # authenticated
            case Failed(worker, number, text):
                self._machine.failed(worker, number, text, now)
            case Gone(worker):
                self._machine.lost(worker, now)
                if not self._machine.is_done:
                    self._crew.replace(self._server)
            case Asked(worker):
                self._machine.asked(worker)

    def _hand_out(self) -> None:
        if not self._has_begun and not self._begin():
            return
        for grant in self._machine.grants(self._now()):
            self._server.send(grant.worker, words.write_grant(grant.number, grant.start, grant.stop))
        for worker in self._machine.rests():
            self._server.send(worker, words.REST)
        self._core.tell(self._machine.remaining_s)

    def _begin(self) -> bool:
        """Begin the loop's time when all workers are there, or the patience with them is over."""
        if self._first_joined is None:
            return False
        now = time.monotonic()
        if self._machine.present >= self._crew.workers or now - self._first_joined >= TOGETHER_S:
            self._has_begun, self._began = True, now
        return self._has_begun

    def _check(self) -> None:
        """Raise ChunkFailed or LoopError when the loop cannot go on."""
        if (given_up := self._machine.given_up) is not None:
            span = self._indices[given_up.start : given_up.stop]
            raise ChunkFailed(
                f"the chunk of {len(span)} indices from {span[0]} failed {given_up.attempts} times, at last with:\n"
                f"{given_up.text}",
                self.record,
            )
        if self._machine.present or self._machine.is_done:
            return
        if not self._crew.is_alive():
            raise LoopError(
                "all workers have ended before the loop: their words are on standard error", self.record
            )
        if not self.record.labels and time.monotonic() - self._started > START_S:
            raise LoopError(f"no worker has connected within {START_S:.0f} s", self.record)

    def _now(self) -> float:
        return time.monotonic() - self._began


def _in_order(
    found: Iterator[tuple[range, Sequence[Any]]],
) -> Iterator[tuple[range, Sequence[Any]]]:
    """Hold chunks back until those before them have come."""
    early: dict[int, tuple[range, Sequence[Any]]] = {}
    at = 0
    for positions, values in found:
        early[positions.start] = (positions, values)
        while at in early:
            chunk = early.pop(at)
            at = chunk[0].stop
            yield chunk
