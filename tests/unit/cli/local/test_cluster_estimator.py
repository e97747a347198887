"""The estimator of a personal cluster, with stand-ins for the daemons: there by default, not needed, struck by name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from escli.local import plan, processes
from escli.local.chaos import Failed, Outcome
from escli.local.chaos_text import describe
from tests.unit.cli.local.fakes import Fakes

EVERYONE = ["agent1", "agent2", "esctld", "sat1", "sat2"]
ALL = sorted([*EVERYONE, "esestd"])


@pytest.fixture
def estimated(fakes: Fakes) -> Iterator[Fakes]:
    """With a stand-in for `esestd`."""
    fakes.modes["esestd"] = "works"
    yield fakes


def test_a_new_cluster_has_one(estimated: Fakes) -> None:
    answer = estimated.up()
    assert answer.code == 0, answer.err
    assert sorted(estimated.pids()) == ALL
    assert answer.err.index("agent1 is ready") < answer.err.index("esestd is ready")
    assert "esestd (" in answer.out
    line = next(line for line in estimated("status").out.splitlines() if line.startswith("esestd"))
    assert line.split()[:2] == ["esestd", "running"] and line.split()[-2] == "-"
    daemon = next(one for one in estimated.record().daemons if one.name == "esestd")
    assert daemon.kind == "esestd" and daemon.listen == ""
    assert estimated("down").code == 0
    assert estimated.up().code == 0
    assert sorted(estimated.pids()) == ALL
    assert estimated("down", "--purge").code == 0
    assert not estimated.layout.directory.exists()


def test_without_what_it_learns_with_there_is_none(estimated: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "find_spec", lambda _name: None)
    answer = estimated.up("--estimator")
    assert answer.code == 2 and "--estimator: scikit-learn is not installed" in answer.err
    assert estimated.up().code == 0
    assert sorted(estimated.pids()) == EVERYONE


def test_it_comes_and_goes_as_asked(estimated: Fakes) -> None:
    assert estimated.up("--no-estimator").code == 0
    assert sorted(estimated.pids()) == EVERYONE
    assert estimated.up().code == 0
    assert sorted(estimated.pids()) == EVERYONE
    assert estimated.up("--estimator").code == 0
    assert sorted(estimated.pids()) == ALL
    refused = estimated.up("--no-estimator")
    assert refused.code == 2 and "--no-estimator: the cluster is up with one: stop it first" in refused.err
    assert sorted(estimated.pids()) == ALL
    assert estimated("down").code == 0
    assert estimated.up("--no-estimator").code == 0
    assert sorted(estimated.pids()) == EVERYONE


def test_the_cluster_comes_up_without_it(estimated: Fakes) -> None:
    estimated.modes["esestd"] = "dies"
    answer = estimated.up("--json")
    assert answer.code == 0
    assert "the dog ate my spool" in answer.err and "the cluster goes on without it" in answer.err
    assert "esestd" not in json.loads(answer.out)["started"]
    assert sorted(estimated.pids()) == EVERYONE
    status = estimated("status")
    assert status.code == 1
    assert any(line.split()[:2] == ["esestd", "dead"] for line in status.out.splitlines())
    # The next `up` tries again.
    estimated.modes["esestd"] = "works"
    assert estimated.up().code == 0
    assert sorted(estimated.pids()) == ALL


def test_its_end_does_not_hold_up_others(estimated: Fakes) -> None:
    assert estimated.up().code == 0
    estimated.kill("esestd")
    estimated.kill("agent1")
    assert estimated.up().code == 0
    assert sorted(estimated.pids()) == ALL


def test_it_is_struck_by_name(estimated: Fakes) -> None:
    assert estimated.up().code == 0
    identity = next(one.identity for one in estimated.record().daemons if one.name == "esestd")
    estimated("chaos", "hang", "esestd")
    assert processes.is_stopped(identity)
    estimated("chaos", "heal", "esestd")
    assert not processes.is_stopped(identity)
    estimated("chaos", "kill", "esestd")
    assert not processes.is_alive(identity)
    # Whose child it is after its starter ended depends on who adopts orphans here.
    with suppress(ChildProcessError):
        os.waitpid(identity.pid, 0)
    assert "esestd is ready again" in estimated("chaos", "heal").err
    assert sorted(estimated.pids()) == ALL
    refused = estimated("chaos", "slow", "esestd")
    assert refused.code == 2 and "esestd can be killed or hung" in refused.err
    assert "use some of main, esestd, sat1, sat2" in estimated("chaos", "kill", "nobody").err


def test_what_has_failed_is_told() -> None:
    outcome = Outcome("show", failed=(Failed("silent", estimator="esestd"),))
    assert describe(outcome).splitlines()[1].split() == ["estimator", "esestd", "silent", "1", "-"]
