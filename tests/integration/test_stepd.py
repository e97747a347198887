"""The step supervisor with real processes: what it survives, what it starts and how, what it cleans up."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eslurm.ports.step_runner import (
    OutputEndpoint,
    OutputFrame,
    OutputHello,
    ResourceLimit,
    StepEndCause,
    StepEnded,
    StepRunnerError,
    StepSpec,
    StepStarted,
)
from esnoded.stepd import procfs
from esnoded.stepd.client import SupervisorClient
from esnoded.stepd.place import Place
from esnoded.stepd.wire import FrameBuffer
from tests.support.loops import both_loops, run
from tests.unit.stepd.kit import NOBODY, Outcomes, Site, end_process, eventually, key, supervised

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start steps of other users")
LIBC_SIGNALS = 0b11 << 31
"""Signals 32 and 33: glibc ignores them in what it spawns, and uses them itself."""

USERS = [pytest.param(os.getuid(), id="self"), pytest.param(NOBODY, id="other", marks=as_root)]


@pytest.fixture
def site(state_dir: Path) -> Iterator[Site]:
    with supervised(state_dir) as opened:
        opened.start()
        yield opened


def play(
    site: Site, scenario: Callable[[SupervisorClient, Outcomes], Awaitable[None]], *, uvloop: bool = False
) -> None:
    """Run a scenario with one agent connected."""

    async def main() -> None:
        outcomes = Outcomes()
        async with site.client(outcomes) as client:
            await scenario(client, outcomes)

    run(main(), uvloop=uvloop)


def outcome_of(site: Site, spec: StepSpec) -> StepEnded:
    """Run one step to its end."""
    found: list[StepEnded] = []

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(spec)
        found.append(await outcomes.of(spec.key))

    play(site, scenario)
    return found[0]


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


def test_a_killed_supervisor_loses_its_steps_and_ends_their_processes(site: Site) -> None:
    script = site.script("setsid sh -c 'echo > away; sleep 600' &\nsleep 600 &\necho > here; wait")

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        first = site.pid()
        await client.launch(site.spec(key(), script, kill_grace_us=3_600_000_000))
        await eventually(lambda: (site.work / "away").exists() and (site.work / "here").exists())
        assert len(site.step_processes()) >= 3
        site.kill_supervisor()
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


def test_an_idle_supervisor_goes_away_and_comes_back(state_dir: Path) -> None:
    with supervised(state_dir) as site:
        pid = site.start(idle_exit_s=0)
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


def test_a_long_directory_name_does_not_matter(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    for directory in (deep, tmp_path, tmp_path.parent):
        directory.chmod(0o755)
    with supervised(deep) as site:
        site.start()
        assert outcome_of(site, site.spec(key(), site.script("exit 2"))).exit_code == 2


# --- starting --------------------------------------------------------------------------------------------


@both_loops
def test_two_hundred_steps_at_once(site: Site, uvloop: bool) -> None:
    script = site.script('exit "$1"')

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        numbers = range(1, 201)
        await asyncio.gather(*(client.launch(site.spec(key(n), script, str(n % 100))) for n in numbers))
        for number in numbers:
            assert (await outcomes.of(key(number))).exit_code == number % 100
        assert len(outcomes.heard) == 200
        await client.acknowledge([key(number) for number in numbers])
        assert list(await client.list_steps()) == []

    play(site, scenario, uvloop=uvloop)


@pytest.mark.parametrize("uid", USERS)
def test_launches_of_the_same_step_at_once_start_it_once(site: Site, uid: int) -> None:
    spec = site.spec(key(), site.script("echo run >> runs; sleep 600"), uid=uid, gid=uid)

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        states = await asyncio.gather(*(client.launch(spec) for _ in range(20)))
        assert len(set(states)) == 1
        await client.terminate(key(), StepEndCause.SIGNALLED, 0)
        await outcomes.of(key())
        assert len(site.step_processes()) == 0

    play(site, scenario)
    runs = site.work / "runs"
    # It may have been killed between opening the file and writing to it.
    assert not runs.exists() or runs.read_text() in ("", "run\n")


@pytest.mark.parametrize("uid", USERS)
def test_output_goes_where_the_spec_says(site: Site, uid: int) -> None:
    script = site.script("echo out; echo err >&2; cat")
    (site.work / "in").write_text("fed\n")
    who: dict[str, Any] = {"uid": uid, "gid": uid}

    outcome_of(site, site.spec(key(1), script, stdout="both", stdin="in", umask=0o027, **who))
    both = site.work / "both"
    assert both.read_text() == "out\nerr\nfed\n"
    assert both.stat().st_mode & 0o777 == 0o640
    assert both.stat().st_uid == uid
    outcome_of(site, site.spec(key(2), script, stdout="both", open_mode="append", **who))
    assert both.read_text() == "out\nerr\nfed\nout\nerr\n"
    outcome_of(site, site.spec(key(3), script, stdout="both", stderr=str(site.work / "err"), **who))
    assert both.read_text() == "out\n"
    assert (site.work / "err").read_text() == "err\n"


@pytest.mark.parametrize("uid", USERS)
@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"argv": ("/no/such/program",)}, 127, "/no/such/program: no such file"),
        ({"argv": ("no-such-command",)}, 127, "no-such-command: command not found"),
        ({"argv": ("./plain",)}, 126, "./plain: permission denied"),
        ({"argv": ("./headless",)}, 126, "not a program"),
        ({"argv": ("./orphaned",)}, 126, "its interpreter"),
        ({"argv": ("./",)}, 126, "./: permission denied"),
        (
            {"cwd": "/no/such/directory"},
            1,
            "change to directory /no/such/directory: no such file or directory",
        ),
        ({"stdout": "absent/out"}, 1, "cannot open output file absent/out: no such file or directory"),
        ({"stderr": "absent/err"}, 1, "cannot open error output file absent/err"),
        ({"stdin": "absent"}, 1, "cannot open input file absent"),
        ({"argv": ("sh", "x" * 200_000)}, 126, "argument list too long"),
        ({"argv": ("sh", "nul\0byte")}, None, "null"),
        ({"limits": (ResourceLimit("nonsense", 1, 1),)}, 1, "unknown resource limit 'nonsense'"),
    ],
)
def test_a_users_mistake_is_an_outcome(
    site: Site, uid: int, fields: dict[str, Any], code: int | None, text: str
) -> None:
    site.script("echo hidden", "plain", mode=0o644)
    (site.work / "headless").write_bytes(b"\1\2\3 not a script")
    (site.work / "headless").chmod(0o755)
    site.script("#!/no/such/interpreter\n", "orphaned")
    rest = {name: value for name, value in fields.items() if name != "argv"}
    spec = site.spec(key(), *fields.get("argv", ("true",)), uid=uid, gid=uid, **rest)
    ended = outcome_of(site, spec)
    assert ended.cause is StepEndCause.SPAWN_FAILED
    assert text in ended.text
    assert ended.exit_code == code or (code is None and ended.exit_code in (1, 126))


def test_without_root_nobody_elses_step_is_started(state_dir: Path) -> None:
    from esnoded.stepd.spawn import Launchpad, SpawnError, spawn_task

    site = Site(state_dir)
    pad = Launchpad(uid=1000, gid=1000, groups=frozenset({1000}), null_fd=0)
    with pytest.raises(SpawnError, match="not as root"):
        spawn_task(pad, site.spec(key(), "true", uid=0, gid=0), {}, first=True, pipes=None)


@as_root
def test_a_step_runs_as_its_user_with_its_limits(site: Site) -> None:
    script = site.script("id -u; id -g; id -G; ulimit -Sn; ulimit -Hn; pwd")
    limits = (ResourceLimit("nofile", 200, 300), ResourceLimit("core", 0, -1))
    spec = site.spec(key(), script, uid=NOBODY, gid=NOBODY, groups=(12345,), limits=limits, stdout="out")
    assert outcome_of(site, spec).exit_code == 0
    lines = (site.work / "out").read_text().splitlines()
    assert lines[:2] == [str(NOBODY)] * 2
    assert sorted(lines[2].split()) == sorted(["12345", str(NOBODY)])
    assert lines[3:] == ["200", "300", str(site.work)]


@as_root
def test_what_the_user_may_not_see_is_looked_at_as_the_user(site: Site) -> None:
    secret = site.work / "secret"
    secret.mkdir(mode=0o700)
    who: dict[str, Any] = {"uid": NOBODY, "gid": NOBODY}
    assert "permission denied" in outcome_of(site, site.spec(key(1), "true", cwd=str(secret), **who)).text
    assert "permission denied" in outcome_of(site, site.spec(key(2), "true", stdout="secret/out", **who)).text
    assert not (secret / "out").exists()


@pytest.mark.parametrize("uid", USERS)
def test_a_task_inherits_nothing_but_its_three_streams(site: Site, uid: int) -> None:
    script = site.script(
        "ls /proc/$$/fd; grep -E 'Sig(Ign|Blk)' /proc/self/status; umask; ps -o sid= -p $$; echo $$"
    )
    outcome_of(site, site.spec(key(), script, uid=uid, gid=uid, stdout="out"))
    text = (site.work / "out").read_text().split()
    # The shell holds its script open as 10.
    assert [word for word in text[:4] if word != "10"][:3] == ["0", "1", "2"]
    assert int(text[text.index("SigBlk:") + 1], 16) == 0
    assert int(text[text.index("SigIgn:") + 1], 16) & ~LIBC_SIGNALS == 0
    assert "0022" in text
    assert text[-1] == text[-2]


@pytest.mark.parametrize("uid", USERS)
def test_a_task_ignores_nothing_that_whoever_started_its_supervisor_ignored(
    state_dir: Path, uid: int
) -> None:
    """As a shell has its background jobs ignore SIGINT and SIGQUIT, and `nohup` SIGHUP."""
    ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1)
    with supervised(state_dir) as site:
        before = {signum: signal.signal(signum, signal.SIG_IGN) for signum in ignored}
        try:
            site.start()
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)
        script = site.script("grep SigIgn /proc/self/status")
        outcome_of(site, site.spec(key(), script, uid=uid, gid=uid, stdout="out"))
        _, mask = (site.work / "out").read_text().split()
        assert int(mask, 16) & ~LIBC_SIGNALS == 0


@pytest.mark.parametrize("uid", USERS)
def test_tasks_know_their_rank_and_the_worst_exit_code_counts(site: Site, uid: int) -> None:
    script = site.script('echo "$ESLURM_PROCID $ESLURM_LOCALID $COLOUR"; exit $((ESLURM_LOCALID * 2))')
    colours = tuple({"COLOUR": colour} for colour in ("red", "green", "blue"))
    (site.work / "out").write_text("old\n")
    (site.work / "out").chmod(0o666)
    spec = site.spec(key(), script, tasks=3, first_task=10, task_env=colours, stdout="out", uid=uid, gid=uid)
    assert outcome_of(site, spec).exit_code == 4
    assert sorted((site.work / "out").read_text().splitlines()) == ["10 0 red", "11 1 green", "12 2 blue"]


def test_an_outcome_says_what_the_step_used(site: Site) -> None:
    ended = outcome_of(
        site, site.spec(key(), site.script("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"))
    )
    assert ended.user_cpu_us + ended.system_cpu_us > 20_000
    assert ended.max_rss_kib > 500


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
        "set -m\nsh -c 'trap \"echo got > got; exit\" USR1; echo > up; while :; do sleep 0.05; done' &\n"
        "trap : USR1\nwhile [ ! -e got ]; do sleep 0.05; done; exit 3"
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


class Reader:
    """The listener of an interactive command; `impatient`, it hangs up after the first output."""

    def __init__(self, *, impatient: bool = False) -> None:
        self.hellos: list[OutputHello] = []
        self.frames: list[OutputFrame] = []
        self.closed = asyncio.Event()
        self._impatient = impatient

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        buffer = FrameBuffer()
        while not (self._impatient and self.frames) and (data := await reader.read(65536)):
            for body in buffer.feed(data):
                if not self.hellos:
                    self.hellos.append(msgspec.msgpack.decode(body, type=OutputHello))
                else:
                    self.frames.append(msgspec.msgpack.decode(body, type=OutputFrame))
        writer.close()
        self.closed.set()

    def text(self, task: int, stream: int) -> bytes:
        return b"".join(frame.data for frame in self.frames if (frame.task, frame.stream) == (task, stream))


@pytest.mark.parametrize("family", ["unix", "tcp"])
@pytest.mark.parametrize("uid", USERS)
def test_output_is_streamed_to_a_waiting_command(site: Site, family: str, uid: int) -> None:
    script = site.script(
        "echo out $ESLURM_PROCID; echo err >&2; head -c 3000000 /dev/zero; exit $ESLURM_LOCALID"
    )

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        reader = Reader()
        path = str(site.work / "s")
        if family == "unix":
            server = await asyncio.start_unix_server(reader.serve, path)
            endpoint = OutputEndpoint(path, 0, b"cookie")
        else:
            server = await asyncio.start_server(reader.serve, "127.0.0.1", 0)
            endpoint = OutputEndpoint("127.0.0.1", server.sockets[0].getsockname()[1], b"cookie")
        async with server:
            spec = site.spec(key(node=4), script, tasks=2, first_task=6, endpoint=endpoint, uid=uid, gid=uid)
            await client.launch(spec)
            assert (await outcomes.of(spec.key)).exit_code == 1
            await reader.closed.wait()
        assert reader.hellos == [OutputHello(b"cookie", spec.key, "cn1", 2)]
        for task in (6, 7):
            assert reader.text(task, 1) == f"out {task}\n".encode() + bytes(3_000_000)
            assert reader.text(task, 2) == b"err\n"
            ends = {frame.stream for frame in reader.frames if frame.task == task and frame.eof}
            assert ends == {1, 2}
        exits = {frame.task: frame.exit_status for frame in reader.frames if frame.exit_status is not None}
        assert exits == {6: 0, 7: 1}
        assert {frame.node for frame in reader.frames} == {4}

    play(site, scenario)


def test_a_step_whose_reader_is_gone_is_ended(site: Site) -> None:
    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        reader = Reader(impatient=True)
        path = str(site.work / "s")
        async with await asyncio.start_unix_server(reader.serve, path):
            # It neither dies of SIGPIPE nor blocks on a full pipe before the supervisor ends it.
            script = site.script("trap 'echo > ended; exit 9' TERM\nwhile :; do echo still here; done")
            endpoint = OutputEndpoint(path, 0, b"c")
            await client.launch(site.spec(key(), script, endpoint=endpoint, kill_grace_us=20_000_000))
            ended = await outcomes.of(key())
        assert (ended.cause, ended.exit_code) == (StepEndCause.SIGNALLED, 9)
        assert "output lost" in ended.text

    play(site, scenario)


@pytest.mark.parametrize("host", ["/no/such/socket", "127.0.0.1", "not.an.address.example"])
def test_a_reader_that_cannot_be_reached_ends_the_step(site: Site, host: str) -> None:
    spec = site.spec(key(), "sleep", "600", endpoint=OutputEndpoint(host, 1, b"c"))
    ended = outcome_of(site, spec)
    assert ended.cause is StepEndCause.SIGNALLED
    assert "output lost" in ended.text


# --- the client ------------------------------------------------------------------------------------------


def test_requests_have_bounds(site: Site) -> None:
    async def scenario() -> None:
        async with site.client(Outcomes(), requests_max=2) as client:
            held = [asyncio.create_task(client.list_steps()) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(StepRunnerError, match="unanswered"):
                await client.list_steps()
            await asyncio.gather(*held)
            with pytest.raises(StepRunnerError, match="exceeds the limit"):
                await client.launch(site.spec(key(), "x" * 17_000_000))
            with pytest.raises(StepRunnerError, match="not a signal"):
                await client.signal(key(), 999)
            with pytest.raises(StepRunnerError, match="task environments"):
                await client.launch(site.spec(key(), "true", tasks=2, task_env=({},)))
        with pytest.raises(StepRunnerError, match="closed"):
            await client.list_steps()

    run(scenario())


def test_closing_answers_who_waits(state_dir: Path) -> None:
    async def scenario() -> None:
        def fail(_state_dir: Path) -> None:
            raise OSError("no supervisor today")

        client = SupervisorClient(state_dir, Outcomes(), restart=fail)
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
            spec = site.spec(key(node=node), "sleep", "600", orphan_timeout_us=1_000_000)
            assert isinstance(await client.launch(spec), StepStarted)
        ended = asyncio.create_task(outcomes.of(key(node=1)))
        while not ended.done():
            await client.contact([2])
            await asyncio.wait([ended], timeout=0.05)
        assert ended.result().cause is StepEndCause.ORPHANED
        assert [type(state) for state in await client.list_steps()] == [StepEnded, StepStarted]
        await outcomes.of(key(node=2))

    play(site, scenario)
