"""`esctl crontab show|set|remove`: jobs that run again and again, kept by the controller."""

from __future__ import annotations

import sys

from escli import changes, exits, program
from escli.failures import CommandFailed
from eslurm.compat.errors import OptionError, nearest, quoted
from eslurm.core.model.crontab import BYTES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from escli.api import Api
    from escli.options import Words

    Action: TypeAlias = Callable[[Api, Sequence[str], Words], int]


def crontab(api: Api, words: Sequence[str], given: Words) -> int:
    """The word `crontab` of esctl."""
    if not words:
        raise OptionError("crontab", None, "needs to know what", f"use one of {', '.join(_ACTIONS)}")
    action = _ACTIONS.get(words[0].lower())
    if action is None:
        near = nearest(words[0].lower(), _ACTIONS)
        way_out = f"did you mean {near}?" if near else f"use one of {', '.join(_ACTIONS)}"
        raise OptionError("crontab", words[0], "is not an action", way_out)
    return action(api, words[1:], given)


def read_text(path: str) -> str:
    """The text of a file, or of standard input (`-`). Raises CommandFailed."""
    try:
        if path == "-":
            raw = sys.stdin.buffer.read(BYTES_MAX + 1)
        else:
            with open(path, "rb") as file:
                raw = file.read(BYTES_MAX + 1)
        if len(raw) > BYTES_MAX:
            raise CommandFailed(
                exits.FAILED, f"{quoted(path)} is longer than {BYTES_MAX} bytes: it is no crontab"
            )
        return raw.decode()
    except OSError as error:
        raise CommandFailed(exits.FAILED, f"{quoted(path)} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandFailed(exits.FAILED, f"{quoted(path)} is not UTF-8 text") from None


def _show(api: Api, words: Sequence[str], given: Words) -> int:
    from escli.user.crontab import crontab_of

    program.no_more_words(words)
    reply = crontab_of(api, given.text("user"))
    if given.has("json"):
        from escli.as_json import to_json

        program.say(to_json(reply))
    elif reply.text:
        program.say(reply.text.rstrip("\n"))
    else:
        raise CommandFailed(exits.FAILED, f"{reply.user} has no crontab: esctl crontab set FILE makes one")
    return exits.OK


def _set(api: Api, words: Sequence[str], given: Words) -> int:
    from escli.user.crontab import set_crontab
    from escli.user.essubmit import words_of

    if len(words) != 1:
        raise OptionError(
            "crontab set", " ".join(words), "names no single file", "use e.g. esctl crontab set FILE"
        )
    if given.has("user"):
        raise OptionError(
            given.spelling("user"), given.text("user"), "goes not with set", "set it as that user"
        )
    reply = set_crontab(api, read_text(words[0]), words_of)
    return changes.report("esctl", reply, as_json=given.has("json"), nothing="the crontab has no lines")


def _remove(api: Api, words: Sequence[str], given: Words) -> int:
    from escli.user.crontab import remove_crontab

    program.no_more_words(words)
    return changes.report("esctl", remove_crontab(api, given.text("user")), as_json=given.has("json"))


_ACTIONS: Mapping[str, Action] = {"show": _show, "set": _set, "remove": _remove}
