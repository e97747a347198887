"""Spans are not nodes: a node has one for each part of a job that is on it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
COUNTS_SPANS = re.compile(r"len\((?:\w+\.)*attempt\.spans\)|len\(placement\.spans\)")
COUNTED_HERE = {"eslurm/core/state/invariants.py"}
"""Compares the two numbers."""


def test_no_code_counts_spans_for_nodes() -> None:
    """Goal: `Attempt.nodes` and `is_on_one_node` are used instead."""
    found = {
        str(path.relative_to(ROOT))
        for room in ("eslurm/core", "eslurm/api", "eslurm/store", "daemons", "cli")
        for path in (ROOT / room).rglob("*.py")
        if COUNTS_SPANS.search(path.read_text())
    }
    assert found == COUNTED_HERE
