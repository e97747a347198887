"""`eswhy`, `esctl plan`, `esqueue --start` and `--test-only` on a cluster of real processes."""

from __future__ import annotations

import json

from tests.kits.cluster import LiveCluster


def test_why_when_and_what_else(cluster: LiveCluster) -> None:
    names = sorted(cluster.nodes())
    whole = str(len(names))
    running = cluster.wrap("sleep 600", "-N", whole, "--exclusive", "-t", "30")
    cluster.reaches(running, "RUNNING")
    job = cluster.wrap("true", "-N", "2", "-t", "10")

    told = cluster.run("eswhy", "--json", str(job))
    found = json.loads(told.out)
    assert told.code == 0 and found["planned_start_us"] > found["now_us"]
    assert [one["kind"] for one in found["reasons"]] == ["resources", "resources"]
    assert found["reasons"][1]["nodes_failing"] == len(names)
    assert found["reasons"][1]["holders"][0]["job_id"] == running
    text = cluster.run("eswhy", str(job)).out
    assert "In its way:" in text and "In its way:" in cluster.run("esctl", "why", str(job)).out
    assert f"job {running} on {len(names)} nodes, until" in text

    plan = json.loads(cluster.run("esctl", "plan", "--format", "json").out)
    assert running in [one["job_id"] for one in plan["jobs"] if one["running"]]
    assert names[0] in cluster.run("esctl", "plan", "--format", "chart").out
    assert "SCHEDNODES" in cluster.run("esqueue", "--start").out

    asked = cluster.run("essubmit", "--test-only", "-N", "2", "-t", "10", "--wrap", "true")
    assert asked.code == 0 and "would be accepted and wait (planned start" in asked.out
    assert "resources: needs 2 nodes" in asked.out
    cluster.do("escancel", str(running), str(job))


def test_the_command_that_is_told_starts_the_job_when_it_was_told(cluster: LiveCluster) -> None:
    names = sorted(cluster.nodes())
    some = cluster.wrap("sleep 600", "-w", names[0], "--exclusive", "-t", "30")
    cluster.reaches(some, "RUNNING")
    whole = len(names)
    job = cluster.wrap("sleep 600", "-N", str(whole), "-n", str(2 * whole), "-t", "60")
    (best, *_) = json.loads(cluster.run("eswhy", "--json", str(job)).out)["alternatives"]
    assert best["update"] == f"nodes={whole - 1} ntasks={2 * whole - 2}" and best["nodes"] == whole - 1
    assert f"    esctl update job {job} {best['update']}\n" in cluster.run("eswhy", str(job)).out + "\n"

    asked = cluster.run("esctl", "show", "job", str(job)).out
    assert f"Asked=nodes={whole} ntasks={2 * whole} cpus-per-task=1" in asked
    cluster.do("esctl", "update", "job", str(job), *best["update"].split())
    cluster.reaches(job, "RUNNING")
    told = cluster.run("esctl", "update", "job", str(job), "partition=main")
    assert told.code == 1 and "partition" in told.err and "has started with what it asked for" in told.err, (
        told
    )
    cluster.do("escancel", str(some), str(job))
