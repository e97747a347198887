"""Fails a test that leaves something behind: file descriptors, child processes, unfinished asyncio tasks.

Invariant: what a test leaves is charged to that test alone. Leaked children are ended and reaped after the
report; descriptors that stay open are part of the next test's starting point.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import pytest

from tests.support import process

LOOKS = 100
LOOK_EVERY_S = 0.02
"""The number of looks at threads and children on their way out, before they count as left behind. Looks, not
seconds: where the machine stands still they stand still, too."""

PR_SET_CHILD_SUBREAPER = 36


kept_children: set[int] = set()
"""Pids of children that outlive a test on purpose: a fixture of wider scope ends them (and takes them out again)."""


@pytest.fixture(scope="session", autouse=True)
def _loops_warmed_up() -> None:
    """Opens and closes one loop of each kind.

    libuv keeps one pipe per process for signals, made with its first loop: without this, the first test on
    uvloop would be blamed for it.
    """
    import uvloop

    for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        factory().close()


def _counted(change: Callable[[], None]) -> Callable[[], None]:
    def changed() -> None:
        global _changes
        _changes += 1
        change()

    return changed


_changes = 0
"""Count of freezes and unfreezes of objects: the collector tells only by counting all that are."""
gc.freeze, gc.unfreeze = _counted(gc.freeze), _counted(gc.unfreeze)


def pytest_collection_finish() -> None:
    """Keep out of the collector's sight what was there before the first test: each full collection would walk it."""
    _freeze()


def _freeze() -> None:
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _collector_as_it_was() -> Iterator[None]:
    """A daemon tunes the collector of its process, which is not a daemon's here: garbage of later tests has to go."""
    thresholds, changes = gc.get_threshold(), _changes
    yield
    gc.set_threshold(*thresholds)
    if _changes != changes:
        _freeze()


@pytest.fixture(autouse=True)
def _leaves_nothing_behind(_loops_warmed_up: None) -> Iterator[None]:
    """Compares what the process holds before and after each test."""
    descriptors, children = process.descriptors(), process.children()
    tasks = set(unfinished_tasks())
    yield
    left_tasks = [task for task in unfinished_tasks() if task not in tasks]
    left_descriptors = _new_descriptors(descriptors)
    left_children = _new_children(children)
    if left_descriptors or left_children:
        left_descriptors, left_children = _after_grace(descriptors, children)
    end(left_children)
    complaints = [
        *(f"asyncio task not finished: {task!r}" for task in left_tasks),
        *(f"file descriptor left open: {each.number} -> {each.target}" for each in left_descriptors),
        *(_describe(child) for child in left_children),
    ]
    if complaints:
        pytest.fail("the test left something behind:\n  " + "\n  ".join(complaints), pytrace=False)


@pytest.fixture
def adopt_orphans() -> Iterator[None]:
    """Makes this process the parent of every descendant whose own parent ends, for the test's duration.

    A step supervisor outlives its agent on purpose; with this fixture one that also outlives the test is
    found. The test must wait for such processes through a pidfd or `os.waitpid`: ended ones stay until they
    are reaped.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    yield
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def unfinished_tasks() -> list[asyncio.Task[object]]:
    """Tasks of any loop of this process, closed loops included, that are not done."""
    # `asyncio.all_tasks` wants a loop that lives; the registry behind it has another name from Python 3.12.
    name = "_all_tasks" if hasattr(asyncio.tasks, "_all_tasks") else "_scheduled_tasks"
    registry: Iterable[asyncio.Task[object]] = getattr(asyncio.tasks, name)
    return [task for task in list(registry) if not task.done()]


def end(children: Iterable[process.Child]) -> None:
    """Kills and reaps direct children."""
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child.pid, 0)


def _describe(child: process.Child) -> str:
    if child.ended:
        return f"child process ended but never waited for: {child.pid} {child.command}"
    return f"child process still running: {child.pid} {child.command}"


def _new_descriptors(before: frozenset[process.Descriptor]) -> list[process.Descriptor]:
    return sorted(each for each in process.descriptors() - before if not _belongs_to_process(each))


def _new_children(before: frozenset[process.Child]) -> list[process.Child]:
    known = {child.pid for child in before} | kept_children
    return sorted(child for child in process.children() if child.pid not in known)


def _after_grace(
    descriptors: frozenset[process.Descriptor], children: frozenset[process.Child]
) -> tuple[list[process.Descriptor], list[process.Child]]:
    # Objects in reference cycles close their descriptors when collected, and gRPC closes sockets on threads
    # of its own some time after its channel was closed: only what stays is a leak.
    gc.collect()
    for _ in range(LOOKS):
        left = _new_descriptors(descriptors), _new_children(children)
        running = [child for child in left[1] if not child.ended]
        # Nobody will reap a child that has ended by now: waiting longer would only hide how the test goes on.
        if not left[0] and not running:
            break
        time.sleep(LOOK_EVERY_S)
    return left


def _belongs_to_process(descriptor: process.Descriptor) -> bool:
    """Descriptors that a library opens once and keeps until the process ends, and the three that are always there."""
    # pytest puts others in the place of those while a test runs, and takes them away before it ends an interrupted one.
    if descriptor.number <= 2:
        return True
    # gRPC's polling threads start with its first channel or server and keep their epoll and event
    # descriptors. A leaked event loop is found all the same, by its pair of sockets.
    grpc_started = "grpc" in sys.modules
    return grpc_started and descriptor.target in ("anon_inode:[eventpoll]", "anon_inode:[eventfd]")
