"""YAML as `--yaml` prints it: a reader of it finds what a reader of the JSON finds."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from eslurm.compat.slurm import yaml_text

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), 1 << 63),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(
        [
            "no",
            "Yes",
            "~",
            "1e3",
            "0x10",
            "1:30:00",
            "2026-01-01",
            "- a",
            "a: b",
            "a #b",
            "",
            " a",
            "=",
            "<<",
            "/a b",
        ]
    ),
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)


@given(DOCUMENTS)
def test_the_content_is_that_of_the_json(value: Any) -> None:
    document = json.dumps(value)
    assert yaml.safe_load(yaml_text.from_json(document)) == json.loads(document)


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        (
            {"jobs": [{"name": "a b", "nodes": [], "tags": ["x", "no"]}, 1]},
            ["jobs:", "  - name: a b", "    nodes: []", "    tags:", "      - x", '      - "no"', "  - 1"],
        ),
        ([[1, [2]], {}], ["- - 1", "  - - 2", "- {}"]),
        ("\u001b[0m\n", ['"\\u001b[0m\\n"']),
    ],
)
def test_layout(value: Any, lines: list[str]) -> None:
    assert yaml_text.from_json(json.dumps(value)).splitlines() == ["---", *lines, "..."]
