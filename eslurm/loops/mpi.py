"""Self-scheduling over the ranks of an MPI program: rank 0 coordinates, all others compute.

mpi4py is imported when no communicator is given, and not before. A rank that dies takes the program with it, as MPI has
it; chunks whose function raises are done again on another rank.
"""

from __future__ import annotations

import importlib
import time
import traceback
from typing import Any, Protocol

from eslurm.loops.coordinator import Coordinator
from eslurm.loops.executor import ChunkFailed, Run
from eslurm.loops.task import Function, Task, indices_of, named
from eslurm.loops.technique import checked_count
from eslurm.loops.techniques import technique_of

__all__ = ["Communicator", "run"]


class Communicator(Protocol):
    """The methods of mpi4py's `Comm` that are used. `recv` without a source takes from any rank."""

    def Get_rank(self) -> int: ...

    def Get_size(self) -> int: ...

    def send(self, obj: Any, dest: int) -> None: ...

    def recv(self) -> Any: ...


def run(
    function: Function | str,
    items: int | range,
    *,
    technique: str = "FAC2",
    arguments: tuple[Any, ...] = (),
    whole_chunks: bool = False,
    retries: int = 2,
    comm: Communicator | None = None,
    **options: Any,
) -> Run | None:
    """Run the loop on all ranks, which all make this call with the same values. Results on rank 0, None on the others.

    A single rank computes everything itself. Raises ChunkFailed on rank 0 after all ranks have been told to end.
    """
    if comm is None:
        comm = importlib.import_module("mpi4py.MPI").COMM_WORLD
    assert comm is not None
    indices = indices_of(items)
    work = Task(named(function) if isinstance(function, str) else function, arguments, indices, whole_chunks)
    rank, size = comm.Get_rank(), comm.Get_size()
    # On all ranks: values that it refuses end them all, and none waits for a rank that has raised.
    machine = Coordinator(
        technique_of(technique, len(indices), max(size - 1, 1), **options),
        retries=checked_count("retries", retries, 0, 100),
    )
    if rank:
        _compute(comm, rank, work)
        return None
    return _alone(machine, work) if size == 1 else _coordinate(comm, size, machine, work)


def _compute(comm: Communicator, rank: int, work: Task) -> None:
    while (grant := comm.recv()) is not None:
        number, start, stop = grant
        comm.send((rank, number, *_outcome(work, start, stop)), 0)


def _outcome(work: Task, start: int, stop: int) -> tuple[Any, float, str]:
    """Values, seconds, and the error's text when there are no values."""
    try:
        values, seconds = work.compute(start, stop)
    except Exception:
        return None, 0.0, traceback.format_exc()
    return values, seconds, ""


def _coordinate(comm: Communicator, size: int, machine: Coordinator, work: Task) -> Run:
    began = time.monotonic()
    results: list[Any] = [None] * len(work.indices)
    for rank in range(1, size):
        machine.joined(rank, f"rank {rank}")
    held = _hand_out(comm, machine, began)
    while held:
        rank, number, values, seconds, error = comm.recv()
        held -= 1
        _take(machine, results, rank, number, values, seconds, error, time.monotonic() - began)
        held += _hand_out(comm, machine, began)
    for rank in range(1, size):
        comm.send(None, rank)
    return _ended(machine, results)


def _hand_out(comm: Communicator, machine: Coordinator, began: float) -> int:
    grants = machine.grants(time.monotonic() - began)
    for grant in grants:
        comm.send((grant.number, grant.start, grant.stop), grant.worker)
    return len(grants)


def _alone(machine: Coordinator, work: Task) -> Run:
    began = time.monotonic()
    results: list[Any] = [None] * len(work.indices)
    machine.joined(1, "rank 0")
    while grants := machine.grants(time.monotonic() - began):
        for grant in grants:
            values, seconds, error = _outcome(work, grant.start, grant.stop)
            now = time.monotonic() - began
            _take(machine, results, 1, grant.number, values, seconds, error, now)
    return _ended(machine, results)


def _take(
    machine: Coordinator,
    results: list[Any],
    rank: int,
    number: int,
    values: Any,
    seconds: float,
    error: str,
    now: float,
) -> None:
    if error:
        machine.failed(rank, number, error, now)
        return
    positions = machine.finished(rank, number, seconds, now)
    if positions is not None:
        results[positions.start : positions.stop] = values


def _ended(machine: Coordinator, results: list[Any]) -> Run:
    if (given_up := machine.given_up) is not None:
        raise ChunkFailed(
            f"the chunk of iterations {given_up.start} to {given_up.stop - 1} failed {given_up.attempts} times, at last "
            f"with:\n{given_up.text}",
            machine.record,
        )
    return Run(results, machine.record)
