"""`esctl federation`: the state of the federation, and orders to this cluster's own cell."""

from __future__ import annotations

import os

from escli import exits, program
from escli.user import federation
from eslurm.compat.errors import OptionError, escaped, nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from escli.api import Api
    from escli.options import Words

ORDERS = ("drain", "resume", "leave", "rejoin")
WORDS = ("status", *ORDERS)


def control(api: Api, words: list[str], given: Words) -> int:
    """`esctl federation status|drain|resume|leave|rejoin [CELL]`. An order that the store does not have yet is a warning."""
    word, *more = words or [""]
    if word not in WORDS:
        near = nearest(word, WORDS) if word else ""
        way_out = f"did you mean {near}?" if near else f"use one of {', '.join(WORDS)}"
        raise OptionError(
            "federation", word or None, "is not known" if word else "needs to know what", way_out
        )
    if word == "status":
        program.no_more_words(more)
        return federation.status(api, given)
    program.no_more_words(more[1:])
    return _order(api, word, more[0] if more else "", given)


def _order(api: Api, action: str, cell: str, given: Words) -> int:
    from eslurm.v1 import controller_pb2 as pb

    request = pb.ChangeFederationRequest(action=action, cell=cell)
    reply = api.call("ChangeFederation", request, request_id=os.urandom(16))
    if given.has("json"):
        from escli.as_json import to_json

        program.say(to_json(reply))
        return exits.OK
    program.say(text(reply, action))
    if not reply.done:
        why = escaped(reply.problem) or f"the cell is {reply.state}"
        program.warn("esctl", f"the order is in the log, and the shared store does not have it yet: {why}")
    return exits.OK


def text(reply: Any, action: str) -> str:
    """The order that holds from now on."""
    cell = f"cell {reply.cell} of federation {reply.name}"
    match action:
        case "drain":
            return f"{cell} drains: it takes no work of other cells (esctl federation resume)"
        case "resume":
            return f"{cell} takes work of other cells"
        case "leave":
            return f"{cell} has left and works alone, also after a restart (esctl federation rejoin)"
        case _ if not reply.done:
            return f"{cell} joins again"
        case _:
            return f"{cell} is a member{', and drains' if reply.draining else ''}"
