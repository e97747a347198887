"""The pure parts between controller and nodes: reports on their way, and the broadcaster."""

from __future__ import annotations

import msgspec

from eslurm.core.dispatch.broadcaster import Broadcaster, addressed, effect_done, live_floor
from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.dispatch.report_router import ReportRouter
from eslurm.core.model.contact import Heard
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import (
    EffectDone,
    EpochStarted,
    HeartbeatDone,
    Message,
    NodeOutcome,
    UpdateNodes,
)
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.protocol import Command, Heartbeat, NodeGone, Prepare, Report, ReportAck
from eslurm.core.relay import messages as tree
from eslurm.core.relay.results import FAILED, OK, USER_REFUSED, Outcome, collect, failed, unreached
from tests.sim.lead import Lead, call, lead_with_nodes, lead_with_satellites, seal

ROOT = Principal("root", 0, 0)


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


# ---- the broadcaster ----


def test_heartbeats_go_to_every_node_that_has_an_address_and_say_the_floor() -> None:
    lead = Lead()
    lead.do(lead.broadcaster.lead(lead.now_us))
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
    bodies = [command.body for _, command in calls]
    assert all(isinstance(body, Heartbeat) and body.floor == lead.state.revision + 1 for body in bodies)


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


def test_heartbeats_confirm_what_was_heard_of_nodes_that_are_up_while_the_lead_is_proved() -> None:
    lead = lead_with_satellites(1, 3)

    def next_round(outcomes: dict[int, Outcome]) -> tuple[int, dict[int, int]]:
        """Answer this round; the number of the next one to all nodes, and the rounds that it confirms."""
        lead.answer(outcomes)
        while not (wide := [one for one in call(lead) if len(one.nodes) == 3]):
            pass
        body = msgspec.msgpack.decode(wide[-1].command, type=Command).body
        assert isinstance(body, Heartbeat)
        heard = Heard(body.heard, body.unheard)
        return body.round, {node: heard.round_of(node) for node in range(3)}

    silent = {0: OK, 1: unreached("silent"), 2: OK}
    call(lead)
    first, confirmed = next_round({0: OK, 1: OK, 2: OK})
    assert confirmed == {0: 0, 1: 0, 2: 0}, "it may have lost the lead"
    lead.broadcaster.on_renewed(lead.now_us)
    second, confirmed = next_round(silent)
    assert second > first and confirmed == {0: first, 1: 0, 2: first}
    assert lead.state.nodes[1].state is NodeState.UNREACHABLE, "it was called once more meanwhile"
    third, confirmed = next_round({0: OK, 1: OK, 2: OK})
    assert third > second and confirmed == {0: second, 1: second, 2: second}
    assert lead.state.nodes[1].state is NodeState.UP
    lead.post(HeartbeatDone(missing=(1,)))
    _, confirmed = next_round({0: OK, 1: unreached("silent"), 2: OK})
    assert confirmed == {0: third, 1: 0, 2: third}, "what was heard before it was missed is not said any more"


def test_calls_that_somebody_asks_for_are_apart_and_count_nobody_out() -> None:
    lead = lead_with_nodes()
    lead.until_sent()
    lead.take()
    lead.answer({0: OK, 1: unreached("silent"), 2: OK})
    calls = 0
    for _ in range(8):
        lead.now_us += 100_000
        lead.do(lead.broadcaster.call_soon(lead.now_us))
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
    successor = Broadcaster(lead.state, lead.satellites, seal, tree.Tuning())
    lead.broadcaster = successor
    lead.post(EpochStarted(6))
    lead.do(successor.lead(lead.now_us))
    assert all(isinstance(command.body, Heartbeat) for _, command in lead.take())
    for number in range(3):
        lead.register(number)
    prepares = [(nodes, command) for nodes, command in lead.take() if isinstance(command.body, Prepare)]
    assert sorted(node for nodes, _ in prepares for node in nodes) == [0, 1, 2]
    assert {command.epoch for _, command in prepares} == {6}


def test_what_nodes_say_of_a_failure_reaches_the_job_with_its_code() -> None:
    """By the code alone a user who is refused is told apart from a node that cannot."""
    send = Send(7, (0, 1, 2), Heartbeat(0))
    outcomes = {0: failed("no root here", USER_REFUSED), 1: failed("no memory")}
    done = effect_done(send, collect((0, 1), outcomes, OK))
    found = {node: (one.status, one.code, one.text) for one in done.outcomes for node in one.nodes}
    assert found == {
        0: ("failed", USER_REFUSED, "no root here"),
        1: ("failed", FAILED, "no memory"),
        2: ("unreached", 0, ""),
    }
