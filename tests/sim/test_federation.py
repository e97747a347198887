"""Federations of simulated clusters over one simulated store: seeds hold, runs repeat, and planted bugs are found."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from eslurm.lab.sim import failed
from eslurm.lab.sim.command import main
from eslurm.lab.sim.federation.coverage import PATHS
from eslurm.lab.sim.federation.plan import draw_cells, draw_federation
from eslurm.lab.sim.run import Failure, Scenario, draw_nodes, judge, replay_of, run_scenario
from tests.sim import planted_federation as planted
from tests.sim.test_drawn_seeds import FAILED, first_seed
from tests.support.profiles import draws


def scenario_of(seed: int) -> Scenario:
    return Scenario(seed, draw_nodes(seed, 4, 8), cells=draw_cells(seed))


@pytest.mark.slow
def test_federations_hold() -> None:
    reports = [run_scenario(scenario_of(seed)) for seed in range(4, 4 + draws(9))]
    assert all(report.faults and report.commits for report in reports)
    assert sum(report.jobs for report in reports) > len(reports)
    assert all(tuple(report.paths) == PATHS for report in reports)
    assert sum(report.paths["word that a cell is alive taken over by a standby"] for report in reports)
    assert sum(report.paths["cell without an answer went to another server"] for report in reports)
    assert sum(report.paths["offered job taken"] for report in reports)
    assert sum(report.paths["offer withdrawn"] for report in reports)
    assert sum(report.paths["nodes given back because jobs met"] for report in reports)


@pytest.mark.slow
def test_federations_that_no_earlier_state_has_seen_hold() -> None:
    first = first_seed()
    for seed in range(first, first + draws(9)):
        verdict = judge(scenario_of(seed))
        if isinstance(verdict, Failure):
            failed.keep(FAILED, verdict)
            pytest.fail(verdict.text)


def test_a_federation_repeats_itself_to_the_last_event() -> None:
    until_us = 20_000_000
    one, other = (run_scenario(scenario_of(4), until_us=until_us) for _ in range(2))
    assert one == other
    assert one.events_hash != run_scenario(scenario_of(5), until_us=until_us).events_hash


def test_cells_and_their_faults_are_drawn() -> None:
    plans = [draw_federation(seed, draw_cells(seed), 8) for seed in range(1, 101)]
    assert {len(plan.cells) for plan in plans} == {2, 3, 4}
    assert {len({cell.name for cell in plan.cells}) for plan in plans if len(plan.cells) == 3} == {2, 3}
    assert all(cell.faults.calm_us + cell.begin_us == plan.calm_us for plan in plans for cell in plan.cells)
    assert len({kind for plan in plans for _, kind in plan.events}) > 15


def test_the_command_runs_federations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cells", "2-4", "--seed", "1", "--until", "5", "--jobs", "1"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("seed 1: nodes ")
    assert all(path in told for path in PATHS)
    assert main(["--cells", "2", "--seed", "1", "--until", "5", "--trace"]) == 0
    assert "standing alpha/controller0 epoch 1 member" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--cells", "2", "--seed", "1", "--shrink"])
    assert "--cells with --shrink" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--cells", "1-9"])
    assert "'1-9' is no number of cells: from 2 to 4" in capsys.readouterr().err


def test_a_failed_federation_is_kept_and_named(tmp_path: Path) -> None:
    path = tmp_path / "seeds"
    scenario = Scenario(7, 5, cells=3)
    assert failed.keep(path, Failure(scenario, "kind", "what", 1.0, 1, 1))
    assert not failed.keep(path, Failure(scenario, "kind", "what", 1.0, 1, 1))
    assert failed.load(path) == [scenario]
    assert replay_of(scenario) == "eslurm sim --seed 7 --nodes 5 --cells 3 --trace"


def first_failure(seeds: Iterable[int]) -> Failure | None:
    for seed in seeds:
        verdict = judge(scenario_of(seed))
        if isinstance(verdict, Failure):
            return verdict
    return None


# As in `test_planted`: looked for where it is found.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "seeds", "says"),
    [
        (planted.keep_what_a_listing_lacks, range(25, 27), "as alive, "),
        (planted.number_taken_without_reading, range(1, 3), "both have number"),
        (planted.name_of_another_taken, range(16, 18), "the name alpha of"),
        (planted.lease_granted_once, range(1, 3), "shows the sound cell"),
        (planted.lease_kept_by_a_former_leader, range(2, 4), "as alive, "),
        (planted.owner_changed_without_comparison, range(6, 10), "and ran in cell"),
        (planted.started_before_the_store_says_so, range(4, 6), "and the store says"),
        (planted.nodes_counted_on_before_they_are_held, range(4, 6), "which has not begun"),
        (planted.nodes_held_while_others_wait, range(7, 8), "held nodes idle for"),
    ],
)
def test_a_bug_planted_into_cells_is_found(
    plant: planted.Plant, seeds: range, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        failure = first_failure(seeds)
    assert failure is not None, f"not found among seeds {seeds.start} to {seeds.stop - 1}"
    assert says in failure.what, failure.text
    run_scenario(failure.scenario)
