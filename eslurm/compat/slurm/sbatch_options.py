"""The options of sbatch, the variables that give them, and their equivalents among essubmit's options.

Invariant: an option that would change what a job means is taken as sbatch documents it, or refused by its name.
"""

from __future__ import annotations

from eslurm.compat.slurm.getopt import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ROWS = table("""
account A = yes account to charge
acctg-freq . = none how often usage is sampled changes no job
array a = yes run once per task number: 0-15:2%4
autocomplete . = no shells complete without it
batch . = no the script runs on the first node
bb . = no there are no burst buffers
bbf . = no there are no burst buffers
begin b = yes not before this time
chdir D = yes run in this directory
cluster . = as:clusters
cluster-constraint . = no name the cells with -M
clusters M = yes submit to this cluster: this one, or a cell of its federation
comment . = yes a note kept with the job
consolidate-segments . - no there are no segments
constraint C = yes features that its nodes must have
container . = no there are no containers
container-id . = no there are no containers
contiguous . - yes nodes side by side: one node; more cannot be promised
core-spec S = only:0 no cores are set aside on nodes
cores-per-socket . = only:1 each core is a socket
cpu-freq . = no frequencies are not changed
cpus-per-gpu . = yes cores for each GPU
cpus-per-task c = yes cores for each task
deadline . = yes the job must have ended by then
delay-boot . = none nodes are never booted for a job
dependency d = yes wait for other jobs
distribution m = only:block|block:block|block:cyclic tasks are dealt to nodes in blocks
error e = yes file of standard error
exclude x = yes use none of these nodes
exclusive . ? only:|exclusive jobs have their nodes alone, or share them with all
export . = yes variables of the submission that the job gets
export-file . = yes variables for the job, each ended by NUL, from a file or a descriptor
external-launcher . ? no there is no external launcher
extra . = no use --comment
extra-node-info B = yes N[:1[:1]]: as --sockets-per-node
get-user-env . ? no use --export
gid . = yes your own group; no other
gpu-bind . = only:none a task sees all GPUs of its job on its node
gpu-freq . = no frequencies are not changed
gpus G = yes GPUs of the whole job
gpus-per-node . = yes GPUs on each node
gpus-per-socket . = no use --gpus-per-node
gpus-per-task . = yes GPUs for each task
gres . = yes resources on each node
gres-flags . = only:allow-task-sharing|disable-binding a task sees all GPUs of its job on its node
help h - yes show this text
hint . = only:compute_bound|nomultithread a core has one thread: ask for cores with -c
hold H - yes do not start before `scontrol release`
ignore-pbs . - yes #PBS lines mean nothing
input i = yes file of standard input
job-name J = yes name of the job
kill-on-invalid-dep . = only:yes a job whose dependency can never be met is cancelled
licenses L = yes licences of the whole job
mail-type . = yes mail when it begins, ends, fails
mail-user . = yes where that mail goes
mcs-label . = no there are no MCS labels
mem . = yes memory on each node
mem-bind . = only:none|no|q|quiet|v|verbose memory is not bound
mem-per-cpu . = yes memory for each core
mem-per-gpu . = yes memory for each GPU
mincpus . = yes least cores of each node, up to what its tasks have
network . = no there is one network
nice . ? yes step back by so much
no-kill k ? yes go on without a node that is lost
no-requeue . - yes never start it a second time
nodefile F = yes use at least the nodes of this file
nodelist w = yes use at least these nodes
nodes N = yes number of nodes
ntasks n = yes number of tasks
ntasks-per-core . = only:1 a core has one task
ntasks-per-gpu . = yes tasks for each GPU
ntasks-per-node . = yes tasks on each node
ntasks-per-socket . = only:1 each core is a socket: use --ntasks-per-node
ntasks-per-tres . = no use --gpus-per-task
oom-kill-step . ? no the kernel chooses what it ends
open-mode . = yes append to files that exist, or truncate them
output o = yes file of standard output
overcommit O - no a core has one task
oversubscribe s - none partitions share no core between jobs, as with OverSubscribe=NO
parsable . - yes print the job's id alone
partition p = yes partition to run in
power . = no power is not managed
prefer . = no use --constraint
priority . = yes priority
profile . = only:none tasks are not profiled
propagate . ? yes soft limits that the script has from here
qos q = yes class of service
quiet Q - yes print errors only
reboot . - no nodes are never booted for a job
requeue . - yes may be started again
reservation . = yes run inside this reservation
resources . = no use --gres
resv-ports . ? no ports are not managed
runtime . = no there are no containers
segment . = no there are no segments
signal . = yes a signal before the time limit
sockets-per-node . = yes as --mincpus: each core is a socket
spread-job . - no use -N
spread-segments . - no there are no segments
stepmgr . - none steps are managed by the controller
switches . = yes at least as many switches as nodes; fewer cannot be promised
tasks-per-node . = as:ntasks-per-node
test-only . - yes say when the job would start, and submit nothing
thread-spec . = only:0 no cores are set aside on nodes
threads-per-core . = only:1 a core has one thread
time t = yes time limit
time-min . = yes least time limit: a job always has all of --time
tmp . = no local disks are not managed
tres-bind . = no a task sees all GPUs of its job on its node
tres-per-task . = no use --gpus-per-task
uid . = yes yourself; no other user
umask . = no the job has the umask of its submission
usage . - yes show this text
use-min-nodes . - none a job has as few nodes as fit
verbose v - none
version V - yes show the version
wait W - yes wait for the job's end
wait-all-nodes . = only:0|1 a script starts when all its nodes are ready
wckey . = yes a word kept with the job
wrap . = yes run this shell command
x11 . ? no displays are not forwarded
""")

