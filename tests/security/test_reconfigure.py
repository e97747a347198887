"""A configuration that is read again: no other user can have that done, or have a file of theirs read."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.security.conftest import STRANGER
from tests.security.test_rights import as_stranger, raw_call

MORE = '[[partition]]\nname = "more"\n'


@pytest.fixture
def cluster(as_root: None) -> Iterator[LiveCluster]:
    with running(nodes=1, agents=1, satellites=0) as cluster:
        yield cluster


def partitions(cluster: LiveCluster) -> set[str]:
    return {one.name for one in cluster.call("Nodes", pb.NodesRequest()).partitions}


def test_another_user_has_nothing_read(cluster: LiveCluster) -> None:
    file = cluster.directory / "eslurm.toml"
    file.write_text(file.read_text() + MORE)
    ran = cluster.run_as_user("esctl", "reconfigure")
    assert ran.code != 0 and "administrator" in ran.err, ran
    said = as_stranger(cluster, lambda: raw_call(cluster, "Reconfigure", b""))
    assert b"administrator" in said
    assert "more" not in partitions(cluster)

    def refusals() -> list[str]:
        found = cluster.run("esctl", "audit", "--user", str(STRANGER), "--json").out.splitlines()
        return [line for line in found if '"Reconfigure"' in line]

    lines = cluster.until(lambda: refusals() if len(refusals()) >= 2 else None, "both are in the audit log")
    assert all("administrator" in line for line in lines)
    pid = cluster.daemons["esctld"].process
    assert pid is not None
    said = as_stranger(cluster, lambda: str(os.kill(pid.pid, 1)).encode())
    assert b"not permitted" in said, "a signal of another user is none"


def test_a_file_of_another_user_is_not_obeyed(cluster: LiveCluster) -> None:
    file = cluster.directory / "eslurm.toml"
    text = file.read_text()
    hostile = cluster.directory / "work" / "hostile.toml"
    hostile.write_text(text + MORE)
    os.chown(hostile, STRANGER, STRANGER)
    os.replace(hostile, file)
    ran = cluster.run("esctl", "reconfigure")
    assert ran.code != 0 and str(STRANGER) in ran.err, ran
    os.chown(file, 0, 0)
    file.chmod(0o662)
    assert cluster.run("esctl", "reconfigure").code != 0
    file.unlink()
    file.symlink_to(cluster.directory / "work" / "there.toml")
    (cluster.directory / "work" / "there.toml").write_text(text + MORE)
    ran = cluster.run("esctl", "reconfigure")
    assert ran.code != 0 and "more" not in partitions(cluster), "others may put another file there"
    file.unlink()
    file.write_text(text + MORE)
    file.chmod(0o600)
    assert cluster.run("esctl", "reconfigure").out == "partition more: added\n"
    assert "more" in partitions(cluster)
