"""Children that fail: suspicion, adoption, the root's direct second look, and late signs of life."""

from __future__ import annotations

from eslurm.core.relay.messages import Ack, Leg, SendBroadcast, Suspect, Tuning
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import OK, unreached
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

FLOOR = Tuning().ack_floor_us
SILENT = unreached("no acknowledgement")


def started(relay: Relay, nodes, width: int = 2, **more) -> list[tuple[int, ...]]:
    return lists(relay.on_broadcast("p", order(nodes, width, **more), T0))


def test_a_child_that_does_not_acknowledge_is_a_suspect_and_its_children_are_adopted() -> None:
    relay = Relay([1])
    assert started(relay, range(1, 12)) == [(2, 3, 4, 5, 6), (7, 8, 9, 10, 11)]
    relay.on_ack("q", ack(7), T0 + 1000)
    assert relay.next_timer_us() == T0 + FLOOR
    actions = relay.on_timer(T0 + FLOOR)
    assert of(actions, Suspect) == [Suspect(7, 2, "no acknowledgement")]
    # The groups are those that node 2 would have made of its list.
    assert lists(actions) == [(3, 4), (5, 6)]


def test_a_refusal_is_a_suspicion_at_once() -> None:
    relay = Relay([1])
    started(relay, [1, 2, 3, 4, 5])
    actions = relay.on_refused(7, [2], "connection refused", T0 + 5)
    assert lists(actions) == [(3,)]
    actions = relay.on_ack("q", Ack(7, (4,), "busy"), T0 + 6)
    assert lists(actions) == [(5,)]
    assert of(actions, Suspect) == [Suspect(7, 4, "busy")]


def test_only_the_root_looks_again_before_a_node_is_unreached() -> None:
    inner = Relay([1])
    started(inner, [1, 2])
    inner.on_local_result(7, [1], OK, T0)
    assert replies(advance(inner, T0 + FLOOR))[-1:] == [("p", (1,), {1: OK, 2: SILENT}, True)]

    root = Relay(root=True)
    started(root, [1, 2])
    root.on_reply("q", reply([1], {1: OK}), T0)
    assert lists(advance(root, T0 + FLOOR)) == [(2,)]
    assert replies(advance(root, T0 + 2 * FLOOR))[-1:] == [("p", (1,), {1: OK, 2: SILENT}, True)]


def test_the_root_looks_again_at_what_others_could_not_reach() -> None:
    root = Relay(root=True)
    started(root, [1, 2, 3], width=1)
    actions = root.on_reply("q", reply([1], {1: OK, 2: SILENT, 3: OK}), T0)
    assert lists(actions) == [(2,)]
    # The same hearsay again does not count while the direct look is under way.
    assert root.on_reply("q", reply([1], {1: OK, 2: SILENT, 3: OK}), T0 + 1) == []
    assert replies(root.on_reply("r", reply([2], {2: OK}), T0 + 2)) == [("p", (1,), all_ok([1, 2, 3]), True)]


def test_hearsay_does_not_count_while_the_own_send_may_answer() -> None:
    relay = Relay([1])
    started(relay, [1, 2, 3, 4], width=1)
    relay.on_ack("q", ack(2), T0)
    assert lists(relay.on_link_down("q", T0 + 1)) == [(3, 4)]
    relay.on_reply("q", reply([2], {3: SILENT}, final=False), T0 + 2)
    relay.on_local_result(7, [1], OK, T0 + 3)
    actions = relay.on_reply("r", reply([3], {3: OK, 4: OK}), T0 + 4)
    assert replies(actions) == [("p", (1,), {1: OK, 2: unreached("link lost"), 3: OK, 4: OK}, True)]


def test_a_broken_link_gives_back_only_what_is_still_owed() -> None:
    relay = Relay([1])
    started(relay, [1, 2, 3, 4, 5, 6, 7], width=1)
    relay.on_reply("q", reply([2], {2: OK, 4: OK}, final=False), T0)
    actions = relay.on_link_down("q", T0 + 1)
    assert lists(actions) == [(3, 5, 6, 7)]


