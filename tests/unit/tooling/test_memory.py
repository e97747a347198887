"""Settings of the C library's allocator by daemons: they are taken, and free what a burst left behind."""

from __future__ import annotations

import subprocess
import sys

BURST = """
import ctypes
from eslurm.telemetry.memory import give_back, keep_small

def resident_kib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

keep_small()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
blocks = [libc.malloc(20_000) for _ in range(4_000)]
for block in blocks:
    ctypes.memset(block, 1, 20_000)
top = libc.malloc(20_000)
for block in blocks:
    libc.free(block)
held = resident_kib()
give_back()
print(held - resident_kib())
"""


def test_a_burst_leaves_nothing_behind() -> None:
    """The block above all others keeps the heap from shrinking by itself."""
    done = subprocess.run([sys.executable, "-c", BURST], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 50_000
