"""The step supervisor with real processes: what it survives, what it cleans up, and its output to who waits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from eslurm.ports.step_runner import (
    OutputEndpoint,
    OutputFrame,
    OutputHello,
    StepEndCause,
    StepOutcome,
    StepRunnerError,
    StepStarted,
)
from eslurm.security.step_stream import StreamOpener
from esnoded.procd import procfs
from esnoded.procd.launches import Launches
from esnoded.stepd.client import SupervisorClient
from esnoded.stepd.journal import Begun, Finished, Intent, Journal, Used
from esnoded.stepd.place import Place
from tests.kits.stepd import NOBODY, Outcomes, Site, end_process, eventually, key, supervised
from tests.kits.stepd_processes import USERS, outcome_of, play
from tests.support.groups import as_root
from tests.support.loops import both_loops, run
from tests.support.ports import free_port


@pytest.fixture
def site(state_dir: Path) -> Iterator[Site]:
    with supervised(state_dir) as opened:
        opened.start()
        yield opened


# --- surviving -------------------------------------------------------------------------------------------


@both_loops
def test_a_step_outlives_its_agent_and_is_adopted_by_the_next(site: Site, uvloop: bool) -> None:
    spec = site.spec(key(), site.script("read line < gate; exit 7"))
    os.mkfifo(site.work / "gate")
    started: list[object] = []

    async def launch(client: SupervisorClient, _outcomes: Outcomes) -> None:
        started.append(await client.launch(spec))

    async def adopt(client: SupervisorClient, outcomes: Outcomes) -> None:
        assert list(await client.list_steps()) == started
        (site.work / "gate").write_text("go\n")
        assert (await outcomes.of(key())).exit_code == 7

    play(site, launch, uvloop=uvloop)
    play(site, adopt, uvloop=uvloop)


def test_a_step_that_ends_without_an_agent_is_reported_to_the_next(site: Site) -> None:
    async def launch(client: SupervisorClient, _outcomes: Outcomes) -> None:
        await client.launch(site.spec(key(), site.script("echo done > mark; exit 4")))

    async def adopt(client: SupervisorClient, outcomes: Outcomes) -> None:
        assert (await outcomes.of(key())).exit_code == 4

    play(site, launch)
    run(eventually((site.work / "mark").exists))
    play(site, adopt)


@pytest.mark.parametrize("part", ["pid", "server_pid"])
def test_a_killed_supervisor_loses_its_steps_and_ends_their_processes(site: Site, part: str) -> None:
    script = site.script("setsid sh -c 'echo > away; sleep 600' &\nsleep 600 &\necho > here; wait")

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        first = site.pid()
        await client.launch(site.spec(key(), script, kill_grace_us=3_600_000_000))
        await eventually(lambda: (site.work / "away").exists() and (site.work / "here").exists())
        assert len(site.step_processes()) >= 3
        status = Place(site.state).find_supervisor()
        assert status is not None
        end_process(getattr(status, part), signal.SIGKILL)
        lost = await outcomes.of(key())
        assert lost.cause is StepEndCause.LOST
        assert "supervisor died" in lost.text
        assert site.step_processes() == []
        assert site.pid() not in (0, first)

    play(site, scenario)


def test_an_outcome_outlives_the_supervisor_until_it_is_acknowledged(site: Site) -> None:
    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        spec = site.spec(key(), site.script("exit 9"))
        await client.launch(spec)
        before = await outcomes.of(key())
        outcomes.heard.clear()
        site.kill_supervisor()
        assert await outcomes.of(key()) == before
        assert await client.launch(spec) == before
        await client.acknowledge([key()])
        site.kill_supervisor()
        assert list(await client.list_steps()) == []

    play(site, scenario)


def test_requests_under_way_when_the_supervisor_dies_are_answered_by_the_next(site: Site) -> None:
    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.list_steps()
        os.kill(site.pid(), signal.SIGSTOP)
        script = site.script("exit 0")
        waiting = [asyncio.create_task(client.launch(site.spec(key(n), script))) for n in range(1, 6)]
        await asyncio.sleep(0)
        site.kill_supervisor()
        await asyncio.gather(*waiting)
        for number in range(1, 6):
            assert (await outcomes.of(key(number))).cause is StepEndCause.EXITED

    play(site, scenario)


def test_a_stopped_supervisor_ends_its_steps_and_leaves_their_outcomes(site: Site) -> None:
    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(
            site.spec(key(), site.script("trap 'exit 6' TERM; echo > up; while :; do sleep 0.05; done"))
        )
        await eventually((site.work / "up").exists)
        os.kill(site.pid(), signal.SIGTERM)
        ended = await outcomes.of(key())
        assert (ended.cause, ended.exit_code) == (StepEndCause.SIGNALLED, 6)
        assert "stopped" in ended.text

    play(site, scenario)


def test_what_a_supervisor_left_that_was_root_as_a_whole_is_taken_over(state_dir: Path) -> None:
    """It kept its journal, and whom it had started, beside the socket."""
    sleeper = subprocess.Popen(["sleep", "600"], env={}, start_new_session=True)
    with supervised(state_dir) as site:
        place = Place(site.state)
        place.prepare()
        before = StepOutcome(key(1), 3, 0, StepEndCause.EXITED)
        journal = Journal(place.root_journal, procfs.read_boot_id())
        for record in (
            Used(key(1), 1 << 60),
            Finished(before),
            Intent(key(2), 5),
            Begun(key(2), ((sleeper.pid, procfs.start_ticks_of(sleeper.pid)),)),
        ):
            journal.add(record)
        journal.close()
        site.start()

        async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
            assert await outcomes.of(key(1)) == before
            assert (await outcomes.of(key(2))).cause is StepEndCause.LOST

        play(site, scenario)
        assert sleeper.wait(30) == -9
        assert not Path(place.root_journal).exists() and Path(place.journal).exists()
        assert Launches(place.launches, procfs.read_boot_id()).is_used(key(1), 1)


def test_an_idle_supervisor_goes_away_and_comes_back(state_dir: Path) -> None:
    with supervised(state_dir) as site:
        # Long enough to be seen at all by who starts it.
        pid = site.start(idle_exit_s=2)
        with contextlib.suppress(ProcessLookupError):
            end_process(pid)
        assert site.pid() == 0
        assert not Path(Place(site.state).socket).exists()
        assert site.start() != pid


def test_only_one_supervisor_serves_a_directory(site: Site) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        site.kill_supervisor()
        pids = await asyncio.gather(*(loop.run_in_executor(None, site.start) for _ in range(4)))
        assert len(set(pids)) == 1

    run(main())


def test_a_long_directory_name_does_not_matter(state_dir: Path) -> None:
    deep = state_dir / ("d" * 120)
    deep.mkdir()
    for directory in (deep, state_dir):
        directory.chmod(0o755)
    with supervised(deep) as site:
        site.start()
        assert outcome_of(site, site.spec(key(), site.script("exit 2"))).exit_code == 2


# --- ending ----------------------------------------------------------------------------------------------


def test_what_a_step_leaves_in_the_background_ends_with_it(site: Site) -> None:
    script = site.script(
        "sleep 600 & setsid sh -c 'echo > away; exec sleep 600' & while [ ! -e away ]; do :; done"
    )

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(site.spec(key(1), script))
        assert (await outcomes.of(key(1))).cause is StepEndCause.EXITED
        await eventually(lambda: site.step_processes() == [])

    play(site, scenario)


@pytest.mark.parametrize("hide", ["", "env -i PATH=/usr/bin:/bin"], ids=["marked", "hidden"])
def test_a_supervisor_that_is_stopped_leaves_nothing_of_its_steps(site: Site, hide: str) -> None:
    """Daemons of daemons: each is adopted only when its parent has been killed."""
    nest = site.script(
        f"trap '' TERM\necho $$ >> pids\ntest $1 -gt 1 && {hide} setsid $0 $(($1 - 1)) &\nsleep 600", "nest"
    )
    started = site.work / "pids"
    script = site.script(f"setsid {nest} 20 &\nuntil test $(wc -l < pids) -eq 20; do sleep 0.01; done")
    started.touch(0o666)

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(site.spec(key(1), script))
        assert (await outcomes.of(key(1))).exit_code == 0

    play(site, scenario)
    end_process(site.pid(), signal.SIGTERM)
    found = [procfs.find_process(int(pid)) for pid in started.read_text().split()]
    left = [process.pid for process in found if process is not None and process.state != "Z"]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


@pytest.mark.parametrize("uid", USERS)
def test_a_task_has_the_limits_of_the_process_that_asked_for_it(site: Site, uid: int) -> None:
    env = {"PATH": "/usr/bin:/bin", "SLURM_RLIMIT_NOFILE": "123", "SLURM_RLIMIT_FSIZE": "1024000", "A": "1"}
    script = site.script("ulimit -Sn; ulimit -Sf; env | grep -c RLIMIT; echo $A", "limits")
    spec = site.spec(key(1), script, uid=uid, gid=uid, env=env, stdout=str(site.work / "said"))
    assert outcome_of(site, spec).exit_code == 0
    assert (site.work / "said").read_text().split() == ["123", "2000", "0", "1"]
    assert outcome_of(site, site.spec(key(2), site.script("test $(ulimit -Sn) != 123"))).exit_code == 0


def test_a_neighbours_daemon_is_left_alone(site: Site) -> None:
    daemon = site.script("(setsid sh -c 'echo $$ > daemon; exec sleep 600' &); read line < gate")
    os.mkfifo(site.work / "gate")

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(site.spec(key(1), daemon))
        await eventually(lambda: (site.work / "daemon").exists() and (site.work / "daemon").read_text())
        pid = int((site.work / "daemon").read_text())
        await client.launch(site.spec(key(2), "true"))
        await outcomes.of(key(2))
        assert procfs.find_process(pid) is not None
        (site.work / "gate").write_text("go\n")
        await outcomes.of(key(1))
        await eventually(lambda: site.step_processes() == [])

    play(site, scenario)


def test_a_signal_reaches_processes_in_other_groups_of_the_session(site: Site) -> None:
    # Job control puts each background job into a group of its own.
    script = site.script(
        "set -m\ntrap : USR1\n"
        "sh -c 'trap \"echo got > got; exit\" USR1; echo > up; while :; do sleep 0.05; done' &\n"
        "while [ ! -e got ]; do sleep 0.05; done; exit 3"
    )

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(site.spec(key(), script))
        await eventually((site.work / "up").exists)
        assert await client.signal(key(), signal.SIGUSR1)
        assert (await outcomes.of(key())).exit_code == 3

    play(site, scenario)


def test_a_stopped_step_is_woken_to_be_ended(site: Site) -> None:
    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        script = site.script("trap 'exit 5' TERM; echo > up; while :; do sleep 0.02; done")
        await client.launch(site.spec(key(), script, kill_grace_us=60_000_000))
        await eventually((site.work / "up").exists)
        await client.signal(key(), signal.SIGSTOP)
        await client.terminate(key(), StepEndCause.SIGNALLED, 60_000_000)
        assert (await outcomes.of(key())).exit_code == 5

    play(site, scenario)


@as_root
def test_a_step_may_be_ended_while_it_is_being_started(site: Site) -> None:
    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        for number in range(1, 21):
            spec = site.spec(key(number), "sleep", "600", uid=NOBODY, gid=NOBODY)
            launching = asyncio.create_task(client.launch(spec))
            await asyncio.sleep(0)
            await client.terminate(key(number), StepEndCause.SIGNALLED, 0)
            await launching
            ended = await outcomes.of(key(number))
            assert (ended.cause, ended.exit_code) == (StepEndCause.SIGNALLED, 0)

    play(site, scenario)


# --- output to a waiting command -------------------------------------------------------------------------


COOKIE = bytes(range(32))


class Reader:
    """The listener of an interactive command; `impatient`, it hangs up after the first output."""

    def __init__(self, *, impatient: bool = False) -> None:
        self.hellos: list[OutputHello] = []
        self.frames: list[OutputFrame] = []
        self.closed = asyncio.Event()
        self._impatient = impatient

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = StreamOpener(COOKIE)
        while not (self._impatient and self.frames) and (data := await reader.read(65536)):
            for body in stream.feed(data):
                if not self.hellos:
                    self.hellos.append(msgspec.msgpack.decode(body, type=OutputHello))
                else:
                    self.frames.append(msgspec.msgpack.decode(body, type=OutputFrame))
        writer.close()
        self.closed.set()

    def text(self, task: int, stream: int) -> bytes:
        return b"".join(frame.data for frame in self.frames if (frame.task, frame.stream) == (task, stream))


async def listen(reader: Reader) -> tuple[asyncio.Server, OutputEndpoint]:
    """A listener on loopback, and where a step finds it."""
    server = await asyncio.start_server(reader.serve, "127.0.0.1", 0)
    return server, OutputEndpoint("127.0.0.1", server.sockets[0].getsockname()[1], COOKIE)


@pytest.mark.parametrize("uid", USERS)
def test_output_is_streamed_to_a_waiting_command(site: Site, uid: int) -> None:
    script = site.script(
        "echo out $ESLURM_PROCID; echo err >&2; head -c 3000000 /dev/zero; exit $ESLURM_LOCALID"
    )

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        reader = Reader()
        server, endpoint = await listen(reader)
        async with server:
            spec = site.spec(key(node=4), script, tasks=2, first_task=6, endpoint=endpoint, uid=uid, gid=uid)
            await client.launch(spec)
            assert (await outcomes.of(spec.key)).exit_code == 1
            await reader.closed.wait()
        assert reader.hellos == [OutputHello(spec.key, "cn1", 2, resumes=True)]
        for task in (6, 7):
            assert reader.text(task, 1) == f"out {task}\n".encode() + bytes(3_000_000)
            assert reader.text(task, 2) == b"err\n"
            ends = {frame.stream for frame in reader.frames if frame.task == task and frame.eof}
            assert ends == {1, 2}
        exits = {frame.task: frame.exit_status for frame in reader.frames if frame.exit_status is not None}
        assert exits == {6: 0, 7: 1}
        assert {frame.node for frame in reader.frames} == {4}

    play(site, scenario)


@pytest.mark.parametrize("uid", USERS)
def test_a_task_whose_output_is_streamed_inherits_nothing_else(site: Site, uid: int) -> None:
    """A descriptor that came over a socket is inherited unless that is forbidden: another step's output would leak."""

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        reader, other = Reader(), Reader()
        server, endpoint = await listen(reader)
        elsewhere, other_endpoint = await listen(other)
        async with server, elsewhere:
            greets = ("sh", "-c", "echo here; exec sleep 600")
            await client.launch(site.spec(key(1), *greets, endpoint=other_endpoint, uid=uid, gid=uid))
            await eventually(lambda: other.text(0, 1))
            spec = site.spec(key(2), "ls", "/proc/self/fd", endpoint=endpoint, uid=uid, gid=uid)
            await client.launch(spec)
            await outcomes.of(spec.key)
            await reader.closed.wait()
            # `ls` has the directory open.
            assert reader.text(0, 1).split() == [b"0", b"1", b"2", b"3"]
            await client.terminate(key(1), StepEndCause.SIGNALLED, 0)
            await outcomes.of(key(1))
            await other.closed.wait()

    play(site, scenario)


