"""Runs of `sacct` from what the controller and its accounting say of jobs."""

from __future__ import annotations

from escli.job_refs import by_part
from escli.slurm.frame import group_name
from eslurm.compat.slurm import array_text, job_fields
from eslurm.compat.slurm.run_fields import Run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BY = "cancelled by "
_UIDS: dict[str, int] = {}
_BASES = {"LAUNCHING": "RUNNING", "COMPLETING": "RUNNING"}
"""States that are none of their own in accounting."""


def of_info(info: Any, *, in_lines: bool = False) -> list[Run]:
    """The lines of a job that waits or runs, or that ended before it began; of an array its waiting tasks, or none."""
    if info.grows or (array_text.is_array(info) and not info.array_tasks_left):
        return []
    found = []
    for part in by_part([info], (), each=True):
        run = Run()
        _put_common(run, part)
        run.label = array_text.job_label(part)
        run.state = _BASES.get(info.state, info.state)
        run.by_uid = _by(info.exit_text)
        run.started_us = 0 if info.state == "PENDING" else info.started_us
        run.ended_us = (
            info.ended_us if run.state in ("CANCELLED", "FAILED", "COMPLETED") or info.ended_us else 0
        )
        run.cpus, run.nodes, run.node_names = part.cpus, part.nodes, part.node_names
        run.exit_code, run.exit_signal = info.exit_code, info.exit_signal
        found.append(run)
    if in_lines and info.array_tasks_left:
        return [
            _task_line(found[0], info.job_id, task) for task in array_text.task_numbers(info.array_tasks_left)
        ]
    return found


def _task_line(run: Run, job_id: int, task: int) -> Run:
    one = run.copy()
    one.label = f"{job_id}_{task}"
    return one


def of_attempt(attempt: Any, info: Any | None) -> list[Run]:
    """The lines of a run that has ended; `info` is its job as far as the controller still knows it."""
    found = []
    for part in by_part([attempt], (), each=True) if attempt.parts else (attempt,):
        run = Run()
        if info is not None:
            _put_common(run, info)
        run.job_id, run.name, run.user = attempt.job_id, attempt.name, attempt.user
        run.account, run.partition = attempt.account, part.partition
        suffix = f"+{part.parts[0].part}" if len(part.parts) == 1 else ""
        task = (
            f"{attempt.array_job_id}_{attempt.array_task}"
            if attempt.HasField("array_task")
            else str(attempt.job_id)
        )
        run.label = task + suffix
        run.state = attempt.state
        run.by_uid = _by(attempt.exit_text)
        run.uid = run.uid if run.uid >= 0 else _uid(attempt.user)
        run.submitted_us = attempt.submitted_us
        run.eligible_us = run.eligible_us or attempt.submitted_us
        run.started_us, run.ended_us, run.paused_us = attempt.started_us, attempt.ended_us, attempt.paused_us
        run.time_limit_s = attempt.time_limit_s
        run.cpus, run.nodes, run.node_names = part.cpus, part.nodes, part.node_names
        run.req_cpus = run.req_cpus if run.req_cpus >= 0 else attempt.cpus
        run.req_nodes = run.req_nodes if run.req_nodes >= 0 else attempt.nodes
        run.exit_code, run.exit_signal = attempt.exit_code, attempt.exit_signal
        run.user_cpu_us, run.system_cpu_us = attempt.user_cpu_us, attempt.system_cpu_us
        run.max_rss_kib = attempt.max_rss_kib
        run.restarts = max(0, attempt.attempt - 1)
        found.append(run)
    return found


def of_dropped_tasks(info: Any, known: set[tuple[int, int]]) -> list[Run]:
    """One line for the tasks of an array that were cancelled before they began."""
    failed = array_text.task_numbers(info.details.tasks_failed)
    dropped = [task for task in failed if (info.job_id, task) not in known]
    if not dropped:
        return []
    from eslurm.core.model.ranges import from_numbers

    ranges = from_numbers(dropped)
    text = ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
    run = Run()
    _put_common(run, info)
    run.label = (
        f"{info.job_id}_{dropped[0]}"
        if len(dropped) == 1
        else f"{info.job_id}_[{array_text.tasks_text(text)}]"
    )
    run.state = "CANCELLED"
    run.by_uid = _by(info.exit_text)
    run.ended_us = info.ended_us
    run.nodes, run.cpus = info.nodes, info.cpus
    return [run]


def _put_common(run: Run, info: Any) -> None:
    request = info.request
    run.job_id, run.name, run.user, run.uid = info.job_id, info.name, info.user, info.uid
    run.account, run.partition, run.qos, run.wckey = info.account, info.partition, info.qos, info.wckey
    run.submitted_us, run.eligible_us = info.submitted_us, job_fields.eligible_us(info)
    run.paused_us, run.time_limit_s = info.paused_us, info.time_limit_s
    run.req_cpus = info.cpus or request.tasks * max(1, request.cpus_per_task)
    run.req_nodes = max(1, request.nodes_min) if request.nodes_min else max(1, info.nodes)
    run.req_mem_mib = info.memory_mib
    run.priority, run.tasks = job_fields.priority_of(info), info.tasks
    run.comment, run.constraint, run.reservation = info.comment, info.constraint, info.reservation
    run.work_dir = info.work_dir
    run.stdout, run.stderr, run.stdin = info.output, info.error, info.details.input
    run.gid, run.group = info.details.gid, group_name(info.details.gid)
    run.licenses = job_fields.licenses_text(info)
    run.reason = job_fields.reason_of(info)
    run.restarts = job_fields.restarts(info)


def _by(text: str) -> int:
    """The user id of the user who cancelled a job; -1: not known."""
    return _uid(text.removeprefix(_BY)) if text.startswith(_BY) else -1


def _uid(name: str) -> int:
    """The number of a user; -1: this host does not know the name. Looked up once for each."""
    found = _UIDS.get(name)
    if found is None:
        import pwd

        try:
            found = pwd.getpwnam(name).pw_uid
        except KeyError:
            found = int(name) if name.isdecimal() else -1
        _UIDS[name] = found
    return found
