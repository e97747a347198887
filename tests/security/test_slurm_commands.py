"""Slurm's commands as another user of the host: the caller is the one that the kernel names, whatever they are told."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator

import pytest

from escli.slurm.launch import MODULES, main
from eslurm.v1 import controller_pb2 as pb
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
        f"scontrol update JobId={victim} StdOut=/tmp/x",
        f"scontrol requeuehold {victim}",
        f"scontrol top {victim}",
        f"scontrol write batch_script {victim} -",
    ):
        code, said = as_stranger(cluster, line)
        assert code == 1, (line, said)
        assert any(word in said for word in ("denied", "belongs to", "is for operators")), (line, said)
    # As with Slurm's, a step that cannot be looked at is a line, and no failure.
    code, said = as_stranger(cluster, f"sstat -n -j {victim}.batch")
    assert (code, "only its user and operators see what it uses" in said) == (0, True), said
    assert len(said.splitlines()) == 1, said
    # A choice by the user's name finds the jobs, and is refused for each.
    assert as_stranger(cluster, "scancel -u root")[0] == 1
    assert as_stranger(cluster, f"squeue -h -j {victim} -o %t") == (0, "R\n")

    # Counts are for everybody, and nobody puts them back.
    code, said = as_stranger(cluster, "sdiag")
    assert (code, "\nJobs submitted: 1\n" in said) == (0, True), said
    assert as_stranger(cluster, "sdiag -r")[0] == 1

    (cluster.work / "gate").touch()
    cluster.reaches(victim, "COMPLETED")


def test_a_stranger_neither_sees_nor_changes_crontabs_and_partitions(cluster: LiveCluster) -> None:
    path = cluster.work / "crontab"
    path.write_text("SECRET=xylophone\n@yearly true\n")
    assert main("scrontab", [str(path)], socket=str(cluster.socket)) == 0
    [info] = cluster.call("Jobs", pb.JobsRequest()).jobs
    job_id = info.job_id
    assert (info.name, info.cron) == ("true", "0 0 1 1 *")
    for line in (
        "scrontab -l -u root",
        "scrontab -r -u root",
        "scrontab -l -u 0",
        f"scrontab -u root {path}",
        f"scancel --cron {job_id}",
        "scontrol update PartitionName=main State=DOWN",
        "scontrol create reservation Users=root Nodes=ALL StartTime=now Duration=1",
        "scontrol delete ReservationName=r",
        "scontrol token username=root",
        "scontrol takeover",
    ):
        code, said = as_stranger(cluster, line)
        assert code == 1, (line, said)
        assert "xylophone" not in said, (line, said)
    # The stranger's own is another one, and runs as the stranger.
    own = cluster.work / "own"
    own.write_text("@yearly id\n")
    own.chmod(0o644)
    assert as_stranger(cluster, f"scrontab {own}") == (0, "")
    assert as_stranger(cluster, "scrontab -l") == (0, "@yearly id\n")
    assert as_stranger(cluster, "squeue -h --me -O username:10,name:5,cronjob")[1].split()[1:] == [
        "id",
        "Yes",
    ]
    assert as_stranger(cluster, "scrontab -r")[0] == 0
    assert main("scrontab", ["-l"], socket=str(cluster.socket)) == 0


def test_a_script_is_written_through_no_link_of_a_stranger(cluster: LiveCluster) -> None:
    job = cluster.wrap(GATE)
    target, link = cluster.work / "target", cluster.work / "link"
    target.write_text("kept")
    link.symlink_to(target)
    os.lchown(link, 65534, 65534)
    theirs = cluster.work / "theirs"
    theirs.write_text("")
    os.chown(theirs, 65534, 65534)
    for path in (link, theirs):
        words = ["write", "batch_script", str(job), str(path)]
        assert main("scontrol", words, socket=str(cluster.socket)) == 1
    assert target.read_text() == "kept"
    assert theirs.read_text() == ""
