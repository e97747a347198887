"""`eslurm sim`: what it prints, and its exit codes."""

from __future__ import annotations

import pytest

from eslurm.sim.command import main


def test_each_seed_is_told_and_the_median(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--from", "5", "--nodes", "4-6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["seed 5", "seed 6", "seed 7"]
    assert all("messages " in line and "faults " in line and "commits " in line for line in lines)
    assert lines[3].startswith("3 seeds held; median per seed: messages ")


def test_a_failure_ends_it_with_the_seed_and_the_way_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("eslurm.core.job.outcomes.on_step_ended", lambda state, report, now_us: 1 / 0)
    assert main(["--seeds", "50", "--from", "3", "--nodes", "4"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("seed 3 (4 nodes) failed at ")
    assert out.splitlines()[-1] == "replay: eslurm sim --seed 3 --nodes 4 --trace"


def test_a_trace_until_some_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "2", "--nodes", "4", "--trace", "--until", "1.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    times = [float(line.split()[0]) for line in lines[:-2]]
    assert times == sorted(times) and 0 < times[-1] <= 1.5
    assert "Registration(name='cn0000'" in "\n".join(lines)
    assert "1.5 s virtual" in lines[-2]


@pytest.mark.parametrize("argv", [["--nodes", "9-4"], ["--nodes", "x"], ["--seeds", "0"], ["--what"]])
def test_wrong_usage_is_told_at_once(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "usage: eslurm sim" in capsys.readouterr().err


def test_progress_goes_to_the_other_stream(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("eslurm.sim.command.PROGRESS_EVERY_S", 0.0)
    assert main(["--seeds", "1", "--nodes", "4"]) == 0
    assert "1 of 1 seeds" in capsys.readouterr().err
