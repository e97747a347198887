"""The estimator `history`: no look ahead, no matter how it is asked; it learns repeats, limits and its own errors."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.core.model.forecast import Forecast, Submitted
from eslurm.estimator.history import make
from eslurm.estimator.history import memory as memory_module
from eslurm.estimator.history import network as network_module
from eslurm.estimator.history import trees as trees_module
from eslurm.estimator.history.estimator import History
from eslurm.estimator.registry import UnknownEstimator
from eslurm.estimator.registry import make as registered
from eslurm.lab.studies.evaluate import Predictions, replay
from eslurm.lab.studies.workload import LoggedJob
from eslurm.ports.estimator import Model
from tests.kits.estimator import jobs, synthetic
from tests.support.profiles import draws

QUICK: Mapping[str, Any] = {"retrain_jobs": 150, "window_jobs": 500}
LOG = 420


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Less learning: what is tested here does not depend on how much."""
    monkeypatch.setattr(network_module, "FIRST_EPOCHS", (6, 10_000))
    monkeypatch.setattr(network_module, "EPOCHS", (2, 10_000))
    monkeypatch.setattr(trees_module, "TREES", 12)
    monkeypatch.setattr("eslurm.estimator.history.estimator.SETTLE_EVERY", 40)
    monkeypatch.setattr("eslurm.estimator.history.calibration.LEAST", 40)
    yield


@cache
def log() -> tuple[LoggedJob, ...]:
    return jobs(*synthetic(LOG))


@cache
def whole() -> Predictions:
    """The log at once, in the usual batches."""
    return replay(log(), make(QUICK))


@cache
def part(cut: int) -> Predictions:
    """So many jobs of it."""
    return replay(log()[:cut], make(QUICK))


@pytest.mark.parametrize("cut", [170, 333, 401])
def test_what_comes_later_changes_nothing_before(cut: int) -> None:
    assert part(cut).at_submission == whole().at_submission[:cut]


def test_starts_before_a_cut_are_unchanged_too() -> None:
    cut = 333
    last_s = log()[cut].submitted.at_s
    early = [position for position in range(cut) if log()[position].start_s < last_s]
    assert len(early) > cut // 2
    assert all(part(cut).at_start[position] == whole().at_start[position] for position in early)


@pytest.mark.parametrize("batch_max", [1, 7])
def test_how_questions_are_batched_changes_nothing(batch_max: int) -> None:
    cut = 333
    found = replay(log()[:cut], make(QUICK), batch_max=batch_max)
    assert found.at_submission == part(cut).at_submission
    assert found.at_start == part(cut).at_start


def test_one_batch_answers_as_many_of_any_size() -> None:
    estimator = taught(log())
    ids = [told(estimator, one.submitted, 10_000 + number) for number, one in enumerate(log()[:150])]
    questions = [estimator.ask(job_id, 10**7) for job_id in ids]
    together = estimator.answer(questions)
    estimator = taught(log())
    ids = [told(estimator, one.submitted, 10_000 + number) for number, one in enumerate(log()[:150])]
    questions = [estimator.ask(job_id, 10**7) for job_id in ids]
    cuts = sorted({0, 150, *random.Random(3).sample(range(150), 20)})
    apart: list[Forecast] = []
    for begin, end in pairwise(cuts):
        apart += estimator.answer(questions[begin:end])
    assert apart == together


def told(estimator: History, like: Submitted, job_id: int, at_s: int = 10**7, **changes: Any) -> int:
    """Submits another job like one that has been."""
    fields = {name: getattr(like, name) for name in Submitted.__struct_fields__}
    estimator.submitted(Submitted(**{**fields, "job_id": job_id, "at_s": at_s, **changes}))
    return job_id


def run_all(estimator: History, told_jobs: tuple[LoggedJob, ...]) -> None:
    """Tells a log job by job, as if each ran alone; questions and lessons are left out."""
    for one in told_jobs:
        estimator.submitted(one.submitted)
        estimator.started(one.submitted.job_id, one.start_s)
        estimator.ended(one.submitted.job_id, one.end_s, one.runtime_s)


def learnt(estimator: History, at_s: int) -> Model:
    lesson = estimator.lesson(at_s)
    assert lesson is not None
    return lesson()


