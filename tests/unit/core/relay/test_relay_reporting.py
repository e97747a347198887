"""Messages up the tree, and their times: partial results, signs of life, shared replies; bounded memory; stopped nodes."""

from __future__ import annotations

import pytest

from eslurm.core.relay.messages import Tuning
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import OK, Outcome, Status, failed, unreached
from tests.kits.relay_driving import SECOND, T0, ack, all_ok, lists, order, ran, replies, reply

TUNING = Tuning()


def test_partial_results_go_up_together_after_a_while() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1, 2, 3, 4]), T0)
    relay.on_ack("q", ack(2, 4), T0)
    assert relay.on_local_result(7, [1], OK, T0 + 10) == []
    assert relay.on_reply("q", reply([2], {2: OK}, final=False), T0 + 20) == []
    actions = relay.on_timer(T0 + 10 + TUNING.flush_us)
    assert replies(actions) == [("p", (1,), all_ok([1, 2]), False)]
    # The final reply holds everything again, so that a lost partial one loses nothing.
    relay.on_reply("q", reply([2], {3: OK}), T0 + SECOND)
    actions = relay.on_reply("q", reply([4], {4: OK}), T0 + SECOND)
    assert replies(actions) == [("p", (1,), all_ok([1, 2, 3, 4]), True)]


def test_work_without_news_is_reported_as_a_sign_of_life() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1]), T0)
    for second in (1, 2, 3):
        due_us = relay.next_timer_us()
        assert due_us == T0 + second * TUNING.keepalive_us
        assert replies(relay.on_timer(due_us)) == [("p", (1,), {}, False)]


def test_finished_lists_of_one_requester_share_a_reply() -> None:
    relay = Relay([1, 2, 3])
    for node in (1, 2, 3):
        relay.on_broadcast("p", order([node]), T0)
    assert relay.on_local_result(7, [1], OK, T0 + 100) == []
    assert relay.on_local_result(7, [2], OK, T0 + 200) == []
    actions = relay.on_timer(T0 + 100 + TUNING.gather_us)
    assert replies(actions) == [("p", (1, 2), all_ok([1, 2]), True)]
    actions = relay.on_local_result(7, [3], OK, T0 + SECOND // 2)
    assert replies(actions) == [("p", (3,), {3: OK}, True)]


def test_thousands_of_lists_finish_in_one_reply() -> None:
    relay = Relay(range(2000))
    for node in range(2000):
        relay.on_broadcast("p", order([node]), T0)
    actions = relay.on_local_result(7, range(2000), OK, T0)
    assert replies(actions) == [("p", tuple(range(2000)), all_ok(range(2000)), True)]


def test_the_same_list_asked_again_is_answered_again() -> None:
    relay = Relay([1, 2])
    relay.on_broadcast("p", order([1]), T0)
    relay.on_broadcast("p", order([2]), T0)
    relay.on_local_result(7, [1], OK, T0)
    assert len(replies(relay.on_timer(T0 + TUNING.gather_us))) == 1
    relay.on_broadcast("p", order([1]), T0 + SECOND)
    assert replies(relay.on_timer(T0 + SECOND + TUNING.gather_us))[0][1] == (1,)


def test_a_list_asked_again_with_new_members_is_not_reported_before_they_are_known() -> None:
    relay = Relay([1, 9])
    relay.on_broadcast("p", order([9]), T0)
    relay.on_broadcast("p", order([1]), T0)
    relay.on_local_result(7, [1], OK, T0)
    relay.on_broadcast("p", order([1, 2]), T0 + 1)
    assert replies(relay.on_timer(T0 + TUNING.gather_us)) == []
    relay.on_local_result(7, [9], OK, T0 + SECOND // 2)
    actions = relay.on_reply("q", reply([2], {2: OK}), T0 + SECOND // 2)
    assert replies(actions) == [("p", (9, 1), all_ok([1, 2, 9]), True)]


def test_nothing_is_told_to_a_requester_whose_link_broke_but_the_work_goes_on() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1, 2]), T0)
    relay.on_link_down("p", T0)
    relay.on_broadcast("q", order([1, 2]), T0 + 1)
    relay.on_local_result(7, [1], OK, T0 + 2)
    actions = relay.on_reply("r", reply([2], {2: OK}), T0 + 3)
    assert replies(actions) == [("q", (1,), all_ok([1, 2]), True)]


def test_a_requester_that_comes_back_is_heard_again() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1]), T0)
    relay.on_link_down("p", T0)
    relay.on_broadcast("p", order([1]), T0 + 1)
    assert replies(relay.on_local_result(7, [1], OK, T0 + 2)) == [("p", (1,), {1: OK}, True)]


