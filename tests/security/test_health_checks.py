"""A health check runs as the agent's user, and only root and that user choose what it runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from eslurm.core.model.node_health import CheckTerms
from esnoded.checks import run_health_check
from esnoded.health_options import HealthCheck, health_checks
from tests.kits.daemons import AGENT_UID
from tests.security.conftest import STRANGER
from tests.security.test_launch_credentials import as_uid


def script(path: Path, text: str, uid: int = 0) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    os.chown(path, uid, uid)
    return path


def run(path: Path) -> str | None:
    check = HealthCheck(CheckTerms("disk", 60), (str(path),), 30)
    return asyncio.run(run_health_check(check, "cn3"))


def test_a_check_has_the_rights_of_the_agent_s_user(state_dir: Path) -> None:
    state_dir.chmod(0o755)
    secret = state_dir / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    path = script(state_dir / "check", f"cat {secret} 2>/dev/null; echo as $(id -u) $(id -G); exit 1")
    assert as_uid(AGENT_UID, lambda: run(path)) == f"as {AGENT_UID} {AGENT_UID}"


def test_a_program_of_the_agent_s_user_runs_and_one_of_a_stranger_does_not(state_dir: Path) -> None:
    state_dir.chmod(0o755)
    own = script(state_dir / "own", "exit 0", AGENT_UID)
    others = script(state_dir / "others", "exit 0", STRANGER)
    assert as_uid(AGENT_UID, lambda: run(own)) == "None"
    assert "belongs to user id" in as_uid(AGENT_UID, lambda: run(others))
    assert as_uid(AGENT_UID, lambda: health_checks([f"name=disk {others}"])) == "ValueError"


def test_what_a_stranger_puts_in_the_place_of_a_checked_program_does_not_run(state_dir: Path) -> None:
    state_dir.chmod(0o755)
    place = state_dir / "place"
    place.mkdir(mode=0o755)
    path = script(place / "check", "exit 0")
    assert run(path) is None
    os.chown(place, STRANGER, STRANGER)

    def swap() -> None:
        os.rename(path, place / "aside")
        path.write_text("#!/bin/sh\nexit 0\n")
        path.chmod(0o755)

    assert as_uid(STRANGER, swap) == "None"
    why = run(path)
    assert why is not None and "it cannot be run" in why
    os.chown(place, 0, 0)
    why = run(path)
    assert why is not None and f"belongs to user id {STRANGER}" in why
