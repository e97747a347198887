"""`seff`: the efficiency of a job that has ended, in CPU time and memory, by what its batch step used on its first node."""

from __future__ import annotations

from escli import exits
from escli.slurm import frame
from eslurm.compat.slurm import words
from eslurm.compat.slurm.layout import padded_clock
from eslurm.compat.slurm.run_fields import elapsed_s
from eslurm.compat.slurm.small_options import SEFF

TYPE_CHECKING = False
if TYPE_CHECKING:
    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options
    from eslurm.compat.slurm.run_fields import Run


ROWS = SEFF


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    from escli.slurm.account_query import Query
    from escli.slurm.sacct import ROWS as SACCT_ROWS
    from escli.slurm.sacct import runs_of
    from eslurm.compat.slurm.getopt import Parser

    if given.has("v"):
        from eslurm.compat.slurm.release import version_line

        frame.print_line(version_line(context.release))
        return exits.OK
    if len(given.rest) != 1 or given.has("h"):
        raise frame.Failed("Usage: seff [Options] <Jobid>")
    with context.open_api() as api:
        runs, now_us = runs_of(api, Query(Parser(SACCT_ROWS).parse(["-j", given.rest[0]])))
        cluster = frame.own_cluster(api)
    if not runs:
        raise frame.Failed("Job not found.", code=2)
    frame.print_line(efficiency(runs[-1], now_us, cluster))
    return exits.OK


def efficiency(run: Run, now_us: int, cluster: str) -> str:
    """The lines of a job."""
    state = words.long_state(run.state)
    cpus, nodes = max(1, run.cpus), max(1, run.nodes)
    is_open = state in ("PENDING", "RUNNING")
    lines = [
        f"Job ID: {run.job_id}",
        *([f"Array Job ID: {run.label}"] if "_" in run.label else []),
        f"Cluster: {cluster}",
        f"User/Group: {run.user}/{run.group}",
        f"State: {state}" if is_open else f"State: {state} (exit code {run.exit_code})",
        *([f"Cores: {cpus}"] if cpus == 1 else [f"Nodes: {nodes}", f"Cores per node: {cpus // nodes}"]),
    ]
    if state == "PENDING":
        return "\n".join([*lines, "Efficiency not available for jobs in the PENDING state."])
    seconds = elapsed_s(run, now_us)
    cpu_s = (max(0, run.user_cpu_us) + max(0, run.system_cpu_us) + 500_000) // 1_000_000
    share = 100 * cpu_s / (seconds * cpus) if seconds else 0.0
    asked_kib = max(0, run.req_mem_mib) * 1024
    used_kib = max(0, run.max_rss_kib)
    memory = 100 * used_kib / asked_kib if asked_kib else 0.0
    lines += [
        f"CPU Utilized: {padded_clock(cpu_s)}",
        f"CPU Efficiency: {share:.2f}% of {padded_clock(seconds * cpus)} core-walltime",
        f"Job Wall-clock time: {padded_clock(seconds)}",
        f"Memory Utilized: {_kib(used_kib)}",
        f"Memory Efficiency: {memory:.2f}% of {_kib(asked_kib)} ({_kib(asked_kib // nodes)}/node)",
    ]
    if nodes > 1:
        lines.append(
            "WARNING: Only what the batch script and its children used on the first node is counted."
        )
    if is_open:
        lines.append("WARNING: Efficiency statistics can only be obtained after the job has ended.")
    return "\n".join(lines)


def _kib(kib: float) -> str:
    unit = 0
    while kib >= 1024 and unit < 4:
        kib /= 1024
        unit += 1
    return f"{kib:.2f} {('KB', 'MB', 'GB', 'TB', 'PB')[unit]}"
