"""Serving a list: acknowledge, split, do the own part, merge, answer; and copies of the same list."""

from __future__ import annotations

import pytest

from eslurm.core.relay.messages import Leg, Reply, SendAck, SendBroadcast, SendReply, Tuning
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import EMPTY, OK, Results, Row, failed, unreached
from tests.kits.relay_driving import (
    SECOND,
    T0,
    ack,
    advance,
    all_ok,
    lists,
    of,
    order,
    ran,
    replies,
    reply,
)

LATE = unreached("no outcome by the deadline")


def test_a_list_is_acknowledged_first_then_split_and_done() -> None:
    actions = Relay([1]).on_broadcast("p", order([1, 2, 3, 4, 5, 6]), T0)
    assert isinstance(actions[0], SendAck)
    assert actions[0] == SendAck("p", ack(1))
    assert ran(actions) == [1]
    assert lists(actions) == [(2, 3, 4), (5, 6)]
    sent = of(actions, SendBroadcast)
    assert [action.to_node for action in sent] == [2, 5]
    assert {action.broadcast.hop for action in sent} == {1}
    assert {action.broadcast.deadline_us for action in sent} == {9 * SECOND}


def test_order_survives_however_strange() -> None:
    actions = Relay(root=True).on_broadcast("c", order([9, 1, 8, 2, 7, 3, 6]), T0)
    assert lists(actions) == [(9, 1, 8, 2), (7, 3, 6)]


def test_answers_are_merged_and_sent_up_in_one_final_reply() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1, 2, 3, 4, 5]), T0)
    relay.on_ack("q", ack(2, 4), T0 + 1)
    assert relay.on_local_result(7, [1], OK, T0 + 2) == []
    assert relay.on_reply("q", reply([2], {2: OK, 3: failed("disk full")}), T0 + 3) == []
    actions = relay.on_reply("q", reply([4], {4: OK, 5: OK}), T0 + 4)
    assert replies(actions) == [("p", (1,), {**all_ok([1, 2, 4, 5]), 3: failed("disk full")}, True)]
    assert relay.live == 0
    relay.on_timer(T0 + SECOND)
    assert relay.remembered == 1


def test_a_chain_of_local_nodes_is_consumed_in_one_call() -> None:
    relay = Relay([1, 2, 4, 6])
    actions = relay.on_broadcast("p", order([1, 2, 3, 4, 5, 6, 7]), T0)
    # 1 -> {2 -> {3, 4}, 5 -> {6, 7}}: 2 and 4 are walked through, 3 is sent, 5 gets what is under it.
    assert sorted(ran(actions)) == [1, 2, 4]
    assert sorted(lists(actions)) == [(3,), (5, 6, 7)]


def test_an_all_local_tree_needs_no_message() -> None:
    relay = Relay(range(1, 1001))
    actions = relay.on_broadcast("p", order(range(1, 1001), width=32), T0)
    assert sorted(ran(actions)) == list(range(1, 1001))
    assert lists(actions) == []
    final = relay.on_local_result(7, range(1, 1001), OK, T0 + 1)
    assert replies(final) == [("p", (1,), all_ok(range(1, 1001)), True)]


def test_an_empty_list_is_answered_at_once() -> None:
    actions = Relay(root=True).on_broadcast("c", order([]), T0)
    assert actions == [SendReply("c", Reply(7, (), EMPTY, True))]


def test_a_repeated_number_counts_once() -> None:
    relay = Relay([1])
    assert lists(relay.on_broadcast("p", order([1, 2, 2, 1]), T0)) == [(2,)]
    relay.on_local_result(7, [1], OK, T0)
    assert replies(relay.on_reply("q", reply([2], {2: OK}), T0)) == [("p", (1,), all_ok([1, 2]), True)]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (order([2, 1]), "the node is not served here"),
        (order([1], deadline_us=0), "the deadline has passed"),
        (order([1], width=0), "tree width 0"),
        (order([1], hop=65), "too many hops"),
    ],
)
def test_a_list_that_cannot_be_served_is_refused(message, why: str) -> None:
    relay = Relay([1])
    actions = relay.on_broadcast("p", message, T0)
    assert [(a.to_source, a.ack.heads, a.ack.refused) for a in of(actions, SendAck)] == [
        ("p", message.nodes[:1], why)
    ]
    assert len(actions) == 1
    assert relay.live == 0


