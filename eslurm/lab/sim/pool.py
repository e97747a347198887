"""Scenarios played in several processes: each by itself, the verdicts in the order of the scenarios.

A worker is this module run as a program: one scenario per line on its standard input, one verdict per line on its
standard output, until its input ends; so it also ends with the process that started it. Invariant: what is
told does not depend on the number of workers; at the first failure (the lowest scenario's) the rest is dropped.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing

import msgspec

from eslurm.lab.sim.run import Failure, Report, Scenario, judge

Verdict = Report | Failure

_encode = msgspec.json.Encoder().encode
_verdicts: msgspec.json.Decoder[Verdict] = msgspec.json.Decoder(Report | Failure)


class _Task(msgspec.Struct, frozen=True):
    scenario: Scenario
    until_us: int | None = None


class WorkerLost(RuntimeError):
    """A worker ended in the middle of a run; the text names the run and says how."""


def cores() -> int:
    """Number of processes that can work at once here."""
    return len(os.sched_getaffinity(0))


def play_all(
    scenarios: Iterable[Scenario],
    jobs: int,
    until_us: int | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Generator[Verdict, None, None]:
    """The verdicts in order, up to and including the first failure. `tick` is called after each run.

    Raises `WorkerLost`.
    """
    if jobs == 1:
        verdicts = _play_here(scenarios, until_us, tick)
    else:
        verdicts = _Pool(jobs, until_us, tick).play(scenarios)
    with closing(verdicts):
        for verdict in verdicts:
            yield verdict
            if isinstance(verdict, Failure):
                return


def _play_here(
    scenarios: Iterable[Scenario], until_us: int | None, tick: Callable[[], None]
) -> Generator[Verdict, None, None]:
    for scenario in scenarios:
        verdict = judge(scenario, until_us)
        tick()
        yield verdict


class _Worker:
    """One process, and the number of the scenario it has in hand (-1: none)."""

    def __init__(self) -> None:
        self.at = -1
        self.scenario: Scenario | None = None
        self.process = subprocess.Popen(  # nosec B603 # fixed words
            [sys.executable, "-P", "-m", "eslurm.lab.sim.pool"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def give(self, at: int, task: _Task) -> None:
        """Hand a scenario over."""
        self.at, self.scenario = at, task.scenario
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(_encode(task) + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._lost() from None

    def take(self) -> tuple[int, Verdict]:
        """Its verdict, which is there to be read."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._lost()
        at, self.at = self.at, -1
        return at, _verdicts.decode(line)

    def _lost(self) -> WorkerLost:
        code = self.process.wait()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        seed = self.scenario.seed if self.scenario is not None else "none"
        return WorkerLost(f"the worker with seed {seed} was {how}; what it wrote is above")

    def end(self) -> None:
        """No more of it."""
        self.process.kill()
        with self.process:
            return


class _Pool:
    """So many workers, and the verdicts that came before their turn."""

    def __init__(self, jobs: int, until_us: int | None, tick: Callable[[], None]) -> None:
        self._jobs = jobs
        self._until_us = until_us
        self._tick = tick
        self._early: dict[int, Verdict] = {}
        self._failed_at: int | None = None
        self._selector = selectors.DefaultSelector()

    def play(self, scenarios: Iterable[Scenario]) -> Generator[Verdict, None, None]:
        """The verdicts in order; ends early only when closed."""
        waiting = enumerate(scenarios)
        workers: list[_Worker] = []
        try:
            for at, scenario in waiting:
                workers.append(self._start(at, scenario))
                if len(workers) == self._jobs:
                    break
            told = 0
            while any(worker.at >= 0 for worker in workers):
                for key, _ in self._selector.select():
                    self._on_verdict(key.data, waiting)
                while told in self._early:
                    yield self._early.pop(told)
                    told += 1
        finally:
            self._selector.close()
            for worker in workers:
                worker.end()

    def _start(self, at: int, scenario: Scenario) -> _Worker:
        worker = _Worker()
        assert worker.process.stdout is not None
        self._selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
        worker.give(at, _Task(scenario, self._until_us))
        return worker

    def _on_verdict(self, worker: _Worker, waiting: Iterator[tuple[int, Scenario]]) -> None:
        at, verdict = worker.take()
        self._tick()
        self._early[at] = verdict
        if isinstance(verdict, Failure) and (self._failed_at is None or at < self._failed_at):
            self._failed_at = at
        if self._failed_at is not None:
            # Only what stands before the failure in the order still matters, and that is under way.
            return
        for next_at, scenario in waiting:
            worker.give(next_at, _Task(scenario, self._until_us))
            return


def work() -> None:
    """The worker: play what comes, until no more comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tasks = msgspec.json.Decoder(_Task)
    for line in sys.stdin.buffer:
        task = tasks.decode(line)
        sys.stdout.buffer.write(_encode(judge(task.scenario, task.until_us)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    work()
