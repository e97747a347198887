"""`esctl reconfigure`: the leading controller reads its configuration file again; one line for each change."""

from __future__ import annotations

import os

from escli import exits, program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from escli.api import Api
    from escli.options import Words

COMMAND = "esctl"
PATIENCE_S = 60.0
"""A file of ten thousands of nodes takes seconds, and others may ask at the same time."""


def reconfigure(api: Api, words: list[str], given: Words) -> int:
    """Have the file read, and say what came of it; with --dry-run only what would."""
    program.no_more_words(words)
    is_trial = given.has("dry-run")
    reply = ask(api, is_trial=is_trial)
    if given.has("json"):
        from escli.as_json import to_json

        program.say(to_json(reply))
        return exits.FAILED if reply.problems else exits.OK
    for problem in reply.problems:
        program.warn(COMMAND, f"{problem.what}: {problem.text}" if problem.what else problem.text)
    if reply.problems:
        program.warn(COMMAND, "nothing has changed")
        return exits.FAILED
    lines = [*reply.changed, *(f"{key}: needs a restart" for key in reply.needs_restart)]
    lines += [
        f"standby {name}: give its host the same file (esinfo --controllers)" for name in reply.standbys
    ]
    program.say("\n".join(lines) or "nothing has changed")
    if is_trial and lines:
        program.warn(COMMAND, "--dry-run: nothing has changed yet")
    return exits.OK


def ask(api: Api, *, is_trial: bool = False) -> Any:
    """The controller's reply."""
    from eslurm.v1 import controller_pb2 as pb

    request = pb.ReconfigureRequest(dry_run=is_trial)
    return api.call("Reconfigure", request, PATIENCE_S, request_id=os.urandom(16))
