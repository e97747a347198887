"""Every option of every command, once. Parser, `--help` and the reference in docs/ are made from these rows.

Names and meanings are those of sbatch, squeue, ... Invariant: an option of sbatch that is absent here is refused by its
name (REFUSED), unless it means nothing on this system (IGNORED).
"""

from __future__ import annotations

from escli.options import IGNORED, OPTIONAL, REFUSED, Option

EVERY = "essubmit esqueue escancel esinfo esacct esctl esrun eswhy"
FROM_ANYWHERE = "essubmit esqueue escancel esinfo esacct esctl eswhy"
_JOB = "What the job is"
_RESOURCES = "What it needs"
_WHEN = "When it runs"
_FILES = "Files and environment"
_CHOICE = "Which ones"
_SHAPE = "What is shown"
_COMMAND = "This command"
"""The group of options that every command has."""
_OPTIONS = "Options"

PASSED = ("partition", "account", "qos", "comment", "reservation", "no-kill")
"""Options of essubmit whose value the request has, as it was written, in the field of the same name."""


def _rows(commands: str, group: str, *rows: tuple[str, ...], kind: str = "") -> tuple[Option, ...]:
    """Options of these commands under one heading: how each is written, its meaning, an example, and its kind."""
    made = []
    for row in rows:
        usage, meaning, example, own = (*row, "", "", "")[:4]
        names = usage.split(" ")
        short = "" if names[0].startswith("--") else names.pop(0)[1:]
        long, metavar = (*names, "")[:2]
        made.append(Option(commands, long[2:], short, metavar, meaning, own or kind, group, example))
    return tuple(made)


