"""The root of a tree: it arranges its list, cuts its own first level, and looks twice at suspects."""

from __future__ import annotations

import pytest

from eslurm.core.relay.construct import TreeShape, arrange
from eslurm.core.relay.grouping import BALANCED
from eslurm.core.relay.messages import SendAck, SendBroadcast, Tuning
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import OK, unreached
from tests.kits.relay_driving import SECOND, T0, ack, advance, lists, of, order, replies, reply

DELAY = Tuning().recheck_delay_us
FLOOR = Tuning().ack_floor_us


def test_predicted_nodes_go_to_leaves_and_the_request_keeps_its_head() -> None:
    root = Relay(root=True)
    actions = root.on_broadcast("c", order([1, 2, 3, 4, 5, 6], predicted=(1, 99)), T0)
    assert [a.ack.heads for a in of(actions, SendAck)] == [(1,)]
    assert lists(actions) == [(2, 1, 3), (4, 5, 6)]
    root.on_reply("q", reply([2], {1: OK, 2: OK, 3: OK}), T0)
    actions = root.on_reply("q", reply([4], {4: OK, 5: OK, 6: OK}), T0)
    assert [(to, heads) for to, heads, _, _ in replies(actions)] == [("c", (1,))]


def test_what_concerns_the_root_only_does_not_travel_further() -> None:
    message = order(
        range(1, 30),
        grouping="balanced",
        root_width=3,
        predicted=(1,),
        differences=True,
        missing=(2,),
        traced=True,
    )
    for action in of(Relay(root=True).on_broadcast("c", message, T0), SendBroadcast):
        below = action.broadcast
        assert (below.grouping, below.width, below.traced, below.hop) == ("balanced", 2, True, 1)
        assert (below.root_width, below.predicted, below.differences, below.missing) == (0, (), False, ())


def test_the_first_level_has_the_roots_width_and_the_rest_the_other() -> None:
    shape = TreeShape(2, 5, BALANCED)
    nodes = range(1, 41)
    message = order(nodes, grouping="balanced", root_width=5, predicted=(1, 2, 3))
    actions = Relay(root=True).on_broadcast("c", message, T0)
    assert lists(actions) == [tuple(g) for g in shape.split_root(arrange(nodes, (1, 2, 3), shape))]


def test_a_suspects_list_is_cut_by_the_width_below_the_root() -> None:
    root = Relay(root=True)
    actions = root.on_broadcast("c", order(range(1, 16), root_width=3), T0)
    assert lists(actions)[0] == (1, 2, 3, 4, 5)
    actions = root.on_refused(7, [1], "refused", T0)
    assert lists(actions) == [(2, 3), (4, 5)]


@pytest.mark.parametrize("root", [True, False])
def test_every_hop_cuts_by_the_broadcasts_grouping(root: bool) -> None:
    relay = Relay(() if root else [0], root=root)
    nodes = list(range(1, 12)) if root else list(range(12))
    actions = relay.on_broadcast("p", order(nodes, width=3, grouping="balanced"), T0)
    assert lists(actions) == [tuple(group) for group in BALANCED.split(range(1, 12), 3)]


def test_an_unknown_grouping_is_refused_with_the_known_ones() -> None:
    (refusal,) = of(Relay([1]).on_broadcast("p", order([1], grouping="sorted"), T0), SendAck)
    assert "'sorted' is unknown: use balanced or positional" in refusal.ack.refused


def test_a_node_that_was_refused_gets_a_moment_before_the_second_look() -> None:
    root = Relay(root=True)
    root.on_broadcast("c", order([1]), T0)
    assert lists(root.on_refused(7, [1], "connection refused", T0)) == []
    assert root.next_timer_us() == T0 + DELAY
    assert lists(advance(root, T0 + DELAY)) == [(1,)]
    actions = root.on_refused(7, [1], "connection refused", T0 + DELAY + 1)
    assert replies(actions) == [("c", (1,), {1: unreached("connection refused")}, True)]


def test_a_silent_node_had_its_time_already() -> None:
    root = Relay(root=True)
    root.on_broadcast("c", order([1]), T0)
    assert lists(advance(root, T0 + FLOOR)) == [(1,)]


def test_the_moment_is_short_when_little_time_is_left() -> None:
    root = Relay(root=True)
    root.on_broadcast("c", order([1], deadline_us=40_000), T0)
    root.on_refused(7, [1], "connection refused", T0)
    assert lists(advance(root, T0 + 10_000)) == [(1,)]


def test_a_postponed_look_is_forgotten_with_its_broadcast() -> None:
    root = Relay(root=True)
    root.on_broadcast("c", order([1, 2]), T0)
    root.on_ack("q", ack(2), T0)
    root.on_refused(7, [1], "connection refused", T0)
    # Others know better: the answer is complete before the second look.
    actions = root.on_reply("q", reply([2], {1: OK, 2: OK}), T0 + 1)
    assert replies(actions)[0][3]
    assert (root.queued, root.live) == (1, 0)
    assert lists(advance(root, T0 + SECOND)) == []
    assert root.queued == 0


def test_nodes_that_were_missing_before_need_no_second_look() -> None:
    root = Relay(root=True)
    root.on_broadcast("c", order([1, 2], missing=(1,)), T0)
    actions = root.on_refused(7, [1, 2], "connection refused", T0)
    assert lists([*actions, *advance(root, T0 + DELAY)]) == [(2,)]
