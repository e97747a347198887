"""`eslurm sim`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from eslurm.compat.errors import OptionError
from eslurm.lab.sim import pool
from eslurm.lab.sim.command import main
from eslurm.lab.sim.run import Failure, Report, Scenario
from eslurm.lab.sim.trace_format import TraceWriter, named, parse_only, things_in


def test_each_seed_is_told_and_the_median(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--from", "5", "--nodes", "4-6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["seed 5", "seed 6", "seed 7"]
    assert all("messages " in line and "faults " in line and "commits " in line for line in lines[:4])
    assert lines[3].startswith("3 seeds held; median per seed: messages ")
    assert "; in all: messages " in lines[3] and lines[3].endswith(" seeds/s")


def test_the_number_of_processes_changes_nothing_but_the_speed(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for jobs in ("1", "3"):
        assert main(["--seeds", "4", "--nodes", "4", "--json", "--jobs", jobs]) == 0
        told.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    for lines in told:
        summary = lines[-1]
        assert (summary["type"], summary["seeds"]) == ("Summary", 4)
        assert summary["total"]["messages"] == sum(line["messages"] for line in lines[:-1])
        assert summary.pop("seeds_per_s") > 0
    assert told[0] == told[1]
    assert [line["seed"] for line in told[0][:-1]] == list(range(1, 5))


class BrokenAt:
    """Workers' verdicts with failures at some seeds, without a bug in other processes."""

    def __init__(self, seeds: set[int]) -> None:
        self._seeds = seeds
        self._take = pool._Worker.take

    def take(self, worker: pool._Worker) -> tuple[int, pool.Verdict]:
        at, verdict = self._take(worker)
        assert isinstance(verdict, Report)
        if verdict.seed in self._seeds:
            return at, Failure(Scenario(verdict.seed, verdict.nodes), "kind", "what", 1.0, 1, 1)
        return at, verdict


def test_the_first_failure_in_order_ends_it_and_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = BrokenAt({4, 5, 9})
    monkeypatch.setattr(pool._Worker, "take", lambda self: broken.take(self))
    verdicts = list(pool.play_all([Scenario(seed, 4) for seed in range(1, 40)], 3))
    assert [verdict.seed for verdict in verdicts[:-1] if isinstance(verdict, Report)] == [1, 2, 3]
    last = verdicts[-1]
    assert isinstance(last, Failure) and last.scenario.seed == 4


def test_a_worker_that_dies_is_named_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    give = pool._Worker.give

    def kill(self: pool._Worker, at: int, task: pool._Task) -> None:
        give(self, at, task)
        if task.scenario.seed == 3:
            os.kill(self.process.pid, signal.SIGKILL)

    monkeypatch.setattr(pool._Worker, "give", kill)
    with pytest.raises(pool.WorkerLost, match="worker with seed 3 was killed by SIGKILL"):
        list(pool.play_all([Scenario(seed, 4) for seed in range(1, 9)], 2))


def test_who_stops_listening_ends_the_workers() -> None:
    verdicts = pool.play_all((Scenario(seed, 4) for seed in range(1, 1_000)), 2)
    assert isinstance(next(verdicts), Report)
    assert isinstance(verdicts, Iterator)
    verdicts.close()


