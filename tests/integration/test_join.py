"""Hosts that join a running cluster over the network: with a token, by approval, denied, revoked, and what is refused.

Method: a real cluster whose second agent has no membership; `eslurm join` runs as its own process, as on another host.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eslurm.security.joining import JoinSecret
from tests.integration.cluster import LiveCluster
from tests.integration.conftest import running
from tests.integration.daemons import PATIENCE_S, ROOT

NODE = "cn0002"


class Joined(subprocess.CompletedProcess[str]):
    """What a join has said."""


def join_words(endpoints: str, *words: str) -> list[str]:
    return [sys.executable, "-P", "-c", "from escli.eslurm import main; raise SystemExit(main())", "join", endpoints, *words]


def environ() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in (".", "daemons", "cli"))}


class Hosts:
    """A cluster, and hosts that want to be in it."""

    def __init__(self, cluster: LiveCluster) -> None:
        self.cluster = cluster
        self.token_file = cluster.directory / "join-token"

    def token(self, *words: str) -> JoinSecret:
        """Made by an administrator, and brought to the host."""
        ran = self.cluster.run("esctl", "node", "token", "create", *words)
        assert ran.code == 0, ran
        self.put(ran.out.strip())
        return JoinSecret.parse(ran.out)

    def put(self, text: str) -> None:
        self.token_file.unlink(missing_ok=True)
        self.token_file.touch(0o600)
        self.token_file.write_text(text)

    def words(self, directory: Path, *more: str, role: str = "agent", names: str = NODE) -> list[str]:
        return ["--role", role, "--nodes", names, "--state-dir", str(directory), *more]

    def join(
        self, directory: Path, *more: str, role: str = "agent", names: str = NODE, with_token: bool = True
    ) -> subprocess.CompletedProcess[str]:
        given = ("--token-file", str(self.token_file)) if with_token else ()
        words = self.words(directory, *given, *more, role=role, names=names)
        return subprocess.run(
            join_words(",".join(self.cluster.endpoints), *words),
            capture_output=True,
            text=True,
            env=environ(),
            timeout=PATIENCE_S,
            check=False,
        )

    def waits(self, directory: Path, *more: str, names: str = NODE) -> subprocess.Popen[str]:
        """A host that asks for approval."""
        words = self.words(directory, "--site-key", self.site_key(), *more, names=names)
        return subprocess.Popen(
            join_words(self.cluster.endpoint, *words), stderr=subprocess.PIPE, text=True, env=environ()
        )

    def site_key(self) -> str:
        from eslurm.security.joining import fingerprint

        [public] = self.cluster.site.keys.ring.keys.publics
        return fingerprint(public)

    def joins(self, what: str) -> list[dict[str, Any]]:
        """What administrators see."""
        found: list[dict[str, Any]] = json.loads(self.cluster.run("esctl", "--json", "node", "pending").out).get(what, [])
        return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with running(nodes=2, agents=1, satellites=1, controllers=2) as made:
        yield made


@pytest.fixture
def hosts(cluster: LiveCluster) -> Hosts:
    cluster.start()
    return Hosts(cluster)


def test_a_token_lets_a_host_in_once(hosts: Hosts, tmp_path: Path) -> None:
    """Goal: at once, and no second time with another key. The same host that asks again gets the same."""
    hosts.token("--nodes", "cn[0001-0009]")
    ran = hosts.join(tmp_path / "a")
    assert ran.returncode == 0, ran
    assert f"agent {NODE} of cluster live" in ran.stdout
    membership = (tmp_path / "a" / "membership").read_bytes()
    assert hosts.join(tmp_path / "a").returncode == 0
    assert (tmp_path / "a" / "membership").read_bytes() == membership
    ran = hosts.join(tmp_path / "b", names="cn0003")
    assert ran.returncode == 1 and "the join token is used up" in ran.stderr, ran
    assert not (tmp_path / "b" / "membership").exists()
