"""Mail in Slurm's words: values of --mail-type, subjects and texts of messages."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.compat.errors import OptionError
from eslurm.compat.slurm.mail_text import (
    mail_flags,
    mail_type_text,
    parse_mail_type,
    parse_mail_user,
    subject_of,
    text_of,
)
from eslurm.core.model.job import ArraySpec, Job, JobSpec
from eslurm.core.model.job_states import JobState
from eslurm.core.model.mail import MailNote
from eslurm.core.model.mail_words import WORDS
from eslurm.core.model.request import Request
from tests.kits.core import ALICE

SECOND = 1_000_000


def job(name: str = "x", **more: object) -> Job:
    spec = JobSpec(
        name, ALICE, "main", (Request(),), b"", b"", "/home/alice", time_limit_s=3600, output="o-%j-%x"
    )
    return Job(17, spec, JobState.COMPLETED, SECOND, 0, **more)  # type: ignore[arg-type]


def note(event: str = "end", state: str = "COMPLETED", **more: object) -> MailNote:
    return MailNote(1, event, 9 * SECOND, state, **{"started_us": 4 * SECOND, "run_us": 5 * SECOND} | more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "events"),
    [
        ("END,FAIL", "end,fail"),
        ("fail, end", "end,fail"),
        ("ALL", "begin,end,fail,requeue,invalid-depend"),
        ("NONE", ""),
        ("END,NONE", ""),
        ("stage_out", ""),
        ("TIME_LIMIT,TIME_LIMIT_80,ARRAY_TASKS", "time-limit,time-limit-80,array-tasks"),
    ],
)
def test_types(given: str, events: str) -> None:
    assert parse_mail_type(given) == events


@pytest.mark.parametrize("given", ["", "END,", "DONE", "TIME_LIMIT_70", "END;FAIL", "all\n"[:4] + "x"])
def test_types_that_are_none(given: str) -> None:
    with pytest.raises(OptionError, match="--mail-type"):
        parse_mail_type(given)


@pytest.mark.parametrize("given", ["", "-oQ/tmp", "a@b,", "a b", "a\nb", ",".join(["a"] * 9), "a" * 300])
def test_users_that_are_none(given: str) -> None:
    with pytest.raises(OptionError, match="--mail-user"):
        parse_mail_user(given)


def test_spellings() -> None:
    assert parse_mail_user("ada, bob@example.org") == "ada,bob@example.org"
    assert mail_type_text("end,time-limit-80") == "END,TIME_LIMIT_80" and mail_type_text("") == "NONE"
    assert mail_flags("begin,time-limit,time-limit-50") == ["BEGIN", "TIME=100%", "TIME=50%"]
    assert all(mail_flags(word) for word in WORDS) and not mail_flags("")


@pytest.mark.parametrize(
    ("told", "subject"),
    [
        (note(), "Slurm Job_id=17 Name=x Ended, Run time 00:00:05, COMPLETED, ExitCode 0"),
        (
            note("fail", "FAILED", exit_code=3),
            "Slurm Job_id=17 Name=x Failed, Run time 00:00:05, FAILED, ExitCode 3",
        ),
        (note("fail", "FAILED", exit_signal=9), "Slurm Job_id=17 Name=x Failed, Run time 00:00:05, FAILED"),
        (note("begin", "RUNNING", run_us=2 * SECOND), "Slurm Job_id=17 Name=x Began, Queued time 00:00:02"),
        (note("requeue", "PENDING"), "Slurm Job_id=17 Name=x Requeued, Run time 00:00:05"),
        (
            note("time-limit-80", "RUNNING"),
            "Slurm Job_id=17 Name=x Reached 80% of time limit, Run time 00:00:05",
        ),
        (note("invalid-depend", "CANCELLED"), "Slurm Job_id=17 Name=x Invalid dependency"),
    ],
)
def test_subjects(told: MailNote, subject: str) -> None:
    assert subject_of(job(), told) == subject


def test_subjects_of_arrays() -> None:
    spec = job().spec
    task = job(array_job_id=12, array_task=3)
    assert subject_of(task, note()).startswith("Slurm Array Task Job_id=12_3 (17) Name=x Ended")
    spec = msgspec.structs.replace(spec, array=ArraySpec(((0, 3),)))
    whole = Job(
        17, spec, JobState.FAILED, SECOND, 0, tasks_left=(), tasks_ok=((0, 1),), tasks_failed=((2, 3),)
    )
    head = "Slurm Array Summary Job_id=17_* (17) Name=x "
    assert subject_of(whole, note("fail", "FAILED", exit_code=2)) == (
        f"{head}Failed, Run time 00:00:05, Mixed, ExitCode [0-2]"
    )
    failed = msgspec.structs.replace(whole, tasks_ok=())
    assert subject_of(failed, note("end", "FAILED", exit_code=2)).endswith("FAILED, MaxExitCode [2]")
    assert subject_of(failed, note("end", "FAILED", exit_signal=9)).endswith("Mixed, MaxSignal [9]")


@pytest.mark.parametrize("name", ["a\r\nBcc: eve@x", "\x1b[2J", "a\x85b\u2028c", "\ud800", "n" * 5000])
def test_a_name_never_leaves_its_line(name: str) -> None:
    subject = subject_of(job(name), note())
    assert subject.isprintable() and len(subject) <= 512
    text = text_of(job(name), note(text=name), ["cn1"], "test", str)
    assert all(line.isprintable() for line in text.split("\n"))
    assert not any(line.startswith("Bcc") for line in text.splitlines())


def test_a_text() -> None:
    told = note(nodes=(1, 2), node_count=40, cpu_us=3 * SECOND, max_rss_kib=2048, exit_code=1, text="why")
    text = text_of(job(), told, ["cn1", "cn2"], "test", lambda us: f"t{us // SECOND}")
    assert text == (
        "Job:        17 (x)\nUser:       alice\nCluster:    test\nPartition:  main\nState:      COMPLETED\n"
        "Exit code:  1:0\nReason:     why\nNodes:      cn[1-2],... (40 in all)\n"
        "Submitted:  t1\nStarted:    t4\nAt:         t9\n"
        "Run time:   00:00:05 of 1:00:00\nCPU time:   00:00:03 (of the script)\n"
        "Memory:     2.0 MiB at most (of the script)\nDirectory:  /home/alice\nOutput:     o-17-x\n"
    )
