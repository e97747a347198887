"""`esctl doctor`: problems of the cluster, their severity, and the way out. The controller examines."""

from __future__ import annotations

from escli import exits, program
from escli.tables import columns_of, render
from eslurm.compat.errors import escaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from escli.api import Api
    from escli.options import Words

HEALTHY = exits.OK
WARNINGS = 1
ERRORS = 2
"""3, as with every command: the controller cannot be reached."""

_TIMEOUT_S = 120.0
_ORDER = {"error": 0, "warning": 1}


def check(api: Api, words: list[str], given: Words) -> int:
    """`esctl doctor [--json]`. 0: healthy, 1: warnings, 2: errors, 3: not reachable."""
    from eslurm.v1 import controller_pb2 as pb

    program.no_more_words(words)
    reply = api.call("Doctor", pb.DoctorRequest(), _TIMEOUT_S)
    if given.has("json"):
        from escli.as_json import to_json

        program.say(to_json(reply))
    else:
        program.say(report(reply))
    return verdict(reply.findings)


def verdict(findings: Sequence[Any]) -> int:
    """The exit code."""
    if any(one.severity == "error" for one in findings):
        return ERRORS
    return WARNINGS if findings else HEALTHY


def report(reply: Any) -> str:
    """The findings as a table, the worst first, each followed by its advice; then one sentence."""
    findings = sorted(
        reply.findings, key=lambda one: (_ORDER.get(one.severity, 2), one.check, one.what, one.text)
    )
    lines = []
    if findings:
        columns = columns_of("SEVERITY CHECK WHAT FINDING")
        rows = [[one.severity.upper(), one.check, escaped(one.what), escaped(one.text)] for one in findings]
        lines = [render(columns, rows).rstrip("\n"), "", *_advice(findings), ""]
    errors = sum(one.severity == "error" for one in findings)
    warnings = len(findings) - errors
    state = f"{_count(errors, 'error')}, {_count(warnings, 'warning')}" if findings else "healthy"
    lines.append(f"{state}: {_count(len(reply.checks), 'check')} made at revision {reply.revision}")
    return "\n".join(lines)


def _advice(findings: Sequence[Any]) -> list[str]:
    """Each piece of advice once, with the checks to which it belongs."""
    found: dict[str, list[str]] = {}
    for one in findings:
        if one.advice:
            found.setdefault(one.advice, [])
            if one.check not in found[one.advice]:
                found[one.advice].append(one.check)
    return [f"{', '.join(checks)}: {advice}" for advice, checks in found.items()]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
