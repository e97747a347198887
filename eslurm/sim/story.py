"""Events of a run in words, for `--trace`. Nothing here changes anything."""

from __future__ import annotations

import msgspec

from eslurm.core.tree import messages as tree
from eslurm.core.wire import Command, Prepare
from eslurm.sim import wire

_commands = msgspec.msgpack.Decoder(Command)
NODES_SHOWN = 6


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
                f"x{row.count()} from {row.starts[0]}"
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


def _nodes(nodes: tuple[int, ...]) -> str:
    more = f" and {len(nodes) - NODES_SHOWN} more" if len(nodes) > NODES_SHOWN else ""
    return f"{list(nodes[:NODES_SHOWN])}{more}"


def _command(sealed: bytes) -> str:
    command = _commands.decode(sealed)
    body = command.body
    if isinstance(body, Prepare):
        launch = body.launch
        said = f"Prepare(job {launch.job_id}.{launch.attempt}, nodes {launch.node_names}, start={body.start})"
    else:
        said = repr(body)
    return f"{said} epoch {command.epoch} revision {command.revision} incarnations {command.incarnations}"
