"""The site's private keys as a controller uses them, and the controller's own membership.

Invariant: the key that the file names now signs; an unusable file is logged, and the last keys stay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from esctld.lead.key_files import KeyFiles
from eslurm.security.credentials import read_credentials
from eslurm.security.enrolment import is_current, new_membership
from eslurm.security.files import read_trusted, write_public
from eslurm.security.membership import IDENTITY, MEMBERSHIP
from eslurm.security.revocation import REVOKED, Revoked
from eslurm.security.sealing import Purpose
from eslurm.security.site_keys import SITE_KEY, SITE_PUB, Ring, SiteKeyError, SiteKeys, read_site_keys
from eslurm.telemetry.clocks import wall_us

log = logging.getLogger("esctld.site")

LOOK_S = 1.0
"""Interval of checks of the keys' file."""


class SiteSigner:
    """The keys in a controller's directory. Raises `SiteKeyError` at first."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read_ns = self._changed_ns()
        self.keys: SiteKeys = read_site_keys(directory)

    @property
    def cluster(self) -> str:
        """The cluster of the keys."""
        return self.keys.cluster

    @property
    def ring(self) -> Ring:
        """The public keys."""
        return self.keys.ring

    def seal(self, purpose: Purpose, body: bytes) -> bytes:
        """A statement under the present signing key."""
        return self.keys.seal(purpose, body)

    def seal_together(self, purpose: Purpose, bodies: Sequence[bytes]) -> list[bytes]:
        """Statements that share a signature of the present signing key."""
        return self.keys.seal_together(purpose, bodies)

    def look(self) -> bool:
        """Read the file again if it has changed; returns whether the keys are different now."""
        changed_ns = self._changed_ns()
        if changed_ns == self._read_ns:
            return False
        self._read_ns = changed_ns
        try:
            keys = read_site_keys(self._directory)
        except SiteKeyError as error:
            log.error("the former keys stay in use: %s", error)
            return False
        if keys.cluster != self.keys.cluster or keys.revision <= self.keys.revision:
            return False
        self.keys = keys
        log.info("site keys of revision %d, key %s signs", keys.revision, keys.signing.id.hex())
        return True

    def _changed_ns(self) -> int:
        try:
            return (self._directory / SITE_KEY).stat().st_mtime_ns
        except OSError:
            return 0


class Member:
    """This controller as a member: it issues its own membership. Raises `CannotJoin`, OSError.

    The site's keys and revocations are read in `site_dir`, its own files lie in `state_dir`. Controllers may share both:
    the files of the first one have the plain names.
    """

    def __init__(
        self, site_dir: Path, state_dir: Path, name: str, site: SiteSigner, *, is_first: bool
    ) -> None:
        ending = "" if is_first else f"-{name}"
        stem, dot, kind = IDENTITY.partition(".")
        self._revoked_file = site_dir / REVOKED
        self._directory = state_dir
        self._revoked_ns = 0
        self._name = name
        self._site = site
        self._path = state_dir / f"{MEMBERSHIP}{ending}"
        identity = state_dir / f"{stem}{ending}{dot}{kind}"
        self.files = KeyFiles(site_dir, identity, self._path)
        self.credentials = read_credentials(state_dir, site_dir / SITE_PUB, identity, self._path)
        self.credentials.learn_ring(site.ring.sealed)
        self._renew()

    def look(self) -> None:
        """Use the site's keys as they are now. Raises OSError."""
        if self._site.look():
            # First: what the others hear next is sealed with the new key.
            self._renew()
            self.credentials.learn_ring(self._site.ring.sealed)

    def has_new_list(self) -> bool:
        """Check whether the list of revoked memberships was written since it was read."""
        return self._list_changed_ns() != self._revoked_ns

    def read_list(self) -> tuple[frozenset[bytes], int]:
        """Serials and revision from the file and from other controllers. Raises `UnsafeFile`, `BadSeal`."""
        self._revoked_ns = self._list_changed_ns()
        said = Revoked()
        if self._revoked_ns:
            said = said.successor(self.credentials.members.ring, read_trusted(self._revoked_file)) or said
        learnt = self.credentials.revoked
        return said.serials | learnt.serials, max(said.revision, learnt.revision)

    def _list_changed_ns(self) -> int:
        try:
            return self._revoked_file.stat().st_mtime_ns
        except OSError:
            return 0

    @property
    def serial(self) -> bytes:
        """Serial of its own membership."""
        return self.credentials.members.check(self.credentials.membership, wall_us()).serial

    async def run(self) -> None:
        """Follow the keys' file until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self.look()
            except OSError as error:
                log.error("the membership of this controller cannot be kept: %s", error)

    def _renew(self) -> None:
        """A membership under the present signing key, unless there is one."""
        keys, now_us = self._site.keys, wall_us()
        if is_current(keys, self.credentials, "controller", self._name, now_us):
            return
        public = self.credentials.identity.public
        self.credentials.membership = new_membership(
            keys, public, "controller", self._name, now_us, ledger=self._directory
        )
        write_public(self._path, self.credentials.membership)
        log.info("a membership was issued for this controller")
