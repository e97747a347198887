"""The columns of sacct, their widths, and its lines: a job's, and its batch step's.

A run is one attempt of a job, or the job while it waits. What is not kept here is empty, as Slurm leaves it.
"""

from __future__ import annotations

from operator import attrgetter

from eslurm.compat.slurm import fitted, words
from eslurm.compat.slurm.layout import memory_text, padded_clock
from eslurm.core.model.wording import escaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    Cell: TypeAlias = Callable[["Run", "Writer"], str]

SECOND_US = 1_000_000
_UNITS = "KMGTP"


class Run:
    """A line's data. `is_step` is the batch step's line; numbers that are not known are -1, times 0.

    Most fields of most lines keep these values: they cost a line nothing.
    """

    label = ""
    place: tuple[int, int, int] = (0, -1, 0)
    """By which lines are sorted: the job, the task of an array, the attempt."""
    job_id = 0
    name = user = account = partition = qos = state = wckey = ""
    uid = gid = by_uid = -1
    is_step = False
    submitted_us = eligible_us = started_us = ended_us = paused_us = 0
    time_limit_s = cpus = nodes = 0
    node_names = ""
    exit_code = exit_signal = 0
    user_cpu_us = system_cpu_us = max_rss_kib = -1
    req_mem_mib = req_cpus = req_nodes = priority = tasks = -1
    comment = constraint = reservation = work_dir = ""
    stdout = stderr = stdin = group = ""
    restarts = 0
    reason = licenses = ""

    def batch(self) -> Run:
        """The line of its batch step."""
        one = self.copy()
        one.is_step = True
        one.label = f"{self.label}.batch"
        one.name = "batch"
        one.tasks = 1
        return one

    def copy(self) -> Run:
        """A line with the same data."""
        one = Run()
        one.__dict__.update(self.__dict__)
        return one


class Writer:
    """The form of cells: the present, times, and units. `unit` is one of K, M, G, T, P; empty: the largest whole one."""

    __slots__ = ("cluster", "moment", "now_us", "unit")

    def __init__(self, now_us: int, cluster: str, moment: Callable[[int], str], unit: str = "") -> None:
        self.now_us = now_us
        self.cluster = cluster
        self.moment = moment
        self.unit = unit

    def at(self, at_us: int) -> str:
        """A time, or `Unknown`."""
        return self.moment(at_us) if at_us else "Unknown"

    def kib(self, kib: int) -> str:
        """An amount of memory: `25504K`, `1G`; with a unit `0.02G`."""
        if kib <= 0:
            return "0" if kib == 0 else ""
        if self.unit:
            amount = kib / 1024 ** _UNITS.index(self.unit)
            return f"{int(amount)}{self.unit}" if amount == int(amount) else f"{amount:.2f}{self.unit}"
        place = 0
        while kib % 1024 == 0 and place < 4:
            kib //= 1024
            place += 1
        return f"{kib}{_UNITS[place]}"


def elapsed_s(run: Run, now_us: int) -> int:
    """Run time in whole seconds; suspensions do not count."""
    if not run.started_us:
        return 0
    return max(0, (run.ended_us or now_us) - run.started_us - run.paused_us) // SECOND_US


def state_text(run: Run, _writer: Writer | None = None) -> str:
    """`CANCELLED by 1000`, `RUNNING`."""
    name = words.long_state(run.state)
    return f"{name} by {run.by_uid}" if name == "CANCELLED" and run.by_uid >= 0 and not run.is_step else name


def cpu_text(cpu_us: int) -> str:
    """`00:00.012`, `1-02:03:04`; empty: not known."""
    if cpu_us < 0:
        return ""
    seconds, rest = divmod(cpu_us, SECOND_US)
    if seconds >= 3600:
        return padded_clock(seconds)
    return f"{seconds // 60:02}:{seconds % 60:02}.{rest // 1000:03}"


def planned_s(run: Run, now_us: int) -> int:
    """Seconds that the job waited after it could have started."""
    return max(0, (run.started_us or run.ended_us or now_us) - run.eligible_us) // SECOND_US


