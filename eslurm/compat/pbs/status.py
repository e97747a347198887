"""The tables of `qstat`: the plain one, and the wide one of `-a` and `-u`."""

from __future__ import annotations

from eslurm.compat.hostlist import expand
from eslurm.compat.slurm.array_text import is_array
from eslurm.core.model.wording import escaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

_LETTERS = {
    "PENDING": "Q",
    "LAUNCHING": "R",
    "RUNNING": "R",
    "SUSPENDED": "S",
    "COMPLETING": "E",
    "TRANSFERRED": "M",
}
"""By our state; all others have ended: F."""
_HELD = ("JobHeldUser", "JobHeldAdmin")
_WAITING = ("BeginTime",)
_WIDE_HEAD = """\
                                                            Req'd  Req'd   Elap
Job ID          Username Queue    Jobname    SessID NDS TSK Memory Time  S Time
--------------- -------- -------- ---------- ------ --- --- ------ ----- - -----
"""
_HEAD = """\
Job id            Name             User              Time Use S Queue
----------------  ---------------- ----------------  -------- - -----
"""


def label(info: Any) -> str:
    """`17`, `17[]` for an array, `17[3]` for one of its tasks."""
    if info.HasField("array_task"):
        return f"{info.array_job_id}[{info.array_task}]"
    return f"{info.job_id}[]" if is_array(info) else str(info.job_id)


def letter(info: Any) -> str:
    """The letter of the job's state."""
    if is_array(info) and info.tasks_running:
        return "B"
    if info.state == "PENDING" and info.reason in (*_HELD, *_WAITING, "Dependency"):
        return "W" if info.reason in _WAITING else "H"
    return _LETTERS.get(info.state, "F")


def plain(infos: Sequence[Any], now_us: int) -> Iterator[str]:
    """The lines of `qstat`. Time Use is the time since the start: processor time is known when a job has ended."""
    if infos:
        yield _HEAD
    for info in infos:
        used = _clock(_elapsed_s(info, now_us)) if info.started_us else "0"
        yield (
            f"{label(info):<17.17} {info.name:<16.16} {info.user:<17.17} {used:>8} {letter(info)} {info.partition:<16.16}"
        ).rstrip() + "\n"


def wide(infos: Sequence[Any], now_us: int, cluster: str) -> Iterator[str]:
    """The lines of `qstat -a`."""
    if infos:
        yield f"\n{cluster}: \n{_WIDE_HEAD}"
    for info in infos:
        memory = f"{info.memory_mib}mb" if info.memory_mib % 1024 else f"{info.memory_mib // 1024}gb"
        asked = _short(info.time_limit_s) if info.time_limit_s else "--"
        elapsed = _short(_elapsed_s(info, now_us)) if info.started_us else "--"
        yield (
            f"{label(info):<15.15} {info.user:<8.8} {info.partition:<8.8} {info.name:<10.10} {'--':>6} {info.nodes or 1:>3} "
            f"{info.cpus:>3} {memory if info.memory_mib else '--':>6} {asked:>5} {letter(info)} {elapsed:>5}\n"
        )


def full(infos: Sequence[Any], now_us: int, cluster: str, moment: Callable[[int], str]) -> Iterator[str]:
    """The records of `qstat -f`. `moment` writes a time."""
    for info in infos:
        hosts = expand(info.node_names, "hosts") if info.node_names else ()
        each = info.cpus // len(hosts) if hosts else 0
        rows = [
            ("Job_Name", info.name),
            ("Job_Owner", f"{info.user}@{cluster}"),
            ("resources_used.walltime", _clock(_elapsed_s(info, now_us)) if info.started_us else ""),
            ("job_state", letter(info)),
            ("queue", info.partition),
            ("server", cluster),
            ("ctime", moment(info.submitted_us)),
            ("exec_host", "+".join(f"{host}/0*{each}" if each > 1 else f"{host}/0" for host in hosts)),
            ("Account_Name", info.account),
            ("depend", info.dependencies),
            ("Error_Path", info.error),
            ("Output_Path", info.output),
            ("Priority", str(info.priority)),
            ("Rerunable", str(bool(info.requeue))),
            ("Resource_List.mem", f"{info.memory_mib}mb" if info.memory_mib else ""),
            ("Resource_List.ncpus", str(info.cpus)),
            ("Resource_List.nodect", str(info.nodes or 1)),
            ("Resource_List.walltime", _clock(info.time_limit_s) if info.time_limit_s else ""),
            ("stime", moment(info.started_us) if info.started_us else ""),
            ("comment", info.comment or info.reason_text),
            ("Exit_status", _exit_status(info)),
        ]
        yield f"Job Id: {label(info)}\n"
        yield from (f"    {name} = {escaped(value)}\n" for name, value in rows if value)
        yield "\n"


def _exit_status(info: Any) -> str:
    """The exit code of a job that has run to an end, 256 and the number of the signal that ended it; empty: none."""
    if letter(info) != "F" or not info.started_us:
        return ""
    return str(256 + info.exit_signal if info.exit_signal else info.exit_code)


def _elapsed_s(info: Any, now_us: int) -> int:
    elapsed_us: int = (info.ended_us or now_us) - info.started_us
    return max(0, elapsed_us // 1_000_000)


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _short(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
