"""An application that runs: its own scheduler shares out a loop among the cores it has (R-11), in virtual time.

It is the machine that jobs import, `eslurm.loops`: its coordinator and techniques, told the clock. Invariants: a core
computes at most one chunk at a time; every task is computed once; a core that was given up gets no chunk any more.

Toward the batch system (R-01, R-03, R-05): `take_idle` are cores that it uses no more, `remaining_us` is what is left to do,
and `ask` requests cores, which it grants or refuses.
"""

from __future__ import annotations

import heapq
from typing import Final, TypeAlias

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.lab.applications.costs import Costs
from eslurm.loops.coordinator import Coordinator
from eslurm.loops.imbalance import max_over_mean
from eslurm.loops.techniques import technique_of

Core: TypeAlias = tuple[int, int]
"""(position of the node, number of the core on it)."""

CHUNK_US: Final = 6
"""Microseconds without a task before each chunk: twice the network's latency of 0.5 us (R-17), and 5 us for a decision."""
CHUNKS_MAX: Final = 128
"""Techniques that end with single tasks, or that adapt to tasks as uneven as Mandelbrot's, would make millions of chunks."""
UNEVEN: Final = 0.25
"""Share of the tasks. A technique that balances has fewer on their way at its end, and all cores end together."""
_KNOWN_BEFORE: Final = {"FAC": ("mu", "sigma"), "FSC": ("sigma", "h")}
_MEAN_MIN_S: Final = 1e-9


class Program(msgspec.Struct, frozen=True):
    """A loop of tasks under a technique, which a job runs."""

    costs: Costs
    technique: str

    def options(self) -> dict[str, float]:
        """Options that the technique has to know beforehand."""
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
    """A chunk of the tasks `start` to `stop` (without it) on a core, which computes from `begin_us` to `end_us`."""

    core: Core
    start: int
    stop: int
    begin_us: int
    end_us: int


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
        self._technique = technique
        self._costs = program.costs
        self._coordinator = Coordinator(technique)
        self._started_us = now_us
        self._cores = cores
        # (end, worker, number of its grant, the chunk): one for each worker that computes.
        self._chunks: list[tuple[int, int, int, Computed]] = []
        self._leaving: set[int] = set()
        self._idle: list[Core] = []
        self._left_at_first_idle = -1
        self._last_us = [now_us] * len(cores)
        self.chunks = 0
        """Number of chunks handed out."""
        for worker, core in enumerate(cores):
            self._coordinator.joined(worker, f"{core[0]}.{core[1]}")
        self._hand_out(now_us)

    # ---- what the loop of events asks ----

    @property
    def next_us(self) -> int | None:
        """The next instant at which a core has done its chunk; None: no core computes."""
        return self._chunks[0][0] if self._chunks else None

    @property
    def is_done(self) -> bool:
        """All tasks are computed."""
        return self._coordinator.is_done

    def advance(self, now_us: int) -> list[Computed]:
        """End the chunks that are done by now, and hand out new ones; the ended ones, in the order of their ends."""
        ended: list[Computed] = []
        while self._chunks and self._chunks[0][0] <= now_us:
            end_us, worker, number, chunk = heapq.heappop(self._chunks)
            ended.append(chunk)
            done_us = chunk.end_us - chunk.begin_us
            self._last_us[worker] = end_us
            took_s, at_s = done_us / SECOND_US, (end_us - self._started_us) / SECOND_US
            self._coordinator.finished(worker, number, took_s, at_s)
            self._hand_out(end_us)
        return ended

    # ---- what the batch system hears and asks ----

    def take_idle(self) -> list[Core]:
        """Cores that have become idle since the last call (R-03); the application uses them no more."""
        idle, self._idle = self._idle, []
        return idle

    @property
    def remaining_us(self) -> int:
        """Core microseconds of tasks that are not done (R-01), by the mean of those done; 0 before the first."""
        return round(self._coordinator.remaining_s * SECOND_US)

    @property
    def is_uneven(self) -> bool:
        """Check whether its idle cores are worth a report: many tasks were left when the first of its cores had none."""
        return self._left_at_first_idle >= UNEVEN * self._costs.n

    def ask(self, count: int) -> bool:
        """Answer a request for so many cores (R-02): it grants it, or refuses (R-05).

        It refuses when all its tasks are assigned, since then each core ends with its chunk anyhow, and when it would keep
        fewer than half of its cores. It chooses the cores whose chunks it handed out first, and leaves each after its chunk.
        """
        by_grant = sorted((number, worker) for _, worker, number, _ in self._chunks)
        staying = [worker for _, worker in by_grant if worker not in self._leaving]
        if not self._technique.remaining or len(staying) - count < max(len(self._cores) / 2, 1):
            return False
        for worker in staying[:count]:
            self._leaving.add(worker)
            self._coordinator.asked(worker)
        return True

    @property
    def imbalance(self) -> float:
        """max / mean of the cores' finishing times (R-22); of a job that has ended."""
        return max_over_mean([at_us - self._started_us for at_us in self._last_us])

    def _hand_out(self, now_us: int) -> None:
        """Give chunks to workers without one; those that get none any more leave their cores."""
        for grant in self._coordinator.grants((now_us - self._started_us) / SECOND_US):
            begin_us = now_us + CHUNK_US
            end_us = begin_us + self._costs.chunk_us(grant.start, grant.stop)
            chunk = Computed(self._cores[grant.worker], grant.start, grant.stop, begin_us, end_us)
            self.chunks += 1
            heapq.heappush(self._chunks, (end_us, grant.worker, grant.number, chunk))
        resting = self._coordinator.rests()
        self._idle += [self._cores[worker] for worker in resting]
        if resting and self._left_at_first_idle < 0:
            record = self._coordinator.record
            self._left_at_first_idle = record.n - record.done
