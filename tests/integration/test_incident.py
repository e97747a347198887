"""From a live cluster to its log in a file and back to its queue and nodes, across a controller's death."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from escli.local.main import commands
from eslurm.replay.logfile import LogFile
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster


def replay(path: Path, *words: str) -> tuple[int, str]:
    """`eslurm replay`: its exit code and what it said."""
    result = CliRunner().invoke(commands, ["replay", str(path), *words])
    return result.exit_code, result.output


def export(cluster: LiveCluster, name: str, *words: str) -> Path:
    path = cluster.directory / name
    cluster.do("esctl", "log", "export", "--output", str(path), *words)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return path


def test_an_incident_is_exported_and_seen_again() -> None:
    with running(nodes=4, agents=2, satellites=1) as cluster:
        first = cluster.wrap("true", "--job-name", "quick-one")
        assert cluster.end(first) == "COMPLETED"
        long = cluster.wrap("sleep 600", "--job-name", "long-one", "-N", "2")
        cluster.reaches(long, "RUNNING")
        held = cluster.wrap("true", "--job-name", "held-one", "--hold")
        cluster.do("esctl", "drain", "cn0004", "reason=smells of fish")
        cluster.kill("esctld")
        cluster.start()

        path = export(cluster, "incident.eslog")
        code, said = replay(path, "--json")
        assert code == 0, said
        seen = json.loads(said)
        alive = json.loads(cluster.run("esqueue", "--json").out)
        shown = ("job_id", "name", "state", "node_names", "user", "nodes", "cpus", "started_us")
        assert [{key: job[key] for key in shown} for job in seen["jobs"]] == [
            {key: job[key] for key in shown} for job in sorted(alive["jobs"], key=_order)
        ]
        nodes = {node["name"]: node for node in seen["nodes"]}
        assert nodes["cn0004"]["flags"] == ["DRAIN"] and nodes["cn0004"]["reason"] == "smells of fish"
        assert seen["epoch"] == 2
        code, said = replay(path, "--until-violation")
        assert code == 0 and said.startswith("no contradiction: "), said

        nameless = export(cluster, "nameless.eslog", "--anonymise", "--since", "now-1hour")
        code, said = replay(nameless, "--json")
        assert code == 0, said
        hidden = json.loads(said)
        assert [job["state"] for job in hidden["jobs"]] == [job["state"] for job in seen["jobs"]]
        for name in ("long-one", "held-one", "cn0004", "fish", str(cluster.work)):
            assert name in json.dumps(seen)
            assert name not in said
        assert replay(nameless, "--until-violation")[0] == 0
        assert LogFile(nameless).header.anonymised

        since = export(cluster, "since.eslog", "--since", "now")
        assert LogFile(since).base and json.loads(replay(since, "--json")[1])["jobs"] == seen["jobs"]
        cluster.do("escancel", str(long), str(held))
        cluster.end(long)


def _order(job: dict[str, object]) -> tuple[bool, object]:
    """As esqueue shows them: what waits first."""
    return job["state"] != "PENDING", job["job_id"]


@pytest.mark.parametrize("words", ["log export --output {}/mine.eslog", "doctor"])
def test_only_operators_may_look_so_closely(cluster: LiveCluster, words: str) -> None:
    ran = cluster.run_as_user("esctl", *words.format(cluster.work).split())
    # Without root there is no other user to ask as: then it is the operator who asks.
    assert (ran.code == 1) == (os.getuid() == 0), ran
    assert (list(cluster.work.glob("*eslog*")) == []) == (os.getuid() == 0 or words == "doctor")
