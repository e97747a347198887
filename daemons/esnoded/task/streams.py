"""The descriptors that a task gets from its supervisor, a letter for each: `p` a pipe, `s` a socket (`wire.kinds_of`)."""

from __future__ import annotations

from eslurm.core.model.mpi import PMI, PMIX
from eslurm.core.model.step_claim import StepFiles
from eslurm.core.model.step_input import StepInput


def shapes_of(given: StepInput | None, mpi: str, files: StepFiles | None = None) -> tuple[str, ...]:
    """The ways in which a task of a step may have them: none where it writes to files; the others have a listener.

    Two pipes for output, and a third for input where the step's command passes its own on; or one socket, over which the
    task hands out its terminal. And a socket for the MPI library: behind them where the library itself speaks on it. Where
    a PMIx server does it stands before them, as what begins with a socket is started in a process of its own.
    """
    if files is not None:
        return ("",)
    before, behind = "s" * (mpi == PMIX), "s" * (mpi == PMI)
    shapes = ("pp",) if given is None or given.path else ("pp", "ppp" if given.terminal is None else "s")
    return tuple(before + shape + behind for shape in shapes)
