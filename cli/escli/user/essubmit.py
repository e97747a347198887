"""`essubmit`: a script and options become a job; one call; the job's id.

The hottest command of all: it imports neither protobuf nor anything else that is dispensable.
"""

from __future__ import annotations

import os
import stat
import sys

from escli import exits, program
from escli.api import SUBMIT, Api, find_endpoint
from escli.failures import CommandFailed
from escli.open_api import open_api
from escli.option_table import rows_of
from escli.options import Parser, Words
from escli.user.draft import SubmitContext, draft_job
from escli.user.submit_context import submit_context
from escli.wire import decode, encode
from escli.wire_tables import SUBMIT_REPLY, SUBMIT_REQUEST
from eslurm.compat.errors import OptionError
from eslurm.compat.script import check_script, read_directives
from eslurm.core.model.request_limits import SCRIPT_BYTES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from escli.user.pack_members import Member
    from eslurm.compat.script import Directive

COMMAND = "essubmit"
_TIMEOUT_S = 60.0
# An option of the command line takes back its opposite in the script.
_OPPOSITES = {
    "requeue": ("no-requeue",),
    "no-requeue": ("requeue",),
    "mem": ("mem-per-cpu",),
    "mem-per-cpu": ("mem",),
}
_NOT_IN_SCRIPTS = frozenset(
    {
        "wrap",
        "socket",
        "remote",
        "token-file",
        "tls-ca",
        "json",
        "parsable",
        "help",
        "version",
        "test-only",
        "pack",
        "pack-fail",
        "delay",
    }
)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return program.run(COMMAND, _submit, argv, options_end_at_first_word=True, excludes=_OPPOSITES)


def _submit(given: Words) -> int:
    members: Sequence[Member] = ()
    if given.has("pack") or given.has("delay") or ":" in given.rest:
        members = _members(given)
    scripts: dict[str, bytes] = {}
    drafts = [_draft(member, scripts) for member in members] or [_draft_of([given], scripts)]
    options = drafts[0].options if len(drafts) == 1 else _of_command(drafts)
    for draft in drafts:
        for spelling in draft.options.ignored:
            program.warn(COMMAND, f"{spelling} is not supported and left out")
    request: dict[str, Any] = {"jobs": [draft.job for draft in drafts], "test_only": options.has("test-only")}
    if len(drafts) > 1:
        from escli.user.pack_members import cancels

        pack = {"first": 0, "delays_s": [member.delay_s for member in members]}
        request["packs"] = [{**pack, "cancels": cancels(members)}]
    elif options.has("pack-fail"):
        raise OptionError(
            options.spelling("pack-fail"),
            options.text("pack-fail"),
            "is for a pack, and this is one job",
            "leave it out, or add e.g. : --delay=00:30:00 b.sh",
        )
    cells: list[str] = []
    if options.has("cell") or options.has("clusters"):
        from escli.cells import movable_among

        cells = movable_among(options)
        for job in request["jobs"] if cells else ():
            job["cells"] = cells
            job["span"] = options.has("span")
    if options.has("span") and not cells:
        raise OptionError(
            options.spelling("span"),
            None,
            "is for several cells",
            "add e.g. --cell any, or --cell beta,gamma",
        )
    encoded = encode(request, SUBMIT_REQUEST)
    if cells and options.has("test-only"):
        from escli.user.cell_tests import tell_cells

        return tell_cells(encoded, cells, options, COMMAND)
    with Api(find_endpoint(options, os.environ), COMMAND) if cells else open_api(options, COMMAND) as api:
        return _send(api, encoded, options)


class _Draft:
    """A job's request, and all its options: of the command line and of its script."""

    __slots__ = ("job", "options")

    def __init__(self, job: dict[str, Any], options: Words) -> None:
        self.job = job
        self.options = options


def _members(given: Words) -> Sequence[Member]:
    """The job, or the jobs of a pack, that this command line describes in parts or in a file."""
    parser = Parser(rows_of(COMMAND), options_end_at_first_word=True, excludes=_OPPOSITES)
    if given.has("pack"):
        from escli.user.pack_file import FILE_BYTES_MAX, read_pack

        name, option = given.text("pack"), given.spelling("pack")
        data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1) if name == "-" else _from_file(name, option)
        return read_pack(data, name, given, parser, _NOT_IN_SCRIPTS)
    from escli.user.job_parts import command_parts
    from escli.user.pack_members import members_of

    return members_of(command_parts(given, parser))


def _draft(member: Member, scripts: dict[str, bytes]) -> _Draft:
    try:
        return _draft_of(member.parts, scripts, member.name)
    except OptionError as error:
        if error.option.startswith((member.where, "part ")):
            raise
        raise error.renamed(f"{member.where}{error.option}") from None


def _draft_of(command: Sequence[Words], scripts: dict[str, bytes], pack_name: str = "") -> _Draft:
    """One job. `command` has the options of each of its parts; `scripts` are those that have been read."""
    given = command[0]
    if len(command) > 1:
        from escli.user.job_parts import overlaid

        given = overlaid((), command, _OPPOSITES)[0]
    script, name = _script(given, scripts)
    options, parts = with_directives(command, script)
    job = draft_job(options, script, pack_name or name, given.rest[1:], _surroundings(options), parts)
    job["traceparent"] = _traceparent()
    return _Draft(job, options)


def _of_command(drafts: Sequence[_Draft]) -> Words:
    """The options of all jobs of a pack as one, for what the command itself does; the first job's win."""
    options = Words()
    for draft in reversed(drafts):
        options.overlay(draft.options)
    return options