def test_the_table_of_live_broadcasts_is_bounded_but_known_ones_are_joined() -> None:
    relay = Relay([1, 2], tuning=Tuning(max_live=1))
    relay.on_broadcast("p", order([1]), T0)
    refused = relay.on_broadcast("p", order([1], broadcast_id=8), T0)
    assert [a.ack.refused for a in of(refused, SendAck)] == ["busy"]
    assert ran(relay.on_broadcast("q", order([2]), T0)) == [2]


def test_another_command_under_a_live_id_is_refused() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1]), T0)
    actions = relay.on_broadcast("q", order([1], command=b"other"), T0)
    assert [a.ack.refused for a in of(actions, SendAck)] == ["another command has this broadcast id"]


def test_a_second_copy_repeats_nothing_joins_shared_members_and_hands_on_new_ones() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1, 2, 3]), T0)
    actions = relay.on_broadcast("q", order([1, 2, 3, 4, 5]), T0 + 1)
    assert ran(actions) == []
    assert lists(actions) == [(4,), (5,)]
    relay.on_local_result(7, [1], OK, T0 + 2)
    for node in (2, 4, 5):
        relay.on_reply("r", reply([node], {node: OK}), T0 + 3)
    actions = relay.on_reply("r", reply([3], {3: OK}), T0 + 4)
    assert sorted(replies(actions)) == [
        ("p", (1,), all_ok([1, 2, 3]), True),
        ("q", (1,), all_ok([1, 2, 3, 4, 5]), True),
    ]


def test_a_copy_after_the_end_is_answered_from_memory() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1]), T0)
    relay.on_local_result(7, [1], failed("disk full"), T0)
    actions = relay.on_broadcast("q", order([1]), T0 + 1)
    assert ran(actions) == []
    assert replies(actions) == [("q", (1,), {1: failed("disk full")}, True)]


def test_a_copy_after_the_end_tries_unreached_nodes_again() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1, 2, 3]), T0)
    relay.on_local_result(7, [1], OK, T0)
    relay.on_reply("q", reply([2], {2: OK}), T0)
    relay.on_reply("q", reply([3], {3: unreached()}), T0)
    assert relay.live == 0
    assert lists(relay.on_broadcast("p", order([1, 2, 3]), T0 + 1)) == [(3,)]


def test_a_local_node_that_outlived_its_broadcast_is_not_started_again() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1], deadline_us=SECOND), T0)
    assert replies(relay.on_timer(T0 + SECOND)) == [("p", (1,), {1: LATE}, True)]
    assert ran(relay.on_broadcast("q", order([1]), T0 + 2 * SECOND)) == []
    actions = relay.on_local_result(7, [1], OK, T0 + 3 * SECOND)
    assert replies(actions) == [("q", (1,), {1: OK}, True)]


def test_a_result_that_comes_after_the_end_is_remembered() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1], deadline_us=SECOND), T0)
    relay.on_timer(T0 + SECOND)
    assert relay.on_local_result(7, [1], OK, T0 + 2 * SECOND) == []
    assert replies(relay.on_broadcast("q", order([1]), T0 + 3 * SECOND)) == [("q", (1,), {1: OK}, True)]


def test_each_requester_is_answered_at_its_own_deadline() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1, 2], deadline_us=500_000), T0)
    relay.on_broadcast("q", order([1, 2], deadline_us=800_000), T0)
    relay.on_ack("r", ack(2), T0)
    relay.on_local_result(7, [1], OK, T0)
    first = [entry for entry in replies(relay.on_timer(T0 + 500_000)) if entry[3]]
    assert first == [("p", (1,), {1: OK, 2: LATE}, True)]
    assert replies(relay.on_reply("r", reply([2], {2: OK}), T0 + 600_000)) == [
        ("q", (1,), all_ok([1, 2]), True)
    ]
    assert relay.live == 0
    assert replies(advance(relay, T0 + 60 * SECOND)) == []


def test_of_two_answers_of_one_node_the_failure_is_kept() -> None:
    for first, second in ((OK, failed("disk full")), (failed("disk full"), OK)):
        relay = Relay([1])
        relay.on_broadcast("p", order([1, 2]), T0)
        relay.on_reply("q", reply([2], {2: first}, final=False), T0)
        relay.on_reply("q", reply([2], {2: second}), T0)
        actions = relay.on_local_result(7, [1], OK, T0)
        assert replies(actions) == [("p", (1,), {1: OK, 2: failed("disk full")}, True)]


