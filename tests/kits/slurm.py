"""Slurm's commands, installed for a cluster of `eslurm up` and called as programs call them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.integration.test_up import Cluster, reap
from tests.support import process

PATIENCE_S = 60.0


class Answer(NamedTuple):
    code: int
    out: str
    err: str


class Slurm:
    """The installed commands of one cluster, called without anything in the environment but PATH."""

    def __init__(self, cluster: Cluster, prefix: Path, *words: str) -> None:
        self.cluster = cluster
        self.work = cluster.work
        self.bin = prefix / "bin"
        answer = cluster(
            "eslurm",
            "compat",
            "install",
            "--prefix",
            str(prefix),
            "--state-dir",
            str(cluster.directory),
            *words,
        )
        assert answer.code == 0, answer.err

    def __call__(self, command: str, *words: str, text: str = "", **variables: str) -> Answer:
        done = subprocess.run(
            [self.bin / command, *words],
            cwd=self.work,
            env={"PATH": f"{self.bin}:/usr/bin:/bin", **variables},
            input=text,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def until(self, text: str, command: str, *words: str) -> None:
        """Ask again until the answer is this text."""
        end = time.monotonic() + PATIENCE_S
        while (answer := self(command, *words)).out != text:
            assert time.monotonic() < end, answer
            time.sleep(0.05)


@contextmanager
def installed(state_dir: Path, *words: str) -> Iterator[Slurm]:
    """A running cluster with Slurm's commands; at its end nothing of it is left. `words` are for `eslurm up`."""
    cluster = Cluster(state_dir)
    cluster.others = frozenset(child.pid for child in process.children())
    try:
        cluster.up(*words)
        yield Slurm(cluster, state_dir / "slurm")
    finally:
        assert cluster("eslurm", "down", "--purge").code == 0
    assert reap(cluster.others) == []
