"""The bulk lane's accounts: nothing without credit, order kept, everyone told at the end."""

from __future__ import annotations

import asyncio

import pytest

from eslurm.links.bulk import BulkLane
from eslurm.ports.link import LinkClosed
from tests.support.loops import run


class Tape:
    """A stream that records."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    async def read(self) -> bytes | None:
        return None

    async def write(self, frame: bytes) -> None:
        self.frames.append(frame)

    async def end_writing(self) -> bool:
        return False

    def cancel(self) -> None:
        return


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_frames_wait_for_the_lane_and_for_credit_and_keep_their_order() -> None:
    async def scenario() -> None:
        lane, tape = BulkLane(400), Tape()
        writer = asyncio.create_task(lane.write_loop())
        sends = [asyncio.create_task(lane.send(bytes([number]) * 100)) for number in range(4)]
        await settle()
        lane.on_credit(150)
        await settle()
        assert tape.frames == []
        lane.attach(tape)
        await settle()
        # The second frame overdraws: a window smaller than a frame must not block for ever.
        assert [frame[0] for frame in tape.frames] == [0, 1]
        lane.on_credit(50)
        await settle()
        assert len(tape.frames) == 2, "the overdraft is paid back first"
        lane.on_credit(1)
        await settle()
        assert [frame[0] for frame in tape.frames] == [0, 1, 2]
        sends[3].cancel()
        late = asyncio.create_task(lane.send(b"late"))
        await settle()
        lane.on_credit(1000)
        await asyncio.gather(*sends[:3], late)
        assert tape.frames[3] == b"late", "who gave up is not sent"
        writer.cancel()
        await asyncio.wait([writer])

    run(scenario())


def test_credit_is_granted_by_the_quarter_window() -> None:
    async def scenario() -> list[int]:
        lane = BulkLane(400)
        return [lane.on_consumed(60) for _ in range(5)]

    assert run(scenario()) == [0, 120, 0, 120, 0]


def test_the_end_is_told_to_all_who_wait() -> None:
    async def scenario() -> None:
        lane = BulkLane(400)
        sends = [asyncio.create_task(lane.send(b"x")) for _ in range(3)]
        await settle()
        lane.end("the peer is gone")
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert [str(result) for result in results] == ["the peer is gone"] * 3
        with pytest.raises(LinkClosed):
            await lane.send(b"y")

    run(scenario())
