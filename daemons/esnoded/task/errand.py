"""The text that the helper of a job's gateways writes, and its command. Root's part loads this, and not the helper."""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from eslurm.core.model.gateways import GatewayStep

MODULE: Final = "esnoded.task.routes"
_ARGUMENT_CHARS: Final = 100_000


class Errand(msgspec.Struct, frozen=True):
    """The text that the helper writes: the routes, or with `is_failure` why there are none (`step.failed`)."""

    job_id: int
    work_dir: str
    file: str
    plugin: str
    cleanup: bool
    step: GatewayStep
    is_failure: bool = False


def helper_argv(errand: Errand) -> tuple[str, ...]:
    """The command that does the errand, in arguments that a kernel takes."""
    text = msgspec.json.encode(errand).decode()
    parts = (text[at : at + _ARGUMENT_CHARS] for at in range(0, len(text), _ARGUMENT_CHARS))
    return (sys.executable, "-P", "-m", MODULE, *parts)
