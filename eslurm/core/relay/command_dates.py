"""The dates of commands: the leader's time, moved forward where the clocks of most nodes say that it is far behind.

A command expires by the leader's time, and a node refuses it by its own clock. If the clock of the leader's host is
minutes behind, or the host has slept, each node refuses each command. Nodes answer a heartbeat that has expired in this
way with their own time (`Unhealthy`), in steps, so that answers merge. `CommandDates` owns by how much commands are dated
ahead of the leader's time because of that.

Where half of them or fewer are that far ahead, the controller gives these no new work (`NodeFault`, kind `clock`). Ends,
and orders of which the latest counts by its revision, are right whatever their date: what runs there can be managed.

Invariants: commands alone are dated ahead, `now`, time limits and the loss of nodes know nothing of it; the median of the
nodes decides, those that say nothing count as 0, so fewer than half of the nodes move nothing; at most `AHEAD_MAX_US`;
within a term it never goes back. A date further ahead lets a copy of a command be taken for longer, and nothing else: its
effect is still carried out once.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from eslurm.core.model.protocol import Command, End, Exclude, SetTime, Suspend, Unhealthy
from eslurm.core.relay.results import Results, Status

EXPIRY_TOLERANCE_US = 60_000_000
"""Tolerated difference of controllers' and nodes' clocks: a command is refused this long after its expiry."""
STEP_US = 10_000_000
AHEAD_MAX_US = 86_400_000_000
"""A clock that is off by more than a day is beyond what a time zone explains: it has to be set."""

_UNDATED = (End, Suspend, SetTime, Exclude)
_decoder = msgspec.msgpack.Decoder(Unhealthy)


def has_expired(command: Command, dated_us: int) -> bool:
    """Check whether a node whose clock says `dated_us` has to refuse the command."""
    return bool(command.expires_us) and dated_us > command.expires_us + EXPIRY_TOLERANCE_US


def is_dated(command: Command) -> bool:
    """Check whether the date of a command matters: an old end, suspension or time limit undoes nothing that came later."""
    return type(command.body) not in _UNDATED


def told_clock_us(command: Command, dated_us: int) -> int:
    """The node's time for its answer to this heartbeat; 0: none, the heartbeat is in date."""
    return dated_us - dated_us % STEP_US if has_expired(command, dated_us) else 0


class CommandDates:
    """The correction of one term of a leader. Times are those of the broadcaster's inputs."""

    __slots__ = ("ahead_us",)

    def __init__(self) -> None:
        self.ahead_us = 0

    def expires_us(self, now_us: int, deadline_us: int) -> int:
        """The date of a command that is sent now."""
        return now_us + self.ahead_us + deadline_us

    def on_answers(self, results: Results, serving: Callable[[], int], now_us: int) -> None:
        """A heartbeat came back; `serving` counts the nodes in service, whether it reached them or not."""
        said: list[tuple[int, int]] = []
        reached = 0
        for row in results.rows:
            if row.outcome.status is not Status.OK:
                continue
            count = row.count()
            reached += count
            clock_us = read_clock_us(row.outcome.payload)
            if clock_us > now_us:
                said.append((min(clock_us - now_us, AHEAD_MAX_US), count))
        left = max(reached, serving()) // 2 if said else 0
        for ahead_us, count in sorted(said, reverse=True):
            left -= count
            if left < 0:
                self.ahead_us = max(self.ahead_us, ahead_us)
                return


def clocks_ahead(results: Results, now_us: int) -> dict[int, int]:
    """Least lead over `now_us` of the clocks of nodes for which a heartbeat had expired: by node."""
    found: dict[int, int] = {}
    for row in results.rows:
        if row.outcome.status is Status.OK and row.outcome.payload:
            clock_us = read_clock_us(row.outcome.payload)
            if clock_us > now_us:
                ahead_us = min(clock_us - now_us, AHEAD_MAX_US)
                found.update((node, ahead_us) for run in row.ranges() for node in run)
    return found


def read_clock_us(payload: bytes) -> int:
    """The time in a heartbeat's answer; 0 when there is no readable one."""
    if not payload:
        return 0
    try:
        return _decoder.decode(payload).clock_us
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
