"""The columns of squeue: their letters, names, heads and cells.

A cell is a function of the job's message (`JobInfo`) and the surroundings of the command. What cannot be known here has the
text that Slurm prints for what is not set.
"""

from __future__ import annotations

from eslurm.compat.filenames import FileNameFields, expand_pattern
from eslurm.compat.slurm import words
from eslurm.compat.slurm.array_text import job_label, tasks_text
from eslurm.compat.slurm.layout import clock_text, memory_text
from eslurm.core.model.wording import escaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias

    Cell: TypeAlias = Callable[[Any, "Around"], str]

NULL = "(null)"
DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
STEPS = "%.15i %.8j %.9P %.8u %.9M %N"
SECOND_US = 1_000_000
_PRIORITY_MOST = 0xFFFFFFFF


class Around:
    """The data that cells need besides the job: the time, the cluster, and texts that only the host knows."""

    __slots__ = ("cluster", "group", "has_own_units", "moment", "now_us", "release")

    def __init__(
        self,
        now_us: int,
        cluster: str,
        release: str,
        moment: Callable[[int], str],
        group: Callable[[int], str],
        *,
        has_own_units: bool = False,
    ) -> None:
        self.now_us = now_us
        self.cluster = cluster
        self.release = release
        self.moment = moment
        """A time, which is not 0, as text."""
        self.group = group
        """The name of a group id."""
        self.has_own_units = has_own_units
        """Memory is shown in MiB, the unit that it is asked for in, and not in the largest whole one."""


