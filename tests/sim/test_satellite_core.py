"""The pure parts between controller and nodes: shares for satellites, reports on their way, the herald."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from eslurm.core.cluster import State
from eslurm.core.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.job.model import JobSpec, Principal
from eslurm.core.job.request import Request
from eslurm.core.messages import (
    ConfigLoaded,
    EffectDone,
    EpochStarted,
    HeartbeatDone,
    Message,
    NodeOutcome,
    PlanMade,
    Reports,
    SubmitJobs,
    UpdateNodes,
    UpdateSatellites,
)
from eslurm.core.node.states import NodeState
from eslurm.core.plan.policy import PlanLimits
from eslurm.core.planning import plan_slices
from eslurm.core.reactor import Reactor
from eslurm.core.satellite.flights import Answered
from eslurm.core.satellite.herald import Deliver, Herald, addressed, live_floor
from eslurm.core.satellite.reports import ReportRouter
from eslurm.core.satellite.roster import Roster, SatelliteStatus
from eslurm.core.satellite.states import SatelliteState
from eslurm.core.tree import messages as tree
from eslurm.core.tree.results import OK, Status, failed, from_mapping, unreached
from eslurm.core.wire import Command, Heartbeat, NodeGone, Prepare, Registration, Report, ReportAck

SECOND = 1_000_000
ROOT = Principal("root", 0, 0)
_commands = msgspec.msgpack.Decoder(Command)


# ---- reports ----


def report(process: str, seq: int) -> Report:
    return Report(process, seq, NodeGone(0, 1, 7, 1))


def test_reports_are_gathered_once_each_and_go_up_when_there_is_a_way() -> None:
    router = ReportRouter(flush_us=5_000)
    router.on_reports("link a", [report("a", 1), report("a", 2)], 0)
    router.on_reports("link b", [report("b", 1)], 1_000)
    router.on_reports("link a", [report("a", 1)], 2_000)
    assert router.next_due_us() is None and router.take(9_000) == ()
    router.on_controller(True)
    assert router.next_due_us() == 5_000 and router.take(4_999) == ()
    assert router.take(5_000) == (report("a", 1), report("a", 2), report("b", 1))
    assert router.take(9_000) == () and router.next_due_us() is None


def test_batches_and_what_waits_are_bounded() -> None:
    router = ReportRouter(batch_max=2, queued_max=3)
    router.on_controller(True)
    router.on_reports("link", [report("a", seq) for seq in range(5)], 0)
    assert len(router) == 3
    assert [one.seq for one in router.take(5_000)] == [0, 1]
    assert [one.seq for one in router.take(5_000)] == [2]


def test_acknowledgements_find_the_link_their_process_used_last() -> None:
    router = ReportRouter()
    router.on_reports("old", [report("a", 1)], 0)
    router.on_reports("new", [report("a", 2)], 0)
    acks = [ReportAck("a", (1,)), ReportAck("stranger", (9,))]
    assert router.on_acks(acks) == [("new", acks[0])]
    router.on_link_down("old")
    assert router.on_acks(acks) == [("new", acks[0])]
    router.on_link_down("new")
    assert router.on_acks(acks) == []


# ---- the herald ----


class Lead:
    """A controller's core and herald without a network: what it sends is kept, what comes is given by hand."""

    def __init__(self, nodes: int = 3, satellites: tuple[str, ...] = (), **policy: object) -> None:
        self.now_us = 1_000 * SECOND
        self.state = State("ctl")
        self.reactor = Reactor(self.state)
        self.pings: list[tuple[int, int]] = []
        self.satellites = Roster(self.state, satellites, lambda *ping: self.pings.append(ping))
        seal = msgspec.msgpack.Encoder().encode
        self.herald = Herald(self.state, self.satellites, seal, tree.Tuning())
        self.sent: list[tree.SendBroadcast] = []
        self.on_post: Callable[[tuple[Message, ...]], None] = lambda messages: None
        names = tuple(f"cn{number}" for number in range(nodes))
        config = ClusterConfig(
            "test",
            tuple(NodeConfig(name, (4, 1000)) for name in names),
            (Partition("main", names, default=True),),
            **policy,  # type: ignore[arg-type]
        )
        self.post(ConfigLoaded(config))
        self.post(EpochStarted(5))
        self.names = names

    def post(self, *messages: Message) -> list[Any]:
        self.on_post(messages)
        batch = self.reactor.process(messages, self.now_us)
        self.do(self.herald.on_committed(messages, batch, self.now_us))
        return batch.facts

    def do(self, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, tree.SendBroadcast):
                self.sent.append(action)
            elif isinstance(action, Deliver):
                self.post(action.message)

    def register(self, number: int, session: str = "s") -> None:
        name = self.names[number]
        offer = Registration(name, f"uid-{name}", "boot", session, self.state.epoch, "host:1", (4, 1000))
        self.post(Reports((Report("agent", 1, offer),)))

    def link(self, *indexes: int) -> None:
        """Satellites come and answer their first ping."""
        for index in indexes:
            self.satellites.on_linked(f"sat{index}", self.now_us)
            self.do(self.herald.on_satellite_status(-1 - index, SatelliteStatus(1), self.now_us))

    def pass_time(self, seconds: float) -> None:
        end_us = self.now_us + int(seconds * SECOND)
        while (due_us := self.herald.next_timer_us()) is not None and due_us <= end_us:
            self.now_us = max(self.now_us, due_us)
            self.do(self.herald.on_timer(self.now_us))
        self.now_us = end_us

    def until_sent(self) -> None:
        """Until something is said, and no longer: nobody's patience ends."""
        while not self.sent:
            due_us = self.herald.next_timer_us()
            assert due_us is not None, "nothing will ever be said"
            self.now_us = max(self.now_us, due_us)
            self.do(self.herald.on_timer(self.now_us))

    def take(self) -> list[tuple[tuple[int, ...], Command]]:
        taken = [(one.broadcast.nodes, _commands.decode(one.broadcast.command)) for one in self.sent]
        self.last, self.sent = self.sent, []
        return taken

    def answer(self, outcomes: dict[int, Any]) -> None:
        """The broadcasts of the last `take` come back."""
        for one in self.last:
            heads = one.broadcast.nodes[:1]
            mine = {node: outcomes[node] for node in one.broadcast.nodes}
            final = tree.Reply(one.broadcast.broadcast_id, heads, from_mapping(mine), True)
            self.do(self.herald.on_ack("peer", tree.Ack(one.broadcast.broadcast_id, heads), self.now_us))
            self.do(self.herald.on_reply("peer", final, self.now_us))

    def launch(self) -> int:
        """Submit and place a job of three nodes; its id."""
        request = Request(tasks=3, nodes_min=3, nodes_max=3)
        spec = JobSpec("job", Principal("alice", 1000, 1000), "", (request,), b"", b"", "/tmp")
        self.post(SubmitJobs((spec,)))
        slices = plan_slices(self.state, self.now_us, None, PlanLimits())
        while True:
            try:
                next(slices)
            except StopIteration as finished:
                plan = finished.value
                break
        self.post(PlanMade(plan.placements, plan.generation))
        return max(self.state.jobs)


