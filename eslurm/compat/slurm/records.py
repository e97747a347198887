"""Records of `scontrol show`: a job, a node, a partition, in lines of `Key=value`, or in one line each."""

from __future__ import annotations

from eslurm.compat.hostlist import fold
from eslurm.compat.slurm import words
from eslurm.compat.slurm.job_fields import (
    NULL,
    amounts_text,
    batch_host,
    eligible_us,
    end_us,
    files_of,
    is_held,
    licenses_text,
    over_subscribe,
    priority_of,
    reason_of,
    restarts,
    run_s,
    start_us,
    tres_text,
)
from eslurm.compat.slurm.job_fields import task_id as task_id_text
from eslurm.compat.slurm.layout import memory_text, padded_clock
from eslurm.compat.slurm.mail_text import mail_type_text
from eslurm.compat.slurm.node_fields import base_state, features_text, gres_text, is_silent, reason_since_us
from eslurm.compat.states import partition_state
from eslurm.core.model.wording import escaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from eslurm.compat.slurm.job_fields import Around

_OLD = "22.05"


def job_record(info: Any, around: Around, *, is_oneliner: bool, has_details: bool) -> str:
    """A job, with the empty line that follows it."""
    lines = _job_lines(info, around, has_details=has_details)
    if is_oneliner:
        return "".join(f"{line} " for line in lines).rstrip(" ") + " \n"
    return "".join(f"{line}\n   " for line in lines) + "\n\n"


def _job_lines(info: Any, around: Around, *, has_details: bool) -> list[str]:
    is_old = around.release == _OLD
    stdout, stderr, stdin = files_of(info)
    request = info.request
    is_per_cpu = bool(request.memory_per_cpu_mib)
    started = info.started_us and info.state != "PENDING"
    lines = [
        f"{_ids(info)}JobName={escaped(info.name)}",
        f"UserId={info.user}({info.uid}) GroupId={around.group(info.details.gid)}({info.details.gid}) MCS_label=N/A",
        f"Priority={priority_of(info)} Nice={info.nice} Account={info.account or NULL} QOS={info.qos or NULL}"
        + (f" WCKey={escaped(info.wckey)}" if info.wckey else ""),
        f"JobState={words.long_state(info.state)} Reason={reason_of(info)} Dependency={info.dependencies or NULL}",
        f"Requeue={int(info.requeue)} Restarts={restarts(info)} BatchFlag=1 Reboot=0 "
        f"ExitCode={info.exit_code}:{info.exit_signal}",
        *(["DerivedExitCode=0:0"] if has_details else []),
        f"RunTime={padded_clock(run_s(info, around.now_us))} TimeLimit={_limit(info)} TimeMin=N/A",
        f"SubmitTime={around.moment(info.submitted_us)} EligibleTime={_eligible(info, around)}",
        f"AccrueTime={_eligible(info, around)}",
        f"StartTime={_at(start_us(info), around)} EndTime={_at(end_us(info), around)} Deadline="
        + (around.moment(info.deadline_us) if info.deadline_us else "N/A"),
        *([f'CronJob=Yes CrontabSpec="{info.cron}"'] if info.cron else []),
        f"SuspendTime={around.moment(info.suspended_us) if info.suspended_us else 'None'} "
        f"SecsPreSuspend={run_s(info, around.now_us) if info.suspended_us else 0} LastSchedEval=Unknown Scheduler=Main",
        f"Partition={_partitions(info)} AllocNode:Sid=N/A:0",
        f"ReqNodeList={fold(request.include) or NULL} ExcNodeList={fold(request.exclude) or NULL}",
        f"NodeList={info.node_names}"
        + (f" SchedNodeList={info.planned_nodes}" if info.planned_nodes else ""),
        *([f"BatchHost={batch_host(info)}"] if batch_host(info) else []),
        f"NumNodes={info.nodes} NumCPUs={info.cpus} NumTasks={info.tasks} CPUs/Task={request.cpus_per_task or 'N/A'} "
        "ReqB:S:C:T=0:0:*:*",
        *_tres_lines(info, is_old=is_old, is_started=bool(started)),
        f"Socks/Node=* NtasksPerN:B:S:C={request.tasks_per_node}:0:*:* CoreSpec=*",
        *(
            [f"JOB_GRES={NULL}", f"  Nodes={info.node_names} CPU_IDs= Mem={info.memory_mib} GRES="]
            if has_details and info.node_names
            else []
        ),
        f"MinCPUsNode={max(1, request.cpus_per_task) * max(1, request.tasks_per_node)} "
        f"MinMemory{'CPU' if is_per_cpu else 'Node'}="
        f"{memory_text(request.memory_per_cpu_mib or request.memory_per_node_mib)} MinTmpDiskNode=0",
        f"Features={info.constraint or NULL} DelayBoot=00:00:00",
        *([f"Reservation={info.reservation}"] if info.reservation else []),
        f"OverSubscribe={over_subscribe(info)} Contiguous=0 Licenses={licenses_text(info) or NULL} "
        + (
            ""
            if is_old
            else f"LicensesAlloc={licenses_text(info) if started and licenses_text(info) else NULL} "
        )
        + f"Network={NULL}",
        f"Command={escaped(info.command) or NULL}",
        *([] if is_old else [f"SubmitLine={NULL}"]),
        f"WorkDir={escaped(info.work_dir)}",
        *([f"Comment={escaped(info.comment)}{' ' if is_old else ''}"] if info.comment else []),
        f"StdErr={escaped(stderr)}",
        f"StdIn={escaped(stdin)}",
        f"StdOut={escaped(stdout)}",
        *(["Power="] if is_old else []),
    ]
    if info.mail_type:
        lines.append(f"MailUser={info.mail_user or info.user} MailType={mail_type_text(info.mail_type)}")
    for key, amounts in (("TresPerNode", request.per_node), ("TresPerTask", request.per_task)):
        if amounts:
            lines.append(f"{key}={amounts_text(amounts)}")
    return lines


