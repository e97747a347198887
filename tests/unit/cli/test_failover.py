"""Commands with several sockets: one that does not serve costs nothing, and nothing is done twice."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from escli import api as door_module
from escli import exits
from escli.api import Api, find_sockets, sockets_in
from escli.failures import CommandFailed
from escli.user import esqueue, essubmit
from eslurm.api import client as blocking
from eslurm.api.methods import PING, SUBMIT
from eslurm.api.unix_client import Client
from eslurm.ports.api import ApiRefused, ApiUnreachable, Status
from eslurm.transport.framing import FLAG_RETRY, REPLY_HEADER, REQUEST_HEADER, VERSION
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi, Refuse

REQUEST_ID = bytes(range(16))
PATIENCE_S = 60.0
SERVE = """
import sys, threading
from pathlib import Path
sys.path.insert(0, {root!r})
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi
with FakeApi(Path({path!r}), Submit=lambda _: pb.SubmitReply(job_ids=[1]), Ping=lambda _: pb.PingReply()):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _nobody_is_taken_for_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a test says so: a door that is only slow to answer would be asked whether it lives."""
    monkeypatch.setattr(Client, "silence_s", PATIENCE_S)
    monkeypatch.setattr(Client, "ping_s", PATIENCE_S / 3)


def accepted(_request: Any) -> pb.SubmitReply:
    return pb.SubmitReply(job_ids=[17])


def away(_request: Any) -> Any:
    raise Refuse(Status.UNAVAILABLE, "no controller leads at present")


def submit(client: Client, timeout_s: float = PATIENCE_S) -> pb.SubmitReply:
    return client.call(SUBMIT, pb.SubmitRequest(), timeout_s, REQUEST_ID)


def dead_socket(path: Path) -> str:
    """Make the socket that a killed daemon leaves."""
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path))
    return str(path)


def forbid_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    def pause(_seconds: float) -> None:
        raise AssertionError("a pause, though another socket would have answered")

    monkeypatch.setattr("time.sleep", pause)


@pytest.mark.parametrize("leave", [dead_socket, str], ids=["dead", "absent"])
def test_the_next_socket_is_tried_at_once(
    leave: Callable[[Path], str], state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_pauses(monkeypatch)
    first = leave(state_dir / "a")
    with FakeApi(state_dir / "b", Submit=accepted) as second, Client([first, second.path]) as client:
        assert submit(client).job_ids == [17]
        assert client.path == second.path
        assert submit(client).job_ids == [17]
        assert second.request_ids == [REQUEST_ID, REQUEST_ID]


def test_one_that_has_no_leader_sends_us_on(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_pauses(monkeypatch)
    with (
        FakeApi(state_dir / "a", Submit=away) as first,
        FakeApi(state_dir / "b", Submit=accepted) as second,
        Client([first.path, second.path]) as client,
    ):
        assert submit(client).job_ids == [17]
        assert first.request_ids == second.request_ids == [REQUEST_ID]


class Pauses:
    """In the place of `time`: only pauses take any."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self._now_s += seconds


def test_all_are_tried_again_until_one_leads(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "time", Pauses())
    answers = [away, away, accepted]
    with (
        FakeApi(state_dir / "a", Submit=away) as first,
        FakeApi(state_dir / "b", Submit=lambda request: answers.pop(0)(request)) as second,
        Client([first.path, second.path]) as client,
    ):
        assert submit(client).job_ids == [17]
        assert len(first.request_ids) == 3
        with pytest.raises(ApiRefused, match="no controller leads"):
            answers = [away] * 1000
            submit(client)


