"""Real daemons over TLS. Goal: a cluster works as without; a daemon that does not fit it says so in one line and nothing
else suffers; certificates are renewed under running jobs; what cannot be used is known at the start.

Method: two controllers, a satellite, two agents and the estimator, each link with certificates on both sides.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from escli import exits
from eslurm.api.grpc_client import GrpcClient
from eslurm.api.methods import PING
from eslurm.ports.api import ApiUnreachable
from eslurm.transport.tls import Tls
from eslurm.transport.tls_diagnosis import SPEAKS_TLS
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.integration.test_join import environ, join_words
from tests.integration.test_metrics import value_of
from tests.kits.cluster import CLUSTER, PATIENCE_S, ROOT, Daemon, LiveCluster
from tests.support.certificates import KEPT, place, replace_pair, words
from tests.unit.transport.test_tls import END_2120_S, END_2121_S, END_2130_S

CERTIFICATE_END = "eslurm_certificate_not_after_timestamp_seconds"
DIALS_FAILED = "eslurm_link_dials_failed_total"
ESTIMATOR = "esestd"


@pytest.fixture(scope="module")
def certificates() -> Iterator[Path]:
    """The files that all daemons of the cluster show and trust; agents, which give root up, still reach them."""
    with tempfile.TemporaryDirectory(prefix="es-") as path:
        directory = Path(path)
        directory.chmod(0o755)
        place(directory, required=True)
        yield directory


@pytest.fixture(scope="module")
def encrypted_cluster(certificates: Path) -> Iterator[LiveCluster]:
    tls = words(place(certificates, required=True))
    # No leader of a busy machine stands still for so long: nobody has to follow it here.
    lease = {"lease_s": PATIENCE_S}
    with running(nodes=4, satellites=1, controllers=2, controller=lease, is_watched=True, tls=tls) as cluster:
        more = [
            "--config",
            str(cluster.directory / "eslurm.toml"),
            "--state-dir",
            str(cluster.directory / ESTIMATOR),
        ]
        more += [
            "--token-file",
            str(cluster.write_token(cluster.directory / "estimator.token", "estimator")),
            "--controllers",
            ",".join(cluster.endpoints),
        ]
        cluster.add_daemon(ESTIMATOR, ESTIMATOR, *more)
        cluster.launch(ESTIMATOR)
        yield cluster


@pytest.fixture
def encrypted(encrypted_cluster: LiveCluster) -> Iterator[LiveCluster]:
    """The module's cluster; its connection for calls ends with the test."""
    yield encrypted_cluster
    encrypted_cluster.hang_up()


@contextmanager
def other_agent(cluster: LiveCluster, name: str, *tls: str) -> Iterator[Daemon]:
    """An agent with the cluster's key, whose node is none of the cluster's, while it runs."""
    cluster.add_agent(name, "cn9")
    daemon = cluster.daemons.pop(name)
    at = next(at for at, word in enumerate(daemon.words) if word.startswith("--tls"))
    daemon.words[at:] = tls
    daemon.spawn()
    try:
        assert daemon.wait_ready()
        yield daemon
    finally:
        del cluster.watched[name]
        daemon.send(signal.SIGTERM)
        daemon.wait()


def log_of(daemon: Daemon) -> list[str]:
    return daemon.log.read_text().splitlines() if daemon.log.exists() else []


