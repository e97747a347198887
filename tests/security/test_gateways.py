"""Gateways of a job: its user's processes and nothing else, also where a command, an address or a file is hostile."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from eslurm.core.model.gateways import GatewayRequest, GatewayStep
from eslurm.core.model.protocol import JobLaunch, LaunchStep, NodeGroup
from eslurm.core.model.request import PartSpec, Request
from eslurm.core.model.step_key import GATEWAY_STEP, ROUTE_ERROR_STEP, ROUTE_STEP, StepKey
from eslurm.ports.step_runner import StepEndCause, StepOutcome
from esnoded.stepd import wire
from tests.kits.stepd_credentials import ENVIRONMENT, order, sealed
from tests.security.conftest import STRANGER
from tests.security.test_launch_credentials import as_uid
from tests.security.test_phases import Host

FIRST, GATEWAY = 3, 4
DAEMON = StepKey(7, 1, GATEWAY_STEP, GATEWAY)
ROUTES = StepKey(7, 1, ROUTE_STEP, FIRST)
ERROR = StepKey(7, 1, ROUTE_ERROR_STEP, FIRST)
STEP = GatewayStep("cn4", (("127.0.0.1:7000",),), (("cluster", "cn3"), ("booster", "bo1")))
SERVES = "echo 127.0.0.1:7000; exec sleep 600"


class Gateways(Host):
    """A host that is the job's first node and its gateway."""

    def gateway_job(self, **asked: object) -> JobLaunch:
        return self.job(
            phases=(),
            components=(Request(), Request()),
            parts=(PartSpec(), PartSpec("gateways", "gateway")),
            groups=(NodeGroup(((FIRST, 1),), (2,)), NodeGroup(((GATEWAY, 1),), (4,), 1, 1)),
            gateway=msgspec.structs.replace(GatewayRequest(1), **asked),
        )

    def command(
        self, key: StepKey, job: JobLaunch, step: GatewayStep | None = STEP, tasks: int = 1
    ) -> LaunchStep:
        is_daemon = key.step == GATEWAY_STEP
        return LaunchStep(
            job_id=key.job_id,
            attempt=key.attempt,
            step=key.step,
            groups=(NodeGroup(((key.node, 1),), (tasks,), tasks, int(is_daemon)),),
            argv=(),
            environment_hash=job.spec.environment_hash,
            work_dir=job.spec.work_dir,
            endpoint="",
            cookie=b"",
            tasks=tasks,
            launch=job,
            component=int(is_daemon),
            gateway=step,
        )

    def ask_for(self, key: StepKey, command: LaunchStep) -> wire.Answer:
        made = msgspec.structs.replace(
            order(sealed(command), key=key), script=b"", environment=ENVIRONMENT, door=""
        )
        return self.ask(lambda number: wire.Launch(number, made))

    def start(self, key: StepKey, command: LaunchStep) -> tuple[str, ...]:
        """The first lines of its tasks, when they have said them."""
        answer = self.ask_for(key, command)
        assert isinstance(answer, wire.Launched) and not isinstance(answer.state, StepOutcome), answer
        return answer.state.ready

    def run_to_end(self, key: StepKey, command: LaunchStep) -> StepOutcome:
        answer = self.ask_for(key, command)
        assert isinstance(answer, wire.Launched), answer
        if isinstance(answer.state, StepOutcome):
            return answer.state
        return self.outcome(key)

    def refuses(self, key: StepKey, command: LaunchStep) -> str:
        answer = self.ask_for(key, command)
        assert isinstance(answer, wire.Refused), answer
        return answer.text

    def end(self, key: StepKey) -> StepOutcome:
        self.ask(lambda number: wire.Terminate(number, key, StepEndCause.SIGNALLED, 5_000_000))
        return self.outcome(key)


