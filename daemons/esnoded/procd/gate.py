"""What is asked for, held against what is allowed: whatever asks is no more than a messenger here.

Invariant: a step is started by a credential once, in time, also after a restart; keys are replaced only by those that
present ones vouch for.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from eslurm.compat.hostlist import expand
from eslurm.ports.step_runner import StepKey, StepOrder, StepSpec
from eslurm.security.sealing import BadSeal
from eslurm.security.site_keys import Ring, SiteKeyError, read_ring, write_ring
from eslurm.telemetry.clocks import wall_us
from esnoded.procd.build import Builder, check_hash
from esnoded.procd.credential import NotAllowed, Users, Warrants
from esnoded.procd.launches import Launches
from esnoded.procd.options import read_options
from esnoded.procd.scripts import Scripts


class Allowed(msgspec.Struct, frozen=True):
    """A step that may be started; `until_us`: when its credential ends (UTC)."""

    spec: StepSpec
    until_us: int


class Gate:
    """What it is told by root (`Options`) may change while it runs: see `refresh`."""

    def __init__(self, options: str, ring: str, scripts: Scripts, launches: Launches) -> None:
        """`options` and `ring` are paths of root's files. Raises `SiteKeyError`, OSError, `OptionError`, `MsgspecError`."""
        self._path = options
        self._ring = Path(ring)
        self._scripts = scripts
        self._launches = launches
        self._builder = Builder()
        self._options = read_options(options)
        self._warrants = self._make_warrants(self._find_ring())

    @property
    def idle_exit_us(self) -> int:
        """A supervisor without steps and connections ends after so long."""
        return round(self._options.idle_exit_s * 1e6)

    def admit(self, order: StepOrder) -> Allowed:
        """The step that the order's credential allows. `release` follows. Raises `NotAllowed`, OSError, ValueError."""
        key, now_us = order.key, wall_us()
        self._check_unused(key, now_us)
        allowed = self._warrants.launch(key, order.credential, now_us)
        if allowed.request is not None:
            spec = self._builder.tasks(key, allowed, order.environment, order.door)
        else:
            launch = allowed.launch
            check_hash("script", order.script, launch.script_hash)
            user = launch.user
            path = self._scripts.hold(key, user.uid, user.gid, launch.script_hash, order.script)
            try:
                spec = self._builder.batch(key, allowed, path, order.environment, order.door)
            except NotAllowed:
                self._scripts.release(key)
                raise
        return Allowed(spec, allowed.until_us)

    def begin(self, allowed: Allowed) -> None:
        """The first process of the step is about to be made. Raises `NotAllowed`, OSError."""
        key, now_us = allowed.spec.key, wall_us()
        self._check_unused(key, now_us)
        if now_us > allowed.until_us:
            raise NotAllowed(f"the credential of step {key} has ended before it was started")
        self._launches.use(key, allowed.until_us, now_us)

    def release(self, key: StepKey) -> None:
        """The step is over, or is not to be started."""
        self._scripts.release(key)

    def limit(self, key: StepKey, credential: bytes) -> tuple[int, int]:
        """(revision, microseconds) of the time limit that a sealed command sets. Raises `NotAllowed`."""
        revision, limit_s = self._warrants.limit(key, credential)
        return revision, limit_s * 1_000_000

    def trust(self, sealed: bytes) -> None:
        """Take the site's new keys, if present ones vouch for them. Raises `NotAllowed`, OSError."""
        try:
            ring = self._warrants.ring.successor(sealed)
        except BadSeal as error:
            raise NotAllowed(f"the site's keys are not replaced by these: {error}") from None
        if ring is not None:
            write_ring(self._ring, ring)
            self._warrants = self._make_warrants(ring)

    def refresh(self) -> None:
        """Take over what root has changed meanwhile. Keeps what it has if that cannot be read."""
        with suppress(SiteKeyError, OSError, msgspec.MsgspecError):
            options = read_options(self._path)
            given = read_ring(Path(options.ring))
            ring = self._warrants.ring
            if given.sealed != ring.sealed and not _follows(given, ring):
                ring = given
            if options != self._options or ring is not self._warrants.ring:
                self._options = options
                self._warrants = self._make_warrants(ring)

    def _check_unused(self, key: StepKey, now_us: int) -> None:
        if self._launches.is_used(key, now_us):
            raise NotAllowed(f"step {key} was launched before: a credential starts it once")

    def _make_warrants(self, ring: Ring) -> Warrants:
        options = self._options
        users = Users(os.geteuid(), options.min_uid, options.allow_root_jobs)
        return Warrants(ring, frozenset(expand(options.nodes, "--nodes")), users)

    def _find_ring(self) -> Ring:
        """Root's word on the site's keys, or what the site has replaced them by since."""
        given = read_ring(Path(self._options.ring))
        try:
            kept = read_ring(self._ring)
        except SiteKeyError:
            return given
        return kept if _follows(given, kept) else given


def _follows(ring: Ring, later: Ring) -> bool:
    """Whether a key of `ring` vouches for `later`."""
    try:
        return ring.successor(later.sealed) is not None
    except BadSeal:
        return False
