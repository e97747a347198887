"""Jobs over two modules through gateways, with real processes: on loopback, and as root in network namespaces.

There the modules share no network but an administration's; what their ranks exchange goes through two gateways that forward
nothing by themselves.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.conftest import made
from tests.integration.test_steps import door
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import ROOT
from tests.kits.stepd import end_process
from tests.support.groups import as_root
from tests.support.ports import free_port

EXAMPLE = ROOT / "examples" / "gateway"
MODULES = {"cl": "cn[0001-0002]", "bo": "cn[0003-0004]", "g1": "cn0005", "g2": "cn0006"}
"""The nodes that each agent serves."""
SECTIONS = """
[[module]]
name = "cluster"
nodes = "cn[0001-0002]"

[[module]]
name = "booster"
nodes = "cn[0003-0004]"
kind = "booster"

[[module]]
name = "bridge"
nodes = "cn[0005-0006]"
kind = "gateway"
"""
USERS = ("cn0001", "cn0002", "cn0003", "cn0004")


class Modules(LiveCluster):
    """Two modules of two nodes and two gateways; each module has an agent, and so has each gateway."""

    step_host = "127.0.0.1"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, nodes=6, agents=1, satellites=0, sections=SECTIONS)
        del self.daemons["agent0"]
        for name, nodes in MODULES.items():
            self.add_agent(name, nodes)
        self.hosts = self.work / "hosts"
        self.hosts.write_text("".join(f"{node} {where}\n" for node, where in self.addresses().items()))
        (self.work / "daemons").mkdir(mode=0o777)

    def addresses(self) -> dict[str, str]:
        """The address of a rank or a daemon on each node."""
        ports = {node: free_port() for node in USERS} | {"cn0005": 0, "cn0006": 0}
        return {node: f"127.0.0.1:{port}" for node, port in ports.items()}

    def daemon(self, before: str = "") -> str:
        """The example's daemon, which leaves its pid behind."""
        path = self.work / "daemon"
        path.write_text(
            f"#!/bin/sh\necho $$ > {self.work}/daemons/$SLURMD_NODENAME\n{before}\nexec python3 {EXAMPLE}/forward.py\n"
        )
        path.chmod(0o755)
        return str(path)

    def pid(self, node: str) -> int:
        """The process of the daemon on a gateway, once there is one."""
        return int(self.wait_lines(f"daemons/{node}")[0])

    def start_job(self, script: str, *words: str, daemon: str = "") -> int:
        """A job over both modules."""
        asked = ["--gateways", "2", "--gateway-binary", daemon or self.daemon()]
        asked += ["--gateway-env", f"FABRIC_HOSTS={self.hosts}", *words]
        path = self.script(
            "job.sh",
            f"{door(self)}export FABRIC_HOSTS={self.hosts} ESLURM_STEP_HOST={self.step_host}\n{script}\n",
        )
        first = ["-N", "2", "-p", "main", "--module", "cluster", *asked, "-o", "said"]
        return self.submit(*first, ":", "-N", "2", "-p", "main", "--module", "booster", path)

    def empty_work_of_jobs(self) -> None:
        """Remove what jobs have left."""
        for path in self.work.iterdir():
            if path.name not in ("hosts", "daemons"):
                path.unlink()
        for path in (self.work / "daemons").iterdir():
            path.unlink()

    def why(self, job_id: int) -> str:
        return self.run("eswhy", str(job_id)).out


