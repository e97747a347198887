"""Programs that speak to Slurm, unmodified and from the package index, on eight virtual nodes (`make clients`)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kits.slurm import Slurm, installed

PYTHON = Path(os.environ.get("CLIENTS_PYTHON", ""))
"""The interpreter of the environment that has them."""
TIMEOUT_S = 150.0
Client = Callable[[str], str]


@pytest.fixture
def slurm(state_dir: Path, adopt_orphans: None) -> Iterator[Slurm]:
    if not PYTHON.is_file():
        pytest.fail("CLIENTS_PYTHON names no interpreter: use `make clients`")
    with installed(state_dir, "-n", "8", "--cores", "4") as slurm:
        yield slurm


@pytest.fixture
def client(slurm: Slurm) -> Client:
    """Run a program of this text, or a command line, in the environment of the clients; its output."""

    def run(text: str) -> str:
        command = (
            [PYTHON, "-c", text] if "\n" in text else [PYTHON.parent / text.split()[0], *text.split()[1:]]
        )
        done = subprocess.run(
            command,
            cwd=slurm.work,
            # HOME: some keep a cache there.
            env={
                "PATH": f"{slurm.bin}:{PYTHON.parent}:/usr/bin:/bin",
                "HOME": str(slurm.work),
                "LC_ALL": "C.UTF-8",
            },
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
