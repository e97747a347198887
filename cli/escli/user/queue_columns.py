"""The columns of esqueue and their cells. Letters are squeue's (`-o '%.18i %t %M'`)."""

from __future__ import annotations

from escli import clock
from escli.job_refs import label_of_part
from escli.tables import Column
from eslurm.compat.arrays import parse_array
from eslurm.compat.durations import format_duration, format_elapsed, format_time_limit
from eslurm.compat.errors import OptionError, escaped, whole_number
from eslurm.compat.moments import format_moment
from eslurm.compat.sizes import format_memory
from eslurm.compat.states import FINAL_STATES, reason_name, short_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, TypeAlias

    Cell: TypeAlias = Callable[[Any, int], str]

_WIDTH_MAX = 1000


def job_label(info: Any, _now_us: int = 0) -> str:
    """`17`, a task `17_4`, or an array's waiting tasks `17_[5-15%4]`; of one part `17+1`; of another cell `17@alpha`."""
    part = label_of_part(info)
    if info.HasField("array_task"):
        return f"{info.array_job_id}_{info.array_task}{part}"
    if info.array_tasks_left:
        return f"{info.job_id}_[{info.array_tasks_left}]{part}"
    return f"{info.job_id}{part}" + (f"@{escaped(info.home)}" if info.home else "")


def partition_names(info: Any, _now_us: int = 0) -> str:
    """The partitions of a job's parts, each once."""
    return ",".join(dict.fromkeys([part.partition for part in info.parts])) or str(info.partition)


def run_us(info: Any, now_us: int) -> int:
    """Run time of a job so far, or in all; suspensions do not count."""
    if not info.started_us:
        return 0
    until_us = info.ended_us or info.suspended_us or now_us
    return max(0, int(until_us - info.started_us - info.paused_us))


