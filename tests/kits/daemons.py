"""One daemon of a test's cluster: its command line, and its process while it runs."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.kits.forks import Forked, Forks
from tests.support.leaks import kept_children

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
LOG_TAIL_LINES = 40
AGENT_UID = 61_300
"""The user that root's agents become: no account has it."""


def agent_home(state_dir: Path) -> Path:
    """The directory of an agent's own files: below its state directory when root starts it."""
    return state_dir / "agent" if os.geteuid() == 0 else state_dir


def agent_user() -> list[str]:
    """The option that an agent needs when root starts it."""
    return ["--user", str(AGENT_UID)] if os.geteuid() == 0 else []


_forks: Forks | None = None


@pytest.fixture(scope="session", autouse=True)
def forked_daemons() -> Iterator[None]:
    """Daemons of these sources are forked instead of started, for the tests of the directory that imports this."""
    global _forks
    _forks = Forks(ROOT, path_of(ROOT))
    kept_children.add(_forks.process.pid)
    yield
    forks, _forks = _forks, None
    forks.end()
    kept_children.discard(forks.process.pid)


def path_of(source: Path) -> str:
    """PYTHONPATH for a release's daemons."""
    return os.pathsep.join(str(source / part) for part in (".", "daemons", "cli"))


class Daemon:
    """One daemon's command line, and its process while it runs."""

    def __init__(self, name: str, words: Sequence[str], log: Path, source: Path = ROOT) -> None:
        self.name = name
        self.source = source
        self.words = list(words)
        self.prefix: Sequence[str] = ()
        """A program that starts the daemon in its own place."""
        self.log = log
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self._ready: int | None = None

    def spawn(self) -> None:
        """Start the process; `wait_ready` says when it serves."""
        assert self.process is None, f"{self.name} runs"
        reader, writer = os.pipe()
        env = os.environ | {"PYTHONPATH": path_of(self.source)}
        with open(self.log, "ab") as log:
            if (
                not self.prefix
                and _forks is not None
                and self.source == ROOT
                and _forks.takes(self.words, env)
            ):
                self.process = _forks.start(self.words, env, writer, log.fileno())
            else:
                self.process = subprocess.Popen(
                    [*self.prefix, sys.executable, "-P", "-m", *self.words, "--ready-fd", str(writer)],
                    pass_fds=[writer],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.source,
                    env=env,
                )
        kept_children.add(self.process.pid)
        os.close(writer)
        self._ready = reader

    def wait_ready(self) -> bool:
        """Wait until the daemon says that it serves; false when it ended first."""
        assert self._ready is not None
        reader, self._ready = self._ready, None
        with os.fdopen(reader, "rb") as pipe:
            assert select.select([pipe], [], [], PATIENCE_S)[0], f"{self.name} is not ready in time"
            return pipe.readline().startswith(b"ready ")

    def send(self, number: int) -> None:
        """Signal it."""
        assert self.process is not None, f"{self.name} does not run"
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        assert self.process is not None
        code = self.process.wait(PATIENCE_S)
        kept_children.discard(self.process.pid)
        self.process = None
        if self._ready is not None:
            os.close(self._ready)
            self._ready = None
        return code

    def tail(self) -> str:
        """Its last words."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LOG_TAIL_LINES:])
