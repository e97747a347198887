"""Seeds that no earlier state of the sources has seen, and every one that ever failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eslurm.lab.sim import failed
from eslurm.lab.sim.command import main
from eslurm.lab.sim.run import Failure, Scenario, draw_nodes, judge, new_seed
from tests.support.profiles import draws

FAILED = Path(__file__).with_name("failed_seeds.txt")
SEEDS = draws(24)


@pytest.mark.slow
@pytest.mark.parametrize("run", failed.load(FAILED), ids=lambda run: f"{run.seed}/{run.nodes}")
def test_a_seed_that_failed_once_holds(run: Scenario) -> None:
    verdict = judge(run)
    assert not isinstance(verdict, Failure), verdict.text


def first_seed() -> int:
    """Each state of the sources draws its own, so that a check that failed fails again until there is a cure."""
    command = ["git", "rev-parse", "HEAD^{tree}"]
    try:
        tree = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, check=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return new_seed()
    return int(tree[:10], 16)


@pytest.mark.slow
def test_seeds_that_no_earlier_state_has_seen_hold(capsys: pytest.CaptureFixture[str]) -> None:
    """The one that fails is added to the file, to be committed with its cure."""
    first = first_seed()
    for seed in range(first, first + SEEDS):
        verdict = judge(Scenario(seed, draw_nodes(seed, 4, 64)))
        if isinstance(verdict, Failure):
            failed.keep(FAILED, verdict)
            pytest.fail(f"{verdict.text}\nkeep {seed}/{verdict.scenario.nodes} in {FAILED.name}")
    with capsys.disabled():
        sys.stdout.write(f"\nnew seeds {first} to {first + SEEDS - 1} held (4-64 nodes)\n")


def failure(seed: int, what: str = "Breach: job 1\nwas lost", **more: int) -> Failure:
    return Failure(Scenario(seed, 9, **more), "kind", what, 1.0, 1, 1)  # type: ignore[arg-type]


def test_what_failed_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "seeds"
    assert failed.load(path) == []
    path.write_text("# seeds\n\n7/4  # why\n")
    assert failed.keep(path, failure(8)) and not failed.keep(path, failure(8, "again"))
    assert not failed.keep(path, failure(9, actions=3))
    assert failed.load(path) == [Scenario(7, 4), Scenario(8, 9)]
    assert path.read_text().endswith("8/9  # Breach: job 1 was lost\n")


def test_a_line_that_is_no_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "seeds"
    path.write_text("7/4\n8\n")
    with pytest.raises(SystemExit):
        main(["--failed", str(path)])
    assert "line 2: '8' is no run: write SEED/NODES" in capsys.readouterr().err


def test_the_command_runs_those_of_the_file_first_and_adds_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "seeds"
    path.write_text("7/4\n")
    assert main(["--seeds", "1", "--from", "new", "--nodes", "4", "--jobs", "1", "--failed", str(path)]) == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    first = told.err.split("new seeds: ")[1].split(" to ")[0]
    assert lines[0].startswith("seed 7: ") and lines[1].startswith(f"seed {first}: ")
    monkeypatch.setattr("eslurm.lab.sim.command.play_all", lambda *_: [failure(12)])
    assert main(["--seeds", "1", "--failed", str(path)]) == 1
    assert failed.load(path) == [Scenario(7, 4), Scenario(12, 9)]
    assert f"added to {path}" in capsys.readouterr().err
