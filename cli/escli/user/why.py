"""Output of `eswhy` and `esctl why`: a job's reasons, its start, its nodes one by one, and alternatives."""

from __future__ import annotations

from escli import clock, exits, program
from escli.tables import Column, render
from escli.user.queue_columns import expected_s, job_label, partition_names
from eslurm.compat.errors import OptionError, escaped
from eslurm.compat.moments import DAY_S, format_moment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from escli.api import Api
    from escli.options import Words

_TIMEOUT_S = 60.0
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def why(api: Api, words: Sequence[str], given: Words) -> int:
    """`esctl why JOB ...`: each job's answer, one after another."""
    from escli.job_refs import job_refs, split_jobs
    from eslurm.v1 import controller_pb2 as pb

    parts = [part for word in words for part in split_jobs(word.lower().removeprefix("jobid="))]
    if not parts:
        raise OptionError("why", None, "needs a job", "use e.g. esctl why 17")
    texts = []
    for ref in job_refs(parts, "why"):
        request = pb.WhyRequest(job=ref, no_alternatives=given.has("no-alternatives"))
        texts.append(_shown(api.call("Why", request, _TIMEOUT_S), given))
    program.say("\n".join(texts) if given.has("json") else "\n\n".join(texts))
    return exits.OK


def _shown(reply: Any, given: Words) -> str:
    if given.has("json"):
        from escli.as_json import to_json

        return to_json(reply)
    return answer(reply)


def answer(reply: Any) -> str:
    """The whole answer as lines."""
    job, now_us = reply.job, reply.now_us
    head = f"Job {job_label(job)} ({escaped(job.name)}, user {job.user}) in partition {partition_names(job)}"
    if job.state != "PENDING":
        # Of one that has ended, what is known of its end.
        text = job.reason_text or job.exit_text
        more = f", {escaped(text)}" if text else ""
        return "\n".join([f"{head} does not wait: it is {job.state}{more}", *_retries(job)])
    lines = [
        f"{head} waits since {_moment(job.submitted_us)}",
        *_retries(job),
        *_order(reply),
        *_start(reply),
        *_expected(job),
    ]
    blocking = [one for one in reply.reasons if not one.nodes_of]
    filters = [one for one in reply.reasons if one.nodes_of]
    lines += ["", "In its way:", *reason_lines(blocking, now_us)]
    if filters:
        of = filters[0].nodes_of
        left = of - sum(one.nodes_failing for one in filters)
        lines += [
            "",
            f"Of the {_count(of, 'node')} of partition {_partition_of(filters[0], job)}:",
            *_filters(filters, now_us),
        ]
        lines.append(f"  {left:>5}  {'is' if left == 1 else 'are'} left for it now")
    if reply.alternatives:
        lines += ["", "It would start earlier, and keep its turn:"]
        lines += _alternatives(reply.alternatives, job.job_id, now_us)
    return "\n".join(lines)


def _partition_of(reason: Any, job: Any) -> str:
    """The partition whose nodes were looked through, and the part that they are for."""
    if not reason.HasField("part") or reason.part >= len(job.parts):
        return str(job.partition)
    return f"{job.parts[reason.part].partition} (part {reason.part})"


def _order(reply: Any) -> list[str]:
    ahead = f"{_count(reply.ahead, 'job')} {'is' if reply.ahead == 1 else 'are'} ahead of it"
    return [
        f"Priority {reply.factors or reply.priority}; {ahead if reply.ahead else 'no job is ahead of it'}"
    ]


def _retries(job: Any) -> list[str]:
    """The retries of a job that asks for some, and why it had the latest."""
    if not job.retry_on:
        return []
    if job.array_tasks_left or job.tasks_running:
        return [f"Each of its tasks is retried on {job.retry_on}"]
    now = job.attempts + 1 if job.state == "PENDING" else job.attempts
    latest = f": {escaped(job.retry_text)}" if job.retry_text else ""
    return [f"Attempt {now}, retried on {job.retry_on}{latest}"]


def _start(reply: Any) -> list[str]:
    if not reply.planned_start_us:
        return ["No start can be foretold"]
    # Its bookings are shown with the job itself.
    word = "Planned start" if reply.job.planned_start_us else "Estimated start"
    where = f" on {reply.planned_nodes}" if reply.planned_nodes else ""
    between = interval(reply.start_earliest_us, reply.start_latest_us, reply.now_us)
    return [f"{word}: {when(reply.planned_start_us, reply.now_us)}{where}{between}"]


