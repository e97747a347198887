"""The tables of `bjobs`: the plain one, the wide one, and fields of one's choice (`-o`)."""

from __future__ import annotations

from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.hostlist import expand
from eslurm.compat.slurm.array_text import is_array, task_numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    Moment = Callable[[int], str]

_STATES = {"PENDING": "PEND", "SUSPENDED": "SSUSP", "COMPLETED": "DONE", "TRANSFERRED": "RUN"}
_RUNNING = ("LAUNCHING", "RUNNING", "COMPLETING")
_HELD = ("JobHeldUser", "JobHeldAdmin")
RUN, WAIT, STOPPED, OVER = ("RUN",), ("PEND", "PSUSP"), ("SSUSP", "USUSP", "PSUSP"), ("DONE", "EXIT")
_HEAD = "JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME\n"
_HOSTS_COLUMN = 45
_WIDTH_MAX = 4096


class Row:
    """One line of a table: a job, or one task of an array, -1 where it is none."""

    __slots__ = ("info", "task")

    def __init__(self, info: Any, task: int = -1) -> None:
        self.info = info
        self.task = task

    @property
    def job_id(self) -> int:
        """The id of the job; of a task that of its array."""
        return int(self.info.array_job_id or self.info.job_id)

    @property
    def name(self) -> str:
        """The job's name, of a task with its number."""
        return f"{self.info.name}[{self.task}]" if self.task >= 0 else str(self.info.name)

    @property
    def hosts(self) -> list[str]:
        """Its hosts with the number of tasks on each, where all have the same."""
        names = list(expand(self.info.node_names, "hosts")) if self.info.node_names else []
        each, rest = divmod(self.info.tasks, len(names)) if names else (0, 0)
        return [f"{each}*{name}" if each > 1 and not rest else name for name in names]


def rows_of(infos: Sequence[Any]) -> list[Row]:
    """A line for each job, and for each task of an array; tasks without a record wait."""
    found = []
    for info in infos:
        if info.HasField("array_task"):
            found.append(Row(info, info.array_task))
        elif is_array(info):
            found += (
                [Row(info, task) for task in task_numbers(info.array_tasks_left)]
                if info.array_tasks_left
                else []
            )
        else:
            found.append(Row(info))
    return sorted(found, key=lambda row: (row.job_id, row.task))


def state_of(info: Any) -> str:
    """The job's state in LSF's words."""
    if info.state in _RUNNING:
        return "RUN"
    if info.state == "PENDING" and info.reason in _HELD:
        return "PSUSP"
    return _STATES.get(info.state, "EXIT")


def plain(rows: Sequence[Row], moment: Moment, *, has_head: bool) -> Iterator[str]:
    """The lines of `bjobs`: cells are cut, further hosts have lines of their own."""
    if has_head:
        yield _HEAD
    for row in rows:
        info, hosts = row.info, row.hosts or [""]
        name = row.name if len(row.name) <= 10 else f"*{row.name[-9:]}"
        yield (
            f"{row.job_id:<7d} {info.user:<7.7} {state_of(info):<5} {info.partition:<10.10} {'-':<11} {hosts[0]:<11.11} "
            f"{name:<10} {moment(info.submitted_us)}\n"
        )
        for host in hosts[1:]:
            yield f"{'':{_HOSTS_COLUMN}}{host:<11.11}\n"


def wide(rows: Sequence[Row], moment: Moment, *, has_head: bool) -> Iterator[str]:
    """The lines of `bjobs -w`."""
    if has_head:
        yield _HEAD
    for row in rows:
        info = row.info
        yield (
            f"{row.job_id:<7d} {info.user:<7} {state_of(info):<5} {info.partition:<10} {'-':<11} "
            f"{':'.join(row.hosts):<11} {row.name:<10} {moment(info.submitted_us)}\n"
        )


def _seconds(row: Row, now_us: int) -> str:
    info = row.info
    spent_us = (info.ended_us or now_us) - info.started_us if info.started_us else 0
    return f"{max(0, spent_us) // 1_000_000} second(s)"


