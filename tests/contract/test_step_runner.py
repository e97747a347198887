"""The contract of a step runner, proved on the real supervisor and on its virtual twin alike."""

from __future__ import annotations

import heapq
import itertools
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from eslurm.core.model.step_key import EPILOG_STEP, PROLOG_STEP, StepKey
from eslurm.lab.sim.step_runner import MemoryStepRunner, StepScript
from eslurm.ports.step_runner import (
    StepEndCause,
    StepOutcome,
    StepRunner,
    StepRunnerError,
    StepSpec,
    StepStarted,
)
from tests.kits.stepd import Outcomes, Site, eventually, key, supervised
from tests.support.loops import run

LONG_US = 3_600_000_000
"""A time limit or a grace that does not come, however slow the machine is."""
FOREVER = StepScript(None)
STUBBORN = StepScript(None, ignores_term=True)


class Bench(Protocol):
    """A runner on trial, with the means to write its steps and to hear of their ends."""

    @property
    def runner(self) -> StepRunner: ...

    def spec(self, key: StepKey, script: StepScript, **fields: Any) -> StepSpec: ...

    async def begun(self, key: StepKey) -> None:
        """Wait until the step is ready for signals."""

    async def ended(self, key: StepKey) -> StepOutcome: ...

    def times_run(self, key: StepKey) -> int: ...

    async def restart_agent(self) -> None:
        """A new agent that has heard nothing yet."""

    async def crash(self) -> None:
        """The runner dies with its memory and is started anew."""


class VirtualTime:
    """A clock that jumps to the next event when somebody waits."""

    def __init__(self) -> None:
        self._now_us = 1_000_000
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def now_us(self) -> int:
        return self._now_us

    def call_at(self, due_us: int, callback: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (due_us, next(self._order), callback))

    def step(self) -> None:
        """Let the next event happen."""
        assert self._heap, "nothing will ever happen again"
        self._now_us, _, callback = heapq.heappop(self._heap)
        callback()


class VirtualBench:
    def __init__(self) -> None:
        self._time = VirtualTime()
        self._scripts: dict[StepKey, StepScript] = {}
        self._heard: dict[StepKey, StepOutcome] = {}
        self.runner = MemoryStepRunner(self._time, self._hear, lambda spec: self._scripts[spec.key])

    def _hear(self, outcome: StepOutcome) -> None:
        self._heard[outcome.key] = outcome

    def spec(self, key: StepKey, script: StepScript, **fields: Any) -> StepSpec:
        self._scripts[key] = script
        fields = {"kill_grace_us": 200_000} | fields
        return StepSpec(key, "cn1", 0, 0, ("script",), {}, "/", **fields)

    async def begun(self, key: StepKey) -> None:
        assert self.times_run(key)

    async def ended(self, key: StepKey) -> StepOutcome:
        while key not in self._heard:
            self._time.step()
        return self._heard[key]

    def times_run(self, key: StepKey) -> int:
        return self.runner.spawned

    async def restart_agent(self) -> None:
        self._heard.clear()
        self.runner.reconnect(self._hear)

    async def crash(self) -> None:
        self._heard.clear()
        self.runner.crash()


class RealBench:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._outcomes = Outcomes()
        self.runner = site.client(self._outcomes)

    def spec(self, key: StepKey, script: StepScript, **fields: Any) -> StepSpec:
        if script.spawn_error:
            return self._site.spec(key, str(self._site.work / "absent"), **fields)
        lines = ["trap '' TERM"] if script.ignores_term else []
        lines.append(f"echo run >> begun-{key}")
        # Short naps instead of one long one, for a shell that ignores TERM has children that do, too.
        lines.append(
            "while :; do sleep 60; done" if script.duration_us is None else f"exit {script.exit_code}"
        )
        return self._site.spec(key, self._site.script("\n".join(lines), f"script-{key}"), **fields)

    async def begun(self, key: StepKey) -> None:
        await eventually(lambda: self.times_run(key))

    async def ended(self, key: StepKey) -> StepOutcome:
        return await self._outcomes.of(key)

    def times_run(self, key: StepKey) -> int:
        path = self._site.work / f"begun-{key}"
        return len(path.read_text().splitlines()) if path.exists() else 0

    async def restart_agent(self) -> None:
        await self.runner.close()
        self._outcomes = Outcomes()
        self.runner = self._site.client(self._outcomes)
        self.runner.start()

    async def crash(self) -> None:
        self._outcomes.heard.clear()
        self._site.kill_supervisor()