def _send(api: Api, request: bytes, options: Words) -> int:
    answer = api.send(SUBMIT, request, _TIMEOUT_S, os.urandom(16))
    if options.has("test-only"):
        from escli.user.submission_tests import tell_test

        return tell_test(answer, options)
    reply = decode(answer, SUBMIT_REPLY)
    if not reply["job_ids"]:
        raise CommandFailed(
            exits.FAILED, "the controller accepted the job but gave no id: is it of another version?"
        )
    for warning in reply["warnings"]:
        program.warn(COMMAND, warning)
    job_ids = [int(job_id) for job_id in reply["job_ids"]]
    _tell(job_ids, options)
    if not options.has("wait"):
        return exits.OK
    from escli.user.waiting import wait_for_jobs

    sys.stdout.flush()
    return wait_for_jobs(api, job_ids, COMMAND, quiet=options.has("quiet") or options.has("parsable"))


def with_directives(command: Sequence[Words], script: bytes) -> tuple[Words, Sequence[Words]]:
    """The options of the script's lines, overridden by the command line's, and of a job of several parts those of each.

    `command` is one for each part of the command line. Raises OptionError.
    """
    directives = read_directives(script)
    if len(command) > 1 or any(one.begins_part for one in directives):
        from escli.user.job_parts import directives_by_part, overlaid

        script_parts = [words_of(part) for part in directives_by_part(directives)]
        return overlaid(script_parts, command, _OPPOSITES)
    merged = words_of(directives)
    _overlay(merged, command[0])
    return merged, ()


def words_of(directives: Sequence[Directive]) -> Words:
    """The options of these lines; a later line wins. Raises OptionError."""
    parser = Parser(rows_of(COMMAND), excludes=_OPPOSITES)
    merged = Words()
    for directive in directives:
        where = f"{directive.mark} (line {directive.line}) "
        found = parser.parse(directive.words, where)
        if found.rest:
            raise OptionError(
                where.strip(), found.rest[0], "is not an option", "put commands on lines of their own"
            )
        for long in found.names():
            if long in _NOT_IN_SCRIPTS:
                raise OptionError(
                    found.spelling(long), found.text(long), "is for the command line only", "remove it"
                )
        _overlay(merged, found)
    return merged


def _overlay(under: Words, over: Words) -> None:
    for long in over.names():
        under.drop(_OPPOSITES.get(long, ()))
    under.overlay(over)


def _script(given: Words, scripts: dict[str, bytes]) -> tuple[bytes, str]:
    """The batch script and the job's default name. A file is read once for all jobs of a pack."""
    if given.has("wrap"):
        if given.rest:
            raise OptionError("--wrap", given.rest[0], "is a script beside it", "give one of them")
        if not given.text("wrap").strip():
            raise OptionError("--wrap", given.text("wrap"), "is not a command", "use e.g. --wrap 'make -j8'")
        script = f"#!/bin/sh\n# made by essubmit --wrap\n\n{given.text('wrap')}\n"
        return _checked(script.encode("utf-8", "surrogateescape"), "wrap"), "wrap"
    path = given.rest[0] if given.rest else "-"
    if path not in scripts:
        is_stdin = path == "-"
        read = _from_stdin(given) if is_stdin else _from_file(path, "script")
        scripts[path] = _checked(read, "standard input" if is_stdin else path)
    return scripts[path], "stdin" if path == "-" else os.path.basename(path)


def _checked(script: bytes, name: str) -> bytes:
    check_script(script, name)
    return script


def _from_stdin(given: Words) -> bytes:
    if not given.rest and sys.stdin.isatty():
        raise OptionError(
            "script", None, "is missing", "use e.g. essubmit run.sh, or essubmit --wrap 'make -j8'"
        )
    return sys.stdin.buffer.read(SCRIPT_BYTES_MAX + 1)


def _from_file(path: str, option: str) -> bytes:
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISDIR(mode):
                raise OptionError(option, path, "is a directory", "name the file in it")
            if not stat.S_ISREG(mode):
                raise OptionError(option, path, "is not a regular file", "use - to read standard input")
            return file.read(SCRIPT_BYTES_MAX + 1)
    except OptionError:
        raise
    except FileNotFoundError:
        otherwise = ", or --wrap for a command" if option == "script" else ""
        raise OptionError(option, path, "does not exist", f"use an existing file{otherwise}") from None
    except IsADirectoryError:
        raise OptionError(option, path, "is a directory", "name the file in it") from None
    except PermissionError:
        raise OptionError(option, path, "cannot be read", "make it readable: chmod +r") from None
    except (OSError, ValueError) as error:
        raise OptionError(option, path, f"cannot be read ({error})", "use an existing file") from None


def _open_at_once(path: str, flags: int) -> int:
    # A named pipe without a writer would hold the open for ever.
    return os.open(path, flags | os.O_NONBLOCK)


def _surroundings(options: Words) -> SubmitContext:
    try:
        return submit_context(options)
    except FileNotFoundError:
        text = "the current directory does not exist any more: change to another one"
        raise CommandFailed(exits.USAGE, text) from None


def _traceparent() -> str:
    """The W3C traceparent of the submission; the controller checks it."""
    text = os.environ.get("TRACEPARENT", "")
    return text if text.isascii() else ""


def _tell(job_ids: Sequence[int], options: Words) -> None:
    """Print the job's id, or the pack's and those of its jobs."""
    first = job_ids[0]
    is_pack = len(job_ids) > 1
    if options.has("json"):
        import json

        pack = {"pack_id": first, "job_ids": list(job_ids)} if is_pack else {}
        program.say(json.dumps({"job_id": first, **pack}))
    elif options.has("parsable"):
        program.say(str(first))
    elif not options.has("quiet"):
        others = ", ".join(map(str, job_ids))
        program.say(f"Submitted pack {first} (jobs {others})" if is_pack else f"Submitted batch job {first}")
