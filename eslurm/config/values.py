"""Kinds of values in the configuration, with their bounds."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from eslurm.core.model.request_limits import ARRAY_TASKS_MAX, SCRIPT_BYTES_MAX

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"
Name = Annotated[str, Meta(pattern=NAME)]
# Bounds that no site reaches: what is beyond them cannot be kept in the store or counted in microseconds.
NUMBER_MAX = 2**31 - 1
SECONDS_MAX = 1e9
Positive = Annotated[float, Meta(gt=0, le=SECONDS_MAX)]
NotNegative = Annotated[float, Meta(ge=0, le=SECONDS_MAX)]
Count = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
Whole = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
ScriptBytes = Annotated[int, Meta(ge=1024, le=SCRIPT_BYTES_MAX)]
ArrayTasks = Annotated[int, Meta(ge=1, le=ARRAY_TASKS_MAX)]
JobId = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Width = Annotated[int, Meta(le=NUMBER_MAX)]
UserId = Annotated[int, Meta(ge=0, lt=2**32)]
Share = Annotated[float, Meta(ge=0, le=100)]
Weight = Annotated[float, Meta(ge=0, le=1e6)]
