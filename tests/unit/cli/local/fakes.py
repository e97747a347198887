"""A cluster of stand-ins: the real commands with fake daemons, in a state directory of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from escli.local.layout import Layout
from escli.local.main import main
from escli.local.record import ClusterRecord

FAKE = Path(__file__).parent / "fake_daemon.py"


class Answer(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


class Fakes:
    """Runs `eslurm` in this process, its daemons replaced by `modes` (see `fake_daemon`)."""

    def __init__(self, state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.layout = Layout(state_dir)
        self._capsys = capsys
        self.modes = {"esctld": "works", "essatd": "works", "esnoded": "works"}

    def __call__(self, *words: str) -> Answer:
        programs = {
            # Without the installed packages a stand-in starts faster; the controller's needs them.
            kind: (sys.executable, *(() if kind == "esctld" else ("-S",)), str(FAKE), mode, kind)
            for kind, mode in self.modes.items()
        }
        code = main([*words, "--state-dir", str(self.layout.directory)], programs)
        captured = self._capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    def up(self, *words: str) -> Answer:
        return self("up", "--detach", "--timeout", "20", *words)

    def record(self) -> ClusterRecord:
        return self.layout.get_record()

    def pids(self) -> dict[str, int]:
        return {daemon.name: daemon.identity.pid for daemon in self.record().daemons}

    def kill(self, name: str) -> None:
        """End a daemon as a crash would, and wait for it."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def edit_record(self, **changes: Any) -> None:
        path = self.layout.record_file
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    def files(self) -> dict[str, tuple[int, bytes]]:
        """Every file's inode and contents: two equal answers mean that nothing was touched."""
        return {
            str(path): (path.stat().st_ino, path.read_bytes())
            for path in sorted(self.layout.directory.rglob("*"))
            if path.is_file() and path.name != "lock"
        }
