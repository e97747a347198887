"""Short hands for tests that drive one relay by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from eslurm.core.relay.messages import Ack, Action, Broadcast, Reply, RunLocal, SendBroadcast, SendReply
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import OK, Outcome, from_mapping

SECOND = 1_000_000
T0 = 5 * SECOND
A = TypeVar("A")


def order(nodes: Iterable[int], width: int = 2, deadline_us: int = 10 * SECOND, **more) -> Broadcast:
    """A broadcast 7 over `nodes`."""
    return Broadcast(
        more.pop("broadcast_id", 7), tuple(nodes), width, deadline_us, "k", more.pop("command", b"c"), **more
    )


def of(actions: Sequence[Action], kind: type[A]) -> list[A]:
    """The actions of one kind."""
    return [action for action in actions if isinstance(action, kind)]


def lists(actions: Sequence[Action]) -> list[tuple[int, ...]]:
    """The sub-lists that are sent, each to its first node unless a test says otherwise."""
    return [action.broadcast.nodes for action in of(actions, SendBroadcast)]


def ran(actions: Sequence[Action]) -> list[int]:
    """The local nodes that are started."""
    return [node for action in of(actions, RunLocal) for node in action.nodes]


def replies(actions: Sequence[Action]) -> list[tuple[object, tuple[int, ...], dict[int, Outcome], bool]]:
    """The replies as (to, heads, outcomes, final)."""
    found = of(actions, SendReply)
    return [(a.to_source, a.reply.heads, a.reply.results.expand(), a.reply.final) for a in found]


def advance(relay: Relay, until_us: int) -> list[Action]:
    """Let every timer fire exactly when it is due, up to and including `until_us`."""
    actions: list[Action] = []
    while (due_us := relay.next_timer_us()) is not None and due_us <= until_us:
        actions += relay.on_timer(due_us)
    return actions


def ack(*heads: int) -> Ack:
    """An acknowledgement of broadcast 7."""
    return Ack(7, heads)


def reply(heads: Sequence[int], outcomes: dict[int, Outcome] | None = None, final: bool = True) -> Reply:
    """A reply for broadcast 7."""
    return Reply(7, tuple(heads), from_mapping(outcomes or {}), final)


def all_ok(nodes: Iterable[int]) -> dict[int, Outcome]:
    """Every node succeeded."""
    return dict.fromkeys(nodes, OK)
