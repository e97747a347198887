"""`sacct`: jobs that wait, run and have ended, in columns, or as JSON.

A job is here from its submission on: what the controller has of it is overlaid by what accounting has of its ended runs.
"""

from __future__ import annotations

import os
import sys
from operator import attrgetter

from escli import exits
from escli.failures import CommandFailed
from escli.slurm import frame
from eslurm.compat.slurm import array_text, fitted, run_fields
from eslurm.compat.slurm.getopt import UsageProblem
from eslurm.compat.slurm.run_fields import Run
from eslurm.compat.slurm.sacct_options import BRIEF, DEFAULT, LONG
from eslurm.compat.slurm.sacct_options import ROWS as ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
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
        frame.print_line(fitted.listed_names(list(run_fields.WIDTHS)))
        return exits.OK
    if given.rest:
        raise frame.Failed(f"sacct: error: Unknown arguments: {' '.join(given.rest)}")
    if given.has("batch-script"):
        from escli.slurm.sacct_scripts import show_scripts

        return show_scripts(context, given)
    return frame.without_collection(lambda: _show(context, given))


def _show(context: Context, given: Options) -> int:
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
    if frame.wants_document(given):
        from eslurm.compat.slurm.run_json import document

        frame.write_document(given, document(found, context.release, sys.argv))
        return exits.OK
    _write(found, shown, given)
    return exits.OK


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
    has_header, is_short = not given.has("noheader"), given.has("allocations")
    for name, runs, now_us in found:
        writer = run_fields.Writer(now_us, name, frame.moment_writer(os.environ), unit)
        rows = runs if is_short else _with_batch(runs)
        lines = run_fields.lines(shown, rows, writer, has_header=has_header, ending=ending, is_ended=is_ended)
        sys.stdout.write("".join(lines))
        has_header = False


def _with_batch(runs: Iterable[Run]) -> list[Run]:
    """The lines of jobs, each before that of its batch step if it has begun."""
    rows = []
    for one in runs:
        rows.append(one)
        if one.started_us:
            rows.append(one.batch())
    return rows


def runs_of(api: Api, query: Any) -> tuple[list[Run], int]:
    """The chosen runs, in the order of their jobs, and the cluster's time."""
    from escli.slurm.account_rows import number_of, of_attempt, of_dropped_tasks, of_info

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
        key = (info.job_id, number_of(info))
        if key not in found and (info.job_id, 0) not in found:
            found[key] = of_info(info, in_lines=query.by_task)
        if not info.HasField("array_task") and info.details.tasks_failed:
            found[info.job_id, _DROPPED] = of_dropped_tasks(info, known)
    if not query.has_duplicates:
        found = _only_last(found)
    runs = [one for some in found.values() for one in some if query.takes(one)]
    if query.is_cut:
        runs = [query.shortened(one) for one in runs]
    runs.sort(key=attrgetter("place"))
    return runs, reply.now_us


def _only_last(found: dict[tuple[int, int], Any]) -> dict[tuple[int, int], Any]:
    """The last attempt of each job, and tasks that were dropped."""
    last: dict[int, int] = {}
    for job_id, number in found:
        if number > last.get(job_id, -2):
            last[job_id] = number
    if len(last) == len(found):
        return found
    return {key: runs for key, runs in found.items() if key[1] in (last[key[0]], _DROPPED)}
