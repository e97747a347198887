"""Answers of a node in their wire form; those that recur are encoded once."""

from __future__ import annotations

import msgspec

from eslurm.core.model.protocol import Gone, Preparing, Started, Unhealthy
from eslurm.core.relay.results import OK, Outcome, Status

_encode = msgspec.msgpack.Encoder().encode

_GONE = {started: Outcome(Status.OK, payload=_encode(Gone(started))) for started in (False, True)}


def gone_outcome(started: bool) -> Outcome:
    """The outcome when nothing is left; `started`: the batch script had run here."""
    return _GONE[started]


def started_outcome(at_us: int) -> Outcome:
    """The first process exists since `at_us`."""
    return Outcome(Status.OK, payload=_encode(Started(at_us)))


def preparing_outcome(limit_s: int) -> Outcome:
    """The prolog runs, for at most `limit_s`."""
    return Outcome(Status.OK, payload=_encode(Preparing(limit_s)))


def alive_outcome(problems: tuple[str, ...], clock_us: int = 0) -> Outcome:
    """The answer to a heartbeat. Plain for a healthy node, and equal for equal problems, so that answers merge."""
    return Outcome(Status.OK, payload=_encode(Unhealthy(problems, clock_us))) if problems or clock_us else OK
