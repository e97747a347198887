"""From the kernel's word (uid, gid) to a principal with name and groups.

Invariant: the event loop never waits for the name service, which may be a directory server; what it said is
remembered for a while, and the cache is bounded.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from eslurm.core.job.model import Principal

Lookup = Callable[[int, int], Principal]


def look_up(uid: int, gid: int) -> Principal:
    """Ask the name service; it may take its time. An unknown uid gets its number for a name."""
    try:
        entry = pwd.getpwuid(uid)
        groups = set(os.getgrouplist(entry.pw_name, entry.pw_gid))
    except (KeyError, OSError):
        return Principal(str(uid), uid, gid, (gid,))
    return Principal(entry.pw_name, uid, gid, tuple(sorted(groups | {gid})))


class Principals:
    """A cache of `look_up`. `ttl_s` bounds how long a removed group membership still counts."""

    def __init__(self, ttl_s: float = 300.0, entries_max: int = 8192, lookup: Lookup = look_up) -> None:
        self._ttl_s = ttl_s
        self._entries_max = entries_max
        self._lookup = lookup
        self._known: dict[tuple[int, int], tuple[float, Principal]] = {}
        self._asking: dict[tuple[int, int], asyncio.Future[Principal]] = {}
        # Of its own: a slow directory must not hold up other users of the default pool.
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="principals")

    def cached(self, uid: int, gid: int) -> Principal | None:
        """The principal if it was asked for recently."""
        entry = self._known.get((uid, gid))
        if entry is None or asyncio.get_running_loop().time() >= entry[0]:
            return None
        return entry[1]

    async def resolve(self, uid: int, gid: int) -> Principal:
        """The principal, from the cache or the name service; concurrent callers share one question."""
        principal = self.cached(uid, gid)
        if principal is not None:
            return principal
        loop = asyncio.get_running_loop()
        key = (uid, gid)
        asked = self._asking.get(key)
        if asked is None:
            asked = loop.run_in_executor(self._pool, self._lookup, uid, gid)
            self._asking[key] = asked
            asked.add_done_callback(lambda done: self._learn(key, done, loop.time()))
        return await asyncio.shield(asked)

    def _learn(self, key: tuple[int, int], asked: asyncio.Future[Principal], now_s: float) -> None:
        """Who is no longer asked for is known from this moment on, or nobody could say."""
        self._asking.pop(key, None)
        if asked.cancelled() or asked.exception() is not None:
            return
        if len(self._known) >= self._entries_max:
            del self._known[next(iter(self._known))]
        self._known[key] = (now_s + self._ttl_s, asked.result())

    def close(self) -> None:
        """Let the threads go."""
        self._pool.shutdown(wait=False, cancel_futures=True)
