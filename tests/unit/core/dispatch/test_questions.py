"""Questions to nodes: one command, one broadcast, and one set of answers for the one that has asked."""

from __future__ import annotations

from typing import Any

import msgspec

from eslurm.core.dispatch.broadcaster import DEADLINE_US, Deliver, Gathered
from eslurm.core.model.protocol import Command, Measure
from eslurm.core.relay import messages as tree
from eslurm.core.relay.results import Outcome, Results, Status, from_mapping
from tests.sim.lead import Lead

QUESTION = Measure(7, 1, (-1,))
_commands = msgspec.msgpack.Decoder(Command)


class Asking(Lead):
    def __init__(self, nodes: int) -> None:
        self.gathered: dict[int, Results] = {}
        super().__init__(nodes)
        for number in range(nodes):
            self.register(number)
        self.sent.clear()

    def do(self, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, Deliver) and isinstance(action.message, Gathered):
                self.gathered[action.message.question] = action.message.results
            else:
                super().do([action])

    def ask(self, *nodes: int) -> int:
        number, actions = self.broadcaster.ask(nodes, QUESTION, self.now_us)
        self.do(actions)
        return number

    def answer(self, number: int, outcomes: dict[int, Outcome]) -> None:
        [sent] = [one for one in self.sent if one.broadcast.broadcast_id == number]
        ack = tree.Ack(number, (sent.to_node,))
        self.do(self.broadcaster.on_ack("peer", ack, self.now_us))
        reply = tree.Reply(number, (sent.to_node,), from_mapping(outcomes), final=True)
        self.do(self.broadcaster.on_reply("peer", reply, self.now_us))


def test_an_answer_is_for_the_one_that_has_asked() -> None:
    lead = Asking(2)
    revision = lead.state.revision
    first, second = lead.ask(1), lead.ask(0)
    assert first != second
    [command] = [
        _commands.decode(one.broadcast.command) for one in lead.sent if one.broadcast.broadcast_id == first
    ]
    assert (command.body, command.revision, command.nodes) == (QUESTION, 0, ((1, 1),))
    assert command.incarnations == (lead.state.nodes[1].incarnation,)
    lead.answer(second, {0: Outcome(Status.OK, payload=b"x")})
    assert {number: results.expand() for number, results in lead.gathered.items()} == {
        second: {0: Outcome(Status.OK, payload=b"x")}
    }
    assert lead.state.revision == revision, "a question changes nothing"


def test_silence_ends_with_the_deadline() -> None:
    lead = Asking(1)
    number = lead.ask(0)
    lead.pass_time(DEADLINE_US["measure"] / 1e6)
    assert lead.gathered[number].nodes(Status.UNREACHED) == [0]
    # It is not sent again, as an effect would be.
    lead.sent.clear()
    lead.pass_time(60)
    assert not [one for one in lead.sent if one.broadcast.kind == "measure"]
