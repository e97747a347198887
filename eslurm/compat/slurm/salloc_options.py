"""The options of salloc, and the variables that give them: those of sbatch that need no script, and its own.

Invariant: as of `sbatch_options`.
"""

from __future__ import annotations

from eslurm.compat.slurm import sbatch_options
from eslurm.compat.slurm.getopt import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_WORDS = (
    "array batch cluster clusters consolidate-segments container container-id error export export-file external-launcher "
    "ignore-pbs input no-requeue open-mode output parsable propagate requeue test-only wait wrap"
)
_OF_SCRIPTS = frozenset(_WORDS.split())
_OWN = table("""
bell . - yes ring the terminal's bell when the nodes are there
clusters M = no an allocation is of the cluster of this host: ask on a host of the other one
immediate I ? yes give up when the nodes are not there at once
kill-command K ? yes a signal for the command when its nodes are taken away
no-bell . - yes never ring the terminal's bell
no-shell . - yes run no command
test-only . - no use sbatch --test-only
wait W = no use --immediate
""")
ROWS = tuple(
    sorted((*(row for row in sbatch_options.ROWS if row.long not in _OF_SCRIPTS), *_OWN), key=lambda row: row.long)
)  # fmt: skip
VARIABLES: Mapping[str, str] = {
    "SALLOC_ACCOUNT": "account",
    "SALLOC_BELL": "bell",
    "SALLOC_CONSTRAINT": "constraint",
    "SALLOC_EXCLUSIVE": "exclusive",
    "SALLOC_GPUS": "gpus",
    "SALLOC_GPUS_PER_NODE": "gpus-per-node",
    "SALLOC_GPUS_PER_TASK": "gpus-per-task",
    "SALLOC_GRES": "gres",
    "SALLOC_IMMEDIATE": "immediate",
    "SALLOC_KILL_CMD": "kill-command",
    "SALLOC_MEM_PER_CPU": "mem-per-cpu",
    "SALLOC_MEM_PER_NODE": "mem",
    "SALLOC_NO_BELL": "no-bell",
    "SALLOC_PARTITION": "partition",
    "SALLOC_QOS": "qos",
    "SALLOC_RESERVATION": "reservation",
    "SALLOC_TIMELIMIT": "time",
    "SALLOC_WCKEY": "wckey",
}
"""Variables of the environment by the option that each gives."""
OPPOSITES: Mapping[str, tuple[str, ...]] = {
    **sbatch_options.OPPOSITES,
    "bell": ("no-bell",),
    "no-bell": ("bell",),
}
"""Options that an option takes back."""
