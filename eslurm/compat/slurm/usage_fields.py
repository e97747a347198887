"""The columns of sstat, their widths, and its cells: what a live step uses now.

What is not measured here is 0 or empty, as Slurm leaves it where nothing gathers it.
"""

from __future__ import annotations

from eslurm.compat.slurm.run_fields import cpu_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias

    Cell: TypeAlias = Callable[["Use"], str]

_SECOND_US = 1_000_000
_UNITS = ("", "K", "M", "G", "T", "P")


class Use:
    """A line's data: a step (`StepInfo`) and what it uses (`StepUsageInfo`). `scaled` writes amounts."""

    __slots__ = ("label", "node_names", "pids", "scaled", "step", "usage")

    def __init__(self, step: Any, usage: Any, scaled: Callable[[int], str]) -> None:
        self.step = step
        self.usage = usage
        self.scaled = scaled
        self.label = step_label(step)
        self.node_names = usage.node_names
        self.pids = ",".join(str(pid) for one in usage.processes for pid in one.pids)

    def by_node(self) -> list[Use]:
        """A line for each node that has named processes."""
        lines = []
        for one in self.usage.processes:
            line = Use(self.step, self.usage, self.scaled)
            line.node_names, line.pids = one.node, ",".join(map(str, one.pids))
            lines.append(line)
        return lines

    def average(self, amount: Any) -> int:
        """An amount's share of a task."""
        share: int = amount.total // max(1, self.usage.tasks)
        return share


def step_label(step: Any) -> str:
    """`17.0`, `17.batch`: a task of an array by its own number."""
    return f"{step.job_id}.{'batch' if step.is_batch else step.step}"


def scaled(amount: int) -> str:
    """An amount in the largest unit in which it is whole: `25504K`, `1G`, `0`."""
    place = 0
    while amount and amount % 1024 == 0 and place < len(_UNITS) - 1:
        amount //= 1024
        place += 1
    return f"{amount}{_UNITS[place]}"


