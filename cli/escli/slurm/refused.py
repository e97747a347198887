"""The commands of Slurm that are not supported: they tell their version, and what is missing."""

from __future__ import annotations

from escli.slurm import frame
from eslurm.compat.slurm.getopt import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

REFUSES_ALL = True
ROWS = table("""
help h - yes show this text
usage . - yes show this text
version V - yes show the version
""")
WHY: Mapping[str, str] = {
    "sstat": "usage of running steps is not collected: see sacct when the job has ended",
}
"""The missing things, and what to use instead."""


def run(context: Context, given: Options) -> int:
    """Refuse whatever is asked."""
    raise frame.Failed(f"{context.command}: error: not supported: {WHY[context.command]}")
