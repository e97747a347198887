"""An agent that has fallen to an attacker asks the step supervisor, which is root, for what no controller has said.

The attacker is the agent's user: it has the agent's connection, the agent's directory, and every sealed command that came.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from eslurm.core.model.job import Principal
from eslurm.core.model.protocol import Prepare
from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import StepEndCause
from eslurm.security.site_keys import new_site, write_ring
from esnoded.procd.options import Options
from esnoded.stepd import wire
from esnoded.stepd.launcher import connect_supervisor, ensure_supervisor
from esnoded.stepd.place import Place
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import AGENT_UID, PATIENCE_S
from tests.kits.launches import launch_of
from tests.kits.stepd import end_process
from tests.kits.stepd_credentials import KEY, SITE, launch, order, sealed
from tests.security.conftest import STRANGER

_answers = msgspec.msgpack.Decoder(wire.Answer)


def as_uid(uid: int, act: Callable[[], object]) -> str:
    """Act as another user: the result is that of the act as text, or the name of the error."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if not pid:
        text = ""
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            text = str(act())
        except BaseException as error:
            text = type(error).__name__
        finally:
            os.write(write_fd, text.encode()[:4096])
            os._exit(0)
    os.close(write_fd)
    with open(read_fd) as told:
        text = told.read()
    os.waitpid(pid, 0)
    return text


class Supervisor:
    """A real one of root's, for the nodes cn3 and cn4, and a connection as an agent has it."""

    def __init__(self, directory: Path, uid: int = -1) -> None:
        """It serves as this user; -1: as root."""
        directory.chmod(0o711)
        self.state = directory / "a"
        self.work = directory / "work"
        self.work.mkdir()
        self.work.chmod(0o777)
        ring = directory / "site.pub"
        write_ring(ring, SITE.ring)
        self.options = Options("cn[3-4]", str(ring), uid=uid, gid=uid)
        self.pid = ensure_supervisor(self.state, self.options).pid
        self.place = Place(self.state)
        self._socket = connect_supervisor(self.state, self.options)
        self._socket.settimeout(PATIENCE_S)
        self._frames = wire.FrameBuffer()
        self._bodies: list[bytes] = []
        self._number = 0
        self.ended: list[StepKey] = []
        self.send(wire.Hello(wire.PROTOCOL_VERSION))

    def send(self, message: msgspec.Struct) -> None:
        self._socket.sendall(wire.encode_frame(message))

    def ask(self, make: Callable[[int], msgspec.Struct]) -> wire.Answer:
        self._number += 1
        self.send(make(self._number))
        while True:
            answer = self.next()
            if getattr(answer, "request", None) == self._number:
                return answer

    def next(self) -> wire.Answer:
        while not self._bodies:
            self._bodies = self._frames.feed(self._socket.recv(65_536))
        answer: wire.Answer = _answers.decode(self._bodies.pop(0))
        if isinstance(answer, wire.Ended):
            self.ended += [outcome.key for outcome in answer.outcomes]
        return answer

    def refusal(self, credential: bytes, key: StepKey = KEY, **changes: object) -> str:
        """Why a launch is refused; fails when it is not."""
        answer = self.ask(lambda number: wire.Launch(number, order(credential, key=key, **changes)))
        assert isinstance(answer, wire.Refused), answer
        return answer.text

    def close(self) -> None:
        self._socket.close()
        end_process(self.pid, signal.SIGTERM)


@pytest.fixture
def supervisor(state_dir: Path, as_root: None, adopt_orphans: None) -> Iterator[Supervisor]:
    made = Supervisor(state_dir)
    yield made
    made.close()
    os.waitpid(made.pid, 0)


def job(supervisor: Supervisor, uid: int = STRANGER, **changes: object) -> Prepare:
    made = launch(user=Principal("ada", uid, uid), work_dir=str(supervisor.work))
    return Prepare(launch_of(made, **changes), start=True)


