"""`--cell A,B` or `--cell any` of a request: the cells of the federation that may take the job."""

from __future__ import annotations

import re
from collections.abc import Sequence

from eslurm.compat.errors import quoted
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.transfer import ANY_CELL, CELLS_MAX

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def read_cells(given: Sequence[str], own: str) -> tuple[str, ...]:
    """The cells besides `own` that may take a job, each once; `own` empty: the cluster is no member. Raises `Refused`."""
    if not given:
        return ()
    if not own:
        raise Refused(
            RefusalCode.INVALID,
            "--cell: this cluster is no member of a federation, so no other cell can take the job: leave it out",
        )
    if len(given) > CELLS_MAX:
        raise Refused(
            RefusalCode.INVALID,
            f"--cell: {len(given)} cells are more than {CELLS_MAX}: use --cell {ANY_CELL}",
        )
    for name in given:
        if not _NAME.fullmatch(name):
            raise Refused(
                RefusalCode.INVALID,
                f"--cell: {quoted(name)} is no name of a cell: see esctl federation status",
            )
    if ANY_CELL in given:
        return (ANY_CELL,)
    return tuple([name for name in dict.fromkeys(given) if name != own])