def lead_with_nodes(nodes: int = 3, satellites: tuple[str, ...] = (), **policy: object) -> Lead:
    lead = Lead(nodes, satellites, **policy)
    lead.do(lead.herald.lead(lead.now_us))
    lead.take()
    for number in range(nodes):
        lead.register(number)
    return lead


def test_heartbeats_go_to_every_node_that_has_an_address_and_say_the_floor() -> None:
    lead = Lead()
    lead.do(lead.herald.lead(lead.now_us))
    assert lead.take() == [], "nobody has registered yet"
    lead.register(0)
    lead.register(2)
    lead.pass_time(5)
    ((_, first), *_) = taken = lead.take()
    assert sorted(node for nodes, _ in taken for node in nodes) == [0, 2]
    assert isinstance(first.body, Heartbeat) and first.revision == 0 and first.epoch == 5
    lead.register(1)
    lead.pass_time(5)
    # Copies of the first call, which nobody acknowledged, go about as well.
    told = lead.take()
    latest = max(command.expires_us for _, command in told)
    calls = [(nodes, command) for nodes, command in told if command.expires_us == latest]
    assert {node for nodes, _ in calls for node in nodes} == {0, 1, 2}
    assert all(command.body == Heartbeat(lead.state.revision + 1) for _, command in calls)


