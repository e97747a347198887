"""`eslurm init`: a cluster from the files that it writes and the commands that it shows, until a job has run.

Method: two hosts' files are written below directories of the test, and what is systemd's is done as the units say it. Only
places and addresses differ: directories of this test, and ports on loopback.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import made
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import PATIENCE_S, ROOT, agent_user, path_of
from tests.support.ports import free_port

NODE = "cn0001"
CONTROLLER = "localhost"


def eslurm(*words: str) -> str:
    """The command on a host, which has to succeed; its output."""
    call = [
        sys.executable,
        "-P",
        "-c",
        "from escli.local.eslurm import main; raise SystemExit(main())",
        *words,
    ]
    env = os.environ | {"PYTHONPATH": path_of(ROOT)}
    ran = subprocess.run(call, capture_output=True, text=True, env=env, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 0, ran
    return ran.stdout


class InitCluster(LiveCluster):
    """The cluster of one controller and one node that `eslurm init` makes."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, nodes=1, agents=1, satellites=0)
        self.host, self.other = directory / "host", directory / "other"
        answers = directory / "answers.toml"
        answers.write_text(
            f'cluster = "live"\ncontrollers = "{CONTROLLER}"\nnodes = "{NODE}"\ncores = 4\nmemory_mib = 4000\n'
        )
        said = eslurm("init", "--answers", str(answers), "--host", CONTROLLER, "--root", str(self.host))
        self.next = said.partition("Next:\n")[2].splitlines()
        self.config = self.host / "etc/eslurm/eslurm.toml"
        eslurm("check", str(self.config))
        if os.geteuid() == 0:
            # An administrator's change: this test has no other user.
            self.config.write_text(self.config.read_text() + "\n[agent]\nallow_root_jobs = true\n")
        brought = str(self.host / "etc/eslurm/site.toml")
        said = eslurm("init", "--answers", brought, "--host", NODE, "--root", str(self.other))
        self.next_there = said.partition("Next:\n")[2].splitlines()
        self.state_dir = self.host / "var/lib/eslurm"
        self.daemons.clear()
        self.add_daemon("esctld", *self.words(self._unit_line("esctld.service")), "--listen", self.endpoint)
        # As the unit does it for commands.
        self.socket.symlink_to(self.state_dir / "esctld.sock")

    def start(self) -> None:
        """Type the commands that were shown: the controller, a token, and on the other host the join and the agent."""
        enable, token, note = self.next
        assert enable.split() == ["systemctl", "enable", "--now", "esctld"] and note.lstrip().startswith("#")
        self.launch("esctld")
        command, *words = shlex.split(token.partition(">")[0])
        ran = self.run(command, *words)
        assert ran.code == 0, ran
        file = self.directory / "join-agent"
        file.touch(0o600)
        file.write_text(ran.out)
        join, enable = self.next_there
        assert enable.split() == ["systemctl", "enable", "--now", "esnoded"]
        words = self.words(join.replace("join-agent", str(file)))
        assert words[0] == "eslurm"
        eslurm(*words[1:])
        drop_in = self.other / "etc/systemd/system/esnoded.service.d/site.conf"
        line = next(one for one in drop_in.read_text().splitlines() if one.startswith("ExecStart=/"))
        rights = [*agent_user(), "--allow-root-jobs"] if os.geteuid() == 0 else []
        self.add_daemon("node", *self.words(line), *rights)
        self.launch("node")
        self.wait_nodes(lambda nodes: nodes[NODE].state == "UP")

    def words(self, line: str) -> list[str]:
        """The words of a unit's or a shown command, with the places and addresses of this test."""
        for ours, text in (
            (self.endpoint, f"{CONTROLLER}:7400"),
            (f"127.0.0.1:{free_port()}", "0.0.0.0:7402"),
            (str(self.agent_dir("node")), "/var/lib/esnoded"),
            (str(self.state_dir), "/var/lib/eslurm"),
            (str(self.config), "/etc/eslurm/eslurm.toml"),
            (NODE, "%l"),
            ("", "ExecStart=/usr/bin/env "),
        ):
            line = line.replace(text, ours)
        return shlex.split(line)

    @staticmethod
    def _unit_line(unit: str) -> str:
        text = (ROOT / "deploy/systemd" / unit).read_text()
        return next(line for line in text.splitlines() if line.startswith("ExecStart="))


@pytest.fixture
def cluster() -> Iterator[InitCluster]:
    with made(InitCluster) as found:
        yield found


def test_a_job_runs_on_what_it_has_written(cluster: InitCluster) -> None:
    job_id = cluster.wrap("echo $SLURM_CLUSTER_NAME > out")
    assert cluster.end(job_id) == "COMPLETED"
    assert (cluster.work / "out").read_text() == "live\n"
    ran = cluster.run("esctl", "node", "list")
    assert ran.code == 0 and NODE in ran.out, ran
