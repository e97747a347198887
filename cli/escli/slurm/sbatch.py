"""`sbatch`: options of the command line, of `SBATCH_*` and of the script become one submission.

The hottest of Slurm's commands: it imports neither protobuf nor anything else that is dispensable.
"""

from __future__ import annotations

import os
import sys

from escli import exits
from escli.api import SUBMIT, Api
from escli.failures import CommandFailed
from escli.options import Words
from escli.slurm import frame
from escli.user.draft import SubmitContext, draft_job
from escli.wire import decode, encode
from escli.wire_tables import SUBMIT_REPLY, SUBMIT_REQUEST
from eslurm.compat.errors import OptionError
from eslurm.compat.slurm.getopt import FLAG, HARMLESS, OPTIONAL, Options, Parser, UsageProblem
from eslurm.compat.slurm.sbatch_options import OPPOSITES, SHAPES, VARIABLES
from eslurm.compat.slurm.sbatch_options import ROWS as ROWS
from eslurm.core.model.request_limits import SCRIPT_BYTES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from escli.slurm.frame import Context
    from eslurm.compat.script import Directive

STOPS = True
USAGE = 255
"""Exit code of an unusable command line."""
COMMAND = "sbatch"
FAILED = {
    "sbatch": "sbatch: error: Batch job submission failed: ",
    "salloc": "salloc: error: Job submit/allocate failed: ",
    "srun": "srun: error: Unable to allocate resources: ",
}
"""The beginning of a refusal by the controller."""
_TIMEOUT_S = 60.0
_NO_SCRIPT = (
    "sbatch: error: This does not look like a batch script.  The first",
    "sbatch: error: line must start with #! followed by the path to an interpreter.",
    "sbatch: error: For instance: #!/bin/sh",
)
_ONLY_HERE = frozenset(
    {"clusters", "parsable", "quiet", "test-only", "wait", "wrap", "nodefile", "ignore-pbs"}
)
"""Options that no request has."""
_INVALID = 255
"""Exit code of an invalid value."""
_COUNTS = ("ntasks", "cpus-per-task", "ntasks-per-node")
_SPECIFIED = ("time", "begin", "deadline", "signal", "mem", "mem-per-cpu")
_REFUSED_LATER = {"array": "Invalid job array specification", "dependency": "Job dependency problem"}
"""Values that only Slurm's controller looks at."""
_EMPTY = (
    "job-name",
    "constraint",
    "qos",
    "account",
    "partition",
    "reservation",
    "gres",
    "licenses",
    "dependency",
)
"""Options for which an empty value is none."""
_SHAPES = frozenset(SHAPES)
_MODES = {"append": "append", "a": "append", "truncate": "truncate", "t": "truncate"}


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    parts = _command_parts(given)
    rest = parts[-1].rest
    script, name, path = _script(given, rest)
    options, own = _merged(parts, script)
    try:
        job = draft_job(options, script, name, rest[1:], _surroundings(options), own)
    except OptionError as error:
        raise invalid(error, (options, *own)) from None
    job["truncate_output"] = options.text("open-mode") != "append"
    job["command"] = path
    job["wckey"] = options.text("wckey")
    clusters = [one for one in options.text("clusters").split(",") if one]
    request: dict[str, Any] = {"jobs": [job], "test_only": options.has("test-only")}
    if options.has("test-only"):
        return _test(context, clusters, encode(request, SUBMIT_REQUEST))
    return _submit(context, clusters, encode(request, SUBMIT_REQUEST), options)


def invalid(error: OptionError, given: Sequence[Words], command: str = COMMAND) -> Exception:
    """The error of a value in Slurm's words for it, and with its exit code; our words follow."""
    long = next((one for words in given for one in words.names() if words.spelling(one) == error.option), "")
    why = f"{error.value!r} {error.why}" if error.value is not None else error.why
    if long in _COUNTS:
        return frame.Failed(f'{command}: error: Invalid numeric value "{error.value}" for --{long}.')
    if long == "nodes":
        return frame.Failed(f'{command}: error: "{error.value}" is not a valid node count', code=_INVALID)
    if long in _SPECIFIED:
        return frame.Failed(f"{command}: error: Invalid --{long} specification: {why}", code=_INVALID)
    if long in _REFUSED_LATER:
        return frame.Failed(f"{FAILED[command]}{_REFUSED_LATER[long]}: {why}")
    if long == "gres" or long.startswith("gpus"):
        return frame.Failed(f"{command}: error: Invalid generic resource (gres) specification: {why}")
    return error


