"""A login host: users' commands through an agent that runs no jobs. Goal: what a user does at a controller's socket works
there, also while the leader is killed; nobody gets a right by it.

Method: real processes: two controllers, a satellite, nodes, a login agent; commands of an ordinary user in a child without
root's rights.
"""

from __future__ import annotations

import os
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eslurm.api.forward import CONTROL_CALL_BYTES_MAX
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import made
from tests.kits.cluster import CLUSTER, LiveCluster, daemon_of
from tests.kits.commands import Ran, become_user, main_of, preload
from tests.kits.daemons import AGENT_UID, agent_user

GATE = "until test -e gate; do sleep 0.02; done"
LOGIN = '[login]\nnodes = "login[1-3]"'


class LoginCluster(LiveCluster):
    """A cluster with three login hosts: login1 goes straight to the controllers, login2 by a satellite, login3 is never up.

    Their doors are at `doors`.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory, nodes=2, agents=1, satellites=1, controllers=2, sections=LOGIN, is_watched=True
        )
        ways = {"login1": ("--controller", self.endpoints), "login2": ("--satellites", self._satellites)}
        doors = directory / "doors"
        doors.mkdir(mode=0o755)
        if os.geteuid() == 0:
            os.chown(doors, AGENT_UID, AGENT_UID)
        self.doors = {name: doors / f"{name}.sock" for name in ways}
        for name, (option, endpoints) in ways.items():
            words = [
                "--login",
                "--nodes",
                name,
                option,
                ",".join(endpoints),
                "--socket",
                str(self.doors[name]),
            ]
            words += ["--state-dir", str(self.agent_dir(name)), *agent_user()]
            self.site.write_member(self.agent_dir(name), "login", name)
            self.add_daemon(name, "esnoded", "--cluster", CLUSTER, *words)

    def wait_nodes(self, wanted: Callable[[dict[str, object]], bool]) -> None:
        """As for all clusters, but for the login host that is never up."""
        super().wait_nodes(lambda nodes: wanted({name: nodes[name] for name in nodes if name != "login3"}))

    def at_login(self, command: str, *words: str, host: str = "login1") -> Ran:
        """A command of an ordinary user on a login host."""
        return self.run_as_user(command, *self._placed(command), *words, socket=self.doors[host])

    def _placed(self, command: str) -> tuple[str, ...]:
        return ("-D", str(self.work)) if command == "essubmit" else ()

    def begin(self, command: str, *words: str) -> Callable[[], Ran]:
        """The same beside the test; call what is returned to wait for its end."""
        preload()
        paths = [self.directory / f"begun.{name}" for name in ("out", "err")]
        pid = os.fork()
        if not pid:
            code = 70
            try:
                with open(paths[0], "wb") as out, open(paths[1], "wb") as err:
                    if os.getuid() == 0:
                        become_user(self.work, out, err)
                    else:
                        os.dup2(out.fileno(), 1)
                        os.dup2(err.fileno(), 2)
                    code = main_of(command)(
                        ["--socket", str(self.doors["login1"]), *self._placed(command), *words]
                    )
            finally:
                os._exit(code & 0xFF)

        def end() -> Ran:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            return Ran(code, *(path.read_text() for path in paths))

        return end

    def submit_large_queue(self) -> int:
        """Jobs that wait, so many that a list of them is too large for one item; how many."""
        count = CONTROL_CALL_BYTES_MAX // 1024 + 1
        need = pb.ResourceRequest(tasks=1, cpus_per_task=1)
        job = pb.JobRequest(
            name="held",
            components=[need],
            script=b"#!/bin/sh\n",
            work_dir="/tmp",
            held=True,
            comment="x" * 1024,
        )
        self.call("Submit", pb.SubmitRequest(jobs=[job] * count))
        return count

    def metrics(self, daemon: str) -> str:
        """The text of a daemon's metrics page."""
        with urllib.request.urlopen(f"http://{self.watched[daemon]}/metrics", timeout=20) as page:
            text: str = page.read().decode()
        return text


@pytest.fixture(scope="module")
def login_cluster() -> Iterator[LoginCluster]:
    with made(LoginCluster) as cluster:
        yield cluster


@pytest.fixture
def site(login_cluster: LoginCluster) -> Iterator[LoginCluster]:
    """The module's cluster, whole and idle at the start of each test."""
    login_cluster.empty_work()
    login_cluster.start()
    login_cluster.wait_standbys()
    yield login_cluster
    login_cluster.start()
    login_cluster.clear()
    login_cluster.hang_up()


