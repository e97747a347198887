"""Health checks with real agents: a node leaves service and comes back by itself; jobs and administrators are left alone."""

from __future__ import annotations

from pathlib import Path

from tests.integration.conftest import running

REASON = "health: disk: /scratch is not mounted"


def test_a_node_leaves_service_while_its_check_fails_and_comes_back() -> None:
    with running(nodes=2, agents=2, satellites=1) as cluster:
        cluster.terminate("agent0", "agent1")
        bad = cluster.directory / "bad"
        program = cluster.directory / "disk"
        program.write_text(
            f"#!/bin/sh\ntest ! -e {bad}.$SLURMD_NODENAME || {{ echo /scratch is not mounted; exit 1; }}\n"
        )
        program.chmod(0o755)
        for agent in ("agent0", "agent1"):
            cluster.daemons[agent].words += ["--health-check", f"name=disk interval=1 limit=30 {program}"]
        cluster.start()
        cluster.wait_nodes(lambda nodes: all(node.incarnation > 1 for node in nodes.values()))
        job = cluster.wrap("sleep 600", "-w", "cn0001")
        cluster.reaches(job, "RUNNING")

        def reason() -> str:
            return str(cluster.nodes()["cn0001"].reason)

        def sinfo() -> str:
            return cluster.run("esinfo", "-R").out

        Path(f"{bad}.cn0001").touch()
        cluster.until(lambda: reason() == REASON or None, "the check's fault stands")
        node = cluster.nodes()["cn0001"]
        assert list(node.flags) == ["DRAIN"] and node.reason_by == "health" and node.reason_since_us
        assert REASON in sinfo() and "cn0001" in sinfo()
        assert cluster.job(job).state == "RUNNING"
        waits = cluster.wrap("true", "-w", "cn0001")
        assert cluster.end(cluster.wrap("true")) == "COMPLETED", "the other node serves"

        # A person's drain and resume leave it alone.
        assert cluster.run("esctl", "drain", "cn0001", "reason=memory").code == 0
        resumed = cluster.run("esctl", "resume", "cn0001")
        assert resumed.code == 0 and "stays drained until its check passes" in resumed.out + resumed.err
        assert reason() == REASON

        # A restart of its agent does not end it.
        cluster.terminate("agent0")
        cluster.start()
        cluster.wait_nodes(lambda nodes: nodes["cn0001"].incarnation > 2)
        assert reason() == REASON
        assert cluster.job(waits).state == "PENDING"

        cluster.run("escancel", str(job))
        Path(f"{bad}.cn0001").unlink()
        assert cluster.end(waits) == "COMPLETED"
        assert not cluster.nodes()["cn0001"].flags and not reason()