def test_a_failure_ends_it_with_the_seed_and_the_way_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "eslurm.core.control.jobs.outcomes.on_step_ended", lambda state, report, now_us: 1 / 0
    )
    assert main(["--seeds", "50", "--from", "3", "--nodes", "4", "--jobs", "1"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("seed 3 (4 nodes) failed at ")
    assert out.splitlines()[-1] == "replay: eslurm sim --seed 3 --nodes 4 --trace"


def test_a_trace_until_some_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "2", "--nodes", "4", "--trace", "--until", "1.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    times = [float(line.split()[0]) for line in lines[:-1]]
    assert times == sorted(times) and 0 < times[-1] <= 1.5
    assert "Registration(name='cn000" in "\n".join(lines)
    assert "1.5 s virtual" in lines[-1]


def test_a_trace_of_one_job_tells_of_it_and_of_every_fault(capsys: pytest.CaptureFixture[str]) -> None:
    whole = ["--seed", "2", "--nodes", "4", "--trace", "--until", "30"]
    assert main(whole) == 0
    everything = capsys.readouterr().out.splitlines()
    assert main([*whole, "--only", "job=2"]) == 0
    lines = capsys.readouterr().out.splitlines()[:-1]
    assert 5 < len(lines) < len(everything) / 2
    assert all(line in everything for line in lines)
    # What a long line says of the job may be in the part that is not shown.
    told = [line for line in lines if "FAULT" not in line and not line.endswith("more characters)")]
    assert len(told) > 5 and all(("job", "2") in things_in(line) for line in told)
    assert [line for line in lines if "FAULT" in line] == [line for line in everything if "FAULT" in line]


def test_a_failed_trace_ends_with_what_was_violated_and_what_is_known_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(state: object, report: object, now_us: int) -> None:
        raise AssertionError(f"attempt ({report.job_id}, {report.attempt}) is wrong")  # type: ignore[attr-defined]

    monkeypatch.setattr("eslurm.core.control.jobs.outcomes.on_step_ended", broken)
    assert main(["--seed", "3", "--nodes", "4", "--trace"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("VIOLATED "))
    assert " is wrong" in lines[at]
    facts = [line for line in lines[at + 1 :] if line.startswith("  job ")]
    assert any("fact " in line and "JobPlaced" in line for line in facts)
    assert lines[-1].startswith("replay: ")


@pytest.mark.parametrize(
    ("text", "line", "things"),
    [
        ("fact 3 JobPlaced(job_id=4, attempt=2, x)", "fact 3 JobPlaced(job 4.2, x)", {("job", "4")}),
        ("spawn 7.1.-1.3 on agent1", "spawn job 7.1 script on cn0003 on agent1", {("job", "7"), ("node", "cn0003")}),
        ("ended 7.1.0.12 0", "ended job 7.1 step 0 on cn0012 0", {("job", "7"), ("node", "cn0012")}),
        ("Released(nodes=(1, 5))", "Released(nodes=cn[0001,0005])", {("node", "cn0001"), ("node", "cn0005")}),
        ("Submitted(job_ids=(1, 12))", "Submitted(job_ids=(1, 12))", {("job", "1"), ("job", "12")}),
        ("node 3 runs 5 of 4", "cn0003 runs 5 of 4", {("node", "cn0003")}),
        ("at 1.5 s", "at 1.5 s", set()),
    ],
)  # fmt: skip
def test_lines_name_things(text: str, line: str, things: set[tuple[str, str]]) -> None:
    assert named(text) == line
    assert things_in(line) == things


@pytest.mark.parametrize(
    "text", ["", "job", "job=x", "job=0", "node=", "rack=3", "node=cn[", "job=1,,node=a"]
)
def test_only_what_there_is_can_be_asked_for(text: str) -> None:
    with pytest.raises(OptionError):
        parse_only(text)


def test_only_takes_jobs_and_lists_of_nodes() -> None:
    assert parse_only("job=007,node=cn[1-2,5],node=x") == {
        ("job", "7"), ("node", "cn1"), ("node", "cn2"), ("node", "cn5"), ("node", "x"),
    }  # fmt: skip


def test_a_long_line_is_cut_and_says_so() -> None:
    told: list[str] = []
    TraceWriter(told.append)(1_500_000, "x" * 1_000)
    assert told == ["    1.500000 " + "x" * 400 + "... (600 more characters)"]


@pytest.mark.parametrize(
    "argv",
    [
        ["--nodes", "9-4"],
        ["--nodes", "x"],
        ["--seeds", "0"],
        ["--what"],
        ["--jobs", "0"],
        ["--only", "rack=3"],
        ["--plan", "/no/such/file"],
        ["--plan", "{}"],
        ["--plan", '{"seed": 1, "nodes": "x"}'],
    ],
)
def test_wrong_usage_is_told_at_once(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "usage: eslurm sim" in capsys.readouterr().err


def test_progress_goes_to_the_other_stream(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("eslurm.lab.sim.command.PROGRESS_EVERY_S", 0.0)
    assert main(["--seeds", "1", "--nodes", "4"]) == 0
    assert "1 of 1 seeds, " in capsys.readouterr().err
