"""Agents and satellites as real processes on real links, driven by a scripted controller."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from eslurm.api.methods import BY_NAME
from eslurm.api.unix_client import Client
from eslurm.core.model.job import Principal
from eslurm.core.model.protocol import (
    End,
    Gone,
    Heartbeat,
    JobLaunch,
    LaunchStep,
    NodeGroup,
    Prepare,
    Start,
    Started,
)
from eslurm.core.relay.results import Status
from eslurm.ports.api import ApiRefused
from eslurm.ports.step_runner import OutputFrame, OutputHello
from eslurm.security.step_stream import StreamOpener
from eslurm.v1.controller_pb2 import PingRequest
from esnoded.stepd.place import Place
from tests.kits.daemons import agent_user
from tests.kits.fake_controller import CLUSTER, SITE, FakeController, payload
from tests.kits.launches import launch_of
from tests.kits.stepd import end_process, eventually
from tests.support.loops import both_loops, run

ROOT = Path(__file__).parents[2]
ENVIRONMENT = b"PATH=/usr/bin:/bin\0GREETING=hello\0"
START_TIMEOUT_S = 30.0
COOKIE = b"c" * 32


class Site:
    """A directory with a key, and the daemons started in it; all are ended afterwards."""

    def __init__(self, directory: Path, loop: str = "uvloop") -> None:
        self.directory = directory
        directory.chmod(0o711)
        self.work = directory / "work"
        self.work.mkdir()
        self.loop = loop
        self._children: list[subprocess.Popen[bytes]] = []

    def satellite(self, controller: str) -> tuple[subprocess.Popen[bytes], str]:
        state = str(SITE.write_member(self.directory / f"sat{len(self._children)}", "satellite", "satellite"))
        words = ["essatd", "--listen", "127.0.0.1:0", "--controllers", controller, "--state-dir", state]
        return self._start(words)

    def agent(
        self, nodes: str, satellites: list[str], controller: str = "", name: str = "a"
    ) -> tuple[subprocess.Popen[bytes], str]:
        state = str(SITE.write_member(self.directory / name, "agent", nodes))
        words = ["esnoded", "--nodes", nodes, "--satellites", ",".join(satellites), "--state-dir", state]
        words += ["--controller", controller, "--cores", "4", "--memory-mib", "1024"]
        words += ["--allow-root-jobs", *agent_user()]
        return self._start(words)

    def _start(self, words: list[str]) -> tuple[subprocess.Popen[bytes], str]:
        reader, writer = os.pipe()
        words += ["--cluster", CLUSTER, "--ready-fd", str(writer)]
        words += ["--loop", self.loop, "--log-level", "info"]
        path = os.pathsep.join(str(ROOT / part) for part in (".", "daemons"))
        with open(self.directory / f"{words[0]}.log", "ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", *words],
                pass_fds=[writer],
                stderr=log,
                env=os.environ | {"PYTHONPATH": path},
            )
        self._children.append(child)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            assert select.select([pipe], [], [], START_TIMEOUT_S)[0], "not ready in time"
            line = pipe.readline().split()
        assert line[:1] == ["ready"], self.logs()
        return child, line[1]

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in self.directory.glob("**/*.log"))

    def stop_daemons(self) -> None:
        for child in self._children:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in self._children:
            child.wait(START_TIMEOUT_S)

    def close(self) -> None:
        self.stop_daemons()
        for status in self.directory.glob("*/stepd/esstepd.json"):
            supervisor = Place(status.parent.parent).find_supervisor()
            if supervisor is not None:
                end_process(supervisor.pid, signal.SIGTERM)


@pytest.fixture
def site(state_dir: Path) -> Iterator[Site]:
    opened = Site(state_dir)
    try:
        yield opened
    finally:
        opened.close()
    logs = opened.logs()
    assert "Traceback" not in logs, logs


def launch(
    controller: FakeController, script: str, nodes: tuple[int, ...], site: Site, job_id: int = 7
) -> JobLaunch:
    """A job that runs a script in the site's work directory."""
    text = f"#!/bin/sh\n{script}\n".encode()
    names = {number: name for name, number in controller.numbers.items()}
    return launch_of(
        job_id=job_id,
        user=Principal("me", os.getuid(), os.getgid()),
        groups=tuple(NodeGroup(((number, 1),), (1, 64)) for number in nodes),
        node_names=",".join(names[number] for number in nodes),
        script_hash=controller.add_blob(text),
        environment_hash=controller.add_blob(ENVIRONMENT),
        work_dir=str(site.work),
        output="out.%j",
        kill_grace_s=1.0,
    )


