"""A user names where a step's output goes. The supervisor is root: it connects with the user's rights only."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from eslurm.ports.step_runner import OutputEndpoint, StepEndCause
from eslurm.security.step_stream import StreamOpener
from esnoded.stepd import wire
from esnoded.stepd.client import SupervisorClient
from tests.kits.stepd import PATIENCE_S, Outcomes, Site, key, order_of, supervised
from tests.kits.stepd_processes import outcome_of, play
from tests.property.test_stepd_fuzz import RawAgent
from tests.security.conftest import STRANGER
from tests.support.ports import free_port

COOKIE = bytes(range(32))


@pytest.fixture
def site(state_dir: Path, as_root: None) -> Iterator[Site]:
    with supervised(state_dir) as opened:
        opened.start()
        yield opened


@pytest.fixture
def reserved() -> Iterator[socket.socket]:
    """A listener of root's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        yield listener


def owner_of(local: tuple[str, int], remote: tuple[str, int]) -> int:
    """The uid that the kernel has noted for a socket of this host, by its two ends."""

    def written(end: tuple[str, int]) -> str:
        host = struct.unpack("<I", socket.inet_aton(end[0]))[0]
        return f"{host:08X}:{end[1]:04X}"

    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if (fields[1], fields[2]) == (written(local), written(remote)):
            return int(fields[7])
    raise AssertionError("the kernel knows no such connection")


def test_a_unix_socket_that_admits_only_root_hears_nothing(site: Site) -> None:
    """As with a system bus: who connects is root, or is turned away. Past the agent's own checks."""
    path = site.work / "bus"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bus:
        bus.bind(str(path))
        path.chmod(0o600)
        bus.listen()
        bus.setblocking(False)
        agent = RawAgent(site)
        try:
            for host, port in ((str(path), 0), (str(path), 1), (f"\0{path}", 1)):
                spec = site.spec(
                    key(), "true", endpoint=OutputEndpoint(host, port, COOKIE), uid=STRANGER, gid=STRANGER
                )
                answer = agent.ask(lambda number, spec=spec: wire.Launch(number, order_of(spec)))
                assert isinstance(answer, wire.Refused) and answer.text.startswith("endpoint: ")
        finally:
            agent.close()
        with pytest.raises(BlockingIOError):
            bus.accept()


def test_the_connection_belongs_to_the_user(site: Site, reserved: socket.socket) -> None:
    """A packet filter, or a service that looks its caller up, sees the user."""

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        endpoint = OutputEndpoint("127.0.0.1", reserved.getsockname()[1], COOKIE)
        await client.launch(site.spec(key(), "sleep", "600", endpoint=endpoint, uid=STRANGER, gid=STRANGER))
        accepted, theirs = await asyncio.get_running_loop().run_in_executor(None, reserved.accept)
        with accepted:
            assert owner_of(theirs, reserved.getsockname()) == STRANGER
            assert accepted.recv(65_536)
        ended = await outcomes.of(key())
        assert ended.cause is StepEndCause.SIGNALLED and "output lost" in ended.text

    play(site, scenario)


def test_a_step_whose_user_nobody_can_be_ends_alone(site: Site) -> None:
    endpoint = OutputEndpoint("127.0.0.1", free_port(), COOKIE)
    spec = site.spec(key(), "sleep", "600", endpoint=endpoint, uid=STRANGER, gid=STRANGER)
    ended = outcome_of(site, spec)
    assert ended.cause is StepEndCause.SIGNALLED
    assert "output lost: connection refused" in ended.text.lower()


def test_a_listener_that_does_not_answer_holds_up_no_other_step(site: Site, reserved: socket.socket) -> None:
    """The child waits for it, not the loop; its own step can be ended meanwhile."""
    agent = RawAgent(site)
    # Fill the queue of the listener: what connects from now on waits for an answer that does not come.
    reserved.listen(0)
    held: list[socket.socket] = []
    try:
        while True:
            one = socket.socket()
            one.settimeout(0.2)
            held.append(one)
            one.connect(reserved.getsockname())
    except TimeoutError:
        pass
    try:
        endpoint = OutputEndpoint("127.0.0.1", reserved.getsockname()[1], COOKIE)
        slow = site.spec(key(1), "sleep", "600", endpoint=endpoint, uid=STRANGER, gid=STRANGER)
        assert isinstance(agent.ask(lambda number: wire.Launch(number, order_of(slow))), wire.Launched)
        quick = site.spec(key(2), "true", uid=STRANGER, gid=STRANGER)
        assert isinstance(agent.ask(lambda number: wire.Launch(number, order_of(quick))), wire.Launched)
        agent.wait_ended(key(2))
        agent.end(key(1))
        agent.wait_ended(key(2))
    finally:
        agent.close()
        for one in held:
            one.close()


def test_the_stream_is_not_readable_on_the_wire(site: Site, reserved: socket.socket) -> None:
    endpoint = OutputEndpoint("127.0.0.1", reserved.getsockname()[1], COOKIE)
    script = site.script("echo a secret of the user; sleep 600")
    agent = RawAgent(site)
    try:
        spec = site.spec(key(), script, endpoint=endpoint, uid=STRANGER, gid=STRANGER)
        assert isinstance(agent.ask(lambda number: wire.Launch(number, order_of(spec))), wire.Launched)
        accepted, _ = reserved.accept()
        with accepted:
            accepted.settimeout(PATIENCE_S)
            seen, opener, bodies = b"", StreamOpener(COOKIE), list[bytes]()
            while not any(b"secret" in body for body in bodies):
                data = accepted.recv(65_536)
                bodies += opener.feed(data)
                seen += data
        assert b"secret" not in seen and COOKIE not in seen and b"cn1" not in seen
        agent.wait_ended(key())
    finally:
        agent.close()
