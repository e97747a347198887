"""MPI programs that `esrun` starts itself: Debian's MPICH over PMI-1, and Slurm's client library over PMI-2."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.kits.commands import Ran
from tests.kits.mpi import MPICH, PMI_2, PYTHON, write_program

NODES = ["cn0001", "cn0002", "cn0003", "cn0004"]


@pytest.fixture(scope="module")
def big() -> Iterator[LiveCluster]:
    """Four nodes, each with room for sixteen ranks."""
    with running(nodes=4, cores=16, policy={"heartbeats_missed_max": 100}) as cluster:
        yield cluster


class Mpi:
    """Runs a program under `esrun --mpi=pmi2`."""

    def __init__(self, cluster: LiveCluster, program: str) -> None:
        self._cluster = cluster
        self._program = program

    def __call__(self, words: str, what: str) -> Ran:
        ran = self._cluster.run_as_user("esrun", *words.split(), "--mpi=pmi2", PYTHON, self._program, what)
        self._cluster.wait_idle()
        return ran


@pytest.fixture
def mpich(big: LiveCluster) -> Mpi:
    return Mpi(big, write_program(big.work, "mpich", MPICH, "libmpich.so.12"))


@pytest.fixture
def pmi2(big: LiveCluster) -> Mpi:
    return Mpi(big, write_program(big.work, "pmi2", PMI_2, "libpmi2.so.0"))


def test_ranks_of_mpich_are_one_program(mpich: Mpi) -> None:
    """Seven ranks on three nodes: three on the first, and two on each of the others."""
    ran = mpich("-N 3 -n 7", "hello")
    on = [NODES[node] for node in (0, 0, 0, 1, 1, 2, 2)]
    assert sorted(ran.out.splitlines()) == [f"rank {rank} of 7 on {node}" for rank, node in enumerate(on)]
    assert ran.code == 0

    ran = mpich("-N 2 -n 5", "sum")
    assert sorted(ran.out.splitlines()) == [f"rank {rank}: 10" for rank in range(5)]


def test_a_ring_of_64_ranks(mpich: Mpi) -> None:
    ran = mpich("-N 4 -n 64", "ring")
    assert (ran.code, ran.out) == (0, "passed by 64\n"), ran.err


def test_abort_ends_all_ranks_with_its_code(mpich: Mpi) -> None:
    ran = mpich("-N 2 -n 4", "abort")
    assert ran.code == 7
    assert "MPI rank 2 has called abort (7)\n" in ran.err


@pytest.mark.parametrize(("what", "code"), [("die", 137), ("leave", 1)])
def test_a_rank_that_is_gone_ends_all_others(mpich: Mpi, what: str, code: int) -> None:
    ran = mpich("-N 2 -n 4", what)
    assert ran.code == code
    assert "MPI rank 1 has ended without MPI_Finalize\n" in ran.err


def test_without_the_option_each_task_is_a_program_of_its_own(big: LiveCluster) -> None:
    program = write_program(big.work, "mpich", MPICH, "libmpich.so.12")
    # What an outer program left in the environment means nothing here.
    ran = big.run_as_user(
        "esrun", "-n", "2", PYTHON, program, "hello", PMI_FD="7", PMI_RANK="3", PMI_SIZE="9"
    )
    assert sorted(ran.out.splitlines()) == ["rank 0 of 1 on cn0001"] * 2
    big.wait_idle()


def test_slurms_client_of_pmi_2(pmi2: Mpi) -> None:
    ran = pmi2("-N 3 -n 7", "talk")
    said = "0 True (vector,(0,1,3),(1,2,2)) 7 True"
    assert sorted(ran.out.splitlines()) == [f"{rank} {said}" for rank in range(7)], ran.err
    assert (ran.code, ran.err) == (0, "")

    ran = pmi2("-n 3", "abort")
    assert ran.code == 1
    assert "MPI rank 1 has called abort (1): no more memory\n" in ran.err
