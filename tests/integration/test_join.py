"""Hosts that join a running cluster over the network: with a token, by approval, denied, revoked, and what is refused.

Method: a real cluster; an agent loses what makes it a member, and `eslurm join` runs as its own process, as on another host.
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

from eslurm.security.joining import JoinSecret, fingerprint
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import PATIENCE_S, ROOT, agent_home

NODE = "cn0002"


def join_words(endpoints: str, *words: str) -> list[str]:
    return [
        sys.executable,
        "-P",
        "-c",
        "from escli.local.eslurm import main; raise SystemExit(main())",
        "join",
        endpoints,
        *words,
    ]


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
        [public] = self.cluster.site.keys.ring.keys.publics
        return fingerprint(public)

    def joins(self, what: str) -> list[Any]:
        """The list that administrators see, from the controller that leads."""
        return list(getattr(self.cluster.call("Joins", pb.JoinsRequest()), what))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with running(nodes=2, agents=2, satellites=1, controllers=2) as made:
        yield made


@pytest.fixture
def hosts(cluster: LiveCluster) -> Iterator[Hosts]:
    cluster.start()
    yield Hosts(cluster)
    cluster.hang_up()


def test_a_host_joins_with_a_token_once_and_runs_a_job(hosts: Hosts, tmp_path: Path) -> None:
    """Goal: a new host is in service by one command. Method: an agent's directory is lost, and made anew by joining."""
    cluster = hosts.cluster
    cluster.terminate("agent1")
    old = cluster.agent_dir("agent1")
    for home in (old, agent_home(old)):
        for name in ("identity.key", "membership", "site.pub"):
            (home / name).unlink(missing_ok=True)
    hosts.token("--nodes", "cn[0001-0009]")
    ran = hosts.join(old)
    assert ran.returncode == 0 and f"agent {NODE} of cluster live" in ran.stdout, ran
    cluster.launch("agent1")
    cluster.wait_nodes(lambda nodes: nodes[NODE].state == "UP")
    assert cluster.end(cluster.wrap("true", "-w", NODE)) == "COMPLETED"

    membership = (old / "membership").read_bytes()
    assert hosts.join(old).returncode == 0, "the same host asks again"
    assert (old / "membership").read_bytes() == membership
    ran = hosts.join(tmp_path / "b", names="cn0003")
    assert ran.returncode == 1 and "the join token is used up" in ran.stderr, ran
    assert not (tmp_path / "b" / "membership").exists()

    # It goes as it came: its links end, and it gets none anew.
    cluster.do("esctl", "node", "revoke", NODE)
    cluster.wait_nodes(lambda nodes: nodes[NODE].state != "UP")
    log = cluster.daemons["sat0"].log
    cluster.until(lambda: "was revoked" in log.read_text(), "the satellite refuses it")
    assert not any(one.names == NODE for one in hosts.joins("members"))

    def is_audited() -> bool:
        lines = cluster.run("esctl", "audit", "--refused").out.splitlines()
        return any(" Link " in line and "was revoked" in line for line in lines)

    cluster.until(is_audited, "the leader has refused its link")
    ran = hosts.join(old)
    assert ran.returncode == 1, "the token is used up, and its key is no member's"

    # Let in anew: the agent that runs reads its membership when it dials next.
    hosts.token("--nodes", NODE)
    assert hosts.join(old).returncode == 0
    cluster.wait_nodes(lambda nodes: nodes[NODE].state == "UP")
    assert "a newer membership is in use" in cluster.daemons["agent1"].log.read_text()
    assert cluster.end(cluster.wrap("true", "-w", NODE)) == "COMPLETED"


def test_several_uses_are_for_several_names(hosts: Hosts, tmp_path: Path) -> None:
    """Goal: a host that knows the token does not take the name of one that has joined with it."""
    hosts.token("--nodes", "cn[0101-0103]", "--uses", "3")
    assert hosts.join(tmp_path / "a", names="cn0101").returncode == 0
    ran = hosts.join(tmp_path / "b", names="cn0101")
    assert ran.returncode == 1 and "cn0101 has joined with this token already" in ran.stderr, ran
    ran = hosts.join(tmp_path / "b", names="cn0104")
    assert ran.returncode == 1 and "the join token is for cn[0101-0103], not for cn0104" in ran.stderr, ran
    ran = hosts.join(tmp_path / "b", names="sat9", role="satellite")
    assert ran.returncode == 1 and "the join token is for the role agent" in ran.stderr, ran
    # Whoever has it may know the token: it ends together with the host's membership.
    ran_revoke = hosts.cluster.run("esctl", "node", "revoke", "cn0101")
    assert ran_revoke.code == 0 and "has ended, too" in ran_revoke.err, ran_revoke
    ran = hosts.join(tmp_path / "b", names="cn0102")
    assert ran.returncode == 1 and "the join token is not known" in ran.stderr, ran


