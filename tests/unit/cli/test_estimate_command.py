"""`eslurm estimate evaluate` and `study`: their tables, their files, and what they refuse."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escli import exits
from escli.lab import progress
from escli.lab.estimate_table import Judged, as_text
from escli.local.main import main
from eslurm.core.forecast.accuracy import Tally
from eslurm.estimator import registry
from eslurm.lab.studies import pictures
from eslurm.lab.studies.report import Cost, Outcome
from eslurm.lab.studies.scores import Scaled, Scores
from eslurm.lab.studies.study import habits
from eslurm.lab.studies.workload import read_log
from tests.kits.estimator import Scribe, log_file, record, synthetic
from tests.support.golden import Golden

PLAIN = ("--estimator", "user,last-2")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return log_file(tmp_path / "made-up.swf.gz", synthetic(300))


@pytest.fixture(scope="session")
def drawing(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Matplotlib is there, and has opened the fonts that it keeps open: no test is blamed for that."""
    pytest.importorskip("matplotlib")
    lines = [pictures.Line("", [(1, 0), (100, 1)])]
    plot = pictures.Plot(title="", x_label="", y_label="", lines=lines, x_log=True)
    pictures.draw(tmp_path_factory.mktemp("pictures") / "first.png", [plot])


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = exits.OK) -> tuple[str, str]:
    assert main(["estimate", *words]) == code, capsys.readouterr().err
    return capsys.readouterr()


def test_without_a_word_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(capsys, code=exits.USAGE)
    assert not out and err.startswith("Usage: eslurm estimate [OPTIONS] COMMAND")
    assert "eslurm estimate evaluate site.swf.gz  " in err and err.endswith("\n")
    helped, _ = said(capsys, "--help")
    assert helped == err


# ---- evaluate ----


def test_the_table(capsys: pytest.CaptureFixture[str], log: Path, golden: Golden) -> None:
    out, err = said(capsys, "evaluate", str(log), *PLAIN, "--warm-up", "50")
    figures, costs = out.split("CPU\n")
    golden("estimate/table.txt", figures)
    assert re.search(r"^last-2 +0 +0.00 +0.00 +0\.\d{3} +\d+\.\d$", costs, re.M)
    assert "jobs ran longer than they asked for" in err and "of an unknown user" in err


def test_figures_as_they_are_shown(golden: Golden) -> None:
    scores = Scores(27_000, 0.6234, 0.0987, 4_321.4, 0.8012, 0.7111, Scaled(1.0321, 0.6201, 0.1))
    cost = Cost(212, 6.514, 9.876, 0.1234, 1_402.33)
    judged = Judged("log.swf", 20_000, 30_000, 3_000, 0.1, (), (Outcome("history", scores, scores, cost),))
    golden("estimate/figures.txt", as_text(judged))


def test_every_figure_can_be_found_again_from_the_predictions(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path
) -> None:
    jobs = {job.submitted.job_id: job for job in read_log(log).jobs}
    for at, field in (("submit", "at_submission"), ("start", "at_start")):
        table = tmp_path / f"{at}.csv"
        words = (
            "--estimator",
            "last-2",
            "--warm-up",
            "100",
            "--at",
            at,
            "--predictions",
            str(table),
            "--json",
        )
        found = json.loads(said(capsys, "evaluate", str(log), *words)[0])
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == ["job", "issued_at", "p10", "p50", "p90", "estimate"]
        assert [int(row["job"]) for row in rows] == list(jobs)
        tally, within = Tally(), 0
        for row in rows[100:]:
            job = jobs[int(row["job"])]
            assert int(row["issued_at"]) == (job.submitted.at_s if at == "submit" else job.start_s)
            tally.add(int(row["estimate"]), job.runtime_s)
            within += int(row["p10"]) <= job.runtime_s <= int(row["p90"])
        scores = found["results"][0][field]
        assert scores["jobs"] == found["scored"] == len(rows) - 100 == 200
        assert scores["aea"] == pytest.approx(tally.aea)
        assert scores["under"] == pytest.approx(tally.under)
        assert scores["mae_s"] == pytest.approx(tally.mae_s)
        assert scores["coverage"] == pytest.approx(within / 200)


def test_several_estimators_write_a_table_each(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path
) -> None:
    said(capsys, "evaluate", str(log), *PLAIN, "--warm-up", "0", "--predictions", str(tmp_path / "out.csv"))
    tables = sorted(tmp_path.glob("*.csv"))
    assert [path.name for path in tables] == ["out-last-2.csv", "out-user.csv"]
    assert all(len(path.read_text().splitlines()) == 301 for path in tables)


