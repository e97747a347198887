"""`esctl show`: all data of one thing, in `Key=value` lines as scontrol shows it."""

from __future__ import annotations

import json

from escli import clock, exits
from escli.as_json import to_json
from escli.failures import CommandFailed
from escli.job_refs import job_refs, split_jobs
from escli.user import satellites
from escli.user.esinfo import state_of
from escli.user.queue_columns import expected_s, job_label, partition_names, run_us
from eslurm.compat.durations import format_duration, format_elapsed, format_time_limit
from eslurm.compat.errors import OptionError, escaped
from eslurm.compat.hostlist import expand, fold
from eslurm.compat.moments import format_moment
from eslurm.compat.sizes import format_memory
from eslurm.compat.states import partition_state, reason_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

    from escli.api import Api

    Subject: TypeAlias = Callable[[Api, Sequence[str], bool], str]

_INDENT = "   "


def _block(head: str, *lines: Mapping[str, object]) -> str:
    """A head line and indented lines of pairs; pairs without a value are left out."""
    texts = [head]
    for line in lines:
        pairs = [f"{key}={escaped(str(value))}" for key, value in line.items() if value not in ("", None)]
        if pairs:
            texts.append(_INDENT + " ".join(pairs))
    return "\n".join(texts)


def _at(at_us: int) -> str:
    return format_moment(at_us, clock.local_offset_s)


def ping(reply: Any, path: str, taken_ms: float) -> str:
    """One sentence: the controller that answered, and the state of the cluster."""
    up_s = (reply.now_us - reply.started_us) // 1_000_000
    return (
        f"controller of cluster {reply.cluster} is up at {path} ({taken_ms:.1f} ms): "
        f"{reply.nodes_up} of {reply.nodes} nodes up, {reply.jobs_running} jobs running, "
        f"{reply.jobs_pending} pending; up {format_duration(up_s)}, epoch {reply.epoch}, "
        f"revision {reply.revision}, build {reply.build}"
    )


def _jobs(api: Api, words: Sequence[str], as_json: bool) -> str:
    from eslurm.v1 import controller_pb2 as pb

    parts = [part for word in words for part in split_jobs(word.lower().removeprefix("jobid="))]
    refs = job_refs(parts, "show job")
    reply = api.call("Jobs", pb.JobsRequest(jobs=refs, finished_too=bool(refs), asked_too=bool(refs)))
    if words and not reply.jobs:
        raise CommandFailed(
            exits.FAILED, f"job {' '.join(words)} is not known: ended long ago? see esacct -j"
        )
    if as_json:
        return to_json(reply)
    return "\n\n".join(job_block(info, reply.now_us) for info in reply.jobs) or "no jobs"


def job_block(info: Any, now_us: int) -> str:
    """All data of a job, in scontrol's form."""
    run_s = run_us(info, now_us) // 1_000_000
    ended_tasks = info.tasks_done + info.tasks_failed
    is_array = bool(info.array_tasks_left or ended_tasks or info.tasks_running)
    return _block(
        f"JobId={info.job_id} JobName={escaped(info.name)}"
        + (f" Label={job_label(info)}" if info.HasField("array_task") or info.array_tasks_left else ""),
        {
            "UserId": f"{info.user}({info.uid})",
            "Account": info.account,
            "QOS": info.qos,
            "Priority": info.priority,
            "Nice": info.nice or None,
        },
        {
            "JobState": info.state,
            "Reason": reason_name(info.reason) if info.reason else "None",
            "Dependency": info.dependencies,
        },
        {"Why": info.reason_text},
        {
            "PackId": info.pack_id or None,
            "PackIndex": info.pack_index if info.pack_id else None,
            "PackSize": info.pack_size or None,
            "Delay": format_elapsed(info.delay_s) if info.pack_id else None,
            "PackStart": _at(info.pack_start_us) if info.pack_start_us else None,
            "PackFail": "cancel" if info.pack_cancels else None,
        },
        {
            "ArrayTasksRunning": info.tasks_running if is_array else None,
            "ArrayTasksDone": info.tasks_done if is_array else None,
            "ArrayTasksFailed": info.tasks_failed if is_array else None,
        },
        {
            "Requeue": int(info.requeue),
            "Attempts": info.attempts,
            "ExitCode": f"{info.exit_code}:{info.exit_signal}",
            "ExitText": info.exit_text,
        },
        *(
            [{"RetryOn": info.retry_on, "Retries": info.retries, "Wasted": format_elapsed(info.wasted_cpu_s)}]
            if info.retry_on
            else []
        ),
        {"Retried": info.retry_text},
        {
            "RunTime": format_duration(run_s),
            "TimeLimit": format_time_limit(info.time_limit_s),
            "ExpectedTime": format_duration(expected_s(info)) if info.HasField("forecast") else None,
        },
        {"SubmitTime": _at(info.submitted_us), "EligibleTime": _at(info.begin_us or info.submitted_us)},
        {
            "StartTime": _at(info.started_us or info.planned_start_us),
            "EndTime": _at(info.ended_us),
            "Deadline": _at(info.deadline_us) if info.deadline_us else None,
        },
        {"Reservation": info.reservation, "Features": info.constraint, "Gres": info.resources},
        {"Asked": " ".join(info.asked)},
        {"Partition": partition_names(info), "NodeList": info.node_names or "(null)"},
        {
            "NumNodes": info.nodes,
            "NumTasks": info.tasks,
            "NumCPUs": info.cpus,
            "Memory": format_memory(info.memory_mib),
        },
        *(
            [{"Gateways": info.gateways, "GatewayList": info.gateway_names or "(null)"}]
            if info.gateways
            else []
        ),
        {"WorkDir": info.work_dir},
        {"StdOut": info.output},
        {"StdErr": info.error or info.output},
        {"Comment": info.comment, "Crontab": info.cron},
        {"Trace": info.trace},
        *[_part_line(info, part) for part in info.parts],
    )


