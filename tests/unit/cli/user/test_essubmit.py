"""Requests, output and exit codes of `essubmit`; it sends nothing for a mistake."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from escli import exits
from escli.failures import CommandFailed
from escli.user.essubmit import main
from escli.user.exporting import exported
from escli.user.waiting import exit_code_of, wait_for_job
from eslurm.compat.environment import decode_environment
from eslurm.ports.api import Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi, Refuse, unanswered


def accepted(_request: Any) -> pb.SubmitReply:
    return pb.SubmitReply(job_ids=[17], revision=4)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.sh"
    path.write_text("#!/bin/sh\n#SBATCH -J fluid -n 4\n#SBATCH --no-requeue\n#ESLURM --time=1:00:00\necho\n")
    return path


def submit(door: FakeApi, *words: str) -> pb.JobRequest:
    assert main(["--socket", door.path, *words]) == exits.OK
    (request,) = door.asked("Submit")
    (job,) = request.jobs
    return job


def test_a_script_and_its_options(script: Path, state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeApi(state_dir / "s", Submit=accepted) as door:
        job = submit(door, "-n", "8", "--requeue", "run.sh", "-n", "input")
        assert len(door.request_ids[0]) == 16
        assert door.request_ids[0] != bytes(16)
    assert capsys.readouterr().out == "Submitted batch job 17\n"
    assert (job.name, job.time_limit_s, list(job.arguments)) == ("fluid", 3600, ["-n", "input"])
    assert job.components[0].tasks == 8
    assert job.requeue is True
    assert job.script == script.read_bytes()
    assert job.work_dir == str(script.parent)
    assert job.output == "slurm-%j.out"
    assert not job.HasField("priority")
    variables = decode_environment(job.environment)
    assert variables["SLURM_SUBMIT_DIR"] == variables["ESLURM_SUBMIT_DIR"] == str(script.parent)
    assert variables["PATH"] == os.environ["PATH"]


def test_every_option_reaches_the_request(script: Path, state_dir: Path) -> None:
    words = (
        "-J n -N 2-4 -n 8 -c 2 --mem-per-cpu 2G -t 5 -p short -o o -e e -i i -D sub --array 0-7:2%3 -d afterok:3,singleton "
        "--export NONE --begin 2100-01-01 --priority 9 --exclusive -w cn[1-2] -x cn3 --ntasks-per-node 4 -H -A acc "
        "--comment c --open-mode truncate run.sh"
    )
    with FakeApi(state_dir / "s", Submit=accepted) as door:
        job = submit(door, *words.split())
    assert job.components[0] == pb.ResourceRequest(
        tasks=8,
        cpus_per_task=2,
        nodes_min=2,
        nodes_max=4,
        tasks_per_node=4,
        memory_per_cpu_mib=2048,
        exclusive=True,
        include=["cn1", "cn2"],
        exclude=["cn3"],
    )
    assert (job.name, job.partition, job.account, job.comment) == ("n", "short", "acc", "c")
    assert (job.output, job.error, job.input, job.truncate_output) == ("o", "e", "i", True)
    assert job.work_dir == f"{script.parent}/sub"
    assert list(job.array) == [pb.TaskRange(first=0, last=6, step=2)]
    assert job.array_limit == 3
    assert list(job.dependencies) == [
        pb.Dependency(kind="afterok", job_id=3),
        pb.Dependency(kind="singleton"),
    ]
    assert (job.time_limit_s, job.priority, job.held) == (300, 9, True)
    assert job.begin_us > 4_000_000_000_000_000


def resources(state_dir: Path, line: str) -> pb.ResourceRequest:
    with FakeApi(state_dir / "s", Submit=accepted) as door:
        return submit(door, *line.split(), "--wrap", "true").components[0]


GPU1, GPU2 = pb.ResourceAmount(name="gpu", items=1), pb.ResourceAmount(name="gpu", items=2)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "--gres gpu:a100:2,fpga -C ib|old -L matlab:2",
            pb.ResourceRequest(
                per_node=[GPU2, pb.ResourceAmount(name="fpga", items=1)],
                constraint="gpu:a100&(ib|old)",
                wide=[pb.ResourceAmount(name="matlab", items=2)],
            ),
        ),
        ("-G 4 -N 2", pb.ResourceRequest(tasks=2, nodes_min=2, nodes_max=2, per_node=[GPU2])),
        ("-G v100:4 -n 2", pb.ResourceRequest(tasks=2, per_task=[GPU2], constraint="gpu:v100")),
        ("--gpus 2", pb.ResourceRequest(per_task=[GPU2])),
        ("--gpus-per-task 1 -n 3", pb.ResourceRequest(tasks=3, per_task=[GPU1])),
        ("--gpus-per-node a100:1", pb.ResourceRequest(per_node=[GPU1], constraint="gpu:a100")),
    ],
)
def test_devices_features_and_licences(
    line: str, expected: pb.ResourceRequest, state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected.tasks, expected.cpus_per_task = expected.tasks or 1, 1
    assert resources(state_dir, line) == expected


def test_chunks(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = resources(
        state_dir, "--rset 2:ncpus=4:mem=1g:net=IB+gpus=2,sw=g03,place=scatter:excl -C ib -L matlab -x cn9"
    )
    assert found == pb.ResourceRequest(
        tasks=3,
        cpus_per_task=4,
        exclusive=True,
        exclude=["cn9"],
        wide=[pb.ResourceAmount(name="matlab", items=1)],
        constraint="sw=g03&ib",
        chunks=[
            pb.Chunk(count=2, cores=4, memory_mib=1024, constraint="net=IB"),
            pb.Chunk(count=1, cores=1, resources=[GPU2]),
        ],
        place="scatter",
    )


def test_when_and_under_whose_rules(script: Path, state_dir: Path) -> None:
    words = (
        "-q urgent --reservation course --nice=-5 --start-at 2100-01-01 --deadline 2100-01-02 "
        "--signal B:USR1@120 --warn-script save.sh run.sh"
    )
    with FakeApi(state_dir / "s", Submit=accepted) as door:
        job = submit(door, *words.split())
    assert (job.qos, job.reservation, job.nice) == ("urgent", "course", -5)
    assert 0 < job.start_at_us < job.deadline_us
    assert (job.warn_signal, job.warn_before_s, job.warn_batch_only) == (10, 120, True)
    assert job.warn_script == f"{script.parent}/save.sh"


def test_retries_by_the_server(script: Path, state_dir: Path) -> None:
    words = "--retry-on=timeout,node-fail:2 --grow-time=1.5x --max-time=12:00:00 run.sh"
    with FakeApi(state_dir / "s", Submit=accepted) as door:
        job = submit(door, *words.split())
    with FakeApi(state_dir / "t", Submit=accepted) as door:
        plain = submit(door, "--retry-on", "NODE-FAIL", "run.sh")
    with FakeApi(state_dir / "u", Submit=accepted) as door:
        memory = submit(door, "--retry-on", "oom:1", "--grow-mem", "2", "--max-mem", "64G", "run.sh")
    assert (list(job.retry_on), job.retries_max) == (["timeout", "node-fail"], 2)
    assert (job.grow_time_percent, job.max_time_s) == (150, 43_200)
    assert (list(plain.retry_on), plain.retries_max, plain.grow_time_percent) == (["node-fail"], 1, 0)
    assert (memory.grow_memory_percent, memory.max_memory_mib) == (200, 65_536)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--retry-on=tiemout", "--retry-on: 'tiemout' is no cause of a retry: did you mean timeout?"),
        ("--retry-on=", "--retry-on: an empty value is no cause of a retry: use timeout, node-fail, oom"),
        ("--retry-on=timeout:0", "--retry-on: 'timeout:0' asks for no number from 1 to 100"),
        ("--retry-on=timeout:1:2", "--retry-on: 'timeout:1:2' asks for no number from 1 to 100"),
        ("--grow-time=2x", "--grow-time: '2x' needs --retry-on with timeout: use e.g. --retry-on=timeout:2"),
        ("--retry-on=timeout --max-mem=4G", "--max-mem: '4G' needs --retry-on with oom"),
        ("--retry-on=timeout --grow-time=0.5x", "--grow-time: '0.5x' is no factor from 1x to 10x"),
        ("--retry-on=timeout --grow-time=11x", "--grow-time: '11x' is no factor from 1x to 10x"),
        ("--retry-on=timeout --grow-time=1.234x", "--grow-time: '1.234x' is no factor"),
        ("--retry-on=timeout --max-time=soon", "--max-time: 'soon' is not a time"),
        ("--retry-on=timeout --max-time=unlimited", "--max-time: 'unlimited' is no bound"),
    ],
)
def test_retries_that_say_nothing_are_refused(
    words: str, says: str, capsys: pytest.CaptureFixture[str], script: Path
) -> None:
    assert main([*words.split(), "run.sh"]) == exits.USAGE
    assert capsys.readouterr().err.startswith(f"essubmit: {says}")


def test_nice_without_a_number_is_a_hundred(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeApi(state_dir / "s", Submit=accepted) as door:
        assert submit(door, "--nice", "--wrap", "true").nice == 100


def test_wrapping_a_command(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeApi(state_dir / "s", Submit=accepted) as door:
        job = submit(door, "--parsable", "--wrap", "echo $HOME")
    assert job.script.startswith(b"#!/bin/sh\n")
    assert job.script.endswith(b"\necho $HOME\n")
    assert job.name == "wrap"
    assert capsys.readouterr().out == "17\n"


def test_a_script_from_standard_input(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"#!/bin/sh\n#SBATCH -c 3\n")))
    with FakeApi(state_dir / "s", Submit=accepted) as door:
        job = submit(door, "--json", "-", "argument")
    assert job.components[0].cpus_per_task == 3
    assert list(job.arguments) == ["argument"]
    assert json.loads(capsys.readouterr().out) == {"job_id": 17}


def test_test_only_tells_what_the_controller_says(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(request: Any) -> pb.SubmitReply:
        assert request.test_only
        return pb.SubmitReply(test_answer="the job can start now")

    with FakeApi(state_dir / "s", Submit=answer) as door:
        assert main(["--socket", door.path, "--test-only", "--wrap", "true"]) == exits.OK
    assert capsys.readouterr().out == "essubmit: the job can start now\n"


BAD = [
    ("--time 5x --wrap true", "--time: '5x' is not a time (minutes, h:m:s or d-h:m:s): use e.g. --time 90"),
    ("-N 0 --wrap true", "-N: '0' asks for no node"),
    ("-n -4 --wrap true", "-n: '-4' is not a number from 1 on"),
    ("-n 2 -N 4 --wrap true", "-n: '2' tasks cannot fill 4 nodes: use -n 4 or more, or -N 2"),
    ("-n 9 -N 2 --ntasks-per-node 4 --wrap true", "-n: '9' tasks do not fit"),
    ("--mem lots --wrap true", "--mem: 'lots' is not an amount of memory"),
    ("--mem 0 --wrap true", "--mem: '0' is all memory of a node: add --exclusive"),
    ("--array 3-1 --wrap true", "--array: '3-1' has '3-1' with its ends swapped"),
    ("-d afterok:x --wrap true", "-d: 'afterok:x' has 'x' which is not a job id"),
    (
        "-d afterany:4_x --wrap true",
        "-d: 'afterany:4_x' has '4_x' which is not a task of an array",
    ),
    ("--begin soon --wrap true", "--begin: 'soon' is not a time"),
    ("--priority high --wrap true", "--priority: 'high' is not a number"),
    ("-w cn[1-2 --wrap true", "-w: 'cn[1-2' has unbalanced brackets"),
    ("-w cn1 -x cn1 --wrap true", "-x: 'cn1' is also in --nodelist"),
    ("-N 1 -w cn[1-2] --wrap true", "-w: 'cn[1-2]' names more than 1 nodes"),
    ("--open-mode rw --wrap true", "--open-mode: 'rw' is not a way to open files"),
    ("--exclusive=user --wrap true", "--exclusive: 'user' is a kind that is not supported"),
    ("--export 1A=2 --wrap true", "--export: '1A=2' names no variable"),
    ("--tiem 5 --wrap true", "--tiem: '--tiem' is not an option: did you mean --time?"),
    (
        "--gres=gpu: --wrap true",
        "--gres: 'gpu:' is not understood at 'gpu:' (column 1): write NAME[:TYPE][:N]",
    ),
    ("--gres=gpu:1 -G 2 --wrap true", "-G: '2' excludes --gres: give one of them"),
    ("-G 2 --gpus-per-node 2 --wrap true", "-G: '2' excludes --gpus-per-node"),
    ("-G 3 -N 2 --wrap true", "-G: '3' cannot be shared out evenly over 2 nodes: use --gpus-per-node"),
    ("-G 4 -N 2-4 --wrap true", "-G: '4' cannot be shared out over a range of nodes"),
    ("-G 3 -n 2 --wrap true", "-G: '3' cannot be shared out evenly over 2 tasks: use --gpus-per-task"),
    ("-C [a|b] --wrap true", "-C: '[a|b]' asks for one feature on all nodes alike, which is not supported"),
    ("-L a|b --wrap true", "-L: 'a|b' asks for one or another licence, which is not supported at 'a|b'"),
    (
        "--rset 2:ncpus=x --wrap true",
        "--rset: '2:ncpus=x' is not understood in column 9: 'x' is not a number",
    ),
    ("--rset 2:ncpus=1 -n 2 --wrap true", "-n: '2' excludes --rset: say it in the chunks"),
    ("--rset 2 -w cn1 -x cn1 --wrap true", "-x: 'cn1' is also in --nodelist"),
    ("--nice=lots --wrap true", "--nice: 'lots' is not a number"),
    ("--deadline 2001-01-01 --wrap true", "--deadline: '2001-01-01' has passed already"),
    (
        "--start-at 2100-01-02 --deadline 2100-01-01 --wrap true",
        "--deadline: '2100-01-01' is not after --start-at: give a later one",
    ),
    ("--signal X@5 --wrap true", "--signal: 'X@5' is not understood at 'X' (column 1)"),
    ("--warn-script= --wrap true", "--warn-script: an empty value is not a file name"),
    ("--spread-job --wrap true", "--spread-job cannot be met: this option is not supported: use -N"),
    ("-m block --wrap true", "-m: 'block' cannot be met: this option is not supported"),
    ("--wrap true extra.sh", "--wrap: 'extra.sh' is a script beside it"),
    ("missing.sh", "script: 'missing.sh' does not exist: use an existing file, or --wrap"),
    ("empty.sh", "script: 'empty.sh' is empty"),
    ("binary.sh", "script: 'binary.sh' is binary, not a text"),
    ("long.sh", "script: 'long.sh' is longer than 4194304 bytes"),
    ("plain.sh", "script: 'plain.sh' does not begin with #! and an interpreter"),
    ("pipe", "script: 'pipe' is not a regular file"),
    (".", "script: '.' is a directory"),
    ("badline.sh", "#SBATCH (line 2) --time: '5x' is not a time"),
    ("wrapline.sh", "#SBATCH (line 2) --wrap: 'x' is for the command line only"),
    ("wordline.sh", "#SBATCH (line 2): 'echo' is not an option"),
]


@pytest.mark.parametrize(("line", "says"), BAD, ids=[case[0] for case in BAD])
def test_bad_input_is_one_line_and_sends_nothing(
    line: str,
    says: str,
    tmp_path: Path,
    state_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.sh").touch()
    (tmp_path / "binary.sh").write_bytes(b"\x7fELF\0")
    (tmp_path / "long.sh").write_bytes(b"#!/bin/sh\n" + b"#" * 4 * 1024 * 1024)
    (tmp_path / "plain.sh").write_text("echo\n")
    (tmp_path / "badline.sh").write_text("#!/bin/sh\n#SBATCH --time=5x\n")
    (tmp_path / "wrapline.sh").write_text("#!/bin/sh\n#SBATCH --wrap=x\n")
    (tmp_path / "wordline.sh").write_text("#!/bin/sh\n#SBATCH -n 4 echo\n")
    os.mkfifo(tmp_path / "pipe")
    with FakeApi(state_dir / "s", Submit=unanswered) as door:
        assert main(["--socket", door.path, *line.split()]) == exits.USAGE
        assert door.requests == []
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"essubmit: {says}")
    assert captured.err.count("\n") == 1


def test_memory_given_twice(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeApi(state_dir / "s", Submit=accepted) as door:
        job = submit(door, "--mem", "1G", "--mem-per-cpu", "2G", "--wrap", "true")
    assert (job.components[0].memory_per_node_mib, job.components[0].memory_per_cpu_mib) == (0, 2048)


def test_ignored_options_are_told(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeApi(state_dir / "s", Submit=accepted) as door:
        submit(door, "--profile=task", "--wrap", "true")
    assert capsys.readouterr().err == "essubmit: --profile is not supported and left out\n"


def test_mail(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(_request: object) -> pb.SubmitReply:
        return pb.SubmitReply(job_ids=[17], warnings=["this cluster sends no mail"])

    with FakeApi(state_dir / "s", Submit=told) as door:
        job = submit(door, "--mail-type=fail,END", "--mail-user", "ada, bob@b", "--wrap", "true")
    assert (job.mail_type, job.mail_user) == ("end,fail", "ada,bob@b")
    assert capsys.readouterr().err == "essubmit: this cluster sends no mail\n"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (Status.INVALID_ARGUMENT, exits.FAILED),
        (Status.PERMISSION_DENIED, exits.FAILED),
        (Status.DEADLINE_EXCEEDED, exits.UNKNOWN_OUTCOME),
    ],
)
def test_refusals(status: Status, code: int, state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_request: Any) -> Any:
        raise Refuse(status, "-N: 99 nodes are more than the 16 there are")

    with FakeApi(state_dir / "s", Submit=refuse) as door:
        assert main(["--socket", door.path, "-N", "99", "--wrap", "true"]) == code
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    if code == exits.FAILED:
        assert err == "essubmit: -N: 99 nodes are more than the 16 there are\n"


def test_no_cluster(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ESLURM_SOCKET", raising=False)
    monkeypatch.setenv("ESLURM_STATE_DIR", str(state_dir))
    monkeypatch.setattr("escli.api.SYSTEM_SOCKET", str(state_dir / "none"))
    assert main(["--wrap", "true"]) == exits.UNREACHABLE
    assert "no cluster here" in (err := capsys.readouterr().err)
    assert "`eslurm up`" in err


def test_the_sockets_of_the_environment(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeApi(state_dir / "esctld.sock", Submit=accepted) as door:
        monkeypatch.delenv("ESLURM_SOCKET", raising=False)
        monkeypatch.setenv("ESLURM_STATE_DIR", str(state_dir))
        assert main(["-Q", "--wrap", "true"]) == exits.OK
        monkeypatch.setenv("ESLURM_SOCKET", door.path)
        monkeypatch.setenv("ESLURM_STATE_DIR", "/nowhere")
        assert main(["-Q", "--wrap", "true"]) == exits.OK
        assert len(door.asked("Submit")) == 2


@pytest.mark.parametrize("text", ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "", "\udcff"])
def test_the_trace_of_the_environment(text: str, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes along even where no variable does; it is never the id of the request, which is to be new each time."""
    monkeypatch.setenv("TRACEPARENT", text)
    with FakeApi(state_dir / "s", Submit=accepted) as door:
        for _ in range(2):
            assert main(["--socket", door.path, "-Q", "--export", "NONE", "--wrap", "true"]) == exits.OK
        first, second = door.asked("Submit")
        assert first.jobs[0].traceparent == second.jobs[0].traceparent == (text if text.isascii() else "")
        assert len(set(door.request_ids)) == 2


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("ALL", {"A", "B"}),
        ("ALL,C=1", {"A", "B", "C"}),
        ("A,Z", {"A", "HOME", "USER", "LOGNAME", "SHELL", "PATH"}),
        ("NONE", {"HOME", "USER", "LOGNAME", "SHELL", "PATH"}),
    ],
)
def test_exported_variables(choice: str, names: set[str]) -> None:
    found = exported(choice, {"A": "1", "B": "2", "SLURM_JOB_ID": "3"})
    assert set(found) == names


