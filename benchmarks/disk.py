"""The state directory of a throw-away cluster on a disk, and the cost of a durable write there."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figures import median

DIRECTORY_VARIABLE = "ESLURM_BENCH_DIR"
MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs", "rootfs", "proc", "sysfs"})
FSYNC_TRIES = 200
FSYNC_BYTES = 4096


class NoDisk(Exception):
    """There is no directory on a disk file system to put the state in."""


def file_system(path: Path) -> str:
    """The type of the file system that holds `path`, as the kernel calls it."""
    target = path.resolve()
    best, found = -1, ""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        mount = Path(left.split()[4])
        depth = len(mount.parts)
        # Of two mounts on one place the later one is seen.
        if depth >= best and target.is_relative_to(mount):
            best, found = depth, right.split()[0]
    return found


@contextmanager
def state_directory() -> Iterator[Path]:
    """A new directory on a disk, removed in the end. Raises `NoDisk`."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    places = [Path(named)] if named else [Path(tempfile.gettempdir()), Path("/var/tmp"), Path.cwd()]
    for place in places:
        if place.is_dir() and file_system(place) not in MEMORY_FILE_SYSTEMS:
            # Short: it has to leave room for the sockets in it.
            directory = Path(tempfile.mkdtemp(prefix="esbench-", dir=place))
            try:
                directory.chmod(0o711)
                yield directory
            finally:
                shutil.rmtree(directory, ignore_errors=True)
            return
    raise NoDisk(
        f"{' '.join(map(str, places))}: in memory, so nothing there is durable: set {DIRECTORY_VARIABLE}"
    )


def fsync_ms(directory: Path) -> float:
    """Milliseconds for a write of one page to be durable: the median of many."""
    took: list[float] = []
    with open(directory / "fsync", "wb", buffering=0) as file:
        for _ in range(FSYNC_TRIES):
            file.write(os.urandom(FSYNC_BYTES))
            began = time.perf_counter()
            os.fsync(file.fileno())
            took.append((time.perf_counter() - began) * 1000)
    return median(took)
