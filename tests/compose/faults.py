"""Faults that the cluster in containers survives: each check breaks something, repairs it, and counts the jobs.

Every one takes a whole cluster and leaves a whole one behind.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable

from tests.compose.cluster import Cluster
from tests.compose.engine import Failed, run, until

WIDE = 1_500
"""Nodes of a wide job: more than any three agent containers serve."""
TRIES = 5
CONTROLLERS = ("esctld1", "esctld2")
TAKEN_OVER = re.compile(r"broadcast \d+: \d+ nodes of satellite \S+ (go to satellite|are sent from here)")


def both_kinds(cluster: Cluster) -> str:
    """One job on a node of each agent container and on both nodes that have a container of their own."""
    hosts = {one.name: _hostname(one.name) for one in cluster.project.containers("agents")}
    picked = [cluster.nodes_of(host)[0] for host in hosts.values()] + ["node1", "node2"]
    count = len(picked)
    where = f"-N {count} -n {count} --ntasks-per-node 1 -w {','.join(picked)}"
    said = cluster.shell(
        f"essubmit --wait --quiet {where} -o both.txt --wrap "
        """'esrun sh -c "echo \\$SLURMD_NODENAME@\\$(hostname)"'; cat both.txt"""
    )
    seen = dict(line.split("@") for line in said.split())
    if sorted(seen) != sorted(picked) or len(set(seen.values())) != count:
        raise Failed(f"asked for {picked}, the tasks ran on {seen}")
    return f"{count} tasks in {count} containers: {', '.join(sorted(picked))}"


def satellite_killed(cluster: Cluster) -> str:
    """A satellite stands still with a broadcast in its hands and is killed before it has passed it on.

    The broadcast may have gone out a moment before or after that: it is tried until the controller says that it gave the
    satellite's share to another one.
    """
    ids: list[int] = []
    for _ in range(TRIES):
        before = _taken_over(cluster)
        (victim,) = cluster.project.containers("sat1")
        try:
            run(["docker", "kill", "--signal=STOP", victim.name])
            ids += cluster.submit(1, f"-N {WIDE}")
        finally:
            run(["docker", "kill", "--signal=KILL", victim.name])
        ids += cluster.submit(2, f"-N {WIDE}") + cluster.submit(6)
        cluster.settle(ids)
        run(["docker", "start", victim.name])
        cluster.project.wait_healthy("sat1")
        cluster.wait_satellites("RUNNING")
        if shares := _taken_over(cluster) - before:
            return f"{len(ids)} jobs, every third of them on {WIDE} nodes; {shares} shares of broadcasts were taken over"
    raise Failed(f"in {TRIES} tries no broadcast was under way in the satellite that was killed")


def _taken_over(cluster: Cluster) -> int:
    """Shares of broadcasts that controllers gave to somebody else than at first."""
    logs = [
        cluster.project.log(one.name) for one in cluster.project.containers() if one.service in CONTROLLERS
    ]
    return sum(bool(TAKEN_OVER.search(line)) for log in logs for line in log)


def agent_paused(cluster: Cluster) -> str:
    """An agent container stands still while jobs run on its nodes and others are submitted."""
    victim = cluster.project.containers("agents")[0].name
    everybody = cluster.states()["UP"]
    nodes = cluster.nodes_of(_hostname(victim))
    ids = _busy(cluster, nodes[:4], "sleep 3")
    run(["docker", "pause", victim])
    try:
        ids += cluster.submit(12)
        until("its nodes unreachable", lambda: cluster.states()["UNREACHABLE"] == len(nodes), 45)
    finally:
        run(["docker", "unpause", victim])
    cluster.wait_up(everybody)
    cluster.settle(ids)
    return f"{len(ids)} jobs; {len(nodes)} nodes were unreachable and came back, four with jobs on them"


def agent_cut_off(cluster: Cluster) -> str:
    """An agent container loses its network while jobs run on its nodes, which end meanwhile."""
    victim = cluster.project.containers("agents")[-1].name
    everybody = cluster.states()["UP"]
    nodes = cluster.nodes_of(_hostname(victim))
    network = cluster.project.network("compute")
    ids = _busy(cluster, nodes[:4], "sleep 3")
    run(["docker", "network", "disconnect", network, victim])
    try:
        ids += cluster.submit(12)
        until("its nodes unreachable", lambda: cluster.states()["UNREACHABLE"] == len(nodes), 45)
    finally:
        run(["docker", "network", "connect", "--alias", "agents", network, victim])
    cluster.wait_up(everybody)
    cluster.settle(ids)
    return (
        f"{len(ids)} jobs; four ended while nobody could be told, and were counted when the network was back"
    )


def leader_killed(cluster: Cluster) -> str:
    """The leading controller is killed while users submit."""
    victim = cluster.leader()
    (container,) = cluster.project.containers(victim)

    def strike() -> None:
        run(["docker", "kill", "--signal=KILL", container.name])

    ids, longest_s = _submitting(cluster, strike)
    new = cluster.leader()
    if new == victim:
        raise Failed(f"{victim} still leads after it was killed")
    cluster.settle(ids)
    run(["docker", "start", container.name])
    cluster.project.wait_healthy(victim)
    until("the old leader standing by", lambda: cluster.controllers().get(victim) == "standby", 30)
    return f"{len(ids)} jobs; {new} took over, the longest submission took {longest_s:.1f} s; {victim} stands by again"


def database_restarted(cluster: Cluster) -> str:
    """PostgreSQL is killed and started again while users submit."""
    (container,) = cluster.project.containers("postgres")

    def strike() -> None:
        run(["docker", "kill", "--signal=KILL", container.name])
        run(["docker", "start", container.name])

    ids, longest_s = _submitting(cluster, strike)
    cluster.project.wait_healthy("postgres")
    cluster.settle(ids)
    everybody = cluster.project.containers()
    ended = [one for one in everybody if one.state != "running"]
    if ended:
        raise Failed(f"it took others with it: {', '.join(map(str, ended))}")
    return f"{len(ids)} jobs; the longest submission took {longest_s:.1f} s"


def _busy(cluster: Cluster, nodes: list[str], work: str) -> list[int]:
    """A job on each of these nodes, running."""
    ids = [number for node in nodes for number in cluster.submit(1, f"-w {node}", work)]

    def look() -> bool:
        jobs = {job["job_id"]: job["state"] for job in cluster.ask("esqueue")["jobs"]}
        return all(jobs.get(number) == "RUNNING" for number in ids)

    until("the jobs running", look, 20)
    return ids


def _submitting(cluster: Cluster, strike: Callable[[], None], count: int = 24) -> tuple[list[int], float]:
    """Submit jobs one by one and strike in the middle; their numbers, and the seconds that the slowest one took."""
    longest_s = 0.0
    ids: list[int] = []
    striker = threading.Thread(target=strike)
    for number in range(count):
        if number == count // 3:
            striker.start()
        began_s = time.monotonic()
        ids += cluster.submit(1)
        longest_s = max(longest_s, time.monotonic() - began_s)
    striker.join()
    return ids, longest_s


def _hostname(container: str) -> str:
    return run(["docker", "inspect", "--format", "{{.Config.Hostname}}", container]).strip()


def counted(cluster: Cluster) -> str:
    """All jobs of all checks once more, as the accounting has them at the end."""
    cluster.settle(cluster.submitted)
    left = cluster.ask("esqueue")["jobs"]
    unfinished = [job["job_id"] for job in left if job["state"] in ("PENDING", "RUNNING")]
    if unfinished:
        raise Failed(f"jobs are left in the queue: {unfinished}")
    try:
        healthy = cluster.shell("esctl doctor", user="root").splitlines()
    except (Failed, subprocess.SubprocessError) as error:
        raise Failed(f"esctl doctor: {error}") from None
    total = len(cluster.submitted)
    again = cluster.repeated(cluster.submitted)
    return (
        f"{total} submitted = {total} finished, each exactly once ({again} launches were tried again); "
        f"esctl doctor: {healthy[0] if healthy else ''}"
    )
