"""Compares a text with the one kept under `tests/golden/`; `pytest --bless` writes what it finds instead.

Invariant: only `--bless` writes there, and never in CI: an expected text changes in a commit that shows it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

DIRECTORY = Path(__file__).parent.parent / "golden"

Golden = Callable[[str, str], None]
"""`golden(name, text)`: `name` is a path below `tests/golden/`, such as `esqueue/wide.txt`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write the golden texts instead of comparing them")
    parser.addoption(
        "--golden-dir", default=str(DIRECTORY), help="where the golden texts are (default: %(default)s)"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--bless") and os.environ.get("CI"):
        raise pytest.UsageError("--bless is for people: CI only compares")


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Golden:
    """Compares `text` with the golden text `name`, or writes it with `--bless`."""
    root = Path(pytestconfig.getoption("--golden-dir"))
    bless = bool(pytestconfig.getoption("--bless"))

    def compare(name: str, text: str) -> None:
        path = root / name
        if root.resolve() not in path.resolve().parents:
            raise ValueError(f"golden name {name!r} leads out of {root}")
        if bless:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no golden text {name}: look at the output, then run pytest --bless", pytrace=False)
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            pytest.fail(
                f"{name} differs (pytest --bless accepts it):\n{difference(expected, text)}", pytrace=False
            )

    return compare


def difference(expected: str, found: str) -> str:
    """A unified diff from the golden text to the one found."""
    lines = difflib.unified_diff(
        expected.splitlines(keepends=True), found.splitlines(keepends=True), "golden", "found"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ no newline at the end\n" for line in lines)
