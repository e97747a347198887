"""A loop over the ranks of a real MPI program: Debian's Open MPI and mpi4py, in the system's Python."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from eslurm.loops.techniques import TECHNIQUES
from tests.support.groups import lacks

ROOT = Path(__file__).parents[2]
PYTHON = "/usr/bin/python3"
COUNT = 500
OPTIONS = {"FAC": {"mu": 0.001, "sigma": 0.0005}, "FSC": {"sigma": 0.0005, "h": 0.001}}
PROGRAM = """
import json, os, sys
from eslurm.loops import mpi
from mpi4py.MPI import COMM_WORLD

RANK = COMM_WORLD.Get_rank()

def square(index, name, fate):
    with open(f"{name}-{RANK}", "a") as log:
        print(index, file=log)
    if index == 77 and fate == "raises":
        raise RuntimeError("a bad index")
    if index == 77 and fate == "raises once" and not os.path.exists("raised"):
        open("raised", "w").close()
        raise RuntimeError("a bad index")
    if index == 77 and fate == "dies":
        os.kill(os.getpid(), 9)
    return RANK, index * index

for technique, fate, options in json.loads(sys.argv[1]):
    found = mpi.run(square, 500, technique=technique, arguments=(technique, fate), **options)
    if found is not None:
        assert [value for _, value in found.results] == [index * index for index in range(500)]
        print(json.dumps(sorted({rank for rank, _ in found.results})))
"""


@pytest.fixture
def mpirun() -> str:
    found = shutil.which("mpirun")
    known = subprocess.run([PYTHON, "-c", "import mpi4py"], capture_output=True, check=False)
    if found is None or known.returncode:
        lacks("Open MPI and mpi4py")
    return found


class Loops:
    """Programs of four ranks."""

    def __init__(self, mpirun: str, directory: Path) -> None:
        self._mpirun = mpirun
        self._directory = directory
        (directory / "loop.py").write_text(PROGRAM)

    def run(
        self, *loops: tuple[str, str, dict[str, float]], ranks: int = 4
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._mpirun, "-n", str(ranks), "--oversubscribe", PYTHON, "loop.py", json.dumps(loops)],
            cwd=self._directory,
            # Open MPI's directory of a session holds sockets, whose paths may not be long.
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": str(ROOT),
                "HOME": str(self._directory),
                "TMPDIR": "/tmp",
                "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMPI_MCA_btl": "self,vader",
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def computed(self, name: str) -> Counter[int]:
        """How often each index was computed."""
        logs = self._directory.glob(f"{name}-?")
        return Counter(int(line) for log in logs for line in log.read_text().split())


@pytest.fixture
def loops(mpirun: str, tmp_path: Path) -> Loops:
    return Loops(mpirun, tmp_path)


def test_each_index_is_computed_once_by_each_technique(loops: Loops) -> None:
    found = loops.run(*[(name, "lives", OPTIONS.get(name, {})) for name in TECHNIQUES])
    assert found.returncode == 0, found.stderr
    workers = [json.loads(line) for line in found.stdout.splitlines()]
    assert len(workers) == len(TECHNIQUES)
    # Rank 0 coordinates.
    assert set().union(*workers) == {1, 2, 3}
    for name in TECHNIQUES:
        assert loops.computed(name) == Counter(range(COUNT)), name


def test_one_rank_computes_all_by_itself(loops: Loops) -> None:
    found = loops.run(("GSS", "lives", {}), ranks=1)
    assert (found.returncode, found.stdout) == (0, "[0]\n"), found.stderr
    assert loops.computed("GSS") == Counter(range(COUNT))


def test_a_chunk_that_raises_is_done_again(loops: Loops) -> None:
    found = loops.run(("FAC2", "raises once", {}))
    assert found.returncode == 0, found.stderr
    counts = loops.computed("FAC2")
    assert counts.keys() == set(range(COUNT))
    assert counts[77] == 2


def test_a_chunk_that_always_raises_ends_the_program_with_its_text(loops: Loops) -> None:
    found = loops.run(("FAC2", "raises", {}))
    assert found.returncode != 0
    assert "ChunkFailed" in found.stderr and "a bad index" in found.stderr
    assert loops.computed("FAC2")[77] == 3


def test_refused_options_end_all_ranks(loops: Loops) -> None:
    found = loops.run(("FAC", "lives", {}))
    assert found.returncode != 0
    assert "TechniqueError" in found.stderr
    assert not loops.computed("FAC")


def test_a_rank_that_dies_takes_the_program_with_it(loops: Loops) -> None:
    found = loops.run(("FAC2", "dies", {}))
    assert found.returncode != 0
    assert "signal 9" in found.stderr, found.stderr
