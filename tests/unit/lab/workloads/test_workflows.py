"""Workflows in a log: what is coupled, and when the stages start in each form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from escli import exits
from escli.local.main import main
from eslurm.core.model.units import SECOND_US
from eslurm.lab.workloads.loop import Result, replay
from eslurm.lab.workloads.machine import uniform
from eslurm.lab.workloads.rules import Rules, plain_config
from eslurm.lab.workloads.swf import Record
from eslurm.lab.workloads.workflow_metrics import measure_workflows
from eslurm.lab.workloads.workflows import MODES, Mixed, Mode, couple
from eslurm.lab.workloads.workload import WorkloadError
from tests.kits.workloads import line, log_of, record, workload
from tests.support.golden import Golden

HOUR = 3600
BEGIN = 60
# Six processors for an hour, two are asked for. Stages of four and two; the second can begin after half an hour.
ALONE = [record(1, BEGIN, HOUR, 6, 2 * HOUR)]


def mixed(records: list[Record], mode: Mode, share: float = 0.5, nodes: int = 6) -> Mixed:
    return couple(workload(records, uniform(nodes, 1)), share, mode)


def ran(records: list[Record], mode: Mode, nodes: int = 6) -> tuple[Result, Mixed]:
    made, machine = mixed(records, mode, nodes=nodes), uniform(nodes, 1)
    rules = Rules(plain_config(machine))
    return replay(made.workload, machine, "conservative", rules=rules, workflows=made.workflows), made


def starts_of(result: Result) -> list[int]:
    return [
        one.start_us // SECOND_US - BEGIN
        for one in sorted(result.ran, key=lambda one: one.job.pending.job_id)
    ]


def log() -> list[Record]:
    return [record(number, 60 * number, 700 + number, 1 + number % 12, 2000) for number in range(1, 40)]


@pytest.mark.parametrize("mode", MODES)
def test_the_same_jobs_are_coupled_in_each_form_and_the_work_stays(mode: Mode) -> None:
    plain, made = mixed(log(), "none", 0.3, nodes=12), mixed(log(), mode, 0.3, nodes=12)
    assert [one.stages[0].run_us for one in made.workflows] == [
        one.stages[0].run_us for one in plain.workflows
    ]
    assert 0.3 <= made.share < 0.35
    work = [sum(one.processors * one.run_us for one in workflow.stages) for workflow in made.workflows]
    assert work == [
        sum(one.processors * one.run_us for one in workflow.stages) for workflow in plain.workflows
    ]
    numbers = [job.pending.job_id for job in made.workload.jobs]
    assert numbers == list(range(1, len(numbers) + 1))
    assert made == mixed(log(), mode, 0.3, nodes=12), "the same jobs each time"


def test_stages_share_the_processors_and_their_delays_are_overestimated_as_the_run_time() -> None:
    (workflow,) = mixed(ALONE, "pack").workflows
    assert [(one.job, one.processors) for one in workflow.stages] == [(1, 4), (2, 2)]
    assert [one.after_us // SECOND_US for one in workflow.stages] == [0, HOUR // 2]
    assert [one.delay_us // SECOND_US for one in workflow.stages] == [0, HOUR]
    assert workflow.wanted_us == 3 * HOUR // 2 * SECOND_US


def test_more_work_than_there_is_to_couple_is_refused() -> None:
    with pytest.raises(
        WorkloadError, match=r"--workflows: 50% of the work is more than .* \(0%\): ask for less"
    ):
        mixed([record(1, 0, 100, 6)], "chain")


@pytest.mark.parametrize(
    ("mode", "starts"),
    [
        ("none", [0]),
        ("chain", [0, HOUR]),
        ("changed", [0, HOUR // 2]),
        ("pack", [0, HOUR]),
        # The replay looks at a start that was moved to "now" two seconds later.
        ("moved", [0, HOUR // 2 + 2]),
        ("het", [0]),
    ],
)
def test_when_the_stages_of_one_workflow_start(mode: Mode, starts: list[int]) -> None:
    result, _ = ran(ALONE, mode)
    assert starts_of(result) == starts


def test_a_job_of_several_parts_holds_the_later_stage_idle() -> None:
    result, made = ran(ALONE, "het")
    found = measure_workflows(result, made.workflows, "het")
    assert (found.makespan_s, found.stretch, found.overlapped, found.late_s) == (1.5 * HOUR, 1.0, 1.0, 0.0)
    # Six processors for one and a half hours, of which each works one.
    assert found.idle_share == pytest.approx(1 / 3)


def test_a_chain_waits_for_the_end_and_holds_nothing() -> None:
    result, made = ran(ALONE, "chain")
    found = measure_workflows(result, made.workflows, "chain")
    assert (found.makespan_s, found.overlapped, found.late_s, found.idle_share) == (
        2 * HOUR,
        0.0,
        HOUR / 2,
        0.0,
    )
    assert found.stretch == pytest.approx(4 / 3)


def test_the_delays_of_a_pack_are_kept_in_a_crowd() -> None:
    result, made = ran(log(), "pack", nodes=12)
    found = measure_workflows(result, made.workflows, "pack")
    assert found.workflows == len(made.workflows) > 1
    assert found.exact == 1.0


def test_what_stage_0_says_lets_the_others_start_no_later() -> None:
    late = {mode: measure_workflows(*_measured(mode), mode).late_s for mode in ("pack", "moved")}
    assert late["moved"] < late["pack"]


def _measured(mode: Mode) -> tuple[Result, tuple[object, ...]]:
    result, made = ran(log(), mode, nodes=12)
    return result, made.workflows


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = exits.OK) -> tuple[str, str]:
    assert main(["simulate", *words]) == code
    return capsys.readouterr()


def test_the_table_of_all_forms(capsys: pytest.CaptureFixture[str], tmp_path: Path, golden: Golden) -> None:
    lines = [line(number, 90 * number, 700, 1 + number % 12, 1400) for number in range(1, 40)]
    path = log_of(tmp_path / "log.swf", lines, processors=16)
    words = (str(path), "--policy", "conservative", "--workflows", "30")
    out, _ = said(capsys, *words)
    golden("simulate/workflows.txt", out)
    found = json.loads(said(capsys, *words, "--coupled", "pack", "--json")[0])
    assert found["workflows"] == 30 and [one["mode"] for one in found["results"]] == ["pack"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--coupled", "pack"), "--coupled: goes with --workflows PERCENT"),
        (("--workflows", "30", "--by", "user"), "--by: cannot go with --workflows"),
        (("--workflows", "30", "--swf", "x.swf"), "--swf: cannot go with --workflows"),
    ],
)
def test_what_does_not_go_together(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    path = log_of(tmp_path / "log.swf", [line(1, 0, 700, 4, 1400)])
    _, err = said(capsys, str(path), *words, code=exits.USAGE)
    assert text in err