def _count(number: int) -> str:
    return str(number) if number >= 0 else ""


def _of_job(cell: Cell) -> Cell:
    return lambda run, writer: "" if run.is_step else cell(run, writer)


def _of_batch(cell: Cell) -> Cell:
    return lambda run, writer: cell(run, writer) if run.is_step else ""


def _limit(run: Run, _writer: Writer) -> str:
    return padded_clock(run.time_limit_s) if run.time_limit_s else "UNLIMITED"


def _total_cpu(run: Run, _writer: Writer) -> str:
    known = run.user_cpu_us >= 0
    return cpu_text(run.user_cpu_us + run.system_cpu_us) if known else cpu_text(0)


def _req_tres(run: Run, _writer: Writer) -> str:
    parts = [f"billing={run.req_cpus}", f"cpu={run.req_cpus}"]
    if run.req_mem_mib > 0:
        parts.append(f"mem={memory_text(run.req_mem_mib)}")
    return ",".join([*parts, f"node={max(1, run.req_nodes)}"]) if run.req_cpus >= 0 else ""


def _alloc_tres(run: Run, _writer: Writer) -> str:
    if not run.started_us:
        return ""
    parts = [] if run.is_step else [f"billing={run.cpus}"]
    parts.append(f"cpu={run.cpus}")
    if run.req_mem_mib > 0:
        parts.append(f"mem={memory_text(run.req_mem_mib)}")
    return ",".join([*parts, f"node={1 if run.is_step else run.nodes}"])


def _empty(_run: Run, _writer: Writer) -> str:
    return ""


