"""An application that runs: its own scheduler shares out a loop among the cores it has (R-11), in virtual time.

It is the machine that jobs import, `eslurm.loops`: its coordinator and techniques, told the clock. Invariants: a core
computes at most one chunk at a time; every task is computed once; a core that was given up gets no chunk any more.

Toward the batch system (R-01, R-03, R-05): `take_idle` are cores to which no task can be assigned any more, `remaining_us`
is what is left to do; `offer` says how many cores it would lend for a time, and `lend` chooses them. A lent core's process
is suspended in its chunk, and goes on with it when the core comes back (R-04).
"""

from __future__ import annotations

import heapq
from typing import Final, TypeAlias

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.lab.applications.costs import Costs
from eslurm.loops.coordinator import Coordinator, Grant
from eslurm.loops.imbalance import max_over_mean
from eslurm.loops.techniques import technique_of

Core: TypeAlias = tuple[int, int]
"""(position of the node, number of the core on it)."""

CHUNK_US: Final = 6
"""Microseconds without a task before each chunk: twice the network's latency of 0.5 us (R-17), and 5 us for a decision."""
CHUNKS_MAX: Final = 128
"""Techniques that end with single tasks, or that adapt to tasks as uneven as Mandelbrot's, would make millions of chunks."""
LOAN_MAX: Final = 0.5
"""An application lends no core for longer than this share of the time it has left: soon it will be idle anyhow."""
_KNOWN_BEFORE: Final = {"FAC": ("mu", "sigma"), "FSC": ("sigma", "h")}
_MEAN_MIN_S: Final = 1e-9


