"""`sdiag`: the controller's counts in Slurm's layout and JSON. Times are CPU time of the controller in microseconds.

Slurm has two schedulers, the main one and backfill; here one planner does the work of both, so both sections show its
cycles.
"""

from __future__ import annotations

from eslurm.compat.slurm.json_shape import Shape
from eslurm.compat.slurm.release import has_wrapped_numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

MESSAGES: Mapping[str, tuple[str, int]] = {
    "Ping": ("REQUEST_PING", 1008),
    "Takeover": ("REQUEST_TAKEOVER", 1012),
    "Config": ("REQUEST_BUILD_INFO", 2001),
    "Jobs": ("REQUEST_JOB_INFO", 2003),
    "Nodes": ("REQUEST_NODE_INFO", 2007),
    "Reconfigure": ("REQUEST_RECONFIGURE", 1003),
    "Shares": ("REQUEST_SHARE_INFO", 2022),
    "Statistics": ("REQUEST_STATS_INFO", 2035),
    "Federation": ("REQUEST_FED_INFO", 2049),
    "Controllers": ("REQUEST_CONTROL_STATUS", 2053),
    "Hold": ("REQUEST_UPDATE_JOB", 3001),
    "ResizeJob": ("REQUEST_UPDATE_JOB", 3001),
    "UpdateJob": ("REQUEST_UPDATE_JOB", 3001),
    "UpdateNodes": ("REQUEST_UPDATE_NODE", 3002),
    "Submit": ("REQUEST_SUBMIT_BATCH_JOB", 4003),
    "CreateStep": ("REQUEST_JOB_STEP_CREATE", 5001),
    "Suspend": ("REQUEST_SUSPEND", 5014),
    "FinishStep": ("REQUEST_STEP_COMPLETE", 5016),
    "ReleaseJob": ("REQUEST_COMPLETE_JOB_ALLOCATION", 5017),
    "Requeue": ("REQUEST_JOB_REQUEUE", 5023),
    "Cancel": ("REQUEST_KILL_JOB", 5032),
    "CreateToken": ("REQUEST_AUTH_TOKEN", 5039),
}
"""Slurm's name and number of the message that asks for the same as a call; other calls have their own, after `ESLURM_`."""
FIGURES: Mapping[str, str] = {
    "Data since": "when the controller began to lead; nothing begins anew at midnight",
    "Server thread count": "calls under way",
    "RPC queue enabled": "0",
    "Agent queue size": "broadcasts that wait for a satellite",
    "Agent count": "broadcasts under way",
    "Agent thread count": "the same",
    "DBD Agent queue size": "0: accounting is written with the job",
    "Jobs submitted, started": "an array counts once as submitted, and each of its tasks as started and ended",
    "Jobs completed": "jobs that ran to their end, failed or at their time limit included",
    "Jobs failed": "jobs that nodes failed",
    "Jobs pending, running": "now; waiting tasks of an array are one",
    "Last, Max, Mean cycle": "CPU time of cycles of the planner, which both sections show",
    "Mean depth, Last depth": "jobs that a cycle examined; all of them were tried",
    "Last queue length": "jobs that waited",
    "Table size": "slots of the plan",
    "Scheduler exit": "End of job queue, or a bound of one cycle, after which the next one goes on",
    "Total backfilled jobs": "0: a job that starts is not told apart by the jobs before it",
    "Latency": "0: not measured",
    "RPC statistics": "calls, and the CPU time that they took; of private users only one's own",
    "Pending RPC": "none: calls do not wait for threads",
}
"""Figures that mean something else than Slurm's, or are not known."""