@cache
def model(told_jobs: tuple[LoggedJob, ...]) -> Model:
    """Learn the model of a log."""
    estimator = make(QUICK)
    run_all(estimator, told_jobs)
    return learnt(estimator, 10**7)


def taught(told_jobs: tuple[LoggedJob, ...]) -> History:
    """One that has seen a log and learnt once."""
    estimator = make(QUICK)
    run_all(estimator, told_jobs)
    estimator.adopt(model(told_jobs))
    return estimator


def one_answer(estimator: History, job_id: int, at_s: int) -> Forecast:
    (answer,) = estimator.answer([estimator.ask(job_id, at_s)])
    return answer


def test_a_model_from_arrays_answers_like_the_one_that_was_learnt() -> None:
    estimator, other = taught(log()), make(QUICK)
    run_all(other, log())
    arrays, facts = model(log())
    other.adopt(Model({name: np.array(array.tolist(), array.dtype) for name, array in arrays.items()}, facts))
    for number in range(40):
        job_id = told(estimator, log()[number].submitted, 10_000 + number)
        told(other, log()[number].submitted, job_id)
        assert one_answer(other, job_id, 10**7) == one_answer(estimator, job_id, 10**7)
    assert all(array.dtype != object for array in arrays.values())
    assert {"features", "window_jobs", "learnt_at_s"} <= facts.keys()


def test_the_same_jobs_give_the_same_model() -> None:
    estimator = make(QUICK)
    run_all(estimator, log())
    again = learnt(estimator, 10**7)
    assert again.facts == model(log()).facts
    for name, array in model(log()).arrays.items():
        assert np.array_equal(array, again.arrays[name])


@pytest.mark.parametrize("name", ["net0_0", "tree_feature", "tree_leaf", "tree_base", "net1_6"])
def test_a_damaged_model_is_refused_and_changes_nothing(name: str) -> None:
    estimator = taught(log())
    arrays, facts = model(log())
    job_id = told(estimator, log()[0].submitted, 10_000)
    before = one_answer(estimator, job_id, 10**7)
    sound = arrays[name]
    for damaged in (sound[:0], sound.astype(str), np.full_like(sound.astype(np.float64), np.nan)):
        with pytest.raises(ValueError, match="damaged"):
            estimator.adopt(Model({**arrays, name: damaged}, facts))
    with pytest.raises(ValueError, match="damaged"):
        estimator.adopt(Model({key: array for key, array in arrays.items() if key != name}, facts))
    with pytest.raises(ValueError, match="of its own"):
        estimator.adopt(Model(arrays, {**facts, "kind": "forest"}))
    assert one_answer(estimator, job_id, 10**7) == before


def test_a_tree_that_asks_for_a_feature_that_is_not_there_is_damaged() -> None:
    arrays, facts = model(log())
    feature = arrays["tree_feature"].copy()
    feature[0, 0] = 10_000
    with pytest.raises(ValueError, match="damaged"):
        make(QUICK).adopt(Model({**arrays, "tree_feature": feature}, facts))


def test_trees_answer_like_a_walk_down_each_of_them() -> None:
    draw = np.random.default_rng(11)
    paired = draw.normal(size=(3, 40, 5)).astype(np.float32)
    alone = draw.normal(size=(4, 40)).astype(np.float32)
    paired[draw.random(paired.shape) < 0.2] = np.nan
    alone[draw.random(alone.shape) < 0.2] = np.nan
    wide = np.broadcast_to(alone[:, :, None], (4, 40, 5))
    rows = np.concatenate((paired, wide)).reshape(7, -1).T
    ended = np.nan_to_num(rows[:, 0]) + np.nan_to_num(rows[:, 5]) > 0.1
    learnt_trees = trees_module.learn(rows, ended)
    arrays = learnt_trees.dump()

    def walk(row: np.ndarray) -> float:
        total = float(arrays["tree_base"][0])
        for columns, limits, leaf in zip(
            arrays["tree_feature"], arrays["tree_threshold"], arrays["tree_leaf"], strict=True
        ):
            bits = [
                "1" if row[column] > limit else "0" for column, limit in zip(columns, limits, strict=True)
            ]
            total += float(leaf[int("".join(bits), 2)])
        return total

    found = learnt_trees.log_odds(paired, alone)
    assert found.reshape(-1).tolist() == [walk(row) for row in trees_module.filled(rows)]
    assert ((found.reshape(-1) > 0) == ended).mean() > 0.7


