"""MPI programs for a live cluster, on Debian's libraries by ctypes: MPICH (PMI-1) and Slurm's client of PMI-2."""

from __future__ import annotations

import ctypes
from pathlib import Path

from tests.support.groups import lacks

PYTHON = "/usr/bin/python3"
"""Of the system: any user can start it."""

MPICH = """
import ctypes, os, signal, sys

WORLD, INT, BYTE, SUM = 0x44000000, 0x4C000405, 0x4C00010D, 0x58000003
mpi = ctypes.CDLL("libmpich.so.12")
STATUS_IGNORE = ctypes.c_void_p(1)
what = sys.argv[1]
assert mpi.MPI_Init(None, None) == 0
rank, size = ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(WORLD, ctypes.byref(rank))
mpi.MPI_Comm_size(WORLD, ctypes.byref(size))
me, many = rank.value, size.value
own, total = ctypes.c_int(me), ctypes.c_int()
barrier = lambda: mpi.MPI_Barrier(WORLD)

def send(to):
    mpi.MPI_Send(ctypes.byref(total), 1, INT, to % many, 0, WORLD)

def receive(of):
    mpi.MPI_Recv(ctypes.byref(total), 1, INT, of % many, 0, WORLD, STATUS_IGNORE)

if what == "hello":
    print(f"rank {me} of {many} on {os.environ['SLURMD_NODENAME']}", flush=True)
elif what == "sum":
    mpi.MPI_Allreduce(ctypes.byref(own), ctypes.byref(total), 1, INT, SUM, WORLD)
    print(f"rank {me}: {total.value}", flush=True)
elif what == "ring":
    if me == 0:
        send(1)
        receive(-1)
        print(f"passed by {total.value + 1}", flush=True)
    else:
        receive(me - 1)
        total.value += 1
        send(me + 1)
elif what == "abort":
    barrier()
    if me == 2:
        mpi.MPI_Abort(WORLD, 7)
    barrier()
elif what == "die":
    barrier()
    if me == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    barrier()
elif what == "leave":
    barrier()
    if me == 1:
        os._exit(0)
    barrier()
mpi.MPI_Finalize()
"""

PMI_2 = """
import ctypes, os, sys

pmi = ctypes.CDLL("libpmi2.so.0")
numbers = [ctypes.c_int() for _ in range(4)]
assert pmi.PMI2_Init(*map(ctypes.byref, numbers)) == 0
spawned, size, rank, _ = (number.value for number in numbers)
text, found = ctypes.create_string_buffer(1024), ctypes.c_int()
assert pmi.PMI2_Job_GetId(text, 1024) == 0
job = text.value

def attribute(call, name, *more):
    assert call(name, text, 1024, ctypes.byref(found), *more) == 0
    return text.value.decode() if found.value else None

def get(key):
    code = pmi.PMI2_KVS_Get(job, -1, key, text, 1024, ctypes.byref(found))
    return text.value.decode() if code == 0 else None

assert pmi.PMI2_KVS_Put(b"card-%d" % rank, b"a;b=%d c" % rank) == 0
assert pmi.PMI2_KVS_Fence() == 0
cards = [get(b"card-%d" % other) for other in range(size)]
assert cards == [f"a;b={other} c" for other in range(size)], cards
assert get(b"none") is None
assert pmi.PMI2_Nameserv_publish(b"name", None, b"port") != 0
if os.environ["SLURM_LOCALID"] == "0":
    assert pmi.PMI2_Info_PutNodeAttr(b"seg", os.environ["SLURMD_NODENAME"].encode()) == 0
print(
    rank, spawned, job.decode() == os.environ["PMI_JOBID"],
    attribute(pmi.PMI2_Info_GetJobAttr, b"PMI_process_mapping"),
    attribute(pmi.PMI2_Info_GetJobAttr, b"universeSize"),
    attribute(pmi.PMI2_Info_GetNodeAttr, b"seg", 1) == os.environ["SLURMD_NODENAME"],
    flush=True,
)
if sys.argv[1] == "abort" and rank == 1:
    pmi.PMI2_Abort(1, b"no more memory")
pmi.PMI2_KVS_Fence()
pmi.PMI2_Finalize()
"""


OPEN_MPI = """
import os
import signal
import sys
from mpi4py import MPI

world = MPI.COMM_WORLD
print(f"rank {world.rank} of {world.size}: {world.allreduce(world.rank)}", flush=True)
if world.rank == 1:
    if sys.argv[1] == "abort":
        world.Abort(7)
    elif sys.argv[1] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif sys.argv[1] == "leave":
        os._exit(0)
world.Barrier()
"""


def write_program(directory: Path, name: str, text: str, library: str) -> str:
    """Write a program for the library, and return its command; skips the test where the library is not installed."""
    try:
        ctypes.CDLL(library)
    except OSError:
        lacks(f"{library} ({name})")
    path = directory / f"{name}.py"
    path.write_text(text)
    path.chmod(0o644)
    return str(path)
