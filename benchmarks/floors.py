"""The machine's limits: bare group commits, bare processes. Each runs in a process of its own.

Invariant: a floor uses nothing of the product, so whatever the product adds is seen as a distance to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import uvloop

from benchmarks import jobs
from benchmarks.processes import module

WAITERS = 8
SPAWNED_AT_ONCE = 8
CHECKPOINT_PAGES = 4096


class Floor(msgspec.Struct, frozen=True):
    """A number of operations and their seconds."""

    done: int
    took_s: float

    @property
    def rate(self) -> float:
        """Per second."""
        return self.done / self.took_s


def commits(directory: Path, rows: int) -> Floor:
    """`rows` durable rows of one job's size, from 8 waiters that each wait for their row before the next."""
    return _run("commits", directory, rows)


def spawns(directory: Path, scripts: int) -> Floor:
    """`scripts` bare runs of the benchmark's job scripts, 8 at a time, each with the environment of its job."""
    return _run("spawns", directory, scripts)


def _run(kind: str, directory: Path, count: int) -> Floor:
    command = module("benchmarks.floors", kind, str(directory), str(count))
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=Floor)


# ---- in the process of its own ----


async def _commits(directory: Path, rows: int) -> Floor:
    with tempfile.TemporaryDirectory(dir=directory) as place:
        database = sqlite3.connect(Path(place) / "floor.db", isolation_level=None, check_same_thread=False)
        with contextlib.closing(database), ThreadPoolExecutor(1) as writer:
            for pragma in ("journal_mode=WAL", "synchronous=FULL", f"wal_autocheckpoint={CHECKPOINT_PAGES}"):
                database.execute(f"PRAGMA {pragma}").close()
            database.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, data BLOB)")
            return await _GroupCommit(database, writer).run(rows)


class _GroupCommit:
    """All that waits when a commit ends shares the next one."""

    def __init__(self, database: sqlite3.Connection, writer: ThreadPoolExecutor) -> None:
        self._database = database
        self._writer = writer
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()

    async def run(self, rows: int) -> Floor:
        each = rows // WAITERS
        payloads = [jobs.script(number) + jobs.environment(number) for number in range(WAITERS)]
        committing = asyncio.create_task(self._commit_groups())
        began = time.perf_counter()
        await asyncio.gather(*(self._wait_for_rows(payload, each) for payload in payloads))
        took_s = time.perf_counter() - began
        committing.cancel()
        return Floor(each * WAITERS, took_s)

    async def _wait_for_rows(self, payload: bytes, count: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(count):
            durable: asyncio.Future[None] = loop.create_future()
            self._waiting.append((payload, durable))
            self._wake.set()
            await durable

    async def _commit_groups(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            group, self._waiting = self._waiting, []
            if group:
                await loop.run_in_executor(self._writer, self._write, [(payload,) for payload, _ in group])
                for _, durable in group:
                    durable.set_result(None)

    def _write(self, rows: list[tuple[bytes]]) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany("INSERT INTO jobs (data) VALUES (?)", rows)
        self._database.execute("COMMIT")


def _spawns(directory: Path, count: int) -> Floor:
    with tempfile.TemporaryDirectory(dir=directory) as place:
        scripts: list[str] = []
        for number in range(jobs.SCRIPTS):
            file = Path(place) / f"script{number}"
            file.write_bytes(jobs.script(number))
            file.chmod(0o700)
            scripts.append(str(file))
        environments = [
            dict(entry.split(b"=", 1) for entry in jobs.environment(number).split(b"\0") if entry)
            for number in range(jobs.SCRIPTS)
        ]
        null = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in range(3)]
        began = time.perf_counter()
        for number in range(count):
            if number >= SPAWNED_AT_ONCE:
                os.wait()
            path = scripts[number % jobs.SCRIPTS]
            os.posix_spawn(path, [path], environments[number % jobs.SCRIPTS], file_actions=actions)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        return Floor(count, time.perf_counter() - began)


def main() -> None:
    """One floor, as told on the command line."""
    kind, directory, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if kind == "spawns":
        floor = _spawns(directory, count)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            floor = runner.run(_commits(directory, count))
    sys.stdout.write(msgspec.json.encode(floor).decode() + "\n")


if __name__ == "__main__":
    main()