def test_no_other_user_reaches_the_socket(supervisor: Supervisor) -> None:
    def connect() -> str:
        socket.socket(socket.AF_UNIX).connect(supervisor.place.socket)
        return "connected"

    for uid in (AGENT_UID, STRANGER):
        assert as_uid(uid, connect) == "PermissionError"
        assert as_uid(uid, lambda: os.listdir(supervisor.place.directory)) == "PermissionError"
        assert as_uid(uid, lambda: os.kill(supervisor.pid, signal.SIGKILL)) == "PermissionError"


def test_what_no_controller_has_sealed_for_this_host_does_not_run(supervisor: Supervisor) -> None:
    good = sealed(job(supervisor))
    foreign = new_site("c", 9)
    assert "no launch credential" in supervisor.refusal(b"")
    assert "not of this site" in supervisor.refusal(sealed(job(supervisor), site=foreign))
    assert "not of this site" in supervisor.refusal(good[:-1] + bytes([good[-1] ^ 1]))
    elsewhere = sealed(job(supervisor, node_names="other[3-4]"))
    assert "node other3, which is not of this host" in supervisor.refusal(elsewhere)
    assert "not the first" in supervisor.refusal(good, StepKey(7, 1, -1, 4))
    assert "another step" in supervisor.refusal(good, StepKey(8, 1, -1, 3))
    assert "ended" in supervisor.refusal(sealed(job(supervisor), expires_us=1))
    assert "root are refused" in supervisor.refusal(sealed(job(supervisor, uid=0)))
    assert "below 1000" in supervisor.refusal(sealed(job(supervisor, uid=999)))
    assert "script is not the one" in supervisor.refusal(good, script=b"#!/bin/sh\nid > /tmp/owned\n")
    assert "environment is not the one" in supervisor.refusal(good, environment=b"LD_PRELOAD=/tmp/x.so\0")
    # The agent brings keys of its own, and a spec as earlier versions took it.
    answer = supervisor.ask(lambda number: wire.Trust(number, foreign.ring.sealed))
    assert isinstance(answer, wire.Refused)
    body = msgspec.msgpack.encode([11, 99, [[7, 1, -1, 3], "cn3", 0, 0, ["/bin/true"], {}, "/"]])
    supervisor._socket.sendall(struct.pack(">I", len(body)) + body)
    assert isinstance(refused := supervisor.next(), wire.Refused) and "unsupported" in refused.text
    assert not list(supervisor.work.iterdir()) and not supervisor.ended


def test_a_good_one_runs_once_as_its_user(supervisor: Supervisor) -> None:
    good = sealed(job(supervisor))
    assert isinstance(supervisor.ask(lambda number: wire.Launch(number, order(good))), wire.Launched)
    while KEY not in supervisor.ended:
        supervisor.next()
    assert (supervisor.work / "ran").read_text() == f"{STRANGER}\n"
    (supervisor.work / "ran").unlink()
    supervisor.ask(lambda number: wire.Acknowledge(number, (KEY,)))
    assert "launched before" in supervisor.refusal(good)
    assert not (supervisor.work / "ran").exists()


def test_nothing_is_done_to_what_the_supervisor_does_not_hold(supervisor: Supervisor) -> None:
    for make in (
        lambda number: wire.Signal(number, KEY, 9),
        lambda number: wire.Terminate(number, KEY, StepEndCause.SIGNALLED, 0),
        lambda number: wire.Suspend(number, KEY, False),
        lambda number: wire.SetLimit(number, KEY, 1),
    ):
        assert supervisor.ask(make).found is False  # type: ignore[union-attr]


# ---- a node as it is started ----


@pytest.fixture
def node(as_root: None) -> Iterator[LiveCluster]:
    with running(nodes=1, agents=1, satellites=0) as cluster:
        yield cluster


