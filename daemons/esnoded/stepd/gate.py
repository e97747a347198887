"""What is asked for, held against what is allowed: the supervisor's answer to an agent that cannot be trusted.

An agent speaks with the network and is no more than a messenger here: it may start what a controller has sealed, once,
and signal and end what runs. Invariant: a step is started by a credential once, also after a restart of the supervisor; its
time limit is lengthened only by a sealed command, and not by one that is older than the last.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from eslurm.compat.hostlist import expand
from eslurm.ports.step_runner import StepEnded, StepKey, StepOrder, StepSpec
from eslurm.security.sealing import BadSeal
from eslurm.security.site_keys import Ring, SiteKeyError, read_ring, write_ring
from eslurm.telemetry.clocks import wall_us
from esnoded.stepd import wire
from esnoded.stepd.build import Builder, check_hash
from esnoded.stepd.credential import NotAllowed, Users, Warrants
from esnoded.stepd.journal import Journal
from esnoded.stepd.place import Place
from esnoded.stepd.procfs import read_boot_id
from esnoded.stepd.recovery import forget_predecessor, settle_predecessor
from esnoded.stepd.scripts import Scripts


class Admitted(msgspec.Struct, frozen=True):
    """A step that may be started; `until_us`: when its credential ends (UTC)."""

    spec: StepSpec
    until_us: int


class Gate:
    """Of one supervisor. What it is told by root (`Options`) may change while it runs: see `refresh`."""

    def __init__(self, place: Place, journal: Journal) -> None:
        """Raises `SiteKeyError`, OSError, `OptionError`."""
        self._place = place
        self._journal = journal
        self._builder = Builder()
        self._limits: dict[StepKey, int] = {}
        self._options = place.read_options()
        self._warrants = self._make_warrants(self._find_ring())
        self._scripts = Scripts(place.scripts, spares_homes=place.predecessor_lives())

    @property
    def idle_exit_us(self) -> int:
        """A supervisor without steps and connections ends after so long."""
        return round(self._options.idle_exit_s * 1e6)

    def admit(self, order: StepOrder) -> Admitted:
        """The step that the order's credential allows. `on_taken` or `on_ended` follows.

        Raises `NotAllowed`, OSError, ValueError.
        """
        key, now_us = order.key, wall_us()
        if self._journal.is_used(key, now_us):
            raise NotAllowed(f"step {key} was launched before: a credential starts it once")
        if not self._journal.can_use(now_us):
            raise NotAllowed("too many launches are remembered: try again in a minute")
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
        return Admitted(spec, allowed.until_us)

    def on_taken(self, admitted: Admitted) -> None:
        """The step is to be started."""
        self._journal.use(admitted.spec.key, admitted.until_us)

    def on_ended(self, key: StepKey) -> None:
        """The step is over, or was not taken on."""
        self._scripts.release(key)
        self._limits.pop(key, None)

    def close(self) -> None:
        """Let go of the scripts' directory."""
        self._scripts.close()

    def check_limit(self, request: wire.SetLimit, present_us: int) -> None:
        """Raises `NotAllowed` for a time limit that ends later than the present one (0: never) unless it is sealed."""
        asked_us = request.time_limit_us
        if not request.credential:
            if asked_us and (not present_us or asked_us <= present_us):
                return
            raise NotAllowed("a longer time limit needs the controller's sealed command")
        revision, limit_s = self._warrants.limit(request.key, request.credential)
        if asked_us != limit_s * 1_000_000:
            raise NotAllowed(f"the sealed command sets a time limit of {limit_s} s")
        if revision < self._limits.get(request.key, 0):
            raise NotAllowed("a later command has set another time limit")
        self._limits[request.key] = revision

    def trust(self, sealed: bytes) -> None:
        """Take the site's new keys, if present ones vouch for them. Raises `NotAllowed`, OSError."""
        try:
            ring = self._warrants.ring.successor(sealed)
        except BadSeal as error:
            raise NotAllowed(f"the site's keys are not replaced by these: {error}") from None
        if ring is not None:
            write_ring(Path(self._place.ring), ring)
            self._warrants = self._make_warrants(ring)

    def refresh(self) -> None:
        """An agent has come: take over what root has changed meanwhile. Keeps what it has if that cannot be read."""
        with suppress(SiteKeyError, OSError, msgspec.MsgspecError):
            options = self._place.read_options()
            given = read_ring(Path(options.ring))
            ring = self._warrants.ring
            if given.sealed != ring.sealed and not _follows(given, ring):
                ring = given
            if options != self._options or ring is not self._warrants.ring:
                self._options = options
                self._warrants = self._make_warrants(ring)

    def left_behind(self) -> list[StepEnded]:
        """What a supervisor of an earlier version owed, if it is gone meanwhile."""
        return settle_predecessor(self._place, read_boot_id(), wall_us())

    def forget_predecessor(self) -> None:
        """What it owed is in the journal."""
        forget_predecessor(self._place)

    def _make_warrants(self, ring: Ring) -> Warrants:
        options = self._options
        users = Users(os.geteuid(), options.min_uid, options.allow_root_jobs)
        return Warrants(ring, frozenset(expand(options.nodes, "--nodes")), users)

    def _find_ring(self) -> Ring:
        """Root's word on the site's keys, or what the site has replaced them by since."""
        given = read_ring(Path(self._options.ring))
        try:
            kept = read_ring(Path(self._place.ring))
        except SiteKeyError:
            return given
        return kept if _follows(given, kept) else given


def _follows(ring: Ring, later: Ring) -> bool:
    """Whether a key of `ring` vouches for `later`."""
    try:
        return ring.successor(later.sealed) is not None
    except BadSeal:
        return False
