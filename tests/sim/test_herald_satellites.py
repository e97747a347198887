"""The broadcaster between a controller and its satellites: shares, lines of what waits, satellites that fail."""

from __future__ import annotations

import pytest

from eslurm.core.dispatch.inflight import Answered
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import UpdateNodes, UpdateSatellites
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.satellite_states import SatelliteState
from eslurm.core.relay import messages as tree
from eslurm.core.relay.results import OK, Status, unreached
from tests.sim.lead import Lead, call, lead_with_satellites

ROOT = Principal("root", 0, 0)


class Listener:
    """Keeps what it is told of broadcasts."""

    def __init__(self) -> None:
        self.heard: list[Answered] = []

    def on_answered(self, answered: Answered) -> None:
        self.heard.append(answered)


def test_a_satellite_gets_its_share_with_all_that_its_tree_needs() -> None:
    lead = lead_with_satellites(satellite_width=8, relay_width=4, relay_grouping="balanced")
    lead.post(UpdateNodes(ROOT, ("cn7",), "lost"))
    lead.broadcaster.set_predicted(frozenset((3, 21, 22, 23, 99)))
    first, second = call(lead)
    for broadcast in (first, second):
        assert (broadcast.width, broadcast.root_width, broadcast.grouping) == (4, 8, "balanced")
        assert broadcast.differences and broadcast.kind == "heartbeat" and len(broadcast.nodes) == 20
        assert len(broadcast.predicted) == 2, "predicted nodes are spread evenly"
    assert sorted(first.missing + second.missing) in ([7], [7, 7])
    assert sorted(first.predicted + second.predicted) == [3, 21, 22, 23]
    assert sorted(first.nodes + second.nodes) == list(range(40))


def test_small_broadcasts_go_straight() -> None:
    lead = lead_with_satellites(relay_direct_max=3)
    direct = lead.broadcaster.counters.direct
    lead.launch()
    lead.take()
    assert {one.to_node for one in lead.last} == {0, 1, 2} and lead.broadcaster.counters.direct == direct + 1
    assert {one.to_node for one in lead.sent} == set()


def test_with_every_satellite_busy_broadcasts_wait_in_order_but_not_for_ever() -> None:
    lead = lead_with_satellites(1, satellite_max_inflight=1)
    call(lead)
    before = lead.last
    lead.launch()
    lead.launch()
    assert lead.take() == [] and lead.broadcaster.waiting == 2
    lead.last = before
    lead.answer(dict.fromkeys(range(40), OK))
    assert lead.broadcaster.waiting == 1 and len(lead.sent) == 1, "one at a time"
    ((nodes, _),) = lead.take()
    (one,) = lead.last
    ack = tree.Ack(one.broadcast.broadcast_id, nodes[:1])
    lead.do(lead.broadcaster.on_ack("peer", ack, lead.now_us))
    lead.pass_time(1.9)
    assert lead.broadcaster.waiting == 1 and not lead.sent
    lead.pass_time(0.2)
    straight = [one for one in lead.sent if one.to_node >= 0]
    assert lead.broadcaster.waiting == 0 and lead.broadcaster.counters.takeovers == 1
    first_id = one.broadcast.broadcast_id
    assert isinstance(first_id, int)
    assert {other.broadcast.broadcast_id for other in straight} == {first_id + 1}


def test_the_line_of_those_that_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eslurm.core.dispatch.broadcaster.WAITING_MAX", 1)
    lead = lead_with_satellites(1, satellite_max_inflight=1)
    call(lead)
    lead.launch()
    lead.launch()
    counters = lead.broadcaster.counters
    assert (lead.broadcaster.waiting, counters.waiting_full, counters.takeovers) == (1, 1, 1)
    assert lead.sent and all(one.to_node >= 0 for one in lead.sent)


def test_without_a_healthy_satellite_the_controller_does_it_at_once() -> None:
    lead = lead_with_satellites(2)
    for number in (-1, -2):
        lead.do(lead.broadcaster.on_satellite_down(number, "gone", lead.now_us))
    lead.launch()
    lead.take()
    assert {one.to_node for one in lead.last} == {0, 1, 2}
    assert lead.broadcaster.counters.takeovers == 1


