"""Shares of satellites that fail: handed on, taken over, and what the keeper of the satellites hears."""

from __future__ import annotations

import pytest

from eslurm.core.relay.messages import Ack, Leg, Reallocated, Suspect, TookOver, Tuning
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import OK, unreached
from tests.kits.relay_driving import SECOND, T0, ack, advance, all_ok, lists, of, order, replies, reply

FLOOR = Tuning().ack_floor_us
A, B, C = -1, -2, -3


class Script:
    """A keeper that names who is next from a list, and notes what it hears."""

    def __init__(self, *names: int | None) -> None:
        self._next = list(names)
        self.heard: list[tuple[object, ...]] = []

    def on_leg_done(self, to_node: int, now_us: int) -> None:
        self.heard.append(("done", to_node))

    def on_leg_failed(self, to_node: int, tries: int, why: str, now_us: int) -> int | None:
        self.heard.append(("failed", to_node, tries, why))
        return self._next.pop(0)


def begun(script: Script, nodes=(1, 2, 3, 4), **more) -> Relay:
    relay = Relay(root=True, keeper=script)
    actions = relay.start("c", order(nodes, **more), [Leg(A, tuple(nodes))], T0)
    assert [(a.to_node, a.broadcast.nodes) for a in actions if hasattr(a, "broadcast")] == [(A, tuple(nodes))]
    return relay


def test_a_share_that_is_served_is_done_once() -> None:
    script = Script()
    relay = begun(script)
    relay.on_ack("a", ack(1), T0 + 1)
    actions = relay.on_reply("a", reply([1], all_ok([1, 2, 3, 4])), T0 + 2)
    assert replies(actions) == [("c", (1,), all_ok([1, 2, 3, 4]), True)]
    assert relay.on_reply("a", reply([1], all_ok([1, 2, 3, 4])), T0 + 3) == []
    assert script.heard == [("done", A)]
    # Nobody but the controller itself knows of its broadcasts: no copy can come, so none is kept.
    assert (relay.live, relay.remembered) == (0, 0)


def test_only_what_is_owed_goes_to_the_next_satellite_in_the_arranged_order() -> None:
    script = Script(B)
    relay = begun(script, (1, 2, 3, 4, 5, 6), predicted=(1, 5))
    relay.on_ack("a", ack(1), T0)
    relay.on_reply("a", reply([1], {3: OK}, final=False), T0 + 1)
    actions = relay.on_link_down("a", T0 + 2)
    assert of(actions, Suspect) == [Suspect(7, A, "link lost")]
    assert of(actions, Reallocated) == [Reallocated(7, A, B, 5)]
    (sent,) = [a for a in actions if hasattr(a, "broadcast")]
    assert sent.to_node == B
    # The tree of six at width 2 is 2(1, 5) 3(4, 6): 3 has answered, the rest keeps its order.
    assert sent.broadcast.nodes == (2, 1, 5, 4, 6)
    assert sent.broadcast.predicted == ()
    assert script.heard == [("failed", A, 0, "link lost")]


def test_the_tries_are_counted_until_the_relay_takes_over() -> None:
    script = Script(B, C, None)
    relay = begun(script, root_width=3)
    relay.on_refused(7, [1], "connection refused", T0)
    relay.on_ack("b", Ack(7, (1,), "busy"), T0 + 1)
    actions = advance(relay, T0 + 1 + FLOOR)
    assert script.heard == [
        ("failed", A, 0, "connection refused"),
        ("failed", B, 1, "busy"),
        ("failed", C, 2, "no acknowledgement"),
    ]
    assert of(actions, TookOver) == [TookOver(7, C, 4)]
    # The first level of the own tree is that of the satellite.
    assert lists(actions) == [(1, 2), (3,), (4,)]


