"""Entry of the installed launchers of LSF's commands; failures are one line, as LSF's are."""

from __future__ import annotations

import sys

from escli import exits
from escli.failures import CommandFailed
from escli.slurm.frame import Context, Failed, check_supported, tell
from eslurm import __version__
from eslurm.compat.errors import OptionError
from eslurm.compat.lsf.options import parse
from eslurm.compat.slurm.getopt import FLAG, REFUSED, UsageProblem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from eslurm.compat.slurm.getopt import Row

MODULES = {"bsub": "escli.lsf.bsub", "bjobs": "escli.lsf.bjobs", "bkill": "escli.lsf.bkill"}
COMMANDS = tuple(MODULES)
FAILED = 255
"""LSF's exit code of commands that fail."""
_NOT_SUBMITTED = ". Job not submitted."
_REST = {"bsub": "[command]", "bjobs": "[job ...]", "bkill": "[job ...]"}


def main(command: str, argv: Sequence[str] | None = None, *, socket: str = "", remote: str = "") -> int:
    """Run a command; returns the exit code. `socket` or `remote` is the cluster unless the environment names one."""
    from importlib import import_module

    context = Context(command, socket=socket, remote=remote)
    end = _NOT_SUBMITTED if command == "bsub" else ""
    try:
        module = import_module(MODULES[command])
        given = parse(module.ROWS, sys.argv[1:] if argv is None else argv)
        if given.has("V"):
            sys.stdout.write(f"eslurm {__version__}\n")
            return exits.OK
        if given.has("h"):
            sys.stdout.write(_help(command, module.ROWS))
            return exits.OK
        check_supported(given.found)
        code: int = module.run(context, given)
        sys.stdout.flush()
        return code
    except UsageProblem as problem:
        return tell(FAILED, f"{command}: {problem.text}: see {command} -h{end}")
    except Failed as failure:
        return tell(FAILED, *(f"{command}: {line}{end}" for line in failure.lines))
    except OptionError as error:
        return tell(FAILED, f"{command}: {error}{end}")
    except CommandFailed as failure:
        return tell(FAILED, f"{command}: {failure.text}{end}")
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        return exits.reader_gone()


def _help(command: str, rows: Sequence[Row]) -> str:
    lines = [f"Usage: {command} [options] {_REST[command]}", ""]
    lines += [
        f"  {'-' + row.long + ('' if row.kind == FLAG else ' VALUE'):<16} {row.note}"
        for row in rows
        if row.treatment != REFUSED
    ]
    return "\n".join([*lines, "", "All others are refused: docs/guide/moving-from-lsf.md", ""])
