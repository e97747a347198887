"""Two cells and their etcd (profile `federation`) beside the other cluster: they see each other, work, lose a server."""

from __future__ import annotations

import json
from typing import Any

from tests.compose.engine import Project, until

LOGIN = "cells"
CELLS = ("alpha", "beta")
HEALTHY_S = 180


def federation(project: Project) -> str:
    """Both alive, a job in each, one server of three gone: still alive, still working. Raises `Failed`."""
    project.compose(
        *("--profile", "federation", "up", "--detach", "--wait"),
        *("--wait-timeout", str(HEALTHY_S), "--no-build", LOGIN),
    )
    until("two cells alive", lambda: _alive(project, 3), 60)
    for cell in CELLS:
        _works(project, cell)
    project.compose("--profile", "federation", "kill", "etcd2")
    until("one server of etcd lost, and two cells alive", lambda: _alive(project, 2), 60)
    for cell in CELLS:
        _works(project, cell)
    return "two cells alive with three servers of etcd and with two, jobs in both"


def _alive(project: Project, servers: int) -> bool:
    """Check that each cell sees both alive, and so many servers of etcd."""
    return all(_sees_all(_asked(project, cell), servers) for cell in CELLS)


def _asked(project: Project, cell: str) -> Any:
    return json.loads(_run(project, cell, "esinfo --federation --json"))


def _sees_all(reply: Any, servers: int) -> bool:
    alive = [one["name"] for one in reply["cells"] if one["state"] == "alive"]
    well = [one for one in reply["members"] if not one["error"]]
    return tuple(alive) == CELLS and len(well) == servers and reply["state"] == "member"


def _works(project: Project, cell: str) -> None:
    _run(project, cell, f"essubmit --wait -N 2 -o {cell}.out --wrap hostname && grep -q {cell}-n1 {cell}.out")


def _run(project: Project, cell: str, script: str) -> str:
    script = f"cd ~; export ESLURM_SOCKET=/run/{cell}/esctld.sock; {script}"
    return project.execute(LOGIN, "sh", "-ec", script, user="ada", timeout_s=120)