def test_a_started_controller_waits_a_moment_for_its_satellites() -> None:
    lead = Lead(3, ("sat0",))
    for number in range(3):
        lead.register(number)
    lead.sent.clear()
    lead.do(lead.broadcaster.lead(lead.now_us))
    assert lead.sent == [] and lead.broadcaster.waiting == 1
    lead.pass_time(0.3)
    lead.link(0)
    assert {one.to_node for one in lead.sent} == {-1} and lead.broadcaster.waiting == 0
    lead.pass_time(0.5)
    assert len({one.broadcast.broadcast_id for one in lead.sent}) == 1, "who waited is not called twice"


def test_a_failed_share_is_handed_on_and_in_the_end_taken_over() -> None:
    """E-15, E-16: three satellites fail one after the other; every node is asked by somebody, the counters tell."""
    lead = lead_with_satellites(3, 10)
    listener = Listener()
    lead.broadcaster.observe(listener)
    lead.launch()
    lead.take()
    asked = []
    for _ in range(3):
        (one,) = lead.last
        asked.append(one.to_node)
        link = f"link {one.to_node}"
        heads = one.broadcast.nodes[:1]
        lead.do(lead.broadcaster.on_ack(link, tree.Ack(one.broadcast.broadcast_id, heads), lead.now_us))
        lead.do(lead.broadcaster.on_satellite_down(one.to_node, "killed", lead.now_us))
        lead.do(lead.broadcaster.on_link_down(link, lead.now_us))
        lead.take()
    assert len(set(asked)) == 3
    counters = lead.broadcaster.counters
    assert (counters.reallocations, counters.takeovers) == (2, 1)
    assert {one.to_node for one in lead.last} == {0, 1, 2}
    lead.answer(dict.fromkeys(range(3), OK))
    answered = next(one for one in listener.heard if one.kind == "prepare")
    assert (answered.reallocations, answered.takeovers) == (2, 1)
    assert answered.satellites == tuple(asked) and not answered.is_exact
    assert all(one.running == 0 for one in lead.satellites.satellites)


def test_a_satellite_that_is_silent_for_too_long_is_down_by_a_fact() -> None:
    lead = lead_with_satellites(1, 3, satellite_down_after_s=60.0)
    lead.do(lead.broadcaster.on_satellite_down(-1, "gone", lead.now_us))
    lead.pass_time(59)
    assert lead.satellites.get(-1).state is SatelliteState.FAULT and not lead.state.satellites_down
    lead.pass_time(1.1)
    assert lead.satellites.get(-1).state is SatelliteState.DOWN and "sat0" in lead.state.satellites_down
    lead.link(0)
    assert lead.satellites.get(-1).state is SatelliteState.DOWN
    lead.post(UpdateSatellites(ROOT, ("sat0",), "resume"))
    lead.link(0)
    assert lead.satellites.get(-1).state is SatelliteState.RUNNING


def test_observers_hear_of_every_answer_and_some_are_traced() -> None:
    lead = lead_with_satellites(2)
    listener = Listener()
    lead.broadcaster.observe(listener)
    lead.broadcaster.set_predicted(frozenset((4, 5)))
    traced = []
    for _ in range(25):
        broadcasts = call(lead)
        traced.append(any(broadcast.traced for broadcast in broadcasts))
        lead.now_us += 40_000
        lead.answer(dict.fromkeys(range(40), OK) | {9: unreached("silent")})
        if lead.state.nodes[9].state is NodeState.UP:
            lead.until_sent()
            lead.take()
            lead.answer({9: unreached("silent")})
    heard = [one for one in listener.heard if len(one.nodes) == 40]
    assert len(heard) == 25 and all(one.predicted == {4, 5} for one in heard)
    assert {one.took_us for one in heard} == {40_000} and heard[0].shares == (20, 20)
    assert all(one.results.nodes(Status.UNREACHED) == [9] and not one.is_exact for one in heard)
    assert 2 <= sum(traced) <= 4
    assert [one.started_us for one in lead.broadcaster.traces()] == sorted(
        (one.started_us for one in lead.broadcaster.traces()), reverse=True
    )


def test_the_automatic_width_is_measured() -> None:
    lead = lead_with_satellites(2, relay_width=0)
    widths = set()
    for _ in range(60):
        widths |= {broadcast.width for broadcast in call(lead)}
        lead.now_us += 10_000
        lead.answer(dict.fromkeys(range(40), OK))
    assert len(widths) > 1 and lead.broadcaster.widths()