def _submit(context: Context, clusters: Sequence[str], request: bytes, options: Words) -> int:
    with context.open_api() as own:
        api, cluster = _at(context, own, clusters)
        with api:
            try:
                answer = api.send(SUBMIT, request, _TIMEOUT_S, os.urandom(16))
            except CommandFailed as failure:
                text = refused_as(frame.trouble(failure))
                above = [f"sbatch: error: invalid partition specified: {options.text('partition')}"]
                raise frame.Failed(
                    *(above if "Invalid partition" in text else ()), FAILED[COMMAND] + text
                ) from None
            reply = decode(answer, SUBMIT_REPLY)
            for warning in reply["warnings"]:
                frame.warn(COMMAND, f"warning: {warning}")
            job_id = int(reply["job_ids"][0])
            if options.has("parsable"):
                frame.print_line(f"{job_id};{cluster}" if cluster else str(job_id))
            elif not options.has("quiet"):
                on = f" on cluster {cluster}" if cluster else ""
                frame.print_line(f"Submitted batch job {job_id}{on}")
            if not options.has("wait"):
                return exits.OK
            sys.stdout.flush()
            return _wait(api, job_id)


def _wait(api: Api, job_id: int) -> int:
    """Wait for the job's end; its exit code, the highest of an array's tasks. 1 if a signal ended it."""
    from escli.user.waiting import wait_for_jobs
    from eslurm.v1 import controller_pb2 as pb

    code = wait_for_jobs(api, [job_id], COMMAND, quiet=True)
    if code in (exits.OK, exits.INTERRUPTED):
        return code
    infos = api.call("Jobs", pb.JobsRequest(jobs=[pb.JobRef(job_id=job_id)], finished_too=True)).jobs
    codes = [exits.FAILED if one.exit_signal else one.exit_code & 0xFF for one in infos]
    return max(codes, default=0) or exits.FAILED


def _at(context: Context, own: Api, clusters: Sequence[str]) -> tuple[Api, str]:
    """The API of the named cluster, and its name where one is named."""
    if not clusters:
        return own, ""
    if len(clusters) > 1 or clusters[0] == "all":
        text = ",".join(clusters)
        raise OptionError(
            "--clusters", text, "is more than one cluster", "name one, or use essubmit --cell any"
        )
    return context.cluster_api(clusters[0], frame.own_cluster(own)), clusters[0]


def refused_as(text: str) -> str:
    """The refusal after Slurm's words for it, where it has some that clients look for."""
    for ours, theirs in (
        ("partition", "Invalid partition name specified"),
        ("account", "Invalid account or account/partition combination specified"),
        ("qos", "Invalid qos specification"),
        ("reservation", "Requested reservation is invalid"),
        ("feature", "Invalid feature specification"),
        ("dependency", "Job dependency problem"),
        ("nodes", "Requested node configuration is not available"),
    ):
        if text.lower().lstrip("-").startswith(ours):
            return f"{theirs} ({text})"
    return text


def _test(context: Context, clusters: Sequence[str], request: bytes) -> int:
    from escli.user.submission_tests import tests_of
    from eslurm.v1 import controller_pb2 as pb

    with context.open_api() as own:
        api, _ = _at(context, own, clusters)
        try:
            answer = tests_of(
                pb.SubmitReply.FromString(api.send(SUBMIT, request, _TIMEOUT_S, os.urandom(16)))
            )[0]
            partitions = api.call("Nodes", pb.NodesRequest()).partitions
        except CommandFailed as failure:
            raise frame.Failed(f"allocation failure: {refused_as(frame.trouble(failure))}") from None
    if answer.refused or not answer.start_us:
        raise frame.Failed(f"allocation failure: {answer.answer or 'no start is planned'}")
    job = pb.SubmitRequest.FromString(request).jobs[0]
    cpus = sum(part.tasks * max(1, part.cpus_per_task) for part in job.components)
    at = frame.moment_writer({})(answer.start_us)
    where = f" on nodes {answer.nodes}" if answer.nodes else ""
    partition = job.partition or next((one.name for one in partitions if one.is_default), "")
    frame.warn(COMMAND, f"Job to start at {at} using {cpus} processors{where} in partition {partition}")
    return exits.OK


# ---- options ----


def _command_parts(given: Options) -> list[Options]:
    """The options of each part of `sbatch -n1 : -n2 script`."""
    parts = [given]
    parser = Parser(ROWS, stops=True)
    while parts[-1].rest[:1] == [":"]:
        words = parts[-1].rest[1:]
        parts[-1].rest = []
        parts.append(parser.parse(words))
        frame.refuse(parts[-1].found, COMMAND)
    return parts


