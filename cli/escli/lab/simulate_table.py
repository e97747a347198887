"""Output of `eslurm simulate`: one line a run, the waits of parts of the jobs, or one JSON object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from eslurm.compat.durations import format_duration

if TYPE_CHECKING:
    from eslurm.lab.workloads.happened import RuleEffects
    from eslurm.lab.workloads.loop import Ran
    from eslurm.lab.workloads.metrics import Metrics, Part
    from eslurm.lab.workloads.swf import Header
    from eslurm.lab.workloads.workflow_metrics import WorkflowMetrics


class Run(msgspec.Struct, frozen=True):
    """The results of one policy. `happened`: counts of rules' effects, if there are any."""

    metrics: Metrics
    parts: list[Part]
    happened: RuleEffects | None


def name_of(by: str, header: Header) -> Callable[[Ran], str] | None:
    """The function that groups the jobs of a run by this field; None: no groups."""
    from eslurm.lab.workloads.workload import FIELD_LETTERS

    if not by:
        return None
    if by in ("account", "qos"):
        return lambda ran: (ran.account if by == "account" else ran.qos) or "-"
    known = header.names_of(by.capitalize())

    def of_record(ran: Ran) -> str:
        number: int = getattr(ran.job.record, by)
        return known.get(number, f"{FIELD_LETTERS[by]}{number}") if number >= 0 else "-"

    return of_record


def as_table(measured: Sequence[Metrics]) -> str:
    """One line a run."""
    from escli.tables import Column, render

    heads = (
        "JOBS",
        "UTILISATION",
        "WAIT",
        "SLOWDOWN",
        "P95_WAIT",
        "LONGEST",
        "WORK_WAIT",
        "LOST",
        "MAKESPAN",
    )
    columns = [Column("POLICY"), *(Column(head, right=True) for head in heads)]
    rows = [
        [
            one.policy,
            str(one.jobs),
            f"{one.utilisation:.2%}",
            *(format_duration(round(one.wait_mean_s)), f"{one.slowdown_mean:.2f}"),
            *(
                format_duration(round(wait_s))
                for wait_s in (one.wait_p95_s, one.wait_max_s, one.wait_weighted_s)
            ),
            f"{one.loss_of_capacity:.2%}",
            format_duration(round(one.makespan_s)),
        ]
        for one in measured
    ]
    return render(columns, rows, gap="  ")


def parts_table(by: str, runs: Sequence[Run]) -> str:
    """The waits of each user, QOS, ... and its share of the processor time that was used."""
    from escli.tables import Column, render

    heads = ("JOBS", "SHARE", "WAIT", "SLOWDOWN", "P95_WAIT", "LONGEST", "WORK_WAIT")
    columns = [Column("POLICY"), Column(by.upper()), *(Column(head, right=True) for head in heads)]
    rows = [
        [
            run.metrics.policy,
            part.name,
            str(part.jobs),
            f"{part.share:.2%}",
            *(format_duration(round(part.wait_mean_s)), f"{part.slowdown_mean:.2f}"),
            *(
                format_duration(round(wait_s))
                for wait_s in (part.wait_p95_s, part.wait_max_s, part.wait_weighted_s)
            ),
        ]
        for run in runs
        for part in run.parts
    ]
    return render(columns, rows, gap="  ")


def as_json(head: Mapping[str, Any], notes: Sequence[str], runs: Sequence[Run], by: str) -> str:
    """All results, after the description of the input; rules' effects only with records, or when there are some."""
    found: dict[str, Any] = {**head, "notes": notes, "results": [run.metrics for run in runs]}
    if by:
        found["by"] = by
        found["parts"] = {run.metrics.policy: run.parts for run in runs}
    if "records" in head or any(run.happened is not None and run.happened.sentences() for run in runs):
        found["rules"] = {run.metrics.policy: run.happened for run in runs}
    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"


def workflows_table(measured: Sequence[WorkflowMetrics]) -> str:
    """One line a run with workflows."""
    from escli.tables import Column, render

    heads = ("WORKFLOWS", "RESPONSE", "WAIT", "MAKESPAN", "STRETCH", "OVERLAP", "LATE", "IDLE_HELD", "USED")
    others = ("OTHERS_WAIT", "OTHERS_SLOWDOWN")
    columns = [Column("POLICY"), Column("COUPLED"), *(Column(head, right=True) for head in (*heads, *others))]
    rows = [
        [
            one.policy,
            one.mode,
            str(one.workflows),
            *(format_duration(round(time_s)) for time_s in (one.response_s, one.wait_s, one.makespan_s)),
            *(f"{one.stretch:.2f}", f"{one.overlapped:.0%}", format_duration(round(one.late_s))),
            *(f"{one.idle_share:.1%}", f"{one.used:.2%}"),
            *(format_duration(round(one.other_wait_s)), f"{one.other_slowdown:.2f}"),
        ]
        for one in measured
    ]
    return render(columns, rows, gap="  ")


def workflows_json(head: Mapping[str, Any], notes: Sequence[str], measured: Sequence[WorkflowMetrics]) -> str:
    """All runs with workflows, after the description of the input."""
    found = {**head, "notes": notes, "results": measured}
    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"
