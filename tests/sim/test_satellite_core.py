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
)
from eslurm.core.node.states import NodeState
from eslurm.core.plan.policy import PlanLimits
from eslurm.core.planning import plan_slices
from eslurm.core.reactor import Reactor
from eslurm.core.satellite.herald import Deliver, Herald, addressed, live_floor
from eslurm.core.satellite.legs import Satellites, legs_wanted, satellite_number
from eslurm.core.satellite.reports import ReportRouter
from eslurm.core.tree import messages as tree
from eslurm.core.tree.results import OK, failed, from_mapping, unreached
from eslurm.core.wire import Command, Heartbeat, NodeGone, Prepare, Registration, Report, ReportAck

SECOND = 1_000_000
ROOT = Principal("root", 0, 0)
_commands = msgspec.msgpack.Decoder(Command)


# ---- shares ----


@pytest.mark.parametrize(
    ("nodes", "satellites", "wanted"),
    [(1, 3, 1), (16, 3, 1), (17, 3, 2), (32, 3, 2), (33, 3, 3), (48, 3, 3), (4_000, 3, 3), (50, 0, 0)],
)
def test_as_many_satellites_as_the_list_is_worth(nodes: int, satellites: int, wanted: int) -> None:
    assert legs_wanted(nodes, 16, satellites) == wanted


def test_legs_cut_the_list_in_order_and_take_turns() -> None:
    satellites = Satellites()
    for index in range(3):
        satellites.set_up(satellite_number(index), True)
    legs = satellites.legs(list(range(40, 0, -1)), 16)
    assert [node for leg in legs for node in leg.nodes] == list(range(40, 0, -1))
    assert sorted(len(leg.nodes) for leg in legs) == [13, 13, 14]
    singles = [satellites.legs([7], 16)[0].to_node for _ in range(6)]
    assert singles == [-1, -2, -3, -1, -2, -3]
    satellites.set_up(-2, False)
    assert {satellites.legs([7], 16)[0].to_node for _ in range(4)} == {-1, -3}
    for number in satellites.up:
        satellites.set_up(number, False)
    assert satellites.legs([7], 16) == ()


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

    def __init__(self, nodes: int = 3) -> None:
        self.now_us = 1_000 * SECOND
        self.state = State("ctl")
        self.reactor = Reactor(self.state)
        self.satellites = Satellites()
        seal = msgspec.msgpack.Encoder().encode
        self.herald = Herald(self.state, self.satellites, seal, tree.Tuning())
        self.sent: list[tree.SendBroadcast] = []
        self.on_post: Callable[[tuple[Message, ...]], None] = lambda messages: None
        names = tuple(f"cn{number}" for number in range(nodes))
        config = ClusterConfig(
            "test",
            tuple(NodeConfig(name, (4, 1000)) for name in names),
            (Partition("main", names, default=True),),
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

    def pass_time(self, seconds: float) -> None:
        end_us = self.now_us + int(seconds * SECOND)
        while (due_us := self.herald.next_timer_us()) is not None and due_us <= end_us:
            self.now_us = max(self.now_us, due_us)
            self.do(self.herald.on_timer(self.now_us))
        self.now_us = end_us

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
        slices = plan_slices(self.state, self.now_us, (), PlanLimits())
        while True:
            try:
                next(slices)
            except StopIteration as finished:
                plan = finished.value
                break
        self.post(PlanMade(plan.placements, plan.generation))
        return max(self.state.jobs)


def lead_with_nodes(nodes: int = 3) -> Lead:
    lead = Lead(nodes)
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
    lead = lead_with_nodes()
    states = []
    for _ in range(2):
        lead.pass_time(5)
        states.append([node.state for node in lead.state.nodes.values()])
        lead.take()
        lead.answer({0: OK, 1: unreached("silent"), 2: failed("the node is not served here")})
    lead.pass_time(4.9)
    states.append([node.state for node in lead.state.nodes.values()])
    assert states[0] == states[1] == [NodeState.UP] * 3
    assert states[2] == [NodeState.UP, NodeState.UNREACHABLE, NodeState.UNREACHABLE]


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
    lead = lead_with_nodes()
    lead.take()
    lead.satellites.set_up(-1, True)
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
    lead = lead_with_nodes()
    lead.satellites.set_up(-1, True)
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