def test_what_others_say_of_a_node_that_runs_here_does_not_count() -> None:
    relay = Relay([1, 3])
    relay.on_broadcast("p", order([1, 2, 3], width=1), T0)
    relay.on_broadcast("q", order([3]), T0)
    relay.on_local_result(7, [1], OK, T0)
    assert relay.on_reply("q", reply([2], {2: OK, 3: unreached("no acknowledgement")}), T0) == []
    assert sorted(replies(relay.on_local_result(7, [3], OK, T0))) == [
        ("p", (1,), all_ok([1, 2, 3]), True),
        ("q", (3,), {3: OK}, True),
    ]


def test_a_requester_is_told_the_end_once_though_others_wait_on() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1, 2], deadline_us=SECOND), T0)
    relay.on_broadcast("q", order([1, 2, 3], deadline_us=2 * SECOND), T0)
    relay.on_reply("r", reply([2, 3], final=False), T0)
    ends = [entry for entry in replies(advance(relay, T0 + SECOND)) if entry[3]]
    assert [entry[0] for entry in ends] == ["p"]
    relay.on_reply("r", reply([2], {2: OK}), T0 + SECOND)
    relay.on_local_result(7, [1], OK, T0 + SECOND)
    told = replies(advance(relay, T0 + 2 * SECOND))
    assert {entry[0] for entry in told} == {"q"}


def test_a_copy_does_not_send_away_what_runs_here() -> None:
    relay = Relay([1, 3])
    relay.on_broadcast("p", order([1], width=1), T0)
    relay.on_broadcast("p", order([3], width=1), T0)
    assert lists(relay.on_broadcast("q", order([1, 2, 3], width=1), T0)) == [(2,)]


def test_a_copy_with_a_much_later_deadline_is_sent_anew() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1, 2], deadline_us=SECOND), T0)
    actions = relay.on_broadcast("q", order([1, 2], deadline_us=60 * SECOND), T0)
    assert lists(actions) == [(2,)]
    assert of(actions, SendBroadcast)[0].broadcast.deadline_us == 59 * SECOND


def test_no_circle_of_waiting_between_two_processes_that_host_for_each_other() -> None:
    # 1, 3 and 2 live here and there: we sent [2, 3, 4] away, and get [3, 4] back for our node 3.
    relay = Relay([1, 3])
    assert lists(relay.on_broadcast("p", order([1, 2, 3, 4], width=1), T0)) == [(2, 3, 4)]
    actions = relay.on_broadcast("q", order([3, 4], width=1), T0 + 1)
    assert ran(actions) == [3]
    assert lists(actions) == [(4,)]


def test_legs_go_to_relays_that_are_no_members() -> None:
    relay = Relay(root=True)
    legs = [Leg(901, (1, 2)), Leg(902, (3,))]
    sent = of(relay.start("c", order([1, 2, 3]), legs, T0), SendBroadcast)
    assert [(action.to_node, action.broadcast.nodes) for action in sent] == [(901, (1, 2)), (902, (3,))]
    relay.on_reply("s1", reply([1], {1: OK, 2: unreached("no acknowledgement")}), T0)
    actions = relay.on_reply("s2", reply([3], {3: OK}), T0)
    assert replies(actions) == [("c", (1,), {1: OK, 2: unreached("no acknowledgement"), 3: OK}, True)]


def test_results_nobody_asked_for_are_ignored() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1, 2]), T0)
    relay.on_reply("q", reply([2], all_ok(range(50, 60)), final=False), T0)
    endless = Results((Row(OK, (2,), (1 << 62,)),))
    relay.on_reply("q", Reply(7, (2,), endless), T0)
    relay.on_local_result(7, [2], OK, T0)
    relay.on_local_result(7, [1], OK, T0)
    assert relay.live == 1
    assert relay.on_local_result(99, [1], OK, T0) == []
    assert relay.on_reply("q", Reply(99, (1,)), T0) == []
    assert replies(relay.on_reply("q", reply([2], {2: OK}), T0)) == [("p", (1,), all_ok([1, 2]), True)]
