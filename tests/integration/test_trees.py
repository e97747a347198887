"""Trees of real broadcasts: what parents and children tell is what the constructor makes, and alerts find their leaf."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest

from eslurm.core.relay.construct import TreeShape, arrange, leaf_positions, share_out
from eslurm.core.relay.grouping import find_grouping, shape
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.support.ports import free_port

NODES = 60
WIDTH = 3
PORT = free_port()
FAILURE = f"[failure]\npredictors = ['alerts']\nwebhook_listen = '127.0.0.1:{PORT}'\n"
FAILURE += "[failure.settings.alerts]\nwebhook_allow_anonymous = true\n"


@pytest.fixture(scope="module", params=["balanced", "positional"])
def site(request: pytest.FixtureRequest) -> Iterator[LiveCluster]:
    # One in twelve heartbeats is traced; late ones are no matter here.
    policy = {
        "relay_width": WIDTH,
        "relay_grouping": f"'{request.param}'",
        "heartbeat_s": 0.4,
        "heartbeats_missed_max": 100,
    }
    with running(nodes=NODES, agents=3, satellites=2, policy=policy, sections=FAILURE) as cluster:
        yield cluster


def alert(status: str, *names: str) -> None:
    """Post alerts as Alertmanager does."""
    alerts = [
        {
            "status": status,
            "labels": {"alertname": "NodeHot", "node": name},
            "fingerprint": f"hot-{name}",
            "startsAt": "2026-01-01T00:00:00Z",
        }
        for name in names
    ]
    body = json.dumps({"version": "4", "status": status, "alerts": alerts}).encode()
    request = Request(f"http://127.0.0.1:{PORT}/alerts", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def traced(site: LiveCluster, predicted: int) -> Any:
    """The newest traced broadcast to all nodes over both satellites, once it is one with so many predicted nodes and
    nobody was too slow to be waited for.
    """

    def look() -> Any:
        reply = site.call("Broadcasts", pb.BroadcastsRequest(kind="heartbeat", with_tree=True))
        newest = reply.broadcasts[0] if reply.broadcasts else None
        if newest is None or newest.predicted != predicted or newest.nodes != NODES:
            return None
        # The first of all may come before the last node has a link; whom a slow one leaves waiting is adopted.
        if newest.ok != NODES or not {span.how for span in newest.spans} <= {"done", "local"}:
            return None
        return newest if len(newest.satellites) == 2 else None

    return site.until(look, f"a traced heartbeat with {predicted} predicted nodes")


def edges_of(one: Any, names: list[str], predicted: set[str]) -> set[tuple[str, str]]:
    """The constructor's edges for the same list."""
    tree = TreeShape(WIDTH, 0, find_grouping(one.grouping))
    numbers = list(range(len(names)))
    doomed = {number for number in numbers if names[number] in predicted}
    edges = {("controller", satellite) for satellite in one.satellites}
    for satellite, share in zip(one.satellites, share_out(numbers, doomed, 2), strict=True):
        for parent, child in shape(arrange(share, doomed, tree), WIDTH, find_grouping(one.grouping)):
            edges.add((satellite if parent is None else names[parent], names[child]))
    return edges


def told(one: Any) -> set[tuple[str, str]]:
    return {(span.parent, span.child) for span in one.spans}


def test_what_parents_tell_of_their_children_is_the_constructors_tree(site: LiveCluster) -> None:
    one = traced(site, 0)
    assert (one.ok, one.unreached, one.spans_omitted) == (NODES, 0, 0)
    assert told(one) == edges_of(one, site.node_names, set())
    assert {span.how for span in one.spans} <= {"done", "local"}


def test_a_node_with_an_alert_goes_to_a_leaf_and_its_neighbours_keep_their_order(site: LiveCluster) -> None:
    first = next(child for parent, child in sorted(told(traced(site, 0))) if parent == "sat0")
    alert("firing", first, "no-such-node")
    try:
        one = traced(site, 1)
        assert told(one) == edges_of(one, site.node_names, {first})
        assert first not in {span.parent for span in one.spans}
        assert one.ok == NODES, "a predicted node is called like any other (E-26)"
        nodes = {node.name: node for node in site.call("Nodes", pb.NodesRequest()).nodes}
        assert nodes[first].state == "UP" and not nodes[first].flags
    finally:
        alert("resolved", first)
    assert first in {span.parent for span in traced(site, 0).spans}
    log = (site.directory / "esctld.log").read_text()
    assert log.count("'no-such-node'") == 1


def test_people_see_who_was_slow_and_what_predictions_are_worth(site: LiveCluster) -> None:
    traced(site, 0)
    ran = site.run("esctl", "broadcast", "last", "--tree")
    assert ran.code == 0 and "LEVEL" in ran.out and "sat0" in ran.out, ran
    broadcast = ran.out.split()[1].rstrip(":")
    assert broadcast in site.run("esctl", "broadcast", "list").out
    unknown = site.run("esctl", "broadcast", "1")
    assert unknown.code == 1 and "no trace of it is kept" in unknown.err
    report = site.run("esctl", "tree", "report")
    assert re.search(r"^union +on ", report.out, re.MULTILINE), report
    assert json.loads(site.run("esctl", "tree", "report", "--json").out)["broadcasts"] > 0


def test_the_example_tree_has_places_that_are_not_leaves() -> None:
    """Else the test above would prove nothing."""
    leaves = leaf_positions(NODES // 2, TreeShape(WIDTH))
    assert 0 < leaves.count(0) < len(leaves)