def test_a_part_of_a_log(capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path) -> None:
    table = tmp_path / "out.csv"
    words = ("--from", "100", "--jobs", "50", "--estimator", "user", "--json", "--predictions", str(table))
    found = json.loads(said(capsys, "evaluate", str(log), *words)[0])
    assert (found["first"], found["jobs"], found["warm_up"], found["scored"]) == (100, 50, 25, 25)
    first = read_log(log).jobs[100].submitted
    assert table.read_text().splitlines()[1].startswith(f"{first.job_id},{first.at_s},")


@pytest.mark.usefixtures("drawing")
def test_the_picture(capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path) -> None:
    sizes = []
    for name in ("one.svg", "two.svg"):
        said(capsys, "evaluate", str(log), *PLAIN, "--picture", str(tmp_path / name))
        sizes.append((tmp_path / name).read_bytes())
    assert sizes[0] == sizes[1] and b"<svg" in sizes[0]


def test_settings_reach_the_estimators(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    records = [record(number, number * 100, 10, requested_s=-1, user=number) for number in range(8)]
    path = log_file(tmp_path / "log.swf", records)
    words = ("--estimator", "user:default_s=20,user:default_s=40", "--json", "--warm-up", "0")
    table = ("--predictions", str(tmp_path / "out.csv"))
    found = json.loads(said(capsys, "evaluate", str(path), *words, *table)[0])
    assert [(one["estimator"], one["at_submission"]["aea"]) for one in found["results"]] == [
        ("user:default_s=20", 0.5),
        ("user:default_s=40", 0.25),
    ]
    assert (tmp_path / "out-user-default_s-20.csv").exists() and (
        tmp_path / "out-user-default_s-40.csv"
    ).exists()


def test_the_target_reaches_who_aims_at_it(
    capsys: pytest.CaptureFixture[str], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    class Aiming(Scribe):
        name = "history"

    def make(name: str, settings: dict[str, Any]) -> Scribe:
        seen.append(settings)
        return Aiming()

    monkeypatch.setattr(registry, "make", make)
    for name, target in (("history", "0.1"), ("history", "0.2"), ("history:target_under=0.3", "0.2")):
        said(capsys, "evaluate", str(log), "--estimator", name, "--target-ur", target)
    assert seen == [{}, {"target_under": 0.2}, {"target_under": 0.3}]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--estimator", "none"], "--estimator: 'none' is unknown: use user, last-2, "),
        (["--estimator", "user:c"], "--estimator: 'user:c': 'c' is no setting: write NAME:KEY=VALUE"),
        (
            ["--estimator", "user:depth=2"],
            "--estimator: estimator user: 'depth' is no setting of it: it has default_s",
        ),
        (["--warm-up", "300"], "--warm-up: 300: only 300 jobs are replayed"),
        (["--from", "300"], "--from: 300: the log has only 300 jobs that can be used"),
        (["--target-ur", "1"], "Invalid value for '--target-ur'"),
        (
            ["--estimator", "history", "--target-ur", "0.9"],
            "--target-ur: estimator history: target_under = 0.9",
        ),
        (["--jobs", "0"], "Invalid value for '--jobs'"),
        (["--predictions", "x.txt"], "--predictions: x.txt: name it FILE.csv"),
        (
            ["--predictions", "/nowhere/x.csv"],
            "--predictions: /nowhere/x.csv: there is no directory /nowhere",
        ),
        (["--picture", "x.pdf"], "--picture: x.pdf: is no picture: name it FILE.svg or FILE.png"),
    ],
)
def test_a_wrong_command_line_says_what_to_write(
    capsys: pytest.CaptureFixture[str], log: Path, words: list[str], told: str
) -> None:
    err = said(capsys, "evaluate", str(log), "--estimator", "user", *words, code=exits.USAGE)[1]
    assert told in err


@pytest.mark.parametrize(
    "data", [b"", b"; nothing\n", b"\x1f\x8brubbish", bytes(range(256)) * 20, b"1 2 3\n"]
)
@pytest.mark.parametrize("command", ["evaluate", "study"])
def test_rubbish_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, data: bytes, command: str
) -> None:
    path = tmp_path / "rubbish.swf"
    path.write_bytes(data)
    words = (
        [str(path), "--estimator", "user"] if command == "evaluate" else [str(path), "--out", str(tmp_path)]
    )
    out, err = said(capsys, command, *words, code=exits.USAGE)
    assert out == "" and err.count("\n") == 1 and err.startswith(f"eslurm: {path}: ")


