"""When the end of one task ends all others, and what is said of it in our words and in Slurm's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from escli.option_table import rows_of
from escli.options import Parser
from escli.slurm.step_texts import SlurmTexts
from escli.user.step_ends import OwnTexts, StepTexts, TaskEnds, read_ends
from eslurm.compat.errors import OptionError

FAILED_TASK = (1, "n1", 7)
FINE_TASK = (0, "n1", 0)
KILLED_TASK = (2, "n2", -9)


def ends(given: Sequence[str] = (), texts: StepTexts | None = None, **environ: str) -> TaskEnds:
    words = Parser(rows_of("esrun"), options_end_at_first_word=True).parse([*given, "app"])
    return read_ends(words, environ, texts or OwnTexts("esrun"))


# --- when ------------------------------------------------------------------------------------------------


def test_a_task_that_fails_ends_nothing_unless_it_is_to() -> None:
    one = ends()
    assert not one.look("17.0", [FAILED_TASK], 3, 1.0)
    assert not one.look("17.0", [], 3, 1e9)


@pytest.mark.parametrize("given", [["-K"], ["--kill-on-bad-exit"], ["--kill-on-bad-exit=1"]])
def test_a_task_that_fails_ends_the_others(given: list[str]) -> None:
    one = ends(given)
    assert not one.look("17.0", [FINE_TASK], 3, 1.0)
    assert one.look("17.0", [FAILED_TASK], 3, 2.0)


def test_nothing_is_to_be_ended_when_the_last_one_fails() -> None:
    one = ends(["-K"])
    assert not one.look("17.0", [FINE_TASK, FAILED_TASK, KILLED_TASK], 3, 1.0)


def test_all_are_ended_so_long_after_the_first_end() -> None:
    one = ends(["-W", "30"])
    assert not one.look("17.0", [], 3, 5.0)
    assert not one.look("17.0", [FINE_TASK], 3, 10.0)
    assert not one.look("17.0", [FAILED_TASK], 3, 39.9)
    assert one.look("17.0", [], 3, 40.0)


def test_slurms_variables_count_where_no_option_is_given() -> None:
    assert ends(SLURM_KILL_BAD_EXIT="1").look("17.0", [FAILED_TASK], 3, 1.0)
    assert not ends(["--kill-on-bad-exit=0"], SLURM_KILL_BAD_EXIT="1").look("17.0", [FAILED_TASK], 3, 1.0)
    late = ends(SLURM_WAIT="2")
    assert not late.look("17.0", [FINE_TASK], 3, 1.0)
    assert late.look("17.0", [], 3, 3.0)


@pytest.mark.parametrize(
    "given",
    [["--kill-on-bad-exit=2"], ["--kill-on-bad-exit=yes"], ["-W", "-1"], ["-W", "soon"], ["-W", "9" * 12]],
)
def test_values_that_cannot_be(given: list[str]) -> None:
    with pytest.raises(OptionError, match=r"--(kill-on-bad-exit|wait): "):
        ends(given)


# --- what is said ----------------------------------------------------------------------------------------


def said(texts: StepTexts, given: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    one = ends(given, texts)
    one.look("17.0", [FINE_TASK, FAILED_TASK, (3, "n1", 7)], 5, 1.0)
    one.look("17.0", [KILLED_TASK], 5, 9.0)
    one.problem("17.0", "node n3 never connected")
    one.ended({0: 0, 1: 7, 2: -9, 3: 7})
    return capsys.readouterr().err


def test_our_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(OwnTexts("esrun"), ["-W", "5"], capsys) == (
        "esrun: step 17.0: the first task ended 8 s ago: ending task 4\n"
        "esrun: step 17.0: node n3 never connected\n"
        "esrun: task 1,3: exit code 7\n"
        "esrun: task 2: ended by signal 9\n"
    )
    assert "esrun: step 17.0: a task failed: ending task 2,4\n" in said(OwnTexts("esrun"), ["-K"], capsys)


def test_slurms_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(SlurmTexts(), ["-W", "5"], capsys) == (
        "srun: error: n1: tasks 1,3: Exited with exit code 7\n"
        "srun: error: n2: task 2: Killed\n"
        "srun: First task exited 8s ago\n"
        "srun: StepId=17.0 task 4: running\n"
        "srun: StepId=17.0 tasks 0-3: exited\n"
        "srun: Terminating StepId=17.0\n"
        "srun: error: StepId=17.0: node n3 never connected\n"
    )
    assert "srun: launch/slurm: _step_signal: Terminating StepId=17.0\n" in said(SlurmTexts(), ["-K"], capsys)


def test_states_after_one_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    for texts in (OwnTexts("esrun"), SlurmTexts()):
        one = ends(texts=texts)
        one.look("17.0", [FINE_TASK], 4, 1.0)
        one.interrupted("17.0", 4)
    assert capsys.readouterr().err == (
        "esrun: step 17.0: task 1-3 running: one more Ctrl-C within a second ends the step\n"
        "srun: interrupt (one more within 1 sec to abort)\n"
        "srun: StepId=17.0 tasks 1-3: running\n"
        "srun: StepId=17.0 task 0: exited\n"
    )


def test_a_quiet_command_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(OwnTexts("esrun"), ["-Q", "-K"], capsys) == ""


def test_a_signal_without_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    SlurmTexts().failed("n1", [0], -200)
    assert capsys.readouterr().err == "srun: error: n1: task 0: Signal 200\n"
