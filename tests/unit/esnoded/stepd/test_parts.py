"""The supervisor's small parts: timers, frames, /proc, its place, recovery after a reboot."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import StepEndCause, StepOutcome, StepSpec
from eslurm.telemetry.clocks import boot_us
from esnoded.procd import procfs, roundup
from esnoded.procd.families import parse_key
from esnoded.procd.launches import Launches
from esnoded.procd.log import complain
from esnoded.procd.server import _REAPED_MAX
from esnoded.stepd import wire
from esnoded.stepd.journal import Unfinished
from esnoded.stepd.place import Place, SupervisorStatus
from esnoded.stepd.recovery import lost_steps
from esnoded.stepd.step import Step
from esnoded.stepd.terms import terms_of
from esnoded.stepd.timers import Timers
from esnoded.task.program import STEP_MARKER
from tests.kits.stepd import key
from tests.kits.stepd_direct import Direct


def test_timers_fire_in_order_and_not_before_they_are_due() -> None:
    timers, fired = Timers(), list[str]()
    timers.at(20, lambda: fired.append("b"))
    timers.at(10, lambda: fired.append("a"))
    timers.at(20, lambda: fired.append("c"))
    cancelled = timers.at(15, lambda: fired.append("never"))
    cancelled.cancel()
    cancelled.cancel()
    timers.run_due(9)
    assert fired == []
    timers.run_due(20)
    assert fired == ["a", "b", "c"]
    assert timers.next_due_us() is None


def test_a_timer_set_by_a_timer_waits_for_the_next_pass() -> None:
    timers, fired = Timers(), list[int]()

    def again() -> None:
        fired.append(1)
        timers.at(0, again)

    timers.at(0, again)
    timers.run_due(5)
    timers.run_due(5)
    assert fired == [1, 1]


def test_a_timer_cancelled_by_an_earlier_one_of_its_pass_stays_silent() -> None:
    timers, fired = Timers(), list[str]()
    timers.at(1, lambda: victim.cancel())
    victim = timers.at(2, lambda: fired.append("victim"))
    timers.run_due(2)
    assert fired == []


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers()
    kept = timers.at(10**12, lambda: None)
    for _ in range(100_000):
        timers.at(10**12, lambda: None).cancel()
        assert len(timers) < 5000
    assert timers.next_due_us() == kept.due_us


def test_frames_are_cut_the_same_however_the_bytes_arrive() -> None:
    messages = [wire.Hello(1), wire.ListSteps(2), wire.Contact(tuple(range(300)))]
    stream = b"".join(map(wire.encode_frame, messages))
    decoder = msgspec.msgpack.Decoder(wire.Request)
    for size in (1, 2, 3, 5, 7, len(stream)):
        buffer, found = wire.FrameBuffer(), []
        for start in range(0, len(stream), size):
            found += [decoder.decode(body) for body in buffer.feed(stream[start : start + size])]
        assert found == messages


def test_an_oversized_frame_is_refused_on_both_sides() -> None:
    with pytest.raises(wire.WireError, match="limit"):
        wire.FrameBuffer().feed((wire.FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    with pytest.raises(wire.WireError, match="limit"):
        wire.encode_frame(wire.Refused(1, "x" * (wire.FRAME_BYTES_MAX + 1)))


def test_an_older_reader_skips_fields_it_does_not_know() -> None:
    body = msgspec.msgpack.encode([10, wire.PROTOCOL_VERSION, "news"])
    assert msgspec.msgpack.decode(body, type=wire.Request) == wire.Hello(wire.PROTOCOL_VERSION)


@pytest.mark.parametrize("each", [key(), StepKey(2**31 - 1, 9, 12, 20_479), key(step=0)])
def test_a_key_survives_the_marker(each: StepKey) -> None:
    assert parse_key(str(each)) == each


@pytest.mark.parametrize(
    "text",
    [
        *("", "1.2.3", "1.2.3.4.5", "a.b.c.d", "1.2..4", "1.2.--3.4", "1.2.-.4"),
        pytest.param("9" * 5_000 + ".1.1.1", id="long"),
    ],
)
def test_what_is_no_key_is_no_key(text: str) -> None:
    assert parse_key(text) is None


def marked(process: subprocess.Popen[bytes]) -> None:
    """That a program was started is known a moment before its environment can be read."""
    while not procfs.marker_of(process.pid):
        assert process.poll() is None
        time.sleep(0.001)


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with an awkward name, in a session of its own."""
    program = tmp_path / "a) R (b"
    program.symlink_to("/bin/sleep")
    env = {STEP_MARKER: "abc/1.1.-1.0"}
    with subprocess.Popen([program, "600"], env=env, start_new_session=True) as process:
        try:
            marked(process)
            yield process
        finally:
            process.kill()


