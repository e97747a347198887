"""The texts of `--help` and `--version`, made from the option table. Imported only when asked for."""

from __future__ import annotations

import textwrap
from importlib import metadata

from escli import exits
from escli.option_table import rows_of
from escli.options import FLAG, IGNORED, OPTIONAL, REFUSED, Option

_WIDTH = 100
_COLUMN = 30


class About:
    """A command's head lines and examples."""

    def __init__(
        self, synopsis: str, purpose: str, examples: tuple[tuple[str, str], ...], notes: str = ""
    ) -> None:
        self.synopsis = synopsis
        self.purpose = purpose
        self.examples = examples
        self.notes = notes


COMMANDS: dict[str, About] = {
    "essubmit": About(
        "essubmit [OPTIONS] SCRIPT [ARGUMENT ...]\nessubmit [OPTIONS] --wrap COMMAND\nessubmit [OPTIONS] --pack FILE",
        "Submit a batch job. Without SCRIPT, or with -, the script is read from standard input.",
        (
            ("essubmit -n 4 -t 1:00:00 run.sh input.dat", "four tasks, one hour"),
            ("essubmit --array 0-15%4 tile.sh", "sixteen tasks, four at a time"),
            (
                "essubmit -N1 -p cpu : -N8 -p gpu run.sh",
                "two sets of nodes, in two partitions, at the same time",
            ),
            (
                "essubmit -N4 sim.sh : --delay=00:30:00 -N2 plot.sh",
                "a pack of two jobs: the second starts half an hour after the first",
            ),
            ("essubmit --pack coupled.yaml", "the jobs of a file as a pack"),
            ("essubmit -d afterok:12 join.sh", "after job 12 has ended well"),
            ("essubmit --wait --wrap 'make test'", "wait; end with the job's exit code"),
        ),
        "Options may also stand in the script, before its first command, in lines that begin with #SBATCH or\n"
        "#ESLURM. The command line wins over #ESLURM, and #ESLURM over #SBATCH.",
    ),
    "esqueue": About(
        "esqueue [OPTIONS]",
        "Show the jobs that wait or run.",
        (
            ("esqueue --me", "my jobs"),
            ("esqueue -t PD --start", "waiting jobs and their planned starts"),
            ("esqueue -h -j 17 -o %T", "the state of one job, for scripts"),
            ("esqueue --packs", "packs, and the jobs of each"),
            ("esqueue --watch 2", "look again every two seconds"),
        ),
    ),
    "escancel": About(
        "escancel [OPTIONS] [JOB ...]",
        "End jobs, or send them a signal. JOB is 17, a task 17_4, or tasks 17_[4-6]; a part 17+1 means its whole job,\n"
        "and each job of a pack that has not begun the whole pack.",
        (
            ("escancel 17 18_3", "a job and one task of an array"),
            ("escancel --me -t PD", "all my waiting jobs"),
            ("escancel -s USR1 17", "send SIGUSR1"),
        ),
    ),
    "esinfo": About(
        "esinfo [OPTIONS]",
        "Show partitions and nodes.",
        (
            ("esinfo", "partitions, their nodes by state"),
            ("esinfo -N -l", "one line for each node"),
            ("esinfo -R", "which nodes are out of service, and why"),
            ("esinfo --modules", "the modules of the cluster"),
            ("esinfo --satellites", "the satellites"),
            ("esinfo --controllers", "which controller leads, and which stand by"),
            ("esinfo --federation", "other clusters of the federation, and what is free there"),
        ),
    ),
    "esacct": About(
        "esacct [OPTIONS]",
        "Show what has run: every attempt of every job that has ended.",
        (
            ("esacct", "since midnight"),
            ("esacct -j 17", "all attempts of a job"),
            ("esacct --packs -S now-2days", "what has run in packs"),
            ("esacct -u ada -S now-2days -s F,TO", "what failed in two days"),
            ("esacct -P -o jobid,elapsed,maxrss", "for programs"),
        ),
    ),
    "esctl": About(
        "esctl [OPTIONS] ACTION [WORD ...]",
        "Look closely at the cluster, and change it.",
        (
            (
                "esctl show job 17",
                "all about a job (also: step, node, partition, satellite, config)",
            ),
            ("esctl update job 17 time=2:00:00 priority=10", "change a waiting job: it keeps its turn"),
            ("esctl update job 17 nodes=2 gpus-per-node=1", "what it needs, as essubmit's options say it"),
            ("esctl update job 17 constraint= exclusive=no", "less of it (no value: taken away)"),
            ("esctl hold 17; esctl release 17", "keep a job waiting; let it go"),
            ("esctl update job 17 time=2:12:00", "a running job: 10 % more, or less"),
            (
                "esctl update job 17 nodes=-2",
                "a running job gives two nodes back (nodes=+2: gets two)",
            ),
            ("esctl top 17", "before all other waiting jobs of its user, which step back"),
            ("esctl suspend 17; esctl resume 17", "stop a running job where it is; let it go on"),
            (
                "esctl move-starts 17 --earlier-by 0:30:00",
                "start the jobs of a pack that wait for their turn earlier",
            ),
            (
                "esctl extend 17 --by 0:30:00",
                "a running job: more time, as far as no other job is planned there",
            ),
            ("esctl requeue 17", "end a job's run and let it wait again (--hold: on hold)"),
            ("esctl script 17 --output job.sh", "a job's script (no file: on standard output)"),
            ("esctl crontab set FILE", "jobs that run again and again (also: show, remove)"),
            ("esctl finish-part 17+1", "give back one part of a running job (inside job 17: +1)"),
            ("esctl set-dependency 42 afterok:17", "what a waiting job waits for (no text: for none)"),
            ("esctl drain cn[001-004] reason='new memory'", "no new jobs on these nodes"),
            ("esctl resume cn[001-004]", "back into service"),
            ("esctl down cn007", "declare a node lost: you vouch that nothing runs there any more"),
            (
                "esctl partition drain short",
                "it takes no more jobs (down: starts none; inactive: neither; up)",
            ),
            ("esctl satellite down sat1 reason='new disk'", "no more broadcasts through it (also: resume)"),
            ("esctl federation status", "the cells of the federation, and the etcd that they share"),
            ("esctl federation drain", "takes no work of other cells (also: resume, leave, rejoin)"),
            ("esctl takeover c2", "let controller c2 lead, and wait until it does (no name: any standby)"),
            (
                "esctl reconfigure --dry-run",
                "what the configuration file changes at once (without the option: do it)",
            ),
            (
                "esctl broadcast last --tree",
                "the newest traced broadcast: who was slow, who adopted whom (also: list)",
            ),
            ("esctl tree report", "how well failing nodes are predicted, against random places"),
            ("esctl account add physics shares=10", "an account (also: modify, delete, show)"),
            ("esctl user add ada accounts=physics", "who may submit through it"),
            ("esctl qos add urgent priority=1000", "a class of service"),
            ("esctl limit add l user=ada duration=12h", "what somebody may use, and for how long"),
            ("esctl pool add p items=10% access='cores<4'", "what is kept free, and for whom"),
            ("esctl reservation add r nodes=4 end=noon", "nodes set aside"),
            ("esctl defaults add site time=1:00:00", "what jobs get that do not say it"),
            ("esctl load policies.toml", "all policies of a file, or none of them"),
            ("esctl shares account=physics", "fair share: who is due what, has used what, and comes when"),
            ("esctl priority 17 18", "how the priorities of waiting jobs came about (no job: all)"),
            ("esctl log export --since now-2hours", "what happened, as a file for `eslurm replay`"),
            ("esctl audit --refused --since now-1day", "who tried what, and was refused (administrators)"),
            ("esctl why 17", "why a job does not run yet, as `eswhy 17`"),
            (
                "esctl plan until=now+1day",
                "what runs, what starts next and where (--format chart: a picture)",
            ),
            ("esctl doctor", "is anything wrong? 0: healthy, 1: warnings, 2: errors, 3: not reachable"),
            (
                "esctl token create --for 8h --output token",
                "what shows it from another host acts for you (USER: for another user)",
            ),
            ("esctl token list; esctl token revoke ID", "the tokens that are good; one of them is no more"),
            (
                "esctl node token create --uses 100",
                "what lets 100 hosts join: eslurm join (also: list, revoke ID)",
            ),
            ("esctl node pending", "hosts that ask to join without a token, and wait"),
            ("esctl node approve cn1 --fingerprint F", "let one of them in (also: deny cn1)"),
            ("esctl node revoke cn1", "no member any more: its links end everywhere (also: a serial; list)"),
            ("esctl ping", "is the controller there?"),
        ),
        "What can be updated: name, partition, time, end, priority, nice, begin, deadline, comment, wckey, account, qos,\n"
        "reservation, arraylimit, output, error, input, chdir; and what a job needs, by the names of essubmit's\n"
        "options: nodes, ntasks, ntasks-per-node, cpus-per-task, mem, mem-per-cpu, gres, gpus, gpus-per-node,\n"
        "gpus-per-task, licenses, constraint, rset, place, exclusive, nodelist, exclude. scontrol's names (NumNodes,\n"
        "MinMemoryNode, ExcNodeList, ...) mean the same.",
    ),
    "eswhy": About(
        "eswhy [OPTIONS] JOB ...",
        "Say why a job does not run yet: everything that is in its way, who holds the nodes and until when, its planned\n"
        "start, and what would let it start earlier.",
        (
            ("eswhy 17", "a job, or an array's waiting tasks"),
            ("eswhy --no-alternatives 17 18_3", "two answers, without looking for earlier starts"),
            ("eswhy --json 17", "for programs"),
        ),
        "Every start it offers was planned with all rules, beside everything that is booked; the command below it takes it.",
    ),
    "esrun": About(
        "esrun [OPTIONS] COMMAND [ARGUMENT ...] [: [OPTIONS] COMMAND [ARGUMENT ...]] ...",
        "Start tasks on the nodes of the job, show their output line by line, end with their highest exit code. Outside\n"
        "of a job: get nodes for the tasks first, and give them back at their end.",
        (
            ("esrun hostname", "one line for each task of the job"),
            ("esrun -n 4 -l ./solve input", "four tasks, lines labelled 0: to 3:"),
            ("esrun -N 2 -n 2 df /tmp", "one task on each of two nodes"),
            ("esrun -n 2 ./master : -n 8 ./solve", "one step over parts 0 and 1 of the job, ranks 0 to 9"),
            ("esrun -n 1 --async ./part 7", "a step that needs no command: see `eswait`"),
            ("esrun -N 2 -t 10 -p short hostname", "outside of a job: on two nodes, when they are free"),
        ),
        "Ctrl-C ends the tasks; while it waits for nodes it cancels the job. Inside a job a step waits until others leave\n"
        "it its cores: those of -n and -c, else all of the job. Options about the job and its start are for steps outside.",
    ),
    "eswait": About(
        "eswait [OPTIONS] [STEP ...]",
        "Wait for steps of the job that `esrun --async` has started, and end with the highest exit code of their tasks.",
        (
            ("eswait", "for all of them"),
            ("eswait 3 17.4", "for two of them"),
        ),
        "When the script ends without it, so do the steps that still run.",
    ),
    "esattach": About(
        "esattach [OPTIONS] JOB.STEP",
        "Show what the tasks of one of your running steps write, from now on, and end with the step's exit code.",
        (
            ("esattach 17.0", "the first step of job 17"),
            ("esattach -l --output-filter 3 17.0", "the lines of task 3 alone, with its number"),
            ("esattach --layout 17.0", "which tasks are on which nodes"),
        ),
        "Ctrl-C leaves the step, which goes on. It is never slowed down: when 16 MiB of output wait to be read here, this\n"
        "command is cut off, and says so. The input of the tasks stays that of the step's own command. The output of a\n"
        "job's script is in its file.",
    ),
    "esalloc": About(
        "esalloc [OPTIONS] [COMMAND [ARGUMENT ...]]",
        "Get nodes, run a command or a shell on this host in the job's environment, and give the nodes back at its end.",
        (
            ("esalloc -N 2 -t 1:00:00", "a shell; `esrun` in it starts tasks on two nodes"),
            ("esalloc -n 8 make check", "a command, whose exit code is this one's"),
            ("esalloc --immediate -N 4 ./bench.sh", "now or not at all"),
            (
                "esalloc --no-shell -N 2",
                "hold the nodes; `esrun --jobid 17` uses them, `escancel 17` gives them back",
            ),
        ),
        "Ctrl-C while it waits cancels the job. When this command is killed, or its host is, the job ends after\n"
        "`policy.inactive_limit_s`.",
    ),
}


