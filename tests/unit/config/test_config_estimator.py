"""The section [estimator]: what it means to plans, and what an estimator is told of it."""

from __future__ import annotations

import pytest

from eslurm.config.file import cluster_config, estimator_settings, parse_config
from eslurm.config.problems import ConfigError
from eslurm.config.sections import EstimatorSection

SITE = '[cluster]\nname = "lab"\n[[nodes]]\nnames = "cn1"\ncores = 8\nmemory_mib = 1000\n[estimator]\n'


def section(text: str) -> EstimatorSection:
    return parse_config((SITE + text).encode(), "site.toml").estimator


def test_by_default_the_estimator_chooses() -> None:
    found = section("")
    assert (found.name, found.refresh_s, found.history_jobs, found.metrics_listen) == (
        "history",
        300,
        20_000,
        "",
    )
    assert estimator_settings(found) == {}


def test_whether_plans_count_on_it() -> None:
    for text, expected in (("", True), ("use = true", True), ("use = false", False)):
        assert cluster_config(parse_config((SITE + text).encode(), "site.toml")).use_forecasts is expected


def test_what_is_given_is_told() -> None:
    found = section(
        'name = "clustered-svr"\ntarget_under = 0.05\nwindow_jobs = 700\nretrain_every_s = 54000\n'
        'settings = { k = "elbow", alpha = 1.05, gate = true, window_jobs = 800 }'
    )
    assert estimator_settings(found) == {
        "target_under": 0.05,
        "window_jobs": 800,
        "retrain_every_s": 54_000,
        "k": "elbow",
        "alpha": 1.05,
        "gate": True,
    }


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("target_under = 1.0", "estimator.target_under"),
        ("target_under = -0.1", "estimator.target_under"),
        ("window_jobs = -1", "estimator.window_jobs"),
        ("refresh_s = 0", "estimator.refresh_s"),
        (
            "history_jobs = 100001",
            "estimator.history_jobs: '100001' is out of bounds: write a whole number from 0 to 100000",
        ),
        ("history_jobs = -1", "estimator.history_jobs"),
        ('name = "../x"', "estimator.name"),
        ("settings = { a = [1] }", "estimator.settings"),
        ("retrain = 3", "retrain"),
    ],
)
def test_nonsense_is_named(text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=r"site\.toml") as refused:
        section(text)
    assert named in str(refused.value)