def play(site: Site, scenario: Callable[[FakeController], Awaitable[None]], *, uvloop: bool = False) -> None:
    """Run a scenario with a controller, which goes last: nobody dials it while it stops."""

    async def main() -> None:
        async with FakeController() as controller:
            try:
                await scenario(controller)
            finally:
                await asyncio.to_thread(site.stop_daemons)

    run(main(), uvloop=uvloop)


@both_loops
def test_a_one_node_job_from_registration_to_acknowledgement(site: Site, uvloop: bool) -> None:
    site.loop = "uvloop" if uvloop else "asyncio"

    async def scenario(controller: FakeController) -> None:
        _, satellite = site.satellite(controller.endpoint)
        site.agent("cn[1-4]", [satellite])
        await controller.registered(4)
        assert sorted(controller.numbers) == ["cn1", "cn2", "cn3", "cn4"]

        answers = await controller.order(Heartbeat(0), (0, 1, 2, 3))
        assert {outcome.status for outcome in answers.values()} == {Status.OK} and len(answers) == 4, answers

        body = Prepare(launch(controller, 'echo "$GREETING $SLURM_JOB_ID"; exit 3', (2,), site), start=True)
        answer = (await controller.order(body, (2,)))[2]
        assert answer.status is Status.OK, answer
        assert payload(answer, Started).at_us > 0
        await controller.until(lambda: controller.ends)
        report = controller.ends[0]
        assert (report.node, report.job_id, report.end.exit_code, report.gone) == (2, 7, 3, True)
        assert (site.work / "out.7").read_text() == "hello 7\n"
        # Behind the tombstone nothing starts again, under whatever effect.
        again = (await controller.order(body, (2,), revision=2))[2]
        assert again.status in (Status.OK, Status.FAILED)
        assert (await controller.order(End(7, 1, 1.0, "cancel"), (2,), revision=3))[2].payload
        assert (site.work / "out.7").read_text() == "hello 7\n"

    play(site, scenario, uvloop=uvloop)


def test_a_job_of_three_nodes_is_prepared_started_and_ended(site: Site) -> None:
    async def scenario(controller: FakeController) -> None:
        _, satellite = site.satellite(controller.endpoint)
        site.agent("cn[1-2]", [satellite], name="a")
        site.agent("cn[3-4]", [satellite], name="b")
        await controller.registered(4)
        nodes = tuple(sorted(controller.numbers.values()))[1:]
        job = launch(controller, "trap 'exit 9' TERM; echo go; while :; do sleep 0.05; done", nodes, site)
        ready = await controller.order(Prepare(job), nodes)
        assert {outcome.status for outcome in ready.values()} == {Status.OK} and len(ready) == 3
        started = (await controller.order(Start(7, 1, job), nodes[:1], revision=2))[nodes[0]]
        assert payload(started, Started).at_us > 0
        await eventually(lambda: (site.work / "out.7").exists() and (site.work / "out.7").read_text())

        ended = await controller.order(End(7, 1, 10.0, "cancel"), nodes, revision=3, deadline_s=15.0)
        assert payload(ended[nodes[0]], Gone) == Gone(started=True)
        assert payload(ended[nodes[1]], Gone) == payload(ended[nodes[2]], Gone) == Gone(started=False)
        await controller.until(lambda: controller.ends)
        assert (controller.ends[0].end.exit_code, controller.ends[0].gone) == (9, True)

    play(site, scenario)


def test_an_end_that_takes_longer_than_its_deadline_is_reported_when_it_is_done(site: Site) -> None:
    async def scenario(controller: FakeController) -> None:
        site.agent("cn1", [], controller.endpoint)
        await controller.registered(1)
        stubborn = "trap '' TERM; echo go; until test -e gate; do sleep 0.05; done; kill -KILL $$"
        job = launch(controller, stubborn, (0,), site)
        await controller.order(Prepare(job, start=True), (0,))
        await eventually(lambda: (site.work / "out.7").exists() and (site.work / "out.7").read_text())
        end = End(7, 1, START_TIMEOUT_S, "cancel")
        answer = (await controller.order(end, (0,), revision=2, deadline_s=0.6))[0]
        while answer.status is Status.UNREACHED:
            # On a busy machine the answer may be late; a controller asks again, too.
            answer = (await controller.order(end, (0,), revision=2, deadline_s=0.6))[0]
        assert (answer.status, answer.payload) == (Status.OK, b"")
        assert not controller.gone and not controller.ends
        (site.work / "gate").touch()
        await controller.until(lambda: controller.gone and controller.ends)
        assert controller.ends[0].end.signal == signal.SIGKILL

    play(site, scenario)


