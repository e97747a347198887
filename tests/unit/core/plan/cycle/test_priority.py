"""Multifactor priorities by hand, and a ranking that follows its queue like one made anew."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.model.config import PriorityWeights
from eslurm.core.model.request import Chunk, Request
from eslurm.core.plan.cycle import priority as rules
from eslurm.core.plan.cycle.priority import (
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    PriorityInputs,
    Ranking,
    normalised,
    size_share,
)
from eslurm.core.plan.cycle.queue import Pending, PendingQueue

SECOND = 1_000_000
T = TypeVar("T")
WEIGHTS = PriorityWeights(age=1000, fairshare=2000, size=400, partition=100, qos=50, age_max_s=100)
STANDING = PriorityInputs(
    weights=WEIGHTS,
    fair={("physics", "ada"): 0.75, ("physics", "bob"): 0.25},
    newcomers={"physics": 0.75},
    partitions={"main": 1.0, "slow": 0.5},
    qos={"high": 1.0, "low": 0.0},
    nodes=10,
    cores=40,
)


def job(job_id: int, *, cores: int = 4, at_s: int = 0, **changes: Any) -> Pending:
    values = {
        "partition": "main",
        "account": "physics",
        "user": "ada",
        "priority": PRIORITY_DEFAULT,
        **changes,
    }
    request = Request(tasks=cores)
    return Pending(job_id, request, time_limit_us=60, submitted_us=at_s * SECOND, **values)


def run(slices: Generator[None, None, T]) -> T:
    while True:
        try:
            next(slices)
        except StopIteration as finished:
            value: T = finished.value
            return value


def ranked(jobs: list[Pending], now_s: int = 0, standing: PriorityInputs = STANDING) -> Ranking:
    ranking = Ranking()
    queue = PendingQueue(jobs)
    run(ranking.refresh(standing, now_s * SECOND))
    run(ranking.sync(queue.first(len(queue))))
    return ranking


@pytest.mark.parametrize(
    ("one", "now_s", "points"),
    [
        (job(1), 0, 1500 + 40 + 100),
        (job(1, at_s=10), 60, 500 + 1500 + 40 + 100),
        (job(1), 100_000, 1000 + 1500 + 40 + 100),
        (job(1, user="bob", partition="slow"), 0, 500 + 40 + 50),
        (job(1, user="new"), 0, 1500 + 40 + 100),
        (job(1, user="new", account="none"), 0, 2000 + 40 + 100),
        (job(1, qos="high", cores=400), 0, 1500 + 400 + 100 + 50),
        (job(1, qos="gone", nice=140), 0, 1500),
        (job(1, nice=-60), 0, 1700),
        (job(1, nice=100_000), 0, 0),
        (job(1, priority=7), 100, 7),
        (job(1, priority=PRIORITY_MAX), 0, PRIORITY_MAX),
    ],
)
def test_points(one: Pending, now_s: int, points: int) -> None:
    ranking = ranked([one], now_s)
    assert ranking.priority(1) == points
    parts = ranking.factors(1)
    assert parts is not None
    assert parts.value == points
    total = parts.age + parts.fairshare + parts.size + parts.partition + parts.qos - parts.nice
    assert parts.given or max(0, round(total)) == points


def test_small_jobs_can_be_favoured() -> None:
    weights = PriorityWeights(size=100, favor_small=True)
    ranking = ranked(
        [job(1, cores=4), job(2, cores=40)], standing=PriorityInputs(weights, nodes=10, cores=40)
    )
    assert [ranking.priority(1), ranking.priority(2)] == [90, 0]


@pytest.mark.parametrize(
    ("request_", "share"),
    [
        (Request(), 0.1),
        (Request(nodes_min=5), 0.5),
        (Request(tasks=10, cpus_per_task=3), 0.75),
        (Request(tasks=1000), 1.0),
        (Request(chunks=(Chunk(4, 5), Chunk(1, 10))), 0.75),
    ],
)
def test_size_is_the_larger_part_of_the_cluster(request_: Request, share: float) -> None:
    assert size_share(request_, 10, 40) == share


def test_normalised() -> None:
    assert normalised({"a": 10, "b": 5, "c": -3}) == {"a": 1.0, "b": 0.5, "c": 0.0}
    assert normalised({"a": 0}) == {"a": 0.0}
    assert normalised({}) == {}


def test_people_see_how_it_came_about() -> None:
    ranking = ranked([job(1, nice=5), job(2, priority=3), job(3, nice=-5, user="bob")], 10)
    assert str(ranking.factors(1)) == "1735 = 100 age + 1500 fair share + 40 size + 100 partition - 5 nice"
    assert str(ranking.factors(2)) == "3 as given"
    assert str(ranking.factors(3)).endswith("+ 5 nice")
    assert ranking.factors(4) is None
    assert ranking.priority(4) is None


def test_first_can_be_asked_of_some_only() -> None:
    ranking = ranked([job(number, cores=5 * number) for number in range(1, 9)])
    assert [entry.job_id for entry in ranking.first(2)] == [8, 7]
    assert [entry.job_id for entry in ranking.first(2, within={3, 5, 1})] == [5, 3]


def test_when_everything_is_due() -> None:
    ranking = ranked([], 100)
    assert not ranking.is_due(WEIGHTS, 159 * SECOND)
    assert ranking.is_due(WEIGHTS, 160 * SECOND)
    assert ranking.is_due(PriorityWeights(age=1), 100 * SECOND)


def test_until_a_refresh_is_through_nothing_shows_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "FEW", 0)
    monkeypatch.setattr(rules, "COMPUTED_PER_SLICE", 2)
    ranking = ranked([job(number, user="ada" if number % 2 else "bob") for number in range(1, 8)])
    before = ranking.ordered()
    other = PriorityInputs(WEIGHTS, {("physics", "ada"): 0.0, ("physics", "bob"): 1.0}, nodes=10, cores=40)
    slices = ranking.refresh(other, 0)
    assert sum(ranking.ordered() == before for _ in slices) > 3
    assert ranking.first(1)[0].job_id == 2
    assert ranking.priority(2) == 2040


def test_clear_forgets_everybody() -> None:
    ranking = ranked([job(1)], 100)
    ranking.clear()
    assert len(ranking) == 0
    assert ranking.is_due(PriorityWeights(age=1), 0)


changes = st.lists(
    st.tuples(
        st.integers(1, 12),
        st.sampled_from(["add", "remove", "change"]),
        st.sampled_from([PRIORITY_DEFAULT, PRIORITY_DEFAULT, 1, 1540, 1640]),
        st.sampled_from(["ada", "bob"]),
        st.integers(0, 3),
    ),
    max_size=30,
)


@given(changes, st.integers(0, 4), st.integers(1, 5))
def test_a_ranking_that_follows_equals_one_made_anew(
    steps: list[tuple[int, str, int, str, int]], few: int, every: int
) -> None:
    queue = PendingQueue()
    ranking = Ranking()
    run(ranking.refresh(STANDING, 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "FEW", few)
        patch.setattr(rules, "COMPUTED_PER_SLICE", 3)
        patch.setattr(rules, "SORTED_PER_SLICE", 2)
        for at, (number, action, number_given, user, at_s) in enumerate(steps):
            new = job(number, priority=number_given, user=user, at_s=at_s)
            if number not in queue:
                queue.add(new)
            elif action == "remove":
                queue.remove(number)
            else:
                queue.replace(new)
            if at % every == 0:
                run(ranking.sync(queue.first(len(queue))))
        run(ranking.sync(queue.first(len(queue))))
        anew = ranked([entry.job for entry in queue.first(len(queue))])
    order = ranking.ordered()
    assert [(entry.turn, entry.job) for entry in order] == [
        (entry.turn, entry.job) for entry in anew.ordered()
    ]
    assert order == sorted(order, key=lambda entry: entry.turn)
    assert {entry.job_id for entry in order} == {entry.job_id for entry in queue.first(len(queue))}
    for entry in order:
        ranking.remove(entry.job_id)
    assert len(ranking) == 0