def test_a_user_s_first_day(site: LoginCluster) -> None:
    submitted = site.at_login("essubmit", "--parsable", "--wrap", f"id -u > uid; {GATE}")
    assert submitted.code == 0, submitted
    job_id = int(submitted.out)
    site.wait_lines("uid")
    uid = os.getuid() or 65534
    assert site.lines("uid") == [str(uid)]
    site.reaches(job_id, "RUNNING")
    assert site.at_login("esqueue", "-h", "-o", "%i %T").out == f"{job_id} RUNNING\n"
    held = site.at_login("essubmit", "--parsable", "--hold", "--wrap", "true").out.strip()
    site.run("eswhy", held)
    why = site.at_login("eswhy", held)
    assert why.code == 0 and "held" in why.out, why
    for cancelled in (str(job_id), held):
        assert site.at_login("escancel", cancelled).code == 0
    assert site.ended(job_id, int(held)) == ["CANCELLED"] * 2
    failed = site.at_login("essubmit", "--wait", "-Q", "--wrap", "exit 7")
    assert failed.code == 7, failed


def test_it_is_shown_and_is_no_node(site: LoginCluster) -> None:
    rows = [line.split() for line in site.run("esinfo").out.splitlines()]
    assert ["-", "-", "-", "2", "login", "login[1-2]"] in rows
    assert ["-", "-", "-", "1", "unknown", "login3"] in rows
    assert not any("login" in row[-1] for row in rows if row[0] in ("main*", "brief"))
    assert ["login1", "-", "login", "0/0"] in [
        line.split() for line in site.run("esinfo", "-N").out.splitlines()
    ]
    drained = site.run("esctl", "drain", "login1", "reason=x")
    assert drained.code == 1 and "login1 is a login host, where no job runs" in drained.err
    unknown = site.run("essubmit", "-w", "login1", "--wrap", "true")
    assert unknown.code == 1 and "login1" in unknown.err


def test_who_is_sent_away_is_told_where_to(site: LoginCluster) -> None:
    stranger = site.run_as_user("esqueue", socket=site.agent_dir("agent0") / "door.sock")
    assert stranger.code == 1 and stranger.err.endswith("(cn0001): use a login host: login[1-2]\n"), stranger
    drained = site.at_login("esctl", "drain", "cn0001", "reason=x")
    assert drained.code == 1 and "give them on a host of a controller (127.0.0.1)" in drained.err
    assert not site.nodes()["cn0001"].flags
    if os.getuid() == 0:
        root = site.run("esqueue", socket=site.doors["login1"])
        assert root.code == 1 and "root's commands are not taken on a login host" in root.err
        others = site.wrap("true", "--hold")
        cancelled = site.at_login("escancel", str(others))
        assert cancelled.code == 1 and "belongs to root" in cancelled.err


def test_what_is_large_goes_through(site: LoginCluster) -> None:
    text = "#!/bin/sh\n" + "# a long script\n" * (3 * 2**20 // 16) + "echo done > done\n"
    assert len(text) > CONTROL_CALL_BYTES_MAX
    script = site.script("large", text)
    submitted = site.at_login("essubmit", "--parsable", script)
    assert submitted.code == 0, submitted
    assert site.end(int(submitted.out)) == "COMPLETED"
    assert site.lines("done") == ["done"]

    count = site.submit_large_queue()
    queue = site.at_login("esqueue", "-h", "-o", "%i")
    assert queue.code == 0 and len(queue.out.splitlines()) == count, queue.err


def test_a_waiting_command_outlives_the_leader(site: LoginCluster) -> None:
    leader = site.leader()
    waits = site.begin("essubmit", "--wait", "-Q", "--wrap", f"echo $SLURM_JOB_ID > up; {GATE}; exit 5")
    (job_id,) = site.wait_lines("up")
    site.kill(daemon_of(leader))
    queue = site.at_login("esqueue", "-h", "-o", "%i")
    assert (queue.code, queue.out) == (0, f"{job_id}\n"), queue
    (site.work / "gate").touch()
    ended = waits()
    assert ended.code == 5, ended


def test_the_doors_are_counted(site: LoginCluster) -> None:
    def calls(door: str) -> float:
        found = re.search(rf'^eslurm_calls_total{{door="{door}"}} (\S+)$', site.metrics(daemon), re.MULTILINE)
        assert found is not None
        return float(found[1])

    daemon = daemon_of(site.leader())
    before = calls("login")
    assert site.at_login("esqueue").code == 0
    # Pages are made once a second at most.
    site.until(lambda: calls("login") > before, "the call is counted")
    assert re.search(r"^eslurm_agent_door_calls_total [1-9]", site.metrics("login1"), re.MULTILINE)


def test_through_a_satellite_all_but_what_is_large(site: LoginCluster) -> None:
    ran = site.at_login("essubmit", "--wait", "-Q", "--wrap", "exit 3", host="login2")
    assert ran.code == 3, ran
    large = site.script("large", "#!/bin/sh\n" + "# long\n" * (CONTROL_CALL_BYTES_MAX // 7 + 1))
    refused = site.at_login("essubmit", large, host="login2")
    assert refused.code == 1 and "give its esnoded --controller" in refused.err, refused
    site.submit_large_queue()
    queue = site.at_login("esqueue", host="login2")
    assert queue.code == 1 and "ask for less, or give its esnoded --controller" in queue.err, queue
