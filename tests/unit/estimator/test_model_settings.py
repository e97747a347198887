"""A model and the settings it was learnt with: files tell of them, and what was calibrated for another aim does not stay."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from eslurm.core.model.forecast import Submitted
from eslurm.estimator.files import ModelFiles, StoredModel, other_settings, read_kept, write_model
from eslurm.estimator.history import make
from eslurm.estimator.history import network as network_module
from eslurm.estimator.history import trees as trees_module
from eslurm.ports.estimator import Model, Setting

PENALTY = 5.5


def small_model() -> Model:
    return Model({"a": np.arange(3)}, {"kind": "svr"})


def test_a_file_says_what_its_estimator_was_told(tmp_path: Path) -> None:
    settings: dict[str, Setting] = {"k": "elbow", "alpha": 1.05, "limits": True, "window_jobs": 700}
    kept = ModelFiles(tmp_path, "svr", settings)
    path = kept.save(small_model())
    (found,) = kept.newest_first()
    assert (found.path, found.settings) == (path, settings)
    assert not other_settings(found, dict(reversed(settings.items())))
    assert other_settings(found, {"k": 15, "alpha": 1.05, "window_jobs": 700, "gate": 0}) == (
        "gate: by default, now 0; k: 'elbow', now 15; limits: True, now by default"
    )
    plain = ModelFiles(tmp_path / "plain", "svr")
    plain.save(small_model())
    assert not other_settings(next(plain.newest_first()), {})


@pytest.mark.parametrize("told", [None, [], {"k": [1]}, {"k": None}, "k=3"])
def test_a_file_that_does_not_say_it_is_read_all_the_same(tmp_path: Path, told: object) -> None:
    path = tmp_path / "m.npz"
    write_model(path, "svr", small_model())
    with np.load(path) as file:
        parts = dict(file)
    head = json.loads(parts["head"].tobytes())
    head["settings"] = told
    if told is None:
        del head["settings"]
    parts["head"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
    with path.open("wb") as rewritten:
        np.savez(rewritten, allow_pickle=False, **parts)
    found = read_kept(path, "svr")
    assert found.settings is None and found.model.facts["kind"] == "svr"
    assert other_settings(found, {}) == "it does not say which"


def test_words_of_a_strange_file_do_not_reach_a_terminal_as_they_are() -> None:
    kept = StoredModel(Path("m.npz"), small_model(), {"k": "\x1b[2J"})
    assert other_settings(kept, {}) == "k: '\\x1b[2J', now by default"


def test_a_penalty_that_was_right_for_another_aim_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_module, "FIRST_EPOCHS", (1, 10_000))
    monkeypatch.setattr(trees_module, "TREES", 2)
    estimator = make({"target_under": 0.05})
    for number in range(160):
        estimator.submitted(Submitted(number, 1_000 * number, user="ann", limit_s=3_600))
        estimator.started(number, 1_000 * number)
        estimator.ended(number, 1_000 * number + 100 + number, 100 + number)
    lesson = estimator.lesson(10**6)
    assert lesson is not None
    arrays, facts = lesson()
    assert facts["target_under"] == 0.05
    model = Model(arrays, {**facts, "penalty": PENALTY})
    anew = {aim: make({"target_under": aim})._at_submission.penalty for aim in (0.05, 0.2)}
    for aim, facts_then, expected in (
        (0.05, model.facts, PENALTY),
        (0.2, model.facts, anew[0.2]),
        # Of before this was told.
        (0.05, {key: value for key, value in model.facts.items() if key != "target_under"}, anew[0.05]),
    ):
        other = make({"target_under": aim})
        other.adopt(Model(arrays, facts_then))
        assert other._at_submission.penalty == other._at_start.penalty == expected
        assert other._ensemble is not None
