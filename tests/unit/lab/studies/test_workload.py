"""Logs as estimators are told them: what is unusual is counted and said, what cannot be used is left out."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.core.model.forecast import Submitted
from eslurm.lab.studies.workload import BAD_LINES_MAX, LogError, build, read_log
from eslurm.lab.workloads.swf import Header, Record, SwfError
from tests.kits.estimator import log_file, record, synthetic
from tests.support.profiles import draws


def notes(*records: Record) -> tuple[str, ...]:
    return build(records).notes


def test_a_job_is_told_as_it_was_asked_for() -> None:
    whole = Record(
        *(7, 100, 20, 300, 4, 1.5, 10.0, 8, 600, 2048.0),
        *(1, 3, 2, 12, 1, 9, -1, -1),
    )
    header = Header((" Queue: 1 batch", " Partition: 9 big"))
    (job,) = build([whole], header).jobs
    assert job.submitted == Submitted(
        7, 100, user="3", group="2", name="12", partition="batch", cores=8, memory_mib=16, limit_s=600
    )
    assert (job.start_s, job.runtime_s, job.end_s, job.area) == (120, 300, 420, 2_400)


def test_what_is_not_known_stays_unknown() -> None:
    (job,) = build([Record(7, 100, run_s=300, allocated=4)]).jobs
    assert job.submitted == Submitted(7, 100, cores=4)
    assert job.start_s == 100


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (record(-1, 5, 10), "1 job without a job number: left out"),
        (record(1, 5, 10), "1 job with the number of a job above: left out"),
        (record(2, -1, 10), "1 job without a time of submission: left out"),
        (record(2, 5, 0), "1 job without a run time (never started, or not known): left out"),
        (record(2, 5, -1), "1 job without a run time (never started, or not known): left out"),
        (
            record(2, 5, 10, allocated=-1, requested=0),
            "1 job without a number of processors: left out",
        ),
    ],
)
def test_what_cannot_be_used_is_counted_and_left_out(bad: Record, told: str) -> None:
    found = build([record(1, 0, 10), bad])
    assert [job.submitted.job_id for job in found.jobs] == [1]
    assert found.notes == (told,)


def test_what_is_unusual_is_counted_and_kept() -> None:
    found = build(
        [
            record(1, 50, 10, wait_s=-1),
            record(2, 40, 10, requested_s=-1),
            record(3, 60, 10, user=-1),
            record(4, 60, 10, requested_s=5),
            record(5, 40, 10),
        ]
    )
    assert [job.submitted.job_id for job in found.jobs] == [2, 5, 1, 3, 4]
    assert set(found.notes) == {
        "1 job without a wait, or a negative one: taken to have started at once",
        "1 job without a requested time: no limit given",
        "1 job of an unknown user",
        "1 job ran longer than they asked for",
        "2 jobs submitted before the job above them: put in order of submission",
    }


def test_a_part_of_a_log_and_its_clock(tmp_path: Path) -> None:
    path = log_file(tmp_path / "log.swf.gz", synthetic(50))
    whole, part = read_log(path), read_log(path, 20)
    assert part.jobs == whole.jobs[:20] and len(whole.jobs) == 50
    assert whole.begins_s == 845000000
    zone = Header((" UnixStartTime: 845000000", " TimeZoneString: Europe/Stockholm"))
    assert build(synthetic(5), zone).begins_s == 845000000 + 2 * 3600
    odd = Header((" UnixStartTime: 845000000", " TimeZoneString: ../Nowhere"))
    assert build(synthetic(5), odd).begins_s == 845000000


def test_lines_that_are_no_jobs_are_told_by_the_first(tmp_path: Path) -> None:
    path = log_file(tmp_path / "log.swf", synthetic(3))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:4], "4 100 -1 50 1", "what?", *lines[4:]]), encoding="utf-8")
    found = read_log(path)
    assert len(found.jobs) == 3
    assert found.notes[0].startswith("2 lines that are no job: left out (the first: ")
    assert "line 5, column 14: 5 numbers: a job has 18" in found.notes[0]


def test_rubbish_is_refused_in_one_line(tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish.swf"
    for data in (
        b"",
        b"; only a header\n",
        random.Random(1).randbytes(60_000),
        b"\0" * 100_000,
        b"x\n" * (2 * BAD_LINES_MAX),
    ):
        rubbish.write_bytes(data)
        with pytest.raises((LogError, SwfError)) as caught:
            read_log(rubbish)
        assert "\n" not in str(caught.value)
    rubbish.write_bytes(gzip.compress(log_file(tmp_path / "log.swf", synthetic(500)).read_bytes())[:-300])
    with pytest.raises(SwfError, match="the compressed file is damaged"):
        read_log(rubbish)


_NUMBERS = st.one_of(st.integers(-2, 5), st.integers(-(10**11), 10**11))


@settings(max_examples=draws(60))
@given(st.lists(st.builds(Record, *[_NUMBERS] * 18), max_size=20))
def test_whatever_a_log_holds_its_jobs_can_be_replayed(records: list[Record]) -> None:
    try:
        found = build(records)
    except LogError:
        return
    submits = [job.submitted.at_s for job in found.jobs]
    assert submits == sorted(submits)
    ids = [job.submitted.job_id for job in found.jobs]
    assert len(ids) == len(set(ids))
    for job in found.jobs:
        assert job.runtime_s > 0 and job.submitted.cores > 0 and job.start_s >= job.submitted.at_s
        assert min(job.submitted.job_id, job.submitted.limit_s, job.submitted.memory_mib) >= 0
