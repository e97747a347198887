"""The options of srun inside a job; outside of one it is not supported at all."""

from __future__ import annotations

from eslurm.compat.slurm.getopt import table

ROWS = table("""
chdir D = yes run in this directory
cpu-bind . = only:none|no|q|quiet|v|verbose tasks are not bound to cores
cpu_bind . = as:cpu-bind
cpus-per-task c = yes cores for each task
error e = yes file of standard error
exact . - no a step has cores by -n and -c
exclusive . ? no a step has cores by -n and -c
export . = only:all the tasks get the environment of srun
het-group . = yes parts of the job to run in
help h - yes show this text
input i = no tasks have no standard input
job-name J = yes name of the step
jobid . = yes the job to run in
kill-on-bad-exit K ? no the step ends when all its tasks have ended
label l - yes begin each line with the number of its task
mem . = no a step has the memory of its job
mem-bind . = only:none|no|q|quiet|v|verbose memory is not bound
mem-per-cpu . = no a step has the memory of its job
mpi . = only:none there is no interface of MPI
nodelist w = no nodes of a step are chosen by -N
nodes N = yes number of nodes
ntasks n = yes number of tasks
ntasks-per-node . = no use -N with -n
open-mode . = yes append to files that exist, or truncate them
output o = yes file of standard output
overlap . ? no a step has cores by -n and -c
pack-group . = as:het-group
pty . ? no tasks have no terminal
quiet Q - yes say nothing of tasks that fail
time t = no a step has the time of its job
unbuffered u - none output is passed on as it comes
usage . - yes show this text
verbose v - none
version V - yes show the version
wait W = only:0 the step ends when all its tasks have ended
""")
"""Options that are not here are refused by their name, as are all others of srun."""
