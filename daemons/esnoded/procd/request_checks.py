"""Checks of all requests against sealed commands and root's options: the requester is not trusted.

Invariant: a credential starts its step once, in time, also after a restart; keys are replaced only by those that present
ones vouch for.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from eslurm.core.model.job import Principal
from eslurm.core.model.protocol import JobLaunch
from eslurm.core.model.step_key import GATEWAY_STEP, PROLOG_STEP, StepKey
from eslurm.ports.step_runner import StepOrder, StepSpec
from eslurm.security.ownership import UnsafeFile, check_program
from eslurm.security.sealing import BadSeal
from eslurm.security.site_keys import Ring, SiteKeyError, read_ring, write_ring
from eslurm.telemetry.clocks import wall_us
from esnoded.procd.credential import Launchable, NotAllowed, Warrants
from esnoded.procd.launches import Launches
from esnoded.procd.options import Options, read_options
from esnoded.procd.scripts import Scripts
from esnoded.task.build import Builder
from esnoded.task.phases import build_phase
from esnoded.task.streams import shapes_of


class Allowed(msgspec.Struct, frozen=True):
    """A step that may be started: whose it is, and how many tasks; `until_us`: when its credential ends (UTC).

    `make` builds what a task runs. It is called as the user only. `streams` are the descriptors that a task may have
    (`task.streams`); `warns`: a script may be run that warns of the time limit. `prolog` is the site's program before each
    task, empty: none; it and the one after each task run for `limit_s` at most.
    """

    key: StepKey
    user: Principal
    until_us: int
    make: Callable[[int], StepSpec]
    tasks: int = 1
    streams: tuple[str, ...] = ("",)
    warns: bool = False
    prolog: str = ""
    limit_s: float = 0.0


class RequestChecks:
    """Checks of requests by root's options, which may change while it runs: see `refresh`."""

    def __init__(self, options: str, ring: str, scripts: Scripts, launches: Launches) -> None:
        """`options` and `ring` are paths of root's files. Raises `SiteKeyError`, OSError, `OptionError`, `MsgspecError`."""
        self._path = options
        self._ring = Path(ring)
        self._scripts = scripts
        self._launches = launches
        self._builder = Builder()
        try:
            kept = read_ring(self._ring)
        except SiteKeyError:
            kept = None
        self._load(kept)

    def _load(self, known: Ring | None) -> None:
        """Take over what root says; its word on the site's keys counts until the site itself has replaced them."""
        options = read_options(self._path)
        given = read_ring(Path(options.ring))
        ring = known if known is not None and _follows(given, known) else given
        self._warrants = Warrants(ring, options, os.geteuid())
        self._options = options

    @property
    def options(self) -> Options:
        """Root's present options."""
        return self._options

    def admit(self, order: StepOrder) -> Allowed:
        """The step that the order's credential allows. `release` follows. Raises `NotAllowed`, OSError, ValueError."""
        key, now_us = order.key, wall_us()
        self._check_unused(key, now_us)
        found = self._warrants.launch(key, order.credential, now_us)
        if key.is_phase:
            return self._phase(order, found)
        launch, request, path = found.launch, found.request, ""
        _check_hash("environment", order.environment, (request or launch.spec).environment_hash)
        if request is None:
            _check_hash("script", order.script, launch.spec.script_hash)
            path = self._scripts.hold(key, launch.spec.user, order.script) if found.tasks else ""
        daemon = self._gateway_daemon(launch) if key.step == GATEWAY_STEP else ""
        sealed = (key, launch, request, found.node_name, found.names, found.cluster, daemon or path)
        make = partial(self._builder.build, *sealed, order.environment, order.door, order.job_socket)
        user, until_us = launch.spec.user, found.until_us
        if request is None:
            return Allowed(key, user, until_us, make, found.tasks, warns=bool(launch.spec.warn_script))
        options = self._options
        has_prolog = options.task_prolog and not key.is_gateway
        prolog = _program("task prolog", options.task_prolog) if has_prolog else ""
        streams = shapes_of(request.input, request.mpi, request.files)
        return Allowed(key, user, until_us, make, found.tasks, streams, False, prolog, options.phase_limit_s)

    def _gateway_daemon(self, launch: JobLaunch) -> str:
        """The job's own program, or root's. Raises `NotAllowed`, OSError."""
        asked = launch.spec.gateway
        if asked is not None and asked.binary:
            return asked.binary
        if not self._options.gateway_daemon:
            raise NotAllowed("this host has no gateway daemon: name one with --gateway-binary")
        return _program("gateway daemon", self._options.gateway_daemon)

    def _phase(self, order: StepOrder, found: Launchable) -> Allowed:
        """Root's own program, as long as no other user can change it. Raises `NotAllowed`, OSError."""
        key, options, launch = order.key, self._options, found.launch
        program = options.prolog if key.step == PROLOG_STEP else options.epilog
        if not program:
            raise NotAllowed(f"this host has no {key.phase}")
        program = _program(key.phase, program)
        user = launch.spec.user
        if options.phase_user == "root":
            user = Principal("root", os.geteuid(), os.getegid())
        else:
            self._warrants.check_user(user)
        sealed = (key, launch, found.node_name, found.names, found.cluster)
        make = partial(build_phase, *sealed, user, program, order.end)
        return Allowed(key, user, found.until_us, make, streams=("pp",))

    def task_epilog(self) -> str:
        """Root's program after each task, as long as no other user can change it. Raises `NotAllowed`, OSError."""
        if not self._options.task_epilog:
            raise NotAllowed("this host has no task epilog")
        return _program("task epilog", self._options.task_epilog)

    def begin(self, allowed: Allowed) -> None:
        """The first process of the step is about to be made. Raises `NotAllowed`, OSError."""
        key, now_us = allowed.key, wall_us()
        self._check_unused(key, now_us)
        if now_us > allowed.until_us:
            raise NotAllowed(f"the credential of step {key} has ended before it was started")
        self._launches.use(key, allowed.until_us, now_us)

    def release(self, key: StepKey) -> None:
        """The step is over, or is not to be started."""
        self._scripts.release(key)

    def trust(self, sealed: bytes) -> None:
        """Take the site's new keys, if present ones vouch for them. Raises `NotAllowed`, OSError."""
        try:
            ring = self._warrants.ring.successor(sealed)
        except BadSeal as error:
            raise NotAllowed(f"the site's keys are not replaced by these: {error}") from None
        if ring is not None:
            write_ring(self._ring, ring)
            self._warrants = Warrants(ring, self._options, os.geteuid())

    def refresh(self) -> tuple[Options, bytes]:
        """Take over what root has changed meanwhile; returns root's options and the site's keys, sealed.

        Keeps what it has if that cannot be read.
        """
        with suppress(SiteKeyError, OSError, msgspec.MsgspecError):
            self._load(self._warrants.ring)
        return self._options, self._warrants.ring.sealed

    def _check_unused(self, key: StepKey, now_us: int) -> None:
        if self._launches.is_used(key, now_us):
            raise NotAllowed(f"step {key} was launched before: a credential starts it once")


def _program(name: str, path: str) -> str:
    """Raises `NotAllowed` for a program that another user could change, OSError."""
    try:
        return check_program(path)
    except UnsafeFile as error:
        raise NotAllowed(f"{name}: {error}") from None


def _check_hash(what: str, data: bytes, digest: bytes) -> None:
    """Raises `NotAllowed` unless `data` is what the credential names; without a name it is empty."""
    if hashlib.sha256(data).digest() != digest and (data or digest):
        raise NotAllowed(f"the {what} is not the one that the credential names")


def _follows(ring: Ring, later: Ring) -> bool:
    """Check whether a key of `ring` vouches for `later`, or they are the same."""
    try:
        return ring.sealed == later.sealed or ring.successor(later.sealed) is not None
    except BadSeal:
        return False