def run_s(info: Any, now_us: int) -> int:
    """Run time of a job so far, or in all, in seconds; suspensions do not count."""
    if not info.started_us or info.state == "PENDING":
        return 0
    until_us = info.ended_us or info.suspended_us or now_us
    return int(max(0, until_us - info.started_us - info.paused_us) // SECOND_US)


def start_us(info: Any) -> int:
    """The start of the job, or the planned one; 0: not known."""
    return int(info.started_us or (info.planned_start_us or info.begin_us if info.state == "PENDING" else 0))


def end_us(info: Any) -> int:
    """The end of the job, or the one by its limit; 0: not known."""
    if info.ended_us:
        return int(info.ended_us)
    began_us = start_us(info)
    if not began_us or not info.time_limit_s:
        return 0
    return int(began_us + info.paused_us + info.time_limit_s * SECOND_US)


def limit_text(info: Any) -> str:
    """The time limit: `UNLIMITED`, `1:00:00`."""
    return clock_text(info.time_limit_s) if info.time_limit_s else "UNLIMITED"


def _left(info: Any, around: Around) -> str:
    if not info.time_limit_s:
        return "UNLIMITED"
    return clock_text(max(0, info.time_limit_s - run_s(info, around.now_us)))


def _time(at_us: int, around: Around) -> str:
    return around.moment(at_us) if at_us else "N/A"


def _end(info: Any, around: Around) -> str:
    if info.started_us and not info.ended_us and not info.time_limit_s:
        return "NONE"
    return _time(end_us(info), around)


def reason_of(info: Any) -> str:
    """The one word of `%r`."""
    return words.reason(info.state, info.reason)


def _nodes_or_reason(info: Any, _around: Around) -> str:
    if info.state in ("PENDING", "TIMEOUT", "FAILED"):
        return f"({reason_of(info)})"
    return str(info.node_names)


def _memory(info: Any, around: Around) -> str:
    mib = info.request.memory_per_cpu_mib or info.request.memory_per_node_mib
    return f"{mib}M" if mib and around.has_own_units else memory_text(mib)


def amounts_text(amounts: Any) -> str:
    """`gres/gpu:2` of amounts with types of Slurm's; empty: none."""
    return ",".join(f"gres/{one.name}:{one.items}" for one in amounts)


def licenses_text(info: Any) -> str:
    """`matlab:2,fluent:1`; empty: none."""
    return ",".join(f"{one.name}:{one.items}" for one in info.request.wide)


def tres_text(info: Any) -> str:
    """`cpu=4,mem=1G,node=1,billing=4`: what a job holds, or asks for."""
    parts = [f"cpu={info.cpus}"]
    if info.memory_mib:
        parts.append(f"mem={memory_text(info.memory_mib)}")
    parts += [f"node={info.nodes}", f"billing={info.cpus}"]
    for one in filter(None, info.resources.split(",")):
        name, _, count = one.rpartition(":")
        parts.append(f"{name.replace('licence/', 'license/') if '/' in name else f'gres/{name}'}={count}")
    return ",".join(parts)


def files_of(info: Any) -> tuple[str, str, str]:
    """The absolute paths of standard output, error and input, without the letters that only nodes know."""
    fields = FileNameFields(
        info.job_id,
        job_name=info.name,
        user=info.user,
        node_name=batch_host(info) or "%N",
        array_job_id=info.array_job_id,
        array_task=info.array_task if info.HasField("array_task") else -1,
    )
    found = []
    for pattern in (info.output, info.error or info.output, info.details.input or "/dev/null"):
        name = expand_pattern(pattern, fields)
        found.append(name if name.startswith("/") else f"{info.work_dir.rstrip('/')}/{name}")
    return found[0], found[1], found[2]


def batch_host(info: Any) -> str:
    """The node of the script; empty: none yet."""
    names = str(info.node_names)
    stem, bracket, rest = names.partition("[")
    if not bracket or "," in stem:
        return stem.partition(",")[0]
    inside = rest.partition("]")[0]
    return stem + inside.partition(",")[0].partition("-")[0]


def task_id(info: Any) -> str:
    """`4`, `5-9%4`; empty: the job is no array."""
    if info.HasField("array_task"):
        return str(info.array_task)
    return tasks_text(info.array_tasks_left)


def eligible_us(info: Any) -> int:
    """The time from which the job could start."""
    return int(max(info.begin_us, info.submitted_us))


def _or_null(text: object) -> str:
    return escaped(str(text)) or NULL


def priority_of(info: Any) -> int:
    """The job's priority; 0 of a job that is held."""
    return 0 if is_held(info) else int(info.priority)


def is_held(info: Any) -> bool:
    """Check whether the job waits to be released."""
    return info.state == "PENDING" and reason_of(info).startswith("JobHeld")


def _priority(info: Any, _around: Around) -> str:
    return f"{max(0, priority_of(info)) / _PRIORITY_MOST:.14f}"


def _fixed(text: str) -> Cell:
    return lambda _info, _around: text


def _name(info: Any, _around: Around) -> str:
    return escaped(info.name)


def _partition(info: Any, _around: Around) -> str:
    return ",".join(dict.fromkeys(part.partition for part in info.parts)) or str(info.partition)


UNCUT = frozenset({"JobArrayId", "NodeList", "ReasonList", "SchedNodes", "TimeLeft", "TimeLimit", "TimeUsed"})
"""Columns whose cells are not cut where they stand right."""
UNCUT_HEADS = frozenset({"NodeList", "ReasonList", "SchedNodes"})
"""The same of heads."""
FIELDS: Mapping[str, tuple[str, str, Cell]] = {
    "Account": ("a", "ACCOUNT", lambda i, _: i.account or NULL),
    "AccrueTime": ("", "ACCRUE_TIME", lambda i, a: a.moment(eligible_us(i))),
    "admin_comment": ("", "ADMIN_COMMENT", _fixed(NULL)),
    "AllocNodes": ("", "ALLOC_NODES", _fixed("N/A")),
    "AllocSID": ("", "ALLOC_SID", _fixed("0")),
    "ArrayJobId": ("F", "ARRAY_JOB_ID", lambda i, _: str(i.array_job_id or i.job_id)),
    "ArrayTaskId": ("K", "ARRAY_TASK_ID", lambda i, _: task_id(i) or "N/A"),
    "AssocId": ("", "ASSOC_ID", _fixed("0")),
    "BatchFlag": ("", "BATCH_FLAG", _fixed("1")),
    "BatchHost": ("B", "EXEC_HOST", lambda i, _: batch_host(i) or "n/a"),
    "BoardsPerNode": ("", "BOARDS_PER_NODE", _fixed("N/A")),
    "BurstBuffer": ("", "BURST_BUFFER", _fixed(NULL)),
    "BurstBufferState": ("", "BURST_BUFFER_STATE", _fixed(NULL)),
    "Cluster": ("", "CLUSTER", lambda _, a: a.cluster),
    "ClusterFeature": ("", "CLUSTER_FEATURES", _fixed(NULL)),
    "Command": ("o", "COMMAND", lambda i, _: _or_null(i.command)),
    "Comment": ("k", "COMMENT", lambda i, _: _or_null(i.comment)),
    "Contiguous": ("O", "CONTIGUOUS", _fixed("0")),
    "Cores": ("I", "CORES_PER_SOCKET", _fixed("*")),
    "CoreSpec": ("X", "CORE_SPEC", _fixed("N/A")),
    "CPUsPerTask": ("", "CPUS_PER_TASK", lambda i, _: str(i.request.cpus_per_task or "N/A")),
    "cpus-per-task": ("", "CPUS_PER_TASK", lambda i, _: str(i.request.cpus_per_task or "N/A")),
    "cpus-per-tres": ("", "CPUS_PER_TRES", _fixed("N/A")),
    "CronJob": ("", "CRON_JOB", lambda i, _: "Yes" if i.cron else "No"),
    "Deadline": ("", "DEADLINE", lambda i, a: _time(i.deadline_us, a)),
    "DelayBoot": ("", "DELAY_BOOT", _fixed("0:00")),
    "Dependency": ("E", "DEPENDENCY", lambda i, _: i.dependencies or NULL),
    "DerivedEC": ("", "DERIVED_EC", _fixed("0")),
    "EligibleTime": ("", "ELIGIBLE_TIME", lambda i, a: a.moment(eligible_us(i))),
    "EndTime": ("e", "END_TIME", _end),
    "ExcNodes": ("x", "EXC_NODES", lambda i, _: ",".join(i.request.exclude)),
    "exit_code": ("", "EXIT_CODE", lambda i, _: str(i.exit_code)),
    "Feature": ("f", "FEATURES", lambda i, _: i.constraint or NULL),
    "Gres": ("b", "TRES_PER_NODE", lambda i, _: amounts_text(i.request.per_node) or "N/A"),
    "GroupId": ("G", "GROUP", lambda i, _: str(i.details.gid)),
    "GroupName": ("g", "GROUP", lambda i, a: a.group(i.details.gid)),
    "HetJobId": ("", "HET_JOB_ID", lambda i, _: str(i.job_id) if i.parts else "N/A"),
    "HetJobOffset": ("", "HET_JOB_OFFSET", lambda i, _: str(i.parts[0].part) if i.parts else "N/A"),
    "JobArrayId": ("i", "JOBID", lambda i, _: job_label(i)),
    "JobId": ("A", "JOBID", lambda i, _: str(i.job_id)),
    "Licenses": ("W", "LICENSES", lambda i, _: licenses_text(i) or NULL),
    "MaxCPUs": ("", "MAX_CPUS", _fixed("0")),
    "MaxNodes": ("", "MAX_NODES", lambda i, _: str(i.request.nodes_max)),
    "MCSLabel": ("", "MCSLABEL", _fixed("N/A")),
    "mem-per-tres": ("", "MEM_PER_TRES", _fixed("N/A")),
    "MinCPUs": (
        "c",
        "MIN_CPUS",
        lambda i, _: str(max(1, i.request.cpus_per_task) * max(1, i.request.tasks_per_node)),
    ),
    "MinMemory": ("m", "MIN_MEMORY", _memory),
    "MinTime": ("", "TIME_MIN", _fixed("N/A")),
    "MinTmpDisk": ("d", "MIN_TMP_DISK", _fixed("0")),
    "Name": ("j", "NAME", _name),
    "Network": ("", "NETWORK", _fixed(NULL)),
    "Nice": ("y", "NICE", lambda i, _: str(i.nice)),
    "NodeList": ("N", "NODELIST", lambda i, _: i.node_names),
    "NTPerBoard": ("", "NTASKS_PER_BOARD", _fixed("N/A")),
    "NTPerCore": ("", "NTASKS_PER_CORE", _fixed("N/A")),
    "NTPerNode": ("", "NTASKS_PER_NODE", lambda i, _: str(i.request.tasks_per_node or "N/A")),
    "NTPerSocket": ("", "NTASKS_PER_SOCKET", _fixed("N/A")),
    "NumCPUs": ("C", "CPUS", lambda i, _: str(i.cpus)),
    "NumNodes": ("D", "NODES", lambda i, _: str(i.nodes)),
    "NumTasks": ("", "TASKS", lambda i, _: str(i.tasks)),
    "OverSubscribe": ("h", "OVER_SUBSCRIBE", lambda i, _: over_subscribe(i)),
    "Partition": ("P", "PARTITION", _partition),
    "PendingTime": ("", "PENDING_TIME", lambda i, a: str(pending_s(i, a.now_us))),
    "PreemptTime": ("", "PREEMPT_TIME", _fixed("N/A")),
    "Prefer": ("", "PREFER", _fixed(NULL)),
    "Priority": ("p", "PRIORITY", _priority),
    "PriorityLong": ("Q", "PRIORITY", lambda i, _: str(priority_of(i))),
    "Profile": ("", "PROFILE", _fixed("NotSet")),
    "QOS": ("q", "QOS", lambda i, _: i.qos or NULL),
    "Reason": ("r", "REASON", lambda i, _: reason_of(i)),
    "ReasonList": ("R", "NODELIST(REASON)", _nodes_or_reason),
    "Reboot": ("", "REBOOT", _fixed("0")),
    "ReqNodes": ("n", "REQ_NODES", lambda i, _: ",".join(i.request.include)),
    "ReqSwitch": ("", "REQ_SWITCH", _fixed("0")),
    "Requeue": ("", "REQUEUE", lambda i, _: str(int(i.requeue))),
    "Reservation": ("v", "RESERVATION", lambda i, _: i.reservation or NULL),
    "ResizeTime": ("", "RESIZE_TIME", _fixed("N/A")),
    "RestartCnt": ("", "RESTART_COUNT", lambda i, _: str(restarts(i))),
    "SchedNodes": ("Y", "SCHEDNODES", lambda i, _: i.planned_nodes or NULL),
    "SCT": ("z", "S:C:T", _fixed("*:*:*")),
    "Shared": ("h", "OVER_SUBSCRIBE", lambda i, _: over_subscribe(i)),
    "Sockets": ("H", "SOCKETS_PER_NODE", _fixed("*")),
    "StartTime": ("S", "START_TIME", lambda i, a: _time(start_us(i), a)),
    "State": ("T", "STATE", lambda i, _: words.long_state(i.state)),
    "StateCompact": ("t", "ST", lambda i, _: words.short_state(i.state)),
    "StdErr": ("", "STDERR", lambda i, _: escaped(files_of(i)[1])),
    "StdIn": ("", "STDIN", lambda i, _: escaped(files_of(i)[2])),
    "StdOut": ("", "STDOUT", lambda i, _: escaped(files_of(i)[0])),
    "SubmitTime": ("V", "SUBMIT_TIME", lambda i, a: a.moment(i.submitted_us)),
    "system_comment": ("", "SYSTEM_COMMENT", _fixed(NULL)),
    "Threads": ("J", "THREADS_PER_CORE", _fixed("*")),
    "TimeLeft": ("L", "TIME_LEFT", _left),
    "TimeLimit": ("l", "TIME_LIMIT", lambda i, _: limit_text(i)),
    "TimeUsed": ("M", "TIME", lambda i, a: clock_text(run_s(i, a.now_us))),
    "tres-alloc": ("", "TRES_ALLOC", lambda i, _: tres_text(i) if i.node_names else "N/A"),
    "tres-bind": ("", "TRES_BIND", _fixed("N/A")),
    "tres-freq": ("", "TRES_FREQ", _fixed("N/A")),
    "tres-per-job": ("", "TRES_PER_JOB", _fixed("N/A")),
    "tres-per-node": ("", "TRES_PER_NODE", lambda i, _: amounts_text(i.request.per_node) or "N/A"),
    "tres-per-socket": ("", "TRES_PER_SOCKET", _fixed("N/A")),
    "tres-per-task": ("", "TRES_PER_TASK", lambda i, _: amounts_text(i.request.per_task) or "N/A"),
    "UserId": ("U", "UID", lambda i, _: str(i.uid)),
    "UserName": ("u", "USER", lambda i, _: i.user),
    "Wait4Switch": ("", "WAIT4SWITCH", _fixed("0")),
    "WCKey": ("w", "WCKEY", lambda i, _: i.wckey or NULL),
    "WorkDir": ("Z", "WORK_DIR", lambda i, _: escaped(i.work_dir)),
}
BY_LETTER: Mapping[str, str] = {letter: name for name, (letter, _, _) in FIELDS.items() if letter}
BY_LOWER: Mapping[str, str] = {name.lower(): name for name in FIELDS}
ALL = "||".join(
    "|".join(f"%{letter}" for letter in letters)
    for letters in ("abcdefghijklmnopqr", "tuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
)
"""The format `%all`. No field has the letter s: its column is empty."""


def over_subscribe(info: Any) -> str:
    """`NO` of a job that shares its nodes with no other, else `OK`."""
    return "NO" if info.request.exclusive else "OK"


def restarts(info: Any) -> int:
    """The number of times that the job has begun anew."""
    return max(0, info.attempts - 1) if info.started_us else int(info.attempts)


def pending_s(info: Any, now_us: int) -> int:
    """Seconds between submission and start."""
    return int(max(0, (info.started_us or now_us) - info.submitted_us) // SECOND_US)


SORT_KEYS: Mapping[str, Callable[[Any, Around], Any]] = {
    "a": lambda i, _: i.account,
    "A": lambda i, _: i.job_id,
    "C": lambda i, _: i.cpus,
    "D": lambda i, _: i.nodes,
    "e": lambda i, _: end_us(i),
    "F": lambda i, _: i.array_job_id or i.job_id,
    "g": lambda i, a: a.group(i.details.gid),
    "G": lambda i, _: i.details.gid,
    "i": lambda i, _: (i.array_job_id or i.job_id, i.array_task if i.HasField("array_task") else 1 << 31),
    "j": lambda i, _: i.name,
    "K": lambda i, _: i.array_task if i.HasField("array_task") else 1 << 31,
    "l": lambda i, _: i.time_limit_s or 1 << 40,
    "L": lambda i, a: (i.time_limit_s or 1 << 40) - run_s(i, a.now_us),
    "m": lambda i, _: i.request.memory_per_cpu_mib or i.request.memory_per_node_mib,
    "M": lambda i, a: run_s(i, a.now_us),
    "N": lambda i, _: i.node_names,
    "p": lambda i, _: priority_of(i),
    "P": _partition,
    "q": lambda i, _: i.qos,
    "Q": lambda i, _: priority_of(i),
    "S": lambda i, _: start_us(i) or 1 << 62,
    "t": lambda i, _: words.state_order(i.state),
    "T": lambda i, _: words.state_order(i.state),
    "u": lambda i, _: i.user,
    "U": lambda i, _: i.uid,
    "v": lambda i, _: i.reservation,
    "V": lambda i, _: i.submitted_us,
    "w": lambda i, _: i.wckey,
}
DEFAULT_SORT = "P,t,-p"
