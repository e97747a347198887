"""A supervisor that has fallen to an attacker asks `procd`, which is root, for what no controller has sealed.

The attacker is the agent's user and has the supervisor's end of the socket, which a copy of it is taken from.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import random
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from eslurm.core.model.job import Principal
from eslurm.core.model.protocol import LaunchStep, NodeGroup, Prepare
from eslurm.core.model.request import PartSpec, Request
from eslurm.core.model.step_input import StepInput
from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import StepSpec
from eslurm.security.account import Account, drop
from eslurm.security.site_keys import new_site, write_ring
from esnoded.procd import procfs, wire
from esnoded.procd.families import Families, Step
from esnoded.procd.options import Options
from esnoded.procd.request_checks import Allowed
from esnoded.procd.spawn import spawn_task
from esnoded.stepd.launcher import ensure_supervisor
from esnoded.stepd.place import Place
from esnoded.stepd.processes import read_report
from esnoded.task.program import STEP_MARKER, Program
from tests.integration.conftest import running
from tests.kits.daemons import AGENT_UID, PATIENCE_S
from tests.kits.launches import launch_of
from tests.kits.stepd import end_process
from tests.kits.stepd_credentials import KEY, SITE, launch, order, sealed
from tests.security.conftest import STRANGER
from tests.security.test_launch_credentials import as_uid

_SYS_PIDFD_GETFD = 438
_told = msgspec.msgpack.Decoder(wire.Told)
_encode = msgspec.msgpack.encode


def copy_of_channel(pid: int) -> socket.socket:
    """A copy of the descriptor at which a supervisor asks `procd`; the supervisor stands still from now on."""
    os.kill(pid, signal.SIGSTOP)
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            if os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                fd = libc.syscall(_SYS_PIDFD_GETFD, pidfd, int(name), 0)
                assert fd >= 0, os.strerror(ctypes.get_errno())
                found = socket.socket(fileno=fd)
                if found.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_SEQPACKET:
                    return found
                found.close()
    finally:
        os.close(pidfd)
    raise AssertionError("the supervisor has no channel")


class Fallen:
    """A real `procd` of root's, for the nodes cn3 and cn4, and what its supervisor could ask of it."""

    def __init__(self, directory: Path) -> None:
        directory.chmod(0o711)
        self.state = directory / "a"
        self.work = directory / "work"
        self.work.mkdir()
        self.work.chmod(0o777)
        write_ring(directory / "site.pub", SITE.ring)
        options = Options(
            "cn[3-4]",
            str(directory / "site.pub"),
            uid=AGENT_UID,
            gid=AGENT_UID,
            # Without it a task starts where no supervisor has made a group, and is known by its mark alone.
            containment="none",
        )
        status = ensure_supervisor(self.state, options)
        self.pid, self.server_pid = status.pid, status.server_pid
        self.end = copy_of_channel(self.server_pid)
        self.end.settimeout(PATIENCE_S)

    def job(self, uid: int = STRANGER, **changes: object) -> bytes:
        made = launch(user=Principal("ada", uid, uid), work_dir=str(self.work))
        return sealed(Prepare(launch_of(made, **changes), start=True))

    def send(self, packet: bytes, fds: Sequence[int] = ()) -> None:
        socket.send_fds(self.end, [packet], fds)

    def answer(self) -> wire.Told:
        while True:
            packet, ancillary, _, _ = self.end.recvmsg(65_536, 64)
            for _level, _kind, data in ancillary:
                os.close(int.from_bytes(data[:4], "little"))
            told: wire.Told = _told.decode(packet[1:])
            if not isinstance(told, wire.Event):
                return told

    def over(self, *keys: StepKey) -> str:
        """It has no answer."""
        self.send(b"\0" + _encode(wire.Over(keys)))
        return "told"

    def ask(self, message: object, fds: Sequence[int] = ()) -> str:
        """The refusal's text; else what else was said."""
        self.send(b"\0" + _encode(message), fds)
        answer = self.answer()
        return f"refused: {answer.text}" if isinstance(answer, wire.Refused) else type(answer).__name__

    def raw(self, packet: bytes, fds: Sequence[int] = ()) -> str:
        self.send(packet, fds)
        answer = self.answer()
        return f"refused: {answer.text}" if isinstance(answer, wire.Refused) else type(answer).__name__

    def as_agent(self, *acts: Callable[[], str]) -> list[str]:
        """Act as the agent's user; the result has the answer to each act."""
        heard: list[str] = []
        for at in range(0, len(acts), 10):
            part = acts[at : at + 10]
            text = as_uid(AGENT_UID, lambda part=part: "\n".join(act() for act in part))  # type: ignore[misc]
            heard += text.split("\n")
        return heard

    def fds(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def close(self) -> None:
        self.end.close()
        with suppress(ProcessLookupError):
            end_process(self.server_pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            end_process(self.pid)
        os.waitpid(self.pid, 0)


@pytest.fixture
def fallen(state_dir: Path, as_root: None, adopt_orphans: None) -> Iterator[Fallen]:
    made = Fallen(state_dir)
    try:
        yield made
    finally:
        made.close()


def refused(texts: Sequence[str], *says: str) -> None:
    assert len(texts) == len(says), texts
    for text, said in zip(texts, says, strict=True):
        assert text.startswith("refused: ") and said in text, (text, said)


def test_nothing_starts_that_no_controller_has_sealed(fallen: Fallen) -> None:
    good, foreign = fallen.job(), new_site("c", 9)
    other = StepKey(8, 1, -1, 3)

    def admit(credential: bytes, **changes: object) -> Callable[[], str]:
        return lambda: fallen.ask(wire.Admit(order(credential, **changes)))

    heard = fallen.as_agent(
        lambda: fallen.ask(wire.Spawn(KEY, 0)),
        lambda: fallen.ask(wire.Spawn(KEY, 0, seconds_left=0)),
        admit(b""),
        admit(sealed(Prepare(launch(), start=True), site=foreign)),
        admit(good[:-1] + bytes([good[-1] ^ 1])),
        admit(good, key=other),
        admit(sealed(Prepare(launch(), start=True), expires_us=1)),
        admit(fallen.job(uid=0)),
        admit(fallen.job(uid=999)),
        admit(fallen.job(node_names="other[3-4]")),
        admit(good, script=b"#!/bin/sh\nid > /tmp/owned\n"),
        admit(good, environment=b"LD_PRELOAD=/tmp/x.so\0"),
        lambda: fallen.ask(wire.Trust(foreign.ring.sealed)),
    )
    refused(
        heard,
        *(
            "was not admitted",
            "was not admitted",
            "no launch credential",
            "not of this site",
            "not of this site",
        ),
        *("another step", "ended", "root are refused", "below 1000", "not of this host"),
        *("script is not the one", "environment is not the one", "not replaced"),
    )
    assert not list(fallen.work.iterdir())


def test_a_step_of_one_part_starts_as_no_other_step_and_takes_no_cores_of_another_part(
    fallen: Fallen,
) -> None:
    """Both parts of the job share node 3: part 0 holds 2 cores there, part 1 holds 1."""
    groups = (NodeGroup(((3, 1),), (2,), 1), NodeGroup(((3, 1),), (1,), 1, 1))
    job = launch(
        user=Principal("ada", STRANGER, STRANGER),
        work_dir=str(fallen.work),
        groups=groups,
        node_names="cn3",
        parts=(PartSpec(), PartSpec()),
        components=(Request(), Request()),
    )

    def step(number: int, component: int, cpus_per_task: int) -> bytes:
        own = (NodeGroup(((3, 1),), (cpus_per_task,), 1, component),)
        body = LaunchStep(
            *(7, 1, number, own, ("true",), job.spec.environment_hash, str(fallen.work)),
            *("127.0.0.1:9", b"c" * 32, 1, cpus_per_task),
            launch=job,
            component=component,
            rank_first=component,
            tasks_total=2,
            first=0,
            whole=groups,
        )
        return sealed(body)

    def admit(number: int, credential: bytes) -> Callable[[], str]:
        key = StepKey(7, 1, number, 3)
        return lambda: fallen.ask(wire.Admit(order(credential, key=key, script=b"")))

    heard = fallen.as_agent(
        admit(1, step(0, 0, 1)),
        admit(0, step(1, 1, 1)),
        admit(-1, step(0, 0, 1)),
        admit(1, step(1, 1, 2)),
        admit(1, step(1, 2, 1)),
        admit(0, step(0, 0, 2)),
        admit(1, step(1, 1, 1)),
    )
    refused(
        heard[:5],
        *("another step", "another step", "another step", "where part 1 holds 1", "none of part 2"),
    )
    assert heard[5:] == ["Done", "Done"]


def test_a_task_reads_from_a_pipe_only_where_the_credential_says_so(fallen: Fallen) -> None:
    """A supervisor that has fallen could else type commands into a shell of any user."""
    groups = (NodeGroup(((3, 1),), (1,)),)
    job = launch(user=Principal("ada", STRANGER, STRANGER), work_dir=str(fallen.work))

    def credential(number: int, given: StepInput | None, mpi: str) -> bytes:
        body = LaunchStep(
            *(7, 1, number, groups, ("sh",), job.spec.environment_hash, str(fallen.work)),
            *("127.0.0.1:9", b"c" * 32, 1, 1),
            launch=job,
            input=given,
            mpi=mpi,
        )
        return sealed(body)

    def act(number: int, given: StepInput | None, fds: Sequence[int], mpi: str = "") -> Callable[[], str]:
        key = StepKey(7, 1, number, 3)
        admitted = order(credential(number, given, mpi), key=key, script=b"")
        return lambda: fallen.ask(wire.Admit(admitted)) + "; " + fallen.ask(wire.Spawn(key, 0), fds)

    read_fd, write_fd = os.pipe()
    in_fd, typed_fd = os.pipe()
    os.write(typed_fd, b"id -u > typed-$$\n")
    os.close(typed_fd)
    heard = fallen.as_agent(
        act(0, None, [write_fd, write_fd, in_fd]),
        act(1, StepInput(path="in"), [write_fd, write_fd, in_fd]),
        act(2, StepInput(), [write_fd, write_fd, in_fd, in_fd]),
        act(3, StepInput(), [write_fd, write_fd, in_fd]),
        # So it is with a terminal, which a task hands out over a socket.
        act(4, StepInput(), [fallen.end.fileno()]),
        act(5, StepInput(0, terminal=(24, 80)), [write_fd, write_fd, in_fd]),
        act(6, StepInput(0, terminal=(24, 80)), [write_fd]),
        # And with the socket of a library.
        act(7, None, [write_fd, write_fd, fallen.end.fileno()]),
        act(8, StepInput(0, terminal=(24, 80)), [fallen.end.fileno()] * 2),
        act(9, None, [write_fd, write_fd], "pmi"),
        act(10, StepInput(), [write_fd, write_fd, in_fd], "pmi"),
    )
    os.close(in_fd)
    os.close(write_fd)
    refused([one.removeprefix("Done; ") for one in (*heard[:3], *heard[4:])], *["other files or pipes"] * 10)
    assert heard[3] == "Done; Spawned"
    with open(read_fd, "rb") as pipe:
        pipe.read()
    typed = list(fallen.work.glob("typed-*"))
    assert [path.read_text() for path in typed] == [f"{STRANGER}\n"]


def test_a_task_is_started_once_as_it_was_sealed(fallen: Fallen) -> None:
    good = fallen.job()
    read_fd, write_fd = os.pipe()
    passwd = os.open("/etc/passwd", os.O_RDONLY)
    before = fallen.fds()
    heard = fallen.as_agent(
        lambda: fallen.ask(wire.Admit(order(good))),
        lambda: fallen.ask(wire.Spawn(KEY, 1)),
        lambda: fallen.ask([2, list(_raw(KEY)), -1]),
        lambda: fallen.ask(wire.Spawn(KEY, 0), [passwd, passwd]),
        lambda: fallen.ask(wire.Spawn(KEY, 0), [write_fd, write_fd]),
        lambda: fallen.ask(wire.Spawn(KEY, 0), [write_fd]),
        lambda: fallen.ask(wire.Spawn(KEY, 0, seconds_left=1)),
        lambda: fallen.ask(wire.Connect(KEY)),
        lambda: fallen.ask(wire.Connect(KEY), [passwd]),
        lambda: fallen.ask(wire.Connect(KEY), [fallen.end.fileno()]),
        # What it adds to a request (a program, a user) is no part of it.
        lambda: fallen.ask([2, list(_raw(KEY)), 0, None, None, ["/bin/sh", "-c", "id > owned"], 0, 0]),
        lambda: fallen.ask(wire.Spawn(KEY, 0)),
        lambda: fallen.ask(wire.Admit(order(good))),
        lambda: fallen.over(KEY),
        lambda: fallen.ask(wire.Spawn(KEY, 0)),
        lambda: fallen.ask(wire.Admit(order(good))),
    )
    for fd in (read_fd, write_fd, passwd):
        os.close(fd)
    assert (heard[0], heard[10]) == ("Done", "Spawned")
    refused(
        [heard[at] for at in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 14, 15)],
        *("no task 1", "cannot be read", *["other files or pipes"] * 3),
        *("no warning", "do not belong", "do not belong", "no listener", "no task 0", "launched before"),
        *("was not admitted", "launched before"),
    )
    assert {path.name for path in fallen.work.iterdir()} <= {"out", "ran"}
    for path in fallen.work.iterdir():
        assert path.stat().st_uid == STRANGER
    assert fallen.fds() == before


def _raw(key: StepKey) -> tuple[int, int, int, int]:
    return key.job_id, key.attempt, key.step, key.node


def test_signals_reach_only_what_was_started_there(fallen: Fallen) -> None:
    mark = f"{Place(fallen.state).instance()}/{KEY}"
    victim = subprocess.Popen(["sleep", "600"], env={STEP_MARKER: mark}, start_new_session=True)
    try:
        pid = victim.pid
        everywhere = [
            wire.Delivery(StepKey(*each), (9, 15), reach)
            for each in (_raw(KEY), (pid, 0, 0, 0), (-1, -1, -1, -1), (1, 1, 1, 1), (0, 0, 0, 0))
            for reach in ("step", "thorough", "first", "around")
        ]
        acts = [lambda: fallen.ask(wire.Deliver(tuple(everywhere)))]  # type: ignore[arg-type]
        acts += [
            lambda number=number: fallen.ask([5, [[list(_raw(KEY)), [number], "step"]]])  # type: ignore[misc]
            for number in (0, -1, 65, 999, 2**40)
        ]
        acts.append(lambda: fallen.ask([5, [[pid, [9], "step"]]]))
        acts.append(lambda: fallen.ask([5, [[list(_raw(KEY)), [9], "all"]]]))
        acts.append(lambda: fallen.over(KEY, StepKey(pid, 0, 0, 0)))
        heard = fallen.as_agent(*acts, lambda: fallen.ask(wire.Refresh()))
        assert (heard[0], heard[-1]) == ("Done", "Refreshed")
        refused(heard[1:-2], *["cannot be read"] * 7)
        assert victim.poll() is None and procfs.find_process(fallen.server_pid) is not None
    finally:
        victim.kill()
        victim.wait()


def test_messages_that_are_none_are_refused_one_by_one(fallen: Fallen) -> None:
    before, drawn = fallen.fds(), random.Random(15)
    good = b"\0" + _encode(wire.Refresh())
    read_fd, write_fd = os.pipe()
    loose = os.memfd_create("loose", os.MFD_ALLOW_SEALING)
    os.write(loose, _encode(wire.Refresh()))
    huge = os.memfd_create("huge", os.MFD_ALLOW_SEALING)
    os.ftruncate(huge, 1 << 40)
    passwd = os.open("/etc/passwd", os.O_RDONLY)
    fcntl.fcntl(huge, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    odd: list[tuple[bytes, list[int]]] = [
        (b"\1", []),
        (b"\1", [loose]),
        (b"\1", [huge]),
        (b"\1", [read_fd]),
        (b"\1", [passwd]),
        (good, [passwd]),
        (good, [passwd] * 8),
        (b"\0" * 100_000, []),
        (b"\0", []),
        (b"\0" + b"\x91" * 30_000, []),
        *((b"\0" + drawn.randbytes(drawn.randrange(60)), []) for _ in range(200)),
    ]
    heard = fallen.as_agent(*(lambda one=one: fallen.raw(*one) for one in odd), lambda: fallen.raw(good))  # type: ignore[misc]
    assert heard.pop() == "Refreshed"
    assert len(heard) == len(odd) and all(text.startswith("refused: ") for text in heard), heard
    for fd in (read_fd, write_fd, loose, huge, passwd):
        os.close(fd)
    assert fallen.fds() == before


def test_with_the_supervisor_all_that_it_had_started_ends(fallen: Fallen) -> None:
    script = b"#!/bin/sh\nsetsid sleep 600 &\nexec sleep 600\n"
    good = fallen.job(script_hash=hashlib.sha256(script).digest())
    assert fallen.ask(wire.Admit(order(good, script=script))) == "Done"
    assert fallen.ask(wire.Spawn(KEY, 0)) == "Spawned"
    instance = Place(fallen.state).instance()
    poller = select.poll()
    poller.register(pidfd := os.pidfd_open(fallen.pid), select.POLLIN)
    fallen.end.close()
    os.kill(fallen.server_pid, signal.SIGKILL)
    assert poller.poll(PATIENCE_S * 1000)
    os.close(pidfd)
    marked = [one.pid for one in procfs.all_processes() if procfs.marker_of(one.pid).startswith(instance)]
    assert not [pid for pid in marked if (found := procfs.find_process(pid)) and found.state != "Z"]


# ---- keys, marks and descriptors that a task does not get, or does not get away with ----

OTHER = 61_001
"""Another user with jobs on the node."""
_KEYCTL, _ADD_KEY = 250, 248
_SESSION = -3
_SEARCH = """#!/usr/bin/env python3
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
found = libc.syscall(250, 10, -3, b"user", b"eslurm:test", 0)
own = libc.syscall(248, b"user", b"eslurm:own", b"x", 1, -3)
open("said", "w").write(f"{found > 0} {own > 0}")
"""


def syscall(number: int, *words: object) -> int:
    return int(ctypes.CDLL(None, use_errno=True).syscall(number, *words))


@pytest.fixture
def a_key_of_root_s() -> Iterator[None]:
    """A secret in the session keyring of the process that starts the supervisor."""
    if os.uname().machine != "x86_64" or syscall(_KEYCTL, 1, None) < 0:
        pytest.skip("no keyrings here")
    assert syscall(_ADD_KEY, b"user", b"eslurm:test", b"secret", 6, _SESSION) > 0
    yield
    syscall(_KEYCTL, 1, None)


def test_a_task_has_no_key_of_the_session_in_which_root_has_started_its_node(
    a_key_of_root_s: None, fallen: Fallen
) -> None:
    script = _SEARCH.encode()
    good = fallen.job(script_hash=hashlib.sha256(script).digest())
    assert fallen.ask(wire.Admit(order(good, script=script))) == "Done"
    assert fallen.ask(wire.Spawn(KEY, 0)) == "Spawned"
    assert content_of(fallen.work / "said") == "False True"

    def search() -> str:
        return str(syscall(_KEYCTL, 10, _SESSION, b"user", b"eslurm:test", 0) > 0)

    def dropped() -> str:
        drop(Account(AGENT_UID, AGENT_UID))
        return search()

    assert as_uid(0, search) == "True"
    assert as_uid(0, dropped) == "False", "nor has the agent"


def content_of(path: Path) -> str:
    """What a task has left there, once it is whole."""
    give_up_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_s:
        if path.exists() and (text := path.read_text()):
            return text
    raise AssertionError(f"{path} is not there")


def daemon_of(fallen: Fallen, uid: int, number: int, env: str) -> tuple[StepKey, int]:
    """A step whose task has left a daemon with these words before its program, and the daemon's pid."""
    key, told = StepKey(number, 1, -1, 3), fallen.work / f"pid{number}"
    script = f"#!/bin/sh\n(setsid env {env} sh -c 'echo $$ > {told}; exec sleep 600' &)\nsleep 600\n".encode()
    digest = hashlib.sha256(script).digest()
    changes = {"job_id": number, "output": f"out{number}", "script_hash": digest}
    assert fallen.ask(wire.Admit(order(fallen.job(uid, **changes), key=key, script=script))) == "Done"
    assert fallen.ask(wire.Spawn(key, 0)) == "Spawned"
    return key, int(content_of(told))


def ends(pid: int) -> bool:
    """Check that a process ends."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    found = poller.poll(PATIENCE_S * 1000)
    os.close(fd)
    return bool(found)


@pytest.mark.parametrize("hides", ["-u ESLURM_STEP_KEY", "ESLURM_STEP_KEY=none", "another's mark"])
def test_no_daemon_outlives_its_user_s_last_step_behind_the_steps_of_another_user(
    fallen: Fallen, hides: str
) -> None:
    """Attack: a daemon takes the mark of its step off, or puts on that of a step that still runs."""
    shelter, other = daemon_of(fallen, OTHER, 7, "-u NOTHING")
    env = (
        f"ESLURM_STEP_KEY={Place(fallen.state).instance()}/{shelter}" if hides == "another's mark" else hides
    )
    key, daemon = daemon_of(fallen, STRANGER, 8, env)
    fallen.over(key)
    assert ends(daemon)
    assert procfs.find_process(other) is not None, "of the step that runs nothing has ended"


def test_a_signal_goes_to_no_process_of_another_user_that_has_the_step_s_mark(fallen: Fallen) -> None:
    key, daemon = daemon_of(fallen, OTHER, 7, "-u NOTHING")
    mark = f"{Place(fallen.state).instance()}/{key}"
    victims = [
        subprocess.Popen(["sleep", "600"], env={STEP_MARKER: mark}, start_new_session=True, user=uid)
        for uid in (STRANGER, OTHER)
    ]
    try:
        assert fallen.ask(wire.Deliver((wire.Delivery(key, (signal.SIGTERM,), "thorough"),))) == "Done"
        assert victims[1].wait(PATIENCE_S) == -signal.SIGTERM and ends(daemon)
        assert victims[0].poll() is None
    finally:
        for victim in victims:
            victim.kill()
            victim.wait()


def test_no_signal_waits_for_the_environments_of_another_user_s_processes(
    as_root: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: thousands of processes with megabytes of variables, which each look at marks would read."""
    read: list[int] = []
    monkeypatch.setattr(procfs, "marker_of", lambda pid: read.append(pid) or "")
    families = Families("instance", 0)
    families.steps[KEY] = Step(Allowed(KEY, Principal("o", OTHER, OTHER), 0, lambda _local: None))  # type: ignore[arg-type,return-value]
    own, foreign = (subprocess.Popen(["sleep", "600"], user=uid) for uid in (OTHER, STRANGER))
    try:
        families.deliver([wire.Delivery(KEY, (signal.SIGCONT,), "thorough")])
        assert own.pid in read and foreign.pid not in read
    finally:
        for process in (own, foreign):
            process.kill()
            process.wait()


def test_what_the_starter_has_left_open_comes_to_no_task(
    state_dir: Path, as_root: None, adopt_orphans: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = os.memfd_create("secret", 0)
    run = subprocess.run
    monkeypatch.setattr(
        "esnoded.stepd.launcher.subprocess.run",
        lambda *words, **more: run(*words, **more, pass_fds=(secret,)),
    )
    fallen = Fallen(state_dir)
    try:
        for pid in (fallen.pid, fallen.server_pid):
            opened = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
            assert not [name for name in opened if "secret" in name]
    finally:
        fallen.close()
        os.close(secret)


def test_what_a_task_runs_is_put_together_as_its_user(as_root: None) -> None:
    told, teller = os.pipe()
    ids: list[int] = []

    def make(_local: int) -> StepSpec:
        ids.append(os.geteuid())
        os.write(teller, " ".join(map(str, (*os.getresuid(), *os.getresgid(), *os.getgroups()))).encode())
        return StepSpec(KEY, "cn3", STRANGER, STRANGER, ("true",), {}, "/")

    pid, report_fd = spawn_task(Principal("u", STRANGER, STRANGER), Program(make, "m/1.1.1.1", 0))
    assert os.waitpid(pid, 0)[1] == 0 and read_report(report_fd) is None
    assert os.read(told, 999).decode().split() == [str(STRANGER)] * 7
    assert not ids, "nothing of it was done in the process that is root"
    for fd in (told, teller):
        os.close(fd)


def test_no_user_looks_into_a_process_of_theirs_that_still_has_what_root_had_open(
    as_root: None,
) -> None:
    """Attack: it is the user's before it runs the user's program, and can be traced at some sites (`fs.suid_dumpable`)."""
    setting = Path("/proc/sys/fs/suid_dumpable")
    before = setting.read_text()
    try:
        setting.write_text("1")
    except OSError:
        pytest.skip("the setting cannot be changed here")
    told, teller = os.pipe()
    gate, opener = os.pipe()

    def make(_local: int) -> StepSpec:
        os.write(teller, b"x")
        os.read(gate, 1)
        return StepSpec(KEY, "cn3", STRANGER, STRANGER, ("true",), {}, "/")

    try:
        pid, report_fd = spawn_task(Principal("u", STRANGER, STRANGER), Program(make, "m/1.1.1.1", 0))
        assert os.read(told, 1) == b"x"
        assert as_uid(STRANGER, lambda: os.listdir(f"/proc/{pid}/fd")) == "PermissionError"
        assert as_uid(STRANGER, lambda: os.kill(pid, signal.SIGCONT)) == "None", "it is the user's"
    finally:
        setting.write_text(before)
        os.write(opener, b"x")
    assert os.waitpid(pid, 0)[1] == 0 and read_report(report_fd) is None
    for fd in (told, teller, gate, opener):
        os.close(fd)


def test_an_order_that_no_task_can_be_made_of_is_an_outcome_of_that_task(fallen: Fallen) -> None:
    """The fallen supervisor leaves out its own check; what is wrong is found in the child."""
    bad = order(fallen.job(), door="/door\0")
    assert fallen.ask(wire.Admit(bad)) == "Done"
    fallen.send(b"\0" + _encode(wire.Spawn(KEY, 0)))
    packet, fds, _, _ = socket.recv_fds(fallen.end, 65_536, 1)
    assert isinstance(_told.decode(packet[1:]), wire.Spawned)
    failure = read_report(fds[0])
    assert failure is not None and failure.text.startswith("env: contains a NUL")
    assert not list(fallen.work.iterdir())


# ---- a node as it is started ----


def uids(pid: int) -> set[str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return set(next(line for line in lines if line.startswith("Uid:")).split()[1:])


def test_only_procd_and_the_keeper_are_root(as_root: None) -> None:
    with running(nodes=1, agents=1, satellites=0) as cluster:
        agent = cluster.daemons["agent0"].process
        assert agent is not None
        status = Place(cluster.agent_dir("agent0")).find_supervisor()
        assert status is not None
        submitted = ("-D", str(cluster.work), "-o", "out", "--wrap", "sleep 600")
        assert cluster.run_as_user("essubmit", *submitted).code == 0
        cluster_wait_for_child(status.pid)
        every = list(procfs.all_processes())
        keepers = [one.pid for one in every if one.parent == agent.pid]
        assert len(keepers) == 1 and uids(keepers[0]) == uids(status.pid) == {"0"}
        assert uids(agent.pid) == uids(status.server_pid) == {str(AGENT_UID)}
        tasks = [one.pid for one in every if one.parent == status.pid and one.pid != status.server_pid]
        assert tasks and all("0" not in uids(pid) for pid in tasks)
        told = Path(f"/proc/{status.server_pid}/status").read_text()
        assert "NoNewPrivs:\t1" in told and "CapEff:\t0000000000000000" in told
        # The agent, of the same user, does not look into it.
        peek = as_uid(AGENT_UID, lambda: os.listdir(f"/proc/{status.server_pid}/fd"))
        assert peek == "PermissionError"


def cluster_wait_for_child(pid: int) -> None:
    """Until a task runs as its user."""
    give_up_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_s:
        children = [one.pid for one in procfs.all_processes() if one.parent == pid]
        if len(children) > 1 and all("0" not in uids(child) for child in children):
            return
        time.sleep(0.05)
    raise AssertionError("no task was started")
