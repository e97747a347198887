"""Another user of the host and the tokens of the cluster: whose he gets, sees and takes back.

Method: a real cluster as root; the attacker is uid 65534 at the controllers' socket, and behind a node's door.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from eslurm.api.tokens import find_bearer
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.security.conftest import STRANGER

NOBODY = "nobody"


@pytest.fixture(scope="module")
def cluster_of_root() -> Iterator[LiveCluster]:
    if os.geteuid() != 0:
        pytest.skip("NOT VERIFIED: only root can attack as another user: run it as root")
    with running(nodes=1, agents=1, satellites=1) as cluster:
        cluster.start()
        yield cluster


@pytest.fixture
def cluster(cluster_of_root: LiveCluster) -> Iterator[LiveCluster]:
    yield cluster_of_root
    cluster_of_root.clear()
    cluster_of_root.hang_up()


def test_he_gets_his_own_and_nobody_elses(cluster: LiveCluster) -> None:
    own = cluster.run_as_user("esctl", "token", "create", "--for", "1h")
    assert own.code == 0, own
    bearer = find_bearer(own.out.strip())
    assert bearer is not None and (bearer.user, bearer.scope) == (NOBODY, "submit")
    for words, told in (
        (("root",), "nobody is no administrator: only they have tokens made for others"),
        (("daemon",), "nobody is no administrator: only they have tokens made for others"),
        (("--scope", "estimator"), "only they make tokens for estimators"),
        (("--for", "8d"), "is not within 1..604800 s (tokens.life_user_max_s)"),
        ((NOBODY, "--scope", "root"), "scope: 'root' does not exist"),
    ):
        ran = cluster.run_as_user("esctl", "token", "create", *words)
        assert ran.code == 1 and told in ran.err and ran.out == "", ran


def test_root_gets_none_from_the_server_either(cluster: LiveCluster) -> None:
    for user in ("", "root"):
        with pytest.raises(Exception, match="root gets no token"):
            cluster.call("CreateToken", pb.CreateTokenRequest(user=user))


def test_he_neither_sees_nor_revokes_those_of_others(cluster: LiveCluster) -> None:
    made = cluster.call("CreateToken", pb.CreateTokenRequest(user="daemon"))
    ran = cluster.run_as_user("esctl", "token", "list")
    assert ran.code == 0 and made.info.id not in ran.out
    for words in (("list", "--user", "daemon"), ("revoke", "--user", "daemon"), ("revoke", made.info.id)):
        ran = cluster.run_as_user("esctl", "token", *words)
        assert ran.code == 1, ran
        assert "no administrator" in ran.err or "there is no such token" in ran.err
    assert made.info.id in cluster.run("esctl", "token", "list", "--user", "daemon").out
    assert cluster.run("esctl", "token", "revoke", made.info.id).code == 0


def test_none_is_made_behind_a_nodes_door(cluster: LiveCluster) -> None:
    job = cluster.user_job("sleep 100")
    cluster.reaches(job, "RUNNING")
    door = cluster.agent_dir("agent0") / "door.sock"
    assert cluster.run_as_user("esqueue", socket=door).code == 0
    ran = cluster.run_as_user("esctl", "token", "create", socket=door)
    assert ran.code == 1 and "tokens are not made on nodes" in ran.err, ran


def test_a_token_that_root_writes_is_the_users_and_only_theirs(cluster: LiveCluster, tmp_path: Path) -> None:
    """Into a directory of the user's, where a link lies in its place."""
    home, target = tmp_path / "home", tmp_path / "shadow"
    home.mkdir()
    target.write_text("root's")
    target.chmod(0o600)
    os.chown(home, STRANGER, STRANGER)
    (home / "token").symlink_to(target)
    assert cluster.run("esctl", "token", NOBODY, "--output", str(home / "token")).code == 0
    assert target.read_text() == "root's" and target.stat().st_uid == 0
    made = (home / "token").lstat()
    assert stat.S_ISREG(made.st_mode) and (made.st_uid, made.st_mode & 0o777) == (STRANGER, 0o600)