def test_a_wrong_token_and_one_that_was_taken_back_are_refused(hosts: Hosts, tmp_path: Path) -> None:
    known = hosts.token()
    wrong = (JoinSecret.new(), JoinSecret(known.id, bytes(32)))
    texts = []
    for secret in wrong:
        hosts.put(secret.text)
        ran = hosts.join(tmp_path / "a")
        assert ran.returncode == 1 and "is not known, has ended, or was not proved" in ran.stderr, ran
        texts.append(ran.stderr.partition("refused by")[2])
    assert len(set(texts)) == 1, "an id that exists is told from none"
    hosts.cluster.do("esctl", "node", "token", "revoke", known.id.hex())
    hosts.put(known.text)
    ran = hosts.join(tmp_path / "a")
    assert ran.returncode == 1 and "is not known, has ended" in ran.stderr, ran
    hosts.put("es2.AAAA")
    ran = hosts.join(tmp_path / "a")
    assert ran.returncode == 2 and "no join token: it begins with esj1." in ran.stderr, ran
    hosts.token_file.chmod(0o644)
    ran = hosts.join(tmp_path / "a")
    assert ran.returncode == 2 and "is open to others" in ran.stderr, ran
    pending = hosts.cluster.run("esctl", "--json", "node", "pending")
    assert pending.code == 0 and json.loads(pending.out)["pending"] == [], pending
    audited = hosts.cluster.run("esctl", "audit", "--refused").out
    assert "Join" in audited and "was not proved" in audited


def test_two_hosts_race_for_the_last_use(hosts: Hosts, tmp_path: Path) -> None:
    hosts.token("--uses", "2")
    given = ("--token-file", str(hosts.token_file))
    racing = [
        subprocess.Popen(
            join_words(
                hosts.cluster.endpoint, *hosts.words(tmp_path / str(number), *given, names=f"cn02{number:02}")
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environ(),
        )
        for number in range(4)
    ]
    for one in racing:
        one.communicate(timeout=PATIENCE_S)
    assert sorted(one.returncode for one in racing) == [0, 0, 1, 1]
    assert sum(one.names.startswith("cn02") for one in hosts.joins("members")) == 2


def test_a_host_is_approved_by_the_fingerprint_that_it_shows(hosts: Hosts, tmp_path: Path) -> None:
    cluster = hosts.cluster
    host = hosts.waits(tmp_path / "a", names="cn0301")
    other = hosts.waits(tmp_path / "b", names="cn0302")
    pending = cluster.until(lambda: found if len(found := hosts.joins("pending")) == 2 else None, "both wait")
    first = next(one for one in pending if one.names == "cn0301")
    assert host.stderr is not None and first.fingerprint in host.stderr.readline()
    wrong = cluster.run("esctl", "node", "approve", "cn0302", "--fingerprint", first.fingerprint)
    assert wrong.code == 1 and "waits with another key" in wrong.err, wrong
    assert cluster.run("esctl", "node", "approve", "cn0301").code == 2
    ran = cluster.run("esctl", "node", "approve", "cn0301", "--fingerprint", first.fingerprint)
    assert ran.code == 0, ran
    host.communicate(timeout=PATIENCE_S)
    assert host.returncode == 0 and (tmp_path / "a" / "membership").exists()
    cluster.do("esctl", "node", "deny", "cn0302")
    said = other.communicate(timeout=PATIENCE_S)[1]
    assert other.returncode == 1 and "an administrator has denied this request" in said
    assert hosts.joins("pending") == [] and not (tmp_path / "b" / "membership").exists()


def test_without_a_token_or_the_site_s_key_it_asks_nobody(hosts: Hosts, tmp_path: Path) -> None:
    ran = hosts.join(tmp_path / "a", with_token=False)
    assert ran.returncode == 2 and "--token-file or --site-key is missing" in ran.stderr, ran
    ran = hosts.join(tmp_path / "a", "--site-key", "5f1c", with_token=False)
    assert ran.returncode == 2 and "is no fingerprint of 32 digits" in ran.stderr, ran


def test_another_site_s_answer_is_not_taken(hosts: Hosts, tmp_path: Path) -> None:
    """The token is right, the fingerprint is that of another site."""
    hosts.token()
    ran = hosts.join(tmp_path / "a", "--site-key", "0" * 32, names="cn0401")
    assert ran.returncode == 1 and "is of a site with other keys" in ran.stderr, ran
    assert not (tmp_path / "a" / "membership").exists() and not (tmp_path / "a" / "site.pub").exists()


def test_tokens_members_and_revocations_outlive_the_leader(hosts: Hosts, tmp_path: Path) -> None:
    """Goal: the next leader knows all of it. Method: the leader dies between a token and its use, and after a revocation."""
    cluster = hosts.cluster
    cluster.wait_standbys()
    hosts.token("--uses", "3")
    assert hosts.join(tmp_path / "a", names="cn0501").returncode == 0
    cluster.do("esctl", "node", "revoke", hosts.joins("members")[-1].serial)
    # The token has ended with it.
    hosts.token("--uses", "1")
    leader = cluster.leader()
    cluster.kill("esctld" if leader == "main" else f"esctld-{leader}")
    cluster.until(lambda: cluster.leader() != leader, "the standby leads")
    assert hosts.join(tmp_path / "b", names="cn0502").returncode == 0
    ran = hosts.join(tmp_path / "c", names="cn0503")
    assert ran.returncode == 1 and "the join token is used up" in ran.stderr, ran
    names = {one.names for one in hosts.joins("members")}
    assert "cn0502" in names and "cn0501" not in names