def habit(user: str, run_s: int, limit_s: int, count: int, first_id: int) -> tuple[LoggedJob, ...]:
    """The same job again and again, an hour apart."""
    return tuple(
        LoggedJob(
            Submitted(first_id + number, 3_600 * number, user, cores=4, limit_s=limit_s),
            3_600 * number,
            run_s,
        )
        for number in range(count)
    )


def test_repeats_are_learnt() -> None:
    mixed = sorted(
        habit("a", 600, 7_200, 120, 1_000)
        + habit("b", 3_000, 7_200, 120, 2_000)
        + habit("c", 50, 7_200, 120, 3_000),
        key=lambda one: one.submitted.at_s,
    )
    estimator = taught(tuple(mixed))
    for number, (user, run_s) in enumerate((("a", 600), ("b", 3_000), ("c", 50))):
        job_id = told(estimator, Submitted(0, 0, user, cores=4, limit_s=7_200), 9_000 + number, 3_600 * 121)
        answer = one_answer(estimator, job_id, 3_600 * 121)
        assert run_s <= answer.estimate_s <= 1.3 * run_s
        assert answer.p10_s <= run_s <= answer.p90_s


def test_jobs_that_are_cut_at_the_limit_are_estimated_just_above_it() -> None:
    cut = tuple(
        LoggedJob(one.submitted, one.start_s, one.submitted.limit_s + 5 + number % 20)
        for number, one in enumerate(habit("late", 1, 36_000, 200, 1_000))
    )
    others = habit("early", 900, 36_000, 200, 5_000)
    estimator = taught(tuple(sorted(cut + others, key=lambda one: one.submitted.at_s)))
    at_s = 3_600 * 300
    job_id = told(estimator, Submitted(0, 0, "late", cores=4, limit_s=7_200), 9_000, at_s)
    assert 7_200 <= one_answer(estimator, job_id, at_s).estimate_s <= 7_200 * 1.1


@pytest.mark.parametrize("target", [0.05, 0.2])
def test_underestimates_stay_near_the_share_asked_for(target: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_module, "FIRST_EPOCHS", (12, 4_000))
    monkeypatch.setattr(network_module, "EPOCHS", (6, 2_000))
    monkeypatch.setattr(trees_module, "TREES", 30)
    draw = random.Random(5)
    told_jobs = tuple(
        LoggedJob(
            Submitted(number + 1, 400 * number, f"u{number % 7}", cores=1 + number % 3, limit_s=86_400),
            400 * number + draw.randrange(3) * 500,
            max(1, round(300 * (1 + number % 7) * draw.lognormvariate(0, 0.8))),
        )
        for number in range(1_500)
    )
    found = replay(told_jobs, make({**QUICK, "target_under": target, "retrain_jobs": 700}))
    for answers in (found.at_submission, found.at_start):
        late = list(zip(answers, told_jobs, strict=True))[600:]
        under = sum(answer.estimate_s < job.runtime_s for answer, job in late) / len(late)
        assert abs(under - target) < 0.025
        inside = sum(answer.p10_s <= job.runtime_s <= answer.p90_s for answer, job in late) / len(late)
        assert 0.7 < inside < 0.9


@settings(max_examples=draws(60), deadline=None)
@given(
    st.builds(
        Submitted,
        st.just(99_999),
        st.just(10**7),
        st.sampled_from(["", "0", "nobody", "\udcff\x00", "x" * 5_000]),
        cores=st.integers(0, 2**31),
        nodes=st.integers(0, 2**31),
        memory_mib=st.integers(-1, 2**60),
        limit_s=st.sampled_from([-5, 0, 1, 2, 59, 10**6, 2**62]),
        name=st.text(max_size=5),
    ),
    st.integers(0, 10**9),
)
def test_hostile_jobs_get_a_sound_answer(job: Submitted, elapsed_s: int) -> None:
    estimator = veteran()
    estimator.submitted(job)
    questions = [estimator.ask(job.job_id, job.at_s)]
    estimator.started(job.job_id, job.at_s)
    questions.append(estimator.ask(job.job_id, job.at_s + elapsed_s))
    for answer, least in zip(estimator.answer(questions), (1, min(elapsed_s + 1, 10**8)), strict=True):
        assert 1 <= answer.p10_s <= answer.p50_s <= answer.p90_s
        assert min(answer.p10_s, answer.estimate_s) >= least
    estimator.ended(job.job_id, job.at_s + elapsed_s, 0)


