"""Programs on the controller's host are the site's: another user of the host changes none, and a job only gives values."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from esctld.lead.program_runner import HostProgramRunner
from eslurm.core.model.controller_phases import PhaseKey
from eslurm.core.model.job import StepEnd
from eslurm.ports.program_runner import Program
from tests.integration.conftest import made
from tests.kits.cluster import LiveCluster
from tests.security.conftest import STRANGER
from tests.support.loops import run

KEY = PhaseKey(17, 1, "prolog", 1)


def _program(path: Path, text: str = "true") -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def _written_by_all(own: Path, hostile: Path) -> Path:
    path = _program(own / "program")
    path.chmod(0o757)
    return path


def _of_the_stranger(own: Path, hostile: Path) -> Path:
    path = _program(own / "program")
    os.chown(path, STRANGER, STRANGER)
    return path


def _in_a_directory_of_the_stranger(own: Path, hostile: Path) -> Path:
    return _program(hostile / "program")


def _behind_a_link_of_the_stranger(own: Path, hostile: Path) -> Path:
    _program(own / "program")
    (hostile / "link").symlink_to(own)
    return hostile / "link" / "program"


def _behind_a_link_to_the_stranger(own: Path, hostile: Path) -> Path:
    _program(hostile / "program")
    (own / "link").symlink_to(hostile)
    return own / "link" / "program"


PLACES = [
    _written_by_all,
    _of_the_stranger,
    _in_a_directory_of_the_stranger,
    _behind_a_link_of_the_stranger,
    _behind_a_link_to_the_stranger,
]


@pytest.mark.parametrize("place", PLACES)
def test_a_program_that_another_user_could_change_does_not_run(
    place: Callable[[Path, Path], Path], hostile: Path, state_dir: Path
) -> None:
    own = state_dir / "own"
    own.mkdir(mode=0o755)
    path = place(own, hostile)

    async def main() -> StepEnd:
        runner = HostProgramRunner(str(state_dir / "phases"))
        told: asyncio.Future[StepEnd] = asyncio.get_running_loop().create_future()
        runner.start(KEY, Program(str(path), {}, 10_000_000), told.set_result)
        end = await told
        await runner.close()
        return end

    end = run(main())
    assert end.cause == "refused" and "cannot be run" in end.text


def test_a_controller_does_not_start_with_a_program_that_another_user_could_change(
    hostile: Path, state_dir: Path
) -> None:
    path = _program(hostile / "program")
    directory = state_dir / "cluster"
    directory.mkdir()
    sections = f"[phases]\ncontroller_epilog = {json.dumps(str(path))}"
    cluster = LiveCluster(directory, nodes=1, agents=1, satellites=0, sections=sections)
    daemon = cluster.daemons["esctld"]
    daemon.spawn()
    assert not daemon.wait_ready()
    assert "phases.controller_epilog" in daemon.tail() and f"belongs to user id {STRANGER}" in daemon.tail()
    daemon.wait()
    cluster.hang_up()


def test_a_job_gives_its_controller_phases_values_and_nothing_else(as_root: None) -> None:
    def make(directory: Path) -> LiveCluster:
        told = directory / "told"
        told.mkdir(mode=0o700)
        path = _program(
            directory / "prolog", f"cd {told} && env > env && id -u > uid && ls -l /proc/$$/fd > fds"
        )
        sections = f"[phases]\ncontroller_prolog = {json.dumps(str(path))}"
        return LiveCluster(directory, nodes=1, agents=1, satellites=1, sections=sections)

    with made(make) as cluster:
        words = [
            "--parsable",
            "-D",
            str(cluster.work),
            "-J",
            "x\tLD_PRELOAD=/tmp/evil.so",
            "--comment",
            "$(id)`id`",
        ]
        hostile = {
            "LD_PRELOAD": "/tmp/evil.so",
            "PATH": "/tmp",
            "BASH_ENV": "/tmp/evil",
            "SLURM_JOB_USER": "root",
        }
        ran = cluster.run_as_user("essubmit", *words, "--export", "ALL", "--wrap", "true", **hostile)
        if ran.code:
            # A name with a control character is refused at the door.
            words[4] = "LD_PRELOAD=/tmp/evil.so"
            ran = cluster.run_as_user("essubmit", *words, "--export", "ALL", "--wrap", "true", **hostile)
        assert ran.code == 0, ran
        job = int(ran.out)
        cluster.until(lambda: (cluster.directory / "told" / "fds").exists() or None, "the prolog has run")
        found = dict(
            line.partition("=")[::2] for line in (cluster.directory / "told" / "env").read_text().splitlines()
        )
        assert found["PATH"].startswith("/usr/local/sbin:") and found["SLURM_JOB_USER"] != "root"
        strange = {name for name in found if not name.startswith(("SLURM_", "ESLURM_"))}
        assert strange <= {"PATH", "LC_ALL", "PWD", "OLDPWD", "SHLVL", "_"}, strange
        assert (cluster.directory / "told" / "uid").read_text() == "0\n"
        kept = cluster.directory / "phases"
        output = kept / f"{job}.1.prolog.1"
        cluster.until(lambda: output.exists() or None, "the program's output is kept")
        assert kept.stat().st_mode & 0o777 == 0o700 and kept.stat().st_uid == 0
        assert output.stat().st_mode & 0o777 == 0o600
        cluster.clear()
