"""Links of satellites: which process is which satellite, who is sent away, and what people see."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from esctld.lead.satellites import LinkedSatellites, status_from_pb
from eslurm.core.dispatch.satellite_pool import SatelliteStatus
from eslurm.core.model.satellite_states import SatelliteState
from eslurm.core.state.cluster import State
from eslurm.ports.link import Link, PeerInfo
from eslurm.v1 import link_pb2

CONFIGURED = (("sat0", "10.0.0.1:7500"), ("sat1", "10.0.0.2:7500"))
NOW_US = 1_000_000_000


class FakeLink:
    """One end of a link; keeps what is sent."""

    def __init__(self, name: str, endpoint: str, nonce: str = "1") -> None:
        self.peer = PeerInfo("lab", "satellite", f"{name}.{nonce}", endpoint, frozenset(), 1, 0)
        self.closed = asyncio.Event()
        self.sent: list[Any] = []

    def send(self, item: link_pb2.Item, traceparent: str = "") -> bool:
        self.sent.append(item)
        return True


def link(name: str, endpoint: str, nonce: str = "1") -> Link:
    return cast(Link, FakeLink(name, endpoint, nonce))


@pytest.fixture
def satellites() -> LinkedSatellites:
    found = LinkedSatellites(State("main"), CONFIGURED)
    found.roster.begin(NOW_US)
    return found


def test_known_by_name_or_by_the_configured_endpoint(satellites: LinkedSatellites) -> None:
    by_name, by_endpoint = link("sat0", "10.9.9.9:1"), link("satellite", "10.0.0.2:7500")
    stranger = link("spare", "10.0.0.3:7500")
    assert [satellites.add(one, NOW_US) for one in (by_name, by_endpoint, stranger)] == ["", "", ""]
    numbers = [satellites.number_of(one) for one in (by_name, by_endpoint, stranger)]
    assert numbers == [-1, -2, -3] and [satellites.name(number) for number in numbers if number] == [
        "sat0",
        "sat1",
        "spare",
    ]
    assert satellites.endpoint(-1) == "10.9.9.9:1"


def test_who_is_linked_is_pinged_and_known_by_its_answer(satellites: LinkedSatellites) -> None:
    one = link("sat0", "10.0.0.1:7500")
    satellites.add(one, NOW_US)
    (ping,) = cast(FakeLink, one).sent
    assert ping.satellite_ping.seq == 1
    message = link_pb2.SatelliteStatus(
        seq=1, tasks=2, nodes=3, rss_bytes=4 << 20, sockets=5, lag_us=6, queued=7
    )
    status = status_from_pb(message)
    assert status == SatelliteStatus(1, 2, 3, 4 << 20, 5, 6, 7)
    assert satellites.roster.on_status(-1, status, NOW_US)
    info, other = satellites.infos()
    assert (info.name, info.state, info.rss_bytes, info.sockets) == ("sat0", "RUNNING", 4 << 20, 5)
    assert (info.heard_us, info.endpoint) == (NOW_US, "10.0.0.1:7500")
    assert (other.name, other.state, other.endpoint) == ("sat1", "UNKNOWN", "10.0.0.2:7500")


def test_two_of_one_name_and_a_node_s_name_are_sent_away(satellites: LinkedSatellites) -> None:
    assert satellites.add(link("spare", "10.0.0.3:7500"), NOW_US) == ""
    refusal = satellites.add(link("spare", "10.0.0.4:7500", "2"), NOW_US)
    assert refusal == (
        "satellite name 'spare' is taken by the one at 10.0.0.3:7500: give each its own name (--name)"
    )
    satellites.roster._state.numbers["cn1"] = 1
    assert "compute node" in satellites.add(link("cn1", "10.0.0.5:7500"), NOW_US)
    assert len(satellites.infos()) == 3


def test_a_process_that_takes_the_place_of_another(satellites: LinkedSatellites) -> None:
    old, new = link("sat0", "10.0.0.1:7500", "1"), link("sat0", "10.0.0.1:7500", "2")
    satellites.add(old, NOW_US)
    satellites.roster.on_status(-1, SatelliteStatus(1), NOW_US)
    assert satellites.add(new, NOW_US) == ""
    assert satellites.roster.get(-1).state is SatelliteState.FAULT
    assert satellites.remove(old) is None, "its end means nothing any more"
    assert satellites.number_of(new) == -1 and satellites.remove(new) == -1
    assert satellites.remove(new) is None and satellites.endpoint(-1) is None


def test_two_links_of_one_process_are_one_satellite(satellites: LinkedSatellites) -> None:
    first, second = link("sat0", "10.0.0.1:7500"), link("sat0", "10.0.0.1:7500")
    satellites.add(first, NOW_US)
    satellites.roster.on_status(-1, SatelliteStatus(1), NOW_US)
    satellites.add(second, NOW_US)
    assert satellites.roster.get(-1).state is SatelliteState.RUNNING
    assert satellites.remove(first) is None and satellites.remove(second) == -1
