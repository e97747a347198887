"""A process' figures of itself: its loop's lag, memory and sockets."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from eslurm.telemetry.vitals import LoopLag, rss_bytes, sockets


def test_memory_and_sockets_of_this_process() -> None:
    before = sockets()
    assert rss_bytes() > 1 << 20
    with socket.socket(), socket.socket():
        assert sockets() == before + 2
    assert sockets() == before


def test_a_kernel_that_says_nothing_is_no_error(tmp_path: Path) -> None:
    assert rss_bytes(tmp_path) == 0 and sockets(tmp_path) == 0
    (tmp_path / "statm").write_text("1")
    (tmp_path / "fd").mkdir()
    (tmp_path / "fd" / "0").touch()
    assert rss_bytes(tmp_path) == 0 and sockets(tmp_path) == 0


def test_the_worst_lag_is_told_once() -> None:
    class Loop:
        """A clock by hand; timers never fire by themselves."""

        now_s = 100.0

        def time(self) -> float:
            return self.now_s

    async def body() -> None:
        lag = LoopLag()
        loop = Loop()
        lag._loop.call_soon(lambda: None)
        real, lag._loop = lag._loop, loop  # type: ignore[assignment]
        loop.call_at = real.call_at  # type: ignore[attr-defined]
        lag.start()
        loop.now_s += 0.25 + 0.4
        assert lag.take_us() == 400_000, "an overdue sample counts"
        lag._sample()
        assert lag.take_us() == 400_000 and lag.take_us() == 0
        lag.stop()

    asyncio.run(body())
