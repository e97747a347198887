"""A federation on this machine with real daemons and a real etcd: what `eslurm up --cells` promises."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_up import Cluster, reap, running
from tests.support import etcd, process
from tests.support.leaks import kept_children

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
NAMES = ["alpha", "beta", "gamma"]


class Federation(Cluster):
    """The commands on three cells of one node each."""

    def up(self, *words: str) -> Any:
        answer = self("eslurm", "up", "--detach", "--allow-root-jobs", *words)
        assert answer.code == 0, answer.err
        return answer

    def seen(self) -> dict[str, str]:
        """States of all cells, as the first one sees them."""
        answer = self("esinfo", "--federation", "--json")
        assert answer.code == 0, answer.err
        return {one["name"]: one["state"] for one in json.loads(answer.out)["cells"]}

    def in_cell(self, name: str) -> Federation:
        """The commands on one cell alone."""
        cell = object.__new__(Federation)
        cell.__dict__ = self.__dict__ | {
            "directory": self.directory / name,
            "environment": self.environment | {"ESLURM_STATE_DIR": str(self.directory / name)},
        }
        return cell

    def etcd(self) -> dict[str, Any]:
        """The first etcd, as `eslurm status` shows it."""
        found: dict[str, Any] = self.status()["etcd"][0]
        return found

    def members(self) -> list[str]:
        return [cell["standing"] for cell in self.status()["cells"]]


@pytest.fixture
def federation(state_dir: Path, adopt_orphans: None) -> Iterator[Federation]:
    etcd.program()
    federation = Federation(state_dir)
    federation.others = frozenset(child.pid for child in process.children())
    yield federation
    answer = federation("eslurm", "down", "--purge")
    assert answer.code == 0, answer.err
    assert not federation.directory.exists()
    assert reap(federation.others) == []


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def processes_below(directory: Path) -> list[str]:
    """Command lines that name the directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(directory) in words and path.parent.name != str(os.getpid()):
            found.append(words)
    return found


def test_cells_see_each_other_and_run_jobs(federation: Federation) -> None:
    federation.up("--cells", "3", "-n", "3", "--cores", "1")
    assert federation.seen() == dict.fromkeys(NAMES, "alive")
    assert federation.members() == ["member"] * 3
    jobs = {}
    for name in NAMES:
        cell = federation.in_cell(name)
        jobs[name] = cell.submit("echo $SLURM_JOB_NODELIST", "-o", f"{name}.out", "--wait")
        assert (federation.work / f"{name}.out").read_text() == f"{name}-cn01\n"
    assert len(set(jobs.values())) == 3, "an id is that of one job in all cells"
    # A cell passes on what is for another, but for root.
    passed = federation("essubmit", "--cell", "beta", "--wait", "--wrap", "true")
    assert passed.code == (os.geteuid() == 0), passed.err
    # Plain commands talk to the first cell.
    assert "alpha-cn01" in federation("esinfo", "-N").out

    store = federation.directory / "etcd"
    assert (store / "etcd1").stat().st_mode & 0o777 == 0o700
    if os.geteuid() == 0:
        uids = {Path(f"/proc/{federation.etcd()['pid']}").stat().st_uid}
        uids |= {(store / "etcd1").stat().st_uid}
        assert len(uids) == 1 and 0 not in uids
    went = federation("eslurm", "down")
    assert went.code == 0, went.err
    assert processes_below(federation.directory) == []
    assert [path for path in federation.directory.rglob("*") if path.is_socket()] == []
    # The next one finds what there was: jobs, and each cell's record in the store.
    federation.up()
    assert federation.seen() == dict.fromkeys(NAMES, "alive")
    assert "COMPLETED" in federation.in_cell("beta")("esacct", "-j", str(jobs["beta"])).out


def test_an_etcd_that_is_killed_is_started_again(federation: Federation) -> None:
    with running(federation, "eslurm", "up", "--cells", "2", "-n", "2", "--allow-root-jobs") as foreground:
        kept_children.add(foreground.pid)
        assert foreground.stdout is not None and foreground.stderr is not None
        for line in foreground.stdout:
            if "This command watches the daemons" in line:
                break
        before = federation.etcd()["pid"]
        os.kill(before, signal.SIGKILL)
        until(lambda: federation.etcd()["running"] and federation.etcd()["pid"] != before)
        until(lambda: federation.members() == ["member"] * 2)
        until(lambda: set(federation.seen().values()) == {"alive"})
        # A cell's daemon too.
        agent = federation.in_cell("beta").pid_of("agent1")
        os.kill(agent, signal.SIGKILL)
        told = ""
        for line in foreground.stderr:
            told += line
            if "beta: agent1 is ready again" in line:
                break
        foreground.send_signal(signal.SIGINT)
        told += foreground.communicate(timeout=100)[1]
        kept_children.discard(foreground.pid)
    assert foreground.returncode == 0, told
    assert "etcd1 is ready again" in told
    assert "The federation is down" in told
    assert processes_below(federation.directory) == []


def test_three_etcds_survive_the_loss_of_one(federation: Federation) -> None:
    federation.up("--cells", "a,b", "--etcds", "3", "-n", "2")
    first = federation.etcd()["pid"]
    os.kill(first, signal.SIGKILL)
    until(lambda: not federation.etcd()["running"])
    assert federation("eslurm", "status").code == 1
    assert federation.in_cell("b")("essubmit", "--wait", "--wrap", "true").code == 0
    until(lambda: federation.seen() == {"a": "alive", "b": "alive"})
    assert "etcd1 is ready" in federation.up().err
    assert federation("eslurm", "status").code == 0


def test_the_store_takes_no_call_without_a_certificate(federation: Federation) -> None:
    federation.up("--cells", "2", "-n", "2")
    member = json.loads((federation.directory / "federation.json").read_text())["members"][0]
    cell = federation.directory / "alpha"
    own = ["--cert", str(cell / "etcd.pem"), "--key", str(cell / "etcd.key")]

    def ask(endpoint: str, *words: str) -> str:
        done = subprocess.run(
            [
                *(etcd.client(), "--dial-timeout=3s", "--command-timeout=3s", f"--endpoints={endpoint}"),
                *(*words, "get", "--prefix", "--keys-only", "/eslurm/"),
            ],
            env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    trusted = ["--cacert", str(cell / "etcd-ca.pem")]
    assert "/eslurm/local/cells/alpha" in ask(f"https://{member['listen']}", *trusted, *own)
    assert ask(f"https://{member['listen']}", *trusted) == ""
    assert ask(f"http://{member['listen']}") == ""
    peers = ["--cacert", str(federation.directory / "etcd" / "peer-ca.pem")]
    assert ask(f"https://{member['peer']}", *peers, *own) == ""
