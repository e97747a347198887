"""Damaged or forged data on disk or from beside the links: configuration, spool, journal, the
supervisor's frames, the output of steps. Each reader gives a value or its own typed error and harms nothing else.
"""

from __future__ import annotations

import io
import socket
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest import mock

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from escli.user.step_output import LineWriter, StepOutput
from eslurm.config.file import cluster_config, parse_config
from eslurm.config.problems import ConfigError
from eslurm.config.sections import Config
from eslurm.core.agent.records import Booted, Buried, EpochSeen, Identity, NumberGiven
from eslurm.core.model.step_key import StepKey
from eslurm.core.prediction.health import HealthReports
from eslurm.core.relay.results import Outcome, Results, Row, Status
from eslurm.ports.step_runner import OutputHello, StepEndCause, StepOutcome
from eslurm.security.step_stream import StreamSealer
from esnoded.spool import Spool, SpoolError
from esnoded.stepd import wire
from esnoded.stepd.journal import Acknowledged, Finished, Intent, Journal, Opened, read_contents
from tests.kits.mutation import damaged
from tests.support.quiet import quiet

# ---- configuration ----

CONFIG = b"""
[cluster]
name = "demo"
operators = [0, 1000]
[controller]
listen = "127.0.0.1:7400"
lease_s = 2.0
[[satellite]]
name = "sat1"
listen = "127.0.0.1:7401"
[[nodes]]
names = "cn[0001-0004]"
cores = 4
memory_mib = 4096
[[partition]]
name = "main"
nodes = "cn[0001-0002]"
default = true
[policy]
scheduler = "easy"
heartbeat_s = 5.0
relay_width = 16
[failure.settings.thermal]
limit = 80
"""
EMPTY = b'[cluster]\nname = "x"\n'


@given(damaged([CONFIG, EMPTY]) | st.binary(max_size=60))
@example(EMPTY + b"[failure.settings.a]\nx = " + b"[" * 5_000 + b"]" * 5_000)
@example(EMPTY + b"[failure.settings.a]\nx = " + b"{a=" * 5_000)
@example(EMPTY + b"[policy]\nheartbeat_s = " + b"9" * 5_000)
@example(EMPTY + b'"a\\nb" = 1\n')
@example(EMPTY + b'[policy]\nscheduler = "\\u001b[2J\\n"\n')
@example(b"\xff\xfe")
def test_a_configuration_is_taken_or_refused_in_one_line(raw: bytes) -> None:
    try:
        config = parse_config(raw, "eslurm.toml")
    except ConfigError as error:
        assert str(error).startswith("eslurm.toml:") and str(error).isprintable()
        return
    assert isinstance(config, Config)
    assert cluster_config(config).cluster == config.cluster.name


@pytest.mark.parametrize(
    "line",
    [
        "[policy]\nheartbeat_s = inf",
        "[policy]\nkill_grace_s = nan",
        "[policy]\nnode_lost_after_s = 1e300",
        "[policy]\nrelay_width = 99999999999999999999",
        "[policy]\npending_jobs_max = 99999999999999999999",
        "[controller]\nlease_s = 0.0",
        '[[nodes]]\nnames = "a"\ncores = 99999999999999999999\nmemory_mib = 1',
        '[[nodes]]\nnames = "cn[1-999999999]"\ncores = 1\nmemory_mib = 1',
    ],
)
def test_numbers_that_nothing_can_hold_are_refused(line: str) -> None:
    assert tomllib.loads(line)
    with pytest.raises(ConfigError):
        parse_config(EMPTY + line.encode(), "eslurm.toml")


def test_the_example_is_a_configuration() -> None:
    assert len(cluster_config(parse_config(CONFIG, "f")).nodes) == 4


# ---- the agent's spool ----

RECORDS = (Booted("demo", "boot1"), Identity("cn1", "uid"), NumberGiven("cn1", 3), EpochSeen("ctl", 4))
LATER = (Buried(3, 7, 1, "ctl", 9, True),)


@contextmanager
def spool_file() -> Iterator[Path]:
    with quiet("esnoded.spool"), tempfile.TemporaryDirectory() as directory:
        yield Path(directory, "spool")


def written() -> bytes:
    with spool_file() as path, closing(Spool(path)) as spool:
        spool.append(RECORDS, durable=True)
        spool.append(LATER)
        return path.read_bytes()


SPOOL = written()