CELLS: Mapping[str, Cell] = {
    "Account": lambda r, _: r.account,
    "AllocCPUS": lambda r, _: str(r.cpus if r.started_us else 0),
    "AllocNodes": lambda r, _: str((1 if r.is_step else r.nodes) if r.started_us else 0),
    "AllocTRES": _alloc_tres,
    "AveCPU": _of_batch(lambda r, _: padded_clock(max(0, r.user_cpu_us + r.system_cpu_us) // SECOND_US)),
    "AveRSS": _of_batch(lambda r, w: w.kib(r.max_rss_kib)),
    "Cluster": lambda _, w: w.cluster,
    "Comment": _of_job(lambda r, _: escaped(r.comment)),
    "Constraints": _of_job(lambda r, _: r.constraint),
    "CPUTime": lambda r, w: padded_clock(elapsed_s(r, w.now_us) * r.cpus),
    "CPUTimeRAW": lambda r, w: str(elapsed_s(r, w.now_us) * r.cpus),
    "DerivedExitCode": _of_job(lambda _, __: "0:0"),
    "Elapsed": lambda r, w: padded_clock(elapsed_s(r, w.now_us)),
    "ElapsedRaw": lambda r, w: str(elapsed_s(r, w.now_us)),
    "Eligible": lambda r, w: w.at(r.started_us if r.is_step else r.eligible_us),
    "End": lambda r, w: w.at(r.ended_us),
    "ExitCode": lambda r, _: f"{r.exit_code}:{r.exit_signal}",
    "GID": _of_job(lambda r, _: _count(r.gid)),
    "Group": _of_job(lambda r, _: r.group),
    "JobID": lambda r, _: r.label,
    "JobIDRaw": lambda r, _: f"{r.job_id}.batch" if r.is_step else str(r.job_id),
    "JobName": lambda r, _: escaped(r.name),
    "Layout": _empty,
    "Licenses": _of_job(lambda r, _: r.licenses),
    "MaxRSS": _of_batch(lambda r, w: w.kib(r.max_rss_kib)),
    "NCPUS": lambda r, _: str(r.cpus if r.started_us else 0),
    "NNodes": lambda r, _: str(1 if r.is_step else r.nodes),
    "NodeList": lambda r, _: r.node_names if r.started_us else "None assigned",
    "NTasks": _of_batch(lambda r, _: _count(r.tasks)),
    "Partition": _of_job(lambda r, _: r.partition),
    "Planned": _of_job(lambda r, w: padded_clock(planned_s(r, w.now_us))),
    "PlannedCPU": _of_job(lambda r, w: padded_clock(planned_s(r, w.now_us) * max(0, r.req_cpus))),
    "PlannedCPURAW": _of_job(lambda r, w: str(planned_s(r, w.now_us) * max(0, r.req_cpus))),
    "Priority": _of_job(lambda r, _: _count(r.priority)),
    "QOS": _of_job(lambda r, _: r.qos),
    "QOSREQ": _of_job(lambda r, _: r.qos),
    "Reason": _of_job(lambda r, _: r.reason or "None"),
    "ReqCPUS": lambda r, _: _count(r.req_cpus),
    "ReqMem": _of_job(lambda r, w: w.kib(r.req_mem_mib * 1024) if r.req_mem_mib >= 0 else ""),
    "ReqNodes": lambda r, _: _count(r.req_nodes),
    "ReqReservation": _of_job(lambda r, _: r.reservation),
    "ReqTRES": _of_job(_req_tres),
    "Reservation": _of_job(lambda r, _: r.reservation),
    "Restarts": _of_job(lambda r, _: str(r.restarts)),
    "Start": lambda r, w: w.at(r.started_us),
    "State": state_text,
    "StdErr": _of_job(lambda r, _: r.stderr),
    "StdIn": _of_job(lambda r, _: r.stdin),
    "StdOut": _of_job(lambda r, _: r.stdout),
    "Submit": lambda r, w: w.at(r.started_us if r.is_step else r.submitted_us),
    "Suspended": lambda r, _: padded_clock(r.paused_us // SECOND_US),
    "SystemCPU": lambda r, _: cpu_text(max(0, r.system_cpu_us)),
    "Timelimit": _of_job(_limit),
    "TimelimitRaw": _of_job(lambda r, _: str(-(-r.time_limit_s // 60)) if r.time_limit_s else "UNLIMITED"),
    "TotalCPU": _total_cpu,
    "UID": _of_job(lambda r, _: _count(r.uid)),
    "User": _of_job(lambda r, _: r.user),
    "UserCPU": lambda r, _: cpu_text(max(0, r.user_cpu_us)),
    "WCKey": lambda r, _: r.wckey,
    "WorkDir": _of_job(lambda r, _: escaped(r.work_dir)),
}
"""The columns that are known here; all others are empty."""
WIDTHS: Mapping[str, int] = {
    name: int(width)
    for name, _, width in (
        word.partition(":")
        for word in [
            "Account:10",
            "AdminComment:15",
            "AllocCPUS:10",
            "AllocNodes:10",
            "AllocTRES:10",
            "AssocID:7",
            "AveCPU:10",
            "AveCPUFreq:10",
            "AveDiskRead:14",
            "AveDiskWrite:14",
            "AvePages:10",
            "AveRSS:10",
            "AveVMSize:10",
            "BlockID:16",
            "Cluster:10",
            "Comment:14",
            "Constraints:19",
            "ConsumedEnergy:14",
            "ConsumedEnergyRaw:17",
            "Container:19",
            "CPUTime:10",
            "CPUTimeRAW:10",
            "DBIndex:-21",
            "DerivedExitCode:15",
            "Elapsed:10",
            "ElapsedRaw:10",
            "Eligible:19",
            "End:19",
            "ExitCode:8",
            "Extra:14",
            "FailedNode:8",
            "Flags:19",
            "GID:6",
            "Group:9",
            "JobID:-12",
            "JobIDRaw:-12",
            "JobName:10",
            "Layout:9",
            "Licenses:10",
            "MaxDiskRead:12",
            "MaxDiskReadNode:15",
            "MaxDiskReadTask:15",
            "MaxDiskWrite:12",
            "MaxDiskWriteNode:16",
            "MaxDiskWriteTask:16",
            "MaxPages:8",
            "MaxPagesNode:12",
            "MaxPagesTask:14",
            "MaxRSS:10",
            "MaxRSSNode:10",
            "MaxRSSTask:10",
            "MaxVMSize:10",
            "MaxVMSizeNode:14",
            "MaxVMSizeTask:14",
            "McsLabel:12",
            "MinCPU:10",
            "MinCPUNode:10",
            "MinCPUTask:10",
            "NCPUS:10",
            "NNodes:8",
            "NodeList:15",
            "NTasks:8",
            "Partition:10",
            "Planned:10",
            "PlannedCPU:10",
            "PlannedCPURAW:13",
            "Priority:10",
            "QOS:10",
            "QOSRAW:6",
            "QOSREQ:10",
            "Reason:22",
            "ReqCPUFreq:10",
            "ReqCPUFreqGov:13",
            "ReqCPUFreqMax:13",
            "ReqCPUFreqMin:13",
            "ReqCPUS:8",
            "ReqMem:10",
            "ReqNodes:8",
            "ReqTRES:10",
            "Reservation:20",
            "ReservationId:8",
            "ReqReservation:20",
            "Restarts:8",
            "SegmentSize:11",
            "SLUID:14",
            "Start:19",
            "State:10",
            "StdErr:20",
            "StdIn:20",
            "StdOut:20",
            "Submit:19",
            "SubmitLine:20",
            "Suspended:10",
            "SystemComment:15",
            "SystemCPU:10",
            "Timelimit:10",
            "TimelimitRaw:10",
            "TotalCPU:10",
            "TRESUsageInAve:14",
            "TRESUsageInMax:14",
            "TRESUsageInMaxNode:18",
            "TRESUsageInMaxTask:18",
            "TRESUsageInMin:14",
            "TRESUsageInMinNode:18",
            "TRESUsageInMinTask:18",
            "TRESUsageInTot:14",
            "TRESUsageOutAve:15",
            "TRESUsageOutMax:15",
            "TRESUsageOutMaxNode:19",
            "TRESUsageOutMaxTask:19",
            "TRESUsageOutMin:15",
            "TRESUsageOutMinNode:19",
            "TRESUsageOutMinTask:19",
            "TRESUsageOutTot:15",
            "UID:6",
            "User:9",
            "UserCPU:10",
            "WCKey:10",
            "WCKeyID:10",
            "WorkDir:20",
        ]
    )
}
"""All columns, in Slurm's order, with their widths; negative: they begin at the left."""


_PLAIN: Mapping[str, str] = {
    "Account": "account",
    "JobID": "label",
    "WCKey": "wckey",
}
"""Columns that show a field as it is."""


class Column:
    """A column as it is asked for."""

    __slots__ = ("name", "show", "width")

    def __init__(self, name: str, width: int) -> None:
        self.name = name
        self.width = width
        self.show: Cell = CELLS.get(name, _empty)

    def texts(self, runs: Sequence[Run], writer: Writer) -> list[str]:
        """The cells of the column, in the order of the runs."""
        field = _PLAIN.get(self.name)
        if field:
            return list(map(attrgetter(field), runs))
        show = self.show
        return [show(run, writer) for run in runs]


def columns(text: str) -> list[Column]:
    """The columns of `jobid,jobname%30,state%-20`. Raises UsageProblem."""
    return [Column(name, width) for name, width in fitted.columns(text, WIDTHS)]


def lines(
    shown: Sequence[Column],
    runs: Sequence[Run],
    writer: Writer,
    *,
    has_header: bool,
    ending: str | None = None,
    is_ended: bool = False,
) -> list[str]:
    """The lines, each with its end; see `fitted.lines`."""
    # By columns: a day has 200,000 lines, and one call a cell is most of their cost.
    cells = [column.texts(runs, writer) for column in shown]
    heads = [(column.name, column.width) for column in shown]
    return fitted.lines_of_columns(heads, cells, has_header=has_header, ending=ending, is_ended=is_ended)