def failed(directory: Path, kind: str, *more: str) -> str:
    """The error of a daemon that cannot start."""
    common = ["--cluster", "c", "--listen", "127.0.0.1:0"]
    path = os.pathsep.join(str(ROOT / part) for part in (".", "daemons", "cli"))
    ran = subprocess.run(
        [sys.executable, "-P", "-m", kind, *common, *more],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 2, ran
    return ran.stderr


def test_jobs_run(encrypted: LiveCluster) -> None:
    step = f"export ESLURM_SOCKET={encrypted.socket}; esrun hostname"
    assert encrypted.end(encrypted.wrap(step, "-N", "4")) == "COMPLETED"
    go = encrypted.work / "step"
    job = encrypted.user_job(f"while [ ! -e {go} ]; do sleep 0.05; done", "-N", "4")
    encrypted.reaches(job, "RUNNING")
    # Through the door of a node, its agent and the satellite.
    ran = encrypted.run_as_user("esqueue", socket=encrypted.agent_dir("agent0") / "door.sock")
    assert ran.code == 0 and str(job) in ran.out, ran
    go.touch()
    assert encrypted.end(job) == "COMPLETED"
    encrypted.until(lambda: value_of(encrypted, ESTIMATOR, "eslurm_estimator_linked") == 1.0, "the feed")
    encrypted.wait_standbys()


def test_every_daemon_tells_when_its_certificates_end(encrypted: LiveCluster) -> None:
    for name in encrypted.watched:
        found = [value_of(encrypted, name, CERTIFICATE_END, file=file) for file in ("certificate", "ca")]
        assert found == [END_2120_S, END_2130_S], name


def test_a_token_is_taken_over_tls_only(encrypted: LiveCluster, certificates: Path) -> None:
    token = encrypted.token("read")
    with GrpcClient(encrypted.endpoint, token, Tls(place(certificates, required=True))) as client:
        assert client.call(PING, pb.PingRequest(), PATIENCE_S).cluster == CLUSTER
    with GrpcClient(encrypted.endpoint, token) as client, pytest.raises(ApiUnreachable):
        client.call(PING, pb.PingRequest(), 0.5)


def test_a_host_joins_over_tls(encrypted: LiveCluster, certificates: Path, tmp_path: Path) -> None:
    """A host that joins shows a certificate where daemons do; without TLS no controller answers it."""
    token_file = tmp_path / "token"
    token_file.touch(0o600)
    token_file.write_text(encrypted.call("CreateJoinToken", pb.CreateJoinTokenRequest()).token)
    files = place(certificates, required=True)
    shown = ["--tls-certificate", str(files.certificate), "--tls-key", str(files.key)]
    join = [",".join(encrypted.endpoints), "--nodes", "cn0099", "--state-dir", str(tmp_path / "host")]
    join += ["--token-file", str(token_file), "--timeout", "5"]
    for more, code in (
        ([], exits.UNREACHABLE),
        (["--tls-ca", str(files.ca)], exits.UNREACHABLE),
        (["--tls-ca", str(files.ca), *shown], exits.OK),
    ):
        ran = subprocess.run(
            join_words(*join, *more), env=environ(), capture_output=True, timeout=PATIENCE_S, check=False
        )
        assert ran.returncode == code, ran
    assert (tmp_path / "host" / "membership").exists()


def test_a_plain_agent_says_once_what_it_lacks(encrypted: LiveCluster) -> None:
    with other_agent(encrypted, "plain") as agent:
        # It has been to each place more than once by then.
        encrypted.until(lambda: (value_of(encrypted, "plain", DIALS_FAILED) or 0) > 6, "tries")
    # On a busy machine it may have been too slow to find that out before.
    (told,) = [line for line in log_of(agent) if line.endswith(SPEAKS_TLS)]
    assert "no link to" in told and "127.0.0.1:" in told


def test_an_agent_that_trusts_somebody_else_says_so_once(encrypted: LiveCluster, tmp_path: Path) -> None:
    with other_agent(encrypted, "other", *words(place(tmp_path, "stranger", "other-ca"))) as agent:
        encrypted.until(lambda: (value_of(encrypted, "other", DIALS_FAILED) or 0) > 6, "tries")
    (told,) = [line for line in log_of(agent) if "the certificate there is not trusted (" in line]
    assert "no link to" in told
    noise = [line for daemon in (agent, *encrypted.daemons.values()) for line in log_of(daemon)]
    assert not [line for line in noise if "ssl_transport_security" in line]


def test_certificates_are_renewed_under_a_running_job(encrypted: LiveCluster, certificates: Path) -> None:
    go = encrypted.work / "go"
    job = encrypted.wrap(f"while [ ! -e {go} ]; do sleep 0.05; done", "-N", "4")
    encrypted.reaches(job, "RUNNING")
    running_now = {name: daemon.process for name, daemon in encrypted.daemons.items()}
    replace_pair(certificates, "renewed")
    for name in encrypted.watched:
        encrypted.until(
            lambda name=name: value_of(encrypted, name, CERTIFICATE_END, file="certificate") == END_2121_S,
            f"the new certificate of {name}",
        )
    go.touch()
    assert encrypted.end(job) == "COMPLETED"
    # Everything is dialled anew, with and from the new ones.
    encrypted.kill("sat0")
    encrypted.launch("sat0")
    assert encrypted.end(encrypted.wrap("true", "-N", "4")) == "COMPLETED"
    assert {name: daemon.process for name, daemon in encrypted.daemons.items() if name != "sat0"} == {
        name: process for name, process in running_now.items() if name != "sat0"
    }
    assert not [
        line
        for daemon in encrypted.daemons.values()
        for line in log_of(daemon)
        if "former certificate" in line
    ]


@pytest.mark.parametrize("kind", ["essatd", "esnoded"])
def test_what_cannot_be_used_ends_the_start_with_one_line(state_dir: Path, kind: str) -> None:
    more = ["--controllers", "127.0.0.1:1", "--state-dir", str(state_dir)]
    if kind == "esnoded":
        more = [
            "--nodes",
            "cn1",
            "--cores",
            "1",
            "--memory-mib",
            "1",
            "--each",
            "--state-dir",
            str(state_dir / "agent"),
        ]
    files = place(state_dir, "expired")
    said = failed(state_dir, kind, *more, *words(files))
    assert said.startswith(
        f"{kind}: TLS certificate {files.certificate} is not accepted by {files.ca}: certificate has"
    )
    assert said.count("\n") == 1
    said = failed(state_dir, kind, *more, "--tls-ca", str(KEPT / "ca.pem"))
    assert said.startswith(f"{kind}: --tls-certificate is missing") and said.count("\n") == 1


def test_a_controller_reads_its_configuration(state_dir: Path) -> None:
    place(state_dir, "expired")
    config = state_dir / "eslurm.toml"
    config.write_text(
        '[cluster]\nname = "c"\n[tls]\ncertificate = "host.pem"\nkey = "host.key"\nca = "authorities.pem"\n'
        '[[nodes]]\nnames = "cn1"\ncores = 1\nmemory_mib = 1\n[[partition]]\nname = "main"\n'
    )
    path = os.pathsep.join(str(ROOT / part) for part in (".", "daemons", "cli"))
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "esctld", "--config", str(config), "--state-dir", str(state_dir)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"esctld: TLS certificate {state_dir / 'host.pem'} is not accepted by ")
    assert ran.stderr.count("\n") == 1
