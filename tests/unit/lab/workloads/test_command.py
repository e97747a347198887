"""`eslurm simulate`: its table, its files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from escli import exits
from escli.local.main import main
from tests.kits.workloads import SYNTHETIC, line, log_of
from tests.support.golden import Golden


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = exits.OK) -> tuple[str, str]:
    assert main(["simulate", *words]) == code
    return capsys.readouterr()


def test_the_table(capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    out, err = said(capsys, str(SYNTHETIC), "--policy", "fcfs", "--policy", "easy")
    golden("simulate/table.txt", out)
    assert err.count("ran longer than they asked for: run on as in the log") == 1


def test_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, str(SYNTHETIC), "--json", "--jobs", "50")[0])
    assert found["jobs"] == 50 and found["processors"] == 64 and found["estimates"] == "user"
    (result,) = found["results"]
    assert result["policy"] == "easy" and 0 < result["utilisation"] < 1


@pytest.mark.usefixtures("pictures")
def test_all_files_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = {
        option: tmp_path / f"run{end}"
        for option, end in (("--swf", ".swf"), ("--trace", ".json"), ("--gantt", ".svg"))
    }
    words = [word for option, path in files.items() for word in (option, str(path))]
    said(capsys, str(SYNTHETIC), "--jobs", "40", *words, "--from", "0", "--until", "2:00:00")
    assert all(path.stat().st_size > 500 for path in files.values())


def test_the_machine_of_a_configuration(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "eslurm.toml"
    config.write_text(
        '[cluster]\nname = "lab"\n[[nodes]]\nnames = "n[1-2]"\ncores = 8\nmemory_mib = 100\n'
        '[[partition]]\nname = "all"\n[policy]\nscheduler = "fcfs"\n',
        encoding="utf-8",
    )
    out, err = said(capsys, str(SYNTHETIC), "--config", str(config), "--json")
    assert json.loads(out)["processors"] == 16
    assert json.loads(out)["results"][0]["policy"] == "fcfs"
    assert "for more processors than the machine has: left out" in err


QOS_RECORDS = """
[qos.q1]
[qos.q2]
[limit.half]
qos = "q2"
resource = "cores"
items = "0/50%"
"""


def test_records_are_read_as_esctl_load_takes_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, golden: Golden
) -> None:
    log = log_of(
        tmp_path / "log.swf",
        [line(number, number, 100, 1 + number % 3, 100, queue=1 + number % 2) for number in range(1, 9)],
    )
    records = tmp_path / "site.toml"
    records.write_text(QOS_RECORDS, encoding="utf-8")
    words = [str(log), "--records", str(records), "--qos-from", "queue", "--by", "qos"]
    out, err = said(capsys, *words)
    golden("simulate/by-qos.txt", out)
    assert err == (
        "eslurm: the log does not say when it began (UnixStartTime): taken for Monday 1970-01-05 00:00 UTC\n"
        "eslurm: easy: 1 job refused at submission: left out; the first, 5: limit half: qos q2 may use 2 cores at a time, "
        "3 are asked for: ask for at most 2\n"
    )
    found = json.loads(said(capsys, *words, "--json")[0])
    assert found["records"] == "site.toml" and found["by"] == "qos"
    assert [part["name"] for part in found["parts"]["easy"]] == ["q1", "q2"]
    assert found["rules"]["easy"]["refused"][0]["count"] == 1


def test_a_configuration_weighs_and_forbids(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = log_of(
        tmp_path / "log.swf", [line(1, 0, 100, 4, 100), line(2, 1, 50, 1, 50), line(3, 2, 50, 4, 70)]
    )
    config = tmp_path / "eslurm.toml"
    head = '[cluster]\nname = "lab"\n[[nodes]]\nnames = "n[1-4]"\ncores = 1\nmemory_mib = 100\n'
    tail = '[policy]\nscheduler = "fcfs"\n'
    waits = {}
    for name, more in (("plain", ""), ("size", "[priority]\nsize = 1000\n")):
        config.write_text(
            head + '[[partition]]\nname = "all"\ndefault = true\n' + tail + more, encoding="utf-8"
        )
        out, err = said(capsys, str(log), "--config", str(config), "--json", "--by", "user")
        waits[name] = json.loads(out)["results"][0]["wait_max_s"]
        # Where no rule asks when, nobody is told of it.
        assert ("UnixStartTime" in err) == bool(more)
        assert "rules" not in json.loads(out)
    assert waits == {"plain": 148.0, "size": 149.0}
    limit = '[[partition]]\nname = "all"\ndefault = true\ntime_limit_max_s = 80\n'
    config.write_text(head + limit + tail, encoding="utf-8")
    out, err = said(capsys, str(log), "--config", str(config), "--json")
    assert json.loads(out)["rules"]["fcfs"]["refused"][0]["count"] == 1
    assert "--time: 100 s is more than partition all allows" in err


def test_pictures_of_jobs_that_stood_still_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = log_of(tmp_path / "log.swf", [line(1, 0, 100, 4, 100), line(2, 10, 50, 4, 50, queue=2)])
    records = tmp_path / "site.toml"
    records.write_text('[qos.q1]\npreempt_mode = "suspend"\n[qos.q2]\npreempts = "q1"\n', encoding="utf-8")
    words = [str(log), "--records", str(records), "--qos-from", "queue"]
    picture = tmp_path / "run.json"
    _, err = said(capsys, *words, "--trace", str(picture), code=exits.FAILED)
    assert "jobs stood still to make room" in err and not picture.exists()
    assert "to make room: 1 time a job stood still" in said(capsys, *words)[1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[limit.x\n", "is no TOML"),
        ("[limits.x]\nitems = 1\n", "'limits' is no kind of policy: did you mean [limit.NAME]?"),
        ('[limit.x]\nuser = "u1"\n', "limit x: limit limits nothing: give items=, duration= or area="),
        ('[limit.x]\nqos = "q9"\nitems = 1\n', "qos 'q9' does not exist"),
    ],
)
def test_wrong_records_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, told: str
) -> None:
    records = tmp_path / "site.toml"
    records.write_text(text, encoding="utf-8")
    _, err = said(capsys, str(SYNTHETIC), "--records", str(records), code=exits.USAGE)
    assert err.splitlines()[-1].startswith("eslurm: --records: ") and told in err and str(records) in err


def test_estimates_from_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = log_of(tmp_path / "log.swf", [line(1, 0, 100, 4, 100), line(2, 1, 50, 4, 50)])
    csv = tmp_path / "estimates.csv"
    csv.write_text("job,estimate\n1,10\n", encoding="utf-8")
    out, err = said(capsys, str(log), "--estimates", str(csv), "--json")
    assert json.loads(out)["estimates"] == "file"
    assert "1 job without an estimate" in err


def test_estimates_that_are_given_count_whatever_the_configuration_does_with_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # The third fits behind the first in front of the second only if it is thought to be short.
    lines = [line(1, 0, 100, 3, 100), line(2, 1, 50, 4, 50), line(3, 2, 50, 1, 500)]
    log = log_of(tmp_path / "log.swf", lines)
    csv, config = tmp_path / "estimates.csv", tmp_path / "eslurm.toml"
    csv.write_text("job,estimate\n1,100\n2,50\n3,50\n", encoding="utf-8")
    config.write_text(
        '[cluster]\nname = "lab"\n[[nodes]]\nnames = "n[1-4]"\ncores = 1\nmemory_mib = 100\n'
        '[[partition]]\nname = "all"\ndefault = true\n[estimator]\nuse = false\n',
        encoding="utf-8",
    )
    waits = {}
    for words in ([], ["--estimates", str(csv)]):
        out, _ = said(capsys, str(log), "--config", str(config), "--json", *words)
        waits[len(words)] = json.loads(out)["results"][0]["wait_max_s"]
    assert waits == {0: 148.0, 2: 99.0}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--policy", "none"], "--policy: 'none' is unknown: use fcfs, easy, conservative, planned"),
        (["--nodes", "many"], "--nodes: 'many' is not a number of nodes and the cores of each"),
        (["--nodes", "4x4", "--config", "x.toml"], "--nodes: cannot go with --config"),
        (["--memory"], "--memory: goes with --config FILE"),
        (["--config", "/nowhere/x.toml"], "/nowhere/x.toml: cannot be read"),
        (["--estimates", "guess"], "--estimates: 'guess' is unknown: use user, perfect or a FILE.csv"),
        (["--estimates", "/nowhere/x.csv"], "--estimates: /nowhere/x.csv: cannot be read: No such file"),
        (["--gantt", "x.pdf"], "--gantt: x.pdf: is no picture: name it FILE.svg or FILE.png"),
        (["--swf", "/nowhere/x.swf"], "--swf: /nowhere/x.swf: there is no directory /nowhere: make it first"),
        (
            ["--policy", "fcfs", "--policy", "easy", "--swf", "x.swf"],
            "--swf: shows one run: give one --policy",
        ),
        (["--from", "1:00"], "--from, --until: go with --gantt FILE"),
        (["--gantt", "x.svg", "--from", "2:00", "--until", "1:00"], "--until: must lie after --from"),
        (["--gantt", "x.svg", "--from", "soon"], "--from: 'soon' is not a time"),
        (["--records", "/nowhere/x.toml"], "--records: load: '/nowhere/x.toml' cannot be read: No such file"),
        (["--qos-from", "queue"], "--qos-from: queue: goes with --records FILE"),
        (["--account-from", "group"], "--account-from: group: goes with --records FILE or --config FILE"),
        (["--by", "qos"], "--by: qos: goes with --records FILE or --config FILE"),
        (["--jobs", "0"], "Invalid value for '--jobs'"),
    ],
)
def test_a_wrong_command_line_says_what_to_write(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert told in said(capsys, str(SYNTHETIC), *words, code=exits.USAGE)[1]


def test_a_wrong_log_is_named_with_its_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = log_of(tmp_path / "log.swf", ["1 2 three"])
    _, err = said(capsys, str(log), code=exits.USAGE)
    assert err.startswith(f"eslurm: {log}: line 2, column 5: 'three' is not a number (wait_s)")
    empty = tmp_path / "empty.swf"
    empty.write_text("", encoding="utf-8")
    assert "neither MaxProcs nor MaxNodes" in said(capsys, str(empty), code=exits.USAGE)[1]
    assert "no job that can be replayed" in said(capsys, str(empty), "--nodes", "4x1", code=exits.USAGE)[1]
    assert "cannot be read: No such file" in said(capsys, str(tmp_path / "none"), code=exits.USAGE)[1]
    assert "is a directory" in said(capsys, str(tmp_path), code=exits.USAGE)[1]


def test_without_matplotlib_the_extra_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eslurm.lab.drawing.available", lambda: False)
    _, err = said(capsys, str(SYNTHETIC), "--gantt", "x.svg", code=exits.USAGE)
    assert "--gantt: matplotlib is not installed: pip install 'eslurm[lab]'" in err


def test_a_file_that_cannot_be_written_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = said(capsys, str(SYNTHETIC), "--jobs", "5", "--swf", "/dev/full", code=exits.FAILED)
    assert "/dev/full: cannot be written: No space left on device" in err


def test_a_terminal_sees_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("escli.lab.progress.QUIET_S", 0.0)
    monkeypatch.setattr("escli.lab.progress.TERMINAL_EVERY_S", 0.0)
    _, err = said(capsys, str(SYNTHETIC))
    assert "\reasy: " in err and "of 300 jobs started" in err