def _merged(command: Sequence[Options], script: bytes) -> tuple[Words, Sequence[Words]]:
    """The job's options, and those of its parts if it has several: the script's, then `SBATCH_*`, then the command's."""
    from eslurm.compat.script import read_directives

    directives = read_directives(script)
    _check_pbs(script, command[0])
    parser = Parser(ROWS)
    environment = to_words(from_environment(parser))
    given = [to_words(part.found) for part in command]
    if len(given) > 1 or any(one.begins_part for one in directives):
        from escli.user.job_parts import directives_by_part, overlaid

        of_script = [_read(part, parser) for part in directives_by_part(directives)]
        _overlay(of_script[0], environment)
        words, parts = overlaid(of_script, given, OPPOSITES)
    else:
        words, parts = _read(directives, parser), []
        _overlay(words, environment)
        _overlay(words, given[0])
    adjust(words)
    for part in parts:
        _adjust_part(part)
    return words, parts


def from_environment(
    parser: Parser, variables: Mapping[str, str] = VARIABLES, command: str = COMMAND
) -> list[tuple[Any, str, str]]:
    """The options that variables of the environment give. Raises Failed for one that is not supported."""
    found = []
    for name, value in os.environ.items():
        if name not in variables:
            continue
        row = parser.row(variables[name])
        if row.kind == FLAG:
            # Set to anything, they count; the script's own are said by name.
            value = ""
        elif row.kind != OPTIONAL and not value:
            continue
        found.append((row, value, name))
    frame.refuse(found, command)
    return found


def words_of(directives: Sequence[Directive]) -> Words:
    """The options of lines of another file than a script, as essubmit's code reads them. Raises Failed."""
    words = _read(directives, Parser(ROWS))
    adjust(words)
    return words


def _read(directives: Sequence[Directive], parser: Parser) -> Words:
    """The options of script lines; of `#ESLURM` lines by essubmit's rules, and over the others."""
    merged = Words()
    for one in directives:
        if one.mark == "#ESLURM":
            from escli.user.essubmit import with_directives

            text = "#!/bin/sh\n#ESLURM " + " ".join(map(_quoted, one.words))
            _overlay(merged, with_directives([Words()], text.encode())[0])
            continue
        found = parser.parse(one.words, f"{one.mark} line {one.line}: ")
        if found.rest:
            raise UsageProblem(f"error: Unexpected word on {one.mark} line {one.line}: {found.rest[0]}")
        frame.refuse(found.found, COMMAND)
        _overlay(merged, to_words(found.found))
    return merged


def _quoted(word: str) -> str:
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def to_words(
    found: Sequence[tuple[Any, str, str]], opposites: Mapping[str, tuple[str, ...]] = OPPOSITES
) -> Words:
    """The options as essubmit's code reads them: a later one takes back its opposites."""
    words = Words()
    for row, value, spelling in found:
        if row.treatment == HARMLESS or (row.treatment.startswith("only:") and row.long != "exclusive"):
            continue
        words.drop(opposites.get(row.long, ()))
        words.put(row.long, value, spelling)
    return words


def _overlay(under: Words, over: Words) -> None:
    for long in over.names():
        under.drop(OPPOSITES.get(long, ()))
    under.overlay(over)


def _check_pbs(script: bytes, given: Options) -> None:
    """Refuse `#PBS` lines, which sbatch reads unless it is told not to."""
    if b"#PBS" not in script or given.has("ignore-pbs") or "SBATCH_IGNORE_PBS" in os.environ:
        return
    for line in script.split(b"\n"):
        if line.startswith(b"#PBS"):
            raise frame.Failed(
                "sbatch: error: #PBS lines are not supported: write #SBATCH, or add --ignore-pbs"
            )
        if line.strip() and not line.startswith(b"#"):
            return


def adjust(words: Words, command: str = COMMAND) -> None:
    """Change what sbatch and essubmit say differently; of `salloc` and `srun`, too."""
    if words.has("open-mode"):
        mode = words.text("open-mode")
        if mode not in _MODES:
            raise frame.Failed("sbatch: error: Invalid --open-mode specification", code=_INVALID)
        words.put("open-mode", _MODES[mode], words.spelling("open-mode"))
    if words.text("export").upper() == "NIL":
        words.put("export", "NONE", words.spelling("export"))
    if words.text("no-kill") == "off":
        words.drop(("no-kill",))
    if words.text("signal").upper().startswith("R:"):
        raise frame.Failed(
            f"{command}: error: --signal=R: is not supported: no signal is sent before a reservation begins"
        )
    for long in ("uid", "gid"):
        if words.has(long):
            _check_own(words, long, command)
    _adjust_part(words, command)


