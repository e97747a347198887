"""Replies that name the surprises only, and how their receiver fills in the rest."""

from __future__ import annotations

from itertools import permutations

import pytest

from eslurm.core.relay.differences import STILL_MISSING
from eslurm.core.relay.messages import Leg, Reply, SendReply
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import OK, Outcome, Status, failed, from_mapping, unreached
from tests.kits.relay_driving import SECOND, T0, ack, advance, all_ok, of, order, replies, reply

GONE = unreached("no acknowledgement")
WORDS = Outcome(Status.OK, payload=b"words")


def satellite(nodes, missing, hop: int = 1, **more) -> Relay:
    relay = Relay(root=True)
    message = order(nodes, width=50, hop=hop, differences=True, missing=tuple(missing), **more)
    relay.on_broadcast("c", message, T0)
    return relay


def expected(heads, surprises=(), final: bool = True) -> Reply:
    return Reply(7, tuple(heads), from_mapping(dict(surprises)), final, True)


def test_a_satellite_tells_surprises_only() -> None:
    relay = satellite([1, 2, 3, 4, 5, 6], missing=[2, 3])
    relay.on_ack("q", ack(1, 2, 3, 4, 5, 6), T0)
    for node, outcome in {1: OK, 2: GONE, 3: OK, 4: failed("no"), 5: GONE}.items():
        relay.on_reply("q", reply([node], {node: outcome}), T0 + 1)
    # The second look at 5.
    relay.on_reply("q", reply([5], {5: GONE}), T0 + 2)
    actions = relay.on_reply("q", reply([6], {6: WORDS}), T0 + 3)
    (final,) = [a.reply for a in of(actions, SendReply) if a.reply.final]
    assert final.as_expected
    assert final.results.expand() == {3: OK, 4: failed("no"), 5: GONE, 6: WORDS}


def test_the_own_caller_is_told_everything() -> None:
    relay = satellite([1, 2], missing=[], hop=0)
    actions = relay.on_reply("q", reply([1], all_ok([1])), T0)
    actions += relay.on_reply("q", reply([2], all_ok([2])), T0)
    assert replies(actions) == [("c", (1,), all_ok([1, 2]), True)]


def test_news_that_are_none_are_no_reason_for_a_partial_reply() -> None:
    relay = satellite([1, 2, 3], missing=[])
    relay.on_ack("q", ack(1, 2, 3), T0)
    relay.on_reply("q", reply([1], {1: OK}), T0)
    assert replies(advance(relay, T0 + SECOND // 2)) == []
    relay.on_reply("q", reply([2], {2: failed("no")}), T0 + SECOND // 2)
    assert replies(advance(relay, T0 + SECOND - 1)) == [("c", (1,), {2: failed("no")}, False)]
    # Signs of life go on.
    assert replies(advance(relay, T0 + 2 * SECOND))[0] == ("c", (1,), {}, False)


def test_one_request_that_wants_all_makes_the_shared_reply_complete() -> None:
    relay = satellite([1], missing=[])
    relay.on_broadcast("c", order([2], width=50, hop=1), T0)
    actions = relay.on_reply("q", Reply(7, (1, 2), from_mapping(all_ok([1, 2])), True), T0)
    assert replies(actions) == [("c", (1, 2), all_ok([1, 2]), True)]
    assert not of(actions, SendReply)[0].reply.as_expected


def controller(nodes=(1, 2, 3, 4), missing=(2,), legs=None) -> Relay:
    relay = Relay(root=True)
    message = order(nodes, differences=True, missing=missing)
    relay.start("c", message, legs or [Leg(-1, tuple(nodes))], T0)
    return relay


def test_the_receiver_fills_in_what_was_left_out() -> None:
    relay = controller()
    relay.on_ack("a", ack(1), T0)
    actions = relay.on_reply("a", expected([1], {3: failed("no")}), T0 + 1)
    assert replies(actions) == [("c", (1,), {1: OK, 2: STILL_MISSING, 3: failed("no"), 4: OK}, True)]


def test_only_a_final_reply_is_filled_in_and_only_for_its_own_leg() -> None:
    relay = controller(legs=[Leg(-1, (1, 2)), Leg(-2, (3, 4))])
    relay.on_reply("a", expected([1], {2: OK}, final=False), T0)
    assert replies(relay.on_reply("b", expected([3]), T0 + 1)) == []
    actions = relay.on_reply("a", expected([1], {2: OK}), T0 + 2)
    assert replies(actions) == [("c", (1,), all_ok([1, 2, 3, 4]), True)]


def test_a_list_that_no_satellite_has_is_not_filled_in() -> None:
    relay = Relay(root=True)
    relay.on_broadcast("c", order([1, 2], width=1), T0)
    assert replies(relay.on_reply("q", expected([1], {1: OK}), T0)) == []


NEWS = [
    Reply(7, (1,), from_mapping({3: failed("no")}), False, True),
    Reply(7, (1,), from_mapping({2: OK}), False, True),
    Reply(7, (1,), from_mapping({2: OK, 3: failed("no"), 4: GONE}), True, True),
    Reply(7, (1,), from_mapping({2: OK, 3: failed("no"), 4: GONE}), True, True),
]


@pytest.mark.parametrize("turn", list(permutations(range(4))))
def test_order_and_copies_change_nothing(turn: tuple[int, ...]) -> None:
    relay = controller(nodes=(1, 2, 3, 4, 5))
    found = []
    for index in turn:
        found += replies(relay.on_reply("a", NEWS[index], T0 + 1))
    assert found == [("c", (1,), {1: OK, 2: OK, 3: failed("no"), 4: GONE, 5: OK}, True)]


def test_the_next_satellite_speaks_for_its_own_list_only() -> None:
    class Next:
        def on_leg_done(self, to_node: int, now_us: int) -> None:
            pass

        def on_leg_failed(self, to_node: int, tries: int, why: str, now_us: int) -> int | None:
            return -2

    relay = Relay(root=True, keeper=Next())
    relay.start("c", order([1, 2, 3], differences=True), [Leg(-1, (1, 2, 3))], T0)
    relay.on_ack("a", ack(1), T0)
    # The first one has looked for 2 in vain before it broke down.
    relay.on_reply("a", Reply(7, (1,), from_mapping({2: GONE}), False, True), T0 + 1)
    relay.on_link_down("a", T0 + 2)
    relay.on_ack("b", ack(1), T0 + 3)
    actions = relay.on_reply("b", expected([1]), T0 + 4)
    assert replies(actions) == [("c", (1,), {1: OK, 2: GONE, 3: OK}, True)]
