"""`scontrol show config`: the keys of Slurm's configuration whose values are known here, in its form."""

from __future__ import annotations

import json

from eslurm.compat.slurm.layout import padded_clock
from eslurm.compat.slurm.release import FULL, has_wrapped_numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from escli.api import Api


def config_text(api: Api, release: str, moment: Callable[[int], str]) -> str:
    """The lines, after the one with their date."""
    from eslurm.v1 import controller_pb2 as pb

    ping = api.call("Ping", pb.PingRequest())
    config = json.loads(api.call("Config", pb.ConfigRequest()).json or "{}")
    controllers = api.call("Controllers", pb.ControllersRequest()).controllers
    keys = keys_of(config, release) | {"ClusterName": ping.cluster, "SLURM_VERSION": FULL[release]}
    lines = [f"Configuration data as of {moment(ping.now_us)}"]
    lines += [f"{key:<23} = {value}" for key, value in sorted(keys.items(), key=lambda item: item[0].lower())]
    for place, one in enumerate(sorted(controllers, key=lambda one: one.role != "leader")):
        lines.append(f"SlurmctldHost[{place}]       = {one.name}")
    return "\n".join(lines) + "\n\n"


def keys_of(config: Mapping[str, Any], release: str) -> dict[str, str]:
    """Slurm's keys for the settings of a cluster."""
    resources = config.get("resources", ())
    gres = [one["name"] for one in resources if not one["wide_total"]]
    licences = [one for one in resources if one["wide_total"]]
    tres = ["cpu", "mem", "node", "billing"]
    tres += [f"gres/{name}" for name in gres] + [f"license/{one['name']}" for one in licences]
    return {
        "AccountingStorageEnforce": "associations,limits,qos" if config.get("accounts_enforced") else "none",
        "AccountingStorageTRES": ",".join(tres),
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "FirstJobId": str(config.get("job_id_first", 1)),
        "GresTypes": ",".join(gres) or "(null)",
        "InactiveLimit": _seconds(config.get("inactive_limit_s", 0)),
        "JobRequeue": "1",
        "KillWait": _seconds(config.get("kill_grace_s", 30)),
        "Licenses": ",".join(f"{one['name']}:{one['wide_total']}" for one in licences) or "(null)",
        "MaxArraySize": str(config.get("array_tasks_max", 1001)),
        "MaxJobCount": str(config.get("pending_jobs_max", 10_000)),
        "MinJobAge": _seconds(config.get("finished_retention_s", 300)),
        **_priority_keys(config.get("priority") or {}),
        # Processes of an ended job are found by more than their group, as with control groups.
        "ProctrackType": "proctrack/cgroup",
        "SchedulerType": "sched/builtin" if config.get("policy") == "fcfs" else "sched/backfill",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CORE_MEMORY",
        "SlurmdTimeout": _seconds(config.get("node_lost_after_s", 300)),
        "TaskPlugin": "task/affinity,task/cgroup",
        "TopologyPlugin": _topology(release, has_switches=bool(config.get("switches"))),
    }


def _priority_keys(priority: Mapping[str, Any]) -> dict[str, str]:
    weights = {name: int(priority.get(name.lower(), 0)) for name in ("Age", "FairShare", "Partition", "QOS")}
    weights["JobSize"] = int(priority.get("size", 0))
    return {
        "PriorityType": "priority/multifactor" if any(weights.values()) else "priority/basic",
        "PriorityDecayHalfLife": padded_clock(int(priority.get("half_life_s", 0))),
        "PriorityFavorSmall": "Yes" if priority.get("favor_small") else "No",
        "PriorityMaxAge": padded_clock(int(priority.get("age_max_s", 0))),
        **{f"PriorityWeight{name}": str(weight) for name, weight in weights.items()},
    }


def _topology(release: str, *, has_switches: bool) -> str:
    if has_switches:
        return "topology/tree"
    return "topology/flat" if has_wrapped_numbers(release) else "topology/none"


def _seconds(value: float) -> str:
    return f"{int(value)} sec"
