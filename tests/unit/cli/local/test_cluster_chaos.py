"""`eslurm chaos` and `eslurm up --emulate` with stand-ins for the daemons: words, refusals, signals to processes."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escli.errors import ClusterError
from escli.local import chaos, processes
from escli.local.chaos_text import parse_duration, parse_share
from escli.local.settings import Wishes
from eslurm.config.file import read_config
from eslurm.core.model.wording import quoted
from tests.unit.cli.local.fakes import Fakes


@pytest.mark.parametrize(
    ("text", "expected_us"),
    [("500ms", 500_000), ("30s", 30_000_000), ("1.5", 1_500_000), ("2m", 120_000_000), ("1h", 3_600_000_000)],
)
def test_durations(text: str, expected_us: int) -> None:
    assert parse_duration("--for", text) == expected_us


@pytest.mark.parametrize("text", ["", "0s", "-3s", "3 days", "1e9s", "ms"])
def test_what_is_no_duration_is_named(text: str) -> None:
    with pytest.raises(ClusterError, match=f"--for: {quoted(text)} is no time"):
        parse_duration("--for", text)


@given(st.integers(1, 100))
def test_shares(percent: int) -> None:
    assert parse_share(f"{percent}%") == pytest.approx(percent / 100)


@pytest.mark.parametrize("text", ["", "0%", "101%", "0.3", "-5%"])
def test_what_is_no_share_is_named(text: str) -> None:
    with pytest.raises(ClusterError, match="--share"):
        parse_share(text)


MEANINGLESS: tuple[tuple[list[str], str], ...] = (
    (["kill"], "whom?"),
    (["kill", "--nodes", "cn[03-09]"], "cn[05-09]: not in this cluster, which has cn[01-04]"),
    (["kill", "--nodes", "cn[01-"], "cn[01-"),
    (["hang", "--satellite", "sat9"], "there is no sat9: the cluster has sat1, sat2"),
    (["kill", "--nodes", "cn01", "--delay", "1s"], "--delay: is for `slow`"),
    (["heal", "--for", "1s"], "--for: means nothing to `heal`"),
    (["kill", "--nodes", "cn01", "--seed", "3"], "--seed: goes with --share"),
    (["show", "--nodes", "cn01"], "shows everything"),
    (["explode"], "explode"),
    (["kill", "c2"], "there is no c2: use some of main, sat1, sat2"),
    (["slow", "main"], "a controller can be killed or hung"),
    (["show", "main"], "leave names"),
    (["cut", "--nodes", "cn01"], "which way? add --one-way out"),
    (["cut", "--one-way", "out"], "whom?"),
    (["cut", "--one-way", "in", "sat1"], "only nodes can be cut off one way"),
    (["kill", "--nodes", "cn01", "--one-way", "out"], "--one-way: is for `cut`"),
    (["cut", "--nodes", "cn01", "--one-way", "up"], "--one-way"),
)
"""Words, and what is told of them."""


def test_what_cannot_be_meant_is_refused(fakes: Fakes) -> None:
    fakes.up()
    pids = fakes.pids()
    for words, told in MEANINGLESS:
        answer = fakes("chaos", *words)
        assert answer.code == 2, words
        assert told in answer.err, words
        assert fakes.pids() == pids, words
    assert all(processes.is_alive(daemon.identity) for daemon in fakes.record().daemons)


def test_without_a_cluster_there_is_nothing_to_break(fakes: Fakes) -> None:
    assert fakes("chaos", "show").code == 3


def test_a_daemon_that_takes_no_requests_is_named(fakes: Fakes) -> None:
    fakes.up()
    answer = fakes("chaos", "kill", "--nodes", "cn01")
    assert answer.code == 1
    assert "agent1 takes no such requests" in answer.err


def state_of(fakes: Fakes, name: str) -> str:
    daemon = fakes.record().find(name)
    assert daemon is not None
    if not processes.is_alive(daemon.identity):
        return "dead"
    return "stopped" if processes.is_stopped(daemon.identity) else "runs"


def test_a_satellite_is_stopped_and_goes_on(fakes: Fakes) -> None:
    fakes.up()
    # Showing needs the sockets that stand-ins have not: the process is struck before that.
    fakes("chaos", "hang", "--satellite", "sat1")
    assert state_of(fakes, "sat1") == "stopped"
    fakes("chaos", "heal", "--satellite", "sat1")
    assert state_of(fakes, "sat1") == "runs"


def test_a_satellite_is_stopped_for_a_while_by_the_command(fakes: Fakes) -> None:
    fakes.up()
    answer = fakes("chaos", "hang", "--satellite", "sat1", "--for", "20ms")
    assert "sat1: 0.02 s, kept by this command" in answer.err
    assert state_of(fakes, "sat1") == "runs"


def test_a_killed_satellite_is_started_by_heal(fakes: Fakes) -> None:
    fakes.up()
    pid = fakes.pids()["sat2"]
    pidfd = os.pidfd_open(pid)
    try:
        fakes("chaos", "kill", "--satellite", "sat2")
        assert select.select([pidfd], [], [], 10)[0]
    finally:
        os.close(pidfd)
    # Whose child it is after its starter ended depends on who adopts orphans here.
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
    assert state_of(fakes, "sat2") == "dead"

    answer = fakes("chaos", "hang", "--satellite", "sat2")
    assert "sat2 does not run" in answer.err
    answer = fakes("chaos", "heal", "--satellite", "sat2")
    assert "sat2 is ready again" in answer.err
    assert state_of(fakes, "sat2") == "runs"


def test_controllers_and_satellites_are_struck_by_name(fakes: Fakes) -> None:
    fakes.up("--controllers", "2")
    fakes("chaos", "hang", "main", "sat2")
    assert [state_of(fakes, name) for name in ("esctld", "esctld-c2", "sat1", "sat2")] == [
        "stopped",
        "runs",
        "runs",
        "stopped",
    ]
    fakes("chaos", "heal", "main", "sat2")
    assert [state_of(fakes, name) for name in ("esctld", "sat2")] == ["runs", "runs"]


def test_a_killed_controller_is_started_by_heal(fakes: Fakes) -> None:
    fakes.up("--controllers", "2")
    pid = fakes.pids()["esctld"]
    fakes("chaos", "kill", "main")
    # Whose child it is after its starter ended depends on who adopts orphans here.
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
    assert state_of(fakes, "esctld") == "dead"
    assert "esctld is ready again" in fakes("chaos", "heal", "main").err
    assert state_of(fakes, "esctld") == "runs"


def test_a_leader_that_takes_long_to_find_another_one_leading_is_started_again(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes.up("--controllers", "2")
    fakes("chaos", "hang", "main")
    pid = fakes.pids()["esctld"]
    asked: list[Sequence[str]] = []

    def led_by_c2(sockets: Sequence[str]) -> tuple[None, dict[str, str]]:
        asked.append(sockets)
        if len(asked) == 3:
            os.kill(pid, signal.SIGKILL)
        return None, {"c2": "leader"}

    monkeypatch.setattr(chaos, "ping_and_roles", led_by_c2)
    monkeypatch.setattr(chaos, "_FENCED_S", 0.05)
    assert "esctld is ready again" in fakes("chaos", "heal", "main").err
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
    assert asked[0] == [str(fakes.layout.directory / "esctld-c2.sock")], "its own word is old"
    assert fakes.pids()["esctld"] != pid


@pytest.mark.parametrize(
    "roles", [{}, {"main": "leader", "c2": "standby"}, {"c2": "leader", "main": "standby"}]
)
def test_a_controller_that_others_count_in_is_not_waited_for(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch, roles: dict[str, str]
) -> None:
    fakes.up("--controllers", "2")
    fakes("chaos", "hang", "main")
    asked: list[Sequence[str]] = []
    monkeypatch.setattr(chaos, "ping_and_roles", lambda sockets: (None, asked.append(sockets) or roles))
    monkeypatch.setattr(chaos, "_FENCED_S", 0.05)
    assert "ready again" not in fakes("chaos", "heal", "main").err
    assert len(asked) == 1


def test_the_only_node_of_a_process_is_struck_with_it(fakes: Fakes) -> None:
    fakes.up("--agents", "4")
    fakes("chaos", "hang", "--nodes", "cn03")
    assert [state_of(fakes, f"agent{number}") for number in (1, 2, 3, 4)] == [
        "runs",
        "runs",
        "stopped",
        "runs",
    ]


def test_down_ends_what_was_stopped_without_waiting_for_it(fakes: Fakes) -> None:
    fakes.up()
    fakes("chaos", "hang", "--satellite", "sat1")
    identities = [daemon.identity for daemon in fakes.record().daemons]
    assert fakes("down").code == 0
    assert not any(processes.is_alive(identity) for identity in identities)


# ---- up --emulate ----


def test_an_emulated_cluster_has_processes_and_satellites_to_match() -> None:
    big = Wishes(20_480, emulated=True)
    assert (big.satellites_wanted, big.agents_wanted) == (4, 8)
    small = Wishes(100, emulated=True)
    assert (small.satellites_wanted, small.agents_wanted) == (2, 2)
    chosen = Wishes(20_480, None, 3, 5, emulated=True)
    assert (chosen.satellites_wanted, chosen.agents_wanted) == (3, 5)
    assert (Wishes(2000).satellites_wanted, Wishes(2000).agents_wanted) == (2, 2)


def test_emulated_nodes_are_those_of_a_supercomputer(fakes: Fakes) -> None:
    answer = fakes.up("--emulate", "4", "--hosts", "2", "--json")
    assert answer.code == 0, answer.err
    assert len(json.loads(answer.out)["daemons"]) == 5
    config = read_config(fakes.layout.config_file)
    assert [(section.names, section.cores) for section in config.nodes] == [("cn[01-04]", 4)]
    assert fakes.up("--emulate", "4", "--hosts", "2").code == 0

    answer = fakes.up("--emulate", "9")
    assert answer.code == 2
    assert "--emulate: 9 is not what the cluster" in answer.err


@pytest.mark.parametrize(
    "words", [["--hosts", "2"], ["--emulate", "9", "-n", "4"], ["--emulate", "9", "--agents", "2"]]
)
def test_options_that_do_not_go_together_are_refused(fakes: Fakes, words: list[str]) -> None:
    answer = fakes.up(*words)
    assert answer.code == 2
    assert not fakes.layout.directory.exists()
