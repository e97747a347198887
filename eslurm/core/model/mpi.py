"""Interfaces over which the tasks of a step are one MPI program, served by the step's command (ADR 43)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

NO_MPI: Final = ""
PMI: Final = "pmi"
"""The wire protocols PMI-1 and PMI-2: the task's first line says which."""
PMIX: Final = "pmix"
"""PMIx: a server of the node's own library, for the tasks of the node, started by the first of them."""
_ALL: Final = (NO_MPI, PMI, PMIX)


def mpi_problem(given: str) -> str:
    """The reason why a step cannot have this interface; empty: it can."""
    if given in _ALL:
        return ""
    return f"--mpi: {given[:64]!r} is no interface of this release: use {PMI}2, {PMIX} or none"
