"""The studies of a log, against plain loops over a small one."""

from __future__ import annotations

import itertools

import pytest

from eslurm.core.model.forecast import Forecast
from eslurm.lab.studies.study import (
    ALPHAS,
    SIMILAR,
    JobPairs,
    alpha_sweep,
    elbow_curve,
    habits,
    overestimates,
)
from eslurm.lab.studies.workload import LoggedJob
from tests.kits.estimator import DAY_S, jobs, record, synthetic

HOUR_S = 3_600


def alike(one: LoggedJob, other: LoggedJob) -> bool:
    sizes = sorted((one.submitted.cores, other.submitted.cores))
    runtimes = sorted((one.runtime_s, other.runtime_s))
    return (
        one.submitted.name == other.submitted.name
        and sizes[0] >= SIMILAR * sizes[1]
        and runtimes[0] >= SIMILAR * runtimes[1]
    )


def test_the_distribution_of_p() -> None:
    log = jobs(
        *[
            record(number, 0, 100, requested_s=asked_s)
            for number, asked_s in enumerate((100, 150, 1_000, 50, -1))
        ]
    )
    found = overestimates(log)
    assert found.facts == {"jobs": 4, "over": 0.5, "more_than_twice": 0.25, "median_p": 1.25}
    shares = dict(found.rows)
    assert shares[1.0] == 0.5 and shares[10.0] == 1.0 and shares[0.01] == 0.0
    assert overestimates(jobs(record(1, 0, 10, requested_s=-1))).rows == ()


def test_correlated_pairs_are_counted() -> None:
    log = jobs(*synthetic(200, days=3))
    pairs = JobPairs(log)
    assert pairs.by == "name"
    by_gap = {gap: (ratio, count) for gap, ratio, count in pairs.by_gap().rows}
    for gap in (1, 10, 150):
        found = [alike(log[position], log[position + gap]) for position in range(len(log) - gap)]
        assert by_gap[gap] == (pytest.approx(sum(found) / len(found)), len(found))
    assert max(by_gap) < 200
    hours: dict[int, list[bool]] = {}
    for one, other in itertools.combinations(log, 2):
        hours.setdefault((other.submitted.at_s - one.submitted.at_s) // HOUR_S, []).append(alike(one, other))
    for hour, ratio, count in pairs.by_interval().rows:
        assert ratio == pytest.approx(sum(hours[int(hour)]) / len(hours[int(hour)])) and count == len(
            hours[int(hour)]
        )


def test_where_jobs_have_no_names_users_stand_for_them() -> None:
    pairs = JobPairs(
        jobs(record(1, 0, 10), record(2, 1, 10), record(3, 2, 10, user=-1), record(4, 3, 10, user=-1))
    )
    assert pairs.by == "user"
    assert pairs.by_gap().rows[0] == (1.0, pytest.approx(1 / 3), 3.0), "nobody known is nobody's twin"


def test_habits_of_users() -> None:
    found = habits(
        jobs(
            record(1, 0, 7 * HOUR_S),
            record(2, 60, 10),
            record(3, 120, 10, requested=2),
            record(4, 19 * HOUR_S, 7 * HOUR_S),
            record(5, 3 * DAY_S, 10),
            record(6, 4 * DAY_S, 10, user=-1),
        )
    )
    assert found == {
        "jobs": 6,
        "users": 1,
        "days": 4.0,
        "long_jobs": 2,
        "long_jobs_18_to_24": 0.5,
        "same_as_within_24_h": pytest.approx(2 / 3),
    }
    shifted = habits(jobs(record(1, 0, 7 * HOUR_S)), 20 * HOUR_S)
    assert shifted["long_jobs_18_to_24"] == 1.0 and shifted["same_as_within_24_h"] is None


def test_the_slack_sweep() -> None:
    log = jobs(record(1, 0, 100), record(2, 0, 102), record(3, 0, 50))
    found = alpha_sweep(log, [Forecast(100, 100, 100, 100)] * 3)
    assert [row[0] for row in found.rows] == list(ALPHAS)
    rows = {alpha: (aea, under) for alpha, aea, under in found.rows}
    assert rows[1.0] == (pytest.approx((1 + 100 / 102 + 0.5) / 3), pytest.approx(1 / 3))
    assert rows[1.05] == (pytest.approx((100 / 105 + 102 / 105 + 50 / 105) / 3), 0.0)


def test_the_elbow_finds_the_kinds_of_jobs() -> None:
    kinds = [(1, 10), (64, 4_000), (8, 300)]
    log = jobs(
        *[
            record(
                number,
                number * DAY_S + 12 * HOUR_S,
                kinds[number % 3][1],
                requested=kinds[number % 3][0],
                program=number % 3,
            )
            for number in range(90)
        ]
    )
    found = elbow_curve(log)
    shares = [share for _, share in found.rows]
    assert found.facts["by_window"] == [found.facts["k"]] and found.facts["k"] in (3, 4), (
        "the first rows are coded apart"
    )
    assert shares[0] == 1.0 and shares[3] < 0.1 < shares[1]
    assert elbow_curve(jobs(record(1, 0, 10))).facts == {"k": 1, "by_window": [1]}