def interval(earliest_us: int, latest_us: int, now_us: int) -> str:
    """`, between now and 15:00:00 today by what ...`; empty when nothing is known of the jobs before it."""
    if not latest_us:
        return ""
    first = "now" if earliest_us <= now_us else _clock_time(earliest_us, now_us)
    last = _clock_time(latest_us, now_us)
    return f", between {first} and {last} by what jobs before it are expected to run"


def _expected(job: Any) -> list[str]:
    """The job's own expected runtime."""
    if not job.HasField("forecast"):
        return []
    limit_s, said = job.time_limit_s, job.forecast
    low_s, high_s = (min(end_s, limit_s or end_s) for end_s in (said.p10_s, said.p90_s))
    limit = f"; its limit is {length(limit_s)}" if limit_s else ""
    return [
        f"Expected to run {length(expected_s(job))}, as 8 of 10 such jobs between {length(low_s)} and "
        f"{length(high_s)}{limit}"
    ]


def reason_lines(reasons: Iterable[Any], now_us: int) -> list[str]:
    """Reasons without numbers of nodes, and their holders."""
    lines = []
    for one in reasons:
        lines.append(f"  {one.kind}: {escaped(one.text)}{_until(one.until_us, now_us)}")
        lines += [f"    {line}" for line in _holders(one.holders, now_us)]
    return lines


def _filters(filters: Iterable[Any], now_us: int) -> list[str]:
    lines = []
    for one in filters:
        lines.append(f"  {one.nodes_failing:>5}  {escaped(one.text)}")
        # The end of the first of them is shown with its holder.
        lines += [f"           {line}" for line in _holders(one.holders, now_us)]
    return lines


def _holders(holders: Iterable[Any], now_us: int) -> list[str]:
    lines = []
    for one in holders:
        nodes = f" on {_count(one.nodes, 'node')}" if one.nodes else ""
        word = "from" if one.what.endswith(", planned") else "until"
        lines.append(f"{escaped(one.what)}{nodes}{_until(one.until_us, now_us, word)}")
    return lines


def _until(at_us: int, now_us: int, word: str = "until") -> str:
    return f", {word} {when(at_us, now_us)}" if at_us else ""


def _alternatives(found: Sequence[Any], job_id: int, now_us: int) -> list[str]:
    """Each alternative with its command."""
    columns = [Column(""), Column(""), Column("")]
    rows = [
        [
            f"  {escaped(one.text)}:",
            "now" if one.start_us <= now_us else when(one.start_us, now_us),
            f"on {_count(one.nodes, 'node')}",
        ]
        for one in found
    ]
    shown = render(columns, rows, header=False).splitlines()
    names = [str(one.job_id or job_id) + (f"+{one.part}" if one.HasField("part") else "") for one in found]
    commands = [
        f"    esctl update job {name} {escaped(one.update)}" for name, one in zip(names, found, strict=True)
    ]
    return [line for pair in zip(shown, commands, strict=True) for line in pair]


def when(at_us: int, now_us: int) -> str:
    """`14:10:00 today (in 3 h)`, `08:00:00 tomorrow (in 18 h)`, `2026-03-01T08:00:00 (in 12 d)`."""
    text = _clock_time(at_us, now_us)
    if at_us <= now_us:
        return f"{text} (now)"
    return f"{text} (in {length(-(-(at_us - now_us) // 1_000_000))})"


def _clock_time(at_us: int, now_us: int) -> str:
    text = format_moment(at_us, clock.local_offset_s)
    days = _day(at_us) - _day(now_us)
    return f"{text.partition('T')[2]} {('today', 'tomorrow')[days]}" if 0 <= days <= 1 else text


def length(seconds: int) -> str:
    """`2 h 10 min`: the two largest units."""
    words = []
    for size, unit in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            words.append(f"{count} {unit}")
    return " ".join(words[:2]) or "0 s"


def _day(at_us: int) -> int:
    utc_s = at_us // 1_000_000
    return (utc_s + clock.local_offset_s(utc_s)) // DAY_S


def _moment(at_us: int) -> str:
    return format_moment(at_us, clock.local_offset_s)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
