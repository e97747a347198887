"""`qsub`, `qstat` and `qdel` against a controller that answers what a test says."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from escli.pbs.launch import main
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi
from tests.support.golden import Golden

S = 1_000_000
NOW_US = 1_800_000_000 * S
JOBS = (
    pb.JobInfo(job_id=17, name="relax-the-very-long-name", user="ada", partition="main", state="RUNNING",
               submitted_us=NOW_US - 9000 * S, started_us=NOW_US - 3661 * S, time_limit_s=7200, nodes=2, cpus=32,
               memory_mib=8192),
    pb.JobInfo(job_id=18, name="sweep", user="bob", partition="main", state="PENDING", array_tasks_left="2-9",
               tasks_running=1, nodes=1, cpus=1),
    pb.JobInfo(job_id=20, array_job_id=18, array_task=1, name="sweep", user="bob", partition="main", state="RUNNING",
               started_us=NOW_US - 5 * S, nodes=1, cpus=1),
    pb.JobInfo(job_id=21, name="held", user="ada", partition="main", state="PENDING", reason="JobHeldUser", cpus=4),
    pb.JobInfo(job_id=22, name="later", user="ada", partition="main", state="PENDING", reason="BeginTime", cpus=4),
    pb.JobInfo(job_id=23, name="done", user="ada", partition="main", state="COMPLETED", started_us=NOW_US - 60 * S,
               ended_us=NOW_US - 30 * S, cpus=4, nodes=1),
)  # fmt: skip


def jobs(request: pb.JobsRequest) -> pb.JobsReply:
    wanted = {ref.job_id for ref in request.jobs}
    return pb.JobsReply(
        now_us=NOW_US, jobs=[one for one in JOBS if not wanted or wanted & {one.job_id, one.array_job_id}]
    )


def cancelled(request: pb.CancelRequest) -> pb.ChangeReply:
    codes = {99: "not_found", 23: "conflict", 18: "denied"}
    return pb.ChangeReply(
        problems=[
            pb.Problem(what=str(ref.job_id), code=codes[ref.job_id])
            for ref in request.jobs
            if ref.job_id in codes
        ]
    )


@pytest.fixture
def api(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    for name in list(os.environ):
        if name.startswith(("SLURM", "ESLURM", "PBS")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(state_dir)
    with FakeApi(
        state_dir / "s",
        Submit=lambda _: pb.SubmitReply(job_ids=[17]),
        Ping=lambda _: pb.PingReply(cluster="here"),
        Jobs=jobs,
        Cancel=cancelled,
    ) as served:
        yield served
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def say(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(*words: str) -> tuple[int, str]:
        code = main(words[0], words[1:], socket=api.path)
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


Say = Callable[..., tuple[int, str]]


def test_a_script_is_submitted(say: Say, api: FakeApi, state_dir: Path) -> None:
    (state_dir / "job.sh").write_text(
        "#!/bin/bash\n#PBS -N fluid -q short\n#PBS -l select=2:ncpus=4:mem=2gb,walltime=1:00:00\n"
        "#PBS -j oe\n\ncd $PBS_O_WORKDIR\n"
    )
    assert say("qsub", "-q", "long", "-v", "A=1", "job.sh") == (0, "17\n")
    job: Any = api.asked("Submit")[0].jobs[0]
    assert (job.name, job.partition, job.time_limit_s, job.work_dir) == (
        "fluid",
        "long",
        3600,
        os.path.expanduser("~"),
    )
    (chunk,) = job.components[0].chunks
    assert (chunk.count, chunk.cores, chunk.memory_mib) == (2, 4, 2048)
    assert job.output == f"{state_dir}/fluid.o%j" and not job.error and job.truncate_output
    assert job.script.startswith(b"#!/bin/bash\nPBS_JOBID=")
    variables = dict(one.split("=", 1) for one in bytes(job.environment).decode().split("\0") if "=" in one)
    assert (
        variables["PBS_O_WORKDIR"] == str(state_dir)
        and variables["A"] == "1"
        and variables["OMP_NUM_THREADS"] == "4"
    )
    assert variables["PBS_QUEUE"] == "long" and "PYTHONPATH" not in variables


def test_an_array_has_brackets(say: Say, state_dir: Path) -> None:
    (state_dir / "job.sh").write_text("true\n")
    assert say("qsub", "-J", "1-3", "job.sh") == (0, "17[]\n")
    assert say("qsub", "-z", "job.sh") == (0, "")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("qsub", "-I"), "qsub: -I is not supported: use esalloc, or esrun --pty bash"),
        (("qsub", "-m", "abx", "job.sh"), "qsub: -m: 'abx' is none of a, b, e and n"),
        (("qsub", "-M", "|/bin/sh", "job.sh"), "qsub: -M: '|/bin/sh' is neither"),
        (("qsub", "-y", "job.sh"), "qsub: invalid option -- 'y': see qsub --help"),
        (("qsub", "none.sh"), "qsub: script file none.sh cannot be loaded: No such file or directory"),
        (("qsub", "job.sh", "x"), "qsub: x: a script takes no arguments: give it variables with -v"),
        (("qsub", "wrong.sh"), "qsub: #PBS line 2: -l: 'vmem=1gb' is not supported"),
        (("qsub", "words.sh"), "qsub: #PBS line 2: b is no option"),
        (("qstat", "-B"), "qstat: -B is not supported: use esinfo"),
        (("qstat", "x"), "qstat: JOB: 'x' is no job id: write e.g. 17, 17[] or 17[3]"),
        (("qdel",), "qdel: no job is named"),
    ],
)
def test_errors(say: Say, api: FakeApi, state_dir: Path, words: tuple[str, ...], text: str) -> None:
    (state_dir / "job.sh").write_text("#!/bin/sh\n")
    (state_dir / "wrong.sh").write_text("#!/bin/sh\n#PBS -l vmem=1gb\n")
    (state_dir / "words.sh").write_text("#!/bin/sh\n#PBS -N a b\n")
    code, said = say(*words)
    assert code == 2 and said.startswith(text) and said.count("\n") == 1
    assert not api.asked("Submit")


def test_tables(say: Say, golden: Golden) -> None:
    lines = (
        ("qstat",),
        ("qstat", "-x"),
        ("qstat", "-a"),
        ("qstat", "-u", "ada"),
        ("qstat", "18[1]", "17.here"),
        ("qstat", "-f", "17"),
        ("qstat", "-x", "-f", "23"),
    )
    golden("pbs/qstat.txt", "".join(f"$ {' '.join(words)}\n{say(*words)[1]}" for words in lines))
    assert say("qstat", "99") == (153, "qstat: Unknown Job Id 99\n")
    code, said = say("qstat", "23")
    assert code == 35 and "23 Job has finished" in said
    assert say("qstat", "-x", "23")[0] == 0


def test_jobs_are_ended(say: Say, api: FakeApi) -> None:
    assert say("qdel", "17.here", "20[3]") == (0, "")
    first, second = api.asked("Cancel")[0].jobs
    assert (first.job_id, second.job_id, second.task) == (17, 20, 3)
    assert say("qdel", "99") == (153, "qdel: Unknown Job Id 99\n")
    assert say("qdel", "23") == (35, "qdel: Job has finished 23\n")
    assert say("qdel", "18") == (1, "qdel: Unauthorized Request  18\n")


def test_help_and_version(say: Say) -> None:
    for command in ("qsub", "qstat", "qdel"):
        assert say(command, "--version")[1].startswith("eslurm ")
        code, said = say(command, "--help")
        assert code == 0 and said.startswith(f"Usage: {command}")


def test_an_unreachable_cluster_is_one_line(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("qstat", [], socket=str(state_dir / "none")) == 3
    assert capsys.readouterr().err.startswith("qstat: ")
