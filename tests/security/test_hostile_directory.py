"""A root shell stands in a directory of another user, which holds modules with the names that daemons import.

Nothing that is started there imports one of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from escli.local.plan import KINDS, PROGRAMS
from eslurm.security.site_keys import SITE_PUB, new_site, write_ring
from esnoded.procd.options import Options
from esnoded.stepd.launcher import ensure_supervisor
from tests.kits.stepd import end_process
from tests.security.conftest import STRANGER
from tests.support import process

BIN = Path(sys.executable).parent
PLANTED = (
    *(
        "argparse",
        "asyncio",
        "click",
        "grpc",
        "logging",
        "msgspec",
        "random",
        "selectors",
        "sqlalchemy",
        "uvloop",
    ),
    *("sitecustomize", "usercustomize", "eslurm", "escli", *KINDS),
)
COMMANDS = ("essubmit", "esqueue", "escancel", "esinfo", "esacct", "esctl", "esrun", "eswhy", "eslurm")
PATIENCE_S = 120.0


@pytest.fixture
def planted(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which a module of the stranger's writes its name when it is imported."""
    told = hostile / "imported"
    for name in PLANTED:
        package = hostile / name
        package.mkdir()
        text = (
            f"open({str(told)!r}, 'a').write({name!r} + '\\n')\nraise SystemExit('a stranger runs as root')\n"
        )
        for file in ("__init__.py", "__main__.py"):
            (package / file).write_text(text)
            os.chown(package / file, STRANGER, STRANGER)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return told


def ran(words: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_the_trap_works(planted: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "esctld", "--help"], capture_output=True, check=False)
    assert done.returncode != 0
    assert planted.read_text()


@pytest.mark.parametrize("name", [*KINDS, *COMMANDS])
def test_no_program_imports_from_it(name: str, planted: Path) -> None:
    ran([BIN / name, "--help"])
    assert not planted.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_no_daemon_that_eslurm_up_starts_imports_from_it(kind: str, planted: Path) -> None:
    ran([*PROGRAMS[kind], "--help"])
    assert not planted.exists()


@pytest.mark.parametrize("path", ["", ".", ":/nonexistent", "sub:"])
def test_the_supervisor_does_not_import_from_it(
    path: str, planted: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch, adopt_orphans: None
) -> None:
    monkeypatch.setenv("PYTHONPATH", path)
    ring = state_dir / SITE_PUB
    write_ring(ring, new_site("c", 1).ring)
    status = ensure_supervisor(state_dir / "agent", Options("cn1", str(ring)))
    end_process(status.pid, 15)
    os.waitpid(status.pid, 0)
    assert not planted.exists()


def test_no_worker_of_the_simulator_imports_from_it(planted: Path) -> None:
    ran([BIN / "eslurm", "sim", "--seeds", "2", "--nodes", "4", "--jobs", "2", "--quiet"])
    assert not planted.exists()


def test_a_cluster_that_is_brought_up_there_runs_jobs_and_imports_nothing(
    planted: Path, state_dir: Path, adopt_orphans: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESLURM_STATE_DIR", str(state_dir / "c"))
    words = [
        "up",
        "--detach",
        "-n",
        "1",
        "--controllers",
        "2",
        "--estimator",
        "--timeout",
        "60",
        "--allow-root-jobs",
    ]
    try:
        ran([BIN / "eslurm", *words])
        ran([BIN / "essubmit", "--wait", "--output", "/dev/null", "--wrap", "true"])
    finally:
        ran([BIN / "eslurm", "down", "--purge"])
        for child in process.children():
            os.waitpid(child.pid, 0)
    assert not planted.exists()
