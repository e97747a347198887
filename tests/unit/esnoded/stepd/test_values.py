"""Bad values end at worst the request that brings them; a fault in what concerns one step ends that step."""

from __future__ import annotations

import os
import socket
from functools import partial
from typing import Any

import pytest

from eslurm.core.model.job import Principal
from eslurm.core.model.step_key import StepKey
from eslurm.core.model.values import ID_MAX, id_problem, signal_problem, text_problem, umask_problem
from eslurm.ports.step_checks import parse_address, parse_endpoint, spec_problem
from eslurm.ports.step_runner import (
    OutputEndpoint,
    StepEndCause,
    StepOutcome,
    StepSpec,
    StepStarted,
    StepWarning,
)
from esnoded.procd import server as server_module
from esnoded.procd.credential import NotAllowed
from esnoded.procd.families import Families
from esnoded.procd.spawn import spawn_task
from esnoded.stepd import table as table_module
from esnoded.stepd.output import OutputLink
from esnoded.stepd.output_connection import OutputConnection
from esnoded.stepd.processes import read_report
from esnoded.task.program import Program, SpawnError
from tests.kits.stepd import key
from tests.kits.stepd_direct import spawn_connector
from tests.support.groups import as_root
from tests.unit.esnoded.stepd.test_table import Rig, rig

__all__ = ["rig"]

COOKIE = bytes(32)
BAD: list[tuple[dict[str, Any], str]] = [
    ({"argv": ()}, "argv: it is empty"),
    ({"argv": ("a\0b",)}, "argv: contains a NUL"),
    ({"argv": ("true", "\ud800")}, "argv: contains half a character"),
    ({"env": {"A": "x\0"}}, "env: contains a NUL"),
    ({"env": {"A\0": "x"}}, "env: contains a NUL"),
    ({"env": {"": "x"}}, "env: a variable's name"),
    ({"env": {"A=B": "x"}}, "env: a variable's name"),
    ({"cwd": "/tmp\0"}, "cwd: contains a NUL"),
    ({"cwd": "tmp"}, "cwd: 'tmp' is not an absolute path"),
    ({"stdout": "o\0"}, "stdout: contains a NUL"),
    ({"stderr": "\udfff"}, "stderr: contains half"),
    ({"uid": -1}, "uid: -1 is not an id"),
    ({"uid": 2**32 - 1}, "uid: 4294967295 is not an id"),
    ({"uid": 2**40}, "uid: "),
    ({"gid": 2**32 - 1}, "gid: 4294967295 is not an id"),
    ({"groups": (0, 2**32)}, "groups: 4294967296 is not an id"),
    ({"groups": tuple(range(70_000))}, "groups: 70000 are more"),
    ({"umask": -1}, "umask: "),
    ({"umask": 2**31}, "umask: "),
    ({"tasks": 0, "key": key(step=0)}, "tasks: 0 is not within"),
    ({"tasks": -5}, "tasks: -5 is not within"),
    ({"tasks": 10**9}, "tasks: 1000000000 is not within"),
    ({"first_task": -1}, "first_task: -1"),
    ({"time_limit_us": -1}, "time_limit_us: -1"),
    ({"time_limit_us": 2**63}, "time_limit_us: "),
    ({"kill_grace_us": 2**63}, "kill_grace_us: "),
    ({"orphan_timeout_us": -7}, "orphan_timeout_us: -7"),
    ({"warning": StepWarning(0, 999)}, "warning.signum: 999 is not a signal"),
    ({"warning": StepWarning(0, -9)}, "warning.signum: -9 is not a signal"),
    ({"warning": StepWarning(-1, 9)}, "warning.before_us: -1"),
    ({"warning": StepWarning(1, 9, script="a\0")}, "warning.script: contains a NUL"),
    ({"node_name": "cn\0"}, "node_name: contains a NUL"),
    ({"key": StepKey(-2, 1, -1, 0)}, "key: job_id -2"),
    ({"key": StepKey(1, 1, -1, 2**63)}, "key: node "),
    ({"endpoint": OutputEndpoint("127.0.0.1", 99_999, COOKIE)}, "endpoint: port 99999"),
    ({"endpoint": OutputEndpoint("127.0.0.1", 0, COOKIE)}, "endpoint: port 0"),
    ({"endpoint": OutputEndpoint("127.0.0.1\0", 1, COOKIE)}, "is not a numeric address"),
    ({"endpoint": OutputEndpoint("/run/dbus/system_bus_socket", 1, COOKIE)}, "is not a numeric address"),
    ({"endpoint": OutputEndpoint("login.example", 1, COOKIE)}, "is not a numeric address"),
    ({"endpoint": OutputEndpoint("0.0.0.0", 1, COOKIE)}, "not the address of one host"),
    ({"endpoint": OutputEndpoint("255.255.255.255", 1, COOKIE)}, "not the address of one host"),
    ({"endpoint": OutputEndpoint("ff02::1", 1, COOKIE)}, "not the address of one host"),
    ({"endpoint": OutputEndpoint("fe80::1%lo", 1, COOKIE)}, "has a scope"),
    ({"endpoint": OutputEndpoint("::ffff:10.0.0.1", 1, COOKIE)}, "write it as 10.0.0.1"),
    ({"endpoint": OutputEndpoint("127.0.0.1", 1, b"short")}, "the cookie has 5 bytes instead of 32"),
]


