"""`sacct`: jobs that wait, run and have ended, in columns, or as JSON.

A job is here from its submission on: what the controller has of it is overlaid by what accounting has of its ended runs.
"""

from __future__ import annotations

import os
import sys

from escli import exits
from escli.failures import CommandFailed
from escli.slurm import frame
from eslurm.compat.slurm import array_text, run_fields, words
from eslurm.compat.slurm.getopt import UsageProblem
from eslurm.compat.slurm.run_fields import Run
from eslurm.compat.slurm.sacct_options import BRIEF, DEFAULT, LONG
from eslurm.compat.slurm.sacct_options import ROWS as ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from escli.api import Api
    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

COMMAND = "sacct"
_PAGE = 10_000
_DROPPED = -1
"""In the place of an attempt's number: tasks that were cancelled before they began."""


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code."""
    if given.has("helpformat"):
        frame.print_line(_field_names())
        return exits.OK
    if given.rest:
        raise frame.Failed(f"sacct: error: Unknown arguments: {' '.join(given.rest)}")
    from escli.slurm.account_query import Query

    query = Query(given)
    shown = _columns(given)
    clusters = ["all"] if given.has("allclusters") else frame.clusters_of(given, os.environ)
    found: list[tuple[str, list[Run], int]] = []
    try:
        with context.open_api() as api:
            own = frame.own_cluster(api)
            for name in frame.cell_names(api, clusters, own) if clusters else [own]:
                if name == own:
                    found.append((name, *runs_of(api, query)))
                    continue
                with context.cluster_api(name, own) as cell:
                    found.append((name, *runs_of(cell, query)))
    except CommandFailed as failure:
        raise frame.Failed(f"sacct: error: {frame.trouble(failure)}") from None
    if given.has("json"):
        from eslurm.compat.slurm.run_json import document

        sys.stdout.write(document(found, context.release, sys.argv))
        return exits.OK
    _write(found, shown, given)
    return exits.OK


def _field_names() -> str:
    names = list(run_fields.WIDTHS)
    rows = [names[at : at + 4] for at in range(0, len(names), 4)]
    return "\n".join(" ".join(name.ljust(19) for name in row).rstrip() + " " for row in rows) + "\n"


def _columns(given: Options) -> list[run_fields.Column]:
    shapes = [row.long for row, _, _ in given.found if row.long in ("format", "brief", "long")]
    shape = shapes[-1] if shapes else ""
    if shape == "format":
        return run_fields.columns(",".join(given.all("format")))
    if shape == "brief":
        return run_fields.columns(BRIEF)
    if shape == "long":
        return run_fields.columns(LONG)
    return run_fields.columns(os.environ.get("SACCT_FORMAT") or DEFAULT)


def _write(
    found: Sequence[tuple[str, list[Run], int]], shown: Sequence[run_fields.Column], given: Options
) -> None:
    unit = "K" if given.has("noconvert") else given.last("units").upper()
    if unit and unit not in "KMGTP":
        raise UsageProblem(f"error: --units={unit}")
    ending = None
    if given.has("parsable") or given.has("parsable2"):
        ending = given.last("delimiter") or "|"
    is_ended = [row.long for row, _, _ in given.found if row.long in ("parsable", "parsable2")][-1:] == [
        "parsable"
    ]
    has_header = not given.has("noheader")
    for name, runs, now_us in found:
        writer = run_fields.Writer(now_us, name, frame.moment_writer(os.environ), unit)
        rows = [row for one in runs for row in ((one,) if given.has("allocations") else _rows(one))]
        lines = run_fields.lines(shown, rows, writer, has_header=has_header, ending=ending, is_ended=is_ended)
        sys.stdout.write("".join(lines))
        has_header = False


def _rows(one: Run) -> tuple[Run, ...]:
    """A job's line, and that of its batch step if it has begun."""
    return (one, one.batch()) if one.started_us else (one,)


def runs_of(api: Api, query: Any) -> tuple[list[Run], int]:
    """The chosen runs, in the order of their jobs, and the cluster's time."""
    from escli.slurm.account_rows import of_attempt, of_dropped_tasks, of_info

    reply = api.call("Jobs", query.jobs_request())
    infos = {info.job_id: info for info in reply.jobs}
    attempts = []
    request = query.accounting_request()
    while request is not None:
        request.limit = _PAGE
        page = api.call("Accounting", request)
        attempts += page.attempts
        request.page = page.next_page
        if not page.next_page:
            request = None
    found: dict[tuple[int, int], list[Run]] = {}
    known = {
        (one.array_job_id, one.array_task) for one in (*attempts, *reply.jobs) if one.HasField("array_task")
    }
    arrays = {array for array, _ in known}
    for attempt in attempts:
        info = infos.get(attempt.job_id)
        if attempt.job_id in arrays or (info is not None and array_text.is_array(info)):
            continue
        found[attempt.job_id, attempt.attempt] = of_attempt(attempt, info)
    for info in reply.jobs:
        key = (info.job_id, _attempt_of(info))
        if key not in found and (info.job_id, 0) not in found:
            found[key] = of_info(info, in_lines=query.by_task)
        if not info.HasField("array_task") and info.details.tasks_failed:
            found[info.job_id, _DROPPED] = of_dropped_tasks(info, known)
    if not query.has_duplicates:
        last = _last_attempts(found)
        found = {key: runs for key, runs in found.items() if key[1] in (last[key[0]], _DROPPED)}
    runs = [one for _, some in sorted(found.items(), key=_place) for one in some if query.takes(one)]
    return runs, reply.now_us


def _place(item: tuple[tuple[int, int], list[Run]]) -> tuple[int, int, int]:
    """The place of a job's runs: by the id that users know, tasks of an array by their numbers."""
    (job_id, number), runs = item
    array, underscore, task = runs[0].label.partition("_") if runs else (str(job_id), "", "")
    if not underscore:
        return job_id, -1, number
    return int(array), int(task.partition("+")[0]) if task.partition("+")[0].isdecimal() else 1 << 31, number


def _last_attempts(found: Any) -> dict[int, int]:
    last: dict[int, int] = {}
    for job_id, number in found:
        last[job_id] = max(last.get(job_id, -1), number)
    return last


def _attempt_of(info: Any) -> int:
    """The number of the attempt that the job's record is of: the next one while it waits."""
    is_waiting = info.state in ("PENDING", "TRANSFERRED") or not info.attempts
    if info.state in words.ENDED and not info.started_us:
        return int(info.attempts) + 1
    return int(info.attempts) + 1 if is_waiting else int(info.attempts)
