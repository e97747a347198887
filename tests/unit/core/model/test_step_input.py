"""The input that a step of so many tasks may have."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.core.model.step_input import StepInput, problem_of


@pytest.mark.parametrize(
    ("given", "tasks", "says"),
    [
        (None, 2, ""),
        (StepInput(), 2, ""),
        (StepInput(1), 2, ""),
        (StepInput(2), 2, "there is no task 2: the step has 2 (0-1)"),
        (StepInput(-2), 2, "there is no task -2"),
        (StepInput(path="in.%t"), 2, ""),
        (StepInput(0, terminal=(24, 80)), 2, ""),
        (StepInput(1, terminal=(24, 80)), 2, "--pty: the terminal is task 0's"),
        (StepInput(terminal=(24, 80)), 2, "--pty: the terminal is task 0's"),
        (StepInput(0, "in", (24, 80)), 2, "--pty: the terminal is task 0's"),
    ],
)
def test_what_is_possible(given: StepInput | None, tasks: int, says: str) -> None:
    found = problem_of(given, tasks)
    assert says in found and bool(says) == bool(found)


@pytest.mark.parametrize("size", [(-1, 80), (24, 65_536), (24,), (24, 80, 1), "x"])
def test_sizes_that_no_terminal_has_are_not_decoded(size: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode([0, "", size]), type=StepInput)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode([0]), type=StepInput) == StepInput(0)