def test_a_killed_agent_readopts_its_step_and_delivers_the_outcome(site: Site) -> None:
    async def scenario(controller: FakeController) -> None:
        _, satellite = site.satellite(controller.endpoint)
        agent, _ = site.agent("cn[1-2]", [satellite])
        await controller.registered(2)
        os.mkfifo(site.work / "gate")
        job = launch(controller, "read line < gate; exit 5", (1,), site)
        assert (await controller.order(Prepare(job, start=True), (1,)))[1].status is Status.OK

        agent.kill()
        agent.wait()
        site.agent("cn[1-2]", [satellite])
        await controller.until(lambda: len(controller.registrations) == 4)
        held = {line.stage for entry in controller.registrations[2:] for line in entry.held}
        assert held == {"running"}
        assert controller.incarnations[1] == 2
        # The launch of the former incarnation, delivered late: it started, and does not start again.
        late = (await controller.order(Prepare(job, start=True), (1,), incarnation=1))[1]
        assert late.status is Status.OK

        controller.holds_acks = True
        (site.work / "gate").write_text("go\n")
        await controller.until(lambda: controller.ends)
        assert (controller.ends[0].end.exit_code, controller.ends[0].incarnation) == (5, 2)

    play(site, scenario)


def test_an_outcome_is_sent_until_it_is_acknowledged_also_by_the_next_agent(site: Site) -> None:
    async def scenario(controller: FakeController) -> None:
        agent, _ = site.agent("cn1", [], controller.endpoint)
        await controller.registered(1)
        controller.holds_acks = True
        job = launch(controller, "exit 6", (0,), site)
        await controller.order(Prepare(job, start=True), (0,))
        await controller.until(lambda: controller.ends)
        agent.kill()
        agent.wait()
        controller.held_back.clear()
        agent, _ = site.agent("cn1", [], controller.endpoint)
        await controller.until(lambda: {report.incarnation for report in controller.ends} == {1, 2})
        assert controller.registrations[1].held[0].stage == "ended"
        assert {report.end.exit_code for report in controller.ends} == {6}
        controller.release_acks()
        # Once acknowledged, the next agent knows it only as a tombstone; the answer says that this one knew.
        await controller.order(Heartbeat(0), (0,))
        agent.terminate()
        assert await asyncio.to_thread(agent.wait) == 0
        site.agent("cn1", [], controller.endpoint)
        await controller.until(lambda: len(controller.registrations) == 3)
        assert [line.stage for line in controller.registrations[2].held] == ["tombstone"]

    play(site, scenario)


def test_a_killed_satellite_is_replaced_by_the_other(site: Site) -> None:
    async def scenario(controller: FakeController) -> None:
        satellites = dict(site.satellite(controller.endpoint) for _ in range(2))
        await controller.satellites(2)
        site.agent("cn[1-2]", list(satellites.values()))
        await controller.registered(2)
        os.mkfifo(site.work / "gate")
        job = launch(controller, "read line < gate; exit 8", (0,), site)
        assert (await controller.order(Prepare(job, start=True), (0,)))[0].status is Status.OK
        first = next(link for link in controller.table.links if link.peer.role == "satellite")
        victim = next(child for child, endpoint in satellites.items() if endpoint == first.peer.endpoint)
        victim.kill()
        victim.wait()
        await controller.satellites(1)
        (site.work / "gate").write_text("go\n")
        await controller.until(lambda: controller.ends)
        assert controller.ends[0].end.exit_code == 8
        answers = await controller.order(Heartbeat(0), (0, 1))
        assert {outcome.status for outcome in answers.values()} == {Status.OK} and len(answers) == 2

    play(site, scenario)


def test_blobs_are_fetched_when_they_did_not_come_along_and_missing_ones_fail_the_node(site: Site) -> None:
    async def scenario(controller: FakeController) -> None:
        _, satellite = site.satellite(controller.endpoint)
        site.agent("cn1", [satellite])
        await controller.registered(1)
        job = launch(controller, "exit 0 # " + "x" * 600_000, (0,), site)
        assert (await controller.order(Prepare(job, start=True), (0,)))[0].status is Status.OK
        assert controller.blobs_asked
        other = launch(controller, "exit 1", (0,), site, job_id=8)
        controller.blobs.clear()
        answer = (await controller.order(Prepare(other, start=True), (0,), revision=2))[0]
        assert answer.status is Status.FAILED and "could not be fetched" in answer.text

    play(site, scenario)