def test_quoted_values_keep_their_commas() -> None:
    assert exported("ALL,A='x,y',B=", {}) == {"A": "x,y", "B": ""}


def infos(*states: str, **fields: Any) -> list[pb.JobsReply]:
    return [pb.JobsReply(jobs=[pb.JobInfo(job_id=17, state=state, **fields)]) for state in states]


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ({"state": "COMPLETED"}, 0),
        ({"state": "FAILED", "exit_code": 3}, 3),
        ({"state": "FAILED", "exit_signal": 9}, 137),
        ({"state": "CANCELLED"}, 1),
        ({"state": "TIMEOUT", "exit_signal": 15}, 143),
    ],
)
def test_waiting_ends_with_the_jobs_code(
    last: dict[str, Any],
    code: int,
    state_dir: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("escli.user.waiting._PAUSE_S", 0.0)
    replies = [*infos("PENDING", reason="resources"), *infos("RUNNING", node_names="cn[1-2]")]
    replies.append(pb.JobsReply(jobs=[pb.JobInfo(job_id=17, **last)]))
    with FakeApi(state_dir / "s", Submit=accepted, WaitJobs=lambda _: replies.pop(0)) as door:
        assert main(["--socket", door.path, "--wait", "--wrap", "true"]) == code
    err = capsys.readouterr().err.splitlines()
    assert err[:2] == ["essubmit: job 17: pending (Resources)", "essubmit: job 17: running on cn[1-2]"]
    assert err[2].startswith(f"essubmit: job 17: {last['state'].lower()}")


def test_a_job_that_left_memory_is_found_in_the_accounting(state_dir: Path) -> None:
    attempts = [
        pb.AttemptInfo(job_id=17, attempt=1, state="NODE_FAIL", ended_us=5),
        pb.AttemptInfo(job_id=17, attempt=2, state="FAILED", exit_code=7, ended_us=9),
    ]
    with FakeApi(
        state_dir / "s",
        Submit=accepted,
        WaitJobs=lambda _: pb.JobsReply(),
        Accounting=lambda _: pb.AccountingReply(attempts=attempts),
    ) as door:
        assert main(["--socket", door.path, "-Q", "--wait", "--wrap", "true"]) == 7


class RestartingDoor:
    """A door whose controller is away for a while."""

    def __init__(self, away: int) -> None:
        self._away = away

    def call(self, _method: str, _request: Any, _timeout_s: float = 0.0) -> pb.JobsReply:
        self._away -= 1
        if self._away >= 0:
            raise CommandFailed(exits.UNREACHABLE, "nobody there")
        return infos("COMPLETED")[0]


def test_waiting_outlives_the_controller(capsys: pytest.CaptureFixture[str]) -> None:
    pauses: list[float] = []
    door: Any = RestartingDoor(3)
    assert wait_for_job(door, 17, "essubmit", sleep=pauses.append) == exits.OK
    assert len(pauses) == 3
    assert capsys.readouterr().err.splitlines() == [
        "essubmit: job 17: the controller does not answer; still waiting",
        "essubmit: job 17: completed, exit code 0",
    ]


def test_an_exit_code_fits_a_process() -> None:
    assert exit_code_of(SimpleNamespace(exit_signal=0, exit_code=256, state="FAILED")) == 1


CELLS = pb.FederationReply(
    name="lab",
    cell="alpha",
    cells=[
        pb.CellInfo(name=name, state=state)
        for name, state in (("alpha", "alive"), ("beta", "alive"), ("gamma", "silent"))
    ],
)


@pytest.mark.parametrize(
    ("words", "cells"),
    [
        (("--cell", "any"), ["any"]),
        (("-M", "all"), ["any"]),
        (("--cell=beta,gamma",), ["beta", "gamma"]),
        (("-M", "alpha,beta"), ["alpha", "beta"]),
    ],
)
def test_several_cells_may_take_a_job_of_this_one(
    script: Path, state_dir: Path, words: tuple[str, ...], cells: list[str]
) -> None:
    with FakeApi(state_dir / "s", Submit=accepted) as door:
        assert list(submit(door, *words, "run.sh").cells) == cells
        assert not door.asked("CallCell")


def test_a_script_names_the_cells_that_may_take_it(script: Path, state_dir: Path) -> None:
    script.write_text("#!/bin/sh\n#ESLURM --cell=any\necho\n")
    with FakeApi(state_dir / "s", Submit=accepted) as door:
        assert list(submit(door, "run.sh").cells) == ["any"]


@pytest.mark.parametrize("text", ["beta,", "beta,any", "here,beta", "a/b,beta"])
def test_a_list_of_what_are_no_cells_is_refused(
    script: Path, state_dir: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    with FakeApi(state_dir / "s", Submit=accepted) as door:
        assert main(["--socket", door.path, "--cell", text, "run.sh"]) == exits.USAGE
        assert not door.requests
    assert "which is no cell" in capsys.readouterr().err


def in_beta(request: Any) -> pb.CallCellReply:
    """The answer of cell beta."""
    assert request.cell == "beta" and pb.SubmitRequest.FromString(request.request).test_only
    return pb.CallCellReply(reply=a_test("it would wait").SerializeToString())


def a_test(answer: str) -> pb.SubmitReply:
    return pb.SubmitReply(tests=[pb.TestAnswer(answer=answer, nodes="cn1")])


def test_each_cell_says_when_it_would_start_a_job(
    script: Path, state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: Any = {
        "Submit": lambda _request: a_test("it would start now"),
        "Federation": lambda _request: CELLS,
        "CallCell": in_beta,
    }
    with FakeApi(state_dir / "s", **answers) as door:
        words = ["--socket", door.path, "--test-only", "--cell", "any"]
        assert main([*words, "run.sh"]) == exits.OK
        told = capsys.readouterr()
        assert told.out.splitlines() == [
            "essubmit: cell alpha: it would start now on cn1",
            "essubmit: cell beta: it would wait on cn1",
        ]
        assert told.err == "essubmit: cell gamma: silent, lease ended 0:00 ago\n"
        # The cluster's own cell may always start it.
        assert main([*words[:-1], "beta,gamma", "--json", "run.sh"]) == exits.OK
        found = json.loads(capsys.readouterr().out)["cells"]
    assert [one["cell"] for one in found] == ["beta", "alpha", "gamma"]
    assert found[-1] == {"cell": "gamma", "error": "silent, lease ended 0:00 ago"}
