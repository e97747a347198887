"""Interfaces over which the tasks of a step are one MPI program, served by the step's command (ADR 43)."""

from __future__ import annotations

from typing import Final

NO_MPI: Final = ""
PMI: Final = "pmi"
"""The wire protocols PMI-1 and PMI-2: the task's first line says which."""
_ALL: Final = (NO_MPI, PMI)


def mpi_problem(given: str) -> str:
    """The reason why a step cannot have this interface; empty: it can."""
    if given in _ALL:
        return ""
    return f"--mpi: {given[:64]!r} is no interface of this release: use {PMI}2 or none"
