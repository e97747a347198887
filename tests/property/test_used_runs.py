"""What runs used between two times, next to a count of each hour."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from escli.used_runs import runs_of
from eslurm.v1 import controller_pb2 as pb

HOUR_US = 3_600_000_000
LAST_H = 12
NOW_US = (LAST_H + 1) * HOUR_US


@st.composite
def attempts(draw: st.DrawFn, job_id: int) -> list[pb.AttemptInfo]:
    """The attempts of one job one after another, each with the nodes that it had from hour to hour."""
    found: list[pb.AttemptInfo] = []
    hours = sorted(draw(st.sets(st.integers(1, LAST_H), min_size=2, max_size=6)))
    while len(hours) >= 2:
        count = draw(st.integers(2, len(hours)))
        mine, hours = hours[:count], hours[count - 1 :]
        segments = [
            pb.SegmentInfo(
                from_us=low * HOUR_US, until_us=high * HOUR_US, cpus=draw(st.integers(1, 9)), nodes=1
            )
            for low, high in pairwise(mine)
        ]
        one = pb.AttemptInfo(
            job_id=job_id, attempt=len(found) + 1, started_us=mine[0] * HOUR_US, ended_us=mine[-1] * HOUR_US,
            cpus=max(segment.cpus for segment in segments), nodes=1,
        )  # fmt: skip
        if len(segments) > 1:
            one.segments.extend(segments)
        found.append(one)
        if not draw(st.booleans()):
            break
    return found


@given(
    jobs=st.lists(st.integers(1, 9), unique=True, max_size=4).flatmap(
        lambda ids: st.tuples(*map(attempts, ids))
    ),
    bounds=st.tuples(st.integers(0, LAST_H + 1), st.integers(0, LAST_H + 1)),
    goes_on=st.booleans(),
)
def test_core_hours_are_those_of_each_hour(
    jobs: tuple[list[pb.AttemptInfo], ...], bounds: tuple[int, int], goes_on: bool
) -> None:
    since_h, until_h = sorted(bounds)
    records = [one for job in jobs for one in job]
    # The controller still has a job whose last attempt has ended, and one that runs.
    infos = [
        pb.JobInfo(
            job_id=job[-1].job_id, state="COMPLETING", attempts=job[-1].attempt, cpus=9, started_us=HOUR_US
        )
        for job in jobs
    ]
    if goes_on:
        infos.append(
            pb.JobInfo(job_id=99, state="RUNNING", attempts=1, cpus=3, nodes=1, started_us=2 * HOUR_US)
        )
    runs = runs_of(records, infos, NOW_US, since_h * HOUR_US, until_h * HOUR_US)
    found = sum(one.core_us(since_h * HOUR_US, until_h * HOUR_US) for one in runs)

    def at(hour: int) -> int:
        cores = 3 if goes_on and hour >= 2 else 0
        for one in records:
            whole = [pb.SegmentInfo(from_us=one.started_us, until_us=one.ended_us, cpus=one.cpus)]
            for span in one.segments or whole:
                if span.from_us <= hour * HOUR_US < span.until_us:
                    cores += span.cpus
        return cores

    assert found == sum(at(hour) for hour in range(since_h, until_h)) * HOUR_US


def test_pauses_are_shared_out() -> None:
    record = pb.AttemptInfo(
        job_id=1, attempt=1, started_us=HOUR_US, ended_us=5 * HOUR_US, cpus=2, paused_us=HOUR_US
    )
    (run,) = runs_of([record], [], NOW_US, 0, NOW_US)
    assert (run.elapsed_us, run.core_us(0, NOW_US)) == (3 * HOUR_US, 6 * HOUR_US)
    assert run.core_us(0, 3 * HOUR_US) == 3 * HOUR_US
