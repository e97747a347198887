"""Groups of tests that need more than Python: programs of the system, or root.

Invariant: no group is left out in silence. Where a program is missing, its tests fail in CI; elsewhere they are skipped,
and the report ends with each group, the number of its tests, and the line that makes them run.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Final, NoReturn

import pytest

NOT_RUN: Final = "NOT RUN: needs "
ROOT: Final = "root"
INSTALL: Final = "sh scripts/system_packages.sh"
"""Installs the programs on Debian, as root or by sudo."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason=f"{NOT_RUN}{ROOT}")
"""For tests in which steps belong to several users."""


def lacks(program: str) -> NoReturn:
    """End a test whose program is missing."""
    if os.environ.get("CI"):
        pytest.fail(f"{program} is missing: install it with: {INSTALL}", pytrace=False)
    pytest.skip(f"{NOT_RUN}{program}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell which groups were not run, and what makes them run."""
    reasons = [str(report.longrepr) for report in terminalreporter.getreports("skipped")]
    counts = Counter(reason.partition(NOT_RUN)[2].rstrip("')") for reason in reasons if NOT_RUN in reason)
    if not counts:
        return
    told = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
    words = [INSTALL] * bool(counts.keys() - {ROOT}) + ["make test, as root"] * (ROOT in counts)
    terminalreporter.write_sep("=", "not everything was run", yellow=True)
    terminalreporter.write_line(f"NOT VERIFIED: {len(counts)} groups of tests, which need {told}")
    terminalreporter.write_line(f"To run them: {'; '.join(words)}")
