"""Open file descriptors and children of this process, read from /proc.

The functions only look; judging what is a leak is the business of `leaks`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Descriptor(NamedTuple):
    """An open file descriptor and what it leads to, such as `/tmp/x`, `socket:[123]` or `pipe:[45]`."""

    number: int
    target: str


class Child(NamedTuple):
    """A direct child that has not been waited for."""

    pid: int
    state: str
    """One letter as in ps(1): R, S, D, T, or Z for one that has ended."""
    command: str

    @property
    def ended(self) -> bool:
        """Check that the child has exited and only waits to be reaped."""
        return self.state == "Z"


def descriptors() -> frozenset[Descriptor]:
    """All open file descriptors of this process."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(Descriptor(int(name), os.readlink(f"/proc/self/fd/{name}")))
        except FileNotFoundError:
            # The descriptor that listed the directory, or one that another thread has just closed.
            continue
    return frozenset(found)


def children() -> frozenset[Child]:
    """All direct children of this process, whichever thread started them, those that ended included."""
    tasks = list(Path("/proc/self/task").iterdir())
    pids = _listed(tasks) if any((task / "children").exists() for task in tasks) else _scanned()
    found = set()
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # The name in parentheses may itself hold spaces and parentheses: the state follows the last one.
        name, _, rest = status.partition("(")[2].rpartition(")")
        text = command.replace(b"\0", b" ").decode(errors="replace").strip()
        found.add(Child(pid, rest.split()[0], text or f"[{name}]"))
    return frozenset(found)


def _listed(tasks: list[Path]) -> set[int]:
    """The children that the kernel lists per thread."""
    pids: set[int] = set()
    for task in tasks:
        try:
            pids.update(map(int, (task / "children").read_text().split()))
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has just ended; its children moved to another one
    return pids


def _scanned() -> set[int]:
    """Kernels built without the children files: every process that names this one as its parent."""
    own = str(os.getpid())
    pids: set[int] = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            status = Path(f"/proc/{name}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if status.rpartition(")")[2].split()[1] == own:
            pids.add(int(name))
    return pids