def test_two_missed_heartbeats_make_a_node_unreachable_and_one_does_not() -> None:
    lead = lead_with_satellites(1, 3)
    answers = {0: OK, 1: unreached("silent"), 2: failed("the node is not served here")}

    def states() -> list[NodeState]:
        return [node.state for node in lead.state.nodes.values()]

    call(lead)
    lead.answer(answers)
    assert states() == [NodeState.UP] * 3
    lead.pass_time(2.4)
    assert lead.take() == []
    lead.pass_time(0.1)
    again = lead.take()
    assert sorted(node for nodes, _ in again for node in nodes) == [1, 2], "only those that missed it"
    lead.answer(answers)
    assert states() == [NodeState.UP, NodeState.UNREACHABLE, NodeState.UNREACHABLE]
    lead.pass_time(2.3)
    assert lead.take() == [], "who is unreachable is called once per period, as everybody"


def test_calls_that_somebody_asks_for_are_apart_and_count_nobody_out() -> None:
    lead = lead_with_nodes()
    lead.until_sent()
    lead.take()
    lead.answer({0: OK, 1: unreached("silent"), 2: OK})
    calls = 0
    for _ in range(8):
        lead.now_us += 100_000
        lead.do(lead.herald.call_soon(lead.now_us))
        if lead.take():
            calls += 1
            lead.answer({0: OK, 1: unreached("silent"), 2: OK})
    assert calls == 1, "half a second apart at least"
    assert lead.state.nodes[1].state is NodeState.UP, "missed twice, but within less than half a period"


def test_a_node_that_registered_while_its_absence_was_news_comes_back() -> None:
    lead = lead_with_nodes()
    lead.post(HeartbeatDone(missing=(1,)))
    seen = [lead.state.nodes[1].state]
    lead.pass_time(5)
    lead.take()
    lead.answer(dict.fromkeys(range(3), OK))
    seen.append(lead.state.nodes[1].state)
    assert seen == [NodeState.UNREACHABLE, NodeState.UP]


def test_a_lost_node_is_called_without_an_incarnation() -> None:
    lead = lead_with_nodes()
    lead.post(UpdateNodes(ROOT, ("cn1",), "lost"))
    runs, incarnations = addressed(lead.state, (0, 1, 2))
    assert runs == ((0, 1), (1, 1), (2, 1)) and incarnations == (1, 0, 1)
    assert addressed(lead.state, (2, 0)) == (((2, 1), (0, 1)), (1, 1))
    lead.register(1, "s2")
    assert addressed(lead.state, (1,)) == (((1, 1),), (2,))


def test_an_effect_is_one_signed_command_and_its_answer_settles_it() -> None:
    lead = lead_with_nodes(satellites=("sat0",))
    lead.link(0)
    lead.take()
    lead.launch()
    ((nodes, command),) = lead.take()
    assert nodes == (0, 1, 2) and command.nodes == ((0, 3),) and command.incarnations == (1,)
    assert isinstance(command.body, Prepare) and command.revision == lead.state.revision
    assert lead.last[0].to_node == -1 and lead.last[0].broadcast.kind == "prepare"
    broadcast_id = lead.last[0].broadcast.broadcast_id
    assert isinstance(broadcast_id, int) and broadcast_id >> 40 == 5
    lead.answer(dict.fromkeys(range(3), OK))
    ((nodes, command),) = lead.take()
    assert nodes == (0,) and lead.last[0].broadcast.kind == "start"


