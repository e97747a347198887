"""`eslurm simulate`: the log of a real machine, replayed by the planner in virtual time.

Only parsing and rendering; the run itself is `eslurm.lab.workloads`. The result goes to standard output and is the same for
the same input; what was odd in the log, and how far a run is, goes to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from escli import exits
from escli.errors import ClusterError, unusable
from escli.lab.outputs import check_picture, check_place
from escli.lab.progress import Progress
from escli.lab.simulate_esp import simulate_esp
from eslurm.compat.durations import parse_time_limit
from eslurm.compat.errors import OptionError, quoted

if TYPE_CHECKING:
    from eslurm.core.model.config import ClusterConfig
    from eslurm.core.model.forecast import Forecast
    from eslurm.lab.workloads.loop import Result
    from eslurm.lab.workloads.machine import Machine
    from eslurm.lab.workloads.rules import Rules
    from eslurm.lab.workloads.swf import Header
    from eslurm.lab.workloads.workload import Choices, Names, Workload

ESP: Final = "esp"
_FILE = click.Path(path_type=Path, dir_okay=False)
_FIELDS = click.Choice(["user", "group", "queue", "partition"])


class Asked(msgspec.Struct, frozen=True):
    """The command line, read."""

    trace: Path
    policies: tuple[str, ...]
    config: Path | None
    records: Path | None
    account_from: str
    qos_from: str
    by: str
    nodes: str
    choices: Choices
    gantt: Path | None
    from_s: int | None
    until_s: int | None
    perfetto: Path | None
    swf: Path | None
    workflows: int
    modes: tuple[str, ...]
    seed: int
    as_json: bool


class _Simulate(click.Command):
    """`simulate esp` is another command: ESP brings its own jobs. A log of this name is `./esp`."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] == ESP:
            return simulate_esp.make_context(f"{info_name} {ESP}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(
    cls=_Simulate, short_help="The log of a real machine, replayed by the planner in virtual time."
)
@click.argument("trace", type=_FILE)
@click.option(
    "--policy",
    "policies",
    metavar="NAME",
    multiple=True,
    help="fcfs, easy, conservative, planned, or an installed one; may be repeated (default: the configuration's, or easy).",
)
@click.option(
    "--config",
    metavar="FILE",
    type=_FILE,
    help="The cluster of this eslurm.toml: its nodes and partitions, policy, priorities and rules.",
)
@click.option(
    "--records",
    metavar="FILE",
    type=_FILE,
    help="Accounts, users, QOS, limits, pools, reservations and defaults, as esctl load takes them.",
)
@click.option(
    "--account-from", type=_FIELDS, help="Charge each job to the account that this field of the log names."
)
@click.option("--qos-from", type=_FIELDS, help="Give each job the QOS that this field of the log names.")
@click.option(
    "--by",
    type=click.Choice(["user", "group", "account", "qos", "queue"]),
    help="Print the waits of each of these apart, too.",
)
@click.option(
    "--nodes",
    metavar="NxCORES",
    default="",
    help="The machine: N equal nodes (default: the log's processors, one a node).",
)
@click.option(
    "--estimates",
    metavar="KIND",
    default="user",
    help="How long jobs are thought to run: user (as they asked), perfect, or a CSV file with columns job,estimate and "
    "perhaps p50,p90, as eslurm estimate evaluate --predictions writes it.",
)
@click.option(
    "--kill-at-limit", is_flag=True, help="End jobs at the time they asked for, whatever the log says."
)
@click.option("--memory", is_flag=True, help="Jobs also need the memory of the log (with --config).")
@click.option(
    "--partition-from",
    type=click.Choice(["queue", "partition"]),
    help="Send each job to the partition that is called like its queue or partition in the log.",
)
@click.option("--jobs", "jobs_max", type=click.IntRange(1), metavar="N", help="Only the first N jobs.")
@click.option(
    "--gantt", metavar="FILE", type=_FILE, help="Draw the schedule (.svg or .png; needs matplotlib)."
)
@click.option(
    "--from", "from_", metavar="TIME", help="With --gantt: begin so long after the first job (D-HH:MM)."
)
@click.option("--until", metavar="TIME", help="With --gantt: end so long after the first job.")
@click.option(
    "--trace", "perfetto", metavar="FILE", type=_FILE, help="Write events for ui.perfetto.dev (JSON)."
)
@click.option(
    "--swf", metavar="FILE", type=_FILE, help="Write the schedule as a workload log (.swf or .swf.gz)."
)
@click.option(
    "--workflows",
    "workflows",
    type=click.IntRange(1, 90),
    metavar="PERCENT",
    help="Turn so much of the log's work into workflows of two and three stages that overlap.",
)
@click.option(
    "--coupled",
    "modes",
    type=click.Choice(["none", "chain", "changed", "pack", "moved", "het"]),
    multiple=True,
    help="With --workflows: how their stages are coupled; may be repeated (default: all, one line each).",
)
@click.option(
    "--seed", type=int, default=1, help="With --workflows: which jobs become workflows (default: 1)."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate(
    trace: Path,
    policies: tuple[str, ...],
    config: Path | None,
    records: Path | None,
    account_from: str | None,
    qos_from: str | None,
    by: str | None,
    nodes: str,
    estimates: str,
    kill_at_limit: bool,
    memory: bool,
    partition_from: str | None,
    jobs_max: int | None,
    gantt: Path | None,
    from_: str | None,
    until: str | None,
    perfetto: Path | None,
    swf: Path | None,
    workflows: int | None,
    modes: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> int:
    """Replay TRACE, a log in the Standard Workload Format (plain or gzip), with the cluster's own planner.

    Each job arrives when it did, runs as long as it did, and starts when the policy says. One planning cycle runs at
    each arrival and each end. The same command prints the same bytes.

    \b
    eslurm simulate KTH.swf.gz                                 EASY on the log's own machine
    eslurm simulate KTH.swf.gz --policy fcfs --policy easy     one line each
    eslurm simulate KTH.swf.gz --nodes 25x4 --estimates perfect
    eslurm simulate site.swf --config eslurm.toml --records site.toml --qos-from queue --by qos
    eslurm simulate KTH.swf.gz --jobs 500 --gantt kth.svg --trace kth.json
    eslurm simulate KTH.swf.gz --workflows 30 --coupled pack --coupled moved
    eslurm simulate esp --help                                 a benchmark whose applications lend idle cores
    """
    from eslurm.lab.workloads.workload import Choices

    asked = Asked(
        trace=trace,
        policies=policies,
        config=config,
        records=records,
        account_from=account_from or "",
        qos_from=qos_from or "",
        by=by or "",
        nodes=nodes,
        choices=Choices(
            estimates=_estimates(estimates),
            kill_at_limit=kill_at_limit,
            memory=memory,
            partition_from=partition_from or "",
            jobs_max=jobs_max or 0,
        ),
        gantt=gantt,
        from_s=_length("--from", from_),
        until_s=_length("--until", until),
        perfetto=perfetto,
        swf=swf,
        workflows=workflows or 0,
        modes=modes,
        seed=seed,
        as_json=as_json,
    )
    return _run(asked)


def _run(asked: Asked) -> int:
    from escli.lab import simulate_table as table
    from eslurm.lab.workloads import metrics
    from eslurm.lab.workloads.loop import Broken, replay

    config = _config(asked)
    machine, policies = _machine_and_policies(asked, config)
    records = _records(asked, config)
    _check_outputs(asked, policies)
    machine, workload, header, rules = _workload(asked, machine, config, records)
    notes = (
        *workload.notes,
        *(_rules_notes(asked, rules, policies[0], workload) if rules is not None else ()),
    )
    _tell(notes)
    if asked.workflows:
        return _run_workflows(asked, machine, workload, policies, notes, rules)
    name_of = table.name_of(asked.by, header)
    runs = []
    for policy in policies:
        with Progress(policy, "jobs started") as progress:
            try:
                result = replay(
                    workload, machine, policy, lambda step: progress.show(step.done, step.jobs), rules
                )
            except Broken as error:
                raise ClusterError(f"{asked.trace}: policy {policy}: {error}") from None
        happened = result.happened
        if happened is not None:
            _tell([f"{policy}: {text}" for text in happened.sentences()])
        parts = metrics.measure_by(result, name_of) if name_of is not None else []
        runs.append(table.Run(metrics.measure(result), parts, happened))
        _write(asked, result, header)
    if asked.as_json:
        sys.stdout.write(table.as_json(_head(asked, machine, workload), notes, runs, asked.by))
    else:
        sys.stdout.write(table.as_table([run.metrics for run in runs]))
        if asked.by:
            sys.stdout.write("\n" + table.parts_table(asked.by, runs))
    return exits.OK


def _run_workflows(
    asked: Asked,
    machine: Machine,
    workload: Workload,
    policies: Sequence[str],
    notes: Sequence[str],
    rules: Rules | None,
) -> int:
    """One run for each policy and each way to couple the stages."""
    from escli.lab import simulate_table as table
    from eslurm.lab.workloads.loop import Broken, replay
    from eslurm.lab.workloads.rules import Rules, plain_config
    from eslurm.lab.workloads.workflow_metrics import measure_workflows
    from eslurm.lab.workloads.workflows import MODES, couple
    from eslurm.lab.workloads.workload import WorkloadError

    # Packs, parts and dependencies are the controller's, not the planner's alone.
    rules = rules or Rules(plain_config(machine))
    found = []
    for policy in policies:
        for mode in [one for one in MODES if one in asked.modes or not asked.modes]:
            try:
                mixed = couple(workload, asked.workflows / 100, mode, asked.seed)
            except WorkloadError as error:
                raise unusable(str(error)) from None
            with Progress(f"{policy}, {mode}", "jobs started") as progress:
                try:
                    result = replay(
                        mixed.workload,
                        machine,
                        policy,
                        lambda step: progress.show(step.done, step.jobs),
                        rules,
                        mixed.workflows,
                    )
                except Broken as error:
                    raise ClusterError(f"{asked.trace}: policy {policy}, {mode}: {error}") from None
            if result.happened is not None:
                _tell([f"{policy}, {mode}: {text}" for text in result.happened.sentences()])
            found.append(measure_workflows(result, mixed.workflows, mode))
    if asked.as_json:
        head = _head(asked, machine, workload)
        sys.stdout.write(table.workflows_json({**head, "workflows": asked.workflows}, notes, found))
    else:
        sys.stdout.write(table.workflows_table(found))
    return exits.OK


def _head(asked: Asked, machine: Machine, workload: Workload) -> dict[str, object]:
    """The JSON object's description of the input."""
    estimates = asked.choices.estimates
    head: dict[str, object] = {
        "trace": asked.trace.name,
        "nodes": machine.topology.size,
        "processors": machine.processors,
        "jobs": len(workload.jobs),
        "estimates": estimates if isinstance(estimates, str) else "file",
    }
    if asked.records is not None:
        head["records"] = asked.records.name
    return head


def _config(asked: Asked) -> ClusterConfig | None:
    from eslurm.config.file import cluster_config, read_config
    from eslurm.config.problems import ConfigError

    if asked.config is not None and asked.nodes:
        raise unusable("--nodes: cannot go with --config: say once what the machine is")
    if asked.config is None and asked.choices.memory:
        raise unusable("--memory: goes with --config FILE: without it the nodes have no memory")
    if asked.config is None:
        return None
    try:
        return cluster_config(read_config(asked.config), str(asked.config))
    except ConfigError as error:
        raise unusable(str(error)) from None


def _machine_and_policies(
    asked: Asked, config: ClusterConfig | None
) -> tuple[Machine | None, tuple[str, ...]]:
    """The requested machine (None: the log's own), and the policies."""
    from eslurm.config.policies import PolicyError, load_policy
    from eslurm.lab.workloads.machine import MachineError, from_config, from_shape

    machine, default = None, "easy"
    try:
        if config is not None:
            machine, default = from_config(config), config.policy
        elif asked.nodes:
            machine = from_shape(asked.nodes)
    except MachineError as error:
        raise unusable(str(error)) from None
    policies = tuple(dict.fromkeys(asked.policies)) or (default,)
    for policy in policies:
        try:
            load_policy(policy)
        except PolicyError as error:
            raise unusable(f"--policy: {error}") from None
    return machine, policies


def _records(asked: Asked, config: ClusterConfig | None) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """The content of `--records`; empty without it."""
    from escli.admin.policies import read_file
    from escli.failures import CommandFailed

    if asked.records is None and config is None:
        for option, value in (
            ("--account-from", asked.account_from),
            ("--qos-from", asked.qos_from),
            ("--by", asked.by if asked.by in ("account", "qos") else ""),
        ):
            if value:
                raise unusable(
                    f"{option}: {value}: goes with --records FILE or --config FILE: without either there are no rules"
                )
    if asked.qos_from and asked.records is None:
        raise unusable(f"--qos-from: {asked.qos_from}: goes with --records FILE, which has the QOS")
    if asked.records is None:
        return []
    try:
        return read_file(str(asked.records))
    except CommandFailed as error:
        raise unusable(f"--records: {error.text}") from None


def _workload(
    asked: Asked,
    machine: Machine | None,
    config: ClusterConfig | None,
    records: Sequence[tuple[str, str, Sequence[tuple[str, str]]]],
) -> tuple[Machine, Workload, Header, Rules | None]:
    from eslurm.lab.workloads.machine import MachineError, from_header
    from eslurm.lab.workloads.rules import Rules, plain_config, zone_of
    from eslurm.lab.workloads.swf import SwfError, SwfFile
    from eslurm.lab.workloads.workload import WorkloadError, build

    choices, rules = asked.choices, None
    try:
        with SwfFile(asked.trace) as log:
            if machine is None:
                machine = from_header(log.header)
            if config is not None or asked.records is not None:
                zone = config.zone if config is not None else zone_of(log.header)
                rules = Rules(config or plain_config(machine), tuple(records), zone)
                choices = msgspec.structs.replace(choices, names=_names(asked, rules))
            return machine, build(log, log.header, machine, choices), log.header, rules
    except OSError as error:
        raise unusable(f"{asked.trace}: cannot be read: {error.strerror or error}") from None
    except SwfError as error:
        raise unusable(str(error)) from None
    except (MachineError, WorkloadError) as error:
        raise unusable(f"{asked.trace}: {error}") from None


def _names(asked: Asked, rules: Rules) -> Names:
    from eslurm.lab.workloads.workload import Names

    return Names(
        asked.account_from,
        asked.qos_from,
        rules.names("account"),
        rules.names("qos"),
        routed=rules.route,
        tell=rules.bind,
    )


def _rules_notes(asked: Asked, rules: Rules, policy: str, workload: Workload) -> tuple[str, ...]:
    from eslurm.lab.workloads.notes import notes_of
    from eslurm.lab.workloads.rules import RulesError

    try:
        return notes_of(rules, policy, workload)
    except RulesError as error:
        where = f"--records: {asked.records}" if asked.records is not None else f"--config: {asked.config}"
        raise unusable(f"{where}: {error}") from None


def _estimates(text: str) -> str | dict[int, Forecast]:
    from eslurm.lab.workloads.workload import WorkloadError, read_estimates

    if text in ("user", "perfect"):
        return text
    if not text.endswith(".csv"):
        raise unusable(
            f"--estimates: {quoted(text)} is unknown: use user, perfect or a FILE.csv with columns job,estimate (as eslurm"
            " estimate evaluate --predictions writes it)"
        )
    try:
        return read_estimates(Path(text))
    except OSError as error:
        raise unusable(f"--estimates: {text}: cannot be read: {error.strerror}") from None
    except WorkloadError as error:
        raise unusable(str(error)) from None


def _length(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_time_limit(text, option)
    except OptionError as error:
        raise unusable(str(error)) from None


def _check_outputs(asked: Asked, policies: Sequence[str]) -> None:
    """Check before a run of minutes whether its result can be written."""
    outputs = {"--gantt": asked.gantt, "--trace": asked.perfetto, "--swf": asked.swf}
    if asked.modes and not asked.workflows:
        raise unusable("--coupled: goes with --workflows PERCENT")
    for option in [option for option, path in outputs.items() if path is not None and asked.workflows]:
        raise unusable(f"{option}: cannot go with --workflows: it draws the jobs of a log")
    if asked.workflows and asked.by:
        raise unusable("--by: cannot go with --workflows")
    for option, path in outputs.items():
        if path is None:
            continue
        if len(policies) > 1:
            raise unusable(f"{option}: shows one run: give one --policy, not {len(policies)}")
        check_place(option, path)
    if asked.gantt is None:
        if asked.from_s is not None or asked.until_s is not None:
            raise unusable("--from, --until: go with --gantt FILE")
        return
    check_picture("--gantt", asked.gantt)
    if asked.until_s is not None and asked.until_s <= (asked.from_s or 0):
        raise unusable("--until: must lie after --from")


def _write(asked: Asked, result: Result, header: Header) -> None:
    from eslurm.lab.workloads import gantt, outcome, perfetto

    if result.happened is not None and result.happened.paused and (asked.gantt or asked.perfetto):
        raise ClusterError(
            "--gantt, --trace: jobs stood still to make room and their cores were others' meanwhile, which no bar from "
            "start to end shows: leave the option out, or use preempt_mode=requeue"
        )
    work: list[tuple[Path | None, Callable[[Path], None]]] = [
        (asked.swf, lambda path: outcome.write_outcome(path, result, header)),
        (asked.perfetto, lambda path: perfetto.write_trace(path, result)),
        (
            asked.gantt,
            lambda path: gantt.draw(path, result, gantt.window_of(result, asked.from_s, asked.until_s)),
        ),
    ]
    for path, write in work:
        if path is not None:
            try:
                write(path)
            except OSError as error:
                raise ClusterError(f"{path}: cannot be written: {error.strerror or error}") from None


def _tell(notes: Sequence[str]) -> None:
    for note in notes:
        sys.stderr.write(f"eslurm: {note}\n")
