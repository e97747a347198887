"""`eslurm`: chooses what to import by the first word. `eslurm health` runs every few seconds on every host."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code (see `escli.exits`)."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["health"]:
        from escli.health import run

        return run(words[1:])
    from eslurm.telemetry.modules import importing

    with importing():
        from escli.local.main import main as cluster_main

    return cluster_main(words)
