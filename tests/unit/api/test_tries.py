"""When clients try again: by a clock of the test's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eslurm.api import client, methods
from eslurm.ports.door import DoorRefused, Status
from eslurm.v1 import controller_pb2 as pb

TIMEOUT_S = 5.0
LEAST_S = 1.0
"""A try with less time left would be given up before its answer comes."""


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        own = SimpleNamespace(monotonic=lambda: self.now_s, sleep=self.sleep)
        monkeypatch.setattr(client, "time", own)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Refused(client.DoorClient):
    """A client whose doors answer at once that they are not available."""

    def __init__(self, clock: Clock, doors: list[str]) -> None:
        super().__init__(doors, TIMEOUT_S, None, None)
        self._clock = clock
        self.left_s: list[float] = []

    def close(self) -> None:
        pass

    def _exchange(self, *call: Any) -> tuple[Status, bytes, float]:
        self.left_s.append(call[-1] - self._clock.now_s)
        self._clock.sleep(0.01)
        return Status.UNAVAILABLE, b"the job store does not answer", 0.0


@pytest.mark.parametrize("doors", [1, 2, 7])
def test_no_call_is_tried_again_without_the_time_to_be_answered(
    doors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Refused(Clock(monkeypatch), [f"door{at}" for at in range(doors)])
    with pytest.raises(DoorRefused, match="the job store does not answer"):
        refused.call(methods.PING, pb.PingRequest(), TIMEOUT_S)
    assert len(refused.left_s) > 3 and min(refused.left_s) >= LEAST_S


def test_a_call_with_little_time_is_tried_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Refused(Clock(monkeypatch), ["door"])
    with pytest.raises(DoorRefused):
        refused.call(methods.PING, pb.PingRequest(), 0.4)
    assert len(refused.left_s) > 1 and min(refused.left_s) >= 0.1
