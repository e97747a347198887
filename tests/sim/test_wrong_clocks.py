"""Nodes whose clocks are ahead of the controller's: a few of them are taken out, most of them move the dates of commands."""

from __future__ import annotations

import msgspec

from eslurm.core.agent.outcomes import alive_outcome
from eslurm.core.dispatch.heartbeats import IN_DATE_CALLS
from eslurm.core.model.protocol import Command
from eslurm.core.relay.command_dates import has_expired
from eslurm.core.relay.results import OK, Outcome
from eslurm.core.state.faults import has_wrong_clock
from tests.sim.lead import SECOND, Lead, call, lead_with_satellites


def called(lead: Lead) -> Command:
    """The next heartbeat to all three nodes."""
    while not (wide := [one for one in call(lead) if len(one.nodes) == 3]):
        pass
    return msgspec.msgpack.decode(wide[-1].command, type=Command)


def answer(lead: Lead, heartbeat: Command, *ahead_s: int) -> list[int]:
    """The nodes answer, with clocks that are so far ahead; which nodes are taken out then."""
    said: dict[int, Outcome] = {}
    for number, by_s in enumerate(ahead_s):
        clock_us = lead.now_us + by_s * SECOND
        said[number] = alive_outcome((), clock_us) if has_expired(heartbeat, clock_us) else OK
    lead.answer(said)
    return [number for number, node in lead.state.nodes.items() if has_wrong_clock(node)]


def test_a_few_are_taken_out_until_their_clocks_are_right_and_most_of_them_move_the_dates() -> None:
    lead = lead_with_satellites(1, 3, heartbeat_s=60.0)
    assert answer(lead, called(lead), 66, 0, 0) == [0], "it would refuse whatever is answered within 5 s"
    assert lead.broadcaster.dating.ahead_us == 0
    for _ in range(IN_DATE_CALLS - 1):
        assert answer(lead, called(lead), 64, 0, 0) == [0], "it may be at the very limit"
    assert answer(lead, called(lead), 64, 0, 0) == []
    assert answer(lead, called(lead), 300, 300, 0) == []
    assert lead.broadcaster.dating.ahead_us == 300 * SECOND
    assert answer(lead, called(lead), 300, 300, 0) == []
    assert answer(lead, called(lead), 300, 370, 0) == [1]


def test_a_clock_at_the_tolerance_does_not_come_and_go() -> None:
    lead = lead_with_satellites(1, 3, heartbeat_s=60.0)
    assert answer(lead, called(lead), 66, 0, 0) == [0]
    since = lead.state.revision
    for by_s in (64, 66) * IN_DATE_CALLS:
        assert answer(lead, called(lead), by_s, 0, 0) == [0]
    assert lead.state.revision == since, "no fact in 12 heartbeats"


def test_what_was_said_to_a_heartbeat_of_another_date_counts_no_more() -> None:
    lead = lead_with_satellites(1, 3, heartbeat_s=60.0)
    heartbeat = called(lead)
    lead.broadcaster.dating.ahead_us = 300 * SECOND
    assert answer(lead, heartbeat, 290, 0, 0) == []