def test_a_log_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        "/nowhere.swf: cannot be read: No such file"
        in said(capsys, "evaluate", "/nowhere.swf", "--estimator", "user", code=exits.USAGE)[1]
    )


def test_an_estimator_that_fails_is_named(
    capsys: pytest.CaptureFixture[str], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Scribe):
        def started(self, job_id: int, at_s: int) -> None:
            raise RuntimeError("lost")

    monkeypatch.setattr(registry, "make", lambda name, settings: Failing())
    err = said(capsys, "evaluate", str(log), "--estimator", "user", code=exits.FAILED)[1]
    assert "estimator scribe: at job " in err and "RuntimeError('lost')" in err


def test_progress_is_shown_of_long_work_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock: Iterator[float] = iter([0.0, 1.9, 2.0, 2.1, 31.9, 32.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.Progress("history", "jobs") as shown:
        for done in range(1, 6):
            shown.show(done * 1_000, 9_000)
    assert capsys.readouterr().err == (
        "eslurm: history: 2,000 of 9,000 jobs, 2 s\neslurm: history: 5,000 of 9,000 jobs, 32 s\n"
    )


def test_progress_on_a_terminal_goes_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock: Iterator[float] = iter([0.0, 2.0, 2.6])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress.Progress("last-2", "jobs") as shown:
        shown.show(10, 20)
        shown.show(9, 20)
    assert capsys.readouterr().err == (
        "\rlast-2: 10 of 20 jobs, 2 s\rlast-2: 9 of 20 jobs, 3 s " + "\r" + " " * 26 + "\r"
    )


# ---- study ----


def test_a_study_leaves_tables_and_figures(
    capsys: pytest.CaptureFixture[str],
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    golden: Golden,
) -> None:
    monkeypatch.setattr("eslurm.lab.drawing.available", lambda: False)
    out = tmp_path / "new" / "study"
    words = ("study", str(log), "--out", str(out), "--part", "cdf", "--part", "correlation")
    text, err = said(capsys, *words)
    golden("estimate/study.txt", text.replace(str(out), "OUT"))
    assert "no pictures: matplotlib is not installed" in err
    assert {path.name for path in out.iterdir()} == {
        "made-up.json",
        *(f"made-up-{name}.csv" for name in ("cdf", "interval", "gap")),
    }
    found = json.loads((out / "made-up.json").read_text())
    assert json.loads(said(capsys, *words, "--json")[0]) == found
    with (out / "made-up-gap.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == found["gap"]["columns"] and len(rows) == len(found["gap"]["rows"]) + 1


@pytest.mark.usefixtures("drawing")
def test_hours_of_the_day_are_those_of_the_log(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path
) -> None:
    """Its second 0 is at 02:13 UTC."""
    words = ("study", str(log), "--out", str(tmp_path), "--part", "cdf", "--json")
    for first, part in ((0, ()), (100, ("--from", "100", "--jobs", "150"))):
        found = json.loads(said(capsys, *words, *part)[0])["log"]
        whole = read_log(log)
        jobs = whole.jobs[first : first + found["jobs"]]
        assert found == habits(jobs, whole.begins_s) != habits(jobs)


@pytest.mark.usefixtures("drawing")
def test_a_study_draws_what_it_found(capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    text, _ = said(capsys, "study", str(log), "--out", str(out))
    assert [path.name for path in sorted(out.glob("*.png"))] == [
        f"made-up-{part}.png" for part in ("alpha", "cdf", "correlation", "elbow")
    ]
    assert text.count("alpha 1.0") == 9 and "the elbow is at K = " in text


def test_a_study_of_a_log_without_requested_times(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = log_file(tmp_path / "log.swf", [record(1, 0, 10, requested_s=-1, user=-1)])
    out, err = said(
        capsys, "study", str(path), "--out", str(tmp_path), "--part", "cdf", "--part", "correlation"
    )
    assert out.startswith("log.swf: 1 jobs of 0 users over 0 days\n")
    assert "cdf: no job of the log has a requested time" in err


def test_a_study_needs_a_directory(capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path) -> None:
    assert "--out" in said(capsys, "study", str(log), "--out", str(log), code=exits.USAGE)[1]
    assert (
        f"{log}/x: cannot be made"
        in said(capsys, "study", str(log), "--out", str(log / "x"), code=exits.FAILED)[1]
    )
