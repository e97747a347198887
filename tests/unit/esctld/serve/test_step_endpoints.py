"""Destinations of a step's output: the host that asks or one of the job's, and no other."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from esctld.serve.step_endpoints import HostAddresses, StepEndpoints, is_local
from eslurm.core.model.messages import CreateStep, Refused, StepProgram
from eslurm.core.model.request import Request
from eslurm.core.state.view import View
from eslurm.ports.api import Caller
from tests.kits.core import ALICE, World
from tests.kits.parts import parted, place, span, submit
from tests.support.loops import run

KNOWN = {
    "node0": frozenset({"10.1.0.10"}),
    "node1": frozenset({"10.1.0.11"}),
    "alias0": frozenset({"10.1.0.10"}),
    "login": frozenset({"10.1.0.99", "fd00::99"}),
    "here": frozenset({"127.0.1.1"}),
}


async def lookup(host: str) -> frozenset[str]:
    return KNOWN.get(host, frozenset({host} if host[0].isdigit() else ()))


class Site:
    """Job 1 of two nodes, whose agents listen at these hosts; two more are idle."""

    def __init__(self, *hosts: str, networks: tuple[str, ...] = ()) -> None:
        self.world = World(nodes=4)
        self.job = self.world.submit(request=Request(tasks=8, nodes_min=2, nodes_max=2))
        self.world.start()
        state = self.world.state
        spans = self.world.attempt(self.job).spans
        for one, host in zip(spans, hosts, strict=False):
            state.nodes[one.node] = replace(state.nodes[one.node], endpoint=f"{host}:6820")
        self.checks = StepEndpoints(View(state), networks, lookup)

    def check(
        self, address: str, host: str = "", via: str = "agent", nodes: int = 0, tasks: int = 0, job: int = 0
    ) -> str:
        """The text of the refusal; empty when the output may go there."""
        endpoint = f"[{address}]:4711" if ":" in address else f"{address}:4711"
        message = CreateStep(ALICE, job or self.job, tasks, nodes, ("app",), b"e", "/", endpoint, bytes(32))
        try:
            run(self.checks.check(message, Caller(ALICE, b"", False, None, via, host)))
        except Refused as refused:
            return refused.text
        return ""


@pytest.mark.parametrize(
    ("address", "host", "via"),
    [
        ("10.1.0.10", "node0", "agent"),  # the host that asks
        ("10.1.0.10", "10.1.0.10", "agent"),
        ("10.1.0.99", "login", "login"),
        ("fd00::99", "login", "login"),
        ("10.1.0.10", "login", "login"),  # the job's first node
        ("10.1.0.10", "", "token"),
        ("10.1.0.99", "login", "socket"),  # a standby's
    ],
)
def test_the_host_that_asks_and_those_of_the_job(address: str, host: str, via: str) -> None:
    assert Site("node0", "node1").check(address, host, via) == ""


def test_every_node_that_is_known_by_an_address() -> None:
    site = Site("10.1.0.10", "10.1.0.11")
    assert site.check("10.1.0.11", "10.1.0.10") == ""
    assert "no known address of 10.1.0.10 or of a node of job 1" in site.check("10.1.0.12", "10.1.0.10")


@pytest.mark.parametrize(
    ("address", "host", "via"),
    [
        ("10.9.9.9", "node0", "agent"),
        ("169.254.169.254", "node0", "agent"),
        ("10.1.0.99", "node0", "agent"),  # a login host that did not ask
        ("10.1.0.10", "unknown-host", "login"),
    ],
)
def test_nobody_else(address: str, host: str, via: str) -> None:
    nodes = ("node0", "node1") if via == "agent" else ("node1", "node0")
    text = Site(*nodes).check(address, host, via)
    assert (
        text.startswith(f"endpoint: {address} is no known address of {host}") and "ESLURM_STEP_HOST" in text
    )


def test_the_controllers_own_addresses_when_the_call_came_through_its_socket() -> None:
    assert (
        is_local("127.0.0.1")
        and is_local("::1")
        and not is_local("192.0.2.1")
        and not is_local("2001:db8::1")
    )
    site = Site("node0", "node1")
    assert "of the controller's host" in site.check("192.0.2.1", "", "socket")


def test_a_network_of_the_configuration() -> None:
    site = Site("node0", "node1", networks=("10.2.0.0/16", "fd00::/64"))
    assert site.check("10.2.3.4", "node0") == "" and site.check("fd00::1", "node0") == ""
    assert site.check("10.3.0.1", "node0") != ""


@pytest.mark.parametrize(
    ("hosts", "host", "via", "is_good"),
    [
        (("node0", "node0"), "node0", "agent", True),
        (("node0", "alias0"), "node0", "agent", True),
        (("node0", "node1"), "node0", "agent", False),
        (("node0", "node0"), "login", "login", False),
        (("127.0.0.1", "127.0.0.1"), "127.0.0.1", "agent", True),
        (("127.0.0.1", "127.0.0.1"), "", "socket", True),
        (("here", "127.0.0.1"), "127.0.0.1", "socket", True),
        (("node0", "node0"), "", "socket", False),
        (("127.0.0.1", "127.0.0.1"), "", "token", False),
    ],
)
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "::1"])
def test_loopback_only_where_all_nodes_are_the_host_that_asks(
    hosts: tuple[str, ...], host: str, via: str, is_good: bool, address: str
) -> None:
    text = Site(*hosts).check(address, host, via)
    assert (text == "") is is_good
    assert is_good or f"{address} is a loopback address" in text


@pytest.mark.parametrize(
    ("nodes", "tasks", "is_good"), [(1, 0, True), (0, 1, True), (2, 0, False), (0, 4, False)]
)
def test_loopback_is_judged_by_the_nodes_of_the_step(nodes: int, tasks: int, is_good: bool) -> None:
    assert (Site("node0", "node1").check("127.0.0.1", "node0", nodes=nodes, tasks=tasks) == "") is is_good


@pytest.mark.parametrize(
    ("components", "is_good"), [((0,), True), ((1,), False), ((0, 1), False), ((2,), True), ((0, 2), True)]
)
def test_loopback_is_judged_by_the_parts_of_the_step(components: tuple[int, ...], is_good: bool) -> None:
    site = Site()
    job = submit(site.world, parted(Request(), Request(), Request()))
    place(site.world, job, span(2, 1), span(3, 1, 1), span(2, 1, 2))
    nodes = site.world.state.nodes
    for number in (2, 3):
        nodes[number] = replace(nodes[number], endpoint=f"node{number - 2}:6820")
    site.checks = StepEndpoints(View(site.world.state), (), lookup)
    programs = tuple(StepProgram(("app",)) for _ in components)
    message = CreateStep(
        *(ALICE, job, 0, 0, (), b"e", "/", "127.0.0.1:4711", bytes(32)),
        components=components,
        programs=programs,
    )
    try:
        run(site.checks.check(message, Caller(ALICE, b"", False, None, "agent", "node0")))
    except Refused:
        assert not is_good
    else:
        assert is_good


def test_a_step_whose_nodes_are_not_known_yet_is_refused_unchecked_and_never_decided() -> None:
    site = Site("node0", "node1")
    assert site.check("10.9.9.9", "node0", job=99).startswith("job 99 does not exist")
    world = World()
    waiting = world.submit()
    site.checks = StepEndpoints(View(world.state), (), lookup)
    assert site.check("10.9.9.9", "node0", job=waiting) == (
        f"job {waiting} is PENDING: steps start inside a running job"
    )


def test_names_are_looked_up_beside_the_loop_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def getaddrinfo(host: str, *_rest: object, **_more: object) -> list[object]:
            asked.append(host)
            if host == "unknown":
                raise OSError("no such host")
            return [(0, 0, 0, "", ("10.0.0.7", 0))]

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo, raising=False)
        addresses = HostAddresses()
        for _ in range(3):
            assert await addresses.find("node7") == {"10.0.0.7"}
            assert await addresses.find("unknown") == frozenset()
            assert await addresses.find("10.0.0.8") == {"10.0.0.8"}

    run(main())
    assert asked == ["node7", "unknown"]