class Program(msgspec.Struct, frozen=True):
    """What a job runs: a loop of tasks under a technique."""

    costs: Costs
    technique: str

    def options(self) -> dict[str, float]:
        """What the technique has to know beforehand."""
        known = {
            "mu": max(self.costs.mean_s, _MEAN_MIN_S),
            "sigma": self.costs.sigma_s,
            "h": CHUNK_US / SECOND_US,
        }
        return {name: known[name] for name in _KNOWN_BEFORE.get(self.technique.upper(), ())}

    def smallest(self, workers: int) -> int:
        """Tasks of the smallest chunk: a core takes no more than about `CHUNKS_MAX` for its share of the loop."""
        return max(1, self.costs.n // (CHUNKS_MAX * workers))


class Computed(msgspec.Struct, frozen=True, gc=False):
    """A stretch of computing on a core: the chunk of the tasks `start` to `stop` (without it), or a part of it.

    `is_end`: the chunk is done.
    """

    core: Core
    start: int
    stop: int
    begin_us: int
    end_us: int
    is_end: bool


class _Chunk(msgspec.Struct, gc=False):
    """A worker's chunk: it computes since `begin_us`, or is suspended (0), with `left_us` to go from there."""

    grant: Grant
    begin_us: int
    left_us: int
    done_us: int = 0


class Application:
    """One job's application on the cores of its job. Raises `TechniqueError`."""

    def __init__(self, program: Program, cores: list[Core], now_us: int) -> None:
        technique = technique_of(
            program.technique,
            program.costs.n,
            len(cores),
            smallest=program.smallest(len(cores)),
            **program.options(),
        )
        self._costs = program.costs
        self._coordinator = Coordinator(technique)
        self._started_us = now_us
        self._cores = cores
        self._worker_of = {core: worker for worker, core in enumerate(cores)}
        self._chunks: dict[int, _Chunk] = {}
        # (end, worker, number of the grant); stale where the worker was suspended meanwhile.
        self._ends: list[tuple[int, int, int]] = []
        self._lent: set[int] = set()
        self._idle: list[Core] = []
        self._last_us = [now_us] * len(cores)
        self._done_us = 0
        self.chunks = 0
        """Number of chunks handed out."""
        for worker, core in enumerate(cores):
            self._coordinator.joined(worker, f"{core[0]}.{core[1]}")
        granted = self._hand_out(now_us)
        for worker in range(len(cores)):
            if worker not in granted:
                self._give_up(worker, now_us)

    # ---- what the loop of events asks ----

    @property
    def next_us(self) -> int | None:
        """The next instant at which a core has done its chunk; None: no core computes."""
        while self._ends and self._is_stale(self._ends[0]):
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    @property
    def is_done(self) -> bool:
        """All tasks are computed."""
        return self._coordinator.is_done

    def advance(self, now_us: int) -> list[Computed]:
        """End the chunks that are done by now, and hand out new ones; what was computed, in the order of its ends."""
        ended: list[Computed] = []
        while self._ends and self._ends[0][0] <= now_us:
            end = heapq.heappop(self._ends)
            if self._is_stale(end):
                continue
            end_us, worker, number = end
            chunk = self._chunks.pop(worker)
            ended.append(self._computed(worker, chunk, end_us, is_end=True))
            done_us = chunk.done_us + end_us - chunk.begin_us
            self._done_us += done_us
            self._last_us[worker] = end_us
            took_s, at_s = done_us / SECOND_US, (end_us - self._started_us) / SECOND_US
            self._coordinator.finished(worker, number, took_s, at_s)
            if worker not in self._hand_out(end_us):
                self._give_up(worker, end_us)
        return ended

    # ---- what the batch system hears and asks ----

    def take_idle(self) -> list[Core]:
        """Cores that have become idle for good since the last call (R-03); the application uses them no more."""
        idle, self._idle = self._idle, []
        return idle

    @property
    def remaining_us(self) -> int:
        """Core microseconds of tasks that are not done (R-01), as far as the application knows: by the mean of those done."""
        record = self._coordinator.record
        left = record.n - record.done
        return self._done_us * left // record.done if record.done else self._costs.total_us

    @property
    def left_us(self) -> int:
        """Time that it expects to need with the cores that it computes on."""
        return self.remaining_us // max(len(self._computing()), 1)

    def offer(self, loan_us: int) -> int:
        """Answer a request (R-02): how many cores it would lend for so long; 0: it refuses (R-05). It keeps one."""
        return max(len(self._computing()) - 1, 0) if loan_us <= self.left_us * LOAN_MAX else 0

    def lend(self, count: int, now_us: int) -> tuple[list[Core], list[Computed]]:
        """Suspend its processes on so many cores of its choice; the cores, and what they have computed so far.

        It chooses those with the least left to do in their chunks, which the end of its loop waits for least.
        """
        chosen = sorted(self._computing(), key=lambda worker: (self._left_of(worker, now_us), worker))[:count]
        done: list[Computed] = []
        for worker in chosen:
            chunk = self._chunks[worker]
            took_us = max(now_us - chunk.begin_us, 0)
            if took_us:
                done.append(self._computed(worker, chunk, now_us, is_end=False))
            chunk.done_us += took_us
            chunk.left_us = self._left_of(worker, now_us)
            chunk.begin_us = 0
            self._lent.add(worker)
        return [self._cores[worker] for worker in chosen], done

    def take_back(self, core: Core, now_us: int) -> None:
        """Go on with the chunk of a core that was lent."""
        worker = self._worker_of[core]
        self._lent.remove(worker)
        chunk = self._chunks[worker]
        chunk.begin_us = now_us
        heapq.heappush(self._ends, (now_us + chunk.left_us, worker, chunk.grant.number))

    @property
    def imbalance(self) -> float:
        """max / mean of the cores' finishing times (R-22); of a job that has ended."""
        return max_over_mean([at_us - self._started_us for at_us in self._last_us])

    def _computing(self) -> list[int]:
        return [worker for worker in self._chunks if worker not in self._lent]

    def _left_of(self, worker: int, now_us: int) -> int:
        """Time to the end of a worker's chunk. It may not have begun: its overhead comes first."""
        chunk = self._chunks[worker]
        return chunk.left_us + min(chunk.begin_us - now_us, 0)

    def _is_stale(self, end: tuple[int, int, int]) -> bool:
        end_us, worker, number = end
        chunk = self._chunks.get(worker)
        return (
            chunk is None
            or chunk.grant.number != number
            or worker in self._lent
            or chunk.begin_us + chunk.left_us != end_us
        )

    def _computed(self, worker: int, chunk: _Chunk, now_us: int, *, is_end: bool) -> Computed:
        grant = chunk.grant
        return Computed(self._cores[worker], grant.start, grant.stop, chunk.begin_us, now_us, is_end)

    def _give_up(self, worker: int, now_us: int) -> None:
        """The worker gets no chunk any more."""
        self._coordinator.lost(worker, (now_us - self._started_us) / SECOND_US)
        self._idle.append(self._cores[worker])

    def _hand_out(self, now_us: int) -> set[int]:
        """Give chunks to workers without one; those that got one."""
        grants = self._coordinator.grants((now_us - self._started_us) / SECOND_US)
        for grant in grants:
            begin_us = now_us + CHUNK_US
            cost_us = self._costs.chunk_us(grant.start, grant.stop)
            self._chunks[grant.worker] = _Chunk(grant, begin_us, cost_us)
            self.chunks += 1
            heapq.heappush(self._ends, (begin_us + cost_us, grant.worker, grant.number))
        return {grant.worker for grant in grants}