_MAIN_EXITS = (
    ("End of job queue", "end_job_queue"),
    ("Hit default_queue_depth", "default_queue_depth"),
    ("Hit sched_max_job_start", "max_job_start"),
    ("Blocked on licenses", "licenses"),
    ("Hit max_rpc_cnt", "max_rpc_cnt"),
    ("Timeout (max_sched_time)", "max_sched_time"),
)
_BACKFILL_EXITS = (
    ("End of job queue", "end_job_queue"),
    ("Hit bf_max_job_start", "bf_max_job_start"),
    ("Hit bf_max_job_test", "bf_max_job_test"),
    ("System state changed", "state_changed"),
    ("Hit table size limit (bf_node_space_size)", "bf_node_space_size"),
    ("Timeout (bf_max_time)", "bf_max_time"),
)
_BOUNDED = ("default_queue_depth", "bf_max_job_test")
_FAILED = ("NODE_FAIL", "BOOT_FAIL")


class Calls:
    """Calls of one message or user."""

    __slots__ = ("count", "name", "number", "spent_us")

    def __init__(self, name: str, number: int, count: int, spent_us: int) -> None:
        self.name = name
        self.number = number
        self.count = count
        self.spent_us = spent_us

    @property
    def mean_us(self) -> int:
        """Average time of a call."""
        return self.spent_us // self.count if self.count else 0


SORTS: Mapping[str, Callable[[Calls], int]] = {
    "id": lambda row: row.number,
    "time": lambda row: -row.spent_us,
    "time2": lambda row: -row.mean_us,
    "count": lambda row: -row.count,
}
"""Orders of the rows of calls."""


class Jobs:
    """Jobs that ended, as Slurm counts them."""

    __slots__ = ("canceled", "completed", "failed")

    def __init__(self, ended: Mapping[str, int]) -> None:
        self.canceled = ended.get("CANCELLED", 0)
        self.failed = sum(ended.get(state, 0) for state in _FAILED)
        self.completed = sum(ended.values()) - self.canceled - self.failed


def by_message(rows: Sequence[Any], order: str) -> list[Calls]:
    """The rows of a reply's calls under Slurm's names."""
    found: dict[int, Calls] = {}
    for row in rows:
        name, number = MESSAGES.get(row.name) or (f"ESLURM_{_upper(row.name)}", row.number)
        known = found.setdefault(number, Calls(name, number, 0, 0))
        known.count += row.count
        known.spent_us += row.spent_us
    return sorted(found.values(), key=SORTS[order])


def by_user(rows: Sequence[Any], order: str) -> list[Calls]:
    """The rows of a reply's users."""
    return sorted((Calls(row.name, row.number, row.count, row.spent_us) for row in rows), key=SORTS[order])


def _upper(name: str) -> str:
    """`CallCell` as CALL_CELL."""
    return "".join(
        f"_{letter}" if letter.isupper() and at else letter.upper() for at, letter in enumerate(name)
    )


def text(reply: Any, release: str, order: str, day: Callable[[int], str]) -> str:
    """All statistics as text. `day` writes a time in seconds as `Sat Nov 28 11:40:00 2026`."""
    return "".join(f"{line}\n" for line in _lines(reply, release, order, day))


def _lines(reply: Any, release: str, order: str, day: Callable[[int], str]) -> Iterator[str]:
    now_s, since_s = reply.now_us // 1_000_000, reply.since_us // 1_000_000
    is_new = has_wrapped_numbers(release)
    bar = "*" * 55
    yield bar
    yield f"sdiag output at {day(now_s)} ({now_s})"
    yield f"Data since      {day(since_s)} ({since_s})"
    yield bar
    yield f"Server thread count:  {reply.calls_open}"
    if is_new:
        yield "RPC queue enabled:    0"
    yield f"Agent queue size:     {reply.broadcasts_waiting}"
    yield f"Agent count:          {reply.broadcasts_open}"
    yield f"Agent thread count:   {reply.broadcasts_open}"
    yield "DBD Agent queue size: 0"
    yield ""
    ended = Jobs({one.state: one.count for one in reply.ended})
    yield f"Jobs submitted: {reply.jobs_submitted}"
    yield f"Jobs started:   {reply.attempts_started}"
    yield f"Jobs completed: {ended.completed}"
    yield f"Jobs canceled:  {ended.canceled}"
    yield f"Jobs failed:    {ended.failed}"
    yield ""
    yield f"Job states ts:  {day(now_s)} ({now_s})"
    yield f"Jobs pending:   {reply.jobs_pending}"
    yield f"Jobs running:   {reply.jobs_running}"
    yield ""
    yield from _main_lines(reply.cycles, now_s - since_s)
    yield ""
    if is_new:
        yield "Main scheduler exit:"
        yield from _exits(reply.cycles, _MAIN_EXITS)
        yield ""
    yield from _backfill_lines(reply.cycles, day)
    yield ""
    if is_new:
        yield "Backfill exit"
        yield from _exits(reply.cycles, _BACKFILL_EXITS)
        yield ""
    yield "Latency for 1000 calls to gettimeofday(): 0 microseconds"
    yield ""
    yield "Remote Procedure Call statistics by message type"
    rows = by_message(reply.calls, order)
    yield from (f"\t{row.name:<40}({row.number:5})" + _of_calls(row) for row in rows)
    if is_new and not rows:
        yield "\tNo RPCs recorded yet."
    yield ""
    yield "Remote Procedure Call statistics by user"
    yield from (f"\t{row.name:<16}({row.number:8})" + _of_calls(row) for row in by_user(reply.users, order))
    yield ""
    yield "Pending RPC statistics"
    yield "\tNo pending RPCs"