def test_a_stopped_node_answers_nothing_and_owes_nothing() -> None:
    relay = Relay([1, 2])
    relay.on_broadcast("p", order([1, 2]), T0)
    relay.on_broadcast("q", order([2]), T0)
    relay.on_local_result(7, [1], OK, T0)
    actions = relay.remove_local([2], T0 + 1)
    assert replies(actions) == [("p", (1,), {1: OK, 2: unreached("the node stopped")}, True)]
    assert [a.ack.refused for a in relay.on_broadcast("q", order([2]), T0 + 2)] != [""]
    relay.add_local([2])
    assert ran(relay.on_broadcast("q", order([2]), T0 + 3)) == []


def test_lists_of_stopped_nodes_are_left_out_of_a_shared_reply() -> None:
    relay = Relay([1, 2])
    relay.on_broadcast("p", order([1]), T0)
    relay.on_broadcast("p", order([2]), T0)
    relay.remove_local([2], T0)
    assert replies(relay.on_local_result(7, [1], OK, T0)) == [("p", (1,), {1: OK}, True)]


def test_payloads_come_up_untouched() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1, 2]), T0)
    relay.on_local_result(7, [1], Outcome(Status.OK, payload=b"one"), T0)
    actions = relay.on_reply("q", reply([2], {2: Outcome(Status.OK, payload=b"two")}), T0)
    outcomes = replies(actions)[0][2]
    assert {node: outcome.payload for node, outcome in outcomes.items()} == {1: b"one", 2: b"two"}


def finish(relay: Relay, broadcast_id: int, now_us: int, text: str = "x") -> None:
    relay.on_broadcast("p", order([1], broadcast_id=broadcast_id), now_us)
    relay.on_local_result(broadcast_id, [1], failed(text), now_us)


def test_memory_is_bounded_in_age() -> None:
    relay = Relay([1], tuning=Tuning(remember_us=5 * SECOND, linger_us=0))
    finish(relay, 7, T0)
    assert relay.next_timer_us() == T0 + 5 * SECOND
    relay.on_timer(T0 + 5 * SECOND)
    assert relay.remembered == 0
    assert relay.next_timer_us() is None


@pytest.mark.parametrize(
    "tuning", [Tuning(max_remembered=3, linger_us=0), Tuning(max_remembered_bytes=5000, linger_us=0)]
)
def test_memory_is_bounded_in_size_and_loses_the_oldest(tuning: Tuning) -> None:
    relay = Relay([1], tuning=tuning)
    for broadcast_id in range(10, 20):
        finish(relay, broadcast_id, T0, "x" * 1000)
    assert relay.remembered == 3
    assert ran(relay.on_broadcast("q", order([1], broadcast_id=19), T0)) == []
    assert ran(relay.on_broadcast("q", order([1], broadcast_id=10), T0)) == [1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"keepalive_us": 2_000_000},
        {"ack_floor_us": 0},
        {"ack_floor_us": 9_000_000},
        {"max_live": 0},
    ],
)
def test_a_tuning_that_contradicts_itself_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Tuning(**wrong)


def test_an_answered_broadcast_is_kept_at_hand_for_its_next_list() -> None:
    relay = Relay([1, 2], tuning=Tuning(linger_us=SECOND))
    finish(relay, 7, T0)
    assert (relay.live, relay.remembered) == (0, 0)
    assert ran(relay.on_broadcast("q", order([2]), T0 + 1)) == [2]
    assert relay.live == 1
    relay.on_local_result(7, [2], OK, T0 + 2)
    relay.on_timer(T0 + 1 + SECOND)
    assert relay.remembered == 0
    relay.on_timer(T0 + 2 + SECOND)
    assert relay.remembered == 1
    assert ran(relay.on_broadcast("r", order([1]), T0 + 2 * SECOND)) == []


def test_what_is_kept_at_hand_makes_room_for_new_broadcasts() -> None:
    relay = Relay([1], tuning=Tuning(max_live=2, linger_us=SECOND))
    for broadcast_id in range(7, 12):
        finish(relay, broadcast_id, T0)
    assert relay.live == 0
    assert relay.remembered == 3
    assert ran(relay.on_broadcast("q", order([1], broadcast_id=7), T0)) == []


def test_a_node_that_was_not_reached_is_tried_again_by_the_next_list() -> None:
    relay = Relay([1], tuning=Tuning(linger_us=SECOND))
    relay.on_broadcast("p", order([1, 2]), T0)
    relay.on_local_result(7, [1], OK, T0)
    relay.on_refused(7, [2], "connection refused", T0)
    assert relay.live == 0
    assert lists(relay.on_broadcast("q", order([1, 2]), T0 + 1)) == [(2,)]
