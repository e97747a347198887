"""Jobs in the JSON of squeue and `scontrol show job`."""

from __future__ import annotations

from eslurm.compat.slurm import job_fields, words
from eslurm.compat.slurm.array_text import tasks_text
from eslurm.compat.slurm.json_shape import Shape
from eslurm.compat.slurm.mail_text import mail_flags

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
        "het_job_offset": number(0 if info.parts or not shape.is_wrapped else None),
        "job_id": info.job_id,
        "job_state": shape.states(words.long_state(info.state)),
        "last_sched_evaluation": shape.moment(0),
        "licenses": job_fields.licenses_text(info),
        "max_cpus": number(0),
        "max_nodes": number(request.nodes_max),
        "name": info.name,
        "nodes": info.node_names,
        "nice": info.nice or (0 if shape.is_wrapped else None),
        "tasks_per_node": number(request.tasks_per_node),
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
        **({"hold": job_fields.is_held(info), "network": ""} if shape.is_wrapped else {}),
        "priority": number(job_fields.priority_of(info)),
        "qos": info.qos,
        "reboot": False,
        "required_nodes": ",".join(request.include),
        "requeue": info.requeue,
        "resize_time": shape.moment(0),
        "restart_cnt": job_fields.restarts(info),
        "resv_name": info.reservation,
        "shared": [] if shape.is_wrapped else "none",
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
    return record | (_unset(info, shape) if shape.is_wrapped else _unset_before(info))


def _unset(info: Any, shape: Shape) -> dict[str, Any]:
    """The fields of which nothing is known here, as they are when they are not set."""
    stdout, stderr, stdin = job_fields.files_of(info)
    unset = shape.number(None)
    texts = (
        *(
            "allocating_node",
            "container",
            "container_id",
            "cron",
            "extra",
            "failed_node",
            "federation_siblings_active",
        ),
        *(
            "federation_siblings_viable",
            "job_size_str",
            "mcs_label",
            "memory_per_tres",
            "prefer",
            "submit_line",
        ),
        *("cpus_per_tres", "selinux_context", "tres_bind", "tres_freq", "tres_per_job", "tres_per_socket"),
    )
    numbers = (
        *(
            "cpu_frequency_governor",
            "cpu_frequency_maximum",
            "cpu_frequency_minimum",
            "tasks_per_core",
            "tasks_per_tres",
        ),
        *("tasks_per_board", "segment_size", "preemptable_time", "pre_sus_time"),
    )
    nodes = {
        "count": info.nodes,
        "select_type": [],
        "list": info.node_names,
        "whole": False,
        "allocation": [],
    }
    return {
        **dict.fromkeys(texts, ""),
        "cron": info.cron,
        **dict.fromkeys(numbers, unset),
        "job_resources": {
            "select_type": [],
            "nodes": nodes,
            "cpus": info.cpus,
            "threads_per_core": unset,
        }
        if info.node_names
        else None,
        "licenses_allocated": job_fields.licenses_text(info) if info.node_names else "",
        "mail_type": mail_flags(info.mail_type),
        "mail_user": info.mail_user,
        "maximum_switch_wait_time": 0,
        "power": {"flags": []},
        "priority_by_partition": [],
        "profile": ["NOT_SET"],
        "required_switches": 0,
        "scheduled_nodes": info.planned_nodes,
        "sockets_per_board": 0,
        "sockets_per_node": unset,
        "tasks_per_socket": unset,
        "step_id": {"job_id": unset, "step_het_component": unset, "step_id": ""},
        "stdin_expanded": stdin,
        "stdout_expanded": stdout,
        "stderr_expanded": stderr,
    }


def _unset_before(info: Any) -> dict[str, Any]:
    """The same fields in 22.05."""
    texts = (
        *(
            "container",
            "federation_siblings_active",
            "federation_siblings_viable",
            "mcs_label",
            "memory_per_tres",
        ),
        *("cpus_per_tres", "prefer", "tres_bind", "tres_freq", "tres_per_job", "tres_per_socket"),
    )
    nothing = (
        *(
            "cpu_frequency_governor",
            "cpu_frequency_maximum",
            "cpu_frequency_minimum",
            "profile",
            "sockets_per_node",
        ),
        *("tasks_per_core", "tasks_per_socket"),
    )
    return {
        **dict.fromkeys(texts, ""),
        **dict.fromkeys(nothing),
        **(
            {"job_resources": {"nodes": info.node_names, "allocated_hosts": info.nodes}}
            if info.node_names
            else {}
        ),
        "pre_sus_time": 0,
        "show_flags": ["SHOW_ALL", "SHOW_DETAIL"],
        "sockets_per_board": 0,
        "tasks_per_board": 0,
    }