def _of_calls(row: Calls) -> str:
    return f" count:{row.count:<6} ave_time:{row.mean_us:<6} total_time:{row.spent_us}"


def _main_lines(cycles: Any, seconds: int) -> Iterator[str]:
    yield "Main schedule statistics (microseconds):"
    yield f"\tLast cycle:   {cycles.last_us}"
    yield f"\tMax cycle:    {cycles.max_us}"
    yield f"\tTotal cycles: {cycles.count}"
    if cycles.count:
        yield f"\tMean cycle:   {cycles.sum_us // cycles.count}"
        yield f"\tMean depth cycle:  {cycles.depth_sum // cycles.count}"
    if seconds > 60:
        yield f"\tCycles per minute: {cycles.count // (seconds // 60)}"
    yield f"\tLast queue length: {cycles.queue_last}"


def _exits(cycles: Any, names: Sequence[tuple[str, str]]) -> Iterator[str]:
    counts = _exit_counts(cycles, names)
    yield from (f"\t{shown}:{counts[key]:2}" for shown, key in names)


def _exit_counts(cycles: Any, names: Sequence[tuple[str, str]]) -> dict[str, int]:
    counts = dict.fromkeys((key for _, key in names), 0)
    counts["end_job_queue"] = cycles.count - cycles.bounded
    for key in _BOUNDED:
        if key in counts:
            counts[key] = cycles.bounded
    return counts


def _backfill_lines(cycles: Any, day: Callable[[int], str]) -> Iterator[str]:
    warning = " (WARNING: data obtained in the middle of backfilling execution.)"
    yield f"Backfilling stats{warning if cycles.is_running else ''}"
    yield "\tTotal backfilled jobs (since last slurm start): 0"
    yield "\tTotal backfilled jobs (since last stats cycle start): 0"
    yield "\tTotal backfilled heterogeneous job components: 0"
    yield f"\tTotal cycles: {cycles.count}"
    at_s = cycles.last_at_us // 1_000_000
    yield f"\tLast cycle when: {day(at_s)} ({at_s})" if at_s else "\tLast cycle when: N/A"
    yield f"\tLast cycle: {cycles.last_us}"
    yield f"\tMax cycle:  {cycles.max_us}"
    if cycles.count:
        yield f"\tMean cycle: {cycles.sum_us // cycles.count}"
    yield f"\tLast depth cycle: {cycles.depth_last}"
    yield f"\tLast depth cycle (try sched): {cycles.depth_last}"
    if cycles.count:
        yield f"\tDepth Mean: {cycles.depth_sum // cycles.count}"
        yield f"\tDepth Mean (try depth): {cycles.depth_sum // cycles.count}"
    yield f"\tLast queue length: {cycles.queue_last}"
    if cycles.count:
        yield f"\tQueue length mean: {cycles.queue_sum // cycles.count}"
    yield f"\tLast table size: {cycles.slots_last}"
    if cycles.count:
        yield f"\tMean table size: {cycles.slots_sum // cycles.count}"