FIELDS: dict[str, tuple[int, Callable[[Row, int, Moment], str]]] = {
    "jobid": (7, lambda r, _n, _m: str(r.job_id)),
    "jobindex": (8, lambda r, _n, _m: str(max(0, r.task))),
    "stat": (5, lambda r, _n, _m: state_of(r.info)),
    "user": (7, lambda r, _n, _m: r.info.user),
    "queue": (10, lambda r, _n, _m: r.info.partition),
    "job_name": (10, lambda r, _n, _m: r.name),
    "job_description": (17, lambda r, _n, _m: r.info.comment),
    "proj_name": (11, lambda r, _n, _m: r.info.account),
    "exec_host": (11, lambda r, _n, _m: ":".join(r.hosts)),
    "first_host": (11, lambda r, _n, _m: (r.hosts or [""])[0].rpartition("*")[2]),
    "nexec_host": (10, lambda r, _n, _m: str(len(r.hosts) or "")),
    "slots": (5, lambda r, _n, _m: str(r.info.tasks) if r.info.node_names else ""),
    "nreq_slot": (10, lambda r, _n, _m: str(r.info.tasks)),
    "submit_time": (15, lambda r, _n, m: m(r.info.submitted_us)),
    "start_time": (15, lambda r, _n, m: m(r.info.started_us) if r.info.started_us else ""),
    "finish_time": (16, lambda r, _n, m: m(r.info.ended_us) if r.info.ended_us else ""),
    "run_time": (15, lambda r, n, _m: _seconds(r, n)),
    "exit_code": (10, lambda r, _n, _m: str(r.info.exit_code) if state_of(r.info) == "EXIT" else ""),
    "pend_reason": (11, lambda r, _n, _m: r.info.reason_text or r.info.reason),
    "exec_cwd": (10, lambda r, _n, _m: r.info.work_dir),
    "output_file": (11, lambda r, _n, _m: r.info.output),
    "command": (15, lambda r, _n, _m: r.info.command),
}
"""The fields of `-o` with their widths."""
_SAME = {"id": "jobid", "status": "stat", "name": "job_name", "project": "proj_name"}


class Chosen:
    """The columns of `-o`: (field, width, whether it stands right); `delimiter` in place of widths."""

    __slots__ = ("columns", "delimiter")

    def __init__(self, text: str) -> None:
        """Raises OptionError."""
        self.columns: list[tuple[str, int, bool]] = []
        self.delimiter = ""
        for word in text.split():
            if word.startswith("delimiter="):
                self.delimiter = word.removeprefix("delimiter=").strip("\"'")
                continue
            name, colon, width = word.partition(":")
            name = _SAME.get(name.lower(), name.lower())
            number = whole_number(width.removeprefix("-"), 4) if width else 0
            if name not in FIELDS or not 0 <= number <= _WIDTH_MAX:
                raise OptionError("-o", word, "is no field", f"use some of {', '.join(FIELDS)}")
            self.columns.append(
                (name, number if colon and number else FIELDS[name][0], width.startswith("-"))
            )
        if not self.columns:
            raise OptionError("-o", text, "names no field", "write e.g. -o 'jobid stat'")

    def cells(self, row: Row, now_us: int, moment: Moment) -> list[str]:
        """The values of a line; `-` where there is none."""
        return [FIELDS[name][1](row, now_us, moment) or "-" for name, _, _ in self.columns]

    def line(self, cells: Sequence[str]) -> str:
        """A line of the table."""
        if self.delimiter:
            return self.delimiter.join(cells) + "\n"
        made = []
        for cell, (_, width, is_right) in zip(cells, self.columns, strict=True):
            cut = cell if len(cell) <= width else f"{cell[: width - 1]}*"
            made.append(f"{cut:>{width}}" if is_right else f"{cut:<{width}}")
        return " ".join(made).rstrip() + "\n"

    @property
    def heads(self) -> list[str]:
        """The names of the columns."""
        return [name.upper() for name, _, _ in self.columns]
