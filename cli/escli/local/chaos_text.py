"""Input and output of `eslurm chaos`: shares, times, and outcomes."""

from __future__ import annotations

import re

from escli.errors import unusable
from escli.local.chaos import Failed, Outcome
from escli.tables import columns_of, render
from eslurm.core.model.wording import quoted

_UNITS_US = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)%")
_NODES_SHOWN = 60


def parse_duration(option: str, text: str) -> int:
    """`500ms`, `30s`, `2m`, `1h`, or seconds: in microseconds, more than none. Raises `ClusterError`."""
    found = _DURATION.fullmatch(text.strip())
    value_us = round(float(found[1]) * _UNITS_US[found[2] or "s"]) if found else 0
    if value_us <= 0:
        raise unusable(f"{option}: {quoted(text)} is no time: write 500ms, 30s or 2m")
    return value_us


def parse_share(text: str) -> float:
    """`30%` as 0.3. Raises `ClusterError`."""
    found = _SHARE.fullmatch(text.strip())
    share = float(found[1]) / 100 if found else 0.0
    if not 0 < share <= 1:
        raise unusable(f"--share: {quoted(text)} is no part of the nodes: write 1% to 100%")
    return share


def describe(outcome: Outcome) -> str:
    """The outcome as text, every line ended by a newline."""
    lines = []
    if outcome.seed is not None:
        lines.append(f"{_count(outcome.nodes)}, drawn with --seed {outcome.seed}")
    if not outcome.failed:
        return "\n".join([*lines, "Nothing pretends to fail."]) + "\n"
    columns = columns_of("WHAT FAILURE >COUNT >LEFT")
    rows = [[_what(one), _failure(one), str(one.count or 1), _left(one)] for one in outcome.failed]
    text = "".join(f"{line}\n" for line in lines) + render(columns, rows)
    if outcome.action in ("heal", "show"):
        return text
    return (
        text + "Look: esinfo, esinfo -R, esinfo --satellites, esctl broadcast last. Heal: eslurm chaos heal\n"
    )


def _count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def _what(one: Failed) -> str:
    if one.controller:
        return f"controller {one.controller}"
    if one.estimator:
        return f"estimator {one.estimator}"
    if one.satellite:
        return f"satellite {one.satellite}"
    return one.nodes if len(one.nodes) <= _NODES_SHOWN else f"{one.nodes[:_NODES_SHOWN]}..."


def _failure(one: Failed) -> str:
    return f"{one.mode} by {one.delay_ms:g} ms" if one.delay_ms else one.mode


def _left(one: Failed) -> str:
    return "-" if one.left_s is None else f"{one.left_s:.0f} s"
