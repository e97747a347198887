"""Slurm's commands against a cluster that answers what a test says (fixture `answers`)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from escli.slurm import frame
from escli.slurm.launch import main
from tests.kits.fake_api import FakeApi

Say = Callable[..., str]
Answers = Mapping[str, Callable[[Any], Any]]


@pytest.fixture
def say(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answers: Answers
) -> Iterator[Say]:
    """Run a command on the cluster; its output, its errors, and its exit code if that is not 0."""
    for name in list(os.environ):
        if name.startswith(("SQUEUE", "SINFO", "SACCT", "SREPORT", "SLURM", "ESLURM")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(frame, "group_name", lambda gid: f"g{gid}")
    monkeypatch.setattr("escli.slurm.account_rows.group_name", lambda gid: f"g{gid}")
    monkeypatch.setattr(frame, "now_line", lambda: "Sat Nov 28 11:40:00 2026")
    with FakeApi(state_dir / "s", **answers) as api:

        def run(line: str, release: str = "") -> str:
            command, *words = line.split(" ") if "'" not in line else _words(line)
            code = main(command, words, socket=api.path, release=release)
            captured = capsys.readouterr()
            return f"$ {line}\n{captured.out}{captured.err}" + (f"[{code}]\n" if code else "")

        yield run
    monkeypatch.undo()
    time.tzset()


def _words(line: str) -> list[str]:
    return [quoted or plain for quoted, plain in re.findall(r"'([^']*)'|(\S+)", line)]
