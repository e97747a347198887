"""Reports of struck nodes: held, late, or sent; and requests for failures by the names of nodes."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from eslurm.core.agent.node import LocalNode, NodeOffer
from eslurm.core.model.protocol import NodeGone, Registration, Report
from eslurm.core.relay.relay import Relay
from eslurm.faults.chaos_socket import ChaosRequest, TooEarly
from eslurm.faults.relay import FaultyRelayServer
from eslurm.faults.switches import Mode, Switch
from eslurm.ports.link import ANYBODY, Wanted
from esnoded.chaos import Chaos, HeldReports
from tests.support.loops import run

DELAY_US = 20_000
NUMBERS = {"cn1": 1, "cn2": 2, "cn3": 3, "fresh": -1}


class NoLinks:
    def find(self, endpoint: str, _wanted: Wanted = ANYBODY) -> None:
        raise AssertionError(f"{endpoint} was looked for")


class Names(msgspec.Struct):
    """As much of a registry as is asked for."""

    by_name: dict[str, LocalNode]
    by_number: dict[int, LocalNode]


def registry() -> Names:
    nodes = {name: LocalNode(NodeOffer(name, f"uid-{name}", (1, 1))) for name in NUMBERS}
    for name, node in nodes.items():
        node.number = NUMBERS[name]
    return Names(nodes, {node.number: node for node in nodes.values() if node.number >= 0})


class Site:
    """The reports of one process; `sent` are those that went up."""

    def __init__(self) -> None:
        self.driver = FaultyRelayServer(
            Relay((1, 2, 3)), NoLinks(), lambda _: None, on_healed=lambda _: self.reports.release()
        )
        self.sent: list[int] = []
        self.arrived = asyncio.Event()
        self.reports = HeldReports(self.driver, NUMBERS.__getitem__, self._send)
        self.chaos = Chaos(self.driver, registry())

    def _send(self, report: Report) -> None:
        self.sent.append(report.seq)
        self.arrived.set()

    def put(self, seq: int, node: int) -> None:
        self.reports.put(Report("p", seq, NodeGone(node, 1, 7, 1)))


@pytest.mark.parametrize("mode", [Mode.DEAD, Mode.SILENT, Mode.PARTITIONED])
def test_reports_of_a_node_that_is_off_wait_for_its_healing(mode: Mode) -> None:
    async def scenario() -> None:
        site = Site()
        site.driver.strike([1, 2], Switch(mode))
        site.put(5, 1)
        site.put(4, 2)
        site.put(6, 3)
        site.put(5, 1)  # Sent again, as nothing acknowledged it: still one report.
        site.reports.put(Report("p", 7, Registration("cn1", "uid", "boot", "s", 1, "here:1", (1, 1))))
        assert site.sent == [6]
        assert len(site.reports) == 3

        site.driver.heal([2])
        assert site.sent == [6, 4]
        site.driver.heal([1])
        assert site.sent == [6, 4, 5, 7]
        assert len(site.reports) == 0
        site.driver.heal([1])
        assert site.sent == [6, 4, 5, 7]
        await site.driver.close()

    run(scenario())


def test_reports_of_a_slow_node_are_late() -> None:
    async def scenario() -> None:
        site = Site()
        site.driver.strike([1], Switch(Mode.SLOW, delay_us=DELAY_US))
        site.put(1, 1)
        assert site.sent == []
        async with asyncio.timeout(50):
            await site.arrived.wait()
        assert site.sent == [1]
        await site.driver.close()

    run(scenario())


def test_a_node_that_is_slow_instead_of_dead_is_heard_again() -> None:
    async def scenario() -> None:
        site = Site()
        site.driver.strike([1], Switch(Mode.DEAD))
        site.put(1, 1)
        site.driver.strike([1], Switch(Mode.SLOW, delay_us=DELAY_US))
        async with asyncio.timeout(50):
            await site.arrived.wait()
        assert site.sent == [1]
        await site.driver.close()

    run(scenario())


def test_failures_are_asked_for_by_name() -> None:
    async def scenario() -> None:
        site = Site()
        struck = site.chaos.answer(ChaosRequest("dead", "cn[1-2]"))
        assert struck.changed == 2
        assert [(one.nodes, one.count, one.mode, one.left_us) for one in struck.struck] == [
            ("cn[1-2]", 2, "dead", None)
        ]
        site.chaos.answer(ChaosRequest("slow", "cn2", 60_000_000, 5_000))
        shown = site.chaos.answer(ChaosRequest("show")).struck
        assert [(one.nodes, one.mode, one.delay_us) for one in shown] == [
            ("cn1", "dead", 0),
            ("cn2", "slow", 5_000),
        ]
        assert shown[1].left_us is not None
        assert 0 < shown[1].left_us <= 60_000_000
        assert site.chaos.answer(ChaosRequest("heal")).changed == 2
        assert site.chaos.answer(ChaosRequest("show")).struck == ()
        await site.driver.close()

    run(scenario())


def test_a_node_that_is_not_registered_yet_is_told_apart_from_what_is_wrong() -> None:
    async def scenario() -> None:
        site = Site()
        with pytest.raises(TooEarly):
            site.chaos.answer(ChaosRequest("dead", "fresh"))
        await site.driver.close()

    run(scenario())


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ChaosRequest("dead", "cn9"), "cn9 is not served here"),
        (ChaosRequest("dead", "cn[1-"), "cn\\[1-"),
        (ChaosRequest("dead", "fresh"), "not been registered"),
        (ChaosRequest("explode", "cn1"), "explode"),
    ],
)
def test_what_cannot_be_done_changes_nothing(request_: ChaosRequest, words: str) -> None:
    async def scenario() -> None:
        site = Site()
        with pytest.raises(ValueError, match=words):
            site.chaos.answer(request_)
        assert not site.driver.switches
        await site.driver.close()

    run(scenario())