def _part_line(info: Any, part: Any) -> dict[str, object]:
    """One part of a job of several parts."""
    return {
        "Part": f"{job_label(info)}+{part.part}",
        "Partition": part.partition,
        "GivenBack": _at(part.ended_us) if part.ended_us else None,
        "NodeList": part.node_names or "(null)",
        "NumNodes": part.nodes,
        "NumTasks": part.tasks,
        "NumCPUs": part.cpus,
        "Memory": format_memory(part.memory_mib),
        "Features": part.constraint,
        "Gres": part.resources,
        "Asked": " ".join(part.asked),
    }


def _nodes(api: Api, words: Sequence[str], as_json: bool) -> str:
    from eslurm.v1 import controller_pb2 as pb

    names = [name for word in words for name in expand(word, "show node")]
    reply = api.call("Nodes", pb.NodesRequest(names=names))
    if words and not reply.nodes:
        raise CommandFailed(exits.FAILED, f"node {' '.join(words)} is not known: see esinfo -N")
    if as_json:
        return to_json(reply)
    return "\n\n".join(map(_node, reply.nodes)) or "no nodes"


def _node(node: Any) -> str:
    return _block(
        f"NodeName={node.name} State={state_of(node).upper()}",
        {"Flags": ",".join(node.flags), "Reason": node.reason, "Since": _at(node.since_us)},
        {"CPUAlloc": node.cores_used, "CPUTot": node.cores},
        {"AllocMem": format_memory(node.memory_used_mib), "RealMemory": format_memory(node.memory_mib)},
        *([{"Module": node.module}] if node.module else []),
        {"Partitions": ",".join(node.partitions), "Jobs": ",".join(map(str, node.jobs)) or "(none)"},
        {"Endpoint": node.endpoint, "Incarnation": node.incarnation, "BootId": node.boot_id},
        {"Contained": ",".join(node.contained) or "(none)"},
    )


def _partitions(api: Api, words: Sequence[str], as_json: bool) -> str:
    from eslurm.v1 import controller_pb2 as pb

    reply = api.call("Nodes", pb.NodesRequest(partition=words[0] if len(words) == 1 else ""))
    chosen = [one for one in reply.partitions if not words or one.name in words]
    missing = sorted(set(words) - {one.name for one in chosen})
    if missing:
        known = ", ".join(one.name for one in reply.partitions) or "none"
        raise CommandFailed(exits.FAILED, f"partition {missing[0]} is not known: there are {known}")
    if as_json:
        from escli.as_json import fields_of

        return json.dumps({"partitions": [fields_of(one) for one in chosen]}, indent=1)
    return "\n\n".join(_partition(one, reply.nodes) for one in chosen) or "no partitions"


def _partition(one: Any, nodes: Sequence[Any]) -> str:
    members = [node.name for node in nodes if one.name in node.partitions]
    return _block(
        f"PartitionName={one.name} State={partition_state(one)} Default={'YES' if one.is_default else 'NO'}",
        {
            "MaxTime": format_time_limit(one.time_limit_max_s),
            "DefaultTime": format_time_limit(one.time_limit_default_s),
        },
        {"TotalNodes": one.nodes, "Nodes": fold(members)},
    )


def _config(api: Api, words: Sequence[str], as_json: bool) -> str:
    from eslurm.v1 import controller_pb2 as pb

    if words:
        raise OptionError("show config", words[0], "is not expected here", "use esctl show config")
    reply = api.call("Config", pb.ConfigRequest())
    values = json.loads(reply.json or "{}")
    if as_json:
        return json.dumps({"revision": reply.revision, "config": values}, indent=1)
    return f"# configuration, revision {reply.revision}\n{json.dumps(values, indent=1)}"


def _steps(api: Api, words: Sequence[str], as_json: bool) -> str:
    from eslurm.v1 import controller_pb2 as pb

    refs = job_refs([part for word in words for part in split_jobs(word)], "show step")
    reply = api.call("Steps", pb.StepsRequest(jobs=refs))
    if as_json:
        return to_json(reply)
    return "\n\n".join(_step_block(one) for one in reply.steps) or "no steps"


def _step_block(one: Any) -> str:
    number = "batch" if one.is_batch else one.step
    job = f"{one.array_job_id}_{one.array_task}" if one.HasField("array_task") else one.job_id
    return _block(
        f"StepId={job}.{number} Name={escaped(one.name)}",
        {"UserId": f"{one.user}({one.uid})", "Partition": one.partition, "State": one.state},
        {"StartTime": _at(one.created_us), "NodeList": one.node_names},
        {"NumNodes": one.nodes, "NumTasks": one.tasks, "NumCPUs": one.cpus},
    )


SUBJECTS: Mapping[str, Subject] = {
    "job": _jobs,
    "step": _steps,
    "node": _nodes,
    "partition": _partitions,
    "satellite": satellites.show,
    "config": _config,
}
