"""`esctl node token|pending|approve|deny|revoke|list`: membership of hosts in the cluster.

The leading controller decides. Invariant: a host is let in by the fingerprint that it shows itself, or by a token.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from escli import changes, clock, exits, program
from escli.tables import Column, render
from eslurm.compat.errors import OptionError, escaped, nearest, whole_number
from eslurm.compat.moments import format_moment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

    from escli.api import Api
    from escli.options import Words

    Action: TypeAlias = Callable[[Api, Sequence[str], Words], int]

COMMAND = "esctl"
HOURS_MAX = 168
USES_MAX = 10_000


def node(api: Api, words: Sequence[str], given: Words) -> int:
    """Members of the cluster: joining, listing, revoking."""
    return _choose(_ACTIONS, "node", api, words, given)


def _choose(actions: Mapping[str, Action], what: str, api: Api, words: Sequence[str], given: Words) -> int:
    word = words[0].lower() if words else ""
    action = actions.get(word)
    if action is None:
        near = nearest(word, tuple(actions)) if word else ""
        way_out = f"did you mean {near}?" if near else f"use one of {', '.join(actions)}"
        raise OptionError(what, word, "is no action" if word else "needs to know what", way_out)
    return action(api, words[1:], given)


def _token(api: Api, words: Sequence[str], given: Words) -> int:
    return _choose(_TOKEN_ACTIONS, "node token", api, words, given)


def _create_token(api: Api, words: Sequence[str], given: Words) -> int:
    """The token alone on standard output."""
    from eslurm.v1 import controller_pb2 as pb

    program.no_more_words(words)
    request = pb.CreateJoinTokenRequest(
        role=given.text("role"),
        names=given.text("nodes"),
        uses=_number(given, "uses", USES_MAX),
        life_s=_number(given, "hours", HOURS_MAX) * 3600,
    )
    reply = api.call("CreateJoinToken", request, request_id=os.urandom(16))
    if given.has("json"):
        values = {"token": reply.token, "id": reply.id, "expires_us": reply.expires_us}
        program.say(json.dumps(values))
    else:
        program.say(reply.token)
        until = format_moment(reply.expires_us, clock.local_offset_s)
        program.warn(
            COMMAND, f"good until {until}, id {reply.id}; on the host: eslurm join --token-file FILE"
        )
    return exits.OK


def _list_tokens(api: Api, words: Sequence[str], given: Words) -> int:
    reply = _joins(api, words)
    rows = [
        [
            one.id,
            escaped(one.role),
            escaped(one.names) or "any",
            str(one.uses_left),
            format_moment(one.expires_us, clock.local_offset_s),
            escaped(one.by),
        ]
        for one in reply.tokens
    ]
    return _show(given, ("ID", "ROLE", "NODES", "USES", "UNTIL", "BY"), rows, reply)


def _revoke_tokens(api: Api, words: Sequence[str], given: Words) -> int:
    from eslurm.v1 import controller_pb2 as pb

    if not words:
        raise OptionError(
            "node token revoke", None, "needs a token", "use its ID (esctl node token list shows it)"
        )
    return _change(api, "RevokeMembers", pb.RevokeMembersRequest(join_ids=words), given)


def _pending(api: Api, words: Sequence[str], given: Words) -> int:
    """Hosts that ask to join."""
    reply = _joins(api, words)
    rows = [
        [
            escaped(one.names),
            escaped(one.role),
            one.fingerprint,
            escaped(one.address),
            format_moment(one.since_us, clock.local_offset_s),
        ]
        for one in reply.pending
    ]
    return _show(given, ("NAME", "ROLE", "FINGERPRINT", "ADDRESS", "SINCE"), rows, reply)


def _list(api: Api, words: Sequence[str], given: Words) -> int:
    """Members that joined over the network."""
    reply = _joins(api, words)
    rows = [
        [
            escaped(one.names),
            escaped(one.role),
            one.serial,
            one.fingerprint,
            escaped(one.address),
            format_moment(one.since_us, clock.local_offset_s),
            escaped(one.by),
        ]
        for one in reply.members
    ]
    heads = ("NAME", "ROLE", "SERIAL", "FINGERPRINT", "ADDRESS", "SINCE", "BY")
    return _show(given, heads, rows, reply)


def _approve(api: Api, words: Sequence[str], given: Words) -> int:
    if not given.has("fingerprint"):
        raise OptionError(
            "--fingerprint",
            None,
            "is missing",
            "give the one that `eslurm join` shows on the host itself: what esctl node pending shows may be another's",
        )
    return _decide(api, words, given, deny=False)


def _deny(api: Api, words: Sequence[str], given: Words) -> int:
    return _decide(api, words, given, deny=True)


def _decide(api: Api, words: Sequence[str], given: Words, *, deny: bool) -> int:
    from eslurm.v1 import controller_pb2 as pb

    action = "deny" if deny else "approve"
    if not words:
        raise OptionError(
            f"node {action}", None, "needs a host", "use its name (esctl node pending shows it)"
        )
    program.no_more_words(words[1:])
    request = pb.DecideJoinRequest(name=words[0], fingerprint=given.text("fingerprint"), deny=deny)
    return _change(api, "DecideJoin", request, given)


def _revoke(api: Api, words: Sequence[str], given: Words) -> int:
    from eslurm.v1 import controller_pb2 as pb

    if not words:
        raise OptionError("node revoke", None, "needs a host", "use its name, or a serial (esctl node list)")
    return _change(api, "RevokeMembers", pb.RevokeMembersRequest(which=words), given)


_TOKEN_ACTIONS: dict[str, Action] = {
    "create": _create_token,
    "list": _list_tokens,
    "revoke": _revoke_tokens,
}
_ACTIONS: dict[str, Action] = {
    "token": _token,
    "pending": _pending,
    "approve": _approve,
    "deny": _deny,
    "list": _list,
    "revoke": _revoke,
}


def _joins(api: Api, words: Sequence[str]) -> Any:
    from eslurm.v1 import controller_pb2 as pb

    program.no_more_words(words)
    return api.call("Joins", pb.JoinsRequest())


def _show(given: Words, heads: Sequence[str], rows: list[list[str]], reply: Any) -> int:
    if given.has("json"):
        from escli.as_json import to_json

        program.say(to_json(reply))
    else:
        program.say(render([Column(head) for head in heads], rows).rstrip("\n"))
    return exits.OK


def _change(api: Api, method: str, request: Any, given: Words) -> int:
    reply = api.call(method, request, request_id=os.urandom(16))
    return changes.report(COMMAND, reply, as_json=given.has("json"), nothing="nothing changed")


def _number(given: Words, option: str, most: int) -> int:
    """The given number; 0: the controller's default."""
    if not given.has(option):
        return 0
    text = given.text(option)
    number = whole_number(text)
    if not 1 <= number <= most:
        raise OptionError(
            given.spelling(option), text, f"is no number from 1 to {most}", f"use e.g. --{option} 2"
        )
    return number
