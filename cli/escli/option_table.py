"""Every option of every command, once. Parser, `--help` and the reference in docs/ are made from these rows.

Names and meanings are sbatch's, squeue's, ... wherever the meaning is the same.
"""

from __future__ import annotations

from escli.options import Option
from escli.submit_options import COMMAND, SUBMIT_ROWS

EVERY = "essubmit esqueue escancel esinfo esacct esctl esrun eswhy"
FROM_ANYWHERE = "essubmit esqueue escancel esinfo esacct esctl eswhy"
_CHOICE = "Which ones"
_SHAPE = "What is shown"

ROWS: tuple[Option, ...] = (
    *SUBMIT_ROWS,
    # ---- esrun ----
    Option("esrun", "ntasks", "n", "N", "number of tasks (the job's)", example="-n 16"),
    Option("esrun", "nodes", "N", "N", "number of nodes (the job's)", example="-N 4"),
    Option("esrun", "cpus-per-task", "c", "N", "cores for each task (1)", example="-c 2"),
    Option("esrun", "label", "l", "", "begin each line with the number of its task"),
    Option(
        "esrun", "chdir", "D", "DIR", "run in this directory (the current one)", example="-D /scratch/run1"
    ),
    Option("esrun", "job-name", "J", "NAME", "name of the step (the command's)", example="-J solver"),
    Option("esrun", "jobid", "", "JOB", "the job to run in (this one)", example="--jobid 17"),
    Option("esrun", "quiet", "Q", "", "say nothing of tasks that fail"),
    # ---- esqueue ----
    Option(
        "esqueue escancel esacct", "user", "u", "USER", "jobs of this user", group=_CHOICE, example="-u ada"
    ),
    Option("esqueue escancel", "me", "", "", "my own jobs", group=_CHOICE),
    Option(
        "esqueue esacct",
        "jobs",
        "j",
        "JOBS",
        "these jobs: 17, 17_4, 17_[4-6]",
        group=_CHOICE,
        example="-j 17,18_3",
    ),
    Option(
        "esqueue escancel",
        "partition",
        "p",
        "NAME",
        "jobs of this partition",
        group=_CHOICE,
        example="-p short",
    ),
    Option("esqueue escancel", "name", "n", "NAME", "jobs of this name", group=_CHOICE, example="-n fluid"),
    Option(
        "esqueue", "states", "t", "STATES", "jobs in these states, or all", group=_CHOICE, example="-t PD,R"
    ),
    Option(
        "esqueue",
        "format",
        "o",
        "FORMAT",
        "columns: %i %P %j %u %t %T %M %l %D %C %m %R %r %S %Y %V %e %Q %A %F %K %Z",
        group=_SHAPE,
        example="-o '%.10i %.20j %t %M'",
    ),
    Option("esqueue", "long", "l", "", "more columns", group=_SHAPE),
    Option("esqueue", "start", "", "", "when and where waiting jobs are planned to start", group=_SHAPE),
    Option("esqueue", "array", "r", "", "one line for each waiting task of an array", group=_SHAPE),
    Option("esqueue", "watch", "i", "SECONDS", "show again and again", group=_SHAPE, example="--watch 2"),
    # ---- escancel ----
    Option("escancel", "state", "t", "STATE", "jobs in this state", group=_CHOICE, example="-t PD"),
    Option(
        "escancel",
        "signal",
        "s",
        "SIGNAL",
        "send a signal instead of ending the job",
        group=COMMAND,
        example="-s USR1",
    ),
    Option("escancel", "quiet", "Q", "", "print nothing but errors", group=COMMAND),
    # ---- esinfo ----
    Option("esinfo", "nodes", "n", "NODES", "these nodes", group=_CHOICE, example="-n cn[001-016]"),
    Option("esinfo", "partition", "p", "NAME", "this partition", group=_CHOICE, example="-p short"),
    Option(
        "esinfo", "states", "t", "STATES", "nodes in these states", group=_CHOICE, example="-t idle,mixed"
    ),
    Option("esinfo", "Node", "N", "", "one line for each node", group=_SHAPE),
    Option("esinfo", "long", "l", "", "more columns", group=_SHAPE),
    Option("esinfo", "list-reasons", "R", "", "nodes out of service, since when and why", group=_SHAPE),
    Option("esinfo", "satellites", "", "", "the satellites and their states", group=_SHAPE),
    Option("esinfo", "controllers", "", "", "the controllers: which leads, which stand by", group=_SHAPE),
    # ---- esacct ----
    Option(
        "esacct", "state", "s", "STATES", "runs that ended in these states", group=_CHOICE, example="-s F,TO"
    ),
    Option("esacct", "partition", "r", "NAME", "runs in this partition", group=_CHOICE, example="-r short"),
    Option("esacct", "name", "", "NAME", "runs of jobs of this name", group=_CHOICE, example="--name fluid"),
    Option(
        "esacct",
        "starttime",
        "S",
        "WHEN",
        "runs that ended after this (today's midnight; ever, with -j)",
        group=_CHOICE,
        example="-S now-2days",
    ),
    Option(
        "esacct",
        "endtime",
        "E",
        "WHEN",
        "runs that were submitted before this",
        group=_CHOICE,
        example="-E 2030-01-31",
    ),
    Option("esacct", "limit", "", "N", "at most this many lines (1000)", group=_CHOICE, example="--limit 50"),
    Option(
        "esacct",
        "format",
        "o",
        "COLUMNS",
        "columns by name, see --helpformat",
        group=_SHAPE,
        example="-o jobid,state,elapsed",
    ),
    Option("esacct", "helpformat", "", "", "list the names of all columns", group=_SHAPE),
    Option("esacct", "parsable2", "P", "", "columns separated by |", group=_SHAPE),
    # ---- esctl ----
    Option(
        "esctl",
        "user",
        "u",
        "USER",
        "with `audit`: calls of one user, by name or uid; with `token list` and `token revoke`: all of this user's",
        group=_CHOICE,
    ),
    Option("esctl", "refused", "", "", "with `audit`: refusals only", group=_CHOICE),
    Option("esctl", "tree", "", "", "with `broadcast`: show its tree", group=_SHAPE),
    Option(
        "esctl",
        "since",
        "",
        "WHEN",
        "with `log export`: facts from then on, what was before as a base (all); with `audit`: lines",
        group=_CHOICE,
        example="--since now-2hours",
    ),
    Option(
        "esctl",
        "output",
        "",
        "FILE",
        "with `log export`: the file to write (eslurm-log-DATE.eslog); with `token create`: for the token",
        group=_SHAPE,
        example="--output incident.eslog",
    ),
    Option(
        "esctl",
        "anonymise",
        "",
        "",
        "with `log export`: replace the names of users, jobs, nodes and files",
        group=_SHAPE,
    ),
    Option(
        "esctl",
        "format",
        "",
        "FORMAT",
        "with `plan`: table, chart or json",
        group=_SHAPE,
        example="--format chart",
    ),
    Option(
        "esctl",
        "for",
        "",
        "TIME",
        "with `token create`: how long it is good (8h)",
        group=COMMAND,
        example="--for 2d",
    ),
    Option(
        "esctl",
        "scope",
        "",
        "SCOPE",
        "with `token create`: read, own-jobs, submit (the default), admin or estimator",
        group=COMMAND,
        example="--scope read",
    ),
    Option(
        "esctl",
        "role",
        "",
        "ROLE",
        "with `node token create`: agent (the default), satellite, login or estimator",
        group=COMMAND,
        example="--role agent",
    ),
    Option(
        "esctl",
        "nodes",
        "",
        "NODES",
        "with `node token create`: hosts of these names only",
        group=COMMAND,
        example="--nodes cn[001-100]",
    ),
    Option(
        "esctl",
        "uses",
        "",
        "N",
        "with `node token create`: how many hosts may join with it (1)",
        group=COMMAND,
        example="--uses 100",
    ),
    Option(
        "esctl",
        "hours",
        "",
        "H",
        "with `node token create`: how long it is good (1)",
        group=COMMAND,
        example="--hours 8",
    ),
    Option(
        "esctl",
        "fingerprint",
        "",
        "F",
        "with `node approve`: what the host itself shows; with `node deny`: only the host with this one",
        group=COMMAND,
        example="--fingerprint 5f1c...",
    ),
    # ---- eswhy ----
    Option(
        "eswhy esctl",
        "no-alternatives",
        "",
        "",
        "only why, not what would let it start earlier (esctl: with `why`)",
        group=_SHAPE,
    ),
    # ---- several ----
    Option("esqueue esinfo esacct", "noheader", "h", "", "no header line", group=_SHAPE),
    Option(
        "essubmit esqueue escancel esinfo esacct esctl eswhy", "json", "", "", "print JSON", group=COMMAND
    ),
    Option(
        EVERY,
        "socket",
        "",
        "PATH",
        "the controller's or the agent's socket; several controllers' as A:B",
        group=COMMAND,
        example="--socket /run/eslurm/esctld.sock",
    ),
    Option(
        FROM_ANYWHERE,
        "remote",
        "",
        "CONTROLLERS",
        "from another host: the controllers, as HOST:PORT,HOST:PORT",
        group=COMMAND,
        example="--remote ctl1:6820,ctl2:6820",
    ),
    Option(
        FROM_ANYWHERE,
        "token-file",
        "",
        "FILE",
        "with controllers of another host: who I am (~/.config/eslurm/token)",
        group=COMMAND,
        example="--token-file token",
    ),
    Option(
        FROM_ANYWHERE,
        "tls-ca",
        "",
        "FILE",
        "with controllers of another host: certificates of the authorities that vouch for them",
        group=COMMAND,
        example="--tls-ca ca.pem",
    ),
    Option(EVERY, "help", "", "", "show this text", group=COMMAND),
    Option(EVERY, "version", "V", "", "show the version", group=COMMAND),
)


def rows_of(command: str) -> tuple[Option, ...]:
    """The rows that apply to a command, in the table's order."""
    return tuple(row for row in ROWS if command in row.commands.split())