def _ids(info: Any) -> str:
    text = f"JobId={info.job_id} "
    tasks = task_id_text(info)
    if tasks:
        listed, percent, limit = tasks.partition("%")
        text += f"ArrayJobId={info.array_job_id or info.job_id} ArrayTaskId={listed}{percent}{limit} "
        text += f"ArrayTaskThrottle={limit} " if limit else ""
    elif info.parts:
        text += f"HetJobId={info.job_id} HetJobOffset={info.parts[0].part if len(info.parts) == 1 else 0} "
    return text


def _tres_lines(info: Any, *, is_old: bool, is_started: bool) -> list[str]:
    if is_old:
        return [f"TRES={tres_text(info)}"]
    return [f"ReqTRES={tres_text(info)}", f"AllocTRES={tres_text(info) if is_started else NULL}"]


def _limit(info: Any) -> str:
    return padded_clock(info.time_limit_s) if info.time_limit_s else "UNLIMITED"


def _at(at_us: int, around: Around) -> str:
    return around.moment(at_us) if at_us else "Unknown"


def _eligible(info: Any, around: Around) -> str:
    """The time from which the job could start; of a job that is held or depends on others none is known."""
    waits = is_held(info) or (info.state == "PENDING" and info.dependencies)
    return "Unknown" if waits else around.moment(eligible_us(info))


def _partitions(info: Any) -> str:
    return ",".join(dict.fromkeys(part.partition for part in info.parts)) or str(info.partition)


def node_record(node: Any, around: Around, *, is_oneliner: bool) -> str:
    """A node, with the empty line that follows it."""
    is_old = around.release == _OLD
    memory, used = node.memory_mib, node.memory_used_mib
    allocated = (
        f"cpu={node.cores_used}" + (f",mem={memory_text(used)}" if used else "") if node.cores_used else ""
    )
    state = base_state(node).upper()
    if state in ("DRAINED", "DRAINING"):
        state = (
            "IDLE" if not node.cores_used else "MIXED" if node.cores_used < node.cores else "ALLOCATED"
        ) + "+DRAIN"
    state += "+NOT_RESPONDING" if is_silent(node) else ""
    lines = [
        f"NodeName={node.name} CoresPerSocket=1 ",
        f"CPUAlloc={node.cores_used} CPUEfctv={node.cores} CPUTot={node.cores} CPULoad=N/A",
        f"AvailableFeatures={features_text(node) or NULL}",
        f"ActiveFeatures={features_text(node) or NULL}",
        f"Gres={gres_text(node) or NULL}",
        f"NodeAddr={node.name} NodeHostName={node.name} ",
        f"RealMemory={memory} AllocMem={used} FreeMem=N/A Sockets={node.cores} Boards=1",
        f"State={state} ThreadsPerCore=1 TmpDisk=0 Weight={node.weight} Owner=N/A MCS_label=N/A",
        f"Partitions={','.join(node.partitions)} ",
        "BootTime=None SlurmdStartTime=None",
        "LastBusyTime=Unknown" if is_old else "LastBusyTime=Unknown ResumeAfterTime=None",
        f"CfgTRES=cpu={node.cores},mem={memory_text(memory)},billing={node.cores}",
        f"AllocTRES={allocated}",
        *(["CapWatts=n/a"] if is_old else []),
        "CurrentWatts=0 AveWatts=0" if is_old else "CurrentWatts=n/a AveWatts=n/a",
        *(["ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s"] if is_old else []),
    ]
    if node.reason:
        since_us = reason_since_us(node)
        since = f" [{node.reason_by or 'Unknown'}@{around.moment(since_us)}]" if since_us else ""
        lines.append(f"Reason={escaped(node.reason)}{since}")
    return " ".join(lines) + "\n" if is_oneliner else "\n   ".join(lines) + "\n\n"


def partition_record(one: Any, nodes: Sequence[Any], around: Around, *, is_oneliner: bool) -> str:
    """A partition, with the empty line that follows it."""
    is_old = around.release == _OLD
    members = [node for node in nodes if one.name in node.partitions]
    cores = sum(node.cores for node in members)
    memory = sum(node.memory_mib for node in members)
    longest = padded_clock(one.time_limit_max_s) if one.time_limit_max_s else "UNLIMITED"
    usual = padded_clock(one.time_limit_default_s) if one.time_limit_default_s else "NONE"
    lines = [
        f"PartitionName={one.name}",
        "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL",
        f"AllocNodes=ALL Default={'YES' if one.is_default else 'NO'} QoS=N/A",
        f"DefaultTime={usual} DisableRootJobs=NO ExclusiveUser=NO "
        + ("" if is_old else "ExclusiveTopo=NO ")
        + "GraceTime=0 Hidden=NO",
        f"MaxNodes=UNLIMITED MaxTime={longest} MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED"
        + ("" if is_old else " MaxCPUsPerSocket=UNLIMITED"),
        f"Nodes={fold([node.name for node in members])}",
        "PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO",
        "OverTimeLimit=NONE PreemptMode=OFF",
        f"State={partition_state(one)} TotalCPUs={cores} TotalNodes={len(members)} SelectTypeParameters=NONE",
        f"JobDefaults={NULL}",
        "DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED",
        f"TRES=cpu={cores},mem={memory_text(memory)},node={len(members)},billing={cores}",
    ]
    return " ".join(lines) + "\n" if is_oneliner else "\n   ".join(lines) + "\n\n"