def _check_own(words: Words, long: str, command: str) -> None:
    """Raise Failed unless the user or group is this process's own."""
    import grp
    import pwd

    own, text = os.getuid() if long == "uid" else os.getgid(), words.text(long)
    try:
        name = pwd.getpwuid(own).pw_name if long == "uid" else grp.getgrgid(own).gr_name
    except KeyError:
        name = str(own)
    if text not in (str(own), name):
        raise frame.Failed(
            f"{command}: error: --{long}={text} is not supported: jobs run as the user that submits them, {name}"
        )
    words.drop((long,))


def _adjust_part(words: Words, command: str = COMMAND) -> None:
    if not _SHAPES.isdisjoint(words.names()):
        from escli.slurm.shapes import settle

        try:
            settle(words)
        except OptionError as error:
            raise invalid(error, (words,), command) from None
    words.drop(
        [long for long in (*_EMPTY, "nodelist", "exclude") if words.has(long) and not words.text(long)]
    )
    if words.text("gres").lower() == "none":
        words.drop(("gres",))
    if words.has("exclusive"):
        words.put("exclusive", "", words.spelling("exclusive"))
    if words.has("nodefile"):
        words.put("nodelist", words.text("nodefile"), words.spelling("nodefile"))
    for long in ("nodelist", "exclude"):
        text = words.text(long)
        if "/" in text:
            words.put(long, _nodes_of_file(text, words.spelling(long)), words.spelling(long))
    if words.has("mem") and words.text("mem").strip("0") in ("", "M", "G", "K", "T"):
        # All memory of its nodes: of nodes that it has alone, that is no more than it gets anyway.
        words.put("mem", "0", words.spelling("mem"))


def _nodes_of_file(path: str, option: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return ",".join(file.read().replace(",", " ").split())
    except OSError as error:
        raise OptionError(
            option, path, f"cannot be read ({error.strerror})", "name a file of node names"
        ) from None


# ---- script ----


def _script(given: Options, rest: Sequence[str]) -> tuple[bytes, str, str]:
    """The script, the job's name by it, and its file. Raises Failed."""
    if given.has("wrap"):
        if rest:
            raise frame.Failed("sbatch: error: Script arguments are not permitted with the --wrap option.")
        text = (
            f"#!/bin/sh\n# This script was created by sbatch by wrapping a command.\n\n{given.last('wrap')}\n"
        )
        return text.encode("utf-8", "surrogateescape"), "wrap", ""
    if not rest or rest[0] == "-":
        return _checked(sys.stdin.buffer.read(SCRIPT_BYTES_MAX + 1)), "sbatch", ""
    path = _found(rest[0])
    try:
        with open(path, "rb") as file:
            script = file.read(SCRIPT_BYTES_MAX + 1)
    except OSError:
        raise frame.Failed(f"sbatch: error: Unable to open file {path}") from None
    if path in ("/dev/stdin", "/proc/self/fd/0"):
        return _checked(script), "sbatch", ""
    return _checked(script), os.path.basename(path), os.path.abspath(path)


def _found(name: str) -> str:
    """The script's file: in the directory, else in that of PATH."""
    if "/" in name or os.path.isfile(name):
        return name
    places = [os.path.join(one, name) for one in os.environ.get("PATH", "").split(os.pathsep) if one]
    return next((place for place in places if os.path.isfile(place) and os.access(place, os.R_OK)), name)


def _checked(script: bytes) -> bytes:
    if not script:
        raise frame.Failed("sbatch: error: Batch script is empty!")
    if not script.strip():
        raise frame.Failed("sbatch: error: Batch script contains only whitespace!")
    if not script.startswith(b"#!"):
        raise frame.Failed(*_NO_SCRIPT)
    if b"\0" in script:
        raise frame.Failed(
            "sbatch: error: The Slurm controller does not allow scripts that contain a NULL character '\\0'."
        )
    if b"\r\n" in script:
        raise frame.Failed(
            "sbatch: error: Batch script contains DOS line breaks (\\r\\n)",
            "sbatch: error: instead of expected UNIX line breaks (\\n).",
        )
    return script


def _surroundings(options: Words) -> SubmitContext:
    from escli.user.submit_context import submit_context

    try:
        context = submit_context(options)
    except FileNotFoundError:
        raise frame.Failed(
            "sbatch: error: getcwd failed: the current directory does not exist any more"
        ) from None
    if options.has("export-file"):
        from escli.slurm.export_file import variables_of

        found = variables_of(options.text("export-file"))
        context.environment = {**found, **context.environment}
    if options.has("open-mode"):
        mode = options.text("open-mode")[:1]
        context.environment = {**context.environment, "SLURM_OPEN_MODE": mode}
    return context