class Namespaces(Modules):
    """The same with a network namespace for the controllers, each module and each gateway.

    All have a leg in the administration's network 10.8.0.0/24. The modules' own addresses are 10.1.0.1 and 10.2.0.1; routes
    lead to 10.9.0.1 and 10.9.0.2 on the gateways only.
    """

    step_host = "10.8.0.2"

    def __init__(self, directory: Path) -> None:
        self.prefix = f"es{os.getpid()}"
        self.build()
        super().__init__(directory)
        own = f"10.8.0.1:{self.endpoint.rpartition(':')[2]}"
        config = directory / "eslurm.toml"
        config.write_text(config.read_text().replace(self.endpoint, own))
        for name, daemon in self.daemons.items():
            daemon.words = [word.replace(self.endpoint, own) for word in daemon.words]
            space = "ctl" if name == "esctld" else name
            daemon.prefix = ("nsenter", f"--net=/run/netns/{self.prefix}{space}")
            if name != "esctld":
                daemon.words += ["--listen", f"10.8.0.{2 + list(MODULES).index(name)}:0"]

    def addresses(self) -> dict[str, str]:
        found = {node: f"10.{1 + at // 2}.0.1:{7101 + at}" for at, node in enumerate(USERS)}
        return found | {"cn0005": "10.9.0.1:0", "cn0006": "10.9.0.2:0"}

    def build(self) -> None:
        for space in ("ctl", *MODULES):
            ip("netns", "add", self.prefix + space)
            self.inside(space, "link", "set", "lo", "up")
        self.inside("ctl", "link", "add", "bridge", "type", "bridge")
        self.inside("ctl", "link", "set", "bridge", "up")
        self.inside("ctl", "address", "add", "10.8.0.1/24", "dev", "bridge")
        for at, space in enumerate(MODULES):
            self.wire("ctl", f"to-{space}", space, "admin")
            self.inside("ctl", "link", "set", f"to-{space}", "master", "bridge")
            self.inside(space, "address", "add", f"10.8.0.{2 + at}/24", "dev", "admin")
        for side, module in ((1, "cl"), (2, "bo")):
            self.inside(module, "address", "add", f"10.{side}.0.1/32", "dev", "lo")
            for number in (1, 2):
                gateway = f"g{number}"
                self.wire(module, f"fabric{number}", gateway, f"fabric-{module}")
                self.inside(module, "address", "add", f"10.{side}.{number}.1/30", "dev", f"fabric{number}")
                self.inside(gateway, "address", "add", f"10.{side}.{number}.2/30", "dev", f"fabric-{module}")
                way = ("via", f"10.{side}.{number}.2", "src", f"10.{side}.0.1")
                self.inside(module, "route", "add", f"10.9.0.{number}", *way)
                self.inside(gateway, "route", "add", f"10.{side}.0.1", "via", f"10.{side}.{number}.1")
        for number in (1, 2):
            self.inside(f"g{number}", "address", "add", f"10.9.0.{number}/32", "dev", "lo")
            # It may have been inherited from the machine.
            words = [
                "ip",
                "netns",
                "exec",
                f"{self.prefix}g{number}",
                "sysctl",
                "-qw",
                "net.ipv4.ip_forward=0",
            ]
            subprocess.run(words, check=True, capture_output=True)

    def wire(self, one: str, name: str, other: str, other_name: str) -> None:
        peer = ("peer", "name", other_name, "netns", self.prefix + other)
        self.inside(one, "link", "add", name, "type", "veth", *peer)
        self.inside(one, "link", "set", name, "up")
        self.inside(other, "link", "set", other_name, "up")

    def inside(self, space: str, *words: str) -> None:
        ip("-n", self.prefix + space, *words)

    def can_reach(self, space: str, address: str) -> bool:
        words = ["ip", "-n", self.prefix + space, "route", "get", address]
        return subprocess.run(words, check=False, capture_output=True).returncode == 0

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            self.remove()

    def remove(self) -> None:
        for space in ("ctl", *MODULES):
            subprocess.run(["ip", "netns", "del", self.prefix + space], check=False, capture_output=True)


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
    assert not done.returncode, f"ip {' '.join(words)}: {done.stderr}"


def has_namespaces() -> bool:
    """Check whether this machine lets root make network namespaces."""
    name = f"esprobe{os.getpid()}"
    try:
        made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True)
    except FileNotFoundError:
        return False
    subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
    return made.returncode == 0


@contextmanager
def opened(kind: type[Modules]) -> Iterator[Modules]:
    if kind is Namespaces and not has_namespaces():
        pytest.skip("no network namespaces can be made here")
    with made(kind) as cluster:
        yield cluster


KINDS = [pytest.param(Modules, id="loopback"), pytest.param(Namespaces, id="namespaces", marks=as_root)]


@pytest.fixture(params=KINDS, scope="module")
def modules(request: pytest.FixtureRequest) -> Iterator[Modules]:
    with opened(request.param) as cluster:
        yield cluster


def meetings(said: Sequence[str]) -> dict[tuple[str, str], str]:
    """The gateway of each pair that has met."""
    found = {}
    for line in said:
        words = line.split()
        if words[1:2] == ["and"]:
            found[words[0], words[2]] = words[-1]
    return found


EXCHANGE = f"esrun --het-group=0,1 python3 {EXAMPLE}/exchange.py"
PAIRS = {pair for one in USERS[:2] for other in USERS[2:] for pair in ((one, other), (other, one))}