def test_a_step_whose_reader_is_gone_is_ended(site: Site) -> None:
    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        reader = Reader(impatient=True)
        server, endpoint = await listen(reader)
        async with server:
            # It neither dies of SIGPIPE nor blocks on a full pipe before the supervisor ends it.
            script = site.script("trap 'echo > ended; exit 9' TERM\nwhile :; do echo still here; done")
            await client.launch(site.spec(key(), script, endpoint=endpoint, kill_grace_us=20_000_000))
            ended = await outcomes.of(key())
        assert (ended.cause, ended.exit_code) == (StepEndCause.SIGNALLED, 9)
        assert "output lost" in ended.text

    play(site, scenario)


@pytest.mark.parametrize("uid", USERS)
def test_a_reader_that_cannot_be_reached_ends_the_step(site: Site, uid: int) -> None:
    endpoint = OutputEndpoint("127.0.0.1", free_port(), COOKIE)
    spec = site.spec(key(), "sleep", "600", endpoint=endpoint, uid=uid, gid=uid)
    ended = outcome_of(site, spec)
    assert ended.cause is StepEndCause.SIGNALLED
    assert "output lost" in ended.text


# --- the client ------------------------------------------------------------------------------------------


def test_requests_have_bounds(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esnoded.stepd.client._REQUESTS_MAX", 2)

    async def scenario() -> None:
        async with site.client(Outcomes()) as client:
            held = [asyncio.create_task(client.list_steps()) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(StepRunnerError, match="unanswered"):
                await client.list_steps()
            await asyncio.gather(*held)
            with pytest.raises(StepRunnerError, match="exceeds the limit"):
                await client.launch(site.spec(key(), "x" * 17_000_000))
            with pytest.raises(StepRunnerError, match="not a signal"):
                await client.signal(key(), 999)
            with pytest.raises(StepRunnerError, match="tasks: 0 is not within"):
                await client.launch(site.spec(key(step=0), "true", tasks=0))
        with pytest.raises(StepRunnerError, match="closed"):
            await client.list_steps()

    run(scenario())


def test_closing_answers_who_waits() -> None:
    async def scenario() -> None:
        def fail() -> socket.socket:
            raise OSError("no supervisor today")

        client = SupervisorClient(fail, Outcomes())
        client.start()
        waiting = asyncio.create_task(client.list_steps())
        await eventually(lambda: client.trouble == "no supervisor today")
        await client.close()
        with pytest.raises(StepRunnerError, match="closed"):
            await waiting

    run(scenario())


def test_contact_by_node_keeps_that_nodes_orphans_alive(site: Site) -> None:
    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        for node in (1, 2):
            # Longer than this process may stand still between two contacts.
            spec = site.spec(key(node=node), "sleep", "600", orphan_timeout_us=6_000_000)
            assert isinstance(await client.launch(spec), StepStarted)
        ended = asyncio.create_task(outcomes.of(key(node=1)))
        while not ended.done():
            await client.contact([2])
            await asyncio.wait([ended], timeout=0.05)
        assert ended.result().cause is StepEndCause.ORPHANED
        assert [type(state) for state in await client.list_steps()] == [StepOutcome, StepStarted]
        await outcomes.of(key(node=2))

    play(site, scenario)
