"""Batch scripts as files that can be executed: one per user and content, shared by all attempts that run it.

Making and removing a directory per attempt costs ten times what the rest of a short job costs the agent. Invariant: a
file that a held attempt runs stays where it is and as it is; of the others the most recently used are kept.
"""

from __future__ import annotations

import os
import shutil
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from eslurm.core.agent.records import NodeAttempt

IDLE_MAX = 256

_Key: TypeAlias = tuple[int, bytes]


class Scripts:
    """The files below one directory; nobody else writes there. Others may pass through it, and list nothing."""

    def __init__(self, directory: Path, idle_max: int = IDLE_MAX) -> None:
        self._directory = str(directory)
        self._idle_max = idle_max
        self._euid = os.geteuid()
        self._holders: dict[_Key, set[NodeAttempt]] = {}
        self._held: dict[NodeAttempt, _Key] = {}
        self._idle: OrderedDict[_Key, None] = OrderedDict()
        directory.mkdir(mode=0o711, exist_ok=True)

    def hold(self, attempt: NodeAttempt, uid: int, gid: int, digest: bytes, script: bytes) -> str:
        """The path of the script, written if need be, for as long as the attempt holds it. Raises OSError."""
        key = (uid, digest)
        if key not in self._holders and key not in self._idle:
            self._write(key, gid, script)
        self._take(attempt, key)
        return self._path(key)

    def release(self, attempt: NodeAttempt) -> None:
        """The attempt is over."""
        key = self._held.pop(attempt, None)
        if key is None:
            return
        holders = self._holders[key]
        holders.discard(attempt)
        if holders:
            return
        del self._holders[key]
        self._idle[key] = None
        while len(self._idle) > self._idle_max:
            oldest, _ = self._idle.popitem(last=False)
            os.unlink(self._path(oldest))

    def adopt(self, held: Iterable[tuple[NodeAttempt, int, bytes]]) -> None:
        """At a start: keep the files of these attempts (with uid and script hash) and remove all others."""
        for attempt, uid, digest in held:
            if os.path.exists(self._path((uid, digest))):
                self._take(attempt, (uid, digest))
        wanted = {self._path(key) for key in self._holders}
        for owner in os.scandir(self._directory):
            left = [entry.path for entry in os.scandir(owner.path) if entry.path not in wanted]
            for path in left:
                os.unlink(path)
            if not any(path.startswith(f"{owner.path}/") for path in wanted):
                shutil.rmtree(owner.path)

    def _take(self, attempt: NodeAttempt, key: _Key) -> None:
        self._idle.pop(key, None)
        self._holders.setdefault(key, set()).add(attempt)
        self._held[attempt] = key

    def _path(self, key: _Key) -> str:
        uid, digest = key
        return f"{self._directory}/{uid}/{digest.hex()}"

    def _write(self, key: _Key, gid: int, script: bytes) -> None:
        path = self._path(key)
        try:
            fd = self._create(f"{path}.new")
        except FileNotFoundError:
            self._make_home(key[0], gid)
            fd = self._create(f"{path}.new")
        with os.fdopen(fd, "wb") as file:
            if key[0] != self._euid:
                os.fchown(fd, key[0], gid)
            file.write(script)
        os.rename(f"{path}.new", path)

    def _create(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o500)

    def _make_home(self, uid: int, gid: int) -> None:
        home = f"{self._directory}/{uid}"
        os.mkdir(home, 0o700)
        if uid != self._euid:
            os.chown(home, uid, gid)
