"""A cluster of the release whose daemons shared one key becomes one of this release, by `eslurm convert`: no job is lost.

Only with the sources of such a release: `pytest --upgrade-from DIRECTORY`, which `make verify-upgrade` does.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import made
from tests.integration.test_up import Cluster, cluster, read_from
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import ROOT
from tests.kits.outages import Gated
from tests.kits.submitters import Submitters

__all__ = ["cluster"]

TASKS = 12
SUBMISSIONS = 10
REFUSED_MAX_S = 55.0
"""Commands are repeated for this long at least: a conversion takes seconds, but machines stand still at times."""
BOTTOM_UP = ("sat0", "sat1", "agent0", "agent1", "esctld")
TOP_DOWN = tuple(reversed(BOTTOM_UP))


class OldCluster(LiveCluster):
    """Daemons started by hand, of the release whose daemons share `cluster.key`; `convert` makes them this release's."""

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(directory, **options)
        self._words = {name: list(daemon.words) for name, daemon in self.daemons.items()}
        self._config = directory / "eslurm.toml"
        self._text = self._config.read_text()
        key = directory / "cluster.key"
        key.write_text(secrets.token_hex(32))
        key.chmod(0o600)
        # The older release knows no such section, and nothing of memberships.
        self._config.write_text(self._text.replace("[agent]\nallow_root_jobs = true\n", ""))
        for name in ("site.key", "site.pub", "identity.key", "membership", "members"):
            for path in directory.rglob(name):
                path.unlink()
        for daemon in self.daemons.values():
            daemon.words = self._older(daemon.words)

    def _older(self, words: Sequence[str]) -> list[str]:
        left = list(words)
        gone = {"--allow-root-jobs": 1, "--user": 2, **({"--state-dir": 2} if words[0] == "essatd" else {})}
        for option, count in gone.items():
            if option in left:
                at = left.index(option)
                del left[at : at + count]
        return left if words[0] == "esctld" else [*left, "--key-file", str(self.directory / "cluster.key")]

    def convert(self) -> None:
        """Do as the guide says: the site's keys, a membership for each daemon, and the command lines of this release."""
        self.do_here("convert", "--state-dir", str(self.directory))
        for name, words in self._words.items():
            self.daemons[name].words = words
            self.daemons[name].source = ROOT
            if words[0] != "esctld":
                role, names = (
                    ("satellite", name)
                    if words[0] == "essatd"
                    else ("agent", words[words.index("--nodes") + 1])
                )
                issue = (
                    "keys",
                    "issue",
                    "--state-dir",
                    str(self.directory),
                    "--out",
                    str(self.directory / name),
                )
                self.do_here(*issue, "--role", role, "--names", names)
        self._config.write_text(self._text)

    def do_here(self, *words: str) -> None:
        """An `eslurm` command that has to succeed; none of these asks a controller."""
        from escli.local.eslurm import main

        assert main(words) == 0


