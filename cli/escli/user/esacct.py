"""`esacct`: past runs. One line for each ended attempt."""

from __future__ import annotations

import sys

from escli import clock, exits, program
from escli.api import Api
from escli.job_refs import by_part, job_refs, label_of_part, split_jobs
from escli.open_api import open_api
from escli.tables import Column, render, separated
from escli.user.queue_columns import pack_label
from eslurm.compat.durations import format_elapsed, format_time_limit
from eslurm.compat.errors import OptionError, escaped, nearest, whole_number
from eslurm.compat.moments import format_moment, parse_moment
from eslurm.compat.states import parse_states

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from escli.options import Words

COMMAND = "esacct"
_LIMIT = 1000
_LIMIT_MAX = 10_000_000
_PAGE = 10_000
DEFAULT_COLUMNS = "jobid,jobname,user,partition,alloccpus,state,exitcode,elapsed,nodelist"
ATTEMPT_COLUMNS = "jobid,attempt,jobname,alloccpus,state,elapsed,timelimit,wasted,reason"
_FOLLOWED = "REQUEUED"
"""State of an attempt after which the job waited again: it was retried, requeued or preempted."""


def _moment(at_us: int) -> str:
    return format_moment(at_us, clock.local_offset_s)


def _label(run: Any) -> str:
    label = f"{run.array_job_id}_{run.array_task}" if run.HasField("array_task") else str(run.job_id)
    return label + label_of_part(run)


def _core_us(run: Any) -> int:
    """Core-microseconds: of a run whose nodes changed, the sum over its segments."""
    if not run.segments:
        return int(run.cpus * _elapsed_us(run))
    return int(sum(one.cpus * max(0, one.until_us - one.from_us) for one in run.segments))


def _elapsed_us(run: Any) -> int:
    return max(0, run.ended_us - run.started_us - run.paused_us) if run.started_us and run.ended_us else 0


