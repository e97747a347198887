"""`esctl token create|list|revoke`: the tokens by which the cluster authenticates commands on other hosts.

The leading controller makes them. Invariant: a token is never written where other users could read it.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from escli import changes, clock, exits, program
from escli.tables import Column, render
from eslurm.compat.errors import OptionError, escaped
from eslurm.compat.lengths import parse_length
from eslurm.compat.moments import format_moment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from escli.api import Api
    from escli.options import Words

COMMAND = "esctl"
LIFE_MAX_S = 2**31 - 1


def token(api: Api, words: Sequence[str], given: Words) -> int:
    """`esctl token create [USER]`, `list`, `revoke [ID ...]`; `esctl token USER` is short for the first."""
    if not words:
        way_out = f"use one of {', '.join(_ACTIONS)}, e.g. esctl token create --for 8h --output token"
        raise OptionError("token", None, "needs to know what", way_out)
    action = _ACTIONS.get(words[0].lower())
    return _create(api, words, given) if action is None else action(api, words[1:], given)


def _create(api: Api, words: Sequence[str], given: Words) -> int:
    """The token alone on standard output, or in a file."""
    from eslurm.v1 import controller_pb2 as pb

    program.no_more_words(words[1:])
    path = Path(given.text("output")) if given.text("output") else None
    if path is not None:
        _check_file(path)
    request = pb.CreateTokenRequest(
        user=words[0] if words else "", scope=given.text("scope"), life_s=_life_s(given)
    )
    reply = api.call("CreateToken", request, request_id=os.urandom(16))
    if path is not None:
        _write(path, reply)
    info = reply.info
    if given.has("json"):
        values = {
            "id": info.id,
            "user": info.user,
            "uid": info.uid,
            "cluster": reply.cluster,
            "scope": info.scope,
            "expires_us": info.expires_us,
        }
        program.say(
            json.dumps(values | ({"file": str(path)} if path is not None else {"token": reply.token}))
        )
    elif path is not None:
        until = format_moment(info.expires_us, clock.local_offset_s)
        program.say(
            f"{path}: {escaped(info.user)} at cluster {reply.cluster} until {until}, scope {info.scope}, id {info.id}"
        )
    else:
        program.say(reply.token)
    return exits.OK


def _list(api: Api, words: Sequence[str], given: Words) -> int:
    from eslurm.v1 import controller_pb2 as pb

    program.no_more_words(words)
    reply = api.call("Tokens", pb.TokensRequest(user=given.text("user")))
    if given.has("json"):
        from escli.as_json import to_json

        program.say(to_json(reply))
    else:
        program.say(_table(reply).rstrip("\n"))
    return exits.OK


def _revoke(api: Api, words: Sequence[str], given: Words) -> int:
    from eslurm.v1 import controller_pb2 as pb

    user = given.text("user")
    if not words and not user:
        way_out = "use its ID (esctl token list shows it), or --user USER for all of a user's"
        raise OptionError("token revoke", None, "needs a token", way_out)
    request = pb.RevokeTokensRequest(ids=words, user=user)
    reply = api.call("RevokeTokens", request, request_id=os.urandom(16))
    return changes.report(COMMAND, reply, as_json=given.has("json"), nothing="there was none to revoke")


_ACTIONS: dict[str, Callable[[Api, Sequence[str], Words], int]] = {
    "create": _create,
    "list": _list,
    "revoke": _revoke,
}


def _table(reply: Any) -> str:
    rows = [
        [
            one.id,
            escaped(one.user),
            one.scope,
            format_moment(one.issued_us, clock.local_offset_s),
            format_moment(one.expires_us, clock.local_offset_s),
            escaped(one.by),
        ]
        for one in reply.tokens
    ]
    heads = ("ID", "USER", "SCOPE", "MADE", "UNTIL", "BY")
    return render([Column(head) for head in heads], rows)


def _life_s(given: Words) -> int:
    """The requested life in seconds; 0: the controller's default."""
    if not given.has("for"):
        return 0
    text, option = given.text("for"), given.spelling("for")
    seconds = parse_length(text, option)
    if not 0 < seconds <= LIFE_MAX_S:
        raise OptionError(option, text, "is no life of a token", "use e.g. --for 8h")
    return int(seconds)


def _check_file(path: Path) -> None:
    """Check the target before a token is made for it. A file can replace a file only, not a device."""
    try:
        may_hold = path.parent != Path("/dev") and stat.S_ISREG(path.stat().st_mode)
    except OSError:
        may_hold = path.name not in ("", "..") and path.parent != Path("/dev")
    if not may_hold:
        raise OptionError(
            "--output",
            str(path),
            "is no file",
            "name one, or leave it out to have the token on standard output",
        )


def _write(path: Path, reply: Any) -> None:
    """Replace the file; root gives it to the user, who could not read it otherwise.

    All within one directory, held open: its owner may rename it meanwhile, and gains nothing.
    """
    fresh = f".{path.name}.{os.urandom(6).hex()}"
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=directory)
            try:
                os.write(fd, f"{reply.token}\n".encode())
                os.fchmod(fd, 0o600)
                if os.geteuid() == 0:
                    os.fchown(fd, reply.info.uid, reply.gid)
                os.replace(fresh, path.name, src_dir_fd=directory, dst_dir_fd=directory)
            except OSError:
                os.unlink(fresh, dir_fd=directory)
                raise
            finally:
                os.close(fd)
        finally:
            os.close(directory)
    except OSError as error:
        raise OptionError(
            "--output",
            str(path),
            f"cannot be written ({error.strerror}), and token {reply.info.id} was made",
            f"name a file in a directory of yours, and revoke that token: esctl token revoke {reply.info.id}",
        ) from None
