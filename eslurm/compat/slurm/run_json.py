"""Jobs in the JSON of sacct."""

from __future__ import annotations

from eslurm.compat.slurm import words
from eslurm.compat.slurm.json_shape import Shape, filled
from eslurm.compat.slurm.run_fields import Run, elapsed_s, planned_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def document(found: Sequence[tuple[str, list[Run], int]], release: str, argv: Sequence[str]) -> str:
    """The whole text: (cluster, runs, present time) of each cluster."""
    shape = Shape(release)
    jobs = [_job(run, name, now_us, shape) for name, runs, now_us in found for run in runs]
    return shape.document({"jobs": jobs}, argv, found[0][0] if found else "")


def _job(run: Run, cluster: str, now_us: int, shape: Shape) -> dict[str, Any]:
    array, underscore, task = run.label.partition("+")[0].partition("_")
    is_task = bool(underscore) and task.isdecimal()
    cpu_us = max(0, run.user_cpu_us) + max(0, run.system_cpu_us)
    seconds = elapsed_s(run, now_us)
    record = {
        "account": run.account,
        "comment": {"administrator": "", "job": run.comment, "system": ""},
        "array": {
            "job_id": int(array) if underscore else 0,
            "limits": {"max": {"running": {"tasks": 0}}},
            "task_id": shape.number(int(task) if is_task else None),
            "task": "" if is_task else task.strip("[]"),
        },
        "association": {
            "account": run.account,
            "cluster": cluster,
            "partition": "",
            "user": run.user,
            "id": 0,
        },
        "cluster": cluster,
        "constraints": run.constraint,
        "derived_exit_code": shape.exit_code(0, 0),
        "time": {
            "elapsed": seconds,
            "eligible": run.eligible_us // 1_000_000,
            "end": run.ended_us // 1_000_000,
            "start": run.started_us // 1_000_000,
            "submission": run.submitted_us // 1_000_000,
            "suspended": run.paused_us // 1_000_000,
            "system": _span(max(0, run.system_cpu_us)),
            "limit": shape.number(-(-run.time_limit_s // 60) or None, is_endless=not run.time_limit_s),
            "total": _span(cpu_us),
            "user": _span(max(0, run.user_cpu_us)),
        },
        "exit_code": shape.exit_code(run.exit_code, run.exit_signal),
        "flags": [],
        "group": run.group,
        "het": {"job_id": 0, "job_offset": shape.number(None)},
        "job_id": run.job_id,
        "name": run.name,
        "licenses": run.licenses,
        "allocation_nodes": run.nodes if run.started_us else 0,
        "nodes": run.node_names or "None assigned",
        "partition": run.partition,
        "priority": shape.number(run.priority if run.priority >= 0 else None),
        "qos": run.qos,
        "required": {
            "CPUs": max(0, run.req_cpus),
            "memory_per_cpu": shape.number(None),
            "memory_per_node": shape.number(run.req_mem_mib if run.req_mem_mib >= 0 else None),
        },
        "kill_request_user": str(run.by_uid) if run.by_uid >= 0 else "",
        "reservation": {"id": 0, "name": run.reservation},
        "state": {"current": shape.states(words.long_state(run.state)), "reason": run.reason or "None"},
        "steps": [_step(run, seconds, cpu_us, shape)] if run.started_us else [],
        "tres": {"allocated": _tres(run) if run.started_us else [], "requested": _tres(run)},
        "user": run.user,
        "wckey": {"wckey": run.wckey, "flags": []},
        "working_directory": run.work_dir,
    }
    if not shape.is_wrapped:
        return record
    texts = ("block", "container", "extra", "failed_node", "mcs/label", "script", "submit_line", "used_gres")
    return filled(
        record,
        {
            **dict.fromkeys(texts, ""),
            "hold": run.reason.startswith("JobHeld"),
            "qosreq": run.qos,
            "reservation/requested": run.reservation,
            "restart_cnt": run.restarts,
            "segment_size": 0,
            **dict.fromkeys(("stdout", "stdout_expanded"), run.stdout),
            **dict.fromkeys(("stderr", "stderr_expanded"), run.stderr),
            **dict.fromkeys(("stdin", "stdin_expanded"), run.stdin),
            "time/planned": shape.number(planned_s(run, now_us)),
        },
    )


def _span(cpu_us: int) -> dict[str, int]:
    return {"seconds": cpu_us // 1_000_000, "microseconds": cpu_us % 1_000_000}


def _tres(run: Run) -> list[dict[str, Any]]:
    found = [{"type": "cpu", "name": "", "id": 1, "count": run.cpus}]
    if run.req_mem_mib > 0:
        found.append({"type": "mem", "name": "", "id": 2, "count": run.req_mem_mib})
    return [*found, {"type": "node", "name": "", "id": 4, "count": run.nodes}]


def _step(run: Run, seconds: int, cpu_us: int, shape: Shape) -> dict[str, Any]:
    known = run.max_rss_kib > 0
    memory = [{"type": "mem", "name": "", "id": 2, "count": run.max_rss_kib * 1024}] if known else []
    return {
        "time": {
            "elapsed": seconds,
            "end": shape.moment(run.ended_us),
            "start": shape.moment(run.started_us),
            "suspended": run.paused_us // 1_000_000,
            "system": _span(max(0, run.system_cpu_us)),
            "total": _span(cpu_us),
            "user": _span(max(0, run.user_cpu_us)),
        },
        "exit_code": shape.exit_code(run.exit_code, run.exit_signal),
        "nodes": {"count": 1, "range": run.node_names, "list": []},
        "tasks": {"count": 1},
        "state": shape.states(words.long_state(run.state)),
        "step": {"id": f"{run.job_id}.batch", "name": "batch"},
        "tres": {"requested": {"max": memory, "total": memory}, "allocated": _tres(run)},
    }