def wasted(run: Any) -> dict[str, int]:
    """Run time of an attempt that was followed by another one, in seconds and in seconds times its cores."""
    wasted_us = _elapsed_us(run) if run.state == _FOLLOWED else 0
    return {"wasted_s": wasted_us // 1_000_000, "wasted_cpu_s": run.cpus * wasted_us // 1_000_000}


def _cpu(cpu_us: int) -> str:
    return f"{format_elapsed(cpu_us // 1_000_000)}.{cpu_us % 1_000_000 // 1000:03d}"


COLUMNS: Mapping[str, tuple[str, bool, Callable[[Any], str]]] = {
    "jobid": ("JobID", True, _label),
    "jobidraw": ("JobIDRaw", True, lambda run: str(run.job_id)),
    "attempt": ("Attempt", True, lambda run: str(run.attempt)),
    "jobname": ("JobName", False, lambda run: escaped(run.name)),
    "user": ("User", False, lambda run: run.user),
    "account": ("Account", False, lambda run: run.account),
    "partition": ("Partition", False, lambda run: run.partition),
    "alloccpus": ("AllocCPUS", True, lambda run: str(run.cpus)),
    "allocnodes": ("AllocNodes", True, lambda run: str(run.nodes)),
    "state": ("State", False, lambda run: run.state),
    "exitcode": ("ExitCode", True, lambda run: f"{run.exit_code}:{run.exit_signal}"),
    "submit": ("Submit", False, lambda run: _moment(run.submitted_us)),
    "start": ("Start", False, lambda run: _moment(run.started_us)),
    "end": ("End", False, lambda run: _moment(run.ended_us)),
    "elapsed": ("Elapsed", True, lambda run: format_elapsed(_elapsed_us(run) // 1_000_000)),
    "elapsedraw": ("ElapsedRaw", True, lambda run: str(_elapsed_us(run) // 1_000_000)),
    "cputimeraw": ("CPUTimeRAW", True, lambda run: str(_core_us(run) // 1_000_000)),
    "timelimit": ("Timelimit", True, lambda run: format_time_limit(run.time_limit_s)),
    "timelimitraw": ("TimelimitRaw", True, lambda run: str(run.time_limit_s)),
    "wasted": ("Wasted", True, lambda run: format_elapsed(wasted(run)["wasted_cpu_s"])),
    "wastedraw": ("WastedRaw", True, lambda run: str(wasted(run)["wasted_cpu_s"])),
    "usercpu": ("UserCPU", True, lambda run: _cpu(run.user_cpu_us)),
    "systemcpu": ("SystemCPU", True, lambda run: _cpu(run.system_cpu_us)),
    "totalcpu": ("TotalCPU", True, lambda run: _cpu(run.user_cpu_us + run.system_cpu_us)),
    "maxrss": ("MaxRSS", True, lambda run: f"{run.max_rss_kib}K"),
    "nodelist": ("NodeList", False, lambda run: run.node_names),
    "reason": ("Reason", False, lambda run: escaped(run.exit_text)),
    "trace": ("Trace", False, lambda run: run.trace),
    "pack": ("Pack", True, pack_label),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return program.run(COMMAND, _account, argv)


def _account(given: Words) -> int:
    program.no_more_words(given.rest, "is not an option; jobs are named with -j")
    if given.has("helpformat"):
        program.say("\n".join(head for head, _, _ in COLUMNS.values()))
        return exits.OK
    names = _columns(given)
    limit = _limit(given)
    request = _request(given)
    if given.has("cells") or given.has("clusters"):
        from escli.user import cells

        if cells.cells_named(given):
            return _account_of_cells(given, request, names, limit)
    with open_api(given, COMMAND) as api:
        if given.has("packs") and given.has("jobs"):
            _add_members(api, request)
        runs, is_cut = _fetch(api, request, limit)
    if given.has("packs"):
        runs = sorted([run for run in runs if run.pack_id], key=lambda run: (run.pack_id, run.pack_index))
    sys.stdout.write(_render(runs, names, given, request.jobs))
    if is_cut:
        program.warn(COMMAND, f"there is more than these {limit} lines: see --limit, -S and -E")
    return exits.OK


def _account_of_cells(given: Words, request: Any, names: Sequence[str], limit: int) -> int:
    """The runs of several cells in one table, at most `limit` of each."""
    from escli.user import cells

    def ask(api: Api) -> tuple[list[Any], bool]:
        asked = type(request)()
        asked.CopyFrom(request)
        return _fetch(api, asked, limit)

    found = cells.ask_cells(given, COMMAND, ask)
    if given.has("json"):
        sys.stdout.write(cells.to_json(found, "attempts", lambda answer: answer[0], _fields))
        return exits.OK
    answered = [one for one in found if one.answer is not None]
    shown = _table_columns(names)
    columns, rows = cells.joint(
        (one.name, shown, _rows(one.answer[0], names, request.jobs)) for one in answered
    )
    sys.stdout.write(_text(columns, rows, given))
    for one in answered:
        if one.answer[1]:
            program.warn(
                COMMAND, f"cell {one.name}: there is more than these {limit} lines: see --limit, -S and -E"
            )
    return exits.OK


def _columns(given: Words) -> list[str]:
    columns = ATTEMPT_COLUMNS if given.has("attempts") else DEFAULT_COLUMNS
    text = given.text("format", f"pack,{columns}" if given.has("packs") else columns)
    names = []
    for word in text.lower().split(","):
        # sacct's widths (jobid%20) are accepted: columns fit their cells anyway.
        name = word.strip().partition("%")[0]
        if name not in COLUMNS:
            near = nearest(name, COLUMNS)
            way_out = f"did you mean {near}?" if near else "see esacct --helpformat"
            raise OptionError(given.spelling("format"), word, "is not a column", way_out)
        names.append(name)
    return names


def _limit(given: Words) -> int:
    if not given.has("limit"):
        return _LIMIT
    text = given.text("limit")
    number = whole_number(text, 9)
    if not 0 < number <= _LIMIT_MAX:
        raise OptionError(
            given.spelling("limit"), text, f"is not a number from 1 to {_LIMIT_MAX}", "use e.g. --limit 50"
        )
    return number


def _request(given: Words) -> Any:
    from eslurm.v1 import controller_pb2 as pb

    since = given.text("starttime", "" if given.has("jobs") else "today")
    request = pb.AccountingRequest(
        user=given.text("user"), partition=given.text("partition"), name=given.text("name")
    )
    if since:
        request.since_us = _instant(since, given.spelling("starttime"))
    if given.has("endtime"):
        request.until_us = _instant(given.text("endtime"), given.spelling("endtime"))
    if given.has("state"):
        request.states.extend(parse_states(given.text("state"), given.spelling("state")))
    if given.has("jobs"):
        request.jobs.extend(job_refs(split_jobs(given.text("jobs")), given.spelling("jobs")))
    return request


def _add_members(api: Api, request: Any) -> None:
    """Add the other jobs of the packs that are named, as far as the controller knows them."""
    from escli.user.pack_table import chosen
    from eslurm.v1 import controller_pb2 as pb

    reply = api.call("Jobs", pb.JobsRequest(finished_too=True))
    named = {ref.job_id for ref in request.jobs}
    members = [info.job_id for info in chosen(reply.jobs, request.jobs)]
    request.jobs.extend(pb.JobRef(job_id=job_id) for job_id in members if job_id not in named)


def _instant(text: str, option: str) -> int:
    return parse_moment(text, clock.now_us(), clock.local_offset_s, option, past=True)


def _fetch(api: Api, request: Any, limit: int) -> tuple[list[Any], bool]:
    """Up to `limit` runs, page by page, and whether there are more."""
    runs: list[Any] = []
    while True:
        request.limit = min(_PAGE, limit - len(runs))
        reply = api.call("Accounting", request)
        runs.extend(reply.attempts)
        if not reply.next_page or not reply.attempts or len(runs) >= limit:
            return runs[:limit], bool(reply.next_page)
        request.page = reply.next_page


def _render(runs: Sequence[Any], names: Sequence[str], given: Words, refs: Sequence[Any]) -> str:
    if given.has("json"):
        import json

        return json.dumps({"attempts": [_fields(run) for run in runs]}, indent=1) + "\n"
    return _text(_table_columns(names), _rows(runs, names, refs), given)


def _fields(run: Any) -> dict[str, Any]:
    """A run as JSON: the fields of the reply, and what of it was wasted."""
    from escli.as_json import fields_of

    return {**fields_of(run), **wasted(run)}


def _rows(runs: Sequence[Any], names: Sequence[str], refs: Sequence[Any]) -> list[list[str]]:
    chosen = [COLUMNS[name][2] for name in names]
    return [[cell(run) for cell in chosen] for run in by_part(runs, refs, each=True)]


def _table_columns(names: Sequence[str]) -> list[Column]:
    return [Column(COLUMNS[name][0], right=COLUMNS[name][1]) for name in names]


def _text(columns: Sequence[Column], rows: Sequence[Sequence[str]], given: Words) -> str:
    header = not given.has("noheader")
    if given.has("parsable2"):
        return separated([column.head for column in columns], rows, header=header)
    return render(columns, rows, header=header)
