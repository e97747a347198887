"""`eslurm`: a personal cluster on this machine.

Only parsing and rendering: what the commands do is in `up`, `supervise`, `status`, `down`, `demo`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from escli import exits
from escli.console import COMMAND, say, tell, to_json
from escli.errors import ClusterError
from escli.interrupts import Interrupts
from escli.lab.estimate import estimate
from escli.lab.simulate import simulate
from escli.lab.simulate_federation import simulate_federation
from escli.local import settings
from escli.local.chaos import ACTIONS, Chaos, Request
from escli.local.check_command import check_command
from escli.local.compat import compat
from escli.local.convert_command import convert_command
from escli.local.down import take_down
from escli.local.health_command import health
from escli.local.import_command import import_command
from escli.local.init_command import init_command
from escli.local.join import join
from escli.local.keys import keys
from escli.local.layout import MAIN, Layout, check, choose, locked, supervising
from escli.local.plan import KINDS, PROGRAMS, Programs, can_estimate
from escli.local.processes import usage_of
from escli.local.report import report
from escli.local.settings import Wishes
from escli.local.status import describe, look
from escli.local.stop import Stopped, ended_text, stop_all
from escli.local.supervise import Watch
from escli.local.up import TIMEOUT_S, Running, bring_up
from eslurm import __version__
from eslurm.core.model.wording import quoted

_MANY_NODES = 100
_STORE = r"(postgresql|sqlite)(\+\w+)?://."


def main(argv: Sequence[str] | None = None, programs: Programs = PROGRAMS) -> int:
    """Entry point; returns the exit code (see `escli.exits`). `programs` are the daemons to start."""
    try:
        code = commands.main(
            list(sys.argv[1:] if argv is None else argv),
            prog_name=COMMAND,
            standalone_mode=False,
            obj=programs,
        )
        sys.stdout.flush()
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        # Click shows values by their repr.
        said = error.format_message().rstrip(".").replace("''", quoted(""))
        tell(f"{said}: see `{context.command_path if context else COMMAND} --help`")
        return exits.USAGE
    except click.Abort:
        tell("interrupted")
        return exits.INTERRUPTED
    except ClusterError as error:
        tell(error.text)
        for line in error.tail:
            sys.stderr.write(f"    {line}\n")
        return error.code
    except BrokenPipeError:
        return exits.reader_gone()
    return code if isinstance(code, int) else exits.OK


@click.group(
    help="A personal cluster on this machine: controller, satellites and nodes of your own, without root.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=False,
)
@click.version_option(__version__, message=f"{COMMAND} (eslurm) %(version)s")
def commands() -> None:
    """The group; its help is above."""


def _common(function: Callable[..., int]) -> Callable[..., int]:
    """The options that several commands share."""
    function = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(function)
    return click.option(
        "--state-dir",
        metavar="DIR",
        help="Where the cluster keeps everything (default: $ESLURM_STATE_DIR, or ~/.local/state/eslurm).",
    )(function)


def _count(option: str, short: str, highest: int, lowest: int, text: str) -> Callable[[Any], Any]:
    names = [option, *([short] if short else [])]
    return click.option(*names, type=click.IntRange(lowest, highest), metavar="N", help=text)


@commands.command()
@_count("--nodes", "-n", settings.NODES_MAX, 1, f"Virtual nodes (default {settings.NODES_DEFAULT}).")
@_count("--cores", "", 4096, 1, "Cores of each node (default: the machine's, shared out).")
@_count("--satellites", "", settings.PROCESSES_MAX, 1, f"Satellites (default {settings.SATELLITES_DEFAULT}).")
@_count(
    "--agents",
    "",
    settings.PROCESSES_MAX,
    1,
    f"Processes that serve the nodes (default {settings.AGENTS_DEFAULT}).",
)
@_count(
    "--emulate",
    "",
    settings.EMULATED_MAX,
    1,
    "A big cluster in a few processes: N virtual nodes of 4 cores, satellites and processes to match.",
)
@_count("--hosts", "", settings.PROCESSES_MAX, 1, "With --emulate: processes that serve the nodes.")
@_count("--controllers", "", settings.CONTROLLERS_MAX, 1, "Controllers: one leads, the others stand by.")
@click.option(
    "--cells",
    metavar="N|A,B,...",
    help="A federation: several clusters that share an etcd; --nodes is of all together, other numbers of each.",
)
@click.option(
    "--etcds", type=click.Choice(("1", "3")), metavar="1|3", help="With --cells: etcd members (default 1)."
)
@click.option(
    "--store", metavar="URL", help="Where jobs are kept: postgresql://... (default: a file in DIR)."
)
@_count("--port-base", "", 65535, 1024, "Use the ports from N on (default: free ones, remembered).")
@click.option(
    "--timeout",
    type=click.FloatRange(1, 3600),
    metavar="S",
    help=f"Patience in seconds (default {TIMEOUT_S:g}; more for many nodes).",
)
@click.option(
    "--estimator/--no-estimator",
    default=None,
    help="With a daemon that tells how long jobs will run (default: if scikit-learn is installed).",
)
@click.option(
    "--allow-root-jobs", is_flag=True, help="As root: a new cluster takes root's own jobs, which run as root."
)
@click.option(
    "--prolog", metavar="PATH", help="Program that runs on each node before anything of a job does."
)
@click.option(
    "--epilog", metavar="PATH", help="Program that runs on each node when nothing of a job is left."
)
@click.option("--detach", "-d", is_flag=True, help="Return when the cluster is up, instead of watching it.")
@_common
@click.pass_obj
def up(
    programs: Programs,
    nodes: int | None,
    cores: int | None,
    satellites: int | None,
    agents: int | None,
    emulate: int | None,
    hosts: int | None,
    controllers: int | None,
    cells: str | None,
    etcds: str | None,
    store: str | None,
    port_base: int | None,
    timeout: float | None,
    estimator: bool | None,
    allow_root_jobs: bool,
    prolog: str | None,
    epilog: str | None,
    detach: bool,
    state_dir: str | None,
    as_json: bool,
) -> int:
    """Start the cluster, or what is missing of it; Ctrl-C stops it.

    The first time, the options say what it is like and are kept in DIR/eslurm.toml; after that they only have to
    agree with it. Jobs survive `down` and the next `up`.

    \b
    eslurm up -d                              4 nodes
    eslurm up -d --emulate 20480 --hosts 8    a supercomputer in 13 processes, to see how eslurm behaves there
    eslurm up -d --controllers 2              with a hot standby: see `esinfo --controllers`, `esctl takeover`
    eslurm up -d --cells 3 -n 12              three clusters of 4 nodes that see each other: `esinfo --federation`
    """
    layout = choose(state_dir, os.environ)
    if emulate is None and hosts is not None:
        raise click.UsageError("--hosts: goes with --emulate; without it: --agents")
    if emulate is not None and (nodes is not None or agents is not None):
        raise click.UsageError("--emulate: cannot go with --nodes or --agents: use --emulate N --hosts M")
    if store is not None and not re.match(_STORE, store):
        raise click.UsageError(
            "--store: is not a URL of a store: use postgresql://user@host/database or sqlite:///FILE"
        )
    if estimator and not can_estimate(programs):
        raise click.UsageError("--estimator: scikit-learn is not installed: pip install scikit-learn")
    wishes = Wishes(
        nodes if emulate is None else emulate,
        cores,
        satellites,
        agents if emulate is None else hosts,
        port_base,
        emulated=emulate is not None,
        controllers=controllers,
        store=store,
        estimator=estimator,
        allow_root_jobs=allow_root_jobs,
        prolog=prolog and os.path.abspath(prolog),
        epilog=epilog and os.path.abspath(epilog),
    )
    if cells is not None or etcds is not None or layout.federation_file.exists():
        from escli.local.cells import command

        return command.up(
            layout,
            cells,
            int(etcds) if etcds else None,
            wishes,
            programs,
            timeout_s=timeout,
            detach=detach,
            as_json=as_json,
        )
    with Interrupts() as interrupts:
        running = bring_up(layout, wishes, programs, interrupts, tell, timeout)
        say(to_json(_summary(running)) if as_json else _greeting(running, detach))
        if detach or not running.started:
            return exits.OK
        with supervising(layout) as is_first:
            if not is_first:
                tell("another `eslurm up` watches this cluster; this one returns")
                return exits.OK
            if Watch(layout, programs, interrupts, tell).run():
                tell("the cluster was stopped by another command")
                return exits.OK
            tell("stopping the cluster (again: at once)")
            with locked(layout):
                stopped = stop_all(layout, layout.get_record(), hurry=interrupts.is_hurried())
        tell(_stopped_text(stopped, layout))
    return exits.OK


def _summary(running: Running) -> dict[str, Any]:
    return {
        "cluster": running.record.cluster,
        "state_dir": str(running.layout.directory),
        "socket": str(running.layout.socket),
        "sockets": running.layout.sockets(running.record),
        "already_running": not running.started,
        "started": running.started,
        "daemons": [
            {"name": daemon.name, "kind": daemon.kind, "pid": daemon.identity.pid, "listen": daemon.listen}
            for daemon in running.record.daemons
        ],
    }


def _greeting(running: Running, detach: bool) -> str:
    config, layout = running.config, running.layout
    if not running.started:
        note = ""
        if running.edited:
            note = f"\n{layout.config_file} was changed since it started: `eslurm down` and `eslurm up` apply that."
        return f"Cluster {running.record.cluster} is already running ({layout.directory}).{note}"
    nodes = ",".join(section.names for section in config.nodes)
    cores = "/".join(dict.fromkeys(str(section.cores) for section in config.nodes))
    each = "1 core" if cores == "1" else f"{cores} cores"
    lines = [
        f"Cluster {running.record.cluster} is up: nodes {nodes} with {each} each.",
        f"  {settings.count_nodes(config)} nodes in {_processes(running)}",
    ]
    if running.record.standbys:
        others = ", ".join(one.name for one in running.record.standbys)
        lines.append(f"  controller {MAIN}, and {others} to take over (esinfo --controllers, esctl takeover)")
    if choose(None, os.environ).directory != layout.directory:
        lines.append(f"  export ESLURM_STATE_DIR={layout.directory}   # first, so that the commands find it")
    named = os.environ.get("ESLURM_SOCKET", "")
    if named and not set(named.split(":")) <= set(layout.sockets(running.record)):
        lines.append(f"  unset ESLURM_SOCKET   # it names another cluster: {named}")
    lines += _hints(settings.count_nodes(config))
    if not detach:
        lines.append("This command watches the daemons. Ctrl-C stops the cluster.")
    return "\n".join(lines)


def _processes(running: Running) -> str:
    """Memory use of the daemons, by kind."""
    parts = []
    for kind in KINDS:
        found = [usage_of(daemon.identity) for daemon in running.record.daemons if daemon.kind == kind]
        sizes = [usage.rss_mib for usage in found if usage is not None]
        if sizes:
            count = f"{len(sizes)} " if len(sizes) > 1 else ""
            parts.append(f"{count}{kind} ({'up to ' if count else ''}{max(sizes):.0f} MiB)")
    return ", ".join(parts)


def _hints(nodes: int) -> list[str]:
    """Commands to try next."""
    lines = [
        "  essubmit --wrap hostname     submit a job",
        "  esqueue, esinfo, esacct      look at jobs, nodes, and what has run",
    ]
    if nodes >= _MANY_NODES:
        lines += [
            f"  essubmit -N {nodes // 10 - nodes // 10 % 10:<6} --wrap hostname   one job on a tenth of the nodes",
            "  eslurm chaos kill --share 30% --for 30s   a third of the agents dies; look on with esinfo",
        ]
    return [
        *lines,
        "  eslurm status                how the daemons do",
        "  eslurm down                  stop; jobs are kept for the next `eslurm up`",
    ]


@commands.command()
@_common
def status(state_dir: str | None, as_json: bool) -> int:
    """Show the daemons and the nodes, of a federation its cells and etcd. Exit code: 0 up, 1 degraded, 3 down."""
    layout = choose(state_dir, os.environ)
    if layout.federation_file.exists():
        from escli.local.cells import command

        return command.status(layout, as_json)
    record = check(layout)
    if record is None:
        raise ClusterError(f"no cluster in {layout.directory}: `eslurm up` makes one", exits.UNREACHABLE)
    found = look(layout, record)
    say(to_json(found) if as_json else describe(found).rstrip("\n"))
    return {"up": exits.OK, "degraded": exits.FAILED, "down": exits.UNREACHABLE}[found.state]


@commands.command(short_help="Stop the cluster; --purge removes it.")
@click.option("--keep-jobs/--kill-jobs", default=False, help="Leave running jobs alone (default: end them).")
@click.option(
    "--purge", is_flag=True, help="Then remove the state directory: jobs, accounting, logs, everything."
)
@click.option("--cell", metavar="NAME", help="Only this cell of a federation; the others and etcd go on.")
@_common
def down(keep_jobs: bool, purge: bool, cell: str | None, state_dir: str | None, as_json: bool) -> int:
    """Stop the cluster. What waits in the queue waits for the next `up`; running jobs are ended and start anew then.

    Of a federation, cells stop first and etcd last.
    """
    if keep_jobs and purge:
        raise click.UsageError("--purge: cannot go with --keep-jobs: jobs need the directory")
    layout = choose(state_dir, os.environ)
    if layout.federation_file.exists():
        from escli.local.cells import command

        return command.down(layout, cell, keep_jobs=keep_jobs, purge=purge, as_json=as_json)
    if cell is not None:
        raise click.UsageError(f"--cell: there is no federation in {layout.directory}: leave it out")
    with Interrupts() as interrupts:
        stopped = take_down(
            layout, keep_jobs=keep_jobs, purge=purge, tell=tell, hurry=interrupts.is_hurried()
        )
    if as_json:
        say(to_json({"state_dir": str(layout.directory), "purged": purge, "stopped": stopped}))
    elif stopped is None:
        say(f"No cluster in {layout.directory}; nothing to stop.")
    else:
        say(_stopped_text(stopped, layout, purge))
    return exits.OK


def _stopped_text(stopped: Stopped, layout: Layout, purged: bool = False) -> str:
    if purged:
        return f"The cluster is down and {layout.directory} is removed."
    ended = ended_text(stopped.daemons, stopped.supervisors, stopped.job_processes)
    if not ended:
        return "The cluster was down already."
    return f"The cluster is down ({ended} ended); its jobs are kept in {layout.directory}."


@commands.command(short_help="Let nodes, satellites or controllers fail, and heal them.")
@click.argument("action", type=click.Choice(ACTIONS), metavar="kill|hang|slow|partition|cut|heal|show")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--nodes", "-w", metavar="LIST", default="", help="These nodes: cn[01-16].")
@click.option("--satellite", metavar="NAME", multiple=True, help="This satellite; may be repeated.")
@click.option("--share", metavar="30%", help="So many of the nodes (of --nodes, or of all), drawn by lot.")
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", help="Draw the same nodes as with the same N before."
)
@click.option("--for", "for_", metavar="30s", help="Heal by itself after this time (ms, s, m or h).")
@click.option("--delay", metavar="500ms", help="With slow: how late everything is (default 500ms).")
@click.option(
    "--one-way",
    type=click.Choice(["out", "in"]),
    help="With cut: what the nodes say is lost (out), or what is said to them (in).",
)
@_common
@click.pass_obj
def chaos(
    programs: Programs,
    action: str,
    names: tuple[str, ...],
    nodes: str,
    satellite: tuple[str, ...],
    share: str | None,
    seed: int | None,
    for_: str | None,
    delay: str | None,
    one_way: str | None,
    state_dir: str | None,
    as_json: bool,
) -> int:
    """Let agents, satellites and controllers of this cluster fail, to see it survive. Jobs that run on the nodes go on.

    NAME is a controller, a satellite, or esestd; nodes are named with --nodes.

    \b
    kill        dead: connections are refused
    hang        silent: takes messages, never answers
    slow        answers late
    partition   nothing comes in or goes out
    cut         one way only: hears and is not heard (--one-way out), or the other way round (in)
    heal        end failures: of all, or of those named
    show        what has failed, and for how long

    \b
    eslurm chaos kill --share 30% --for 30s
    eslurm chaos hang --nodes cn[01-02]
    eslurm chaos cut --one-way out --nodes cn01
    eslurm chaos slow --satellite sat1 --delay 2s --for 1m
    eslurm chaos kill main
    eslurm chaos heal

    Controllers, nodes of a process of their own, and satellites with kill and hang, are struck by a signal to the
    process; --for then keeps this command waiting.
    """
    from escli.local import chaos_text as words

    layout = choose(state_dir, os.environ)
    record = check(layout)
    if record is None or not record.daemons:
        raise ClusterError(
            f"no cluster runs in {layout.directory}: `eslurm up` starts one", exits.UNREACHABLE
        )
    request = Request(
        action,
        nodes,
        satellite,
        None if share is None else words.parse_share(share),
        None if for_ is None else words.parse_duration("--for", for_),
        None if delay is None else words.parse_duration("--delay", delay),
        seed,
        names,
        one_way or "",
    )
    with Interrupts() as interrupts:
        outcome = Chaos(layout, record, programs, interrupts, tell).do(request)
    say(to_json(outcome) if as_json else words.describe(outcome).rstrip("\n"))
    return exits.OK


@commands.command()
@click.option(
    "--output", metavar="DIR", help="Where the picture and the jobs' output go (default: build/demo)."
)
def demo(output: str | None) -> int:
    """A whole cluster for a minute: start it, run examples/mandelbrot on 16 nodes, stop it."""
    from escli.local.demo import run_demo

    return run_demo(output)


@commands.command(
    short_help="The cluster's logic in virtual time, against faults.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def sim(words: tuple[str, ...]) -> int:
    """Run the cluster's own logic in virtual time against seeded faults (see `eslurm sim --help`)."""
    from eslurm.lab.sim import command

    try:
        return command.main(words)
    except SystemExit as ended:  # Its parser has said all there is to say.
        return ended.code if isinstance(ended.code, int) else exits.USAGE


