"""Commands as their users type them, within the process of the tests, or in one without root's rights.

Invariant: what a command changes of this process (environment, output) is as before when it has ended.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from escli.commands import MODULES

BIN = Path(sys.executable).parent
NOBODY = 65534


class Ran(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


def preload() -> None:
    """Import what commands import only when they need it: a child without root's rights may not be able to."""
    for command in ("essubmit", "esrun", "eswait", "esalloc", "escancel", "esqueue", "esctl"):
        importlib.import_module(MODULES[command])
    for module in (
        *(
            "encodings.idna",
            "escli.api",
            "escli.user.waiting",
            "escli.user.joint_step",
            "eslurm.api.unix_client",
        ),
        *("escli.user.step_run", "escli.user.allocated_step", "escli.user.allocation"),
        "escli.user.async_step",
        *("eslurm.compat.arrays", "eslurm.compat.moments", "eslurm.compat.states", "eslurm.ports.api"),
    ):
        importlib.import_module(module)


def main_of(command: str) -> Callable[[Sequence[str]], int]:
    """A command's entry point."""
    main: Callable[[Sequence[str]], int] = importlib.import_module(MODULES[command]).main
    return main


def become_user(directory: Path, out: BinaryIO, err: BinaryIO) -> None:
    """Go on without root's rights, in this directory, with these files for output."""
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "wb", closefd=False), write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "wb", closefd=False), write_through=True)
    os.chdir(directory)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """More variables for a while."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def path_with_commands() -> Iterator[None]:
    """PATH with the commands of this installation in it, for jobs that use them."""
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = f"{BIN}{os.pathsep}{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before
