"""`esctl doctor` on a cluster of real processes: healthy when it is, and it says so when it is not."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.kits.cluster import LiveCluster

HOST_CHECKS = {"disk", "health", "clock", "files"}
"""Checks that may find trouble of the machine that runs the tests."""


def examine(cluster: LiveCluster) -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and the findings about the cluster."""
    ran = cluster.run("esctl", "doctor", "--json")
    findings = json.loads(ran.out)["findings"]
    return ran.code, [one for one in findings if one["check"] not in HOST_CHECKS]


def errors(cluster: LiveCluster) -> tuple[int, list[tuple[str, str]]]:
    """The exit code, and what is wrong; warnings are about daemons that may have been slow to answer."""
    code, findings = examine(cluster)
    return code, [(one["check"], one["what"]) for one in findings if one["severity"] == "error"]


def test_a_cluster_at_work_is_healthy(cluster: LiveCluster) -> None:
    jobs = [cluster.wrap("sleep 600", "-N", "2") for _ in range(4)]
    for job in jobs:
        cluster.reaches(job, "RUNNING")

    def is_healthy() -> bool:
        code, findings = examine(cluster)
        assert "error" not in {one["severity"] for one in findings}, findings
        return findings == [] and code in (0, 1)

    # A daemon may be slow to answer, which is a warning for a while.
    cluster.until(is_healthy, "nothing is found")
    ran = cluster.run("esctl", "doctor")
    assert "checks made at revision" in ran.out


@pytest.mark.parametrize(
    ("table", "column", "where", "wrong", "found"),
    [
        ("nodes", "state", "number = 3", "LOST", ("store", "node #3")),
        ("facts", "blob", "revision = 5", b"\x93", ("log", "log")),
    ],
)
def test_what_was_changed_by_hand_is_an_error(
    broken: LiveCluster, table: str, column: str, where: str, wrong: object, found: tuple[str, str]
) -> None:
    with closing(sqlite3.connect(broken.directory / "esctld.db", timeout=10)) as connection:
        [(right,)] = connection.execute(f"SELECT {column} FROM {table} WHERE {where}")
        with connection:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (wrong,))
        code, wrongs = errors(broken)
        with connection:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (right,))
    assert code == 2
    assert wrongs == [found]
    assert errors(broken)[1] == []


def test_daemons_that_are_gone_are_warnings_and_nobody_there_is_3(broken: LiveCluster) -> None:
    broken.kill("sat0", "agent1")
    seen: list[dict[str, Any]] = []

    def told() -> bool:
        seen[:] = examine(broken)[1]
        return {one["check"] for one in seen} == {"nodes", "satellites"} and len(seen) == 2

    broken.until(told, "the doctor sees both")
    assert {one["severity"] for one in seen} == {"warning"}
    assert any(one["what"] == "satellite sat0" and "in FAULT" in one["text"] for one in seen)
    assert any(one["what"] == "8 nodes cn[0009-0016]" and "UNREACHABLE" in one["text"] for one in seen)
    broken.terminate("esctld")
    assert broken.run("esctl", "doctor").code == 3
