"""Tests whose programs are missing: counted and named with the way out, and failures in CI."""

from __future__ import annotations

import pytest

from tests.support.groups import INSTALL
from tests.unit.tooling.test_leaks import ROOT

NEEDS = """
    from tests.support import groups

    def test_one():
        groups.lacks("PostgreSQL")

    def test_two():
        groups.lacks("PostgreSQL")

    def test_three():
        groups.lacks("prometheus")

    def test_four():
        pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("CI", raising=False)
    pytester.makeini("[pytest]\naddopts = -p tests.support.groups -p no:cacheprovider\n")
    pytester.makepyfile(NEEDS)
    return pytester


def test_groups_that_are_not_run_are_counted_with_the_way_out(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("-n2")
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(
        [
            "NOT VERIFIED: 2 groups of tests, which need PostgreSQL (2), prometheus (1)",
            f"To run them: {INSTALL}",
        ]
    )


def test_in_ci_they_fail(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines([f"*PostgreSQL is missing: install it with: {INSTALL}"])
