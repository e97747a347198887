"""The command line of `esestd`: what cannot be is one line, and a signal ends it at once, also while it learns."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eslurm.estimator.files import write_model
from tests.kits.esestd import Controller, model_of, unix_door, until
from tests.support.leaks import kept_children
from tests.support.loops import run

ROOT = Path(__file__).parents[3]
CONFIG = '[cluster]\nname = "test"\n[[nodes]]\nnames = "cn1"\ncores = 1\nmemory_mib = 1\n[estimator]\n'
PATIENCE_S = 50.0
WITH_SLOW = (
    "import sys; from eslurm.estimator import registry;"
    "registry.BUILT_IN = {'slow': 'tests.unit.esestd.slow:make'}; from esestd.__main__ import main; main(sys.argv[1:])"
)


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in (".", "daemons", "cli"))}


def refusal(directory: Path, section: str, *words: str) -> str:
    """The error with which it refuses to start."""
    config = directory / "eslurm.toml"
    config.write_text(CONFIG + section)
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "esestd",
            "--config",
            str(config),
            "--state-dir",
            str(directory / "e"),
            *words,
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("section", "words", "text"),
    [
        ('name = "oracle"', [], "estimator: estimator 'oracle' is unknown: use user, last-2"),
        (
            'name = "last-2"\nwindow_jobs = 9',
            [],
            "estimator: estimator last-2: 'window_jobs' is no setting of it",
        ),
        ("refresh_s = 0", [], "estimator.refresh_s"),
        ('name = "last-2"', ["--warm-start", "/nowhere.npz"], "/nowhere.npz: cannot be read: No such file"),
        (
            'name = "last-2"',
            ["--controllers", "127.0.0.1:1"],
            "no token to call the controllers with (--token-file ",
        ),
        ('name = "last-2"', ["--log-level", "loud"], "--log-level: 'loud' is unknown"),
    ],
)
def test_what_cannot_be(tmp_path: Path, section: str, words: list[str], text: str) -> None:
    if not words:
        words = ["--controller-socket", str(tmp_path / "s")]
    assert text in refusal(tmp_path, section, *words)


def test_a_warm_start_with_a_model_of_another_estimator(tmp_path: Path) -> None:
    write_model(tmp_path / "m.npz", "svr", model_of(1))
    words = ["--controller-socket", str(tmp_path / "s"), "--warm-start", str(tmp_path / "m.npz")]
    assert "is a model of estimator 'svr', not of 'last-2'" in refusal(tmp_path, 'name = "last-2"', *words)


def test_a_warm_start_with_a_model_of_other_settings_is_told_of(tmp_path: Path) -> None:
    write_model(tmp_path / "m.npz", "clustered-svr", model_of(1), None, {"window_jobs": 700})
    # It goes no further, for want of a token.
    words = ["--controllers", "127.0.0.1:1", "--warm-start", str(tmp_path / "m.npz")]
    said = refusal(tmp_path, 'name = "clustered-svr"\nwindow_jobs = 300', *words)
    assert "m.npz was learnt with other settings (window_jobs: 700, now 300)" in said


def test_a_signal_ends_it_while_it_learns(state_dir: Path) -> None:
    began = state_dir / "began"
    config = state_dir / "eslurm.toml"
    config.write_text(f'{CONFIG}name = "slow"\nsettings = {{ began = "{began}" }}\n')
    words = [
        "--config",
        str(config),
        "--state-dir",
        str(state_dir / "e"),
        "--controller-socket",
        str(state_dir / "s"),
    ]

    async def scenario() -> None:
        async with unix_door(Controller(), state_dir / "s"):
            process = subprocess.Popen(
                [sys.executable, "-c", WITH_SLOW, *words], cwd=ROOT, env=environment(), stdout=subprocess.PIPE
            )
            kept_children.add(process.pid)
            try:
                await until(began.exists)
                process.send_signal(signal.SIGTERM)
                out, _ = await asyncio.to_thread(process.communicate, None, PATIENCE_S)
            finally:
                process.kill()
                process.communicate()
                kept_children.discard(process.pid)
            assert (process.returncode, out) == (0, b"ready esestd\n")

    run(scenario())
