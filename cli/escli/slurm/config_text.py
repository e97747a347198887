"""`scontrol show config`: the keys of Slurm's configuration whose values are known here, in its form."""

from __future__ import annotations

import json

from eslurm.compat.slurm.release import FULL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from escli.api import Api


def config_text(api: Api, release: str, moment: Callable[[int], str]) -> str:
    """The lines, after the one with their date."""
    from eslurm.v1 import controller_pb2 as pb

    ping = api.call("Ping", pb.PingRequest())
    config = json.loads(api.call("Config", pb.ConfigRequest()).json or "{}")
    controllers = api.call("Controllers", pb.ControllersRequest()).controllers
    keys = {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "ClusterName": ping.cluster,
        "JobRequeue": "1",
        "KillWait": f"{int(config.get('kill_grace_s', 30))} sec",
        "MaxArraySize": str(config.get("array_tasks_max", 1001)),
        "MinJobAge": "300 sec",
        "SchedulerType": "sched/backfill",
        "SelectType": "select/cons_tres",
        "SLURM_VERSION": FULL[release],
    }
    lines = [f"Configuration data as of {moment(ping.now_us)}"]
    lines += [f"{key:<23} = {value}" for key, value in sorted(keys.items(), key=lambda item: item[0].lower())]
    for place, one in enumerate(sorted(controllers, key=lambda one: one.role != "leader")):
        lines.append(f"SlurmctldHost[{place}]       = {one.name}")
    return "\n".join(lines) + "\n\n"
