"""Every option of every command, once. Parser, `--help` and the reference in docs/ are made from these rows.

Names and meanings are those of sbatch, squeue, ... Invariant: an option of sbatch that is absent here is refused by its
name (REFUSED), unless it means nothing on this system (IGNORED).
"""

from __future__ import annotations

from escli.options import IGNORED, OPTIONAL, REFUSED, Option

EVERY = "essubmit esqueue escancel esinfo esacct esctl esrun esalloc esattach eswhy"
IN_JSON = "essubmit esqueue escancel esinfo esacct esctl eswhy"
FROM_ANYWHERE = f"{IN_JSON} esattach"
_JOB = "What the job is"
_RESOURCES = "What it needs"
_WHEN = "When it runs"
_FILES = "Files and environment"
_CHOICE = "Which ones"
_SHAPE = "What is shown"
_COMMAND = "This command"
"""The group of options that every command has."""
_OPTIONS = "Options"

PASSED = (
    "partition",
    "account",
    "qos",
    "comment",
    "reservation",
    "no-kill",
    "elastic",
    "cooperate",
    "borrow",
)
"""Options of essubmit whose value the request has, as it was written, in the field of the same name."""

_WORDS = (
    "job-name partition account qos comment nodes ntasks ntasks-per-node cpus-per-task mem mem-per-cpu exclusive nodelist "
    "exclude gres gpus gpus-per-node gpus-per-task constraint module licenses rset time begin dependency priority nice "
    "start-at deadline reservation signal hold no-kill"
)
ALLOCATED = frozenset(_WORDS.split())
"""Options of essubmit that esalloc has, too: all that an allocation without a script may ask for."""
OUTSIDE = (ALLOCATED | {"immediate"}) - {"job-name", "nodes", "ntasks", "cpus-per-task", "nodelist", "rset"}
"""Options of esrun outside of jobs only, where it asks for the nodes of its step."""


def _rows(commands: str, group: str, *rows: tuple[str, ...], kind: str = "") -> tuple[Option, ...]:
    """Options of these commands under one heading: how each is written, its meaning, an example, and its kind."""
    made = []
    for row in rows:
        usage, meaning, example, own = (*row, "", "", "")[:4]
        names = usage.split(" ")
        short = "" if names[0].startswith("--") else names.pop(0)[1:]
        long, metavar = (*names, "")[:2]
        both = commands == "essubmit" and long[2:] in ALLOCATED and not kind
        of = "essubmit esalloc" if both else commands
        if both and long[2:] in OUTSIDE:
            of += " esrun"
        made.append(Option(of, long[2:], short, metavar, meaning, own or kind, group, example))
    return tuple(made)


