"""A user names the files of a step without a command. They are opened on the nodes with the user's rights only."""

from __future__ import annotations

from tests.integration.conftest import made
from tests.kits.cluster import LiveCluster
from tests.kits.commands import NOBODY


def test_files_of_a_step_are_opened_as_its_user(as_root: None) -> None:
    with made(lambda directory: LiveCluster(directory, nodes=1, agents=1, satellites=1)) as cluster:
        _write_as_a_user(cluster)


def _write_as_a_user(cluster: LiveCluster) -> None:
    closed = cluster.work / "of-root"
    closed.write_text("before\n")
    closed.chmod(0o600)
    job = str(cluster.user_job("sleep 600", "-n", "2"))
    cluster.reaches(int(job), "RUNNING")
    for words in (
        ("-o", str(closed), "echo", "mine"),
        ("-o", "own", "-e", str(closed), "echo", "mine"),
        ("-o", f"{cluster.directory}/planted-%s", "echo", "mine"),
        ("-o", "written-%t", "id", "-u"),
    ):
        ran = cluster.run_as_user("esrun", "--jobid", job, "-n1", "--async", *words)
        assert ran.code == 0, ran
    ran = cluster.run_as_user("eswait", "--jobid", job)
    assert ran.code == 1
    assert ran.err.count("permission denied") == 3, ran
    assert closed.read_text() == "before\n"
    assert not list(cluster.directory.glob("planted*"))
    written = cluster.work / "written-0"
    assert (written.read_text(), written.stat().st_uid) == (f"{NOBODY}\n", NOBODY)
    cluster.run_as_user("escancel", job)
    cluster.wait_idle()
