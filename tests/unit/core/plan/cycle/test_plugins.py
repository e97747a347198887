"""Policies of a site: the one in the examples, how it is found, and what is refused."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import msgspec
import pytest

from eslurm.config import policies as config_policies
from eslurm.config.policies import PolicyError, load_policy, policy_names
from eslurm.core.plan.cycle import policies
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.schedule import Schedule
from tests.kits.plan_building import job, nodes, runs, snapshot, started
from tests.unit.core.plan.cycle.test_policies import WIDE

EXAMPLE = Path(__file__).parents[5] / "examples/policies/shortest_first.py"
DAY_US = 86_400_000_000


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """Entry points as if packages had been installed; forgotten again afterwards."""
    points: list[EntryPoint] = []
    monkeypatch.setattr(config_policies, "entry_points", lambda group: EntryPoints(points))
    monkeypatch.setattr(policies, "_added", {})
    yield points


@pytest.fixture
def example(installed: list[EntryPoint], monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("shortest_first", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "shortest_first", module)
    installed.append(
        EntryPoint("shortest_first", "shortest_first:ShortestFirst", config_policies.ENTRY_POINT_GROUP)
    )


@pytest.mark.usefixtures("example")
def test_the_example_starts_short_jobs_first_and_promises_old_ones_a_start() -> None:
    assert policy_names()[-1] == "shortest_first"
    assert load_policy("shortest_first") is load_policy("shortest_first")
    now_us = 10 * DAY_US
    jobs = [job(1, limit_us=9), job(2, limit_us=3), job(3, limit_us=0), job(4, limit_us=5)]
    fresh = [msgspec.structs.replace(one, submitted_us=now_us) for one in jobs]
    view = snapshot(nodes(1, cores=2), fresh, now_us=now_us)
    assert started(plan_at_once(view, policy="shortest_first").placements) == [2, 4]
    # One that has waited for more than a day keeps the short ones from delaying it.
    schedule = Schedule()
    old = snapshot(nodes(2), [job(1, WIDE), *fresh[1:]], [runs(0, 4, now_us + 4)], now_us=now_us)
    plan = plan_at_once(old, policy="shortest_first", schedule=schedule)
    assert [(booking.job_id, booking.start_us - now_us) for booking in plan.promises()] == [(1, 4)]
    assert started(plan.placements) == [2]


@pytest.mark.usefixtures("installed")
def test_names_that_nobody_offers_are_refused_with_the_known_ones() -> None:
    assert policy_names() == ("fcfs", "easy", "conservative", "planned")
    with pytest.raises(PolicyError, match="'lottery' is unknown: use fcfs, easy, conservative, planned"):
        load_policy("lottery")
    assert load_policy("easy") is policies.get_policy("easy")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("nowhere_at_all:Policy", "cannot be loaded: ModuleNotFoundError"),
        ("collections:Counter", "is no policy: it needs plan"),
    ],
)
def test_what_is_no_policy_is_refused(installed: list[EntryPoint], value: str, text: str) -> None:
    installed.append(EntryPoint("odd", value, config_policies.ENTRY_POINT_GROUP))
    with pytest.raises(PolicyError, match=text):
        load_policy("odd")
    installed.append(EntryPoint("odd", "elsewhere:Policy", config_policies.ENTRY_POINT_GROUP))
    with pytest.raises(PolicyError, match="offered twice"):
        load_policy("odd")


def test_a_built_in_name_cannot_be_taken() -> None:
    with pytest.raises(ValueError, match="built in"):
        policies.register(policies.get_policy("easy"))