# One row a line (two for a long one), which the formatter would spread.
# fmt: off
ROWS: tuple[Option, ...] = (
    *_rows("essubmit", _JOB,
        ("-J --job-name NAME", "name of the job (the script's name)", "-J fluid"),
        ("-p --partition NAME", "partition to run in (the default one)", "-p short"),
        ("-A --account NAME", "account to charge", "-A physics"),
        ("-q --qos NAME", "class of service (your default one)", "-q urgent"),
        ("--comment TEXT", "a note kept with the job", "--comment 'second try'"),
        ("-a --array TASKS", "run once per task number; %N: at most N at once", "--array 0-15:2%4"),
        ("--wrap COMMAND", "run this shell command instead of a script", "--wrap 'make -j8'"),
    ),
    *_rows("essubmit", _RESOURCES,
        ("-N --nodes N[-MAX]", "number of nodes (as few as fit)", "-N 2-4"),
        ("-n --ntasks N", "number of tasks (1)", "-n 64"),
        ("--ntasks-per-node N", "tasks on each node", "--ntasks-per-node 8"),
        ("-c --cpus-per-task N", "cores for each task (1)", "-c 4"),
        ("--mem SIZE", "memory on each node; K, M (default), G or T", "--mem 4G"),
        ("--mem-per-cpu SIZE", "memory for each core", "--mem-per-cpu 2G"),
        ("--exclusive", "share its nodes with no other job", "", OPTIONAL),
        ("-w --nodelist NODES", "use at least these nodes", "-w cn[001-004]"),
        ("-x --exclude NODES", "use none of these nodes", "-x cn007"),
        ("--gres LIST", "resources on each node: NAME[:TYPE][:N],...", "--gres gpu:a100:2"),
        ("-G --gpus [TYPE:]N", "GPUs of the whole job, shared out evenly over its nodes (with -N) or tasks", "-G 8"),
        ("--gpus-per-node [TYPE:]N", "GPUs on each node", "--gpus-per-node 4"),
        ("--gpus-per-task [TYPE:]N", "GPUs for each task", "--gpus-per-task 1"),
        ("-C --constraint EXPR", "features its nodes must have: a&b, a|b, !a, brackets", "-C 'a100&(ib|!old)'"),
        ("--gateways N", "gateway nodes between the modules of its nodes", "--gateways 2"),
        ("--gateways-per-node N", "daemons on each gateway (1)", "--gateways-per-node 2"),
        ("--gateway-file FILE", "file of the routes over them, an absolute path (eslurm-route-JOB where it runs)",
         "--gateway-file /scratch/run1/routes"),
        ("--gateway-plugin NAME", "choice of a gateway for each pair of nodes (plugin1)", "--gateway-plugin plugin2"),
        ("--gateway-env LIST", "variables of the daemons: NAME=VALUE,...", "--gateway-env PORT=5000"),
        ("--gateway-binary FILE", "daemon to run on the gateways, an absolute path (the site's)",
         "--gateway-binary /opt/relay/bin/forward"),
        ("--gateway-cleanup", "remove the file of routes when the job ends"),
        ("--module NAME", "module that its nodes are in, and the partition of that module if none is named",
         "--module booster"),
        ("-L --licenses LIST", "licences of the whole job: NAME[:N],...", "-L matlab:2"),
        ("--rset RSET", "chunks instead of tasks: [N:]WORD=VALUE[:...][+...][,place=free|pack|scatter[:excl]]",
         "--rset '8:ncpus=2:mem=10g+1:ncpus=16:gpus=2,place=scatter:excl'"),
    ),
    *_rows("essubmit", _WHEN,
        ("-t --time TIME", "time limit: minutes, h:m:s, d-h:m:s or UNLIMITED", "-t 1:30:00"),
        ("-b --begin WHEN", "not before this time", "--begin now+2hours"),
        ("-d --dependency LIST",
         "wait for jobs: after, afterany, afterok, afternotok, aftercorr, singleton; all (,) or any (?)",
         "-d afterok:12:13"),
        ("--priority N", "priority; higher comes first", "--priority 100"),
        ("--nice [=N]", "step back by so much (100); operators may go below 0", "--nice=500", OPTIONAL),
        ("--start-at WHEN", "start exactly then or not at all", "--start-at 08:00"),
        ("--deadline WHEN", "the job must have ended by then", "--deadline now+2days"),
        ("--reservation NAME", "run inside this reservation", "--reservation course"),
        ("--signal [B:]SIG[@S]", "send this signal S seconds (60) before the time limit; B: to the batch shell alone",
         "--signal B:USR1@120"),
        ("--warn-script FILE", "run this beside the job at that time, on its first node", "--warn-script save.sh"),
        ("-H --hold", "do not start before `esctl release`"),
        ("-k --no-kill", "go on without a node that is lost, unless it is the first one"),
        ("--requeue", "may be started again when a node is lost"),
        ("--no-requeue", "never start it a second time"),
    ),
    *_rows("essubmit", _FILES,
        ("-o --output FILE", "standard output: %j job, %A_%a array task, %x name, %N node", "-o run-%j.out"),
        ("-e --error FILE", "standard error (where output goes)", "-e run-%j.err"),
        ("-i --input FILE", "standard input (/dev/null)", "-i data.txt"),
        ("--open-mode append|truncate", "what to do with files that exist (append)", "--open-mode truncate"),
        ("-D --chdir DIR", "run in this directory (the current one)", "-D /scratch/run1"),
        ("--export LIST", "ALL, NONE, or variables: NAME or NAME=VALUE", "--export ALL,DEBUG=1"),
    ),
    *_rows("esrun", _OPTIONS,
        ("-n --ntasks N", "number of tasks (the job's)", "-n 16"),
        ("-N --nodes N", "number of nodes (the job's)", "-N 4"),
        ("-c --cpus-per-task N", "cores for each task (1)", "-c 2"),
        ("--het-group PARTS", "parts of the job to run in (0; with several programs 0, 1, ...)", "--het-group 0,2-3"),
        ("--pack-group PARTS", "as --het-group, its older name", "--pack-group 1"),
        ("-l --label", "begin each line with the number of its task"),
        ("-D --chdir DIR", "run in this directory (the current one)", "-D /scratch/run1"),
        ("-J --job-name NAME", "name of the step (the command's)", "-J solver"),
        ("--jobid JOB", "the job to run in (this one), or its part: 17+1", "--jobid 17"),
        ("-Q --quiet", "say nothing of tasks that fail"),
    ),
    *_rows("esqueue escancel esacct", _CHOICE, ("-u --user USER", "jobs of this user", "-u ada")),
    *_rows("esqueue escancel", _CHOICE, ("--me", "my own jobs")),
    *_rows("esqueue esacct", _CHOICE, ("-j --jobs JOBS", "these jobs: 17, 17_4, 17_[4-6], a part 17+1", "-j 17,18_3")),
    *_rows("esqueue escancel", _CHOICE,
        ("-p --partition NAME", "jobs of this partition", "-p short"),
        ("-n --name NAME", "jobs of this name", "-n fluid"),
    ),
    *_rows("esqueue", _CHOICE, ("-t --states STATES", "jobs in these states, or all", "-t PD,R")),
    *_rows("escancel", _CHOICE, ("-t --state STATE", "jobs in this state", "-t PD")),
    *_rows("esinfo", _CHOICE,
        ("-n --nodes NODES", "these nodes", "-n cn[001-016]"),
        ("-p --partition NAME", "this partition", "-p short"),
        ("-t --states STATES", "nodes in these states", "-t idle,mixed"),
    ),
    *_rows("esacct", _CHOICE,
        ("-s --state STATES", "runs that ended in these states", "-s F,TO"),
        ("-r --partition NAME", "runs in this partition", "-r short"),
        ("--name NAME", "runs of jobs of this name", "--name fluid"),
        ("-S --starttime WHEN", "runs that ended after this (today's midnight; ever, with -j)", "-S now-2days"),
        ("-E --endtime WHEN", "runs that were submitted before this", "-E 2030-01-31"),
        ("--limit N", "at most this many lines (1000)", "--limit 50"),
    ),
    *_rows("esctl", _CHOICE,
        ("-u --user USER",
         "with `audit`: calls of one user, by name or uid; with `token list` and `token revoke`: all of this user's"),
        ("--refused", "with `audit`: refusals only"),
        ("--since WHEN", "with `log export`: facts from then on, what was before as a base (all); with `audit`: lines",
         "--since now-2hours"),
    ),
    *_rows("esqueue", _SHAPE,
        ("-o --format FORMAT", "columns: %i %P %j %u %t %T %M %l %D %C %m %R %r %S %Y %V %e %Q %A %F %K %Z",
         "-o '%.10i %.20j %t %M'"),
        ("-l --long", "more columns"),
        ("--start", "when and where waiting jobs are planned to start"),
        ("-r --array", "one line for each waiting task of an array"),
        ("--parts", "one line for each part of a job of several parts"),
        ("-i --watch SECONDS", "show again and again", "--watch 2"),
    ),
    *_rows("esinfo", _SHAPE,
        ("-N --Node", "one line for each node"),
        ("-l --long", "more columns"),
        ("-R --list-reasons", "nodes out of service, since when and why"),
        ("--modules", "modules, their nodes by state, and which reach each other without gateways"),
        ("--satellites", "the satellites and their states"),
        ("--controllers", "the controllers: which leads, which stand by"),
    ),
    *_rows("esacct", _SHAPE,
        ("-o --format COLUMNS", "columns by name, see --helpformat", "-o jobid,state,elapsed"),
        ("--helpformat", "list the names of all columns"),
        ("-P --parsable2", "columns separated by |"),
    ),
    *_rows("esctl", _SHAPE,
        ("--tree", "with `broadcast`: show its tree"),
        ("--output FILE", "with `log export`: the file to write (eslurm-log-DATE.eslog); with `token create`: for the token",
         "--output incident.eslog"),
        ("--anonymise", "with `log export`: replace the names of users, jobs, nodes and files"),
        ("--format FORMAT", "with `plan`: table, chart or json", "--format chart"),
    ),
    *_rows("eswhy esctl", _SHAPE,
        ("--no-alternatives", "only why, not what would let it start earlier (esctl: with `why`)"),
    ),
    *_rows("esqueue esinfo esacct", _SHAPE, ("-h --noheader", "no header line")),
    *_rows("essubmit", _COMMAND,
        ("--test-only", "say whether and when it could run; submit nothing"),
        ("--parsable", "print the job id alone"),
        ("-W --wait", "wait for the end; the exit code is the job's"),
        ("-Q --quiet", "print nothing but errors"),
    ),
    *_rows("escancel", _COMMAND,
        ("-s --signal SIGNAL", "send a signal instead of ending the job", "-s USR1"),
        ("-Q --quiet", "print nothing but errors"),
    ),
    *_rows("esctl", _COMMAND,
        ("--kill", "with `finish-part`: end its steps by SIGKILL"),
        ("--dry-run", "with `finish-part` and `set-dependency`: only say what would happen"),
        ("--for TIME", "with `token create`: how long it is good (8h)", "--for 2d"),
        ("--scope SCOPE", "with `token create`: read, own-jobs, submit (the default), admin or estimator", "--scope read"),
        ("--role ROLE", "with `node token create`: agent (the default), satellite, login or estimator", "--role agent"),
        ("--nodes NODES", "with `node token create`: hosts of these names only", "--nodes cn[001-100]"),
        ("--uses N", "with `node token create`: how many hosts may join with it (1)", "--uses 100"),
        ("--hours H", "with `node token create`: how long it is good (1)", "--hours 8"),
        ("--fingerprint F", "with `node approve`: what the host itself shows; with `node deny`: only the host with this one",
         "--fingerprint 5f1c..."),
    ),
    *_rows(FROM_ANYWHERE, _COMMAND, ("--json", "print JSON")),
    *_rows(EVERY, _COMMAND,
        ("--socket PATH", "the controller's or the agent's socket; several controllers' as A:B",
         "--socket /run/eslurm/esctld.sock"),
    ),
    *_rows(FROM_ANYWHERE, _COMMAND,
        ("--remote CONTROLLERS", "from another host: the controllers, as HOST:PORT,HOST:PORT",
         "--remote ctl1:6820,ctl2:6820"),
        ("--token-file FILE", "with controllers of another host: who I am (~/.config/eslurm/token)", "--token-file token"),
        ("--tls-ca FILE", "with controllers of another host: certificates of the authorities that vouch for them",
         "--tls-ca ca.pem"),
    ),
    *_rows(EVERY, _COMMAND,
        ("--help", "show this text"),
        ("-V --version", "show the version"),
    ),
    *_rows("essubmit", _OPTIONS,
        ("--mail-type TYPES",),
        ("--mail-user USER",),
        ("--hint TYPE",),
        ("--profile TYPES",),
        kind=IGNORED,
    ),
    *_rows("essubmit", _OPTIONS,
        ("--gpus-per-socket N", "use --gpus-per-node"),
        ("--cpus-per-gpu N", "use --gpus-per-task with --cpus-per-task"),
        ("--mem-per-gpu SIZE", "use --mem, or chunks: --rset"),
        ("-m --distribution KIND", "tasks are dealt in blocks; see --rset place="),
        ("--spread-job", "use -N, or --rset with place=scatter"),
        ("--contiguous", "jobs stay under one switch where they fit"),
        kind=REFUSED,
    ),
)
# fmt: on


def rows_of(command: str) -> tuple[Option, ...]:
    """The rows that apply to a command, in the table's order."""
    return tuple(row for row in ROWS if command in row.commands.split())
