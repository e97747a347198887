"""`make audit`: holes end it, what could not be looked up is said and ends nothing."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from scripts import audit

ROOT = Path(__file__).parents[3]
HOLE: dict[str, Any] = {
    "name": "jinja2",
    "version": "2.4.1",
    "vulns": [{"id": "PYSEC-2014-8", "fix_versions": ["2.7.2"]}],
}
SOUND = {"name": "click", "version": "8.2.1", "vulns": []}
UNKNOWN = {
    "name": "click",
    "skip_reason": "Dependency not found on PyPI and could not be audited: click (8.2.1)",
}


class Services:
    """pip-audit, with services that answer so: packages, or a text on stderr for one that cannot be reached."""

    def __init__(self, **answers: Sequence[Mapping[str, object]] | str) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        service = command[2]
        self.asked.append(service)
        answer = self.answers[service]
        if isinstance(answer, str):
            return subprocess.CompletedProcess(command, 1, "", answer)
        code = int(any(one.get("vulns") for one in answer))
        return subprocess.CompletedProcess(
            command, code, json.dumps({"dependencies": answer, "fixes": []}), ""
        )


def test_an_advisory_is_a_failure_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.check_packages(Services(pypi=[SOUND, HOLE])) == (False, "")
    assert "jinja2 2.4.1: PYSEC-2014-8 (fixed in 2.7.2)" in capsys.readouterr().out


def test_without_advisories_one_service_is_enough() -> None:
    services = Services(pypi=[SOUND])
    assert audit.check_packages(services) == (True, "")
    assert services.asked == ["pypi"]


def test_an_index_that_knows_no_advisories_is_no_all_clear() -> None:
    services = Services(pypi=[UNKNOWN], osv="ConnectionError: api.osv.dev")
    assert audit.check_packages(services) == (
        True,
        "pypi: knows 0 of 1 packages; osv: ConnectionError: api.osv.dev",
    )
    assert audit.check_packages(Services(pypi=[UNKNOWN], osv=[SOUND])) == (True, "")
    assert audit.check_packages(Services(pypi=[UNKNOWN], osv=[HOLE])) == (False, "")


def test_a_service_that_never_answers_is_given_up() -> None:
    def tool(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired(command, audit.TIMEOUT_S)

    assert audit.ask("pypi", tool) == f"no answer within {audit.TIMEOUT_S:g} s"


def test_what_was_not_looked_up_is_in_the_list_of_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "stages"
    monkeypatch.setenv("STAGE_LOG", str(log))
    monkeypatch.setattr(audit, "check_sources", lambda: True)
    monkeypatch.setattr(audit, "check_packages", lambda: (True, "osv: away"))
    assert audit.main() == 0
    assert "NOT VERIFIED: advisories for the locked packages: osv: away" in capsys.readouterr().out
    assert "NOT VERIFIED" in log.read_text()
    monkeypatch.setattr(audit, "check_sources", lambda: False)
    assert audit.main() == 1


def test_every_exception_says_why() -> None:
    for source in audit.SOURCES:
        for path in (ROOT / source).rglob("*.py"):
            for line in path.read_text().splitlines():
                if "# nosec" in line:
                    assert re.search(r"# nosec B\d{3} # \w+", line), f"{path}: {line}"