VARIABLES: Mapping[str, str] = {
    **{f"SBATCH_{row.long.replace('-', '_').upper()}": row.long for row in ROWS if row.long not in (
        "help", "usage", "version", "parsable", "test-only", "wrap", "nodes", "ntasks", "nodelist", "exclude", "chdir",
        "begin", "dependency", "comment", "array", "time", "mem", "verbose", "quiet", "licenses", "hold", "nice",
        "priority", "deadline", "cpus-per-task", "ntasks-per-node", "tasks-per-node", "mail-type", "mail-user", "uid",
        "gid", "propagate", "nodefile", "prefer", "export-file", "test-only", "tmp", "mincpus", "switches", "umask",
        "ntasks-per-gpu", "ntasks-per-core", "ntasks-per-socket", "ntasks-per-tres", "time-min", "contiguous",
        "autocomplete", "cluster", "kill-on-invalid-dep", "x11", "oversubscribe",
    )},
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_BURST_BUFFER": "bb",
    "SBATCH_CPU_FREQ_REQ": "cpu-freq",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_REQ_SWITCH": "switches",
    "SBATCH_WAIT4SWITCH": "switches",
    "SBATCH_SEGMENT_SIZE": "segment",
    "SBATCH_TIMELIMIT": "time",
    "SLURM_CLUSTERS": "clusters",
    "SLURM_HINT": "hint",
}  # fmt: skip
"""Variables of the environment by the option that each gives."""
OPPOSITES: Mapping[str, tuple[str, ...]] = {
    "requeue": ("no-requeue",),
    "no-requeue": ("requeue",),
    "mem": ("mem-per-cpu", "mem-per-gpu"),
    "mem-per-cpu": ("mem", "mem-per-gpu"),
    "mem-per-gpu": ("mem", "mem-per-cpu"),
    "nodelist": ("nodefile",),
    "nodefile": ("nodelist",),
}
"""Options that an option takes back."""
SHAPES = (
    *("ntasks-per-gpu", "cpus-per-gpu", "mem-per-gpu"),
    *("mincpus", "sockets-per-node", "extra-node-info", "switches", "contiguous", "time-min"),
)
"""Options that become others of the same meaning, in this order: later ones count tasks and cores of earlier ones."""
HERE = frozenset(
    {
        "clusters",
        "parsable",
        "quiet",
        "test-only",
        "wait",
        "wrap",
        "nodefile",
        "ignore-pbs",
        "nodelist",
        "exclude",
    }
    | {
        "contiguous",
        "cpus-per-gpu",
        "extra-node-info",
        "mem-per-gpu",
        "mincpus",
        "ntasks-per-gpu",
        "sockets-per-node",
    }
    | {"export-file", "gid", "switches", "time-min", "uid"}
    | {"open-mode", "export", "no-kill", "gres", "signal", "wckey", "exclusive", "constraint", "comment"}
)
"""Options that the command itself reads or changes before essubmit's code does."""
