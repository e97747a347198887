"""Output of controllers: the table of `esinfo --controllers`; and `esctl takeover`, which lets another one lead."""

from __future__ import annotations

import os
import time

from escli import exits, program
from escli.api import is_away
from escli.failures import CommandFailed
from escli.tables import columns_of, render
from eslurm.compat.durations import format_duration
from eslurm.compat.errors import OptionError, nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from escli.api import Api
    from escli.options import Words

COMMAND = "esctl"
LEADER = "leader"
STANDBY = "standby"
_POLL_S = 0.02
_CALL_S = 0.5
_PATIENCE_S = 30.0


def print_table(api: Api, given: Words) -> None:
    """`esinfo --controllers`."""
    reply = _ask(api)
    if given.has("json"):
        from escli.as_json import to_json

        program.say(to_json(reply))
    else:
        program.say(table(reply, header=not given.has("noheader")).rstrip("\n"))


def table(reply: Any, *, header: bool = True) -> str:
    """One line per controller that the leader knows, itself first."""
    ordered = sorted(reply.controllers, key=lambda one: (one.role != LEADER, one.name))
    rows = [
        [
            one.name,
            one.role,
            format_duration((reply.now_us - one.since_us) // 1_000_000) if one.since_us else "N/A",
            str(one.epoch) if one.epoch else "-",
            one.endpoint or "-",
            one.build or "-",
        ]
        for one in ordered
    ]
    problems = [f"{one.name}: {one.configuration}\n" for one in ordered if one.configuration]
    columns = columns_of("CONTROLLER ROLE >FOR >EPOCH ENDPOINT BUILD")
    return render(columns, rows, header=header) + "".join(problems)


def takeover(api: Api, words: list[str], given: Words) -> int:
    """`esctl takeover [NAME]`: hand over to this standby (the first one by name), and wait until it leads."""
    program.no_more_words(words[1:])
    before = _ask(api)
    leader = _leader(before)
    to = _successor(before, words[0] if words else "")
    if to == leader.name:
        _tell(given, leader.name, leader.name, leader.epoch, leader.epoch, 0.0)
        return exits.OK
    began_s = time.monotonic()
    epoch = _hand_over(api, to, leader.epoch)
    _tell(given, leader.name, to, leader.epoch, epoch, time.monotonic() - began_s)
    return exits.OK


def standbys(api: Api) -> list[str]:
    """The controllers that stand by, by name."""
    return sorted(one.name for one in _ask(api).controllers if one.role == STANDBY)


def hand_over(api: Api, to: str) -> None:
    """Let this standby lead, and wait until it does. Raises CommandFailed."""
    _hand_over(api, to, _leader(_ask(api)).epoch)


def _hand_over(api: Api, to: str, before: int) -> int:
    """The epoch of the new leader."""
    from eslurm.v1 import controller_pb2 as pb

    api.call("Takeover", pb.TakeoverRequest(to=to), request_id=os.urandom(16))
    return _await(api, to, before)


def _ask(api: Api, timeout_s: float | None = None) -> Any:
    from escli.api import TIMEOUT_S
    from eslurm.v1 import controller_pb2 as pb

    return api.call("Controllers", pb.ControllersRequest(), timeout_s or TIMEOUT_S)


def _leader(reply: Any) -> Any:
    for one in reply.controllers:
        if one.role == LEADER:
            return one
    raise CommandFailed(exits.FAILED, "no controller says that it leads: look again in a moment")


def _successor(reply: Any, name: str) -> str:
    """The controller to lead. Named here, so that a repeated call does not hand over twice."""
    names = sorted(one.name for one in reply.controllers)
    standbys = sorted(one.name for one in reply.controllers if one.role == STANDBY)
    if name:
        if name in names:
            return name
        near = nearest(name, names)
        way_out = f"did you mean {near}?" if near else f"use one of {', '.join(names)}"
        raise OptionError("takeover", name, "is no controller that is there", way_out)
    if not standbys:
        raise CommandFailed(
            exits.FAILED,
            "no controller stands by: start one (`esctld --name c2 --listen HOST:PORT`, or `eslurm down; eslurm up "
            "--controllers 2`)",
        )
    return str(standbys[0])


def _await(api: Api, to: str, before: int) -> int:
    """Wait until a controller of a later epoch leads; its epoch. Raises CommandFailed when it is another one.

    In short calls: the patience of a long one would exceed the time of the switch.
    """
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            leader = _leader(_ask(api, _CALL_S))
        except CommandFailed as failure:
            if time.monotonic() > deadline_s:
                raise
            if not is_away(failure) and failure.code != exits.FAILED:
                raise
        else:
            if leader.epoch > before:
                break
            if time.monotonic() > deadline_s:
                raise CommandFailed(
                    exits.UNKNOWN_OUTCOME, f"{leader.name} still leads after {_PATIENCE_S:g} s: see its log"
                )
        time.sleep(_POLL_S)
    if leader.name != to:
        raise CommandFailed(
            exits.FAILED, f"{leader.name} leads now (epoch {leader.epoch}), not {to}: see its log"
        )
    return int(leader.epoch)


def _tell(given: Words, before: str, after: str, epoch_before: int, epoch: int, taken_s: float) -> None:
    if given.has("json"):
        import json

        values = {
            "from": before,
            "to": after,
            "epoch_before": epoch_before,
            "epoch": epoch,
            "seconds": round(taken_s, 3),
        }
        program.say(json.dumps(values))
    elif before == after:
        program.say(f"{after} leads already (epoch {epoch})")
    else:
        program.say(
            f"{after} leads now (epoch {epoch}), {before} did before (epoch {epoch_before}): it took {taken_s:.2f} s"
        )