def test_ranks_of_two_modules_meet_through_the_gateways(modules: Modules) -> None:
    if isinstance(modules, Namespaces):
        assert not modules.can_reach("cl", "10.2.0.1") and not modules.can_reach("bo", "10.1.0.1")
        assert modules.can_reach("cl", "10.9.0.1") and modules.can_reach("bo", "10.9.0.2")
    script = (
        "env | grep -e GATEWAY -e HET_SIZE -e ^SLURM_JOB_NUM_NODES= | sort > env\n"
        f"cp $ESLURM_GATEWAY_ROUTES routes\n{EXCHANGE}"
    )
    job_id = modules.start_job(script, "--gateway-cleanup")
    assert modules.end(job_id) == "COMPLETED", (modules.lines("said"), modules.why(job_id))
    met = meetings(modules.lines("said"))
    assert met.keys() == PAIRS
    assert len(set(met.values())) == 2
    routes = [line.split() for line in modules.lines("routes")]
    assert {(one, other): gateway for gateway, one, other in routes} == met and len(routes) == len(met)
    path = modules.work / f"eslurm-route-{job_id}"
    assert modules.lines("env") == [
        "ESLURM_GATEWAYS=2",
        f"ESLURM_GATEWAY_ROUTES={path}",
        "ESLURM_HET_SIZE=2",
        "SLURM_HET_SIZE=2",
        "SLURM_JOB_NUM_NODES=2",
    ]
    assert not path.exists()
    modules.wait_idle()
    assert not [node for node in ("cn0005", "cn0006") if lives(modules.pid(node))]
    modules.empty_work_of_jobs()


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_daemon_that_dies_while_the_job_starts_sends_the_job_back(modules: Modules) -> None:
    os.mkfifo(modules.work / "gate")
    wait = f"test $SLURMD_NODENAME = cn0005 || read x < {modules.work}/gate"
    job_id = modules.start_job("echo ran > ran", daemon=modules.daemon(wait))
    other, pid = modules.pid("cn0005"), modules.pid("cn0006")
    assert modules.job(job_id).state == "LAUNCHING"
    end_process(pid, signal.SIGKILL)
    error = modules.wait_lines(f"JOB-{job_id}-gateway.err")
    assert len(error) == 1 and "gateway cn0006: daemon ended with 137" in error[0]
    job = modules.reaches(job_id, "PENDING")
    assert job.reason == "BeginTime"
    modules.wait_idle()
    assert not lives(other) and not modules.lines("ran")
    assert "cn0006" in modules.why(job_id)
    modules.clear()
    modules.empty_work_of_jobs()


def test_a_daemon_that_dies_in_the_run_is_told_to_the_script_and_to_people(modules: Modules) -> None:
    script = (
        "trap 'echo told > told' USR2\n"
        f"{EXCHANGE}\nsleep 600 &\necho now > running\nwait\nsleep 600 &\nwait $!\n"
    )
    job_id = modules.start_job(script)
    modules.wait_lines("running")
    end_process(modules.pid("cn0006"), signal.SIGKILL)
    assert modules.wait_lines("told") == ["told"]
    assert modules.job(job_id).state == "RUNNING"
    assert "gateway cn0006: daemon ended with 137" in modules.why(job_id)
    modules.clear()
    assert not lives(modules.pid("cn0005"))
    modules.empty_work_of_jobs()


def test_a_plugin_that_does_not_exist_is_one_line(modules: Modules) -> None:
    job_id = modules.start_job("echo ran > ran", "--gateway-plugin", "nothing")
    (line,) = modules.wait_lines(f"JOB-{job_id}-gateway.err")
    assert "--gateway-plugin: there is no 'nothing': use one of plugin1, plugin2, plugin3, names" in line
    modules.reaches(job_id, "PENDING")
    modules.wait_idle()
    assert not modules.lines("ran")
    modules.clear()
    modules.empty_work_of_jobs()


@pytest.fixture(scope="module")
def plain() -> Iterator[Modules]:
    with opened(Modules) as cluster:
        yield cluster


def at_a_gate(cluster: Modules, script: str, *words: str) -> int:
    """A job whose daemon on cn0006 waits before it tells its address; both run."""
    os.mkfifo(cluster.work / "gate")
    wait = f"test $SLURMD_NODENAME = cn0005 || read x < {cluster.work}/gate"
    job_id = cluster.start_job(script, *words, daemon=cluster.daemon(wait))
    for node in ("cn0005", "cn0006"):
        cluster.pid(node)
    return job_id


def survives(cluster: Modules, killed: str) -> None:
    job_id = at_a_gate(cluster, EXCHANGE)
    pids = [cluster.pid("cn0005"), cluster.pid("cn0006")]
    cluster.kill(killed)
    cluster.launch(killed)
    (cluster.work / "gate").write_text("go\n")
    assert cluster.end(job_id) == "COMPLETED", (cluster.lines("said"), cluster.why(job_id))
    assert meetings(cluster.lines("said")).keys() == PAIRS
    assert [cluster.pid("cn0005"), cluster.pid("cn0006")] == pids
    cluster.wait_idle()
    cluster.empty_work_of_jobs()


