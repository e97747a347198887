"""The status of agents and satellites. Goal: one line that names what is missing, whatever is missing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from eslurm.core.agent.node import LocalNode, NodeOffer
from eslurm.core.relay.relay import Relay
from eslurm.links.relay_counters import RelayCounters
from eslurm.transport.counters import ApiCounters, LinkCounters
from esnoded.status import SILENT_S, AgentStatus
from essatd.status import SatelliteStatus


def status_of(registered: int, offered: int, *, silence_s: float = 0.0, link: object = None) -> AgentStatus:
    """An agent with so many nodes of each standing."""
    names = [f"cn{number}" for number in range(registered + offered)]
    nodes = {name: LocalNode(NodeOffer(name, "u", (4, 1000))) for name in names}
    for name in names[:registered]:
        nodes[name].registered = True
    parts: tuple[Any, ...] = (
        SimpleNamespace(registry=SimpleNamespace(by_name=nodes), report_queue=[1, 2]),
        SimpleNamespace(size_bytes=77),
        SimpleNamespace(silence_s=silence_s, link=link),
        SimpleNamespace(counters=LinkCounters(links_now=3)),
    )
    return AgentStatus(
        *parts, Relay(), RelayCounters(acknowledgements=5), ApiCounters(calls=8), ApiCounters()
    )


@pytest.mark.parametrize(
    ("nodes", "state", "line"),
    [
        ((2, 0), {}, (True, "serves 2 nodes, all registered")),
        ((2, 1), {}, (False, "1 of 3 nodes are not registered (cn2): no way up is open")),
        (
            (0, 2),
            {"link": object()},
            (False, "2 of 2 nodes are not registered (cn0): the controller has not accepted them"),
        ),
        ((1, 0), {"silence_s": SILENT_S + 1}, (False, "nothing has come from the controller for 91 s")),
    ],
)
def test_an_agent_says_what_it_misses(
    nodes: tuple[int, int], state: dict[str, Any], line: tuple[bool, str]
) -> None:
    async def main() -> None:
        assert status_of(*nodes, **state).health() == line

    asyncio.run(main())


def test_one_page_however_many_nodes() -> None:
    async def main() -> None:
        few, many = status_of(1, 1).page().decode(), status_of(2_000, 500).page().decode()
        assert few.count("\n") == many.count("\n")
        assert 'eslurm_agent_nodes{state="registered"} 2000\n' in many
        assert "eslurm_agent_door_calls_total 8\n" in many
        assert 'eslurm_agent_nodes{state="offered"} 500\n' in many
        assert "eslurm_agent_spool_bytes 77\n" in many and "eslurm_agent_unacknowledged_reports 2\n" in many
        assert "eslurm_links 3\n" in many and "eslurm_relay_acknowledgements_total 5\n" in many

    asyncio.run(main())


def test_a_satellite_says_whether_it_has_a_leader() -> None:
    async def main() -> None:
        leader: Any = None
        table: Any = SimpleNamespace(counters=LinkCounters(), links=[])
        controllers = ("a:1", "b:2")
        status = SatelliteStatus(
            table, Relay(root=True), RelayCounters(), controllers, lambda: leader, lambda: 3
        )
        assert status.health() == (False, "no controller that leads is linked: looking for a:1, b:2")
        leader = SimpleNamespace(peer=SimpleNamespace(endpoint="b:2", epoch=7))
        assert status.health() == (True, "linked to the controller at b:2, epoch 7")
        families = {described.name: samples for described, samples in status.families()}
        assert families["eslurm_satellite_leader_epoch"] == [((), 7)]

    asyncio.run(main())
