"""MPI programs by `esrun`: Debian's MPICH over PMI-1, Slurm's client over PMI-2, Open MPI over PMIx; and their launchers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import running
from tests.integration.test_allocations import ran
from tests.kits.cluster import LiveCluster
from tests.kits.commands import BIN, Ran
from tests.kits.daemons import ROOT, path_of
from tests.kits.mpi import MPICH, OPEN_MPI, PMI_2, PYTHON, write_program
from tests.support.groups import lacks

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


# --- PMIx: servers of Debian's libpmix, and Open MPI -------------------------------------------------------

OPEN_MPI_HERE = {
    # Nodes of a test are all on this host, which Open MPI does not expect, and it may be root's.
    "OMPI_MCA_btl": "tcp,self",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


class OpenMpi:
    """A program of Open MPI under `esrun --mpi=pmix`: as this user, for others may not start this interpreter."""

    def __init__(self, cluster: LiveCluster, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        if subprocess.run([PYTHON, "-c", "import mpi4py"], capture_output=True, check=False).returncode:
            lacks("Open MPI and mpi4py")
        self._program = write_program(cluster.work, "open", OPEN_MPI, "libpmix.so.2")

    def __call__(self, words: str, what: str) -> tuple[int, list[str], list[str]]:
        argv = [*words.split(), "--mpi=pmix", PYTHON, self._program, what]
        environ = {"TMPDIR": str(self._directory), **OPEN_MPI_HERE}
        found = ran(self._cluster, *argv, command="esrun", **environ)
        self._cluster.wait_idle()
        return found

    def servers_are_gone(self) -> bool:
        return not list(self._directory.glob("eslurm-pmix-*"))


@pytest.fixture
def open_mpi(big: LiveCluster, state_dir: Path) -> OpenMpi:
    return OpenMpi(big, state_dir)


def test_ranks_of_open_mpi_are_one_program(open_mpi: OpenMpi) -> None:
    """Seven ranks on three nodes, and two on one."""
    code, out, err = open_mpi("-N 3 -n 7", "sum")
    assert (code, sorted(out)) == (0, [f"rank {rank} of 7: 21" for rank in range(7)]), err
    # Their directories go before the ranks do.
    assert open_mpi.servers_are_gone()
    code, out, err = open_mpi("-N 1 -n 2", "sum")
    assert (code, sorted(out)) == (0, [f"rank {rank} of 2: 1" for rank in range(2)]), err
    assert open_mpi.servers_are_gone()


def test_abort_of_open_mpi_ends_all_ranks_with_its_code(big: LiveCluster, open_mpi: OpenMpi) -> None:
    code, _, err = open_mpi("-N 2 -n 4", "abort")
    assert code == 7
    assert any("MPI rank 1 has called abort (7)" in line for line in err)
    big.until(lambda: open_mpi.servers_are_gone() or None, "the servers remove their directories")


@pytest.mark.parametrize(("what", "code"), [("die", 137), ("leave", 1)])
def test_a_rank_of_open_mpi_that_is_gone_ends_all_others(open_mpi: OpenMpi, what: str, code: int) -> None:
    ended, _, err = open_mpi("-N 2 -n 4", what)
    assert ended == code
    assert any("MPI rank 1 has ended without MPI_Finalize" in line for line in err)


# --- MPI's own launchers, which start a daemon on each node of the job by srun -----------------------------


class Launcher:
    """`mpirun` or `mpiexec` within an allocation, or within a batch job."""

    def __init__(self, cluster: LiveCluster, launcher: str, program: str) -> None:
        self._cluster = cluster
        self._launcher = launcher
        self._program = program
        bin_dir = cluster.work / "bin"
        bin_dir.mkdir()
        srun = bin_dir / "srun"
        call = "import sys; from escli.slurm.launch import main; sys.exit(main('srun', sys.argv[1:]))"
        # Root's commands do not pass through nodes, so it has the controller's socket.
        called = f"ESLURM_SOCKET='{cluster.socket}' PYTHONPATH='{path_of(ROOT)}' exec {BIN}/python -P -c"
        srun.write_text(f'#!/bin/sh\n{called} "{call}" "$@"\n')
        srun.chmod(0o755)
        self._environ = {
            "PATH": f"{bin_dir}:{os.environ['PATH']}",
            **OPEN_MPI_HERE,
        }

    def inside(self, what: str, *words: str) -> tuple[int, list[str], list[str]]:
        """In an allocation of five tasks on two nodes."""
        argv = [self._launcher, *words, PYTHON, self._program, what]
        found = ran(self._cluster, "-N2", "-n5", *argv, **self._environ)
        self._cluster.wait_idle()
        return found

    def in_batch(self, what: str) -> tuple[int, list[str]]:
        """In a script of a job of seven tasks on three nodes."""
        argv = " ".join([self._launcher, PYTHON, self._program, what])
        code, _, _ = ran(
            self._cluster,
            *("-W", "-N3", "-n7", "-o", "out", "--wrap", argv),
            command="essubmit",
            **self._environ,
        )
        return code, self._cluster.lines("out")


@pytest.fixture(params=["mpiexec.hydra", "mpirun.openmpi"])
def launcher(request: pytest.FixtureRequest, big: LiveCluster) -> Launcher:
    big.empty_work()
    if shutil.which(request.param) is None:
        lacks(request.param)
    if request.param == "mpiexec.hydra":
        return Launcher(big, request.param, write_program(big.work, "mpich", MPICH, "libmpich.so.12"))
    if subprocess.run([PYTHON, "-c", "import mpi4py"], capture_output=True, check=False).returncode:
        lacks("Open MPI and mpi4py")
    return Launcher(big, request.param, write_program(big.work, "open", OPEN_MPI, "libmpi.so.40"))


def said(lines: list[str], text: str) -> int:
    """How often ranks have said it: launchers may show two of them in one line."""
    return "".join(lines).count(text)


def test_a_launcher_starts_its_daemons_on_the_nodes_of_the_job(launcher: Launcher) -> None:
    code, out, err = launcher.inside("sum")
    assert (code, said(out, ": 10")) == (0, 5), err

    code, out = launcher.in_batch("sum")
    assert (code, said(out, ": 21")) == (0, 7), out


def test_a_launcher_names_some_of_the_nodes(launcher: Launcher) -> None:
    """It calls srun with --nodelist."""
    code, out, err = launcher.inside("sum", "-host", "cn0002:2", "-n", "2")
    assert (code, said(out, ": 1")) == (0, 2), err


def test_abort_ends_the_launcher_and_its_daemons(launcher: Launcher) -> None:
    code, _, _ = launcher.inside("abort")
    assert code == 7
