"""Runs of `sacct` from what the controller and its accounting say of jobs."""

from __future__ import annotations

from escli.job_refs import by_part
from escli.slurm.ended_runs import EndedRun, canceller, requested_cpus, requested_nodes
from escli.slurm.frame import group_name
from eslurm.compat.slurm import array_text, job_fields, words
from eslurm.compat.slurm.run_fields import Run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LAST_PLACE = 1 << 31
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
        run.place = _place(info)
        run.state = _BASES.get(info.state, info.state)
        run.by_uid = canceller(info.exit_text)
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
    one.place = (job_id, task, run.place[2])
    return one


def _place(info: Any) -> tuple[int, int, int]:
    """The place of a job's lines: by the id that users know, tasks of an array by their numbers, those that wait last."""
    if info.HasField("array_task"):
        return info.array_job_id, info.array_task, number_of(info)
    return info.job_id, LAST_PLACE if info.array_tasks_left else -1, number_of(info)


def number_of(info: Any) -> int:
    """The number of the attempt that the job's record is of: the next one while it waits."""
    is_waiting = info.state in ("PENDING", "TRANSFERRED") or not info.attempts
    if info.state in words.ENDED and not info.started_us:
        return int(info.attempts) + 1
    return int(info.attempts) + 1 if is_waiting else int(info.attempts)


def of_attempt(attempt: Any, info: Any | None) -> list[Run]:
    """The lines of a run that has ended; `info` is its job as far as the controller still knows it."""
    if attempt.HasField("array_task"):
        job_id, task = attempt.array_job_id, attempt.array_task
        label = f"{job_id}_{task}"
    else:
        job_id, task = attempt.job_id, -1
        label = str(job_id)
    place = (job_id, task, attempt.attempt)
    found: list[Run] = []
    if not attempt.parts:
        found.append(EndedRun(attempt, label, place, info))
    for part in by_part([attempt], (), each=True) if attempt.parts else ():
        one = EndedRun(part, f"{label}+{part.parts[0].part}", place, info)
        one.whole = attempt
        found.append(one)
    if info is not None:
        for run in found:
            _put_job(run, info)
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
    run.place = (info.job_id, dropped[0] if len(dropped) == 1 else LAST_PLACE, -1)
    run.state = "CANCELLED"
    run.by_uid = canceller(info.exit_text)
    run.ended_us = info.ended_us
    run.nodes, run.cpus = info.nodes, info.cpus
    return [run]


def _put_common(run: Run, info: Any) -> None:
    run.job_id, run.name, run.user, run.uid = info.job_id, info.name, info.user, info.uid
    run.account, run.partition = info.account, info.partition
    run.submitted_us, run.eligible_us = info.submitted_us, job_fields.eligible_us(info)
    run.paused_us, run.time_limit_s = info.paused_us, info.time_limit_s
    run.req_cpus, run.req_nodes = requested_cpus(info), requested_nodes(info)
    run.restarts = job_fields.restarts(info)
    _put_job(run, info)


def _put_job(run: Run, info: Any) -> None:
    """The fields of a job that accounting of its runs has not."""
    run.qos, run.wckey = info.qos, info.wckey
    run.req_mem_mib = info.memory_mib
    run.priority, run.tasks = job_fields.priority_of(info), info.tasks
    run.comment, run.constraint, run.reservation = info.comment, info.constraint, info.reservation
    run.work_dir = info.work_dir
    run.stdout, run.stderr, run.stdin = info.output, info.error, info.details.input
    run.gid, run.group = info.details.gid, group_name(info.details.gid)
    run.licenses = job_fields.licenses_text(info)
    run.reason = job_fields.reason_of(info)