@pytest.fixture
def interpreter(as_root: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that other users can run, as where the site installs for all: the helper is one of theirs."""
    if as_uid(STRANGER, lambda: os.access(os.path.realpath(sys.executable), os.X_OK)) != "True":
        path = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
        if not os.path.exists(path):
            pytest.skip(f"no user can run {sys.executable}, and there is no {path}")
        monkeypatch.setattr(sys, "executable", path)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(os.path.isabs, sys.path)))


@pytest.fixture
def host(state_dir: Path, as_root: None, interpreter: None, adopt_orphans: None) -> Iterator[Gateways]:
    made = Gateways(state_dir)
    made.configure(nodes="cn[3-4]")
    try:
        yield made
    finally:
        made.close()
        os.waitpid(made.pid, 0)


def test_a_daemon_is_a_process_of_the_job_s_user_and_its_address_is_its_first_line(host: Gateways) -> None:
    binary = host.program(f"id -u > {host.work}/told; env >> {host.work}/told; {SERVES}")
    job = host.gateway_job(binary=binary, env=(("BUFFER", "4k"),))
    assert host.start(DAEMON, host.command(DAEMON, job)) == ("127.0.0.1:7000",)
    told = (host.work / "told").read_text().splitlines()
    assert told[0] == str(STRANGER)
    assert {"BUFFER=4k", f"ESLURM_GATEWAY_ROUTES={host.work}/eslurm-route-7", "ESLURM_GATEWAYS=1"} <= set(
        told
    )
    assert host.end(DAEMON).cause is StepEndCause.SIGNALLED


def test_the_site_s_daemon_is_root_s_word_and_still_the_user_s_process(host: Gateways) -> None:
    daemon = host.program(f"id -u > {host.work}/told; {SERVES}")
    host.configure(nodes="cn[3-4]", gateway_daemon=daemon)
    assert host.start(DAEMON, host.command(DAEMON, host.gateway_job())) == ("127.0.0.1:7000",)
    assert (host.work / "told").read_text() == f"{STRANGER}\n"
    host.end(DAEMON)


def test_a_site_s_daemon_that_another_user_could_change_does_not_run(host: Gateways) -> None:
    command = host.command(DAEMON, host.gateway_job())
    assert "this host has no gateway daemon" in host.refuses(DAEMON, command)
    daemon = host.program(SERVES)
    os.chown(daemon, STRANGER, STRANGER)
    host.configure(nodes="cn[3-4]", gateway_daemon=daemon)
    assert "gateway daemon: " in host.refuses(DAEMON, command)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("printf '127.0.0.1:70\\00000\\n'", "127.0.0.1:70\\x0000"),
        ("echo 192.0.2.7:7000", "192.0.2.7:7000"),
        ("echo gw1:7000", "gw1:7000"),
        ("echo '127.0.0.1:7000 cn1 cn2'", "127.0.0.1:7000 cn1 cn2"),
        ("echo 0.0.0.0:7000", "0.0.0.0:7000"),
        ("echo 127.0.0.1:70000", "127.0.0.1:70000"),
        ("head -c 9000 /dev/zero | tr '\\0' x", "x" * 60),
        ("echo", "''"),
    ],
)
def test_a_first_line_that_is_no_address_of_this_host_ends_the_daemon(
    host: Gateways, line: str, shown: str
) -> None:
    job = host.gateway_job(binary=host.program(f"{line}; exec sleep 600"))
    outcome = host.run_to_end(DAEMON, host.command(DAEMON, job))
    assert "the first line of gateway daemon 0 is no address of this host and port" in outcome.text
    assert shown in outcome.text
    assert len(outcome.text) < 1_000


def test_a_daemon_that_floods_its_output_is_read_on_and_its_last_words_are_bounded(host: Gateways) -> None:
    flood = "echo 127.0.0.1:7000; head -c 3000000 /dev/zero | tr '\\0' y; echo the end >&2; exit 3"
    job = host.gateway_job(binary=host.program(flood))
    outcome = host.run_to_end(DAEMON, host.command(DAEMON, job))
    assert outcome.exit_code == 3 and "the end" in outcome.text
    assert len(outcome.text) < 1_000


def test_all_daemons_of_a_node_count_and_the_first_end_ends_them(host: Gateways) -> None:
    text = f"echo 127.0.0.1:700$SLURM_LOCALID; [ $SLURM_LOCALID = 0 ] || {{ read x < {host.work}/gate; exit 5; }}"
    job = host.gateway_job(binary=host.program(f"{text}; exec sleep 600"), per_node=2)
    os.mkfifo(host.work / "gate")
    os.chmod(host.work / "gate", 0o666)
    assert host.start(DAEMON, host.command(DAEMON, job, tasks=2)) == ("127.0.0.1:7000", "127.0.0.1:7001")
    (host.work / "gate").write_text("now\n")
    outcome = host.outcome(DAEMON)
    assert (outcome.exit_code, outcome.signal) == (5, 0)
    assert "daemon 1 of 2 ended with exit code 5" in outcome.text


def test_a_gateway_s_step_needs_a_job_with_gateways_and_its_own_node(host: Gateways) -> None:
    job = host.gateway_job(binary=host.program(SERVES))
    plain = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, gateway=None))
    assert "has no gateways" in host.refuses(DAEMON, host.command(DAEMON, plain))
    assert "has no gateways" in host.refuses(DAEMON, host.command(DAEMON, job, step=None))
    elsewhere = msgspec.structs.replace(DAEMON, node=FIRST)
    assert "is no gateway of the job" in host.refuses(elsewhere, host.command(elsewhere, job))
    for key in (ROUTES, ERROR):
        elsewhere = msgspec.structs.replace(key, node=GATEWAY)
        assert "is not the first of the job" in host.refuses(elsewhere, host.command(elsewhere, job))


def test_a_gateway_s_step_is_started_only_by_its_own_command_and_once(host: Gateways) -> None:
    job = host.gateway_job(binary=host.program("echo no; exit 1"))
    assert "another step" in host.refuses(ROUTES, host.command(msgspec.structs.replace(ROUTES, step=-6), job))
    other = msgspec.structs.replace(ROUTES, job_id=8)
    assert "another step" in host.refuses(other, host.command(ROUTES, job))
    command = host.command(DAEMON, job)
    host.run_to_end(DAEMON, command)
    host.ask(lambda number: wire.Acknowledge(number, (DAEMON,)))
    assert "launched before" in host.refuses(DAEMON, command)


def test_the_helper_writes_as_the_job_s_user(host: Gateways) -> None:
    outcome = host.run_to_end(ROUTES, host.command(ROUTES, host.gateway_job()))
    assert (outcome.exit_code, outcome.text) == (0, "")
    path = host.work / "eslurm-route-7"
    assert path.stat().st_uid == STRANGER
    assert path.read_text() == "127.0.0.1:7000 cn3 bo1\n127.0.0.1:7000 bo1 cn3\n"
    failed = GatewayStep(failed="gateway cn4: daemon ended with 139")
    assert host.run_to_end(ERROR, host.command(ERROR, host.gateway_job(), failed)).exit_code == 0
    error = host.work / "JOB-7-gateway.err"
    assert error.stat().st_uid == STRANGER
    assert error.read_text() == "job 7: its gateways failed: gateway cn4: daemon ended with 139\n"


def test_the_helper_can_write_nothing_that_the_user_cannot(host: Gateways) -> None:
    closed = host.directory / "closed"
    closed.mkdir(mode=0o755)
    victim = closed / "victim"
    victim.write_text("root's\n")
    outcome = host.run_to_end(ROUTES, host.command(ROUTES, host.gateway_job(file=str(closed / "victim"))))
    assert outcome.exit_code == 1 and "permission denied" in outcome.text
    assert victim.read_text() == "root's\n"


def test_a_link_of_another_user_at_the_file_of_routes_is_not_followed(host: Gateways) -> None:
    shared = host.directory / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    victim = host.work / "mine"
    victim.write_text("the job's user's\n")
    os.chown(victim, STRANGER, STRANGER)
    (shared / "routes").symlink_to(victim)
    os.chown(shared / "routes", STRANGER + 1, STRANGER + 1, follow_symlinks=False)
    outcome = host.run_to_end(ROUTES, host.command(ROUTES, host.gateway_job(file=str(shared / "routes"))))
    # In a sticky directory the link stays its owner's.
    assert outcome.exit_code == 1 and "not permitted" in outcome.text
    assert victim.read_text() == "the job's user's\n"
    assert [path.name for path in shared.iterdir()] == ["routes"]


def test_a_helper_that_stays_removes_its_file_when_it_is_ended(host: Gateways) -> None:
    job = host.gateway_job(cleanup=True)
    path = host.work / "eslurm-route-7"
    assert host.start(ROUTES, host.command(ROUTES, job)) == (str(path),)
    assert path.exists()
    host.end(ROUTES)
    assert not path.exists()


def test_what_no_controller_has_sealed_starts_no_gateway(host: Gateways) -> None:
    command = host.command(DAEMON, host.gateway_job(binary=host.program(SERVES)))
    forged = bytearray(sealed(command))
    forged[-1] ^= 1
    made = msgspec.structs.replace(order(bytes(forged), key=DAEMON), script=b"", environment=ENVIRONMENT)
    answer = host.ask(lambda number: wire.Launch(number, made))
    assert isinstance(answer, wire.Refused) and "not of this site" in answer.text
