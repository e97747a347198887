"""`eswhy JOB`: a job's waiting reasons, its expected start, and alternatives that start earlier."""

from __future__ import annotations

from escli import exits, program
from escli.open_api import open_api
from escli.user.why import why
from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from escli.options import Words

COMMAND = "eswhy"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return program.run(COMMAND, _tell, argv)


def _tell(given: Words) -> int:
    if not given.rest:
        raise OptionError("JOB", None, "is missing", "use e.g. eswhy 17; esqueue lists the jobs that wait")
    with open_api(given, COMMAND) as api:
        why(api, given.rest, given)
    return exits.OK
