"""`eslurm down` with stand-ins for the daemons: what is ended, spared, removed and kept."""

from __future__ import annotations

import os

import pytest

from escli.local import processes
from tests.unit.cli.local.fakes import Fakes

EVERYONE = ["agent1", "agent2", "esctld", "sat1", "sat2"]


def test_down_ends_everything_and_up_finds_it_again(fakes: Fakes) -> None:
    fakes.up()
    identities = [daemon.identity for daemon in fakes.record().daemons]
    config = fakes.layout.config_file.read_bytes()

    answer = fakes("down")

    assert answer.code == 0, answer.err
    assert "5 daemons ended" in answer.out
    assert not any(processes.is_alive(identity) for identity in identities)
    assert fakes("down").out == "The cluster was down already.\n"
    assert fakes.up().code == 0
    assert fakes.layout.config_file.read_bytes() == config


def test_down_without_a_cluster_is_no_error(fakes: Fakes) -> None:
    answer = fakes("down")

    assert answer.code == 0
    assert "nothing to stop" in answer.out
    assert not fakes.layout.directory.exists()


def test_down_kills_what_ignores_sigterm(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.modes["esnoded"] = "deaf"
    fakes.up()
    monkeypatch.setattr(
        "escli.local.stop.stop_all.__kwdefaults__", {"keep_jobs": False, "grace_s": 0.2, "hurry": bool}
    )

    assert fakes("down").code == 0
    assert fakes.record().daemons == ()


def test_a_recycled_pid_is_never_signalled(fakes: Fakes) -> None:
    fakes.up()
    own = processes.identify(os.getpid())
    fakes("down")
    # The record of another time: this test's own pid, as if it had been a daemon's.
    daemon = {"name": "sat1", "kind": "essatd", "listen": "127.0.0.1:1", "started_us": 1}
    identity = {"pid": own.pid, "start_ticks": own.start_ticks - 1, "boot_id": own.boot_id}
    fakes.edit_record(daemons=[daemon | {"identity": identity}])

    assert fakes("down").code == 0
    assert fakes.record().daemons == ()


def test_purge_removes_the_directory(fakes: Fakes) -> None:
    fakes.up()

    answer = fakes("down", "--purge")

    assert answer.code == 0, answer.err
    assert not fakes.layout.directory.exists()


def test_purge_spares_a_directory_with_foreign_files(fakes: Fakes) -> None:
    fakes.up()
    mine = fakes.layout.directory / "thesis.tex"
    mine.write_text("ten years of work")

    answer = fakes("down", "--purge")

    assert answer.code == 2
    assert "thesis.tex" in answer.err
    assert mine.exists()


def test_purge_and_keep_jobs_exclude_each_other(fakes: Fakes) -> None:
    answer = fakes("down", "--purge", "--keep-jobs")

    assert answer.code == 2
    assert "--keep-jobs" in answer.err
