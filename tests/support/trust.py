"""A site for tests: its keys, and credentials of any role and names, in memory or as a daemon's files."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

from esctld.lead.site import Member, SiteSigner
from eslurm.security.credentials import Credentials
from eslurm.security.enrolment import enrol
from eslurm.security.membership import Identity, Members, Membership, Role, issue
from eslurm.security.site_keys import KeyRecord, SiteKeys, new_site, write_site_keys


class Site:
    """One site of tests."""

    def __init__(self, cluster: str = "test", seed: bytes = b"") -> None:
        # Of today: the doctor tells of a key that has signed for years.
        now_us = time.time_ns() // 1000
        self.keys: SiteKeys = new_site(cluster, now_us)
        if seed:
            # Of another process: both are one site.
            self.keys = SiteKeys(cluster, 1, (KeyRecord(seed, "signing", now_us),))
        self._serials = itertools.count(1)
        self._ledger: Path | None = None

    def issue(
        self, identity: Identity, role: Role, names: str, until_us: int = 0, serial: bytes = b""
    ) -> bytes:
        """A sealed membership for an identity."""
        serial = serial or next(self._serials).to_bytes(16, "big")
        return issue(
            self.keys, Membership(self.keys.cluster, serial, role, names, identity.public, 1, until_us)
        )

    def credentials(
        self, role: Role, names: str, until_us: int = 0, directory: Path | None = None
    ) -> Credentials:
        """A member's, with an identity of its own."""
        identity = Identity.generate()
        return Credentials(
            identity,
            self.issue(identity, role, names, until_us),
            Members(self.keys.ring),
            directory=directory,
        )

    def write_keys(self, directory: Path) -> None:
        """Both halves of the site's keys, as a controller's directory has them; memberships are entered there."""
        self._ledger = directory
        write_site_keys(directory, self.keys)

    def controller(self, directory: Path, name: str) -> tuple[SiteSigner, Member]:
        """Write the directory of a controller with this name."""
        self.write_keys(directory)
        signer = SiteSigner(directory)
        return signer, Member(directory, directory, name, signer, is_first=name == "main")

    def write_member(self, directory: Path, role: Role, names: str) -> Path:
        """Write the files that a daemon of this role reads from its state directory."""
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        enrol(self.keys, directory, role, names, 1, ledger=self._ledger)
        return directory
