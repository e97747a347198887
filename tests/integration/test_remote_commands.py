"""A user's first day on a host that is none of the cluster's: everything over gRPC with TLS and a token.

Method: a real cluster of two controllers with certificates; commands as processes that know no socket of it.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.integration.cluster import PATIENCE_S, LiveCluster
from tests.integration.commands import BIN
from tests.integration.conftest import running
from tests.support.certificates import CA, KEPT, place, words

USER = pwd.getpwuid(os.getuid()).pw_name if os.getuid() else "nobody"


@pytest.fixture(scope="module")
def encrypted_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    certificates = tmp_path_factory.mktemp("certificates")
    with running(nodes=2, agents=1, satellites=1, controllers=2, tls=words(place(certificates))) as cluster:
        yield cluster


@pytest.fixture
def encrypted(encrypted_cluster: LiveCluster) -> Iterator[LiveCluster]:
    """The module's cluster, whole, with an empty work directory."""
    encrypted_cluster.empty_work()
    encrypted_cluster.start()
    encrypted_cluster.wait_standbys()
    yield encrypted_cluster
    encrypted_cluster.start()
    encrypted_cluster.clear()
    encrypted_cluster.hang_up()


class Elsewhere:
    """Another host: a home with a token in it, and what the administrator said of the cluster."""

    def __init__(self, cluster: LiveCluster, home: Path) -> None:
        self._cluster = cluster
        self.token_file = home / "token"
        self.make_token(USER)
        left_out = ("ESLURM_", "SLURM_")
        self._environ = {name: text for name, text in os.environ.items() if not name.startswith(left_out)} | {
            "HOME": str(home),
            # The one that does not lead comes first.
            "ESLURM_REMOTE": ",".join(reversed(cluster.endpoints)),
            "ESLURM_TOKEN_FILE": str(self.token_file),
            "ESLURM_TLS_CA": str(KEPT / "ca.pem"),
        }

    def make_token(self, user: str, *more: str) -> None:
        """What an administrator does on a controller's host."""
        directory = self._cluster.directory
        given = ["--config", str(directory / "eslurm.toml"), "--key-file", str(directory / "cluster.key")]
        made = self._process("esctl", "token", user, *given, *more, environ=os.environ)
        out, err = made.communicate(timeout=PATIENCE_S)
        assert (made.returncode, err) == (0, "")
        self.token_file.touch(0o600)
        self.token_file.write_text(out)

    def begin(self, command: str, *given: str, **environ: str) -> subprocess.Popen[str]:
        return self._process(command, *given, environ=self._environ | environ)

    def run(self, command: str, *given: str, **environ: str) -> tuple[int, str, str]:
        """Exit code, output and errors of a command."""
        with self.begin(command, *given, **environ) as process:
            out, err = process.communicate(timeout=PATIENCE_S)
            return process.returncode, out, err

    def do(self, command: str, *given: str) -> str:
        """What a command says that has to succeed."""
        code, out, err = self.run(command, *given)
        assert code == 0, (command, given, out, err)
        return out

    def fails(self, command: str, *given: str, **environ: str) -> tuple[int, str]:
        """Exit code and last words of a command that has nothing to show."""
        code, out, err = self.run(command, *given, **environ)
        assert out == ""
        return code, err.splitlines()[-1]

    def _process(self, command: str, *given: str, environ: Mapping[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(BIN / command), *given],
            env=environ,
            cwd=self._cluster.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def elsewhere(encrypted: LiveCluster, tmp_path: Path) -> Elsewhere:
    return Elsewhere(encrypted, tmp_path)


def test_a_first_day(encrypted: LiveCluster, elsewhere: Elsewhere) -> None:
    assert "is up at 127.0.0.1:" in elsewhere.do("esctl", "ping")
    held = elsewhere.do("essubmit", "--parsable", "--hold", "--wrap", "true").strip()
    assert elsewhere.do("esqueue", "--me", "-h", "-o", "%i %u %T") == f"{held} {USER} PENDING\n"
    assert encrypted.job(int(held)).user == USER
    assert elsewhere.do("eswhy", held).startswith(f"Job {held} (wrap, user {USER})")
    elsewhere.do("escancel", held)
    assert elsewhere.do("esqueue", "-h", "-j", held, "-o", "%T") == "CANCELLED\n"
    code, out, err = elsewhere.run("essubmit", "--wait", "-o", "said", "--wrap", "id -un; exit 7")
    assert (code, out.startswith("Submitted batch job ")) == (7, True)
    assert err.splitlines()[-1].endswith(": failed, exit code 7")
    assert encrypted.wait_lines("said") == [USER]


def test_looking_around(encrypted: LiveCluster, elsewhere: Elsewhere) -> None:
    assert "leader" in elsewhere.do("esinfo", "--controllers")
    encrypted.end(int(elsewhere.do("essubmit", "--parsable", "-J", "mine", "--wrap", "true")))
    assert elsewhere.do("esacct", "-h", "-u", USER, "--name", "mine", "-o", "jobname,state").split() == [
        "mine",
        "COMPLETED",
    ]
    report = elsewhere.do("eslurm", "estimate", "report", "--name", "mine", "--json")
    assert [group["user"] for group in json.loads(report)["groups"]] == [USER]


def test_rights_are_those_of_the_token(encrypted: LiveCluster, elsewhere: Elsewhere) -> None:
    if os.getuid():
        elsewhere.do("esctl", "drain", "cn0001", "reason=mine")
        elsewhere.do("esctl", "resume", "cn0001")
    else:
        failed = elsewhere.fails("esctl", "drain", "cn0001", "reason=mine")
        assert failed == (1, f"esctl: UpdateNodes is for operators; {USER} is none here")


def test_what_is_not_taken(encrypted: LiveCluster, elsewhere: Elsewhere) -> None:
    leads = encrypted.endpoints[encrypted.controllers.index(encrypted.leader())]
    code, told = elsewhere.fails("esqueue", ESLURM_TLS_CA=str(KEPT / "other-ca.pem"))
    assert code == 3 and told.startswith(f"esqueue: {leads}: the certificate there is not trusted (")
    assert told.endswith(" from an authority in --tls-ca")
    code, told = elsewhere.fails("esqueue", ESLURM_TLS_NAME="eslurm.test")
    assert code == 3 and told.startswith(f"esqueue: {leads}: the certificate there is for other names: ")
    elsewhere.token_file.write_text("es1.AAAA\n")
    code, told = elsewhere.fails("esqueue")
    assert code == 1
    assert told.startswith("esqueue: the token is not valid here; ask an operator for one (")


def test_another_controller_takes_over(encrypted: LiveCluster, elsewhere: Elsewhere) -> None:
    go = encrypted.work / "go"
    job = f"while [ ! -e {go} ]; do sleep 0.05; done"
    with elsewhere.begin("essubmit", "--wait", "--wrap", job) as waiting:
        assert waiting.stdout is not None
        job_id = int(waiting.stdout.readline().split()[-1])
        encrypted.reaches(job_id, "RUNNING")
        leader = encrypted.leader()
        encrypted.kill("esctld" if leader == "main" else f"esctld-{leader}")
        assert encrypted.leader() != leader
        assert elsewhere.do("esqueue", "-h", "-j", str(job_id), "-o", "%T") == "RUNNING\n"
        held = int(elsewhere.do("essubmit", "--parsable", "--hold", "--wrap", "true"))
        assert encrypted.job(held).state == "PENDING"
        go.touch()
        waiting.communicate(timeout=PATIENCE_S)
        assert waiting.returncode == 0


def test_a_host_with_a_client_file_needs_no_variables(encrypted: LiveCluster, elsewhere: Elsewhere) -> None:
    home = elsewhere.token_file.parent
    own = home / ".config" / "eslurm"
    own.mkdir(parents=True)
    (own / CA).write_bytes((KEPT / "ca.pem").read_bytes())
    names = ", ".join(f'"{endpoint}"' for endpoint in encrypted.endpoints)
    (own / "client.toml").write_text(
        f'controllers = [{names}]\ntoken_file = "~/token"\n[tls]\nca = "{CA}"\n', encoding="utf-8"
    )
    none = dict.fromkeys(("ESLURM_REMOTE", "ESLURM_TOKEN_FILE", "ESLURM_TLS_CA"), "")
    code, out, _err = elsewhere.run("esctl", "ping", **none)
    assert code == 0 and " is up at 127.0.0.1:" in out