@pytest.mark.parametrize("killed", ["g1", "g2"])
def test_a_start_survives_the_death_of_a_gateway_s_agent(plain: Modules, killed: str) -> None:
    survives(plain, killed)


def test_a_start_survives_the_death_of_the_controller() -> None:
    with opened(Modules) as cluster:
        survives(cluster, "esctld")


def test_a_supervisor_that_dies_in_the_run_is_an_end_of_its_daemon(plain: Modules) -> None:
    script = "trap 'echo told > told' USR2\nsleep 600 &\necho now > running\nwait\nsleep 600 &\nwait $!\n"
    job_id = plain.start_job(script)
    plain.wait_lines("running")
    os.kill(plain.supervisor("g2"), signal.SIGKILL)
    assert plain.wait_lines("told") == ["told"]
    assert "gateway cn0006: daemon ended" in plain.why(job_id)
    plain.clear()
    plain.empty_work_of_jobs()


def test_a_job_cancelled_while_its_gateways_start_leaves_no_daemon(plain: Modules) -> None:
    job_id = at_a_gate(plain, "echo ran > ran")
    pids = [plain.pid("cn0005"), plain.pid("cn0006")]
    plain.do("escancel", str(job_id))
    assert plain.end(job_id) == "CANCELLED"
    plain.wait_idle()
    assert not any(map(lives, pids)) and not plain.lines("ran")
    plain.empty_work_of_jobs()


def test_several_daemons_of_a_gateway_take_turns(plain: Modules) -> None:
    script = f"cut -d' ' -f1 $ESLURM_GATEWAY_ROUTES | sort | uniq -c > used\n{EXCHANGE}"
    job_id = plain.start_job(script, "--gateways-per-node", "2", "--gateway-plugin", "names")
    assert plain.end(job_id) == "COMPLETED", (plain.lines("said"), plain.why(job_id))
    assert [line.split()[0] for line in plain.lines("used")] == ["2"] * 4
    plain.wait_idle()
    plain.empty_work_of_jobs()


def test_a_job_that_gives_back_a_part_keeps_its_gateways_until_its_end(plain: Modules) -> None:
    script = f"{EXCHANGE}\nesctl finish-part +1 && echo given > given\nsleep 600"
    job_id = plain.start_job(script)
    plain.wait_lines("given")
    plain.wait_nodes(lambda nodes: not nodes["cn0003"].jobs)
    assert lives(plain.pid("cn0005")) and plain.job(job_id).state == "RUNNING"
    plain.clear()
    assert not lives(plain.pid("cn0005"))
    plain.empty_work_of_jobs()


def test_daemons_log_to_a_file_and_get_nothing_of_the_submission(
    plain: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_USER", "yes")
    say = 'echo "debug ${ESLURM_GATEWAY_DEBUG-off}, of user: ${OF_USER-none}, job $SLURM_JOB_ID" >&2'
    words = ("--gateway-debug", "--gateway-inherit", "no")
    job_id = plain.start_job(EXCHANGE, *words, daemon=plain.daemon(say))
    assert plain.end(job_id) == "COMPLETED", (plain.lines("said"), plain.why(job_id))
    for node in ("cn0005", "cn0006"):
        (line, *_) = plain.lines(f"JOB-{job_id}-gateway-{node}.log")
        assert line == f"debug 1, of user: none, job {job_id}"
    plain.wait_idle()
    plain.empty_work_of_jobs()


def test_daemons_get_the_variables_of_the_submission_by_default(
    plain: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_USER", "yes")
    say = f'echo "debug ${{ESLURM_GATEWAY_DEBUG-off}}, of user: $OF_USER" > {plain.work}/heard'
    job_id = plain.start_job("true", daemon=plain.daemon(say))
    assert plain.end(job_id) == "COMPLETED", plain.why(job_id)
    assert plain.lines("heard") == ["debug off, of user: yes"]
    assert not list(plain.work.glob("*.log"))
    plain.wait_idle()
    plain.empty_work_of_jobs()


def test_a_quiet_job_leaves_no_error_file(plain: Modules) -> None:
    # One only: the end of the other one first would end this one before it has said anything.
    fails = plain.daemon("test $SLURMD_NODENAME != cn0005 || exit 3")
    job_id = plain.start_job("echo ran > ran", "--gateway-quiet", daemon=fails)
    assert plain.pid("cn0005")
    assert plain.reaches(job_id, "PENDING").reason == "BeginTime"
    plain.wait_idle()
    assert "daemon ended with 3" in plain.why(job_id)
    assert not list(plain.work.glob("*.err")) and not plain.lines("ran")
    plain.clear()
    plain.empty_work_of_jobs()
