"""Satellites of a live cluster: what people see of them, how they fail and heal, how they are taken down and resumed."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster


@pytest.fixture(scope="module")
def ill_treated() -> Iterator[LiveCluster]:
    """A cluster whose satellites these tests take down, kill and stop."""
    with running(nodes=8, policy={"satellite_width": 4}) as cluster:
        yield cluster


@pytest.fixture
def site(ill_treated: LiveCluster) -> Iterator[LiveCluster]:
    """The cluster with all its daemons running, at the start of a test as at its end."""
    ill_treated.start()
    yield ill_treated
    ill_treated.start()
    ill_treated.hang_up()


def satellites(site: LiveCluster) -> dict[str, Any]:
    return {one.name: one for one in site.call("Satellites", pb.SatellitesRequest()).satellites}


def wait(site: LiveCluster, wanted: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = satellites(site)
        return found if wanted(found) else None

    return site.until(look, what)


def wait_states(site: LiveCluster, **states: str) -> dict[str, Any]:
    return wait(site, lambda found: {name: one.state for name, one in found.items()} == states, str(states))


def undisturbed(site: LiveCluster) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two looks, and heartbeats through both satellites between them; neither has failed or been late meanwhile."""

    def look() -> tuple[dict[str, Any], dict[str, Any]] | None:
        before = wait_states(site, sat0="RUNNING", sat1="RUNNING")
        after = wait(
            site,
            lambda found: all(one.nodes_given > before[name].nodes_given + 24 for name, one in found.items()),
            "heartbeats through both",
        )
        calm = all(
            (one.failures, one.since_us) == (before[name].failures, before[name].since_us) and not one.suspect
            for name, one in after.items()
        )
        return (before, after) if calm else None

    return site.until(look, "a while without trouble")


def test_people_see_how_satellites_are(site: LiveCluster) -> None:
    before, found = undisturbed(site)
    given = [one.broadcasts - before[name].broadcasts for name, one in found.items()]
    assert max(given) - min(given) <= 1, "turns are even (E-09)"
    for one in found.values():
        assert one.rss_bytes > 10 << 20 and one.sockets > 2 and one.heard_us and one.endpoint
    table = site.run("esinfo", "--satellites").out.splitlines()
    assert table[0].split()[:4] == ["SATELLITE", "STATE", "FOR", "TASKS"] and len(table) == 3
    shown = json.loads(site.run("esinfo", "--satellites", "--json").out)["satellites"]
    assert [one["name"] for one in shown] == ["sat0", "sat1"]
    assert "SatelliteName=sat1 State=RUNNING" in site.run("esctl", "show", "satellite", "sat1").out


def test_one_that_was_taken_down_gets_nothing_and_stays_down_after_a_restart(site: LiveCluster) -> None:
    site.do("esctl", "satellite", "down", "sat0", "reason=new disk")
    down = wait_states(site, sat0="DOWN", sat1="RUNNING")["sat0"]
    assert down.reason == "new disk"
    assert site.end(site.wrap("true", "-N", "8")) == "COMPLETED"
    site.kill("esctld")
    site.launch("esctld")
    again = wait_states(site, sat0="DOWN", sat1="RUNNING")["sat0"]
    assert (again.reason, again.since_us, again.broadcasts) == ("new disk", down.since_us, 0)
    site.do("esctl", "satellite", "resume", "sat0")
    wait_states(site, sat0="RUNNING", sat1="RUNNING")


def test_an_unknown_satellite_is_named(site: LiveCluster) -> None:
    ran = site.run("esctl", "satellite", "down", "sat7")
    assert ran.code == 1
    assert ran.err == "esctl: sat7: satellite sat7 does not exist: there are sat0, sat1\n"


def test_a_killed_one_is_at_fault_until_it_is_back(site: LiveCluster) -> None:
    site.kill("sat1")
    assert wait_states(site, sat0="RUNNING", sat1="FAULT")["sat1"].reason
    assert site.end(site.wrap("true", "-N", "8")) == "COMPLETED"
    site.launch("sat1")
    wait_states(site, sat0="RUNNING", sat1="RUNNING")


def test_one_that_hangs_is_found_out_by_its_pings_and_heals_by_itself(site: LiveCluster) -> None:
    site.daemons["sat0"].send(signal.SIGSTOP)
    try:
        before = wait(site, lambda found: found["sat0"].state == "FAULT", "sat0 is at fault")
        after = wait(
            site,
            lambda found: found["sat1"].broadcasts >= before["sat1"].broadcasts + 3,
            "broadcasts go through the other one",
        )
        assert after["sat0"].broadcasts == before["sat0"].broadcasts
    finally:
        site.daemons["sat0"].send(signal.SIGCONT)
    wait_states(site, sat0="RUNNING", sat1="RUNNING")
    assert site.end(site.wrap("true", "-N", "8")) == "COMPLETED"


def test_too_long_at_fault_is_down_until_somebody_resumes_it() -> None:
    with running(nodes=4, satellites=1, policy={"satellite_down_after_s": 6.0}) as site:
        wait_states(site, sat0="RUNNING")
        site.kill("sat0")
        assert wait_states(site, sat0="DOWN")["sat0"].reason == "in FAULT for 6 s"
        site.launch("sat0")
        assert site.end(site.wrap("true", "-N", "4")) == "COMPLETED"
        assert satellites(site)["sat0"].state == "DOWN"
        site.do("esctl", "satellite", "resume", "sat0")
        wait_states(site, sat0="RUNNING")
