"""The size of the code that is root on a node to become users, to signal and to collect: it does not grow unnoticed."""

from __future__ import annotations

import ast
import tokenize
from pathlib import Path

from esnoded import procd

BUDGET = 1_300
PAGE = Path(__file__).parents[4] / "docs" / "security.md"
_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def code_lines(path: Path) -> int:
    """Lines that are neither blank nor comment nor docstring."""
    lines: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in _NO_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_the_root_part_stays_within_its_budget() -> None:
    counted = {path.name: code_lines(path) for path in Path(procd.__path__[0]).glob("*.py")}
    assert sum(counted.values()) <= BUDGET, f"more code runs as root than {BUDGET} lines: {counted}"
    assert f"{BUDGET:,} lines of code" in PAGE.read_text()


def test_what_counts_as_code(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text(
        '"""A\nB."""\n\n# No.\ndef f(\n    a: int,\n) -> int:\n    """C."""\n    return (  # yes\n        a\n    )\n'
    )
    assert code_lines(path) == 6