def test_a_call_that_was_lost_is_marked_as_a_retry_elsewhere(state_dir: Path) -> None:
    """The first daemon dies with the call in its hands; what the other one gets says so."""
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(state_dir / "a"))
        listener.listen()
        with closing(socket.socket(socket.AF_UNIX)) as other:
            other.bind(str(state_dir / "b"))
            other.listen()
            script = (
                "import sys; sys.path.insert(0, sys.argv[3])\n"
                "from eslurm.api.unix_client import Client; from eslurm.api.methods import SUBMIT\n"
                "from eslurm.v1 import controller_pb2 as pb\n"
                "print(*Client(sys.argv[1:3]).call(SUBMIT, pb.SubmitRequest(), 60.0).job_ids)"
            )
            words = [sys.executable, "-c", script, str(state_dir / "a"), str(state_dir / "b"), os.getcwd()]
            with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as caller:
                seen = []
                for accepting, reply in ((listener, None), (other, accepted(None).SerializeToString())):
                    connection, _ = accepting.accept()
                    with connection:
                        _, _, flags, _, stream, _, request_id = REQUEST_HEADER.unpack(
                            connection.recv(REQUEST_HEADER.size)
                        )
                        seen.append((flags, request_id))
                        if reply is not None:
                            connection.sendall(REPLY_HEADER.pack(len(reply), VERSION, 0, 0, stream) + reply)
                out, _ = caller.communicate(timeout=PATIENCE_S)
    assert out == "17\n"
    assert [flags for flags, _ in seen] == [0, FLAG_RETRY]
    assert seen[0][1] == seen[1][1] != bytes(16)


