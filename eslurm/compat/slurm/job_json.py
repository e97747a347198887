"""Jobs in the JSON of squeue and `scontrol show job`."""

from __future__ import annotations

from eslurm.compat.slurm import job_fields, words
from eslurm.compat.slurm.array_text import tasks_text
from eslurm.compat.slurm.json_shape import Shape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from eslurm.compat.slurm.job_fields import Around


def jobs_document(infos: Sequence[Any], around: Around, argv: Sequence[str], now_us: int) -> str:
    """The whole text."""
    shape = Shape(around.release)
    values: dict[str, Any] = {"jobs": [_job(info, around, shape) for info in infos]}
    if shape.is_wrapped:
        values |= {"last_backfill": shape.number(None), "last_update": shape.moment(now_us)}
    return shape.document(values, argv, around.cluster)


def _job(info: Any, around: Around, shape: Shape) -> dict[str, Any]:
    stdout, stderr, stdin = job_fields.files_of(info)
    request = info.request
    has_task = info.HasField("array_task")
    is_array = has_task or bool(info.array_tasks_left)
    tres = job_fields.tres_text(info)
    limit = info.array_tasks_left.partition("%")[2]
    number = shape.number
    record = {
        "account": info.account,
        "accrue_time": shape.moment(job_fields.eligible_us(info)),
        "admin_comment": "",
        "array_job_id": number((info.array_job_id or info.job_id) if is_array else 0),
        "array_task_id": number(info.array_task if has_task else None),
        "array_max_tasks": number(int(limit) if limit.isdecimal() else 0),
        "array_task_string": tasks_text(info.array_tasks_left),
        "association_id": 0,
        "batch_features": "",
        "batch_flag": True,
        "batch_host": job_fields.batch_host(info),
        "flags": [],
        "burst_buffer": "",
        "burst_buffer_state": "",
        "cluster": around.cluster,
        "cluster_features": "",
        "command": info.command,
        "comment": info.comment,
        "contiguous": False,
        "core_spec": None,
        "thread_spec": None,
        "cores_per_socket": number(None),
        "billable_tres": shape.number(info.cpus) if shape.is_wrapped else float(info.cpus),
        "cpus_per_task": number(request.cpus_per_task or None),
        "deadline": shape.moment(info.deadline_us),
        "delay_boot": number(0),
        "dependency": info.dependencies,
        "derived_exit_code": shape.exit_code(0, 0),
        "eligible_time": shape.moment(job_fields.eligible_us(info)),
        "end_time": shape.moment(job_fields.end_us(info)),
        "excluded_nodes": ",".join(request.exclude),
        "exit_code": shape.exit_code(info.exit_code, info.exit_signal),
        "features": info.constraint,
        "federation_origin": "",
        "gres_detail": [],
        "group_id": info.details.gid,
        "group_name": around.group(info.details.gid),
        "het_job_id": number(info.job_id if info.parts else 0),
        "het_job_id_set": "",
        "het_job_offset": number(0 if info.parts else None),
        "job_id": info.job_id,
        "job_state": shape.states(words.long_state(info.state)),
        "last_sched_evaluation": shape.moment(0),
        "licenses": job_fields.licenses_text(info),
        "max_cpus": number(0),
        "max_nodes": number(request.nodes_max),
        "name": info.name,
        "network": "",
        "nodes": info.node_names,
        "nice": info.nice or (0 if shape.is_wrapped else None),
        "tasks_per_node": number(request.tasks_per_node or (0 if shape.is_wrapped else None)),
        "cpus": number(info.cpus),
        "node_count": number(info.nodes),
        "tasks": number(info.tasks),
        "partition": info.partition,
        "memory_per_cpu": number(request.memory_per_cpu_mib or None),
        "memory_per_node": number(
            None
            if request.memory_per_cpu_mib
            else request.memory_per_node_mib or (0 if shape.is_wrapped else None)
        ),
        "minimum_cpus_per_node": number(max(1, request.cpus_per_task)),
        "minimum_tmp_disk_per_node": number(0),
        "preempt_time": shape.moment(0),
        "hold": info.state == "PENDING" and job_fields.reason_of(info).startswith("JobHeld"),
        "priority": number(info.priority),
        "qos": info.qos,
        "reboot": False,
        "required_nodes": ",".join(request.include),
        "requeue": info.requeue,
        "resize_time": shape.moment(0),
        "restart_cnt": job_fields.restarts(info),
        "resv_name": info.reservation,
        "shared": [] if shape.is_wrapped else None,
        "start_time": shape.moment(job_fields.start_us(info)),
        "state_description": "",
        "state_reason": job_fields.reason_of(info),
        "standard_error": stderr,
        "standard_input": stdin,
        "standard_output": stdout,
        "submit_time": shape.moment(info.submitted_us),
        "suspend_time": shape.moment(info.suspended_us),
        "system_comment": "",
        "time_limit": number(
            -(-info.time_limit_s // 60) if info.time_limit_s else None, is_endless=not info.time_limit_s
        ),
        "time_minimum": number(0),
        "threads_per_core": number(None),
        "tres_per_node": job_fields.amounts_text(request.per_node),
        "tres_per_task": job_fields.amounts_text(request.per_task),
        "tres_req_str": tres,
        "tres_alloc_str": tres if info.node_names else "",
        "user_id": info.uid,
        "user_name": info.user,
        "wckey": info.wckey,
        "current_working_directory": info.work_dir,
    }
    if not shape.is_wrapped:
        # Numbers that no value is set for are null there, and these are plain numbers.
        record["billable_tres"] = float(info.cpus)
    return record
