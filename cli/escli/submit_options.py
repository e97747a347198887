"""The options of essubmit, in the order in which help shows them: the first part of the option table.

Names and meanings are sbatch's. Invariant: what sbatch has and is not here is refused by name, never passed over, but
for what means nothing on this system (IGNORED).
"""

from __future__ import annotations

from escli.options import IGNORED, OPTIONAL, REFUSED, Option

_JOB = "What the job is"
_RESOURCES = "What it needs"
_WHEN = "When it runs"
_FILES = "Files and environment"
COMMAND = "This command"
"""The group of options that every command has."""

SUBMIT_ROWS: tuple[Option, ...] = (
    # ---- the job ----
    Option(
        "essubmit",
        "job-name",
        "J",
        "NAME",
        "name of the job (the script's name)",
        group=_JOB,
        example="-J fluid",
    ),
    Option(
        "essubmit",
        "partition",
        "p",
        "NAME",
        "partition to run in (the default one)",
        group=_JOB,
        example="-p short",
    ),
    Option("essubmit", "account", "A", "NAME", "account to charge", group=_JOB, example="-A physics"),
    Option(
        "essubmit", "qos", "q", "NAME", "class of service (your default one)", group=_JOB, example="-q urgent"
    ),
    Option(
        "essubmit",
        "comment",
        "",
        "TEXT",
        "a note kept with the job",
        group=_JOB,
        example="--comment 'second try'",
    ),
    Option(
        "essubmit",
        "array",
        "a",
        "TASKS",
        "run once per task number; %N: at most N at once",
        group=_JOB,
        example="--array 0-15:2%4",
    ),
    Option(
        "essubmit",
        "wrap",
        "",
        "COMMAND",
        "run this shell command instead of a script",
        group=_JOB,
        example="--wrap 'make -j8'",
    ),
    # ---- resources ----
    Option(
        "essubmit",
        "nodes",
        "N",
        "N[-MAX]",
        "number of nodes (as few as fit)",
        group=_RESOURCES,
        example="-N 2-4",
    ),
    Option("essubmit", "ntasks", "n", "N", "number of tasks (1)", group=_RESOURCES, example="-n 64"),
    Option(
        "essubmit",
        "ntasks-per-node",
        "",
        "N",
        "tasks on each node",
        group=_RESOURCES,
        example="--ntasks-per-node 8",
    ),
    Option(
        "essubmit", "cpus-per-task", "c", "N", "cores for each task (1)", group=_RESOURCES, example="-c 4"
    ),
    Option(
        "essubmit",
        "mem",
        "",
        "SIZE",
        "memory on each node; K, M (default), G or T",
        group=_RESOURCES,
        example="--mem 4G",
    ),
    Option(
        "essubmit",
        "mem-per-cpu",
        "",
        "SIZE",
        "memory for each core",
        group=_RESOURCES,
        example="--mem-per-cpu 2G",
    ),
    Option(
        "essubmit", "exclusive", "", "", "share its nodes with no other job", group=_RESOURCES, kind=OPTIONAL
    ),
    Option(
        "essubmit",
        "nodelist",
        "w",
        "NODES",
        "use at least these nodes",
        group=_RESOURCES,
        example="-w cn[001-004]",
    ),
    Option(
        "essubmit", "exclude", "x", "NODES", "use none of these nodes", group=_RESOURCES, example="-x cn007"
    ),
    Option(
        "essubmit",
        "gres",
        "",
        "LIST",
        "resources on each node: NAME[:TYPE][:N],...",
        group=_RESOURCES,
        example="--gres gpu:a100:2",
    ),
    Option(
        "essubmit",
        "gpus",
        "G",
        "[TYPE:]N",
        "GPUs of the whole job, shared out evenly over its nodes (with -N) or tasks",
        group=_RESOURCES,
        example="-G 8",
    ),
    Option(
        "essubmit",
        "gpus-per-node",
        "",
        "[TYPE:]N",
        "GPUs on each node",
        group=_RESOURCES,
        example="--gpus-per-node 4",
    ),
    Option(
        "essubmit",
        "gpus-per-task",
        "",
        "[TYPE:]N",
        "GPUs for each task",
        group=_RESOURCES,
        example="--gpus-per-task 1",
    ),
    Option(
        "essubmit",
        "constraint",
        "C",
        "EXPR",
        "features its nodes must have: a&b, a|b, !a, brackets",
        group=_RESOURCES,
        example="-C 'a100&(ib|!old)'",
    ),
    Option(
        "essubmit",
        "licenses",
        "L",
        "LIST",
        "licences of the whole job: NAME[:N],...",
        group=_RESOURCES,
        example="-L matlab:2",
    ),
    Option(
        "essubmit",
        "rset",
        "",
        "RSET",
        "chunks instead of tasks: [N:]WORD=VALUE[:...][+...][,place=free|pack|scatter[:excl]]",
        group=_RESOURCES,
        example="--rset '8:ncpus=2:mem=10g+1:ncpus=16:gpus=2,place=scatter:excl'",
    ),
    # ---- time and order ----
    Option(
        "essubmit",
        "time",
        "t",
        "TIME",
        "time limit: minutes, h:m:s, d-h:m:s or UNLIMITED",
        group=_WHEN,
        example="-t 1:30:00",
    ),
    Option(
        "essubmit", "begin", "b", "WHEN", "not before this time", group=_WHEN, example="--begin now+2hours"
    ),
    Option(
        "essubmit",
        "dependency",
        "d",
        "LIST",
        "wait for jobs: after, afterany, afterok, afternotok, aftercorr, singleton",
        group=_WHEN,
        example="-d afterok:12:13",
    ),
    Option(
        "essubmit", "priority", "", "N", "priority; higher comes first", group=_WHEN, example="--priority 100"
    ),
    Option(
        "essubmit",
        "nice",
        "",
        "[=N]",
        "step back by so much (100); operators may go below 0",
        group=_WHEN,
        kind=OPTIONAL,
        example="--nice=500",
    ),
    Option(
        "essubmit",
        "start-at",
        "",
        "WHEN",
        "start exactly then or not at all",
        group=_WHEN,
        example="--start-at 08:00",
    ),
    Option(
        "essubmit",
        "deadline",
        "",
        "WHEN",
        "the job must have ended by then",
        group=_WHEN,
        example="--deadline now+2days",
    ),
    Option(
        "essubmit",
        "reservation",
        "",
        "NAME",
        "run inside this reservation",
        group=_WHEN,
        example="--reservation course",
    ),
    Option(
        "essubmit",
        "signal",
        "",
        "[B:]SIG[@S]",
        "send this signal S seconds (60) before the time limit; B: to the batch shell alone",
        group=_WHEN,
        example="--signal B:USR1@120",
    ),
    Option(
        "essubmit",
        "warn-script",
        "",
        "FILE",
        "run this beside the job at that time, on its first node",
        group=_WHEN,
        example="--warn-script save.sh",
    ),
    Option("essubmit", "hold", "H", "", "do not start before `esctl release`", group=_WHEN),
    Option("essubmit", "requeue", "", "", "may be started again when a node is lost", group=_WHEN),
    Option("essubmit", "no-requeue", "", "", "never start it a second time", group=_WHEN),
    # ---- files ----
    Option(
        "essubmit",
        "output",
        "o",
        "FILE",
        "standard output: %j job, %A_%a array task, %x name, %N node",
        group=_FILES,
        example="-o run-%j.out",
    ),
    Option(
        "essubmit",
        "error",
        "e",
        "FILE",
        "standard error (where output goes)",
        group=_FILES,
        example="-e run-%j.err",
    ),
    Option(
        "essubmit", "input", "i", "FILE", "standard input (/dev/null)", group=_FILES, example="-i data.txt"
    ),
    Option(
        "essubmit",
        "open-mode",
        "",
        "append|truncate",
        "what to do with files that exist (append)",
        group=_FILES,
        example="--open-mode truncate",
    ),
    Option(
        "essubmit",
        "chdir",
        "D",
        "DIR",
        "run in this directory (the current one)",
        group=_FILES,
        example="-D /scratch/run1",
    ),
    Option(
        "essubmit",
        "export",
        "",
        "LIST",
        "ALL, NONE, or variables: NAME or NAME=VALUE",
        group=_FILES,
        example="--export ALL,DEBUG=1",
    ),
    # ---- this command ----
    Option(
        "essubmit", "test-only", "", "", "say whether and when it could run; submit nothing", group=COMMAND
    ),
    Option("essubmit", "parsable", "", "", "print the job id alone", group=COMMAND),
    Option("essubmit", "wait", "W", "", "wait for the end; the exit code is the job's", group=COMMAND),
    Option("essubmit", "quiet", "Q", "", "print nothing but errors", group=COMMAND),
    # ---- Slurm's that mean nothing here, and those that must not be dropped ----
    Option("essubmit", "mail-type", "", "TYPES", kind=IGNORED),
    Option("essubmit", "mail-user", "", "USER", kind=IGNORED),
    Option("essubmit", "hint", "", "TYPE", kind=IGNORED),
    Option("essubmit", "profile", "", "TYPES", kind=IGNORED),
    Option("essubmit", "gpus-per-socket", "", "N", "use --gpus-per-node", kind=REFUSED),
    Option("essubmit", "cpus-per-gpu", "", "N", "use --gpus-per-task with --cpus-per-task", kind=REFUSED),
    Option("essubmit", "mem-per-gpu", "", "SIZE", "use --mem, or chunks: --rset", kind=REFUSED),
    Option(
        "essubmit", "distribution", "m", "KIND", "tasks are dealt in blocks; see --rset place=", kind=REFUSED
    ),
    Option("essubmit", "spread-job", "", "", "use -N, or --rset with place=scatter", kind=REFUSED),
    Option("essubmit", "contiguous", "", "", "jobs stay under one switch where they fit", kind=REFUSED),
)
