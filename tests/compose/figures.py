"""Measurements of the cluster in containers: its image, its cost while nothing happens, and that it is scraped."""

from __future__ import annotations

import json
import re
import time

from tests.compose.engine import Failed, Project, run, until

IDLE_S = 30.0
IMAGE = "eslurm:local"
IMAGE_MAX_MB = 305
DAEMONS_UID = 990
"""Of the image's user `eslurm`."""
# Nanoseconds or microseconds of all processes there have ever been, as the host's kind of control groups has it.
_USAGE = """
if [ -r /sys/fs/cgroup/cpu.stat ]; then while read -r key value; do
    [ "$key" != usage_usec ] || echo "${value}000"; done </sys/fs/cgroup/cpu.stat
else cat /sys/fs/cgroup/cpuacct/cpuacct.usage; fi
"""


def image_size() -> str:
    """The image's size, with everything below it. Raises `Failed` where that is too much."""
    size_mb = int(run(["docker", "image", "inspect", "--format", "{{.Size}}", IMAGE])) / 1e6
    if size_mb > IMAGE_MAX_MB:
        raise Failed(f"{IMAGE} has {size_mb:.0f} MB: {IMAGE_MAX_MB} MB are allowed")
    return f"{IMAGE}: {size_mb:.0f} MB"


def idle_cpu(project: Project) -> str:
    """The CPU that all containers use while nothing happens, health checks and scrapes included; in percent of one core."""
    before, began_s = _usage(project), time.monotonic()
    time.sleep(IDLE_S)
    after, took_s = _usage(project), time.monotonic() - began_s
    by_service: dict[str, float] = {}
    for (name, service), used_s in after.items():
        percent = 100 * (used_s - before[name, service]) / took_s
        by_service[service] = by_service.get(service, 0.0) + percent
    parts = ", ".join(f"{service} {percent:.1f}" for service, percent in sorted(by_service.items()))
    ours = sum(
        percent
        for service, percent in by_service.items()
        if service.startswith(("es", "sat", "agents", "node"))
    )
    return (
        f"idle for {took_s:.0f} s: {ours:.1f} % of one core for all daemons, "
        f"{sum(by_service.values()):.1f} % for all containers ({parts})"
    )


def _usage(project: Project) -> dict[tuple[str, str], float]:
    """Seconds of CPU that each container has used."""
    found = {}
    for one in project.containers():
        # Prometheus' image has no shell that everybody has; what is wanted is in all of ours.
        said = run(["docker", "exec", "--user", "0", one.name, "sh", "-c", _USAGE])
        found[one.name, one.service] = int(said) / 1e9
    return found


def scraped(project: Project) -> str:
    """Prometheus reaches every daemon there is."""
    daemons = [one for one in project.containers() if one.service.startswith(("es", "sat", "agents", "node"))]

    def look() -> int | None:
        query = "http://127.0.0.1:9090/api/v1/query?query=sum(up)"
        said = json.loads(project.execute("prometheus", "wget", "-q", "-O", "-", query, user="nobody"))
        result = said["data"]["result"]
        count = int(result[0]["value"][1]) if result else 0
        return count if count == len(daemons) else None

    count = until(f"{len(daemons)} daemons scraped", look, 60)
    return f"{count} endpoints of {count} daemons"


def unprivileged(project: Project) -> str:
    """Daemons run as a user of their own, but for agents, which start processes of other users."""
    seen = []
    for one in project.containers():
        for line in run(["docker", "top", one.name, "-eo", "pid,uid,args"]).splitlines()[1:]:
            _pid, uid, args = line.split(maxsplit=2)
            if found := re.search(r"/bin/(esctld|essatd|esestd) ", args):
                seen.append(found[1])
                if int(uid) != DAEMONS_UID:
                    raise Failed(f"{one.name}: {found[1]} runs as user {uid}")
    if set(seen) != {"esctld", "essatd", "esestd"}:
        raise Failed(f"not all kinds of daemons were seen: {seen}")
    return f"{len(seen)} daemons of user {DAEMONS_UID}"
