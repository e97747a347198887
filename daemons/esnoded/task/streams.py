"""The descriptors that a task gets from its supervisor, a letter for each: `p` a pipe, `s` a socket (`wire.kinds_of`)."""

from __future__ import annotations

from eslurm.core.model.step_input import StepInput


def shapes_of(given: StepInput | None, mpi: str) -> tuple[str, ...]:
    """The ways in which a task of a step with a listener may have them.

    Two pipes for output, and a third for input where the step's command passes its own on; or one socket, over which the
    task hands out its terminal. Behind them a socket for the library of a step with MPI.
    """
    behind = "s" if mpi else ""
    if given is None or given.path:
        return ("pp" + behind,)
    return "pp" + behind, ("ppp" if given.terminal is None else "s") + behind
