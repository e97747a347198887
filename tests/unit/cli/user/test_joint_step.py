"""`esrun` in a job that spans cells: where its tasks go, and what each cell is told of the whole step."""

from __future__ import annotations

import io
from typing import Any

import pytest

from escli.option_table import rows_of
from escli.options import Parser, Words
from escli.user.joint_step import JointLaunch, JointOutput, Place, _describe, _size, share_out
from escli.user.step_output import LineWriter, StepOutput
from escli.user.step_programs import read_programs
from eslurm.compat.errors import OptionError
from eslurm.v1 import controller_pb2 as pb


def places(*sizes: int) -> list[Place]:
    return [
        Place("" if not at else f"cell{at}", at + 17, [f"n{one}" for one in range(size)])
        for at, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("sizes", "nodes", "tasks", "expected"),
    [
        ((2, 3), 5, 5, [[1, 1], [1, 1, 1]]),
        ((2, 3), 5, 12, [[3, 3], [2, 2, 2]]),
        ((2, 3), 2, 4, [[2, 2], []]),
        ((1, 2, 4), 4, 4, [[1], [1, 1], [1]]),
        ((1, 1), 1, 1, [[1], []]),
    ],
)
def test_tasks_fill_the_cells_in_order(sizes: tuple[int, ...], nodes: int, tasks: int, expected: Any) -> None:
    found = places(*sizes)
    share_out(found, nodes, tasks)
    assert [place.tasks for place in found] == expected
    assert sum(map(sum, expected)) == tasks


def test_each_cell_is_told_where_its_part_begins() -> None:
    found = places(2, 1, 2)
    share_out(found, 5, 8)
    told = []
    for place in found:
        request = pb.CreateStepRequest()
        _describe(request.joint, 17, found, place)
        told.append(request.joint)
    assert [(one.rank_first, one.node_first, one.ranks, one.nodes) for one in told] == [
        (0, 0, 8, 5),
        (4, 2, 8, 5),
        (6, 3, 8, 5),
    ]
    assert {one.tasks_per_node for one in told} == {"2(x3),1(x2)"}
    assert {one.node_list for one in told} == {"n[0-1],n0,n[0-1]"}


def options(*words: str) -> Words:
    return Parser(rows_of("esrun"), options_end_at_first_word=True).parse([*words, "app"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), (5, 10)),
        (("-n", "3"), (3, 3)),
        (("-n", "20"), (5, 20)),
        (("-N", "4"), (4, 4)),
        (("-N", "4", "-n", "8"), (4, 8)),
    ],
)
def test_without_options_it_has_all_nodes_and_as_many_tasks_on_each_as_the_job(
    words: tuple[str, ...], expected: tuple[int, int]
) -> None:
    environ = {"ESLURM_NNODES": "2", "ESLURM_NTASKS": "4"}
    given = options(*words)
    (program,) = read_programs(given, environ)
    assert _size(given, program, places(2, 3), environ) == expected
    with pytest.raises(OptionError, match="more than the job's 5 nodes"):
        _size(options("-N", "6"), read_programs(options("-N", "6"), environ)[0], places(2, 3), environ)


class Part:
    """A launch of one part."""

    def __init__(self, state: str, error: str = "") -> None:
        self.state = state
        self.error = error
        self.failed = [("n0", "no such file")] if state == "FAILED" else []
        self.heard = (object(),)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (("RUNNING", "LAUNCHING"), "LAUNCHING"),
        (("RUNNING", "FAILED", "LAUNCHING"), "FAILED"),
        (("ENDED", "RUNNING"), "RUNNING"),
        (("ENDED", "ENDED"), "ENDED"),
    ],
)
def test_the_state_of_a_launch_is_that_of_its_worst_part(states: tuple[str, ...], expected: str) -> None:
    parts: Any = [Part(state) for state in states]
    launch = JointLaunch(parts)
    assert launch.state == expected and len(launch.heard) == len(states)
    assert bool(launch.failed) == (expected == "FAILED") and not launch.error


def test_nodes_of_one_name_in_two_cells_are_two_sources() -> None:
    writer = LineWriter(io.BytesIO(), io.BytesIO())
    output = JointOutput(writer)
    for cell in ("", "beta"):
        part = StepOutput("127.0.0.1", b"c" * 32, writer)
        part.expect({(0, "n1"): 1})
        output.add(cell, part)
    assert output.expected == {(("", 0), "n1"), (("beta", 0), "n1")}
    assert not output.connected and not output.finished and not output.lost and not output.statuses
    output.run_once(0)
    output.close()
    output.close()
