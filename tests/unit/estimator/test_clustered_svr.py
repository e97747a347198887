"""`clustered-svr` learns what repeats, keeps it in a file, and answers the same however it is asked; damage is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eslurm.core.forecast.accuracy import Tally
from eslurm.core.model.forecast import LONGEST_S, Forecast, Submitted
from eslurm.estimator import registry
from eslurm.estimator.files import read_kept, write_model
from eslurm.lab.studies.evaluate import replay
from eslurm.ports.estimator import Estimator, Model, Setting
from tests.kits.estimator import jobs, synthetic

HOUR_S = 3_600
NAME = "clustered-svr"
PLAIN: dict[str, Setting] = {"gate": 0, "k": 4}
VARIANTS: list[dict[str, Setting]] = [
    PLAIN,
    {},
    {"k": "elbow", "gate": 0.3, "alpha": 1.0, "limits": True, "scale": "seconds"},
]
each_variant = pytest.mark.parametrize("settings", VARIANTS, ids=lambda settings: str(len(settings)))


def repeating(count: int) -> list[tuple[Submitted, int]]:
    """Four users, each with a program, a size and a runtime; their limits are 10 h."""
    draw = random.Random(3)
    habits = [
        ("ann", "mesh", 1, 300),
        ("ben", "wave", 8, 2_000),
        ("eve", "fold", 16, 9_000),
        ("joe", "", 2, 60),
    ]
    made = []
    for number in range(count):
        user, name, cores, runtime_s = habits[number % 4]
        job = Submitted(
            number + 1,
            number * 600,
            user=user,
            name=name,
            command=f"/home/{user}/{name}/run{number}.sh",
            nodes=cores,
            cores=cores,
            limit_s=10 * HOUR_S,
        )
        made.append((job, round(runtime_s * draw.uniform(0.98, 1.02))))
    return made


def teach(estimator: Estimator, told: Sequence[tuple[Submitted, int]]) -> Model:
    """Tells jobs that run one after the other, and has it learn at the end of the last."""
    at_s = 0
    for job, runtime_s in told:
        estimator.submitted(job)
        estimator.started(job.job_id, job.at_s)
        at_s = max(at_s, job.at_s + runtime_s)
        estimator.ended(job.job_id, at_s, runtime_s)
    assert estimator.due(at_s)
    lesson = estimator.lesson(at_s)
    assert lesson is not None
    return lesson()


def asked(estimator: Estimator, asked_of: Sequence[Submitted]) -> list[Any]:
    for job in asked_of:
        estimator.submitted(job)
    return [estimator.ask(job.job_id, job.at_s) for job in asked_of]


def strangers(count: int, at_s: int) -> list[Submitted]:
    """Jobs of all kinds: known users and not, with and without limits, odd sizes."""
    draw = random.Random(5)
    return [
        Submitted(
            10_000 + number,
            at_s,
            user=draw.choice(("ann", "ben", "eve", "joe", "new", "")),
            name=draw.choice(("mesh", "wave", "fold", "other", "")),
            command=draw.choice(("", "/home/ann/mesh/run9.sh", "/home/ben/wave/sub/x.sh", "///", "/")),
            nodes=draw.choice((0, 1, 8, 5_000)),
            cores=draw.choice((0, 1, 8, 16, 100_000)),
            limit_s=draw.choice((0, 60, 36_000, 10**9)),
        )
        for number in range(count)
    ]


def test_a_workload_that_repeats_is_learnt() -> None:
    told = repeating(400)
    estimator = registry.make(NAME, PLAIN)
    estimator.adopt(teach(estimator, told[:360]))
    later = told[360:]
    answers = estimator.answer(asked(estimator, [job for job, _ in later]))
    tally = Tally()
    for answer, (_, runtime_s) in zip(answers, later, strict=True):
        tally.add(answer.estimate_s, runtime_s)
    assert tally.aea > 0.85


@each_variant
def test_a_model_from_a_file_answers_the_same(settings: dict[str, Setting], tmp_path: Path) -> None:
    taught = registry.make(NAME, settings)
    model = teach(taught, repeating(150))
    taught.adopt(model)
    write_model(tmp_path / "model.npz", NAME, model)
    fresh = registry.make(NAME, settings)
    fresh.adopt(read_kept(tmp_path / "model.npz", NAME).model)
    new = strangers(60, 10**6)
    assert fresh.answer(asked(fresh, new)) == taught.answer(asked(taught, new))


@each_variant
def test_answers_do_not_depend_on_the_batch(settings: dict[str, Setting]) -> None:
    estimator = registry.make(NAME, settings)
    estimator.adopt(teach(estimator, repeating(150)))
    questions = asked(estimator, strangers(75, 10**6))
    whole = estimator.answer(questions)
    assert [answer for question in questions for answer in estimator.answer([question])] == whole
    for size in (2, 3, 7, 16, 31):
        parts = [estimator.answer(questions[at : at + size]) for at in range(0, len(questions), size)]
        assert [answer for part in parts for answer in part] == whole
    assert estimator.answer(questions[::-1]) == whole[::-1]
    assert estimator.answer([]) == []


def test_the_figures_behind_answers_are_the_same_bits() -> None:
    estimator = registry.make(NAME, PLAIN)
    estimator.adopt(teach(estimator, repeating(200)))
    questions = asked(estimator, strangers(40, 10**6))
    learnt = next(part for part in questions[0] if hasattr(part, "predict"))
    of = [question.job for question in questions]
    whole = learnt.predict(of)
    for index, job in enumerate(of):
        alone = learnt.predict([job])
        for together, single in zip(whole, alone, strict=True):
            assert together[index].tobytes() == single[0].tobytes()


def test_a_question_keeps_the_model_of_its_time() -> None:
    told = repeating(200)
    estimator, other = registry.make(NAME, PLAIN), registry.make(NAME, PLAIN)
    estimator.adopt(teach(estimator, told[:100]))
    new = strangers(10, 10**6)
    questions = asked(estimator, new)
    before = estimator.answer(questions)
    slower = [(job, 7 * runtime_s) for job, runtime_s in told]
    estimator.adopt(teach(other, slower))
    assert estimator.answer(questions) == before
    after = asked(estimator, new)
    mixed = estimator.answer([*after, *questions])
    assert mixed == [*estimator.answer(after), *before]
    assert mixed[: len(after)] != before


@each_variant
def test_cutting_the_log_changes_nothing_before(settings: dict[str, Setting]) -> None:
    log = jobs(*synthetic(120))
    quick = {**settings, "retrain_every_s": 20 * HOUR_S, "window_jobs": 40}
    whole = replay(log, registry.make(NAME, quick))
    assert whole.spent.lessons > 4
    cut = 81
    part = replay(log[:cut], registry.make(NAME, quick), batch_max=5)
    assert part.spent.lessons > 2
    assert part.at_submission == whole.at_submission[:cut]


def test_a_running_job_outlives_every_answer() -> None:
    estimator = registry.make(NAME, PLAIN)
    estimator.adopt(teach(estimator, repeating(150)))
    job = Submitted(9_000, 10**6, user="joe", cores=2, nodes=2, limit_s=10 * HOUR_S)
    estimator.submitted(job)
    estimator.started(job.job_id, job.at_s + 50)
    for elapsed_s in (0, 59, 61, 500, 5_000, 35_999, 36_000, 40_000, 10**6):
        (answer,) = estimator.answer([estimator.ask(job.job_id, job.at_s + 50 + elapsed_s)])
        assert min(answer.p10_s, answer.estimate_s) > elapsed_s
        if elapsed_s < job.limit_s:
            assert answer.estimate_s <= job.limit_s
    estimator.started(job.job_id, job.at_s + 2 * 10**6)
    (anew,) = estimator.answer([estimator.ask(job.job_id, job.at_s + 2 * 10**6)])
    assert anew.estimate_s < 1_000, "a run after a requeue begins anew"


def test_before_the_first_model() -> None:
    estimator = registry.make(NAME, PLAIN)
    estimator.submitted(Submitted(1, 0, limit_s=500))
    estimator.submitted(Submitted(2, 0))
    assert [one.estimate_s for one in estimator.answer([estimator.ask(1, 0), estimator.ask(2, 0)])] == [
        500,
        3_600,
    ]
    estimator.ended(1, 10, 10)
    estimator.submitted(Submitted(3, 10))
    assert estimator.answer([estimator.ask(3, 10)]) == [Forecast(10, 10, 10, 10)]
    assert not estimator.due(10**6)
    assert estimator.lesson(10**6) is None


def test_hostile_input() -> None:
    estimator = registry.make(NAME, {**PLAIN, "window_jobs": 40})
    estimator.ended(77, 0, 5)
    estimator.started(77, 0)
    made = strangers(60, 0)
    for number, job in enumerate(made):
        estimator.submitted(job)
        estimator.ended(job.job_id, 10 + number, (0, 1, -5, 10**9)[number % 4])
    lesson = estimator.lesson(100_000)
    assert lesson is not None
    with np.errstate(all="raise", under="ignore"):
        estimator.adopt(lesson())
        answers = estimator.answer(asked(estimator, made))
    for answer in answers:
        assert 1 <= answer.p10_s <= answer.p50_s <= answer.p90_s <= 10**9
        assert 1 <= answer.estimate_s <= 10**9


@pytest.mark.parametrize("count", [10, 30])
def test_few_and_equal_jobs(count: int) -> None:
    estimator = registry.make(NAME, {**PLAIN, "window_jobs": count})
    same = [(Submitted(number, 0, user="ann", nodes=1, cores=1), 1_234) for number in range(count)]
    with np.errstate(all="raise", under="ignore"):
        estimator.adopt(teach(estimator, same))
        (answer,) = estimator.answer(asked(estimator, [Submitted(99, 5, user="ann", nodes=1, cores=1)]))
    assert answer.estimate_s == pytest.approx(1_234 * 1.05, abs=1)


def test_retraining_waits_for_its_time_and_for_news() -> None:
    estimator = registry.make(NAME, {**PLAIN, "retrain_every_s": 1_000})
    estimator.adopt(teach(estimator, repeating(40)))
    learnt_at_s = 50_000
    job = Submitted(500, learnt_at_s, user="ann")
    estimator.submitted(job)
    assert not estimator.due(learnt_at_s + 5_000), "nothing has ended since"
    estimator.ended(500, learnt_at_s + 5_000, 10)
    assert estimator.due(learnt_at_s + 5_000)
    assert estimator.lesson(learnt_at_s + 5_000) is not None
    assert estimator.lesson(learnt_at_s + 5_000) is None


@each_variant
def test_a_damaged_model_is_refused_and_changes_nothing(settings: dict[str, Setting]) -> None:
    estimator = registry.make(NAME, settings)
    model = teach(estimator, repeating(150))
    estimator.adopt(model)
    questions = asked(estimator, strangers(20, 10**6))
    before = estimator.answer(questions)
    with pytest.raises(ValueError, match=f"estimator {NAME} needs"):
        estimator.adopt(Model(model.arrays, {**model.facts, "kind": "another"}))
    with pytest.raises(ValueError, match="damaged"):
        estimator.adopt(Model(model.arrays, {**model.facts, "limits": None}))
    for array in model.arrays:
        without = {key: value for key, value in model.arrays.items() if key != array}
        for damaged in (without, {**without, array: np.zeros((3, 3, 3))}):
            with pytest.raises(ValueError, match="damaged"):
                estimator.adopt(Model(damaged, model.facts))
    for array, value in model.arrays.items():
        if value.dtype == np.float64 and value.size:
            rotten = value.copy()
            rotten.flat[0] = np.nan
            with pytest.raises(ValueError, match=r"damaged: .* finite"):
                estimator.adopt(Model({**model.arrays, array: rotten}, model.facts))
    again = asked(estimator, [question.job for question in questions])
    assert estimator.answer(again) == before


def test_a_model_of_absurd_numbers_is_refused_or_answers_all_the_same() -> None:
    estimator = registry.make(NAME, PLAIN)
    model = teach(estimator, repeating(60))
    new = strangers(12, 10**6)
    adopted = 0
    for array, value in model.arrays.items():
        if value.dtype != np.float64 or not value.size:
            continue
        for absurd in (1e308, -1e308, 0.0, 1e-308):
            rotten = value.copy()
            rotten.flat[:: max(1, value.size // 7)] = absurd
            try:
                estimator.adopt(Model({**model.arrays, array: rotten}, model.facts))
            except ValueError:
                continue
            adopted += 1
            with np.errstate(all="ignore"):
                answers = estimator.answer(asked(estimator, new))
            assert all(1 <= one.p10_s <= one.p50_s <= one.p90_s <= LONGEST_S for one in answers)
            assert all(1 <= one.estimate_s <= 1.05 * LONGEST_S for one in answers)
    assert adopted


def test_models_hold_no_names() -> None:
    model = teach(registry.make(NAME, PLAIN), repeating(60))
    assert model.facts["kind"] == NAME
    assert model.facts["window_jobs"] == 60
    assert model.facts["features"][:2] == ["job name", "user name"]
    assert "learnt_at_s" in model.facts
    assert all(array.dtype in (np.float64, np.int64) for array in model.arrays.values())
    said = json.dumps(dict(model.facts)).encode() + b"".join(one.tobytes() for one in model.arrays.values())
    assert not [word for word in (b"ann", b"ben", b"mesh", b"home", b"fold") if word in said]


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("window_jobs", 9, "window_jobs = 9: write a whole number from 10"),
        ("window_jobs", "many", "window_jobs = 'many'"),
        ("window_jobs", True, "window_jobs = True"),
        ("retrain_every_s", -1, "retrain_every_s = -1"),
        ("limits", "perhaps", "limits = 'perhaps': write true or false"),
        ("windows", 5, "'windows' is no setting of it: it has .*window_jobs"),
    ],
)
def test_settings_that_cannot_be_used_are_named(setting: str, value: Setting, told: str) -> None:
    with pytest.raises(ValueError, match=f"estimator {NAME}: {told}"):
        registry.make(NAME, {setting: value})


@pytest.mark.parametrize(
    ("setting", "value"),
    [("cost", "nan"), ("scale", "log10"), ("k", "knee"), ("gate", 1.1), ("alpha", "x")],
)
def test_settings_of_its_own(setting: str, value: Setting) -> None:
    with pytest.raises(ValueError, match=f"estimator {NAME}: {setting} = {value!r}: write "):
        registry.make(NAME, {setting: value})


def test_a_model_of_an_older_version_is_refused() -> None:
    estimator = registry.make(NAME, PLAIN)
    model = teach(estimator, repeating(60))
    with pytest.raises(ValueError, match="version 1: estimator clustered-svr needs version 2"):
        estimator.adopt(Model(model.arrays, {**model.facts, "version": 1}))


@pytest.mark.parametrize(
    ("array", "wrong"),
    [
        ("vectors", [10**6, 0, 0, 0]),
        ("vectors", [-1, 1, 0, 0]),
        ("vectors", [2**62, 2**62, 2**62, 2**62]),
        ("gamma", [0.0, 1.0, 1.0, 1.0]),
        ("spread", [0.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_arrays_that_would_lead_beyond_others_are_refused(array: str, wrong: list[float]) -> None:
    estimator = registry.make(NAME, PLAIN)
    model = teach(estimator, repeating(60))
    assert len(model.arrays[array]) == len(wrong)
    with pytest.raises(ValueError, match="damaged"):
        estimator.adopt(Model({**model.arrays, array: np.array(wrong)}, model.facts))
