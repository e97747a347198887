"""Events of a run in words, for `--trace`. Nothing here changes anything.

A line names things as people do: jobs and attempts (`job 7.2`), nodes (`cn0003`), processes (`agent3#1`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.hostlist import expand
from eslurm.core.model.hostlist import fold
from eslurm.core.model.protocol import Command, Prepare
from eslurm.core.relay import messages as tree
from eslurm.lab.sim import wire

_commands = msgspec.msgpack.Decoder(Command)

Thing: TypeAlias = tuple[str, str]
"""("job", "7") or ("node", "cn0003")."""

SHOWN_MAX = 400
OBJECTS_MAX = 6
FACTS_KEPT = 5

_ATTEMPT = re.compile(r"\bjob_id=(\d+), attempt=(\d+)")
_STEP = re.compile(r"\b(\d+)\.(\d+)\.(-?\d+)\.(\d+)\b")
_NODE = re.compile(r"\b(?:node|number)(?:=| )(\d+)\b")
_NODES = re.compile(r"\bnodes=\((\d+(?:, \d+)*),?\)")
_PAIR = re.compile(r"\battempt \((\d+), (\d+)\)")
_JOB = re.compile(r"\bjob(?:_id=| )(\d+)\b")
_JOBS = re.compile(r"\bjob_ids=\(([\d, ]*)\)")
_NAMES = re.compile(r"\bcn(?:\d{4,}|\[[\d,-]+\])")


def node_name(number: int) -> str:
    """The name behind a number of the relay: a node's, or (negative) a satellite's."""
    return f"cn{number:04}" if number >= 0 else f"satellite{-1 - number}"


def describe(message: object) -> str:
    """One message in a line."""
    match message:
        case tree.Broadcast():
            return f"{_command(message.command)} #{_short(message.broadcast_id)} on {_nodes(message.nodes)}"
        case tree.Ack():
            refused = f" refused: {message.refused}" if message.refused else ""
            return f"ack #{_short(message.broadcast_id)} {_nodes(message.heads)}{refused}"
        case tree.Reply():
            rows = "; ".join(
                f"{row.outcome.status.name.lower()} {row.outcome.text or row.outcome.payload!r} "
                f"x{row.count()} from {node_name(row.starts[0])}"
                for row in message.results.rows
            )
            final = "final " if message.final else ""
            return f"{final}reply #{_short(message.broadcast_id)} {_nodes(message.heads)} {rows}"
        case wire.Reports():
            return "reports " + ", ".join(f"{report.seq}: {report.body}" for report in message.reports)
        case wire.Acks():
            return "acks " + ", ".join(
                f"{ack.process} {ack.seqs} {ack.registrations}" for ack in message.acks
            )
        case wire.Call():
            return f"call {int.from_bytes(message.request_id, 'big')} {message.message}"
        case wire.Result():
            return f"result {int.from_bytes(message.request_id, 'big')} {message.answer}"
        case _:
            return repr(message)


def _short(broadcast_id: tree.BroadcastId) -> str:
    assert isinstance(broadcast_id, int)
    return f"{broadcast_id >> 40}.{broadcast_id & 0xFFFFFFFFFF}"


def _nodes(nodes: Iterable[int]) -> str:
    return fold(list(map(node_name, nodes)))


def _command(sealed: bytes) -> str:
    command = _commands.decode(sealed)
    body = command.body
    if isinstance(body, Prepare):
        launch = body.launch
        said = f"Prepare(job {launch.job_id}.{launch.attempt}, nodes {launch.node_names}, start={body.start})"
    else:
        said = repr(body)
    return f"{said} epoch {command.epoch} revision {command.revision} incarnations {command.incarnations}"


# ---- lines ----


def named(text: str) -> str:
    """A line with names for numbers, however it was written."""
    text = _ATTEMPT.sub(r"job \1.\2", text)
    text = _PAIR.sub(r"job \1.\2", text)
    text = _STEP.sub(_step, text)
    text = _NODES.sub(lambda found: f"nodes={_nodes(map(int, found[1].split(', ')))}", text)
    return _NODE.sub(lambda found: node_name(int(found[1])), text)


def _step(found: re.Match[str]) -> str:
    job, attempt, step, node = found.groups()
    return f"job {job}.{attempt} {'script' if step == '-1' else f'step {step}'} on {node_name(int(node))}"


def things_in(line: str) -> set[Thing]:
    """The jobs and nodes that a line with names speaks of."""
    things = {("job", found) for found in _JOB.findall(line)}
    for found in _JOBS.findall(line):
        things.update(("job", number.strip()) for number in found.split(",") if number.strip())
    for found in _NAMES.findall(line):
        try:
            things.update(("node", name) for name in expand(found))
        except OptionError:
            # Cut in the middle, or no list after all.
            continue
    return things


def parse_only(text: str) -> frozenset[Thing]:
    """The things in `--only`: `job=7,node=cn0003`. Raises OptionError."""
    things: set[Thing] = set()
    for part in re.split(r",(?![^\[]*\])", text):
        kind, _, name = part.partition("=")
        if kind == "job" and whole_number(name) > 0:
            things.add(("job", str(whole_number(name))))
        elif kind == "node" and name:
            things.update(("node", one) for one in expand(name, "--only"))
        else:
            raise OptionError("--only", text, f"has '{part[:24]}'", "use e.g. --only job=7,node=cn0003")
    return frozenset(things)


class TraceWriter:
    """Tells a run line by line, and at its end what is known of what failed.

    With `only`, lines about other jobs and nodes are left out; faults are always told. Usable as a `Trace`.
    """

    def __init__(self, say: Callable[[str], None], only: frozenset[Thing] = frozenset()) -> None:
        self._say = say
        self._only = only
        self._facts: dict[Thing, deque[str]] = {}

    def __call__(self, at_us: int, text: str) -> None:
        """An event."""
        line = named(text)
        is_fact = text.startswith("fact ")
        if not (is_fact or self._only):
            self._tell(at_us, line)
            return
        things = things_in(line)
        if is_fact:
            for thing in things:
                self._facts.setdefault(thing, deque(maxlen=FACTS_KEPT)).append(_line(at_us, line))
        if not self._only or things & self._only or text.startswith("FAULT "):
            self._tell(at_us, line)

    def end(self, what: str) -> None:
        """The run failed: what was violated, and the last facts of what the violation names."""
        violation = named(what)
        self._say(f"VIOLATED {violation[:SHOWN_MAX]}")
        for thing in sorted(things_in(violation))[:OBJECTS_MAX]:
            for fact in self._facts.get(thing, ()):
                self._say(f"  {thing[0]} {thing[1]}: {fact}")

    def _tell(self, at_us: int, line: str) -> None:
        self._say(_line(at_us, line))


def _line(at_us: int, text: str) -> str:
    more = f"... ({len(text) - SHOWN_MAX} more characters)" if len(text) > SHOWN_MAX else ""
    return f"{at_us / 1e6:12.6f} {text[:SHOWN_MAX]}{more}"
