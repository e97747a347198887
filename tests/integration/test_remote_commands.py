"""A user's first day on a host that is none of the cluster's: everything over gRPC with TLS and a token.

Method: a real cluster of two controllers with certificates; commands as processes that know no socket of it.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from eslurm.api.grpc_client import GrpcClient
from eslurm.api.methods import PING
from eslurm.api.tokens import Claims, seal_token
from eslurm.core.model.job import Principal
from eslurm.ports.api import ApiRefused, Status
from eslurm.security.site_keys import new_site
from eslurm.transport.tls import Tls
from eslurm.transport.tls_options import TlsFiles
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import CLUSTER, PATIENCE_S, LiveCluster
from tests.kits.commands import BIN
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

    def make_token(self, user: str, *more: str) -> str:
        """Create a token as an administrator does on a controller's host. Returns the token's id."""
        self.token_file.unlink(missing_ok=True)
        words = ("--socket", str(self._cluster.socket), "--output", str(self.token_file))
        made = self._process("esctl", "token", user, *words, *more, environ=os.environ)
        out, err = made.communicate(timeout=PATIENCE_S)
        assert (made.returncode, err) == (0, "")
        if not os.getuid():
            # It is the bearer's; here root shows it.
            os.chown(self.token_file, 0, 0)
        return out.split()[-1]

    def begin(self, command: str, *given: str, **environ: str) -> subprocess.Popen[str]:
        return self._process(command, *given, environ=self._environ | environ)

    def run(self, command: str, *given: str, **environ: str) -> tuple[int, str, str]:
        """Exit code, output and errors of a command."""
        with self.begin(command, *given, **environ) as process:
            out, err = process.communicate(timeout=PATIENCE_S)
            return process.returncode, out, err

    def do(self, command: str, *given: str) -> str:
        """The output of a command, which has to succeed."""
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
    drain = ("esctl", "drain", "cn0001", "reason=mine")
    told = "UpdateNodes is beyond a token of scope submit: have another one made (esctl token create --scope)"
    assert elsewhere.fails(*drain) == (1, f"esctl: {told}")
    elsewhere.make_token(USER, "--scope", "admin")
    if os.getuid():
        elsewhere.do(*drain)
        elsewhere.do("esctl", "resume", "cn0001")
    else:
        assert elsewhere.fails(*drain) == (1, f"esctl: UpdateNodes is for operators; {USER} is none here")


def test_each_scope_goes_as_far_as_it_says(encrypted: LiveCluster, elsewhere: Elsewhere) -> None:
    held = elsewhere.do("essubmit", "--parsable", "--hold", "--wrap", "true").strip()
    others = str(encrypted.wrap("true", "--hold"))
    submit = ("essubmit", "--hold", "--wrap", "true")
    elsewhere.make_token(USER, "--scope", "read")
    assert held in elsewhere.do("esqueue", "-h", "-o", "%i").split()
    for command in (submit, ("escancel", held), ("esctl", "hold", held), ("esctl", "token", "create")):
        code, told = elsewhere.fails(*command)
        assert code == 1 and " is beyond a token of scope read: " in told
    elsewhere.make_token(USER, "--scope", "own-jobs")
    assert " is beyond a token of scope own-jobs: " in elsewhere.fails(*submit)[1]
    # Whatever its bearer is elsewhere: other people's jobs are none of its business.
    if not os.getuid():
        assert elsewhere.run("escancel", others)[0] == 1
        assert encrypted.job(int(others)).state == "PENDING"
    elsewhere.do("escancel", held)
    assert encrypted.job(int(held)).state == "CANCELLED"
    elsewhere.make_token(USER, "--scope", "estimator")
    assert " is beyond a token of scope estimator: " in elsewhere.fails("esqueue")[1]
    elsewhere.make_token(USER, "--scope", "admin")
    code, told = elsewhere.fails("esctl", "token", "create", USER)
    assert code == 1 and "tokens are not made with a token" in told


def test_a_token_is_taken_back_while_it_is_used(encrypted: LiveCluster, elsewhere: Elsewhere) -> None:
    """At once, for a client that is connected and has been verified before; and by the next leader."""
    token = elsewhere.token_file.read_text().strip()
    tls = Tls(TlsFiles(KEPT / "ca.pem"))
    with GrpcClient(encrypted.endpoints, token, tls) as client:
        assert client.call(PING, pb.PingRequest(), PATIENCE_S).cluster == CLUSTER
        identifier = next(one.id for one in encrypted.call("Tokens", pb.TokensRequest(user=USER)).tokens)
        encrypted.do("esctl", "token", "revoke", "--user", USER)
        with pytest.raises(ApiRefused, match="the token was revoked") as refused:
            client.call(PING, pb.PingRequest(), PATIENCE_S)
        assert refused.value.status is Status.UNAUTHENTICATED
    again = encrypted.run("esctl", "token", "revoke", identifier)
    assert again.code == 1 and "there is no such token (any more)" in again.err
    code, told = elsewhere.fails("esqueue")
    assert code == 1 and told.startswith("esqueue: the token was revoked; have a new one made")
    elsewhere.make_token(USER)
    encrypted.do("esctl", "takeover")
    assert elsewhere.fails("esqueue", ESLURM_TOKEN_FILE=str(write(elsewhere, token)))[0] == 1
    elsewhere.do("esqueue")


def write(elsewhere: Elsewhere, token: str) -> Path:
    path = elsewhere.token_file.with_name("former")
    path.touch(0o600)
    path.write_text(token)
    return path


def test_a_forged_token_and_one_of_another_purpose_are_refused(
    encrypted: LiveCluster, elsewhere: Elsewhere
) -> None:
    """Sealed by a key of the site's own name, and by the site's key itself, but never issued."""
    claims = Claims(os.urandom(16), CLUSTER, Principal("ada", 4711, 4711), "admin", 1, 2**62)
    now_us = time.time_ns() // 1000
    for keys, said in ((new_site(CLUSTER, 1), "is not valid here"), (encrypted.site.keys, "was revoked")):
        fresh = msgspec.structs.replace(claims, issued_us=now_us, expires_us=now_us + 60_000_000)
        elsewhere.token_file.write_text(seal_token(keys, fresh))
        code, told = elsewhere.fails("esqueue")
        assert code == 1 and said in told


def test_tokens_stand_in_no_log_and_no_table_of_processes(
    encrypted: LiveCluster, elsewhere: Elsewhere
) -> None:
    token = elsewhere.token_file.read_text().strip()
    with elsewhere.begin("essubmit", "--wait", "--hold", "--wrap", "true") as waiting:
        assert waiting.stdout is not None
        job = waiting.stdout.readline().split()[-1]
        said = b"".join(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if readable(path))
        assert token.encode() not in said
        elsewhere.do("escancel", job)
        waiting.communicate(timeout=PATIENCE_S)
    for log in encrypted.directory.glob("*.log"):
        assert token not in log.read_text(errors="replace"), log


def readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def test_what_is_not_taken(encrypted: LiveCluster, elsewhere: Elsewhere) -> None:
    leads = encrypted.endpoints[encrypted.controllers.index(encrypted.leader())]
    code, told = elsewhere.fails("esqueue", ESLURM_TLS_CA=str(KEPT / "other-ca.pem"))
    assert code == 3 and told.startswith(f"esqueue: {leads}: the certificate there is not trusted (")
    assert told.endswith(" from an authority in --tls-ca")
    code, told = elsewhere.fails("esqueue", ESLURM_TLS_NAME="eslurm.test")
    assert code == 3 and told.startswith(f"esqueue: {leads}: the certificate there is for other names: ")
    elsewhere.token_file.write_text("es2.AAAA\n")
    code, told = elsewhere.fails("esqueue")
    assert code == 1
    assert told.startswith("esqueue: the token is not valid here; have a new one made (")


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
