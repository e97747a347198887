"""The options of srun, and the variables that give them outside of jobs, where it asks for the nodes of its step.

Invariant: as of `sbatch_options`.
"""

from __future__ import annotations

from eslurm.compat.slurm import sbatch_options
from eslurm.compat.slurm.getopt import Row, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_WORDS = (
    "account begin comment constraint deadline dependency exclude exclusive gpus gpus-per-node gpus-per-task gres hold "
    "licenses mail-type mail-user mem mem-per-cpu nice no-kill nodefile ntasks-per-node partition priority qos "
    "reservation signal time wckey"
)
_OF_JOBS = frozenset(_WORDS.split())
_OWN = table("""
chdir D = yes run in this directory
cpu-bind . = yes CPUs of each task: none, cores, threads, sockets, ldoms, rank, map_cpu:LIST, mask_cpu:LIST
cpu_bind . = as:cpu-bind
cpus-per-task c = yes cores for each task
distribution m = only:block|block:block|block:cyclic tasks are dealt to nodes in blocks
error e = yes file of standard error
exact . - yes the step takes the cores of its tasks, not all of its nodes
export . = yes variables of the tasks
external-launcher . - as:overlap
het-group . = yes parts of the job to run in (inside jobs)
help h - yes show this text
input i = yes all, none, the number of a task, or a file
job-name J = yes name of the step
jobid . = yes the job to run in
kill-on-bad-exit K ? yes a task that fails ends all others
label l - yes begin each line with the number of its task
mem-bind . = only:none|no|q|quiet|v|verbose memory is not bound
mpi . = yes the tasks are one MPI program: pmi2, pmix, none, or list
multi-prog . - yes the command is a file that says which task runs which program
nodelist w = yes these nodes of the job; outside of jobs at least these
nodes N = yes number of nodes
ntasks n = yes number of tasks
open-mode . = yes append to files that exist, or truncate them
output o = yes file of standard output
overlap . - yes the step shares the cores of other steps, and never waits
pack-group . = as:het-group
propagate . ? yes soft limits that tasks have from here
pty . - yes task 0 has a terminal, which is this one
quit-on-interrupt . - yes one Ctrl-C ends the step
quiet Q - yes say nothing of tasks that fail
tasks-per-node . = as:ntasks-per-node
unbuffered u - yes show output as it comes, not by lines
usage . - yes show this text
verbose v - none
version V - yes show the version
wait W = yes end all tasks so long after the first end
""")
_IMMEDIATE = Row("immediate", "I", "?", "yes", "give up when the nodes are not there at once")
_OUTSIDE = (*(row for row in sbatch_options.ROWS if row.long in _OF_JOBS), _IMMEDIATE)
OUTSIDE = frozenset(row.long for row in _OUTSIDE)
"""Options that ask for nodes: outside of jobs only."""
ROWS = tuple(
    sorted(
        (
            *_OWN,
            *(
                Row(row.long, row.short, row.kind, row.treatment, f"{row.note} (outside of jobs)")
                for row in _OUTSIDE
            ),
        ),
        key=lambda row: row.long,
    )
)
"""Options that are not here are refused by their name, as are all others of srun."""
OF_STEPS: Mapping[str, str] = {
    "SLURM_EXACT": "exact",
    "SLURM_OVERLAP": "overlap",
}
"""Variables that give an option of a step inside a job, unless another one of these is given."""
VARIABLES: Mapping[str, str] = {
    "SLURM_ACCOUNT": "account",
    "SLURM_CONSTRAINT": "constraint",
    "SLURM_CPUS_PER_TASK": "cpus-per-task",
    "SLURM_DEPENDENCY": "dependency",
    "SLURM_EXCLUSIVE": "exclusive",
    "SLURM_GPUS": "gpus",
    "SLURM_GPUS_PER_NODE": "gpus-per-node",
    "SLURM_GPUS_PER_TASK": "gpus-per-task",
    "SLURM_GRES": "gres",
    "SLURM_IMMEDIATE": "immediate",
    "SLURM_JOB_NAME": "job-name",
    "SLURM_MEM_PER_CPU": "mem-per-cpu",
    "SLURM_MEM_PER_NODE": "mem",
    "SLURM_NNODES": "nodes",
    "SLURM_NPROCS": "ntasks",
    "SLURM_NTASKS": "ntasks",
    "SLURM_NTASKS_PER_NODE": "ntasks-per-node",
    "SLURM_PARTITION": "partition",
    "SLURM_QOS": "qos",
    "SLURM_RESERVATION": "reservation",
    "SLURM_TIMELIMIT": "time",
    "SLURM_WCKEY": "wckey",
}
"""Variables of the environment by the option that each gives outside of jobs."""