@given(damaged([SPOOL]) | st.binary(max_size=40))
@example(SPOOL[:-1])
@example(SPOOL[:12] + b"\xff\xff\xff\xff" + SPOOL[16:])
def test_a_damaged_spool_is_cut_off_or_refused_and_can_be_written_again(data: bytes) -> None:
    with spool_file() as path:
        path.write_bytes(data)
        try:
            spool = Spool(path)
        except SpoolError as error:
            assert str(path) in str(error)
            return
        with closing(spool):
            spool.append(LATER, durable=True)
        with closing(Spool(path)) as again:
            assert (3, 7, 1) in again.state.buried


@given(st.integers(0, len(SPOOL)))
def test_a_torn_spool_holds_what_was_whole(size: int) -> None:
    with spool_file() as path:
        path.write_bytes(SPOOL[:size])
        with closing(Spool(path)) as spool:
            if size == len(SPOOL):
                assert spool.state.buried
            assert set(spool.state.numbers) <= {"cn1"}


# ---- the supervisor: its journal and its frames ----

KEY = StepKey(7, 1, -1, 3)
OUTCOME = StepOutcome(KEY, 0, 0, StepEndCause.EXITED, "ü", 1, 2)


def journal() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory, "journal"))
        with closing(Journal(path, "boot1")) as one:
            for record in (Intent(KEY, 5), Finished(OUTCOME), Acknowledged((KEY,)), Opened("boot2")):
                one.add(record)
        return Path(path).read_bytes()


JOURNAL = journal()


@given(damaged([JOURNAL]) | st.binary(max_size=60))
def test_a_damaged_journal_is_read_as_far_as_it_goes(data: bytes) -> None:
    contents = read_contents(data)
    assert 0 <= contents.good_bytes <= len(data)
    assert read_contents(data[: contents.good_bytes]).outcomes == contents.outcomes


FRAMES = b"".join(map(wire.encode_frame, (wire.Hello(1), wire.ListSteps(2), wire.Acknowledge(3, (KEY,)))))


@given(damaged([FRAMES]) | st.binary(max_size=60), st.integers(1, 9))
def test_frames_are_cut_the_same_however_the_bytes_arrive(data: bytes, size: int) -> None:
    def bodies(pieces: list[bytes]) -> list[bytes] | None:
        buffer, found = wire.FrameBuffer(), []
        try:
            for piece in pieces:
                found += buffer.feed(piece)
        except wire.WireError:
            return None
        return found

    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert bodies(pieces) == bodies([data])


# ---- the output of steps: a port that anybody can reach ----

HELLO = msgspec.msgpack.encode(OutputHello(KEY, "cn1", 1))
COOKIE = b"c" * 32


def stream(body: bytes, cookie: bytes = COOKIE) -> bytes:
    """A connection that says this first; always the same bytes."""
    with mock.patch("os.urandom", bytes):
        sealer = StreamSealer(cookie)
    return sealer.opening + sealer.seal(body)


STRANGE = stream(HELLO, b"d" * 32)


@given(damaged([STRANGE, STRANGE * 2]) | st.binary(max_size=60))
@example(stream(HELLO.replace(b"\xa3cn1", b"\xa3\xff\xff\xff")))
@example(stream(HELLO.replace(b"\xa3cn1", b"\xa3cn9")))
@example(stream(b"\x94" + b"\x91" * 3_000))
@example(stream(b""))
@example(b"\xff\xff\xff\xff")
@example(b"cmd=init pmi_version=1 pmi_subversion=1\n")
def test_strangers_at_the_output_port_are_shown_the_door(data: bytes) -> None:
    out = io.BytesIO()
    with closing(StepOutput("127.0.0.1", COOKIE, LineWriter(out, out))) as output:
        output.expect({(KEY.step, "cn1"): 1})
        host, port = output.endpoint.rsplit(":", 1)
        with socket.create_connection((host, int(port))) as stranger:
            output.run_once(5.0)
            stranger.sendall(data)
            stranger.shutdown(socket.SHUT_WR)
            stranger.settimeout(0.0)
            while not is_closed(stranger):
                output.run_once(5.0)
        assert (out.getvalue(), output.connected, output.statuses) == (b"", frozenset(), {})


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


# ---- what nodes say of their health ----


@given(damaged([msgspec.msgpack.encode([("disk", "clock")])]) | st.binary(max_size=40))
@example(b"\x91\x91\xa1\xff")
@example(b"\x91" * 5_000)
def test_a_heartbeat_that_cannot_be_read_is_no_sign_of_bad_health(payload: bytes) -> None:
    results = Results((Row(Outcome(Status.OK, 0, "", payload), (3,), (1,)),))
    reports = HealthReports()
    reports.on_answers(results, 1)
    assert set(reports.problems()) <= {3}