def test_without_a_keeper_a_failed_share_is_taken_over() -> None:
    relay = Relay(root=True)
    relay.start("c", order([1, 2, 3, 4, 5], predicted=(1,)), [Leg(A, (1, 2, 3, 4, 5))], T0)
    actions = relay.on_refused(7, [1], "connection refused", T0)
    assert of(actions, TookOver) == [TookOver(7, A, 5)]
    assert lists(actions) == [(2, 1, 3), (4, 5)]


def test_each_leg_is_told_its_own_part_and_how_to_make_its_tree() -> None:
    relay = Relay(root=True)
    message = order(
        [1, 2, 3, 4],
        grouping="balanced",
        root_width=5,
        predicted=(4, 2, 9),
        differences=True,
        missing=(1, 3, 8),
        traced=True,
    )
    actions = relay.start("c", message, [Leg(A, (1, 2)), Leg(B, (3, 4))], T0)
    first, second = (a.broadcast for a in actions if hasattr(a, "broadcast"))
    for told, nodes, predicted, missing in ((first, (1, 2), (2,), (1,)), (second, (3, 4), (4,), (3,))):
        assert (told.nodes, told.predicted, told.missing) == (nodes, predicted, missing)
        assert (told.grouping, told.root_width, told.differences, told.traced) == ("balanced", 5, True, True)
        assert told.hop == 1


def test_a_slow_satellite_is_still_believed_beside_the_next_one() -> None:
    script = Script(B)
    relay = begun(script)
    advance(relay, T0 + FLOOR)
    assert script.heard == [("failed", A, 0, "no acknowledgement")]
    relay.on_ack("b", ack(1), T0 + FLOOR + 1)
    relay.on_ack("a", ack(1), T0 + FLOOR + 2)
    # The link of the first one breaks: that says nothing of the second.
    assert relay.on_link_down("a", T0 + FLOOR + 3) == []
    actions = relay.on_reply("a", reply([1], all_ok([1, 2, 3, 4])), T0 + FLOOR + 4)
    assert replies(actions) == [("c", (1,), all_ok([1, 2, 3, 4]), True)]
    assert script.heard[1:] == [("done", B)]


def test_what_a_given_up_satellite_could_not_reach_is_left_to_the_next_one() -> None:
    relay = begun(Script(B))
    relay.on_ack("a", ack(1), T0)
    relay.on_link_down("a", T0 + 1)
    relay.on_ack("b", ack(1), T0 + 2)
    relay.on_reply("a", reply([1], {2: unreached("no acknowledgement")}, final=False), T0 + 3)
    actions = relay.on_reply("b", reply([1], all_ok([1, 2, 3, 4])), T0 + 4)
    assert replies(actions) == [("c", (1,), all_ok([1, 2, 3, 4]), True)]


def test_a_satellite_that_said_nothing_by_the_deadline_has_failed() -> None:
    script = Script(B)
    relay = begun(script, deadline_us=SECOND)
    relay.on_ack("a", ack(1), T0)
    late = unreached("no outcome by the deadline")
    assert replies(advance(relay, T0 + SECOND)) == [("c", (1,), dict.fromkeys([1, 2, 3, 4], late), True)]
    # Nobody gets the rest any more: whoever was named is told so.
    assert script.heard == [("failed", A, 0, "no answer by the deadline"), ("done", B)]


@pytest.mark.parametrize("deadline_us", [SECOND, FLOOR // 2])
def test_a_satellite_that_was_at_work_or_had_no_time_has_not_failed(deadline_us: int) -> None:
    script = Script()
    relay = begun(script, deadline_us=deadline_us)
    if deadline_us == SECOND:
        relay.on_ack("a", ack(1), T0)
        relay.on_reply("a", reply([1], {2: OK}, final=False), T0 + 2)
    advance(relay, T0 + deadline_us)
    assert relay.live == 0
    assert script.heard == [("done", A)]


def test_a_leg_for_which_no_time_was_left_ends_too() -> None:
    script = Script()
    relay = Relay(root=True, keeper=script)
    relay.start("c", order([1], deadline_us=1), [Leg(A, (1,))], T0)
    advance(relay, T0 + 1)
    assert script.heard == [("done", A)]