# One row a line (two for a long one), which the formatter would spread.
# fmt: off
ROWS: tuple[Option, ...] = (
    *_rows("essubmit", _JOB,
        ("-J --job-name NAME", "name of the job (the script's, or the command's)", "-J fluid"),
        ("-p --partition NAME", "partition to run in (the default one)", "-p short"),
        ("-A --account NAME", "account to charge", "-A physics"),
        ("-q --qos NAME", "class of service (your default one)", "-q urgent"),
        ("--comment TEXT", "a note kept with the job", "--comment 'second try'"),
        ("-a --array TASKS", "run once per task number; %N: at most N at once", "--array 0-15:2%4"),
        ("--mail-type EVENTS",
         "mail when it begins, ends, fails ...: BEGIN, END, FAIL, REQUEUE, INVALID_DEPEND, ALL, TIME_LIMIT, TIME_LIMIT_50, "
         "_80, _90; ARRAY_TASKS: about each task", "--mail-type END,FAIL"),
        ("--mail-user ADDRESSES", "where that mail goes (to you)", "--mail-user ada@example.org"),
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
        ("--gateway-quiet", "write no error file where the gateways fail"),
        ("--gateway-debug", "daemons log to JOB-ID-gateway-NODE.log where the job runs"),
        ("--gateway-inherit YES|NO", "whether daemons get the variables of the submission, too (yes)",
         "--gateway-inherit no"),
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
        ("--delay TIME", "in a part behind ':': start so long after the first job; seconds, h:m:s or d-h:m:s",
         "--delay=00:30:00"),
        ("--reservation NAME", "run inside this reservation", "--reservation course"),
        ("--signal [B:]SIG[@S]", "send this signal S seconds (60) before the time limit; B: to the batch shell alone",
         "--signal B:USR1@120"),
        ("--warn-script FILE", "run this beside the job at that time, on its first node", "--warn-script save.sh"),
        ("-H --hold", "do not start before `esctl release`"),
        ("--elastic", "with a range of --nodes: get more of them while it runs, when they come free"),
        ("-k --no-kill", "go on without a node that is lost, unless it is the first one"),
        ("--cooperate off|report|full", "its application tells of idle cores; full: it also hears requests for more (off)",
         "--cooperate=full"),
        ("--borrow requeue|end[,S]",
         "start on lent cores of running jobs; asked back, it has S seconds (30), and waits again or ends",
         "--borrow=requeue,60"),
        ("--requeue", "may be started again when a node is lost"),
        ("--no-requeue", "never start it a second time"),
        ("--retry-on CAUSES[:N]", "start a next attempt, at most N times (1), after these ends: timeout, node-fail",
         "--retry-on=timeout,node-fail:2"),
        ("--grow-time FACTOR", "after a timeout the next attempt has so many times the time limit (1.5x); 1x: the same",
         "--grow-time=2x"),
        ("--max-time TIME", "longest time limit of a next attempt (what the factor reaches in N retries)",
         "--max-time=12:00:00"),
        ("--grow-mem FACTOR", "with --retry-on=oom, which needs nodes that contain memory: factor of its memory (2x)",
         "--grow-mem=1.5x"),
        ("--max-mem SIZE", "with --retry-on=oom: most memory of a next attempt, per node or per core as it was asked for",
         "--max-mem=64G"),
    ),
    *_rows("essubmit", _FILES,
        ("-o --output FILE", "standard output: %j job, %A_%a array task, %x name, %N node", "-o run-%j.out"),
        ("-e --error FILE", "standard error (where output goes)", "-e run-%j.err"),
        ("-i --input FILE", "standard input (/dev/null)", "-i data.txt"),
        ("--open-mode append|truncate", "what to do with files that exist (append)", "--open-mode truncate"),
        ("-D --chdir DIR", "run in this directory (the current one)", "-D /scratch/run1"),
        ("--export LIST", "ALL, NONE, or variables: NAME or NAME=VALUE", "--export ALL,DEBUG=1"),
        ("--propagate [=LIST]", "soft limits (ulimit) that the script has from here: ALL, NONE, or names (ALL)",
         "--propagate=STACK,CORE", OPTIONAL),
    ),
    *_rows("esrun", _OPTIONS,
        ("-n --ntasks N", "number of tasks (the job's; outside of jobs 1, or one on each node)", "-n 16"),
        ("-N --nodes N", "number of nodes (the job's; outside of jobs as few as fit, and N-MAX is a range)", "-N 4"),
        ("-c --cpus-per-task N", "cores for each task (1)", "-c 2"),
        ("-w --nodelist NODES", "these nodes of the job (its first ones); outside of jobs at least these", "-w cn002"),
        ("--het-group PARTS", "parts of the job to run in (0; with several programs 0, 1, ...)", "--het-group 0,2-3"),
        ("--pack-group PARTS", "as --het-group, its older name", "--pack-group 1"),
        ("-i --input WHAT", "standard input: all, none, a task's number for that one only, or a file; with %t, %n, %N, %J "
         "or %s in its name each task reads its own (all)", "-i none"),
        ("-l --label", "begin each line with the number of its task"),
        ("--pty", "task 0 has a terminal, which is this one: --pty bash"),
        ("--mpi TYPE", "the tasks are one MPI program: pmi2 (MPICH), pmix (Open MPI), none, or list to see all (none)",
         "--mpi pmi2"),
        ("--cpu-bind WHAT", "CPUs of each task, among the job's: none, cores, threads, sockets, ldoms, rank, or a list for "
         "a node's tasks: map_cpu:0,1 or mask_cpu:0x3,0xc; after `verbose,` each task says which (SLURM_CPU_BIND)",
         "--cpu-bind=verbose,cores"),
        ("-u --unbuffered", "show output as it comes, not by lines"),
        ("-D --chdir DIR", "run in this directory (the current one)", "-D /scratch/run1"),
        ("--export LIST", "variables of the tasks: ALL, NONE, NAME or NAME=VALUE (ALL)", "--export ALL,DEBUG=1"),
        ("--propagate [=LIST]", "soft limits (ulimit) that tasks have from here: ALL, NONE, or names (ALL)",
         "--propagate=STACK", OPTIONAL),
        ("-J --job-name NAME", "name of the step (the command's)", "-J solver"),
        ("--jobid JOB", "the job to run in (the surrounding one), or its part: 17+1", "--jobid 17"),
        ("-K --kill-on-bad-exit [=0|1]", "a task that fails ends all others", "-K", OPTIONAL),
        ("-W --wait SECONDS", "end all tasks so long after the first end (0: never)", "-W 30"),
        ("--quit-on-interrupt", "one Ctrl-C ends the step (one: states of the tasks; two within a second: the end)"),
        ("-Q --quiet", "say nothing of tasks that fail"),
    ),
    *_rows("esattach", _OPTIONS,
        ("-l --label", "begin each line with the number of its task"),
        ("--output-filter TASK", "output of this task only; - for all (all)", "--output-filter 3"),
        ("--error-filter TASK", "error output of this task only; - for all (as --output-filter)", "--error-filter -"),
        ("--layout", "print which tasks are on which nodes, and attach to nothing"),
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
         "with `audit`: calls of one user, by name or uid; with `token list`, `token revoke`: all of this user's; with "
         "`crontab show` and `crontab remove`: this user's"),
        ("--refused", "with `audit`: refusals only"),
        ("--since WHEN", "with `log export`: facts from then on, what was before as a base (all); with `audit`: lines",
         "--since now-2hours"),
    ),
    *_rows("esqueue", _SHAPE,
        ("-o --format FORMAT", "columns: %i %P %j %u %t %T %M %l %D %C %m %R %r %S %Y %V %e %Q %A %F %K %H %d %Z",
         "-o '%.10i %.20j %t %M'"),
        ("-l --long", "more columns"),
        ("--start", "when and where waiting jobs are planned to start"),
        ("-r --array", "one line for each waiting task of an array"),
        ("--parts", "one line for each part of a job of several parts"),
        ("--packs", "packs: a line for each, and one for each of its jobs"),
        ("-i --watch SECONDS", "show again and again", "--watch 2"),
    ),
    *_rows("esinfo", _SHAPE,
        ("-N --Node", "one line for each node"),
        ("-l --long", "more columns"),
        ("-R --list-reasons", "nodes out of service, since when and why"),
        ("--modules", "modules, their nodes by state, and which reach each other without gateways"),
        ("--satellites", "the satellites and their states"),
        ("--controllers", "the controllers: which leads, which stand by"),
        ("--federation", "the cells of the federation, and what is free in each"),
    ),
    *_rows("esacct", _SHAPE,
        ("-o --format COLUMNS", "columns by name, see --helpformat", "-o jobid,state,elapsed"),
        ("--packs", "runs of jobs of packs only, each pack's together"),
        ("--attempts", "columns about the attempts of jobs: limits, why they ended, core time that was wasted"),
        ("--helpformat", "list the names of all columns"),
        ("-P --parsable2", "columns separated by |"),
    ),
    *_rows("esctl", _SHAPE,
        ("--tree", "with `broadcast`: show its tree"),
        ("--output FILE", "with `log export`: the file to write (eslurm-log-DATE.eslog); with `token create`, `script`: too",
         "--output incident.eslog"),
        ("--anonymise", "with `log export`: replace the names of users, jobs, nodes and files"),
        ("--format FORMAT", "with `plan`: table, chart or json", "--format chart"),
    ),
    *_rows("eswhy esctl", _SHAPE,
        ("--no-alternatives", "only why, not what would let it start earlier (esctl: with `why`)"),
    ),
    *_rows("esqueue esinfo esacct", _SHAPE, ("-h --noheader", "no header line")),
    *_rows("essubmit", _COMMAND,
        ("--pack FILE", "submit the jobs of this file as a pack: YAML, JSON, or a line of options for each",
         "--pack coupled.yaml"),
        ("--pack-fail WHAT", "when a job of the pack ends otherwise than well: go-on with the others, or cancel those that "
         "have not begun", "--pack-fail=cancel"),
        ("--test-only", "say whether and when it could run; submit nothing"),
        ("--parsable", "print the job id alone"),
        ("-W --wait", "wait for the end; the exit code is the job's"),
        ("-Q --quiet", "print nothing but errors"),
    ),
    *_rows("esalloc esrun", _COMMAND,
        ("-I --immediate [=S]", "give up when the nodes are not there within S seconds (1)", "--immediate=5", OPTIONAL),
    ),
    *_rows("esalloc", _COMMAND,
        ("--no-shell", "run no command: the nodes are held until `escancel`, or the time limit"),
        ("--bell", "ring the terminal's bell when the nodes are there (after ten seconds of waiting)"),
        ("--no-bell", "never ring it"),
        ("-K --kill-command [=SIGNAL]", "signal (TERM) for the command when its nodes are taken away", "--kill-command=INT",
         OPTIONAL),
        ("-Q --quiet", "print nothing but errors"),
    ),
    *_rows("escancel", _COMMAND,
        ("-s --signal SIGNAL", "send a signal instead of ending the job", "-s USR1"),
        ("--cron", "end jobs of crontabs, too: their lines are disabled"),
        ("--lost", "give the jobs up that are in a cell which never comes back; if it does, they may run there"),
        ("-Q --quiet", "print nothing but errors"),
    ),
    *_rows("esctl", _COMMAND,
        ("--hold", "with `requeue`: on hold, until `esctl release`"),
        ("--kill", "with `finish-part`: end its steps by SIGKILL"),
        (
            "--dry-run",
            "with `finish-part`, `set-dependency`, `move-starts`, `extend`, `reconfigure`, and `update` of a running job's "
            "nodes: only say what would happen",
        ),
        ("--earlier-by TIME", "with `move-starts`: by how much, in seconds or as h:m:s (as much as possible)",
         "--earlier-by 0:30:00"),
        ("--by TIME", "with `extend`: how much longer, in seconds or as h:m:s", "--by 0:30:00"),
        ("--to WHEN", "with `move-starts`: when the next job shall start; with `extend`: the whole time limit",
         "--to now+10minutes"),
        ("--for TIME", "with `token create`: how long it is good (8h)", "--for 2d"),
        ("--scope SCOPE", "with `token create`: read, own-jobs, submit (the default), admin or estimator", "--scope read"),
        ("--role ROLE", "with `node token create`: agent (the default), satellite, login or estimator", "--role agent"),
        ("--nodes NODES", "with `node token create`: hosts of these names only", "--nodes cn[001-100]"),
        ("--uses N", "with `node token create`: how many hosts may join with it (1)", "--uses 100"),
        ("--hours H", "with `node token create`: how long it is good (1)", "--hours 8"),
        ("--fingerprint F", "with `node approve`: what the host itself shows; with `node deny`: only the host with this one",
         "--fingerprint 5f1c..."),
    ),
    *_rows("esqueue esinfo esacct", _COMMAND,
        ("--cells LIST", "ask these cells of the federation, or all, and show them in one table", "--cells alpha,beta"),
        ("-M --clusters LIST", "as --cell with one name, else as --cells: its name in Slurm", "-M all"),
    ),
    *_rows("essubmit escancel esctl eswhy", _COMMAND, ("-M --clusters NAME", "as --cell, its name in Slurm", "-M beta")),
    *_rows("essubmit", _COMMAND,
        ("--cell NAMES", "submit to this cell of the federation; any, or several: the job runs in the one of them, or here, "
         "that can start it first", "--cell any"),
        ("--span", "with several cells: its nodes may be of all of them at once", "--cell any --span -N 12"),
    ),
    *_rows("esqueue escancel esinfo esacct esctl eswhy", _COMMAND,
        ("--cell NAME", "ask this cell of the federation instead of the cluster's own", "--cell beta"),
    ),
    *_rows(IN_JSON, _COMMAND,
        ("--json", "print JSON"),
    ),
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
