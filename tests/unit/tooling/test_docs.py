"""The generated pages: complete, current when just written, and found out when not."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from eslurm.config import sections
from eslurm.core.model.job_states import TRANSITIONS, JobState
from scripts import docs

ROOT = Path(__file__).parents[3]


def test_every_state_table_of_the_core_is_on_the_page() -> None:
    found = docs.tables(ROOT)
    assert [table.title for table in found][: len(docs.TITLES)] == list(docs.TITLES.values())
    page = docs.states_page(found)
    for state, moves in TRANSITIONS.items():
        for target, cause in moves.items():
            assert f"| {state.value} | {target.value} | {cause} |" in page
    assert f"    {JobState.COMPLETED.value} --> [*]" in page
    assert "| FAULT | DOWN | shutdown, timeout |" in page


def test_every_table_begins_where_things_begin_and_can_reach_all_its_states() -> None:
    for table in docs.tables(ROOT):
        reached, ahead = set(), [next(iter(table.moves))]
        while ahead:
            state = ahead.pop()
            if state not in reached:
                reached.add(state)
                ahead += table.moves[state]
        assert reached == set(table.states), (
            f"{table.module}: {set(table.states) - reached} cannot be reached"
        )
        assert table.moves.keys() == set(table.states), f"{table.module} does not name every state"


def test_every_key_of_the_configuration_is_documented() -> None:
    page = docs.configuration_page(ROOT)
    for section in (
        sections.ClusterSection,
        sections.ControllerSection,
        sections.PartitionSection,
        sections.PolicySection,
    ):
        for name in section.__struct_fields__:
            (line,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")][:1]
            assert not line.endswith("|  |"), f"{section.__name__}.{name} has no text below it"
    assert "## `[[partition]]`" in page
    assert "| `heartbeat_s` | number above 0 to 1e+09 | `5.0` |" in page
    assert "| `names` | text | *required* |" in page


def test_a_page_is_written_once_and_then_current(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main(["--check"], ROOT, tmp_path) == 1
    assert "docs/states.md is missing" in capsys.readouterr().err
    assert docs.main([], ROOT, tmp_path) == 0
    assert "6 pages, 6 changed" in capsys.readouterr().out
    assert docs.main(["--check"], ROOT, tmp_path) == 0
    states = tmp_path / docs.STATES
    states.write_text(states.read_text() + "more\n")
    assert docs.main(["--check"], ROOT, tmp_path) == 1
    captured = capsys.readouterr().err
    assert "docs/states.md is stale" in captured and "make docs" in captured
    assert "configuration.md" not in captured


def test_every_metric_is_on_its_page() -> None:
    page = docs.metrics_page()
    for kind in ("esctld", "essatd", "esnoded", "esestd"):
        for one in importlib.import_module(f"{kind}.status").described():
            assert f"| `{one.name}` | {one.kind} |" in page
    # What all have in common is told once.
    assert page.count("`process_resident_memory_bytes`") == 1
