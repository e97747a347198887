"""Data of the submitting process that a job gets: its directory, its umask, its environment variables."""

from __future__ import annotations

import os

from escli import clock
from escli.user.draft import SubmitContext
from escli.user.exporting import exported
from eslurm.compat.resource_limits import propagated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from escli.options import Words


def submit_context(options: Words) -> SubmitContext:
    """The data of this process. Raises OptionError, and FileNotFoundError when its directory does not exist any more."""
    umask = os.umask(0o077)
    os.umask(umask)
    return SubmitContext(
        cwd=os.getcwd(),
        host=os.uname().nodename,
        umask=umask,
        now_us=clock.now_us(),
        offset_s=clock.local_offset_s,
        environment=exported(options.text("export", "ALL"), os.environ, options.spelling("export"))
        | propagated(options.text("propagate"), options.spelling("propagate")),
    )