@pytest.mark.slow
@pytest.mark.parametrize("order", [BOTTOM_UP, TOP_DOWN], ids=["bottom_up", "top_down"])
def test_daemons_run_by_hand_are_converted_while_users_submit(
    order: tuple[str, ...], upgrade_from: Path
) -> None:
    with made(OldCluster, nodes=8, agents=2, satellites=2, source=upgrade_from) as old:
        with Submitters(old.socket, old.work) as users:
            steady = Gated(old, "steady", 0)
            old.reaches(steady.job_id, "RUNNING")
            waiting = [
                old.wrap("echo ran >> waited", "--dependency", f"afterok:{steady.job_id}") for _ in range(8)
            ]
            task = "while [ ! -e go ]; do sleep 0.1; done; echo $SLURM_ARRAY_TASK_ID >> tasks"
            array = old.wrap(task, f"--array=1-{TASKS}%{TASKS // 2}")
            old.until(lambda: len(users.acknowledged) >= SUBMISSIONS or users.failures, "users submit")

            for name in order:
                old.terminate(name)
            old.convert()
            for name in order:
                old.daemons[name].spawn()
            for name in order:
                assert old.daemons[name].wait_ready(), old.daemons[name].tail()
            old.wait_nodes(lambda nodes: all(node.state == "UP" for node in nodes.values()))

            goal = len(users.acknowledged) + SUBMISSIONS
            old.until(
                lambda: len(users.acknowledged) >= goal or users.failures, "users submit to the new release"
            )
            (old.work / "go").touch()
            steady.let_go()
        assert not users.failures
        assert len(set(users.acknowledged)) == len(users.acknowledged)
        assert set(old.ended(*users.acknowledged, *waiting, array, steady.job_id)) == {"COMPLETED"}
        # A submission that was carried out twice would have left a line of a job that no user knows of.
        assert users.ran() == dict.fromkeys(users.acknowledged, 1)
        assert Counter(old.lines("waited")) == {"ran": len(waiting)}
        assert sorted(map(int, old.lines("tasks"))) == list(range(1, TASKS + 1))
        steady.check("COMPLETED", 0)
        assert [run.attempt for run in old.runs(steady.job_id)] == [1]
        assert {run.attempt for run in old.runs(array)} == {1}
        assert users.longest_s < REFUSED_MAX_S, f"somebody waited {users.longest_s:.2f} s"


@pytest.mark.slow
def test_a_personal_cluster_is_converted_by_its_commands(cluster: Cluster, upgrade_from: Path) -> None:
    new = dict(cluster.environment)
    path = os.pathsep.join(str(upgrade_from / part) for part in (".", "daemons", "cli"))
    cluster.environment |= {"PYTHONPATH": path}
    answer = cluster("eslurm", "up", "--detach", "-n", "2", "--cores", "2", "--no-estimator")
    assert answer.code == 0, answer.err
    started, go, done = cluster.fifo("started"), cluster.fifo("go"), cluster.fifo("done")
    steady = cluster.submit(f"echo $$ > {started}; read word < {go}; echo $word > {done}")
    pid = int(read_from(started))
    waiting = cluster.submit("echo ran >> waited", "--dependency", f"afterok:{steady}")
    array = cluster.submit(
        "echo $SLURM_ARRAY_TASK_ID >> tasks", "--array=1-4", "--dependency", f"afterok:{steady}"
    )

    cluster.environment = new
    refused = cluster("eslurm", "up", "--detach")
    assert refused.code == 1 and "`eslurm convert`" in refused.err and len(refused.err.splitlines()) == 1
    refused = cluster("eslurm", "convert")
    assert (
        refused.code == 1 and "eslurm down --keep-jobs" in refused.err and len(refused.err.splitlines()) == 1
    )
    for words in (["down", "--keep-jobs"], ["convert", "--allow-root-jobs"], ["convert"], ["up", "--detach"]):
        answer = cluster("eslurm", *words)
        assert answer.code == 0, answer.err

    os.kill(pid, 0)
    jobs = cluster.jobs()
    assert (jobs[steady]["state"], jobs[steady]["attempts"]) == ("RUNNING", 1)
    cluster.finish("echo here > fresh")
    go.write_text("over\n")
    assert read_from(done) == "over"
    cluster.finish("true")
    last = cluster("essubmit", "--wait", "--dependency", f"afterany:{waiting}:{array}", "--wrap", "true")
    assert last.code == 0, last.err
    ran = json.loads(cluster("esacct", "--json").out)["attempts"]
    assert {(run["state"], run["attempt"]) for run in ran if run["attempt"]} == {("COMPLETED", 1)}
    assert {run["job_id"] for run in ran} >= {steady, waiting, array}
    assert (cluster.work / "waited").read_text() == "ran\n"
    assert sorted((cluster.work / "tasks").read_text().split()) == ["1", "2", "3", "4"]