@pytest.fixture(params=["virtual", "real"])
def on_bench(request: pytest.FixtureRequest, state_dir: Path) -> Callable[..., None]:
    """Runs a scenario, a coroutine function that takes the bench."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Bench]:
        if request.param == "virtual":
            yield VirtualBench()
            return
        with supervised(state_dir) as site:
            site.start()
            bench = RealBench(site)
            bench.runner.start()
            try:
                yield bench
            finally:
                await bench.runner.close()

    def play(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with opened() as bench:
                await scenario(bench)

        run(main(), uvloop=True)

    return play


def test_a_step_runs_and_its_exit_code_is_kept_until_acknowledged(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        started = await bench.runner.launch(bench.spec(key(), StepScript(1000, exit_code=3)))
        assert isinstance(started, StepStarted) and started.pid > 0
        ended = await bench.ended(key())
        assert (ended.exit_code, ended.signal, ended.cause) == (3, 0, StepEndCause.EXITED)
        assert ended.started_us == started.at_us <= ended.ended_us
        assert list(await bench.runner.list_steps()) == [ended]
        await bench.runner.acknowledge([key()])
        assert list(await bench.runner.list_steps()) == []

    on_bench(scenario)


def test_a_second_launch_finds_the_first(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        spec = bench.spec(key(), FOREVER)
        first = await bench.runner.launch(spec)
        await bench.begun(key())
        assert await bench.runner.launch(spec) == first
        assert await bench.runner.terminate(key(), StepEndCause.SIGNALLED, 0)
        ended = await bench.ended(key())
        assert await bench.runner.launch(spec) == ended
        assert bench.times_run(key()) == 1

    on_bench(scenario)


@pytest.mark.parametrize("step", [PROLOG_STEP, EPILOG_STEP])
def test_a_phase_is_a_step_like_any_other_beside_those_of_its_attempt(
    step: int, on_bench: Callable[..., None]
) -> None:
    async def scenario(bench: Bench) -> None:
        phase, batch = key(step=step), key()
        await bench.runner.launch(bench.spec(batch, FOREVER))
        await bench.runner.launch(bench.spec(phase, StepScript(exit_code=3)))
        ended = await bench.ended(phase)
        assert (ended.key, ended.exit_code, ended.cause) == (phase, 3, StepEndCause.EXITED)
        assert await bench.runner.launch(bench.spec(phase, FOREVER)) == ended
        await bench.runner.acknowledge([phase])
        assert [state.key for state in await bench.runner.list_steps()] == [batch]
        assert await bench.runner.terminate(batch, StepEndCause.SIGNALLED, 0)
        await bench.ended(batch)

    on_bench(scenario)


def test_what_cannot_be_started_is_an_outcome(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        spec = bench.spec(key(), StepScript(exit_code=127, spawn_error="no such file"))
        ended = await bench.runner.launch(spec)
        assert isinstance(ended, StepOutcome)
        assert (ended.cause, ended.exit_code) == (StepEndCause.SPAWN_FAILED, 127)
        assert "no such file" in ended.text
        assert await bench.ended(key()) == ended
        assert list(await bench.runner.list_steps()) == [ended]

    on_bench(scenario)


def test_a_step_without_a_program_is_refused(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        empty = StepSpec(key(), "cn1", 0, 0, (), {}, "/")
        with pytest.raises(StepRunnerError, match="program"):
            await bench.runner.launch(empty)
        assert list(await bench.runner.list_steps()) == []

    on_bench(scenario)


def test_the_step_of_an_allocation_has_no_process_and_runs_until_it_is_ended(
    on_bench: Callable[..., None],
) -> None:
    async def scenario(bench: Bench) -> None:
        spec = bench.spec(key(), FOREVER, tasks=0, kill_grace_us=LONG_US)
        started = await bench.runner.launch(spec)
        assert isinstance(started, StepStarted)
        assert await bench.runner.launch(spec) == started
        assert await bench.runner.suspend(key()) and await bench.runner.suspend(key(), resume=True)
        assert await bench.runner.signal(key(), signal.SIGUSR1)
        assert [state.key for state in await bench.runner.list_steps()] == [key()]
        assert await bench.runner.terminate(key(), StepEndCause.SIGNALLED, LONG_US)
        ended = await bench.ended(key())
        assert (ended.cause, ended.signal) == (StepEndCause.SIGNALLED, signal.SIGTERM)
        limited = bench.spec(key(2), FOREVER, tasks=0, time_limit_us=300_000, kill_grace_us=LONG_US)
        await bench.runner.launch(limited)
        assert (await bench.ended(key(2))).cause is StepEndCause.TIME_LIMIT
        with pytest.raises(StepRunnerError, match="task"):
            await bench.runner.launch(bench.spec(key(3, step=0), FOREVER, tasks=0))

    on_bench(scenario)


def test_the_step_of_an_allocation_is_lost_with_its_runner(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.runner.launch(bench.spec(key(), FOREVER, tasks=0))
        await bench.crash()
        assert (await bench.ended(key())).cause is StepEndCause.LOST

    on_bench(scenario)


def test_the_time_limit_ends_a_step_politely(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        spec = bench.spec(key(), FOREVER, time_limit_us=300_000, kill_grace_us=LONG_US)
        await bench.runner.launch(spec)
        ended = await bench.ended(key())
        assert (ended.cause, ended.signal) == (StepEndCause.TIME_LIMIT, signal.SIGTERM)
        assert "0.3 s" in ended.text
        assert ended.ended_us - ended.started_us >= 290_000

    on_bench(scenario)


def test_the_time_limit_ends_a_stubborn_step_after_the_grace(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.runner.launch(bench.spec(key(), STUBBORN, time_limit_us=LONG_US, kill_grace_us=300_000))
        # Only from here on it is stubborn.
        await bench.begun(key())
        assert await bench.runner.set_limit(key(), 1_000_000)
        ended = await bench.ended(key())
        assert (ended.cause, ended.signal) == (StepEndCause.TIME_LIMIT, signal.SIGKILL)
        assert ended.ended_us - ended.started_us >= 1_290_000

    on_bench(scenario)


def test_terminate_keeps_the_first_cause_and_only_shortens_the_grace(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.runner.launch(bench.spec(key(), STUBBORN))
        await bench.begun(key())
        assert await bench.runner.terminate(key(), StepEndCause.ORPHANED, LONG_US)
        assert await bench.runner.terminate(key(), StepEndCause.SIGNALLED, 7_200_000_000)
        assert await bench.runner.terminate(key(), StepEndCause.SIGNALLED, 10_000)
        ended = await bench.ended(key())
        assert (ended.cause, ended.signal) == (StepEndCause.ORPHANED, signal.SIGKILL)

    on_bench(scenario)


def test_a_signal_from_outside_is_the_cause(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.runner.launch(bench.spec(key(), FOREVER))
        await bench.begun(key())
        assert await bench.runner.signal(key(), signal.SIGKILL)
        ended = await bench.ended(key())
        assert (ended.cause, ended.signal) == (StepEndCause.SIGNALLED, signal.SIGKILL)
        assert "SIGKILL" in ended.text
        assert not await bench.runner.signal(key(), signal.SIGKILL)
        assert not await bench.runner.terminate(key(), StepEndCause.SIGNALLED, 0)

    on_bench(scenario)


def test_silence_ends_an_orphan_but_not_its_neighbour(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        orphan, neighbour = key(1), key(2)
        await bench.runner.launch(bench.spec(neighbour, FOREVER))
        await bench.runner.launch(bench.spec(orphan, FOREVER, orphan_timeout_us=300_000))
        await bench.runner.contact()
        ended = await bench.ended(orphan)
        assert ended.cause is StepEndCause.ORPHANED
        assert "0.3 s" in ended.text
        assert isinstance((await bench.runner.list_steps())[1], StepStarted)
        assert await bench.runner.terminate(neighbour, StepEndCause.SIGNALLED, 0)
        await bench.ended(neighbour)

    on_bench(scenario)


def test_a_new_agent_hears_every_unacknowledged_outcome(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        for number in (1, 2, 3):
            await bench.runner.launch(bench.spec(key(number), StepScript(exit_code=number)))
            await bench.ended(key(number))
        await bench.runner.acknowledge([key(2), key(9)])
        await bench.restart_agent()
        assert (await bench.ended(key(1))).exit_code == 1
        assert (await bench.ended(key(3))).exit_code == 3
        assert [state.key for state in await bench.runner.list_steps()] == [key(1), key(3)]

    on_bench(scenario)


def test_acknowledging_a_live_step_changes_nothing(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        started = await bench.runner.launch(bench.spec(key(), FOREVER))
        await bench.runner.acknowledge([key()])
        assert list(await bench.runner.list_steps()) == [started]
        assert await bench.runner.terminate(key(), StepEndCause.SIGNALLED, 0)
        await bench.ended(key())

    on_bench(scenario)


def test_a_crash_loses_what_ran_and_nothing_else(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        done, running = key(1), key(2)
        await bench.runner.launch(bench.spec(done, StepScript(exit_code=5)))
        before = await bench.ended(done)
        spec = bench.spec(running, FOREVER)
        await bench.runner.launch(spec)
        await bench.begun(running)
        await bench.crash()
        lost = await bench.ended(running)
        assert (lost.cause, lost.exit_code, lost.signal) == (StepEndCause.LOST, 0, 0)
        assert await bench.ended(done) == before
        assert await bench.runner.launch(spec) == lost

    on_bench(scenario)


def test_while_it_stands_still_a_step_uses_none_of_its_time_limit(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        still, neighbour = key(1), key(2)
        await bench.runner.launch(bench.spec(still, FOREVER, time_limit_us=LONG_US, kill_grace_us=LONG_US))
        assert await bench.runner.suspend(still)
        assert await bench.runner.suspend(still), "a second time is no harm"
        assert await bench.runner.set_limit(still, 300_000)
        await bench.runner.launch(bench.spec(neighbour, FOREVER, time_limit_us=600_000))
        await bench.ended(neighbour)
        assert isinstance((await bench.runner.list_steps())[0], StepStarted)
        assert await bench.runner.suspend(still, True)
        ended = await bench.ended(still)
        assert (ended.cause, ended.signal) == (StepEndCause.TIME_LIMIT, signal.SIGTERM)
        assert ended.ended_us - ended.started_us >= 850_000
        assert not await bench.runner.suspend(still)

    on_bench(scenario)


def test_a_step_that_stands_still_is_woken_to_hear_that_it_is_to_end(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.runner.launch(bench.spec(key(), FOREVER))
        await bench.begun(key())
        assert await bench.runner.suspend(key())
        assert await bench.runner.terminate(key(), StepEndCause.SIGNALLED, LONG_US)
        assert (await bench.ended(key())).signal == signal.SIGTERM

    on_bench(scenario)


def test_the_time_limit_may_be_moved_either_way(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        longer, shorter, lifted = key(1), key(2), key(3)
        # Time enough to move them, even where the machine stands still for a while.
        await bench.runner.launch(bench.spec(longer, FOREVER, time_limit_us=4_000_000))
        await bench.runner.launch(bench.spec(shorter, FOREVER, time_limit_us=LONG_US))
        await bench.runner.launch(bench.spec(lifted, FOREVER, time_limit_us=4_000_000))
        assert await bench.runner.set_limit(longer, 4_500_000)
        assert await bench.runner.set_limit(shorter, 400_000)
        assert await bench.runner.set_limit(lifted, 0)
        cut = await bench.ended(shorter)
        assert cut.cause is StepEndCause.TIME_LIMIT and "0.4 s" in cut.text
        ended = await bench.ended(longer)
        assert ended.cause is StepEndCause.TIME_LIMIT and "4.5 s" in ended.text
        assert ended.ended_us - ended.started_us >= 4_490_000
        assert isinstance((await bench.runner.list_steps())[2], StepStarted)
        assert not await bench.runner.set_limit(shorter, 1)
        assert await bench.runner.terminate(lifted, StepEndCause.SIGNALLED, 0)
        await bench.ended(lifted)

    on_bench(scenario)


def test_live_steps_of_an_attempt_are_measured(on_bench: Callable[..., None]) -> None:
    async def scenario(bench: Bench) -> None:
        mine, ended, other = key(1, step=0), key(1, step=1), key(2, step=0)
        for step in (mine, other):
            await bench.runner.launch(bench.spec(step, FOREVER))
            await bench.begun(step)
        await bench.runner.launch(bench.spec(ended, StepScript(0)))
        await bench.ended(ended)
        attempt = (mine.node, mine.job_id, mine.attempt)
        [use] = await bench.runner.measure(attempt, (-1, 0, 1, 7), with_pids=True)
        assert (use.step, use.tasks, use.is_partial) == (0, 1, False)
        assert use.pids
        [use] = await bench.runner.measure(attempt, (0,))
        assert not use.pids
        assert not await bench.runner.measure((mine.node, 99, 1), (0,))
        for step in (mine, other):
            await bench.runner.terminate(step, StepEndCause.SIGNALLED, 0)
            await bench.ended(step)

    on_bench(scenario)
