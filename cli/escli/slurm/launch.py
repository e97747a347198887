"""Entry of the installed launchers: chooses the command's module by its name, so that each command loads its own alone."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MODULES = {
    "sbatch": "escli.slurm.sbatch",
    "squeue": "escli.slurm.squeue",
    "sacct": "escli.slurm.sacct",
    "scancel": "escli.slurm.scancel",
    "sinfo": "escli.slurm.sinfo",
    "scontrol": "escli.slurm.scontrol",
    "srun": "escli.slurm.srun",
    "salloc": "escli.slurm.salloc",
    "sstat": "escli.slurm.sstat",
    "sattach": "escli.slurm.sattach",
    "sbcast": "escli.slurm.sbcast",
    "sacctmgr": "escli.slurm.sacctmgr",
    "sprio": "escli.slurm.sprio",
    "sshare": "escli.slurm.sshare",
    "sdiag": "escli.slurm.sdiag",
    "sreport": "escli.slurm.sreport",
    "scrontab": "escli.slurm.scrontab",
    "strigger": "escli.slurm.strigger",
    "seff": "escli.slurm.seff",
}
COMMANDS = tuple(MODULES)
"""The commands that are installed."""


def main(
    command: str, argv: Sequence[str] | None = None, *, socket: str = "", remote: str = "", release: str = ""
) -> int:
    """Run a command; returns the exit code. `socket` or `remote` is the cluster unless the environment names one."""
    from importlib import import_module

    from escli.slurm import frame

    context = frame.Context(command, socket=socket, remote=remote, release=release)
    module = import_module(MODULES[command])
    return frame.run(context, module, sys.argv[1:] if argv is None else argv)