def test_the_agent_is_not_root_and_cannot_touch_what_is(node: LiveCluster) -> None:
    process = node.daemons["agent0"].process
    assert process is not None
    told = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    assert told["Uid"].split() == told["Gid"].split() == [str(AGENT_UID)] * 4
    assert not told["Groups"].split() and told["NoNewPrivs"].strip() == "1"
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(told[name], 16) == 0
    supervisor = node.supervisor("agent0")
    home = node.agent_dir("agent0")
    assert as_uid(AGENT_UID, lambda: os.kill(supervisor, signal.SIGKILL)) == "PermissionError"
    assert as_uid(AGENT_UID, lambda: os.rename(home / "stepd", home / "away")) == "PermissionError"
    assert as_uid(AGENT_UID, lambda: os.symlink("/etc", home / "link")) == "PermissionError"
    # Killed by root, it comes back, and jobs run.
    end_process(supervisor, signal.SIGKILL)
    assert node.run_as_user("essubmit", "--wait", "-Q", "-D", str(node.work), "--wrap", "exit 3").code == 3
    assert node.supervisor("agent0") != supervisor


def test_a_job_cannot_put_anything_into_the_place_of_scripts(node: LiveCluster) -> None:
    scripts = node.agent_dir("agent0") / "scripts"
    victim = node.directory / "victim"
    victim.write_text("root's own")
    tries = (
        "d=$(dirname $0); n=$(basename $0); "
        f"for c in 'ln -s {victim} '$d/new 'mkfifo '$d/new 'mkdir '$d/new 'mv '$0' '$d/x 'rm '$0 'ls '$d; do "
        "$c >/dev/null 2>&1 && echo $c; done; echo over; chmod u+w $0 && echo echo changed >> $0; exit 0"
    )
    submitted = ("--wait", "-Q", "-D", str(node.work), "-o", "out", "--wrap", tries)
    for _ in range(2):
        assert node.run_as_user("essubmit", *submitted).code == 0
        assert (node.work / "out").read_text() == "over\n", "and what it has changed does not run"
        (node.work / "out").unlink()
    assert victim.read_text() == "root's own" and victim.stat().st_uid == 0
    assert scripts.stat().st_uid == 0 and scripts.stat().st_mode & 0o777 == 0o711


def test_root_s_and_services_jobs_are_refused_at_the_door(as_root: None) -> None:
    with running(nodes=1, agents=1, satellites=0, sections="") as cluster:
        config = cluster.directory / "eslurm.toml"
        later = ("essubmit", "--parsable", "-D", str(cluster.work), "--begin", "now+1hour", "--wrap", "true")
        waits = int(cluster.run(*later).out)
        config.write_text(config.read_text().replace("allow_root_jobs = true", "min_uid = 70000"))
        cluster.terminate("esctld")
        cluster.launch("esctld")
        root = cluster.run("essubmit", "--wrap", "true")
        assert root.code == 1 and "root's jobs are refused (agent.allow_root_jobs)" in root.err
        user = cluster.run_as_user("essubmit", "-D", str(cluster.work), "--wrap", "true")
        assert user.code == 1 and "below 70000 (agent.min_uid)" in user.err
        # What was accepted before is held, and says by which setting.
        info = cluster.job(waits)
        assert (info.state, info.reason) == ("PENDING", "JobHeldSystem")
        assert info.reason_text == "root's jobs are refused (agent.allow_root_jobs)"
        released = cluster.run("esctl", "release", str(waits))
        assert released.code != 0 and "agent.allow_root_jobs" in released.err


def test_a_job_of_root_that_a_node_refuses_is_held_and_says_by_which_option(as_root: None) -> None:
    """The configuration lets root's jobs in, and root has started this host's agent without the option."""
    with running(nodes=1, agents=1, satellites=0, sections="") as cluster:
        (before,) = cluster.nodes().values()
        cluster.terminate("agent0")
        cluster.daemons["agent0"].words.remove("--allow-root-jobs")
        cluster.start()
        # A launch that the former agent would have got is another attempt.
        cluster.wait_nodes(lambda nodes: nodes["cn0001"].incarnation > before.incarnation)
        job = int(cluster.run("essubmit", "--parsable", "-D", str(cluster.work), "--wrap", "true").out)
        info = cluster.until(
            lambda: (one := cluster.job(job)).reason == "JobHeldSystem" and one, "it is held"
        )
        assert info.attempts == 1, "another try changes nothing"
        assert info.reason_text == (
            "could not be launched on cn0001: jobs of root are refused here (esnoded --allow-root-jobs)"
        )
        (node,) = cluster.nodes().values()
        assert node.state == "UP" and not node.flags
