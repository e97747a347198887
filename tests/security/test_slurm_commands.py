"""Slurm's commands as another user of the host: the caller is the one that the kernel names, whatever they are told."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator

import pytest

from escli.slurm.launch import MODULES, main
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.kits.commands import become_user, preload

GATE = "until test -e gate; do sleep 0.05; done"


@pytest.fixture
def cluster(as_root: None) -> Iterator[LiveCluster]:
    preload()
    for module in (
        *MODULES.values(),
        "escli.slurm.account_query",
        "escli.slurm.account_rows",
        "eslurm.v1.controller_pb2",
    ):
        importlib.import_module(module)
    with running(nodes=2, agents=1, satellites=0) as cluster:
        yield cluster


def as_stranger(cluster: LiveCluster, line: str) -> tuple[int, str]:
    """The exit code of a command of another uid, and what it says."""
    path = cluster.work / "said"
    with open(path, "wb") as said:
        pid = os.fork()
        if not pid:
            code = 99
            try:
                become_user(cluster.work, said, said)
                command, *words = line.split()
                code = main(command, words, socket=str(cluster.socket))
            finally:
                os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), path.read_text()


def test_a_stranger_changes_nothing_of_others(cluster: LiveCluster) -> None:
    victim = cluster.wrap(GATE)
    cluster.reaches(victim, "RUNNING")

    for line in (
        f"scancel {victim}",
        f"scancel -f -s USR1 {victim}",
        f"scancel -s KILL {victim}",
        f"scontrol suspend {victim}",
        f"scontrol requeue {victim}",
        f"scontrol update JobId={victim} TimeLimit=1",
    ):
        code, said = as_stranger(cluster, line)
        assert code == 1, (line, said)
        assert any(word in said for word in ("denied", "belongs to", "is for operators")), (line, said)
    # A choice by the user's name finds the jobs, and is refused for each.
    assert as_stranger(cluster, "scancel -u root")[0] == 1
    assert as_stranger(cluster, f"squeue -h -j {victim} -o %t") == (0, "R\n")

    # Counts are for everybody, and nobody puts them back.
    code, said = as_stranger(cluster, "sdiag")
    assert (code, "\nJobs submitted: 1\n" in said) == (0, True), said
    assert as_stranger(cluster, "sdiag -r")[0] == 1

    (cluster.work / "gate").touch()
    cluster.reaches(victim, "COMPLETED")