def version(command: str) -> str:
    """`essubmit (eslurm) 0.1.0`"""
    return f"{command} (eslurm) {metadata.version('eslurm')}"


def usage(command: str) -> str:
    """The whole text of `--help`."""
    about = COMMANDS[command]
    parts = [f"Usage: {about.synopsis.replace(chr(10), chr(10) + '       ')}", "", about.purpose]
    groups: dict[str, list[Option]] = {}
    for row in rows_of(command):
        if row.kind not in (IGNORED, REFUSED):
            groups.setdefault(row.group, []).append(row)
    for group, rows in groups.items():
        parts += ["", f"{group}:"]
        for row in rows:
            parts += _entry(row)
    parts += ["", "Examples:"]
    width = max(len(line) for line, _ in about.examples)
    parts += [f"  {line.ljust(width)}  {what}" for line, what in about.examples]
    if about.notes:
        parts += ["", about.notes]
    parts += ["", "Exit codes:"]
    for code, meaning in exits.MEANINGS:
        parts += _wrapped(f"  {code.ljust(4)} ", meaning)
    return "\n".join(parts)


def option_names(row: Option) -> str:
    """`-n, --ntasks N`: a row's option in the help."""
    value = {
        FLAG: "",
        OPTIONAL: row.metavar,
    }.get(row.kind, f" {row.metavar}")
    return (f"-{row.short}, " if row.short else "") + f"--{row.long}{value}"


def _entry(row: Option) -> list[str]:
    indent = "  " if row.short else "      "
    head = f"{indent}{option_names(row)}"
    lines = _wrapped(" " * _COLUMN, row.help)
    if len(head) < _COLUMN - 1:
        lines[0] = head.ljust(_COLUMN) + lines[0].lstrip()
        return lines
    return [head, *lines]


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
    )
