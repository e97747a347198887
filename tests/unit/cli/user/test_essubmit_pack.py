"""`essubmit` for a pack: a delay or a second script behind `:`, and `--pack FILE` in its three forms."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from escli import exits
from escli.user import pack_file, pack_yaml
from escli.user.essubmit import main
from eslurm.core.model.request_limits import PACK_MEMBERS_MAX
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi, unanswered

ROOT = Path(__file__).resolve().parents[4]
YAML = """\
# ocean and its analysis
name: coupled
parts:
  - {script: ocean.sh, options: [-N4, -p, cluster, -t, 2:00:00]}
  - script: analyse.sh
    arguments: [--in, "a b", 7]
    delay: 00:30:00
    options: -N2 -p booster --gpus-per-node=1
"""
LINES = """\
# ocean and its analysis

-N4 -p cluster -t 2:00:00 ocean.sh
--delay=00:30:00 -N2 -p booster --gpus-per-node=1 analyse.sh --in 'a b' 7
"""
JSON = json.dumps(
    {
        "name": "coupled",
        "parts": [
            {"script": "ocean.sh", "options": ["-N4", "-p", "cluster", "-t", "2:00:00"]},
            {
                "script": "analyse.sh",
                "arguments": ["--in", "a b", 7],
                "delay": 1800,
                "options": ["-N", 2, "-p", "booster", "--gpus-per-node=1"],
            },
        ],
    }
)


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a.sh", "b.sh", "ocean.sh", "analyse.sh"):
        (tmp_path / name).write_text(f"#!/bin/sh\n#SBATCH --comment {name}\necho {name}\n")
    (tmp_path / "several.sh").write_text("#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N8\ntrue\n")
    return tmp_path


def accepted(request: Any) -> pb.SubmitReply:
    return pb.SubmitReply(job_ids=range(17, 17 + len(request.jobs)), revision=4)


def submit(state_dir: Path, *words: str) -> pb.SubmitRequest:
    with FakeApi(state_dir / "s", Submit=accepted) as door:
        assert main(["--socket", door.path, *words]) == exits.OK
        (request,) = door.asked("Submit")
        assert isinstance(request, pb.SubmitRequest)
        return request


def delays(request: pb.SubmitRequest) -> list[int]:
    (pack,) = request.packs
    assert pack.first == 0
    return list(pack.delays_s)


def nodes(request: pb.SubmitRequest) -> list[list[int]]:
    return [[part.nodes_min for part in job.components] for job in request.jobs]


# ---- on the command line ----


def test_a_part_with_a_script_of_its_own_is_a_job_of_the_pack(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = submit(
        state_dir, *["-N4", "-t", "5", "a.sh", "x", ":", "--delay=00:30:00", "-N2", "b.sh", "-y", ":", "z"]
    )
    assert (delays(request), nodes(request)) == ([0, 1800], [[4], [2]])
    assert [job.name for job in request.jobs] == ["a.sh", "b.sh"]
    assert [job.comment for job in request.jobs] == ["a.sh", "b.sh"], "each script has its own option lines"
    assert [list(job.arguments) for job in request.jobs] == [["x"], ["-y", ":", "z"]]
    assert [job.time_limit_s for job in request.jobs] == [300, 0], (
        "a job of a pack takes no option of another"
    )
    assert capsys.readouterr().out == "Submitted pack 17 (jobs 17, 18)\n"


@pytest.mark.parametrize(
    ("line", "shape", "after"),
    [
        ("-N1 : -N8 a.sh : --delay 9 -N2 b.sh", [[1, 8], [2]], [0, 9]),
        ("-N1 a.sh : -N8 : -N2 b.sh", [[1, 8], [2]], [0, 0]),
        ("-N1 a.sh : --delay=9 -N2 : -N3 b.sh", [[1], [2, 3]], [0, 9]),
        ("-N1 --wrap true : -N2 --wrap false", [[1], [2]], [0, 0]),
        ("-N7 several.sh : --delay=1-00:00:01 b.sh", [[7, 8], [0]], [0, 86_401]),
        ("--delay=0 -N1 a.sh : -N2 b.sh", [[1], [2]], [0, 0]),
    ],
)
def test_parts_are_dealt_to_jobs(
    line: str, shape: list[list[int]], after: list[int], state_dir: Path
) -> None:
    request = submit(state_dir, *line.split())
    assert (nodes(request), delays(request)) == (shape, after)


@pytest.mark.parametrize("line", ["-N4 a.sh 1 : --delay=60 -N2", "-N4 : --delay=60 -N2 a.sh 1"])
def test_jobs_without_a_script_run_the_only_one(line: str, state_dir: Path) -> None:
    request = submit(state_dir, *line.split())
    assert (nodes(request), delays(request)) == ([[4], [2]], [0, 60])
    assert [(job.name, list(job.arguments)) for job in request.jobs] == [("a.sh", ["1"])] * 2


def test_standard_input_is_one_script_for_all(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"#!/bin/sh\ntrue\n")))
    request = submit(state_dir, *["-N4", ":", "--delay=60", "-N2", "-"])
    assert [job.script for job in request.jobs] == [b"#!/bin/sh\ntrue\n"] * 2


def test_what_the_command_does_may_be_asked_in_any_part(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(state_dir, *["a.sh", ":", "--delay=1", "--json", "b.sh"])
    assert json.loads(capsys.readouterr().out) == {"job_id": 17, "pack_id": 17, "job_ids": [17, 18]}


def test_waiting_ends_with_the_last_job_and_the_first_bad_code(state_dir: Path) -> None:
    def ended(request: Any) -> pb.JobsReply:
        (ref,) = request.jobs
        code = {17: 0, 18: 3, 19: 4}[ref.job_id]
        return pb.JobsReply(
            jobs=[pb.JobInfo(job_id=ref.job_id, state="FAILED" if code else "COMPLETED", exit_code=code)]
        )

    with FakeApi(state_dir / "s", Submit=accepted, WaitJobs=ended) as door:
        line = f"--socket {door.path} -W --parsable a.sh : -N1 b.sh : --delay 1 a.sh"
        assert main(line.split()) == 3
        assert [request.jobs[0].job_id for request in door.asked("WaitJobs")] == [17, 18, 19]


# ---- files ----


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("coupled.yaml", YAML),
        ("coupled", YAML),
        ("coupled.yml", JSON),
        ("coupled.json", JSON),
        ("coupled", JSON),
        ("coupled", LINES),
        ("coupled.txt", LINES),
    ],
)
def test_the_forms_of_a_file_say_the_same(name: str, text: str, state_dir: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    request = submit(state_dir, "--pack", name)
    assert (delays(request), nodes(request)) == ([0, 1800], [[4], [2]])
    assert [job.partition for job in request.jobs] == ["cluster", "booster"]
    assert [job.time_limit_s for job in request.jobs] == [7200, 0]
    assert list(request.jobs[1].arguments) == ["--in", "a b", "7"]
    own = ["ocean.sh", "analyse.sh"] if text == LINES else ["coupled"] * 2
    assert [job.name for job in request.jobs] == own


def test_a_file_of_one_job_is_that_job(
    state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one").write_text("-N4 a.sh\n")
    assert not submit(state_dir, "--pack", "one").packs
    assert capsys.readouterr().out == "Submitted batch job 17\n"


def test_a_job_of_a_file_may_have_several_parts(state_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("-N1 : -N8 a.sh\n--delay=5 several.sh\n")
    assert nodes(submit(state_dir, "--pack", "lines")) == [[1, 8], [1, 8]]
    text = "parts: [{options: '-N1 : -N8', script: a.sh}, {options: [--wrap, true], delay: 5}]"
    (tmp_path / "fields.yaml").write_text(text)
    state_dir.joinpath("s").unlink()
    assert nodes(submit(state_dir, "--pack", "fields.yaml")) == [[1, 8], [0]]


def test_options_beside_the_file_hold_for_jobs_that_give_none(state_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "pack").write_text("--comment mine a.sh\n--delay=5 -A other b.sh\n")
    request = submit(
        state_dir,
        *["-A", "physics", "--begin", "now+1hour", "--comment", "all", "--no-requeue", "--pack", "pack"],
    )
    assert [job.account for job in request.jobs] == ["physics", "other"]
    assert [job.comment for job in request.jobs] == ["mine", "all"], (
        "over the script's line, under the file's"
    )
    assert [bool(job.begin_us) for job in request.jobs] == [True, False], "a delay says when the others begin"
    assert not any(job.requeue for job in request.jobs)


def test_the_file_may_come_from_standard_input(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(YAML.encode())))
    assert delays(submit(state_dir, "--pack", "-")) == [0, 1800]


# ---- refusals ----

MANY = " : ".join(["--wrap true"] * (PACK_MEMBERS_MAX + 1))
BAD_LINES = [
    (
        "--delay=5 a.sh",
        "delay: '5 s' counts from a job before, and there is none: use e.g. essubmit a.sh : --delay",
    ),
    ("--delay=5 a.sh : -N1 b.sh", "part 0: delay: '5 s' counts from a job before"),
    (
        "a.sh : --delay=5x b.sh",
        "part 1: --delay: '5x' is not a delay (seconds, h:m:s or d-h:m:s): use e.g. 1800",
    ),
    ("a.sh : --delay=30:00 b.sh", "part 1: --delay: '30:00' is not a delay"),
    ("a.sh : --delay=-1 b.sh", "part 1: --delay: '-1' is not a delay"),
    ("a.sh : --delay=9999999999 b.sh", "part 1: --delay: '9999999999' is longer than 31622400 s"),
    ("a.sh : --delay=5 b.sh : --delay=6 -N2", "part 2: script is missing, and the other jobs name several"),
    ("a.sh : --delay=5 none.sh", "part 1: script: 'none.sh' does not exist"),
    ("-t x a.sh : -N1 b.sh", "part 0: -t: 'x' is not a time"),
    ("a.sh : --delay=5 -t x b.sh", "part 1: -t: 'x' is not a time"),
    ("a.sh : --delay=5 -n1 b.sh : -n x", "part 2: -n: 'x' is not a number from 1 on"),
    (MANY, "parts: ':' makes it a job of 129 parts"),
    ("delayed.sh", "#ESLURM (line 2) --delay: '5' is for the command line only"),
    ("--pack nowhere", "--pack: 'nowhere' does not exist: use an existing file"),
    ("--pack .", "--pack: '.' is a directory: name the file in it"),
    ("--pack file a.sh", "--pack: 'a.sh' is beside the file: name scripts and arguments in file"),
    ("--pack file : -N2", "--pack: ':' is beside the file"),
    ("--pack file -N4", "-N: '4' differs from job to job: give it in file"),
    ("--pack file --wrap true", "--wrap: 'true' differs from job to job: give it in file"),
]


@pytest.mark.parametrize(("line", "says"), BAD_LINES, ids=[case[1][:60] for case in BAD_LINES])
def test_a_bad_line_names_the_part_and_sends_nothing(
    line: str, says: str, state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("a.sh\n--delay=5 b.sh\n")
    (tmp_path / "delayed.sh").write_text("#!/bin/sh\n#ESLURM --delay=5\ntrue\n")
    with FakeApi(state_dir / "s", Submit=unanswered) as door:
        assert main(["--socket", door.path, *line.split()]) == exits.USAGE
        assert door.requests == []
    captured = capsys.readouterr()
    assert captured.err.startswith(f"essubmit: {says}")
    assert (captured.out, captured.err.count("\n")) == ("", 1)


PART = "{script: a.sh}"
BAD_FILES = [
    ("", "--pack: 'file' names no job"),
    ("# nothing\n\n", "--pack: 'file' names no job"),
    ("a.sh\nb.sh --delay=5\n-N x a.sh", "line 3: -N: 'x' is not a number of nodes"),
    ("a.sh\n--delay 5 'b.sh", "line 2: '--delay 5 'b.sh' has an open quote"),
    ("a.sh\n-N4", "line 2: script is missing"),
    ("a.sh\n--delay=x b.sh", "line 2: --delay: 'x' is not a delay"),
    (
        "--delay=3 a.sh\nb.sh",
        "line 1: delay: '3 s' counts from a job before, and there is none: leave it out",
    ),
    (
        "-N4 a.sh : --delay=5 -N2",
        "line 1: part 1: --delay: '5' is not in the job's first part: begin a new line",
    ),
    ("-N4 a.sh : -N2 b.sh", "line 1: script: 'b.sh' is a second one: begin a new line for each job"),
    ("--json a.sh", "line 1: --json is for the command line only"),
    ("--pack x a.sh", "line 1: --pack: 'x' is for the command line only"),
    ("--wrap true\n" * 129, "pack: '129 jobs' are more than 128: submit several packs"),
    ("parts: 3", "file: parts is not a list"),
    ("parts: []", "--pack: 'file' names no job"),
    ("parts:\n- [", "file (line 2) is not YAML"),
    ("parts: \x07", "file is not YAML"),
    ("name: x", "file: parts is missing"),
    ("parst: []", "file: 'parst' is not a key: the keys are name, fail, parts"),
    ("parts: [a.sh]", "part 0 is not a mapping: its keys are script, arguments, delay, options"),
    (f"parts: [{PART}, {{script: a.sh, dealy: 5}}]", "part 1: 'dealy' is not a key: the keys are script"),
    (f"parts: [{PART}, {{script: b.sh, delay: 5s}}]", "part 1: delay: '5s' is not a delay"),
    (f"parts: [{PART}, {{script: b.sh, delay: [5]}}]", "part 1: delay is not a text"),
    ("parts: [{script: a.sh, delay: 5}]", "part 0: delay: '5 s' counts from a job before"),
    ("parts: [{script: a.sh, options: [-N4, b.sh]}]", "part 0: options: 'b.sh' is not an option"),
    (
        "parts: [{script: a.sh, options: --delay=5}]",
        "part 0: --delay: '5' is among the options: give it as `delay`",
    ),
    ("parts: [{script: a.sh, options: {N: 4}}]", "part 0: options is not a list of words"),
    ("parts: [{options: [-N4]}]", "part 0: script is missing: use e.g. run.sh, or --wrap"),
    ("parts: [{options: [--wrap, a], arguments: [b]}]", "part 0: arguments has no script"),
    ("parts: [{script: ''}]", "part 0: script: an empty value is not a file name"),
    ("parts: [{script: a.sh, options: --tiem=5}]", "part 0: --tiem: '--tiem=5' is not an option"),
    (f"parts: [{PART}, {{script: none.sh}}]", "part 1: script: 'none.sh' does not exist"),
    ("parts: [{script: a.sh, script: b.sh}]", "file (line 1) gives 'script' twice"),
    ("parts: &a [*a]", "file (line 1) has the anchor &a: write the value out"),
    ("parts: [*a]", "file (line 1) has the alias *a: write the value out"),
    ("parts: !!python/object/apply:os.system [true]", "file (line 1) has the tag tag:yaml.org"),
    ("parts: []\n---\nparts: []", "file (line 2) begins a second document"),
    ("parts:\n- ? [a]\n  : b", "file (line 2) has a list or a mapping as a key"),
    ("parts: " + "[" * 100_000, "file (line 1) is nested more than 8 deep"),
    ("parts: [" + "a," * 30_000 + "]", "file (line 1) has more than 20000 values"),
    ("parts: [" + ",".join([PART] * 129) + "]", "file: parts: '129 jobs' are more than 128"),
    ("{", "--pack: 'file' is not JSON"),
    ('{"parts": ' + "[" * 100_000, "--pack: 'file' is nested too deeply"),
    ('{"parts": [{"script": "a.sh", "script": "b.sh"}]}', "file: 'script' is given twice"),
    ('{"parts": [{"script": true}]}', "part 0: script is not a text"),
    ('{"parts": [{"options": ["--wrap", "\\ud800"]}]}', "part 0: options contains half a character"),
    ("#" * 300_000, "--pack: 'file' is longer than 262144 bytes"),
    ("\udcff", "--pack: 'file' is not UTF-8 (byte 0)"),
]


@pytest.mark.parametrize(("text", "says"), BAD_FILES, ids=[case[1][:60] for case in BAD_FILES])
def test_a_bad_file_is_one_line_that_names_the_part(
    text: str, says: str, state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(text.encode("utf-8", "surrogateescape"))
    with FakeApi(state_dir / "s", Submit=unanswered) as door:
        assert main(["--socket", door.path, "--pack", "file"]) == exits.USAGE
        assert door.requests == []
    captured = capsys.readouterr()
    assert captured.err.startswith(f"essubmit: {says}"), captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)


# ---- the schema ----


def test_the_schema_takes_the_examples_and_no_other_keys() -> None:
    schema = json.loads((ROOT / "docs" / "reference" / "pack.schema.json").read_text())
    check = jsonschema.validators.validator_for(schema)
    check.check_schema(schema)
    for text in (YAML, JSON):
        jsonschema.validate(yaml.safe_load(text), schema)
        jsonschema.validate(pack_yaml.read_yaml(text, "file"), schema)
    for text in (
        "parts: []",
        "name: x",
        "parts: [{scirpt: a.sh}]",
        "parts: [{delay: 5s}]",
        "parts: [{delay: -1}]",
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(yaml.safe_load(text), schema)


def test_the_schema_has_every_field_of_the_reader() -> None:
    schema = pack_file.schema()
    assert list(schema["properties"]) == [field.name for field in pack_file.PACK_FIELDS]
    part = schema["properties"]["parts"]["items"]
    assert list(part["properties"]) == [field.name for field in pack_file.PART_FIELDS]
    assert schema["required"] == ["parts"]


# ---- --pack-fail ----


@pytest.mark.parametrize(
    "words",
    [
        ("--pack-fail=cancel", "a.sh", ":", "--delay=60", "b.sh"),
        ("-N1", "a.sh", ":", "--delay=60", "--pack-fail", "cancel", "b.sh"),
        ("--pack-fail=cancel", "a.sh", ":", "--pack-fail=cancel", "-N2", ":", "--delay=1", "b.sh"),
    ],
)
def test_the_failure_of_one_job_may_cancel_the_others(state_dir: Path, words: tuple[str, ...]) -> None:
    assert submit(state_dir, *words).packs[0].cancels


@pytest.mark.parametrize("words", [(), ("--pack-fail=go-on",)])
def test_the_others_go_on_by_default(state_dir: Path, words: tuple[str, ...]) -> None:
    assert not submit(state_dir, *words, "a.sh", ":", "--delay=60", "b.sh").packs[0].cancels


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.yaml", "fail: cancel\nparts: [{script: a.sh}, {script: b.sh, delay: 60}]\n"),
        ("c.yaml", "parts: [{script: a.sh}, {script: b.sh, options: --pack-fail=cancel}]\n"),
        ("c.json", '{"fail": "cancel", "parts": [{"script": "a.sh"}, {"script": "b.sh"}]}'),
        ("c.txt", "a.sh\n--delay=60 --pack-fail=cancel b.sh\n"),
    ],
)
def test_a_file_says_it_too(state_dir: Path, scripts: Path, name: str, text: str) -> None:
    (scripts / name).write_text(text)
    assert submit(state_dir, "--pack", name).packs[0].cancels


def test_the_command_line_says_it_for_a_file(state_dir: Path, scripts: Path) -> None:
    (scripts / "c.txt").write_text("a.sh\n--delay=60 b.sh\n")
    assert submit(state_dir, "--pack-fail=cancel", "--pack", "c.txt").packs[0].cancels


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("--pack-fail=stop", "a.sh", ":", "--delay=60", "b.sh"),
            "--pack-fail: 'stop' is not one of go-on, cancel: use e.g. --pack-fail=cancel",
        ),
        (
            ("--pack-fail=cancel", "a.sh", ":", "--pack-fail=go-on", "b.sh"),
            "--pack-fail: 'go-on' differs from that of another part: say one for the whole pack",
        ),
        (
            ("--pack-fail=cancel", "a.sh"),
            "--pack-fail: 'cancel' is for a pack, and this is one job",
        ),
        (
            ("scripted.sh", ":", "--delay=1", "b.sh"),
            "--pack-fail: 'cancel' is for the command line only: remove it",
        ),
    ],
)
def test_what_it_cannot_be_is_refused(
    scripts: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], problem: str
) -> None:
    (scripts / "scripted.sh").write_text("#!/bin/sh\n#SBATCH --pack-fail=cancel\ntrue\n")
    assert main(["--socket", "/nowhere", *words]) == exits.USAGE
    assert problem in capsys.readouterr().err


def test_the_schema_knows_the_words(scripts: Path) -> None:
    found = pack_file.schema()["properties"]["fail"]
    assert found["enum"] == ["go-on", "cancel"]
