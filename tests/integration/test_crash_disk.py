"""An agent whose disk is full: it takes no work, says so, loses nothing, and goes on when there is room again.

Method: the kernel refuses to let the agent's files grow (RLIMIT_FSIZE), as it does when a disk is full; the step
supervisor is a process of its own and not concerned.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from eslurm.api.methods import BY_NAME
from eslurm.api.unix_client import Client
from eslurm.core.model.protocol import End, Gone, Heartbeat, Prepare, Unhealthy
from eslurm.core.relay.results import Status
from eslurm.ports.api import ApiRefused
from eslurm.v1.controller_pb2 import PingRequest
from tests.integration.test_esnoded import Site, launch, play
from tests.kits.daemons import agent_home
from tests.kits.fake_controller import PATIENCE_S, FakeController, payload

LOG_BYTES = 1 << 20


@pytest.fixture
def site(state_dir: Path) -> Iterator[Site]:
    # The limit holds for the agent's log, too: beyond it from the beginning, nothing of it is torn.
    (state_dir / "esnoded.log").write_bytes(bytes(LOG_BYTES))
    opened = Site(state_dir)
    try:
        yield opened
    finally:
        opened.close()
    logs = opened.logs()
    assert "Traceback" not in logs, logs[LOG_BYTES:]


def fill_disk(site: Site, agent: subprocess.Popen[bytes]) -> None:
    limit_files(agent, (agent_home(site.directory / "a") / "agent.spool").stat().st_size)


def make_room(agent: subprocess.Popen[bytes]) -> None:
    limit_files(agent, resource.RLIM_INFINITY)


def limit_files(agent: subprocess.Popen[bytes], size: int) -> None:
    """As the agent's own user: root may lack the right to change limits of others."""
    limit = "unlimited" if size == resource.RLIM_INFINITY else str(size)
    words = ["prlimit", "--pid", str(agent.pid), f"--fsize={limit}:unlimited"]
    owner = os.stat(f"/proc/{agent.pid}")
    if os.geteuid() == 0:
        # Not by options of subprocess, which would fork this process with its threads.
        words = ["setpriv", f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups", *words]
    subprocess.run(words, check=True)


async def problems(controller: FakeController) -> tuple[str, ...]:
    """The problems that the node reports of itself."""
    outcome = (await controller.order(Heartbeat(0), (0,)))[0]
    assert outcome.status is Status.OK
    if not outcome.payload:
        return ()
    return msgspec.msgpack.decode(outcome.payload, type=Unhealthy).problems


def call_through(door: Path) -> None:
    """A command at the agent's door, which goes up the same link as everything else."""
    with Client(door) as client, pytest.raises(ApiRefused, match="no such job"):
        client.call(BY_NAME["Ping"], PingRequest(), PATIENCE_S)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - the node is asked, it sets no event here
            await asyncio.sleep(0.05)


def test_a_full_disk_keeps_work_away_until_there_is_room(site: Site) -> None:
    async def scenario(controller: FakeController) -> None:
        agent, _ = site.agent("cn1", [], controller.endpoint)
        await controller.registered(1)
        assert "spool" not in await problems(controller)
        fill_disk(site, agent)
        for job_id in (7, 8):
            job = launch(controller, "echo $SLURM_JOB_ID >> ran", (0,), site, job_id)
            answer = (await controller.order(Prepare(job, start=True), (0,), revision=job_id))[0]
            assert answer.status is Status.FAILED and "spool cannot be written" in answer.text
        assert "spool" in await problems(controller)
        make_room(agent)

        async def is_well() -> bool:
            return "spool" not in await problems(controller)

        await until(is_well)
        job = launch(controller, "echo $SLURM_JOB_ID >> ran", (0,), site, 9)
        assert (await controller.order(Prepare(job, start=True), (0,), revision=9))[0].status is Status.OK
        await controller.until(lambda: controller.ends)
        assert (site.work / "ran").read_text() == "9\n"

    play(site, scenario)


@pytest.mark.parametrize("dies", [False, True])
def test_what_ends_on_a_full_disk_is_reported_and_never_runs_again(site: Site, dies: bool) -> None:
    async def scenario(controller: FakeController) -> None:
        agent, _ = site.agent("cn1", [], controller.endpoint)
        await controller.registered(1)
        os.mkfifo(site.work / "gate")
        job = launch(controller, "echo here >> ran; read line < gate; exit 5", (0,), site)
        assert (await controller.order(Prepare(job, start=True), (0,)))[0].status is Status.OK
        fill_disk(site, agent)
        (site.work / "gate").write_text("go\n")
        await controller.until(lambda: controller.ends)
        # Acknowledged, but that cannot be written down: whoever comes next has to learn of it from the supervisor.
        await controller.order(Heartbeat(0), (0,))
        if dies:
            agent.kill()
            agent.wait()
            site.agent("cn1", [], controller.endpoint)
            await controller.until(lambda: len(controller.registrations) == 2)
            assert [line.stage for line in controller.registrations[1].held] == ["ended"]
            assert [entry.starts for entry in controller.registrations] == [1, 2]
            await controller.until(lambda: any(end.incarnation == 2 for end in controller.ends))
        else:
            make_room(agent)
        assert {end.end.exit_code for end in controller.ends} == {5}

        async def is_buried() -> bool:
            answer = (await controller.order(End(7, 1, 0.0, "over"), (0,), revision=2, deadline_s=3.0))[0]
            return answer.status is Status.OK and bool(answer.payload) and payload(answer, Gone) == Gone(True)

        await until(is_buried)
        late = (await controller.order(Prepare(job, start=True), (0,), incarnation=1))[0]
        assert late.status is not Status.UNREACHED
        assert (site.work / "ran").read_text() == "here\n"

    play(site, scenario)


def test_an_agent_that_cannot_count_its_start_offers_nothing_until_it_can(site: Site) -> None:
    async def scenario(controller: FakeController) -> None:
        agent, _ = site.agent("cn1", [], controller.endpoint)
        await controller.registered(1)
        os.mkfifo(site.work / "gate")
        job = launch(controller, "echo here >> ran; read line < gate; exit 5", (0,), site)
        assert (await controller.order(Prepare(job, start=True), (0,)))[0].status is Status.OK
        agent.send_signal(signal.SIGTERM)
        await asyncio.to_thread(agent.wait)
        size = (agent_home(site.directory / "a") / "agent.spool").stat().st_size
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            agent, _ = site.agent("cn1", [], controller.endpoint)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        await asyncio.to_thread(call_through, site.directory / "a" / "door.sock")
        assert len(controller.registrations) == 1, "an offer would have gone up before the call"
        make_room(agent)
        await controller.until(lambda: len(controller.registrations) == 2)
        (site.work / "gate").write_text("go\n")
        await controller.until(lambda: controller.ends)
        assert (site.work / "ran").read_text() == "here\n"
        assert [entry.starts for entry in controller.registrations] == [1, 2]

    play(site, scenario)