def spec_with(rig: Rig, fields: dict[str, Any]) -> StepSpec:
    given = {"argv": ("true",), "key": key(1)} | fields
    argv, step = given.pop("argv"), given.pop("key")
    return rig.site.spec(step, *argv, **given)


@pytest.mark.parametrize(("fields", "says"), BAD, ids=[says for _, says in BAD])
def test_a_bad_value_is_refused_and_nothing_of_it_remembered(
    rig: Rig, fields: dict[str, Any], says: str
) -> None:
    spec = spec_with(rig, fields)
    assert says in spec_problem(spec)
    with pytest.raises(NotAllowed) as refused:
        rig.start(spec)
    assert says in str(refused.value)
    assert rig.table.live == 0 and not rig.table.has_work


def test_good_values_are_good(rig: Rig) -> None:
    spec = spec_with(
        rig,
        {
            "argv": ("true", "ü", ""),
            "env": {"ÄÖ": "=x=", "BASH_FUNC_f%%": "() { :; }"},
            "uid": ID_MAX,
            "groups": (0, ID_MAX),
            "warning": StepWarning(0, 64),
            "endpoint": OutputEndpoint("fd00::5", 65_535, COOKIE),
        },
    )
    assert spec_problem(spec) == ""


def test_values_of_each_kind() -> None:
    assert [bool(signal_problem(number)) for number in (-1, 0, 1, 64, 65, 999)] == [1, 1, 0, 0, 1, 1]
    assert [bool(id_problem(number)) for number in (-1, 0, 2**32 - 2, 2**32 - 1)] == [1, 0, 0, 1]
    assert [bool(umask_problem(umask)) for umask in (-1, 0, 0o777, 0o1000)] == [1, 0, 0, 1]
    assert "more than 3" in text_problem("four", 3) and text_problem("four") == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.1.0.5:4711", ("10.1.0.5", 4711)),
        ("[fd00:0::5]:1", ("fd00::5", 1)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_endpoints(text: str, found: tuple[str, int]) -> None:
    assert parse_endpoint(text) == found


@pytest.mark.parametrize(
    "text",
    ["", "/run/s", "host:1", "1.2.3.4", "1.2.3.4:", "1.2.3.4:0", "1.2.3.4:65536", "1.2.3.4:+1", "1.2.3.4:1\0",
     "::1:5", "[::1]:x", "1.2.3.4:99999", "1.2.3.4:\u0661", "1.2.3.4:1000000000000", "010.1.1.1:5", "0x7f000001:5"],
)  # fmt: skip
def test_what_is_no_endpoint(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|port"):
        parse_endpoint(text)


def test_an_address_is_written_as_the_kernel_does() -> None:
    assert parse_address("FD00:0:0::0005") == "fd00::5"


# ---- a fault of our own ends one step ----


def fault(*_arguments: object, **_more: object) -> None:
    raise ZeroDivisionError("a fault of the supervisor's own \ud800")


def test_a_fault_while_starting_a_step_ends_that_step(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    real = rig.processes.spawn

    def spawn_one(one: StepKey, *rest: Any) -> tuple[int, int]:
        return fault() if one == key(1) else real(one, *rest)  # type: ignore[func-returns-value]

    monkeypatch.setattr(rig.processes, "spawn", spawn_one)
    rig.launch(1, "true")
    rig.launch(2, "true")
    outcomes = rig.outcomes(2)
    bad, good = outcomes[key(1)], outcomes[key(2)]
    assert (bad.key, bad.cause, bad.exit_code) == (key(1), StepEndCause.SPAWN_FAILED, 1)
    assert bad.text == "internal error: ZeroDivisionError: a fault of the supervisor's own ?"
    assert {type(answer) for answer in rig.answers} == {StepOutcome, StepStarted}
    assert (good.key, good.cause) == (key(2), StepEndCause.EXITED)
    log = capfd.readouterr().err
    assert log.count("\n") == 1 and "test_values.py" in log


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("_on_limit", {"time_limit_us": 1}),
        ("_on_warning", {"time_limit_us": 60_000_000, "warning": StepWarning(60_000_000, 10)}),
        ("_on_silence", {"orphan_timeout_us": 500_000}),
    ],
)
def test_a_fault_in_a_timer_ends_its_step(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, name: str, fields: dict[str, Any]
) -> None:
    owner = rig.table if name == "_on_silence" else rig.table._clock
    monkeypatch.setattr(owner, name, fault)
    rig.start(rig.site.spec(key(1), "sleep", "600", **fields))
    rig.launch(2, "sleep", "0.1")
    outcomes = rig.outcomes(2)
    # Until it is known that it runs its program it counts as one that could not be started.
    assert outcomes[key(1)].cause in (StepEndCause.SIGNALLED, StepEndCause.SPAWN_FAILED)
    assert outcomes[key(1)].text.startswith("internal error: ZeroDivisionError")
    assert (outcomes[key(2)].cause, outcomes[key(2)].exit_code) == (StepEndCause.EXITED, 0)


@pytest.mark.parametrize(
    "where", ["__init__", "open_pipes", "task_ended", "finish", "_on_pipe", "_on_socket"]
)
def test_a_fault_in_a_link_for_output_ends_its_step(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(OutputConnection if where == "_on_socket" else OutputLink, where, fault)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = OutputEndpoint("127.0.0.1", listener.getsockname()[1], COOKIE)
        # The connection may take longer than a short task.
        script = rig.site.script(f"echo said; sleep {600 if where == '_on_socket' else 0.1}")
        rig.start(rig.site.spec(key(1), script, endpoint=endpoint))
        ended = rig.advance()
        while not ended:
            rig.turn()
            ended = rig.advance()
    assert ended[0].key == key(1) and rig.table.live == 0
    assert ended[0].text.startswith("internal error") or where == "finish"
    # Nothing of it is left in the loop.
    assert not rig.selector.get_map()


def test_output_of_a_task_arrives_that_ends_before_its_connection_is_made(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_read, go_write = os.pipe()
    monkeypatch.setattr(server_module, "spawn_connector", partial(spawn_connector, gate_fd=go_read))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = OutputEndpoint("127.0.0.1", listener.getsockname()[1], COOKIE)
        rig.start(rig.site.spec(key(1), "true", endpoint=endpoint))
        (ended,) = rig.outcomes(1).values()
        assert (ended.exit_code, ended.text) == (0, "")
        os.write(go_write, b"!")
        with listener.accept()[0] as connection:
            connection.settimeout(60)
            while rig.selector.get_map():
                rig.turn()
                rig.table.advance()
            assert connection.recv(1)
    os.close(go_read)
    os.close(go_write)


def test_a_connector_that_its_user_has_stopped_is_killed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    never, end = os.pipe()
    monkeypatch.setattr(server_module, "spawn_connector", partial(spawn_connector, gate_fd=never))
    monkeypatch.setattr(server_module, "CONNECTOR_US", 0)
    rig.start(rig.site.spec(key(1), "sleep", "600", endpoint=OutputEndpoint("127.0.0.1", 1, COOKIE)))
    rig.advance()
    assert len(rig.processes.procd._connecting) == 1
    rig.processes.procd._end_connectors()
    (ended,) = rig.outcomes(1).values()
    assert ended.text == "connection for its output lost: the child that connects was killed"
    assert not rig.processes.procd._connecting
    os.close(never)
    os.close(end)


def test_a_fault_at_the_end_of_a_task_ends_its_step(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module.Step, "add_usage", fault)
    rig.launch(1, "true")
    rig.advance()
    (ended,) = rig.advance_until_ended()
    assert ended.text.startswith("internal error")


def test_signals_that_could_not_be_delivered_are_delivered_later(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_module, "_DELIVER_AGAIN_US", 0)
    rig.launch(1, "sleep", "600")
    rig.advance()
    rig.table.terminate(key(1), StepEndCause.SIGNALLED, 60_000_000)
    with monkeypatch.context() as patch:
        patch.setattr(Families, "deliver", fault)
        assert rig.advance() == []
    rig.advance()
    (ended,) = rig.advance_until_ended()
    assert (ended.key, ended.signal) == (key(1), 15)


def test_an_answer_that_cannot_be_given_is_given_up(rig: Rig) -> None:
    rig.start(rig.site.spec(key(1), "true"), fault)
    rig.launch(2, "true")
    rig.outcomes(2)
    assert [answer.key for answer in rig.answers] == [key(2)]


@as_root
@pytest.mark.parametrize("fields", [{"uid": 2**32 - 1}, {"gid": 2**32 - 1}], ids=str)
def test_an_id_that_means_no_change_never_leaves_a_task_root(rig: Rig, fields: dict[str, int]) -> None:
    """To the kernel it says: keep the ids that you have, which are root's."""
    spec = rig.site.spec(key(1), "touch", "made")
    user = Principal("", **({"uid": 1, "gid": 1} | fields))
    pid, report_fd = spawn_task(user, Program(lambda _local: spec, "", 0))
    os.waitpid(pid, 0)
    failure = read_report(report_fd)
    assert isinstance(failure, SpawnError) and "cannot become" in failure.text
    assert not (rig.site.work / "made").exists()