def test_a_living_child_on_the_way_still_relays_for_its_group() -> None:
    relay = Relay([1])
    started(relay, [1, 2, 3, 4, 5], width=1)
    relay.on_reply("q", reply([2], {2: OK, 3: OK}, final=False), T0)
    assert lists(relay.on_link_down("q", T0 + 1)) == [(3, 4, 5)]


def test_a_child_known_to_be_unreached_is_bypassed() -> None:
    relay = Relay([1])
    started(relay, [1, 2, 3, 4, 5, 6], width=1)
    relay.on_reply("q", reply([2], {2: OK, 3: SILENT}, final=False), T0)
    assert lists(relay.on_link_down("q", T0 + 1)) == [(4, 5, 6)]


def test_suspects_in_a_row_are_peeled_off_one_by_one() -> None:
    relay = Relay([1])
    started(relay, [1, 2, 3, 4, 5, 6], width=1)
    relay.on_refused(7, [2], "refused", T0)
    assert lists(relay.on_refused(7, [3], "refused", T0)) == [(4, 5, 6)]


def test_nodes_that_went_out_on_another_send_are_not_adopted() -> None:
    relay = Relay([1])
    assert started(relay, [1, 2, 3, 4], width=1) == [(2, 3, 4)]
    assert lists(relay.on_broadcast("q", order([1, 3, 4], width=1), T0)) == [(3, 4)]
    assert lists(relay.on_refused(7, [2], "refused", T0)) == []


def test_the_second_look_is_the_last_one() -> None:
    root = Relay(root=True)
    started(root, [1, 2], width=1)
    assert lists(root.on_reply("q", reply([1], {1: OK, 2: SILENT}), T0)) == [(2,)]
    late = unreached("no outcome by the deadline")
    actions = root.on_reply("r", reply([2], {2: late}), T0 + 1)
    assert lists(actions) == []
    assert replies(actions) == [("p", (1,), {1: OK, 2: late}, True)]


def test_a_child_without_progress_is_a_suspect_and_keepalives_prevent_it() -> None:
    relay = Relay([1])
    started(relay, [1, 2, 3], width=1, deadline_us=60 * SECOND)
    relay.on_ack("q", ack(2), T0)
    relay.on_reply("q", reply([2], final=False), T0 + 2 * SECOND)
    assert of(advance(relay, T0 + 5 * SECOND - 1), Suspect) == []
    actions = advance(relay, T0 + 5 * SECOND)
    assert of(actions, Suspect) == [Suspect(7, 2, "no progress")]
    assert lists(actions) == [(3,)]


def test_a_reply_that_overtakes_its_acknowledgement_counts_as_one() -> None:
    relay = Relay([1])
    started(relay, [1, 2])
    relay.on_reply("q", reply([2], final=False), T0)
    assert of(relay.on_timer(T0 + FLOOR), Suspect) == []
    assert relay.unacknowledged == 0


def test_a_late_answer_of_a_suspect_beats_unreached() -> None:
    relay = Relay([1])
    started(relay, [1, 2, 3])
    relay.on_ack("q", ack(3), T0)
    relay.on_timer(T0 + FLOOR)
    relay.on_reply("q", reply([2], {2: OK}), T0 + FLOOR + 1)
    relay.on_local_result(7, [1], OK, T0 + FLOOR + 2)
    actions = relay.on_reply("q", reply([3], {3: OK}), T0 + FLOOR + 3)
    assert replies(actions) == [("p", (1,), all_ok([1, 2, 3]), True)]


def test_a_final_reply_that_leaves_nodes_out_does_not_end_the_watch() -> None:
    relay = Relay([1])
    started(relay, [1, 2, 3], width=1)
    relay.on_reply("q", reply([2], {2: OK}, final=True), T0)
    assert lists(advance(relay, T0 + 3 * SECOND)) == [(3,)]


def test_local_nodes_of_an_adopted_list_are_started_here() -> None:
    relay = Relay([1, 3, 5])
    assert started(relay, [1, 2, 3, 4, 5, 6], width=1) == [(2, 3, 4, 5, 6)]
    actions = relay.on_refused(7, [2], "refused", T0)
    assert ran(actions) == [3]
    assert lists(actions) == [(4, 5, 6)]


