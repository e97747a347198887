"""Output of a ChangeReply: the number of changes, the problems, and further notes."""

from __future__ import annotations

from escli import exits, program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def report(command: str, reply: Any, *, as_json: bool, quiet: bool = False, nothing: str = "") -> int:
    """Print the problems, one line each; the exit code says whether there were any.

    `nothing` is the text when nothing changed though nothing went wrong.
    """
    if as_json:
        from escli.as_json import to_json

        program.say(to_json(reply))
    else:
        for problem in reply.problems:
            program.warn(command, f"{problem.what}: {problem.text}" if problem.what else problem.text)
        for note in reply.notes if not quiet else ():
            program.warn(command, note)
        if nothing and not quiet and not reply.count and not reply.problems:
            program.warn(command, nothing)
    return exits.FAILED if reply.problems else exits.OK