def test_without_an_answer_a_node_is_unreached_and_asked_again() -> None:
    lead = lead_with_nodes(satellites=("sat0",))
    lead.link(0)
    lead.take()
    lead.launch()
    lead.take()
    said: list[Message] = []
    lead.on_post = said.extend
    lead.answer({0: OK, 1: OK, 2: unreached("silent")})
    (done,) = said
    assert isinstance(done, EffectDone)
    assert done.outcomes == (NodeOutcome((2,), "unreached", "silent"), NodeOutcome((0, 1), "ok"))


def test_the_floor_is_the_oldest_launch_that_still_holds_something() -> None:
    lead = lead_with_nodes()
    assert live_floor(lead.state) == lead.state.revision + 1
    job_id = lead.launch()
    attempt = lead.state.get_job(job_id).attempt
    assert attempt is not None and live_floor(lead.state) == attempt.placed_revision


def test_a_restarted_controller_says_again_what_it_owes_once_nodes_are_there() -> None:
    lead = lead_with_nodes()
    lead.launch()
    lead.take()
    successor = Herald(lead.state, lead.satellites, msgspec.msgpack.Encoder().encode, tree.Tuning())
    lead.herald = successor
    lead.post(EpochStarted(6))
    lead.do(successor.lead(lead.now_us))
    assert all(isinstance(command.body, Heartbeat) for _, command in lead.take())
    for number in range(3):
        lead.register(number)
    prepares = [(nodes, command) for nodes, command in lead.take() if isinstance(command.body, Prepare)]
    assert sorted(node for nodes, _ in prepares for node in nodes) == [0, 1, 2]
    assert {command.epoch for _, command in prepares} == {6}


# ---- the herald and its satellites ----


class Listener:
    """Keeps what it is told of broadcasts."""

    def __init__(self) -> None:
        self.heard: list[Answered] = []

    def on_answered(self, answered: Answered) -> None:
        self.heard.append(answered)


def lead_with_satellites(count: int = 2, nodes: int = 40, **policy: object) -> Lead:
    lead = lead_with_nodes(nodes, tuple(f"sat{at}" for at in range(count)), **policy)
    lead.link(*range(count))
    # The first one opens the way to the nodes: everybody is called.
    lead.until_sent()
    lead.take()
    lead.answer(dict.fromkeys(range(nodes), OK))
    return lead


def call(lead: Lead) -> list[tree.Broadcast]:
    """The next heartbeat as satellites get it; they answer their pings."""
    lead.sent.clear()
    lead.until_sent()
    for number, _ in lead.pings:
        lead.do(lead.herald.on_satellite_status(number, SatelliteStatus(1), lead.now_us))
    lead.pings.clear()
    lead.take()
    return [one.broadcast for one in lead.last]


def test_a_satellite_gets_its_share_with_all_that_its_tree_needs() -> None:
    lead = lead_with_satellites(satellite_width=8, relay_width=4, relay_grouping="balanced")
    lead.post(UpdateNodes(ROOT, ("cn7",), "lost"))
    lead.herald.set_predicted(frozenset((3, 21, 22, 23, 99)))
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
    direct = lead.herald.counters.direct
    lead.launch()
    lead.take()
    assert {one.to_node for one in lead.last} == {0, 1, 2} and lead.herald.counters.direct == direct + 1
    assert {one.to_node for one in lead.sent} == set()


def test_with_every_satellite_busy_broadcasts_wait_in_order_but_not_for_ever() -> None:
    lead = lead_with_satellites(1, satellite_max_inflight=1)
    call(lead)
    before = lead.last
    lead.launch()
    lead.launch()
    assert lead.take() == [] and lead.herald.waiting == 2
    lead.last = before
    lead.answer(dict.fromkeys(range(40), OK))
    assert lead.herald.waiting == 1 and len(lead.sent) == 1, "one at a time"
    ((nodes, _),) = lead.take()
    (one,) = lead.last
    ack = tree.Ack(one.broadcast.broadcast_id, nodes[:1])
    lead.do(lead.herald.on_ack("peer", ack, lead.now_us))
    lead.pass_time(1.9)
    assert lead.herald.waiting == 1 and not lead.sent
    lead.pass_time(0.2)
    straight = [one for one in lead.sent if one.to_node >= 0]
    assert lead.herald.waiting == 0 and lead.herald.counters.takeovers == 1
    first_id = one.broadcast.broadcast_id
    assert isinstance(first_id, int)
    assert {other.broadcast.broadcast_id for other in straight} == {first_id + 1}


