"""Built-in predictors by name, and settings that are wrong."""

from __future__ import annotations

import pytest

from eslurm.core.prediction.alerts import FiringAlerts
from eslurm.core.prediction.builtin import BUILT_IN, make_built_in
from eslurm.core.prediction.predictor import BroadcastSeen, NodesKnown

SECOND = 1_000_000


def test_each_name_gives_a_predictor_and_other_names_none() -> None:
    made = [make_built_in(name, {}, SECOND, FiringAlerts()) for name in BUILT_IN]
    assert len({type(predictor) for predictor in made}) == 3 and None not in made
    assert make_built_in("site", {"anything": 1}, SECOND, FiringAlerts()) is None


def test_the_predictor_of_alerts_reads_the_given_book() -> None:
    book = FiringAlerts()
    predictor = make_built_in("alerts", {"query": "up == 0"}, SECOND, book)
    assert predictor is not None
    predictor.observe(NodesKnown({1: "cn1"}))
    book.set_firing("p", [("a", "cn1")])
    assert set(predictor.predict(0)) == {1}


def test_settings_are_obeyed() -> None:
    predictor = make_built_in("history", {"calm": 1, "half_life_s": 1}, SECOND, FiringAlerts())
    assert predictor is not None
    for at_s, silent in ((0, (1,)), (1, ()), (9, ())):
        predictor.observe(BroadcastSeen(at_s * SECOND, (1,), silent))
    assert set(predictor.predict(9 * SECOND)) == set()


@pytest.mark.parametrize(
    ("name", "settings", "key"),
    [
        ("history", {"calmness": 1}, "calmness"),
        ("history", {"calm": "three"}, "calm"),
        ("history", {"half_life_s": -1}, "half_life_s"),
        ("health", {"limit": 1}, "limit"),
    ],
)
def test_wrong_settings_are_refused_by_key(name: str, settings: dict[str, object], key: str) -> None:
    with pytest.raises(ValueError, match=rf"failure\.settings\.{name}.*{key}"):
        make_built_in(name, settings, SECOND, FiringAlerts())