@cache
def veteran() -> History:
    return taught(log())


def test_an_answer_grows_with_what_has_passed() -> None:
    estimator = taught(habit("a", 600, 7_200, 160, 1))
    at_s = 3_600 * 200
    job_id = told(estimator, Submitted(0, 0, "a", cores=4, limit_s=7_200), 9_000, at_s)
    estimator.started(job_id, at_s)
    answers = [
        one_answer(estimator, job_id, at_s + passed) for passed in (0, 100, 599, 700, 3_000, 7_300, 10**6)
    ]
    for passed, answer in zip((0, 100, 599, 700, 3_000, 7_300, 10**6), answers, strict=True):
        assert answer.p10_s > passed and answer.estimate_s > passed
    assert answers[0].estimate_s < 1_000


def test_before_the_first_lesson_the_nearest_relatives_count() -> None:
    estimator = make({})
    first = told(estimator, Submitted(0, 0, "a", cores=2, limit_s=3_600), 1, 0)
    assert one_answer(estimator, first, 0).estimate_s == 3_600
    estimator.started(first, 0)
    estimator.ended(first, 100, 100)
    second = told(estimator, Submitted(0, 0, "a", cores=2, limit_s=3_600), 2, 100)
    answer = one_answer(estimator, second, 100)
    assert answer.estimate_s == 105 and answer.p50_s == 100
    unlimited = told(estimator, Submitted(0, 0, "b"), 3, 100)
    assert one_answer(estimator, unlimited, 100).estimate_s > 3_600


def test_unknown_and_cancelled_jobs_are_no_lessons() -> None:
    estimator = make({})
    estimator.started(7, 10)
    estimator.ended(7, 20, 10)
    for number in range(300):
        told(estimator, Submitted(0, 0, "a"), number, number)
        estimator.ended(number, number, 0)
    assert not estimator.due(10**6)
    assert estimator.lesson(10**6) is None


def test_what_has_seen_more_answers_until_there_are_examples_enough() -> None:
    estimator = make(QUICK)
    arrays, facts = model(log())
    estimator.adopt(Model(arrays, {**facts, "window_jobs": 300}))
    for told_jobs in range(len(log())):
        if estimator.due(10**7):
            break
        run_all(estimator, log()[told_jobs : told_jobs + 1])
    assert 150 < told_jobs < 300
    asked = sum(1 + (one.start_s - one.submitted.at_s >= 60) for one in log()[:told_jobs])
    assert 300 <= asked <= 301
    assert estimator.lesson(10**7) is not None


@pytest.mark.parametrize("claimed", [10**9, 500, -1, None, "many"])
def test_no_claim_of_a_model_holds_up_the_first_lesson_for_good(claimed: Any) -> None:
    arrays, facts = model(log())
    estimator = make(QUICK)
    estimator.adopt(Model(arrays, {**facts, "window_jobs": claimed}))
    run_all(estimator, log())
    assert estimator.lesson(10**7) is not None


def test_memory_is_bounded_and_forgetting_keeps_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "RUNS_KEPT", 200)
    found = replay(log(), make(QUICK))
    assert len(found.at_submission) == len(log())
    estimator = make(QUICK)
    run_all(estimator, log())
    assert estimator.due(10**7)
    job_id = told(estimator, log()[-1].submitted, 10_000)
    before = one_answer(estimator, job_id, 10**7)
    estimator.settle(10**7)
    assert one_answer(estimator, job_id, 10**7) == before
    estimator.adopt(model(log()))
    assert one_answer(estimator, job_id, 10**7).estimate_s >= 1


@pytest.mark.parametrize(("name", "value"), [("target_under", 0.9), ("window_jobs", "many"), ("windw", 5)])
def test_settings_that_cannot_be_used_are_named(name: str, value: Any) -> None:
    with pytest.raises(UnknownEstimator, match=name):
        registered("history", {name: value})