def test_the_line_of_those_that_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eslurm.core.satellite.herald.WAITING_MAX", 1)
    lead = lead_with_satellites(1, satellite_max_inflight=1)
    call(lead)
    lead.launch()
    lead.launch()
    counters = lead.herald.counters
    assert (lead.herald.waiting, counters.waiting_full, counters.takeovers) == (1, 1, 1)
    assert lead.sent and all(one.to_node >= 0 for one in lead.sent)


def test_without_a_healthy_satellite_the_controller_does_it_at_once() -> None:
    lead = lead_with_satellites(2)
    for number in (-1, -2):
        lead.do(lead.herald.on_satellite_down(number, "gone", lead.now_us))
    lead.launch()
    lead.take()
    assert {one.to_node for one in lead.last} == {0, 1, 2}
    assert lead.herald.counters.takeovers == 1


def test_a_started_controller_waits_a_moment_for_its_satellites() -> None:
    lead = Lead(3, ("sat0",))
    for number in range(3):
        lead.register(number)
    lead.sent.clear()
    lead.do(lead.herald.lead(lead.now_us))
    assert lead.sent == [] and lead.herald.waiting == 1
    lead.pass_time(0.3)
    lead.link(0)
    assert {one.to_node for one in lead.sent} == {-1} and lead.herald.waiting == 0
    lead.pass_time(0.5)
    assert len({one.broadcast.broadcast_id for one in lead.sent}) == 1, "who waited is not called twice"


def test_a_failed_share_is_handed_on_and_in_the_end_taken_over() -> None:
    """E-15, E-16: three satellites fail one after the other; every node is asked by somebody, the counters tell."""
    lead = lead_with_satellites(3, 10)
    listener = Listener()
    lead.herald.observe(listener)
    lead.launch()
    lead.take()
    asked = []
    for _ in range(3):
        (one,) = lead.last
        asked.append(one.to_node)
        link = f"link {one.to_node}"
        heads = one.broadcast.nodes[:1]
        lead.do(lead.herald.on_ack(link, tree.Ack(one.broadcast.broadcast_id, heads), lead.now_us))
        lead.do(lead.herald.on_satellite_down(one.to_node, "killed", lead.now_us))
        lead.do(lead.herald.on_link_down(link, lead.now_us))
        lead.take()
    assert len(set(asked)) == 3
    counters = lead.herald.counters
    assert (counters.reallocations, counters.takeovers) == (2, 1)
    assert {one.to_node for one in lead.last} == {0, 1, 2}
    lead.answer(dict.fromkeys(range(3), OK))
    answered = next(one for one in listener.heard if one.kind == "prepare")
    assert (answered.reallocations, answered.takeovers) == (2, 1)
    assert answered.satellites == tuple(asked) and not answered.is_exact
    assert all(one.running == 0 for one in lead.satellites.satellites)


def test_a_satellite_that_is_silent_for_too_long_is_down_by_a_fact() -> None:
    lead = lead_with_satellites(1, 3, satellite_down_after_s=60.0)
    lead.do(lead.herald.on_satellite_down(-1, "gone", lead.now_us))
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
    lead.herald.observe(listener)
    lead.herald.set_predicted(frozenset((4, 5)))
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
    assert [one.started_us for one in lead.herald.traces()] == sorted(
        (one.started_us for one in lead.herald.traces()), reverse=True
    )


def test_the_automatic_width_is_measured() -> None:
    lead = lead_with_satellites(2, relay_width=0)
    widths = set()
    for _ in range(60):
        widths |= {broadcast.width for broadcast in call(lead)}
        lead.now_us += 10_000
        lead.answer(dict.fromkeys(range(40), OK))
    assert len(widths) > 1 and lead.herald.widths()
