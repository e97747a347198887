"""The agent's side of the supervisor: attempts that have left, over connections that come and go."""

from __future__ import annotations

import asyncio
import socket

import msgspec

from esnoded.stepd import wire
from esnoded.stepd.client import SupervisorClient

_DECODER = msgspec.msgpack.Decoder(wire.Request)


class Supervisors:
    """One supervisor after the other, each at its end of a socket pair, as `connect` gives the other ends."""

    def __init__(self) -> None:
        self.ends: asyncio.Queue[socket.socket] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._mine: list[socket.socket] = []

    def connect(self) -> socket.socket:
        """A new connection; runs in a thread."""
        mine, theirs = socket.socketpair()
        for end in (mine, theirs):
            end.setblocking(False)
        self._mine.append(mine)
        self._loop.call_soon_threadsafe(self.ends.put_nowait, mine)
        return theirs

    def close(self) -> None:
        """Close all connections."""
        for end in self._mine:
            end.close()

    async def greeted(self, version: int) -> Supervisor:
        """The next connection, which has been welcomed."""
        supervisor = Supervisor(await self.ends.get())
        assert isinstance(await supervisor.read(), wire.Hello)
        await supervisor.send(wire.Welcome(version, "here", "boot", 1, 0))
        return supervisor


class Supervisor:
    """A connection, by hand."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._frames = wire.FrameBuffer()
        self._read: list[bytes] = []

    async def read(self) -> msgspec.Struct:
        """The next request."""
        while not self._read:
            data = await asyncio.get_running_loop().sock_recv(self._end, 1 << 16)
            assert data, "the agent has closed the connection"
            self._read += self._frames.feed(data)
        return _DECODER.decode(self._read.pop(0))

    async def send(self, answer: msgspec.Struct) -> None:
        """Answer."""
        await asyncio.get_running_loop().sock_sendall(self._end, wire.encode_frame(answer))

    def close(self) -> None:
        """Go."""
        self._end.close()


async def told(version: int) -> list[list[msgspec.Struct]]:
    """What each of two supervisors hears, when an attempt leaves before the first, and two while it is there."""
    heard: list[list[msgspec.Struct]] = []
    supervisors = Supervisors()
    client = SupervisorClient(supervisors.connect, lambda _outcome: None)
    await client.vacate([(0, 1, 1)])
    async with asyncio.timeout(20), client:
        for _ in range(2):
            supervisor = await supervisors.greeted(version)
            listing = asyncio.ensure_future(client.list_steps())
            if not heard:
                while client.welcome is None:  # noqa: ASYNC110 -- it is no event of its own
                    await asyncio.sleep(0)
                await client.vacate([(0, 2, 1), (0, 3, 1)])
            heard.append([])
            # Requests keep their order: behind this one nothing is under way.
            while not isinstance(request := await supervisor.read(), wire.ListSteps):
                heard[-1].append(request)
            while len(heard) == 1 and version >= wire.VACATE_SINCE and len(heard[0]) < 2:
                heard[-1].append(await supervisor.read())
            await supervisor.send(wire.Listing(request.request, (), True))
            await listing
            supervisor.close()
    supervisors.close()
    return heard


def test_a_new_supervisor_hears_which_attempts_have_left() -> None:
    first, second = asyncio.run(told(wire.VACATE_SINCE))
    assert first == [wire.Vacate(((0, 1, 1),)), wire.Vacate(((0, 2, 1), (0, 3, 1)))]
    assert second == [wire.Vacate(((0, 1, 1), (0, 2, 1), (0, 3, 1)))]


def test_an_older_supervisor_does_not() -> None:
    assert asyncio.run(told(wire.VACATE_SINCE - 1)) == [[], []]