@commands.command(short_help="An exported log, played to a moment: queue and nodes as they were.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--at", metavar="TIME", default="", help="The moment (default: the end): 03:14, 2026-03-01T08:00."
)
@click.option("--queue", is_flag=True, help="Only the queue.")
@click.option("--nodes", is_flag=True, help="The nodes, one line each.")
@click.option("--job", type=click.IntRange(1), metavar="N", help="All that was known of this job.")
@click.option("--facts", metavar="FROM-TO", default="", help="The facts with these revisions, one line each.")
@click.option(
    "--until-violation",
    is_flag=True,
    help="Check the invariants after each fact; stop at the first violation.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def replay(
    file: Path,
    at: str,
    queue: bool,
    nodes: bool,
    job: int | None,
    facts: str,
    until_violation: bool,
    as_json: bool,
) -> int:
    """Show what a cluster was like, from a file of `esctl log export`. Facts are applied, nothing is decided anew.

    \b
    eslurm replay incident.eslog --at 03:14             queue and nodes at that time
    eslurm replay incident.eslog --at 03:14 --job 17    one job
    eslurm replay incident.eslog --facts 100-200        what was decided
    eslurm replay incident.eslog --until-violation      exit code 5: the cluster contradicted itself
    """
    from escli.lab import replay as replays

    wanted = replays.Wanted(at, queue, nodes, job or 0, facts, until_violation, as_json)
    try:
        return replays.run(file, wanted, say)
    except replays.CannotReplay as error:
        raise ClusterError(error.text, error.code) from None


commands.add_command(simulate)
commands.add_command(simulate_federation)
commands.add_command(estimate)
commands.add_command(init_command)
commands.add_command(check_command)
commands.add_command(health)
commands.add_command(keys)
commands.add_command(join)
commands.add_command(convert_command)
commands.add_command(compat)
commands.add_command(import_command)
commands.add_command(report)


if __name__ == "__main__":
    sys.exit(main())