def _seconds(cpu_us: int) -> str:
    return cpu_text(cpu_us // _SECOND_US * _SECOND_US)


def _clock(cpu_us: int) -> str:
    seconds = cpu_us // _SECOND_US
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _kinds(write: Callable[[Use, str, Any, int], str]) -> Cell:
    """`cpu=...,mem=...,pages=...,vmem=...`: of each kind its name, its amount, and the bytes or the like of one."""

    def cell(one: Use) -> str:
        usage = one.usage
        kinds = (
            ("cpu", usage.cpu_us, 0),
            ("mem", usage.memory_kib, 1024),
            ("pages", usage.faults, 1),
            ("vmem", usage.virtual_kib, 1024),
        )
        return ",".join(f"{name}={write(one, name, amount, size)}" for name, amount, size in kinds)

    return cell


def _of_kinds(value: Callable[[Use, Any], int]) -> Cell:
    def write(one: Use, name: str, amount: Any, size: int) -> str:
        found = value(one, amount)
        return _clock(found) if name == "cpu" else one.scaled(found * size)

    return _kinds(write)


def _alloc_tres(one: Use) -> str:
    return f"cpu={one.step.cpus},node={one.step.nodes}"


CELLS: Mapping[str, Cell] = {
    "AllocTRES": _alloc_tres,
    "AveCPU": lambda one: _seconds(one.average(one.usage.cpu_us)),
    "AvePages": lambda one: one.scaled(one.average(one.usage.faults)),
    "AveRSS": lambda one: one.scaled(one.average(one.usage.memory_kib) * 1024),
    "AveVMSize": lambda one: one.scaled(one.average(one.usage.virtual_kib) * 1024),
    "JobID": lambda one: one.label,
    "MaxPages": lambda one: one.scaled(one.usage.faults.most),
    "MaxPagesNode": lambda one: one.usage.faults.most_node,
    "MaxPagesTask": lambda one: str(one.usage.faults.most_task),
    "MaxRSS": lambda one: one.scaled(one.usage.memory_kib.most * 1024),
    "MaxRSSNode": lambda one: one.usage.memory_kib.most_node,
    "MaxRSSTask": lambda one: str(one.usage.memory_kib.most_task),
    "MaxVMSize": lambda one: one.scaled(one.usage.virtual_kib.most * 1024),
    "MaxVMSizeNode": lambda one: one.usage.virtual_kib.most_node,
    "MaxVMSizeTask": lambda one: str(one.usage.virtual_kib.most_task),
    "MinCPU": lambda one: _seconds(one.usage.cpu_us.least),
    "MinCPUNode": lambda one: one.usage.cpu_us.least_node,
    "MinCPUTask": lambda one: str(one.usage.cpu_us.least_task),
    "Nodelist": lambda one: one.node_names,
    "NTasks": lambda one: str(one.usage.tasks),
    "Pids": lambda one: one.pids,
    "TRESUsageInAve": _of_kinds(lambda one, amount: one.average(amount)),
    "TRESUsageInMax": _of_kinds(lambda _, amount: amount.most),
    "TRESUsageInMaxNode": _kinds(lambda _, __, amount, ___: amount.most_node),
    "TRESUsageInMaxTask": _kinds(lambda _, __, amount, ___: str(amount.most_task)),
    "TRESUsageInMin": _of_kinds(lambda _, amount: amount.least),
    "TRESUsageInMinNode": _kinds(lambda _, __, amount, ___: amount.least_node),
    "TRESUsageInMinTask": _kinds(lambda _, __, amount, ___: str(amount.least_task)),
    "TRESUsageInTot": _of_kinds(lambda _, amount: amount.total),
}
"""The columns that are measured."""
ZEROS = frozenset(
    {
        *("AveCPUFreq", "AveDiskRead", "AveDiskWrite", "ConsumedEnergy", "ConsumedEnergyRaw"),
        *("MaxDiskRead", "MaxDiskReadTask", "MaxDiskWrite", "MaxDiskWriteTask"),
        *("ReqCPUFreq", "ReqCPUFreqMin", "ReqCPUFreqMax", "ReqCPUFreqGov"),
    }
)
"""Columns that are 0, as what they show is not measured; all others are empty."""
_NEW = "AllocTRES"
"""A column that 22.05 does not have."""
_WIDTHS: Mapping[str, int] = {
    name: int(width)
    for name, _, width in (
        word.partition(":")
        for word in [
            "AllocTRES:10",
            "AveCPU:10",
            "AveCPUFreq:10",
            "AveDiskRead:12",
            "AveDiskWrite:12",
            "AvePages:10",
            "AveRSS:10",
            "AveVMSize:10",
            "ConsumedEnergy:14",
            "ConsumedEnergyRaw:17",
            "JobID:-12",
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
            "MinCPU:10",
            "MinCPUNode:10",
            "MinCPUTask:10",
            "Nodelist:20",
            "NTasks:8",
            "Pids:20",
            "ReqCPUFreq:10",
            "ReqCPUFreqMin:13",
            "ReqCPUFreqMax:13",
            "ReqCPUFreqGov:13",
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
        ]
    )
}
DEFAULT = (
    "jobid,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,averss,maxpages,maxpagesnode,"
    "maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,"
    "consumedenergy,maxdiskread,maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,"
    "avediskwrite,tresusageinave,tresusageinmax,tresusageinmaxn,tresusageinmaxt,tresusageinmin,tresusageinminn,"
    "tresusageinmint,tresusageintot,tresusageoutave,tresusageoutmax,tresusageoutmaxn,tresusageoutmaxt,tresusageoutmin,"
    "tresusageoutminn,tresusageoutmint,tresusageouttot"
)
PIDS = "jobid,nodelist,pids"


def widths_of(release: str) -> Mapping[str, int]:
    """All columns of a release, in Slurm's order, with their widths; negative: they begin at the left."""
    return {name: width for name, width in _WIDTHS.items() if name != _NEW or release != "22.05"}


def row_of(names: list[str], one: Use) -> list[str]:
    """The cells of a line."""
    return [cell(one) if (cell := CELLS.get(name)) else "0" if name in ZEROS else "" for name in names]