def test_a_process_is_known_by_its_start_time_and_marker(sleeper: subprocess.Popen[bytes]) -> None:
    found = procfs.find_process(sleeper.pid)
    assert found is not None
    assert (found.parent, found.session) == (os.getpid(), sleeper.pid)
    assert found.start_ticks == procfs.start_ticks_of(sleeper.pid) > 0
    assert procfs.marker_of(sleeper.pid) == "abc/1.1.-1.0"
    assert sleeper.pid in {process.pid for process in procfs.all_processes()}
    assert procfs.find_process(2**22 + 1) is None
    assert procfs.start_ticks_of(2**22 + 1) == 0


def test_what_an_earlier_one_left_is_killed_by_its_mark(sleeper: subprocess.Popen[bytes]) -> None:
    assert roundup.end_all("abc") == []
    assert sleeper.wait(30) == -9


def test_what_an_earlier_one_left_is_killed_by_its_recorded_identity(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    launches = Launches(str(tmp_path / "launches"), "boot")
    launches.rewrite()
    launches.began(sleeper.pid, procfs.start_ticks_of(sleeper.pid))
    launches.began(2**22 + 1, 1)
    launches.ended(2**22 + 1)
    os.close(launches._fd)
    roundup.end_all("other", Launches(str(tmp_path / "launches"), "boot").leaders)
    assert sleeper.wait(30) == -9


def test_a_recycled_pid_is_spared(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    ticks = procfs.start_ticks_of(sleeper.pid)
    for boot_id, start in (("boot", ticks + 1), ("an earlier boot", ticks)):
        launches = Launches(str(tmp_path / boot_id), boot_id)
        launches.rewrite()
        launches.began(sleeper.pid, start)
        os.close(launches._fd)
        roundup.end_all("other", Launches(str(tmp_path / boot_id), "boot").leaders)
    assert sleeper.poll() is None


def test_steps_of_a_supervisor_that_is_gone_are_lost() -> None:
    (lost,) = lost_steps([Unfinished(key(), "boot", 5)], [], "boot", 9)
    assert lost == StepOutcome(key(), 0, 0, StepEndCause.LOST, "its step supervisor died while it ran", 5, 9)
    (lost,) = lost_steps([Unfinished(key(), "boot", 5)], [], "later", 9)
    assert "rebooted" in lost.text
    (lost,) = lost_steps([Unfinished(key(), "boot", 5)], [7, 8], "boot", 9)
    assert lost.text.endswith("; processes that did not end: 7 8")


def test_who_cannot_be_killed_is_named_and_keeps_nobody_waiting(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def refuse(fd: int, signum: int) -> None:
        tries.append(signum)
        raise PermissionError

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    monkeypatch.setattr(roundup, "_KILL_WAIT_US", 1_000)
    assert roundup.end_all("abc") == [sleeper.pid]
    assert set(tries) == {signal.SIGKILL}


def test_what_forks_while_it_is_looked_for_is_ended_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter([[7], [8, 9], [9], []])
    killed: list[int] = []

    def find(*_arguments: object) -> list[procfs.Process]:
        return [procfs.Process(pid, "S", 1, pid, pid, 0) for pid in next(rounds)]

    monkeypatch.setattr(roundup, "_find_all", find)
    monkeypatch.setattr(procfs, "kill_exactly", lambda process, _signum: killed.append(process.pid))
    assert roundup.end_all("abc") == []
    assert killed == [7, 8, 9, 9]


def test_a_process_that_has_got_the_number_of_one_that_is_gone_is_spared(
    sleeper: subprocess.Popen[bytes],
) -> None:
    found = procfs.find_process(sleeper.pid)
    assert found is not None
    procfs.kill_exactly(found._replace(start_ticks=found.start_ticks - 1), signal.SIGKILL)
    assert sleeper.poll() is None
    procfs.kill_exactly(found, signal.SIGKILL)
    assert sleeper.wait(30) == -9


def test_a_supervisor_is_found_only_while_it_lives(tmp_path: Path) -> None:
    place, me = Place(tmp_path / "sv"), os.getpid()
    place.prepare()
    assert place.find_supervisor() is None
    alive = SupervisorStatus(me, procfs.start_ticks_of(me), procfs.read_boot_id(), "i", 1)
    place.write_status(alive)
    assert place.find_supervisor() == alive
    for changes in ({"start_ticks": 1}, {"boot_id": "another"}, {"pid": 2**22 + 1}):
        place.write_status(msgspec.structs.replace(alive, **changes))
        assert place.find_supervisor() is None
    Path(place.status).write_text("{")
    assert place.find_supervisor() is None


def test_an_instance_keeps_its_name(tmp_path: Path) -> None:
    Place(tmp_path).prepare()
    assert Place(tmp_path).instance() == Place(tmp_path).instance()
    assert Place(tmp_path).instance() != Place("/tmp").directory


def test_how_long_a_step_ran_is_not_told_by_the_wall_clock() -> None:
    spec = StepSpec(key(1), "cn1", os.getuid(), os.getgid(), ("true",), {}, "/")
    ended = Step(terms_of(spec), launched_us=5_000_000, started_us=1_750_000_000_000_000).end(7_500_000)
    assert (ended.started_us, ended.ended_us) == (1_750_000_000_000_000, 1_750_000_002_500_000)


def test_the_boot_clock_counts_up() -> None:
    first = boot_us()
    assert 0 < first <= boot_us()


def test_of_an_environment_without_end_only_the_beginning_is_read() -> None:
    """Attack: each look for a mark would read what a user's thousand processes carry, two megabytes each."""
    flood = {f"X{number}": "x" * 120_000 for number in range(4)}
    for env, mark in (
        ({STEP_MARKER: "m/1.1.1.1"} | flood, "m/1.1.1.1"),
        (flood | {STEP_MARKER: "m/1.1.1.1"}, ""),
    ):
        process = subprocess.Popen(["/bin/sleep", "60"], env=env)
        try:
            # Its variables are there a moment after the end of `exec`.
            while not Path(f"/proc/{process.pid}/environ").read_bytes():
                pass
            assert procfs.marker_of(process.pid) == mark
            assert procfs.uid_of(process.pid) == os.getuid()
        finally:
            process.kill()
            process.wait()
        assert procfs.uid_of(process.pid) == -1


def test_a_flood_of_dead_children_is_collected_between_requests() -> None:
    """Attack: a step that leaves orphans faster than they are collected would keep `procd` from all else."""
    procd = Direct("flood").procd
    # The process of the tests may have other children, which live.
    children = {os.posix_spawn("/bin/true", ["true"], {}) for _ in range(_REAPED_MAX + 9)}
    for pid in children:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    procd.reap()
    assert len({one.pid for one in procfs.own_children() if one.parent == os.getpid()} & children) == 9
    assert procd._has_dead
    procd.reap()
    assert not procd._has_dead and not os.path.exists(f"/proc/{max(children)}")


def test_a_complaint_is_one_line_that_moves_no_cursor(capfd: pytest.CaptureFixture[str]) -> None:
    complain("step \x1b[2Jowned\r\nesstepd: all is well\x9b")
    assert capfd.readouterr().err == "esstepd: step  [2Jowned  esstepd: all is well \n"
