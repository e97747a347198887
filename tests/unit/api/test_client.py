"""The retry machine of both clients: no try that is too short, one round where the caller comes again, aborting."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eslurm.api import client as client_module
from eslurm.api import methods
from eslurm.api.client import ApiClient, Lost
from eslurm.api.unix_client import Client
from eslurm.ports.api import ApiUnreachable, Status
from eslurm.v1 import controller_pb2 as pb

FOR_EVER_S = 3600.0


class Away(ApiClient):
    """Every door loses every call, after `takes_s`; `says` what is answered instead, by door."""

    def __init__(self, *doors: str, says: dict[str, str] | None = None) -> None:
        super().__init__(doors, FOR_EVER_S, None, None)
        self.now_s = 0.0
        self.says = says or {}
        self.tries: list[tuple[str, float]] = []

    def close(self) -> None:
        return

    def _break_off(self) -> None:
        return

    def _answers(self, door: str) -> bool:
        return door in self.says

    def _exchange(self, *words: Any) -> tuple[Status, bytes, float]:
        self.tries.append((self.path, words[-1] - self.now_s))
        if self.path in self.says:
            return Status.UNAVAILABLE, self.says[self.path].encode(), 0.0
        raise Lost("it went away", sent=True)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_no_try_begins_that_is_too_short_to_be_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Away("a")
    clock = SimpleNamespace(monotonic=lambda: one.now_s, sleep=one.sleep)
    monkeypatch.setattr(client_module, "time", clock)
    for timeout_s in (0.05, 0.4, 0.7, 2.0, 5.0, 60.0):
        one.tries.clear()
        with pytest.raises(ApiUnreachable) as lost:
            one.call(methods.PING, pb.PingRequest(), timeout_s)
        assert lost.value.maybe_done
        first, *later = [left_s for _door, left_s in one.tries]
        least_s = min(1.0, timeout_s / 4)
        assert first == pytest.approx(timeout_s) and all(left_s >= least_s - 1e-6 for left_s in later)


def test_one_round_asks_each_door_once_and_says_what_each_said() -> None:
    one = Away("a", "b", says={"a": "it starts"})
    one.one_round = True
    for _ in range(2):
        one.tries.clear()
        with pytest.raises(ApiUnreachable) as lost:
            one.call(methods.PING, pb.PingRequest(), FOR_EVER_S)
        assert sorted(door for door, _left_s in one.tries) == ["a", "b"]
        # The same each time, for a log that names each reason once.
        assert lost.value.why == "a: it starts; b: it went away"


def test_another_thread_ends_a_call(state_dir: Path) -> None:
    path = state_dir / "s"
    ended: list[ApiUnreachable] = []
    with socket.socket(socket.AF_UNIX) as listener, Client(path) as one:
        listener.bind(str(path))
        listener.listen()

        def call() -> None:
            with pytest.raises(ApiUnreachable) as error:
                one.call(methods.PING, pb.PingRequest(), FOR_EVER_S)
            ended.append(error.value)

        caller = threading.Thread(target=call)
        caller.start()
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(1)
            one.abort()
            caller.join()
        call()
        assert [(error.maybe_done, error.is_final) for error in ended] == [(True, True), (False, True)]
