"""`esqueue`: the waiting and running jobs, as a table or JSON."""

from __future__ import annotations

import sys
import time

from escli import exits, program
from escli.api import GIVE_UP_S, is_away
from escli.failures import CommandFailed
from escli.job_refs import by_part, job_refs, split_jobs
from escli.open_api import open_api
from eslurm.compat.errors import OptionError
from eslurm.compat.states import parse_states

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    from escli.api import Api
    from escli.options import Words

COMMAND = "esqueue"
_WATCH_MAX_S = 86_400.0
_PLANNED_MAX = 10_000
"""Planned jobs whose nodes are shown."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return program.run(COMMAND, _queue, argv)


def _queue(given: Words) -> int:
    program.no_more_words(given.rest, "is not an option; jobs are named with -j")
    pause_s = _pause_s(given)
    shape = _shape(given)
    request = _request(given)
    refs = job_refs(split_jobs(given.text("jobs")), given.spelling("jobs")) if given.has("jobs") else []
    if given.has("cells") or given.has("clusters"):
        from escli.user import cells

        if cells.cells_named(given):
            return _queue_of_cells(given, request, shape, refs, pause_s)
    with open_api(given, COMMAND) as api:
        request.user = chosen_user(given, api)
        text = _render(_ask(api, request, given), given, shape, refs)
        if pause_s:
            _watch(lambda: _render(_ask(api, request, given), given, shape, refs), text, pause_s)
        sys.stdout.write(text)
        return exits.OK


def _queue_of_cells(given: Words, request: Any, shape: Any, refs: Sequence[Any], pause_s: float) -> int:
    """The jobs of several cells in one table."""
    from escli.tables import render
    from escli.user import cells

    def ask(api: Api) -> Any:
        asked = type(request)()
        asked.CopyFrom(request)
        asked.user = chosen_user(given, api)
        return _ask(api, asked, given)

    def look() -> str:
        found = cells.ask_cells(given, COMMAND, ask)
        if given.has("json"):
            return cells.to_json(found, "jobs", lambda reply: reply.jobs)
        (columns, letters), gap = shape
        answered = [one for one in found if one.answer is not None]
        width = 0 if gap else max(map(len, ["CELL", *(one.name for one in answered)])) + 1
        tables = ((one.name, columns, _rows(one.answer, given, letters, refs)) for one in answered)
        columns, rows = cells.joint(tables, width=width)
        return render(columns, rows, header=not given.has("noheader"), gap=gap)

    text = look()
    if pause_s:
        _watch(look, text, pause_s)
    sys.stdout.write(text)
    return exits.OK


def _ask(api: Api, request: Any, given: Words) -> Any:
    """The jobs; with `--start` the planned ones, too."""
    reply = api.call("Jobs", request)
    if not given.has("start"):
        return reply
    from escli.user.plan_table import next_starts
    from eslurm.v1 import controller_pb2 as pb

    plan = api.call("Plan", pb.PlanRequest(partition=request.partition, limit=_PLANNED_MAX))
    starts = next_starts(plan)
    for info in reply.jobs:
        if info.state == "PENDING" and info.job_id in starts:
            start = starts[info.job_id]
            info.planned_start_us, info.planned_nodes = start.start_us, start.nodes
            info.planned_earliest_us, info.planned_latest_us = start.start_earliest_us, start.start_latest_us
    return reply


def _watch(look: Callable[[], str], text: str, pause_s: float) -> NoReturn:
    """Show the jobs again and again. A controller that is away for a while does not end it."""
    heard_s = time.monotonic()
    while True:
        _redraw(text, pause_s)
        time.sleep(pause_s)
        try:
            text = look()
        except CommandFailed as failure:
            if not is_away(failure) or time.monotonic() - heard_s > GIVE_UP_S:
                raise
            text = f"{failure.text}; trying again\n"
        else:
            heard_s = time.monotonic()


def _redraw(text: str, pause_s: float) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(
            f"\x1b[H\x1b[2Jevery {pause_s:g} s  {time.strftime('%H:%M:%S')}  (Ctrl-C ends)\n{text}"
        )
    else:
        sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _pause_s(given: Words) -> float:
    if not given.has("watch"):
        return 0.0
    text = given.text("watch")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= _WATCH_MAX_S:
        raise OptionError(given.spelling("watch"), text, "is not a number of seconds", "use e.g. --watch 2")
    return seconds


def _shape(given: Words) -> Any:
    from escli.user import queue_columns as columns

    if given.has("format"):
        return columns.by_format(given.text("format"), given.spelling("format")), ""
    letters = columns.DEFAULT
    if given.has("start"):
        letters = columns.START
    elif given.has("long"):
        letters = columns.LONG
    return columns.by_letters(letters), " "


def _request(given: Words) -> Any:
    from eslurm.v1 import controller_pb2 as pb

    request = pb.JobsRequest(partition=given.text("partition"), name=given.text("name"))
    if given.has("start") and not given.has("states"):
        request.states.extend(parse_states("PD", given.spelling("start")))
    if given.has("states"):
        request.states.extend(parse_states(given.text("states"), given.spelling("states")))
    if given.has("jobs"):
        request.jobs.extend(job_refs(split_jobs(given.text("jobs")), given.spelling("jobs")))
    request.finished_too = given.has("states") or given.has("jobs")
    if given.has("packs") and given.has("jobs"):
        # Any job of a pack names it, and only the answer has the others.
        del request.jobs[:]
    return request


def chosen_user(given: Words, api: Api) -> str:
    """The user name that `--me` or `--user` means."""
    return api.user() if given.has("me") else given.text("user")


def _render(reply: Any, given: Words, shape: Any, refs: Sequence[Any]) -> str:
    if given.has("packs"):
        return _render_packs(reply, given, refs)
    if given.has("json"):
        from escli.as_json import to_json

        return to_json(reply) + "\n"
    from escli.tables import render
    from escli.user import queue_columns

    (columns, cells), gap = shape
    if given.has("start") and not given.has("format") and any(info.planned_latest_us for info in reply.jobs):
        columns, cells = queue_columns.by_letters(queue_columns.START_BETWEEN)
    rows = _rows(reply, given, cells, refs)
    return render(columns, rows, header=not given.has("noheader"), gap=gap)


def _rows(reply: Any, given: Words, cells: Any, refs: Sequence[Any]) -> list[list[str]]:
    from escli.user import queue_columns

    # An array's record whose last tasks are running has nothing to show that its tasks do not.
    infos = [info for info in reply.jobs if info.array_tasks_left or not info.tasks_running]
    infos.sort(key=queue_columns.sort_key)
    if given.has("array"):
        infos = queue_columns.unfolded(infos)
    infos = by_part(infos, refs, each=given.has("parts"))
    return queue_columns.fill(infos, cells, reply.now_us)


def _render_packs(reply: Any, given: Words, refs: Sequence[Any]) -> str:
    from escli.user import pack_table

    infos = pack_table.chosen(reply.jobs, refs)
    if not given.has("json"):
        return pack_table.pack_table(infos, reply.now_us, header=not given.has("noheader"))
    import json

    from escli.as_json import fields_of

    packs = [
        {
            "pack_id": pack[0].pack_id,
            "size": pack[0].pack_size,
            "state": pack_table.state_of(pack),
            "start_us": pack_table.start_us(pack),
            "jobs": [fields_of(info) for info in pack],
        }
        for pack in pack_table.packs_of(infos)
    ]
    return json.dumps({"packs": packs, "now_us": reply.now_us}, indent=1) + "\n"