def test_a_paused_daemon_is_left_for_one_that_answers(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes connections in the name of a stopped process, and nobody ever reads from them."""
    path = str(state_dir / "a")
    code = SERVE.format(root=str(Path(__file__).parents[3]), path=path)
    paused = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert paused.stdout is not None
        assert paused.stdout.readline() == "ready\n"
        with (
            FakeApi(state_dir / "b", Submit=accepted) as second,
            Client([path], find_more=lambda: [second.path]) as client,
        ):
            assert submit(client).job_ids == [1]
            paused.send_signal(signal.SIGSTOP)
            os.waitpid(paused.pid, os.WUNTRACED)
            monkeypatch.setattr(Client, "silence_s", 0.1)
            monkeypatch.setattr(Client, "ping_s", 0.1)
            # Far below the patience of the call, longer than a test may take: who waited for its end would be seen.
            assert submit(client, 3600.0).job_ids == [17]
    finally:
        paused.kill()
        paused.communicate(timeout=PATIENCE_S)


def test_a_silent_daemon_gets_no_second_call_before_it_answers(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the one that follows it does not lead yet, every turn would else wait for the silent one again."""
    monkeypatch.setattr(Client, "silence_s", 0.05)
    monkeypatch.setattr(Client, "ping_s", 0.05)
    answers = [away, away, accepted]
    with closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.bind(str(state_dir / "a"))
        silent.listen(100)
        with (
            # It may be slow enough to be asked as well.
            FakeApi(
                state_dir / "b", Submit=lambda request: answers.pop(0)(request), Ping=lambda _: pb.PingReply()
            ) as second,
            Client([str(state_dir / "a"), second.path]) as client,
        ):
            assert submit(client).job_ids == [17]
        silent.setblocking(False)
        asked = []
        for _ in range(4):
            connection, _ = silent.accept()
            with connection:
                asked.append(REQUEST_HEADER.unpack(connection.recv(REQUEST_HEADER.size))[3])
        assert asked == [SUBMIT.number, PING.number, PING.number, PING.number]
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_a_long_call_is_not_taken_for_a_dead_daemon(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "silence_s", 0.02)
    pings: list[Any] = []

    def slow(_request: Any) -> pb.SubmitReply:
        while len(pings) < 3:
            time.sleep(0.01)
        return pb.SubmitReply(job_ids=[1])

    def ping(request: Any) -> pb.PingReply:
        pings.append(request)
        return pb.PingReply()

    with (
        FakeApi(state_dir / "a", Submit=slow, Ping=ping) as first,
        FakeApi(state_dir / "b", Submit=accepted) as second,
        Client([first.path, second.path]) as client,
    ):
        assert submit(client).job_ids == [1]
        assert second.request_ids == []


def test_a_service_that_says_when_to_come_again_is_believed(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    replies = [(Status.RESOURCE_EXHAUSTED, 7), (Status.OK, 0), (Status.RESOURCE_EXHAUSTED, 0)]

    class Limited(Client):
        def _exchange(self, *_call: Any) -> tuple[Status, bytes, float]:
            status, after = replies.pop(0)
            return status, b"", after / 100

        def _connect(self, deadline_s: float) -> None:
            return

    with Limited([str(state_dir / "a"), str(state_dir / "b")]) as client:
        submit(client)
        assert pauses == [0.07]
        with pytest.raises(ApiRefused, match="RESOURCE_EXHAUSTED"):
            submit(client)


def test_further_sockets_are_looked_for_only_when_the_first_fails(state_dir: Path) -> None:
    looked: list[int] = []

    def find_more() -> tuple[str, ...]:
        looked.append(1)
        return sockets_in(str(state_dir))

    with FakeApi(state_dir / "esctld.sock", Submit=accepted) as first:
        with Client([first.path], find_more=find_more) as client:
            submit(client)
        assert looked == []
    with (
        FakeApi(state_dir / "esctld-c2.sock", Submit=accepted) as second,
        Client([str(state_dir / "esctld.sock")], find_more=find_more) as client,
    ):
        submit(client)
        assert client.path == second.path and looked == [1]


def test_all_sockets_are_named_when_none_answers(state_dir: Path) -> None:
    paths = [str(state_dir / name) for name in "ab"]
    with Client(paths, patience_s=0.05) as client, pytest.raises(ApiUnreachable) as unreachable:
        client.call(PING, pb.PingRequest(), 10)
    assert f"{paths[0]}, {paths[1]}: " in str(unreachable.value)
    assert not unreachable.value.maybe_done


# ---- which sockets ----


def test_sockets_by_name(state_dir: Path) -> None:
    there, gone = dead_socket(state_dir / "a"), str(state_dir / "b")
    assert find_sockets(f"{gone}:{there}", {}) == (gone, there)
    assert find_sockets("", {"ESLURM_SOCKET": there}) == (there,)
    with pytest.raises(CommandFailed, match="there is no socket"):
        find_sockets(f"{gone}:{gone}", {})


def test_sockets_of_a_directory(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "SYSTEM_SOCKET", str(state_dir / "none" / "esctld.sock"))
    environ = {"ESLURM_STATE_DIR": str(state_dir)}
    with pytest.raises(CommandFailed, match="no cluster here"):
        find_sockets("", environ)
    second = dead_socket(state_dir / "esctld-c2.sock")
    first = str(state_dir / "esctld.sock")
    assert find_sockets("", environ) == (first, second)
    dead_socket(state_dir / "esctld.sock")
    assert find_sockets("", environ) == (first,)


def test_a_command_finds_the_other_controller(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ESLURM_SOCKET", raising=False)
    monkeypatch.setenv("ESLURM_STATE_DIR", str(state_dir))
    dead_socket(state_dir / "esctld.sock")
    with FakeApi(state_dir / "esctld-c2.sock", Submit=accepted) as second:
        assert essubmit.main(["--parsable", "--wrap", "true"]) == exits.OK
        assert len(second.requests) == 1
    assert capsys.readouterr() == ("17\n", "")


def test_a_watch_outlives_the_controller(
    monkeypatch: pytest.MonkeyPatch, state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    looks: list[Any] = [
        pb.JobsReply(),
        CommandFailed(exits.UNREACHABLE, "nobody there"),
        pb.JobsReply(jobs=[pb.JobInfo(job_id=5, state="PENDING")]),
        CommandFailed(exits.FAILED, "enough"),
    ]

    def call(_door: Api, _method: str, _request: Any) -> Any:
        look = looks.pop(0)
        if isinstance(look, CommandFailed):
            raise look
        return look

    monkeypatch.setattr(Api, "call", call)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    words = ["--socket", dead_socket(state_dir / "a"), "--watch", "1", "-h", "-o", "%i"]
    assert esqueue.main(words) == exits.FAILED
    told = capsys.readouterr()
    assert told.out.split("\n") == ["", "nobody there; trying again", "", "5", "", ""]
    assert told.err == "esqueue: enough\n"