def _elapsed(info: Any, now_us: int) -> str:
    return format_duration(run_us(info, now_us) // 1_000_000)


def _left(info: Any, now_us: int) -> str:
    if not info.time_limit_s:
        return "UNLIMITED"
    return format_duration(info.time_limit_s - run_us(info, now_us) // 1_000_000)


def _reason(info: Any) -> str:
    if info.state == "PENDING":
        return reason_name(info.reason) if info.reason else "None"
    return "None" if info.state not in FINAL_STATES or not info.exit_code else "NonZeroExitCode"


def node_names(info: Any) -> str:
    """The nodes of a job, with those that other cells hold for it: `cn[1-4],beta:cn[1-2]`."""
    guests = [f"{escaped(one.cell)}:{escaped(one.node_list)}" for one in info.guests if one.node_list]
    return ",".join([info.node_names, *guests]) if info.node_names else str(info.node_names)


def nodes_or_reason(info: Any, _now_us: int) -> str:
    """The nodes of a job, and its gateways if it has some, or why it has none; of one that starts or ends, what it waits
    for.
    """
    # The answer of the cell that owns it, about a job of this one.
    where = f" in {escaped(info.owner)}" if info.home and info.owner else ""
    if info.state == "PENDING":
        return f"({_reason(info)}){where}"
    if info.state == "TRANSFERRED":
        return f"({escaped(info.reason_text)})"
    nodes = node_names(info) + (f" via {info.gateway_names}" if info.gateway_names else "")
    waits = info.state in ("LAUNCHING", "COMPLETING") and info.reason_text
    return f"{nodes}{where} ({escaped(info.reason_text)})" if waits else f"{nodes}{where}"


def pack_label(record: Any, _now_us: int = 0) -> str:
    """The pack that a job or a run belongs to, and its place there: `17[1]`; empty: none."""
    return f"{record.pack_id}[{record.pack_index}]" if record.pack_id else ""


def delay_text(info: Any, _now_us: int = 0) -> str:
    """Delay of a job after the start of its pack: `+00:30:00`; empty: it is in no pack."""
    return f"+{format_elapsed(info.delay_s)}" if info.pack_id else ""


def _moment(at_us: int) -> str:
    return format_moment(at_us, clock.local_offset_s)


def _end_us(info: Any) -> int:
    if info.ended_us or info.suspended_us or not (info.started_us and info.time_limit_s):
        return int(info.ended_us)
    return int(info.started_us + info.paused_us + info.time_limit_s * 1_000_000)


def expected_s(info: Any) -> int:
    """Expected runtime in plans: the estimate, at most the limit; 0: no estimate."""
    if not info.HasField("forecast"):
        return 0
    return int(min(info.forecast.estimate_s, info.time_limit_s or info.forecast.estimate_s))


def _expected(info: Any, _now_us: int) -> str:
    return format_duration(expected_s(info)) if info.HasField("forecast") else "N/A"


def _between(info: Any, _now_us: int) -> str:
    """`13:40:00 - 15:00:00`; a date is given where it differs from the planned start's."""
    if not info.planned_latest_us:
        return "N/A"
    day = _moment(info.planned_start_us).partition("T")[0] + "T"
    ends = (info.planned_earliest_us, info.planned_latest_us)
    return " - ".join(_moment(at_us).removeprefix(day) for at_us in ends)


CELLS: Mapping[str, tuple[str, Cell]] = {
    "i": ("JOBID", job_label),
    "A": ("JOBID", lambda info, _: str(info.job_id)),
    "F": ("ARRAY_JOB_ID", lambda info, _: str(info.array_job_id or info.job_id)),
    "K": ("ARRAY_TASK_ID", lambda info, _: _task_label(info)),
    "P": ("PARTITION", partition_names),
    "j": ("NAME", lambda info, _: escaped(info.name)),
    "u": ("USER", lambda info, _: info.user),
    "U": ("UID", lambda info, _: str(info.uid)),
    "a": ("ACCOUNT", lambda info, _: info.account),
    "q": ("QOS", lambda info, _: info.qos or "(null)"),
    "v": ("RESERVATION", lambda info, _: info.reservation or "(null)"),
    "t": ("ST", lambda info, _: short_code(info.state)),
    "T": ("STATE", lambda info, _: info.state),
    "M": ("TIME", _elapsed),
    "L": ("TIME_LEFT", _left),
    "l": ("TIME_LIMIT", lambda info, _: format_time_limit(info.time_limit_s)),
    "D": ("NODES", lambda info, _: str(info.nodes)),
    "C": ("CPUS", lambda info, _: str(info.cpus)),
    "m": ("MIN_MEMORY", lambda info, _: format_memory(info.memory_mib)),
    "N": ("NODELIST", lambda info, _: node_names(info)),
    "R": ("NODELIST(REASON)", nodes_or_reason),
    "r": ("REASON", lambda info, _: _reason(info)),
    "Q": ("PRIORITY", lambda info, _: str(info.priority)),
    "Y": ("SCHEDNODES", lambda info, _: info.planned_nodes or "(null)"),
    "S": ("START_TIME", lambda info, _: _moment(info.started_us or info.planned_start_us)),
    "w": ("START_BETWEEN", _between),
    "X": ("EXPECTED", _expected),
    "V": ("SUBMIT_TIME", lambda info, _: _moment(info.submitted_us)),
    "e": ("END_TIME", lambda info, _: _moment(_end_us(info))),
    "E": ("DEPENDENCY", lambda info, _: info.dependencies or "(null)"),
    "f": ("FEATURES", lambda info, _: info.constraint or "(null)"),
    "b": ("GRES", lambda info, _: info.resources or "(null)"),
    "y": ("NICE", lambda info, _: str(info.nice)),
    "H": ("PACK", lambda info, _: pack_label(info) or "(null)"),
    "d": ("DELAY", lambda info, _: delay_text(info) or "N/A"),
    "k": ("COMMENT", lambda info, _: escaped(info.comment) or "(null)"),
    "O": ("HOME", lambda info, _: info.home or "(null)"),
    "Z": ("WORK_DIR", lambda info, _: escaped(info.work_dir)),
}
_RIGHT = frozenset("iAFKUMLlDCmQyXd")
DEFAULT = "iPjutMDR"
LONG = "iPjuTMlDCmR"
START = "iPjutSDYr"
START_BETWEEN = "iPjutSwDYr"
"""With an estimator at work it is known between when and when a job may start."""


def _task_label(info: Any) -> str:
    if info.HasField("array_task"):
        return str(info.array_task)
    return str(info.array_tasks_left) or "N/A"


def by_letters(letters: str) -> tuple[list[Column], list[Cell]]:
    """Columns that are as wide as they need."""
    columns = [Column(CELLS[letter][0], right=letter in _RIGHT) for letter in letters]
    return columns, [CELLS[letter][1] for letter in letters]


def by_format(text: str, option: str = "--format") -> tuple[list[Column], list[Cell]]:
    """Columns as squeue's format gives them: `%[.][width]letter` and text between. Raises OptionError."""
    columns: list[Column] = []
    cells: list[Cell] = []
    for literal, spec in _format_parts(text):
        if literal:
            columns.append(Column(literal, width=len(literal)))
            cells.append(lambda _info, _now_us, literal=literal: literal)  # type: ignore[misc]
        if not spec:
            continue
        letter = spec[-1]
        width = whole_number(spec[:-1].lstrip(".")) if spec[:-1].lstrip(".") else 0
        if letter not in CELLS or not 0 <= width <= _WIDTH_MAX or spec.count(".") > 1:
            known = " ".join(f"%{name}" for name in CELLS)
            raise OptionError(
                option,
                text,
                f"has '%{spec[:12]}' which is no column",
                f"use e.g. '%.18i %t'; there are {known}",
            )
        head, cell = CELLS[letter]
        columns.append(Column(head, right="." in spec, width=width, cut=width > 0, ragged=not width))
        cells.append(cell)
    return columns, cells


def _format_parts(text: str) -> Iterator[tuple[str, str]]:
    """(text before, what follows the %), piece by piece."""
    at = 0
    literal = ""
    while at < len(text):
        percent = text.find("%", at)
        if percent < 0:
            literal += text[at:]
            break
        literal += text[at:percent]
        end = percent + 1
        while end < len(text) and (text[end] == "." or "0" <= text[end] <= "9"):
            end += 1
        if text[end : end + 1] == "%":
            literal += "%"
        else:
            yield literal, text[percent + 1 : end + 1] or " "
            literal = ""
        at = end + 1
    yield literal, ""


def fill(infos: Sequence[Any], cells: Sequence[Cell], now_us: int) -> list[list[str]]:
    """One row of texts for each job."""
    return [[cell(info, now_us) for cell in cells] for info in infos]


_STATE_ORDER = {"PENDING": 0, "TRANSFERRED": 1, "LAUNCHING": 1, "RUNNING": 2, "SUSPENDED": 3, "COMPLETING": 4}


def sort_key(info: Any) -> tuple[int, int, int, int]:
    """Waiting jobs first, the next one to start on top; then running ones, newest last."""
    return (
        _STATE_ORDER.get(info.state, 4),
        -info.priority,
        info.array_job_id or info.job_id,
        info.array_task if info.HasField("array_task") else 2**31,
    )


def unfolded(infos: Sequence[Any], lines_max: int = 100_000) -> list[Any]:
    """`esqueue --array`: one entry for each waiting task, as far as `lines_max` entries go."""
    lines: list[Any] = []
    for info in infos:
        if not info.array_tasks_left:
            lines.append(info)
            continue
        ranges, _ = parse_array(info.array_tasks_left, "array")
        for first, last, step in ranges:
            for task in range(first, last + 1, step):
                if len(lines) >= lines_max:
                    return lines
                one = type(info)()
                one.CopyFrom(info)
                one.array_job_id = info.job_id
                one.array_task = task
                lines.append(one)
    return lines
