"""The first lines of a gateway's daemons: when they count, what is no address, and that nothing grows."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable, Iterator

import pytest

from eslurm.core.model.step_key import GATEWAY_STEP, ROUTE_STEP, StepKey
from esnoded.stepd.gateway_output import GatewayOutput, address_problem


class Opened:
    """The output of a step, and the write ends of its tasks' pipes."""

    def __init__(self, tasks: int, step: int = GATEWAY_STEP) -> None:
        self.selector = selectors.DefaultSelector()
        self.ready: list[tuple[str, ...]] = []
        self.bad: list[str] = []
        key = StepKey(7, 1, step, 4)
        self.output = GatewayOutput(self.selector, key, tasks, _unguarded, self.ready.append, self.bad.append)
        self.pipes = [self.output.open_pipes(local) for local in range(tasks)]

    def write(self, data: bytes, local: int = 0, stream: int = 0) -> None:
        os.write(self.pipes[local][stream], data)
        self.turn()

    def turn(self) -> None:
        while events := self.selector.select(0):
            for key, mask in events:
                key.data(mask)

    def close(self) -> None:
        for pipes in self.pipes:
            for fd in pipes:
                os.close(fd)
        self.output.finish()
        assert not self.selector.get_map()
        self.selector.close()


def _unguarded(call: Callable[[int], object]) -> Callable[[int], None]:
    def called(fd: int) -> None:
        call(fd)

    return called


@pytest.fixture
def one() -> Iterator[Opened]:
    opened = Opened(1)
    yield opened
    opened.close()


def test_a_line_may_come_in_pieces_and_the_rest_means_nothing(one: Opened) -> None:
    one.write(b"127.0.0.1")
    one.write(b":70")
    assert not one.ready
    one.write(b"00\nand 127.0.0.1:1\n")
    one.write(b"127.0.0.1:2\n")
    assert one.ready == [("127.0.0.1:7000",)] and not one.bad


def test_words_of_its_error_output_are_no_address(one: Opened) -> None:
    one.write(b"127.0.0.1:1\n", stream=1)
    assert not one.ready
    one.write(b"127.0.0.1:7000\n")
    assert one.ready == [("127.0.0.1:7000",)]
    assert one.output.last_words() == "127.0.0.1:1"


def test_all_daemons_of_a_node_have_to_say_theirs_in_any_order() -> None:
    opened = Opened(3)
    for local in (2, 0, 1):
        assert not opened.ready
        opened.write(f"127.0.0.1:{7000 + local}\n".encode(), local)
    assert opened.ready == [("127.0.0.1:7000", "127.0.0.1:7001", "127.0.0.1:7002")]
    opened.close()


def test_a_line_that_does_not_end_is_bad_once_and_nothing_of_it_is_kept(one: Opened) -> None:
    for _ in range(20):
        one.write(b"1" * 60_000)
    assert len(one.bad) == 1 and not one.ready
    assert len(one.bad[0]) < 200 and len(one.output.last_words()) <= 403


def test_a_helper_says_a_path_which_is_not_looked_at() -> None:
    opened = Opened(1, ROUTE_STEP)
    opened.write(b"/scratch/a b/routes\n")
    assert opened.ready == [("/scratch/a b/routes",)]
    opened.close()


def test_last_words_are_one_printable_line(one: Opened) -> None:
    one.write(b"127.0.0.1:7000\n")
    one.write(b"\x1b[31mcannot\n\tforward\0\xff\n", stream=1)
    assert one.output.last_words() == "[31mcannot forward �"


@pytest.mark.parametrize("text", ["127.0.0.1:7000", "127.0.0.2:1", "[::1]:65535"])
def test_an_address_of_this_host_is_one(text: str) -> None:
    if text.startswith("["):
        try:
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
                probe.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 on this host")
    assert address_problem(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":7000",
        "127.0.0.1:",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "127.0.0.1:7000\0",
        "127.0.0.1:٧",
        "localhost:7000",
        "192.0.2.1:7000",
        "0.0.0.0:7000",
        "255.255.255.255:7000",
        "224.0.0.1:7000",
        "[::]:7000",
        "[fe80::1%lo]:7000",
        "[::ffff:127.0.0.1]:7000",
        "1.2.3:7",
        "....:7",
        "127.0.0.1:7000" + "0" * 100,
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert address_problem(text) != ""
    assert address_problem(text).isprintable() and len(address_problem(text)) < 500
