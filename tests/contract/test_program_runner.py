"""The contract of a runner of a controller's programs, proved on real processes and on their virtual twin alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from esctld.lead.program_runner import HostProgramRunner
from eslurm.core.model.controller_phases import PhaseKey
from eslurm.core.model.job import StepEnd
from eslurm.lab.sim.program_runner import MemoryProgramRunner, ProgramScript
from eslurm.ports.program_runner import Program, ProgramRunner
from tests.contract.test_step_runner import VirtualTime
from tests.kits.stepd import eventually
from tests.support.loops import both_loops, run

KEY = PhaseKey(17, 1, "prolog", 1)
LONG_US = 3_600_000_000
FOREVER = ProgramScript(None)
STUBBORN = ProgramScript(None, ignores_term=True)


class Bench(Protocol):
    """A runner on trial."""

    @property
    def runner(self) -> ProgramRunner: ...

    def start(self, key: PhaseKey, script: ProgramScript, limit_us: int = LONG_US) -> None: ...

    async def begun(self, key: PhaseKey) -> None:
        """Wait until the program is ready for signals."""

    async def ended(self, key: PhaseKey) -> StepEnd: ...

    def told(self, key: PhaseKey) -> int:
        """Count the reports of its end."""


class _Heard:
    def __init__(self) -> None:
        self.ends: list[tuple[PhaseKey, StepEnd]] = []

    def done(self, key: PhaseKey) -> Callable[[StepEnd], None]:
        return lambda end: self.ends.append((key, end))

    def told(self, key: PhaseKey) -> int:
        return sum(one == key for one, _ in self.ends)

    def find(self, key: PhaseKey) -> StepEnd | None:
        return next((end for one, end in self.ends if one == key), None)


class VirtualBench(_Heard):
    def __init__(self) -> None:
        super().__init__()
        self._time = VirtualTime()
        self._scripts: dict[PhaseKey, ProgramScript] = {}
        self.runner = MemoryProgramRunner(
            self._later, self._time.now_us, self._scripts.__getitem__, grace_us=1000
        )

    def _later(self, delay_us: int, call: Callable[[], None]) -> None:
        self._time.call_at(self._time.now_us() + delay_us, call)

    def start(self, key: PhaseKey, script: ProgramScript, limit_us: int = LONG_US) -> None:
        self._scripts[key] = script
        self.runner.start(key, Program("/program", {}, limit_us), self.done(key))

    async def begun(self, key: PhaseKey) -> None:
        pass

    async def ended(self, key: PhaseKey) -> StepEnd:
        while (end := self.find(key)) is None:
            self._time.step()
        return end


class RealBench(_Heard):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self.runner = HostProgramRunner(str(directory / "phases"), grace_us=200_000)

    def program(self, text: str, name: str = "program") -> str:
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def start(self, key: PhaseKey, script: ProgramScript, limit_us: int = LONG_US) -> None:
        if script.refusal:
            path = str(self.directory / "absent")
        else:
            lines = ["trap '' TERM"] if script.ignores_term else []
            lines.append(f"echo $$ > {self.directory}/begun.{key.run}")
            endless = "while :; do sleep 60; done"
            lines.append(endless if script.duration_us is None else f"exit {script.exit_code}")
            path = self.program("\n".join(lines), f"program.{key.run}")
        self.run(key, path, limit_us)

    def run(self, key: PhaseKey, path: str, limit_us: int = LONG_US, **environment: str) -> None:
        self.runner.start(
            key, Program(path, {"PATH": os.environ["PATH"], **environment}, limit_us), self.done(key)
        )

    def pid(self, key: PhaseKey) -> int:
        return int((self.directory / f"begun.{key.run}").read_text())

    async def begun(self, key: PhaseKey) -> None:
        path = self.directory / f"begun.{key.run}"
        await eventually(lambda: path.exists() and path.read_text().endswith("\n"))

    async def ended(self, key: PhaseKey) -> StepEnd:
        await eventually(lambda: self.find(key) is not None)
        end = self.find(key)
        assert end is not None
        return end


@pytest.fixture(params=["virtual", "real"])
def make(request: pytest.FixtureRequest, state_dir: Path) -> Iterator[Callable[[], Any]]:
    yield (lambda: RealBench(state_dir)) if request.param == "real" else VirtualBench


def test_a_program_ends_with_its_exit_code_and_is_told_once(make: Callable[[], Bench]) -> None:
    async def main() -> None:
        bench = make()
        for run_number, code in ((1, 0), (2, 3)):
            key = KEY._replace(run=run_number)
            bench.start(key, ProgramScript(exit_code=code))
            assert not bench.told(key), "its end is not told from within the start"
            end = await bench.ended(key)
            assert (end.exit_code, end.signal, end.cause) == (code, 0, "exited")
            assert end.is_good is (code == 0) and 0 < end.started_us <= end.ended_us
            bench.runner.end(key)
            assert bench.told(key) == 1
        await bench.runner.close()

    run(main())


@pytest.mark.parametrize(("script", "signal"), [(FOREVER, 15), (STUBBORN, 9)])
def test_a_program_beyond_its_limit_is_ended(
    make: Callable[[], Bench], script: ProgramScript, signal: int
) -> None:
    async def main() -> None:
        bench = make()
        bench.start(KEY, script, 500_000)
        await bench.begun(KEY)
        end = await bench.ended(KEY)
        assert (end.signal, end.cause) == (signal, "time_limit") and not end.is_good
        await bench.runner.close()

    run(main())


@pytest.mark.parametrize(("script", "signal"), [(FOREVER, 15), (STUBBORN, 9)])
def test_a_program_is_ended_on_request(make: Callable[[], Bench], script: ProgramScript, signal: int) -> None:
    async def main() -> None:
        bench = make()
        bench.start(KEY, script)
        await bench.begun(KEY)
        bench.runner.end(KEY)
        bench.runner.end(KEY)
        assert not bench.told(KEY), "its end is not told from within the order"
        end = await bench.ended(KEY)
        assert (end.signal, end.cause) == (signal, "cancelled") and bench.told(KEY) == 1
        bench.runner.end(KEY._replace(run=2))
        await bench.runner.close()

    run(main())


def test_a_program_that_cannot_be_started_is_told_as_refused(make: Callable[[], Bench]) -> None:
    async def main() -> None:
        bench = make()
        bench.start(KEY, ProgramScript(refusal="it is absent"))
        assert not bench.told(KEY)
        end = await bench.ended(KEY)
        assert end.cause == "refused" and end.text and not end.is_good
        await bench.runner.close()

    run(main())


def test_after_the_close_nothing_is_told(make: Callable[[], Bench]) -> None:
    async def main() -> None:
        bench = make()
        for number, script in enumerate((FOREVER, STUBBORN), 1):
            bench.start(KEY._replace(run=number), script)
            await bench.begun(KEY._replace(run=number))
        await bench.runner.close()
        assert not bench.told(KEY) and not bench.told(KEY._replace(run=2))
        if isinstance(bench, RealBench):
            for number in (1, 2):
                assert not Path(f"/proc/{bench.pid(KEY._replace(run=number))}").exists()

    run(main())


@both_loops
def test_what_a_program_has_started_ends_with_it(uvloop: bool, state_dir: Path) -> None:
    async def main() -> None:
        bench = RealBench(state_dir)
        child = f"sh -c 'trap \"\" TERM HUP; echo $$ > {state_dir}/child; while :; do sleep 60; done' &"
        bench.run(
            KEY, bench.program(f"{child}\nuntil test -s {state_dir}/child; do sleep 0.01; done; echo done")
        )
        assert (await bench.ended(KEY)).is_good
        pid = int((state_dir / "child").read_text())
        await eventually(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid))
        await bench.runner.close()

    run(main(), uvloop=uvloop)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@both_loops
def test_the_last_of_the_output_is_kept_and_explains_a_failure(uvloop: bool, state_dir: Path) -> None:
    async def main() -> None:
        bench = RealBench(state_dir)
        noise = "i=0; while test $i -lt 3000; do echo 'a line of forty characters, more or less'; i=$((i+1)); done"
        bench.run(KEY, bench.program(f"{noise}\nprintf 'bad \\033[31m\\ndisk\\n' >&2; exit 7"))
        end = await bench.ended(KEY)
        assert end.exit_code == 7 and end.text.endswith("bad [31m disk") and len(end.text) < 500
        kept = (state_dir / "phases" / "17.1.prolog.1").read_bytes()
        assert kept.startswith(b"(the beginning was cut off)\n") and kept.endswith(b"disk\n")
        assert len(kept) <= 64 * 1024 + 100
        assert (state_dir / "phases").stat().st_mode & 0o777 == 0o700
        await bench.runner.close()

    run(main(), uvloop=uvloop)


def test_a_program_gets_its_own_environment_and_no_descriptor_of_the_controller(state_dir: Path) -> None:
    async def main() -> None:
        bench = RealBench(state_dir)
        with open(state_dir / "secret", "w") as secret:
            os.set_inheritable(secret.fileno(), True)
            bench.run(
                KEY,
                bench.program(
                    f"env > {state_dir}/env; ls -l /proc/$$/fd > {state_dir}/fds; pwd > {state_dir}/cwd"
                ),
                A="1",
            )
            assert (await bench.ended(KEY)).is_good
        names = {line.partition("=")[0] for line in (state_dir / "env").read_text().splitlines()}
        assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "A"}
        fds = (state_dir / "fds").read_text()
        assert "/dev/null" in fds and "secret" not in fds
        assert (state_dir / "cwd").read_text() == "/\n"
        await bench.runner.close()

    run(main())