def test_a_command_signed_with_another_key_is_refused(site: Site) -> None:
    async def scenario(controller: FakeController) -> None:
        site.agent("cn1", [], controller.endpoint)
        await controller.registered(1)
        job = launch(controller, "exit 0", (0,), site)
        controller.forge()
        answer = (await controller.order(Prepare(job, start=True), (0,)))[0]
        assert answer.status is Status.FAILED and "trusted" in answer.text

    play(site, scenario)


def test_a_step_runs_its_tasks_on_each_node_and_streams_their_output(site: Site) -> None:
    heard: dict[int, list[OutputFrame]] = {}
    hellos: list[OutputHello] = []
    closed = asyncio.Event()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream, bodies = StreamOpener(COOKIE), list[bytes]()
        while data := await reader.read(65536):
            bodies += stream.feed(data)
        hellos.append(msgspec.msgpack.decode(bodies[0], type=OutputHello))
        for body in bodies[1:]:
            frame = msgspec.msgpack.decode(body, type=OutputFrame)
            heard.setdefault(frame.task, []).append(frame)
        writer.close()
        if len(hellos) == 2:
            closed.set()

    async def scenario(controller: FakeController) -> None:
        _, satellite = site.satellite(controller.endpoint)
        site.agent("cn1", [satellite], name="a")
        site.agent("cn2", [satellite], name="b")
        await controller.registered(2)
        job = launch(controller, "sleep 60", (0, 1), site)
        await controller.order(Prepare(job), (0, 1))
        await controller.order(Start(7, 1, job), (0,), revision=2)
        server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        body = LaunchStep(
            job_id=7,
            attempt=1,
            step=0,
            groups=(NodeGroup(((0, 2),), (1,), 2),),
            argv=(
                "/bin/sh",
                "-c",
                'echo "$SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME"; exit $SLURM_PROCID',
            ),
            environment_hash=job.spec.environment_hash,
            work_dir=str(site.work),
            endpoint=f"{host}:{port}",
            cookie=COOKIE,
            tasks=4,
            launch=job,
        )
        answers = await controller.order(body, (0, 1), revision=3)
        assert [outcome.status for outcome in answers.values()] == [Status.OK] * 2, answers
        async with asyncio.timeout(START_TIMEOUT_S):
            await closed.wait()
        server.close()
        await server.wait_closed()
        assert {hello.node_name for hello in hellos} == {"cn1", "cn2"}
        names = {number: name for name, number in controller.numbers.items()}
        for task, node in enumerate((0, 0, 1, 1)):
            text = b"".join(frame.data for frame in heard[task] if frame.stream == 1).decode()
            assert text == f"{task} of 4 on {names[node]}\n"
            assert [f.exit_status for f in heard[task] if f.exit_status is not None] == [task]
        await controller.order(End(7, 1, 0.1, "cancel"), (0, 1), revision=4)

    play(site, scenario)


def test_commands_on_a_node_reach_the_controller_through_its_door(site: Site) -> None:
    def ask() -> str:
        with Client(site.directory / "a" / "door.sock") as client, pytest.raises(ApiRefused) as refused:
            client.call(BY_NAME["Ping"], PingRequest(), START_TIMEOUT_S)
        return str(refused.value)

    async def scenario(controller: FakeController) -> None:
        _, satellite = site.satellite(controller.endpoint)
        site.agent("cn[1-2]", [satellite])
        await controller.registered(2)
        assert "no such job" in await asyncio.to_thread(ask)
        (call,) = controller.door_calls
        assert (call.method, call.uid, call.gid) == ("Ping", os.getuid(), os.getgid())

    play(site, scenario)


def test_a_second_agent_on_the_same_state_directory_is_turned_away(site: Site) -> None:
    async def scenario(controller: FakeController) -> None:
        site.agent("cn1", [], controller.endpoint)
        with pytest.raises(AssertionError):
            site.agent("cn1", [], controller.endpoint)
        assert "another agent serves this state directory" in site.logs()

    play(site, scenario)


def test_both_are_processes_that_end_on_sigterm(site: Site) -> None:
    async def scenario(controller: FakeController) -> None:
        satellite, endpoint = site.satellite(controller.endpoint)
        agent, _ = site.agent("cn1", [endpoint])
        await controller.registered(1)
        for child in (agent, satellite):
            child.terminate()
            assert await asyncio.to_thread(child.wait, START_TIMEOUT_S) == 0

    play(site, scenario)
