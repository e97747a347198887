"""A finding of the doctor. Checks are generators of findings, so that a live controller can run them in slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

Severity: TypeAlias = Literal["warning", "error"]

WARNING: Severity = "warning"
ERROR: Severity = "error"


class Finding(msgspec.Struct, frozen=True, order=True):
    """One problem. `what` is the thing (job 7, node cn0003), `text` has the numbers, `advice` the way out."""

    check: str
    severity: Severity
    what: str
    text: str
    advice: str = ""


Sliced: TypeAlias = Iterator[Finding | None]
"""Findings as they are made; None wherever the check may pause: between two of them the state may move on."""