def test_a_satellite_that_fails_is_taken_over() -> None:
    relay = Relay(root=True)
    relay.start("c", order([1, 2, 3]), [Leg(901, (1, 2, 3))], T0)
    actions = relay.on_timer(T0 + FLOOR)
    assert of(actions, Suspect) == [Suspect(7, 901, "no acknowledgement")]
    assert lists(actions) == [(1, 2), (3,)]
    relay.on_reply("a", reply([1], {1: OK, 2: OK}), T0 + FLOOR)
    actions = relay.on_reply("b", reply([3], {3: OK}), T0 + FLOOR)
    assert replies(actions) == [("c", (1,), all_ok([1, 2, 3]), True)]


def test_own_lag_widens_the_time_out() -> None:
    relay = Relay([1])
    started(relay, [1, 2])
    # The process slept: the acknowledgement may lie in its inbox already.
    assert of(relay.on_timer(T0 + FLOOR + SECOND), Suspect) == []
    assert relay.ack_timeout_us == FLOOR + 2 * SECOND
    relay.on_ack("q", ack(2), T0 + FLOOR + SECOND + 1)
    assert relay.unacknowledged == 0


def test_a_lag_told_by_the_loop_counts_too() -> None:
    relay = Relay([1])
    started(relay, [1, 2])
    assert of(relay.on_timer(T0 + FLOOR, lag_us=40_000), Suspect) == []
    assert of(relay.on_timer(T0 + FLOOR + 80_000), Suspect) != []


def test_slow_acknowledgements_teach_patience_and_fast_ones_forget_it() -> None:
    relay = Relay(root=True, tuning=Tuning(ack_ceiling_us=2 * SECOND))
    relay.on_broadcast("c", order(range(1, 21), width=20, deadline_us=60 * SECOND), T0)
    relay.on_ack("q", ack(*range(1, 21)), T0 + 200_000)
    assert relay.ack_timeout_us == 400_000
    relay.on_broadcast("c", order(range(1, 1001), 1000, 60 * SECOND, broadcast_id=8), T0)
    relay.on_ack("q", Ack(8, tuple(range(1, 1001))), T0 + 5 * SECOND)
    assert relay.ack_timeout_us == 2 * SECOND


def test_sends_are_paced_and_second_looks_come_last() -> None:
    relay = Relay(root=True, tuning=Tuning(max_unacknowledged=2))
    assert started(relay, range(1, 9), width=4) == [(1, 2), (3, 4)]
    assert relay.queued == 2
    # 1 and 3 are refused: their children go before the second look at them, the queue before both.
    assert lists(relay.on_refused(7, [1, 3], "refused", T0)) == [(5, 6), (7, 8)]
    assert lists(relay.on_ack("q", ack(5, 7), T0)) == [(2,), (4,)]
    # Refused nodes may be starting again: they get a moment before the second look.
    assert lists(relay.on_ack("q", ack(2, 4), T0)) == []
    assert relay.queued == 2
    assert lists(advance(relay, T0 + Tuning().recheck_delay_us)) == [(1,), (3,)]
    assert (relay.unacknowledged, relay.queued) == (2, 0)


def test_nothing_is_sent_when_no_time_is_left_for_an_answer() -> None:
    relay = Relay([1])
    assert started(relay, [1, 2], deadline_us=1) == []
    relay.on_local_result(7, [1], OK, T0)
    late = unreached("no outcome by the deadline")
    assert replies(relay.on_timer(T0 + 1)) == [("p", (1,), {1: OK, 2: late}, True)]


def test_closing_frees_every_slot() -> None:
    relay = Relay(root=True, tuning=Tuning(max_unacknowledged=1))
    started(relay, [1, 2, 3], deadline_us=FLOOR // 2)
    assert (relay.unacknowledged, relay.queued) == (1, 1)
    assert len(replies(relay.on_timer(T0 + FLOOR // 2))) == 1
    assert (relay.live, relay.unacknowledged) == (0, 0)
    fresh = relay.on_broadcast("c", order([5], broadcast_id=8), T0 + SECOND)
    assert [action.to_node for action in of(fresh, SendBroadcast)] == [5]
    assert relay.queued == 0
