"""A real supervisor for a test, scripts for it to run, and the proof that neither leaves a process behind."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import StepOrder, StepOutcome, StepSpec, StepState
from esnoded.procd import procfs
from esnoded.procd.options import Options
from esnoded.stepd.client import SupervisorClient
from esnoded.stepd.launcher import connect_supervisor, ensure_supervisor
from esnoded.stepd.place import Place

NOBODY = 65534
AGENT_UID = 61_300
PATIENCE_S = 50.0
TRUSTING = "tests.kits.stepd_trusting"


def order_of(spec: StepSpec) -> StepOrder:
    """The order that makes a supervisor of the kit's run the spec."""
    return StepOrder(spec.key, msgspec.msgpack.encode(spec))


class SpecClient(SupervisorClient):
    """An agent that may ask for any step: see `trusting`."""

    async def launch(self, order: StepOrder | StepSpec) -> StepState:
        if isinstance(order, StepSpec):
            order = order_of(order)
        return await super().launch(order)

    async def set_limit(self, key: StepKey, time_limit_us: int, credential: bytes = b"") -> bool:
        return await super().set_limit(key, time_limit_us, msgspec.msgpack.encode(time_limit_us))


class Site:
    """A directory for a supervisor's state and for what its steps read and write."""

    def __init__(self, directory: Path) -> None:
        self.state = directory / "sv"
        self.work = directory / "work"
        self.work.mkdir()
        directory.chmod(0o755)
        self.work.chmod(0o777)
        self.instances: set[str] = set()
        # The supervisor serves as the agent's user where root starts it.
        own = AGENT_UID if os.geteuid() == 0 else -1
        self.options = Options("cn1", "", uid=own, gid=own)

    def start(self, *, idle_exit_s: float | None = None) -> int:
        """Make sure that a supervisor serves; returns its pid."""
        if idle_exit_s is not None:
            self.options = msgspec.structs.replace(self.options, idle_exit_s=idle_exit_s)
        status = ensure_supervisor(self.state, self.options, module=TRUSTING)
        self.instances.add(status.instance)
        return status.pid

    def pid(self) -> int:
        """The supervisor's pid, 0 when there is none."""
        status = Place(self.state).find_supervisor()
        if status is None:
            return 0
        self.instances.add(status.instance)
        return status.pid

    def kill_supervisor(self) -> None:
        """SIGKILL, and wait until it is gone."""
        end_process(self.pid(), signal.SIGKILL)

    def connect(self) -> socket.socket:
        return connect_supervisor(self.state, self.options, module=TRUSTING)

    def client(self, on_ended: Callable[[StepOutcome], None], **options: Any) -> SpecClient:
        return SpecClient(options.pop("connect", self.connect), on_ended, **options)

    def script(self, text: str, name: str = "script", mode: int = 0o755) -> str:
        """An executable file with this text behind a `#!/bin/sh`, unless it brings its own."""
        path = self.work / name
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        path.chmod(mode)
        return str(path)

    def spec(self, key: StepKey, *argv: str, **fields: Any) -> StepSpec:
        """A step of this process's user in the working directory."""
        defaults: dict[str, Any] = {
            "node_name": "cn1",
            "uid": os.getuid(),
            "gid": os.getgid(),
            "env": {"PATH": "/usr/bin:/bin"},
            "cwd": str(self.work),
            "kill_grace_us": 200_000,
        }
        return StepSpec(key=key, argv=argv, **(defaults | fields))

    def step_processes(self) -> list[int]:
        """Every living process that carries a marker of a supervisor of this site."""
        return [
            process.pid
            for process in procfs.all_processes()
            if process.state != "Z" and procfs.marker_of(process.pid).partition("/")[0] in self.instances
        ]


class Outcomes:
    """Collects endings and lets a test wait for them."""

    def __init__(self) -> None:
        self.heard: list[StepOutcome] = []
        self._news = asyncio.Event()

    def __call__(self, outcome: StepOutcome) -> None:
        self.heard.append(outcome)
        self._news.set()

    async def of(self, key: StepKey) -> StepOutcome:
        """The first ending heard of a step."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for outcome in self.heard:
                    if outcome.key == key:
                        return outcome
                self._news.clear()
                await self._news.wait()


async def eventually(condition: Callable[[], object]) -> None:
    """Look until the condition holds; fails by TimeoutError."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - files and processes set no event
            await asyncio.sleep(0.01)


def key(job_id: int = 1, *, attempt: int = 1, step: int = -1, node: int = 0) -> StepKey:
    return StepKey(job_id, attempt, step, node)


def end_process(pid: int, *signums: int) -> None:
    """Signal a process that is no child and wait until it is gone."""
    fd = os.pidfd_open(pid)
    try:
        for signum in signums:
            # It may be gone after the first one.
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signum)
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        assert poller.poll(PATIENCE_S * 1000), f"process {pid} did not end"
    finally:
        os.close(fd)


@contextmanager
def supervised(directory: Path) -> Iterator[Site]:
    """A site whose supervisor and steps are ended afterwards; fails when a process outlives them."""
    site = Site(directory)
    try:
        yield site
    finally:
        pid = site.pid()
        if pid:
            # Twice: the second does not wait for anybody's grace.
            end_process(pid, signal.SIGTERM)
        left = site.step_processes()
        for each in left:
            os.kill(each, signal.SIGKILL)
        log = Path(Place(site.state).log)
        words = log.read_text() if log.exists() else ""
    assert not left, f"processes of steps outlived their supervisor: {left}"
    assert "Traceback" not in words, words
