"""Entry of the installed launchers of PBS's commands; failures are one line, as PBS's are."""

from __future__ import annotations

import sys

from escli import exits
from escli.failures import CommandFailed
from escli.slurm.frame import Context, Failed, check_supported, tell
from eslurm import __version__
from eslurm.compat.errors import OptionError
from eslurm.compat.slurm.getopt import FLAG, REFUSED, Parser, UsageProblem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from eslurm.compat.slurm.getopt import Row

MODULES = {"qsub": "escli.pbs.qsub", "qstat": "escli.pbs.qstat", "qdel": "escli.pbs.qdel"}
COMMANDS = tuple(MODULES)
UNKNOWN_JOB = 153
"""PBS's exit code for a job that it does not know."""
FINISHED_JOB = 35
"""PBS's exit code for a job that has ended."""


def main(command: str, argv: Sequence[str] | None = None, *, socket: str = "", remote: str = "") -> int:
    """Run a command; returns the exit code. `socket` or `remote` is the cluster unless the environment names one."""
    from importlib import import_module

    context = Context(command, socket=socket, remote=remote)
    try:
        module = import_module(MODULES[command])
        given = Parser(module.ROWS, stops=True).parse(sys.argv[1:] if argv is None else argv)
        if given.has("version"):
            sys.stdout.write(f"eslurm {__version__}\n")
            return exits.OK
        if given.has("help"):
            sys.stdout.write(_help(command, module.ROWS))
            return exits.OK
        check_supported(given.found)
        code: int = module.run(context, given)
        sys.stdout.flush()
        return code
    except UsageProblem as problem:
        return tell(exits.USAGE, f"{command}: {problem.text}: see {command} --help")
    except Failed as failure:
        return tell(failure.code, *(f"{command}: {line}" for line in failure.lines))
    except OptionError as error:
        return tell(exits.USAGE, f"{command}: {error}")
    except CommandFailed as failure:
        return tell(failure.code, f"{command}: {failure.text}")
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        return exits.reader_gone()


def _help(command: str, rows: Sequence[Row]) -> str:
    lines = [f"Usage: {command} [options] {'[script]' if command == 'qsub' else '[job ...]'}", ""]
    lines += [
        f"  {row.spelling + ('' if row.kind == FLAG else ' VALUE'):<12} {row.note}"
        for row in rows
        if row.treatment != REFUSED
    ]
    return "\n".join([*lines, "", "All others are refused: docs/guide/moving-from-pbs.md", ""])