def document(reply: Any, release: str, order: str, argv: Sequence[str], cluster: str) -> str:
    """All statistics as JSON."""
    shape = Shape(release)
    cycles = reply.cycles
    count = cycles.count or 1
    ended = Jobs({one.state: one.count for one in reply.ended})
    minutes = (reply.now_us - reply.since_us) // 60_000_000
    values = {
        "parts_packed": 0,
        "req_time": shape.moment(reply.now_us),
        "req_time_start": shape.moment(reply.since_us),
        "server_thread_count": reply.calls_open,
        "agent_queue_size": reply.broadcasts_waiting,
        "agent_count": reply.broadcasts_open,
        "agent_thread_count": reply.broadcasts_open,
        "dbd_agent_queue_size": 0,
        "gettimeofday_latency": 0,
        "schedule_cycle_max": cycles.max_us,
        "schedule_cycle_last": cycles.last_us,
        "schedule_cycle_sum": cycles.sum_us,
        "schedule_cycle_total": cycles.count,
        "schedule_cycle_mean": cycles.sum_us // count,
        "schedule_cycle_mean_depth": cycles.depth_sum // count,
        "schedule_cycle_per_minute": cycles.count // minutes if minutes else 0,
        "schedule_cycle_depth": cycles.depth_sum,
        "schedule_exit": _exit_counts(cycles, _MAIN_EXITS),
        "schedule_queue_length": cycles.queue_last,
        "jobs_submitted": reply.jobs_submitted,
        "jobs_started": reply.attempts_started,
        "jobs_completed": ended.completed,
        "jobs_canceled": ended.canceled,
        "jobs_failed": ended.failed,
        "jobs_pending": reply.jobs_pending,
        "jobs_running": reply.jobs_running,
        "job_states_ts": shape.moment(reply.now_us),
        "bf_backfilled_jobs": 0,
        "bf_last_backfilled_jobs": 0,
        "bf_backfilled_het_jobs": 0,
        "bf_cycle_counter": cycles.count,
        "bf_cycle_mean": cycles.sum_us // count,
        "bf_depth_mean": cycles.depth_sum // count,
        "bf_depth_mean_try": cycles.depth_sum // count,
        "bf_cycle_sum": cycles.sum_us,
        "bf_cycle_last": cycles.last_us,
        "bf_cycle_max": cycles.max_us,
        "bf_exit": _exit_counts(cycles, _BACKFILL_EXITS),
        "bf_last_depth": cycles.depth_last,
        "bf_last_depth_try": cycles.depth_last,
        "bf_depth_sum": cycles.depth_sum,
        "bf_depth_try_sum": cycles.depth_sum,
        "bf_queue_len": cycles.queue_last,
        "bf_queue_len_mean": cycles.queue_sum // count,
        "bf_queue_len_sum": cycles.queue_sum,
        "bf_table_size": cycles.slots_last,
        "bf_table_size_sum": cycles.slots_sum,
        "bf_table_size_mean": cycles.slots_sum // count,
        "bf_when_last_cycle": shape.moment(cycles.last_at_us),
        "bf_active": cycles.is_running,
        "rpcs_by_message_type": [
            {
                "type_id": row.number,
                "message_type": row.name,
                "count": row.count,
                "queued": 0,
                "dropped": 0,
                "cycle_last": 0,
                "cycle_max": 0,
                "total_time": row.spent_us,
                "average_time": shape.number(row.mean_us if row.spent_us else None),
            }
            for row in by_message(reply.calls, order)
        ],
        "rpcs_by_user": [
            {
                "user_id": row.number,
                "user": row.name,
                "count": row.count,
                "total_time": row.spent_us,
                "average_time": shape.number(row.mean_us if row.spent_us else None),
            }
            for row in by_user(reply.users, order)
        ],
        "pending_rpcs": [],
        "pending_rpcs_by_hostlist": [],
    }
    return shape.document({"statistics": values}, argv, cluster)
