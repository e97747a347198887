"""Docstrings of the product, the lab and the benchmarks open with a verb or a noun phrase, not with a clause."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROOMS = ("eslurm", "daemons", "cli", "benchmarks")
GENERATED = "v1"
CLAUSE = re.compile(r"\s*(What|Who|Whom|Whose|Whatever|Whoever|Whether|How|When|Where)\b")


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring, those of fields and constants included."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def clauses(source: str) -> list[tuple[int, str]]:
    """Line and first line of each docstring that opens with a clause."""
    return [(line, text.strip().splitlines()[0]) for line, text in docstrings(source) if CLAUSE.match(text)]


def test_a_docstring_names_its_subject() -> None:
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            if GENERATED in path.parts:
                continue
            found = clauses(path.read_text())
            assert not found, f"{path}: open with a verb or a noun phrase: {found}"


def test_a_clause_is_found_at_a_module_a_function_and_a_constant() -> None:
    source = '''
"""What this is."""
N = 1
"""How many."""
def f():
    """Whether it is so."""
def g():
    """The number of whatever is left."""
'''
    assert [line for line, _ in clauses(source)] == [2, 4, 6]
