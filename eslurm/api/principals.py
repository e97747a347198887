"""From a uid and a gid to a principal with name and groups.

The kernel vouches for both numbers of a local caller. A relay vouches for the uid alone: the groups, and so the gid, come
from this host's name service. Invariant: the event loop never waits for the name service, which may be a directory server;
its answers are cached for a while, and the cache is bounded.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from eslurm.core.model.job import Principal
from eslurm.ports.api import ApiError, Status

Lookup = Callable[[int, int], Principal]

PRIMARY = -1
"""In place of a gid: the one that the name service says."""
TTL_S = 300.0
"""A removed group membership still counts for so long."""
ENTRIES_MAX = 8_192


def look_up(uid: int, gid: int) -> Principal:
    """Ask the name service; it may take its time. An unknown uid gets its number for a name.

    With `PRIMARY` for the gid, the gid is the user's primary one, and stays `PRIMARY` for an unknown uid.
    """
    try:
        entry = pwd.getpwuid(uid)
        groups = set(os.getgrouplist(entry.pw_name, entry.pw_gid))
    except (KeyError, OSError):
        return Principal(str(uid), uid, gid, () if gid == PRIMARY else (gid,))
    if gid == PRIMARY:
        gid = entry.pw_gid
    return Principal(entry.pw_name, uid, gid, tuple(sorted(groups | {gid})))


def look_up_name(name: str) -> Principal | None:
    """The user of this name; None when the name service knows none. It may take its time."""
    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError, OSError):
        return None
    return look_up(entry.pw_uid, PRIMARY)


class Principals:
    """A cache of `look_up`."""

    def __init__(self, lookup: Lookup = look_up) -> None:
        self._lookup = lookup
        self._known: dict[tuple[int, int], tuple[float, Principal]] = {}
        self._named: dict[str, tuple[float, Principal | None]] = {}
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
        """The principal, from the cache or the name service; concurrent callers share one query."""
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

    async def resolve_relayed(self, uid: int, gid: int) -> Principal:
        """The principal for numbers that a relay gives: the gid counts only if the user is a member of that group, else
        the primary group takes its place. Raises `ApiError` for a uid that this host does not know.
        """
        principal = await self.resolve(uid, PRIMARY)
        if principal.gid == PRIMARY:
            raise ApiError(
                Status.PERMISSION_DENIED,
                f"uid {uid} is unknown on the controller's host, so its groups cannot be checked: "
                "let the name service there know the user",
            )
        return replace(principal, gid=gid) if gid in principal.groups else principal

    async def find_named(self, name: str) -> Principal | None:
        """The user of this name, from the cache or the name service; None when there is none."""
        loop = asyncio.get_running_loop()
        known = self._named.get(name)
        if known is not None and loop.time() < known[0]:
            return known[1]
        found = await loop.run_in_executor(self._pool, look_up_name, name)
        if len(self._named) >= ENTRIES_MAX:
            del self._named[next(iter(self._named))]
        self._named[name] = (loop.time() + TTL_S, found)
        return found

    def _learn(self, key: tuple[int, int], asked: asyncio.Future[Principal], now_s: float) -> None:
        """Cache an answer of the name service."""
        self._asking.pop(key, None)
        if asked.cancelled() or asked.exception() is not None:
            return
        if len(self._known) >= ENTRIES_MAX:
            del self._known[next(iter(self._known))]
        self._known[key] = (now_s + TTL_S, asked.result())

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
