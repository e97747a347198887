"""A daemon's credentials: its identity, and the keys by which it checks others; read and written here.

`identity.key`, `membership`, `site.pub` and `revoked` lie in the daemon's state directory. Invariant: keys and revocations
from the network are kept only after a key known before has vouched for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from eslurm.core.model.hostlist import holds
from eslurm.security.files import UnsafeFile, read_trusted, write_public
from eslurm.security.membership import (
    IDENTITY,
    MEMBERSHIP,
    Identity,
    Members,
    Membership,
    NotAMember,
    Role,
    find_identity,
)
from eslurm.security.revocation import REVOKED, Revoked
from eslurm.security.sealing import KEY_ID_BYTES, BadSeal
from eslurm.security.site_keys import SITE_PUB, Ring, SiteKeyError, read_ring, write_ring

if TYPE_CHECKING:
    from eslurm.security.cells import CellKeys


class CannotJoin(Exception):
    """The daemon's files do not make it a member; the text names the file, the problem and the way out."""


class Credentials:
    """`membership` is sealed; empty: the daemon has not joined yet. `directory`: the place of learnt keys.

    `on_learnt` is called when the site's keys or revocations have changed.
    """

    def __init__(
        self,
        identity: Identity,
        membership: bytes,
        members: Members,
        revoked: Revoked | None = None,
        directory: Path | None = None,
    ) -> None:
        self.identity = identity
        self.membership = membership
        self.members = members
        self.revoked = revoked or Revoked()
        self.on_learnt: Callable[[], None] = lambda: None
        self.renewal: Renewal | None = None
        self.cells: Mapping[str, CellKeys] = {}
        """By name, the cells whose controllers are let in, as cells and nothing else."""
        self._directory = directory
        members.revoked = self.revoked.serials

    def learn_ring(self, sealed: bytes) -> bool:
        """Trust the site's newer keys from now on; False when they are not newer. Raises `BadSeal`."""
        ring = self.members.ring.successor(sealed)
        if ring is None:
            return False
        self.members.ring = ring
        self.on_learnt()
        return True

    def learn_revoked(self, sealed: bytes) -> bool:
        """Refuse more memberships from now on; False when the list is not newer. Raises `BadSeal`."""
        revoked = self.revoked.successor(self.members.ring, sealed)
        if revoked is None:
            return False
        self.revoked = revoked
        self.members.revoked = revoked.serials
        self.on_learnt()
        return True

    def cell_of(self, membership: bytes, ring: bytes) -> CellKeys | None:
        """The cell that says it has sealed one of these; None: none has, or this site itself. The seal is not checked."""
        for sealed in (membership, ring):
            identifier = sealed[:KEY_ID_BYTES]
            if identifier in self.members.ring.keys:
                return None
            for cell in self.cells.values():
                if identifier in cell.members.ring.keys:
                    return cell
        return None

    def check_peer(self, membership: bytes, cell: str, now_us: int) -> Membership:
        """A peer's membership, of this site or of another cell. Raises `NotAMember`."""
        if not cell:
            return self.members.check(membership, now_us)
        keys = self.cells.get(cell)
        if keys is None:
            raise NotAMember(f"cell {cell} is not trusted here any more")
        return keys.members.check(membership, now_us)

    def renew(self, now_us: int) -> bool:
        """Read the membership file again; False when it has not changed. Raises `UnsafeFile`, `NotAMember`, once."""
        if self.renewal is None:
            return False
        sealed = self.renewal.find()
        if not sealed or sealed == self.membership:
            return False
        fresh = Credentials(self.identity, sealed, self.members, self.revoked)
        check_own(fresh, self.renewal.role, self.renewal.names, now_us)
        self.membership = sealed
        return True

    def keep(self) -> None:
        """Write learnt keys and revocations. Raises OSError."""
        if self._directory is not None:
            write_ring(self._directory / SITE_PUB, self.members.ring)
            if self.revoked.sealed:
                write_public(self._directory / REVOKED, self.revoked.sealed)


class Renewal:
    """The files in which a running daemon's membership may be replaced, and the requirements on it."""

    def __init__(self, paths: Iterable[Path], role: Role, names: Iterable[str]) -> None:
        """Make it before the files are read for the first time."""
        self.role = role
        self.names = tuple(names)
        self._seen = {path: _stamp(path) for path in paths}

    def find(self) -> bytes:
        """The content written since the last look; empty: none. Raises `UnsafeFile`."""
        for path, before in self._seen.items():
            stamp = _stamp(path)
            if stamp not in (before, None):
                self._seen[path] = stamp
                return read_trusted(path)
        return b""


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def check_own(credentials: Credentials, role: Role, names: Iterable[str], now_us: int) -> Membership:
    """This daemon's membership, when it allows the daemon's role and names. Raises `NotAMember`."""
    membership = credentials.members.check(credentials.membership, now_us)
    if membership.public != credentials.identity.public:
        raise NotAMember("the membership is for another identity key")
    if membership.role != role:
        raise NotAMember(f"the membership is for the role {membership.role}, not {role}")
    strangers = sorted(name for name in names if not holds(membership.names, name))
    if strangers:
        raise NotAMember(f"the membership is for {membership.names}, not for {strangers[0]}")
    return membership


def read_credentials(
    state_dir: Path,
    site_keys: Path | None = None,
    identity: Path | None = None,
    membership: Path | None = None,
) -> Credentials:
    """The credentials in a daemon's state directory, or in files named one by one. Raises `CannotJoin`."""
    identity = identity or state_dir / IDENTITY
    membership = membership or state_dir / MEMBERSHIP
    try:
        ring = _newest_ring(site_keys or state_dir / SITE_PUB, state_dir / SITE_PUB)
        found = find_identity(identity)
        sealed = read_trusted(membership) if membership.exists() else b""
    except (SiteKeyError, UnsafeFile) as error:
        raise CannotJoin(str(error)) from None
    except OSError as error:
        raise CannotJoin(f"{identity} cannot be made: {error.strerror}") from None
    return Credentials(found, sealed, Members(ring), _kept_revoked(state_dir / REVOKED, ring), state_dir)


def _newest_ring(anchor: Path, learnt: Path) -> Ring:
    """The given ring, or a newer one that was learnt since."""
    ring = read_ring(anchor)
    if learnt == anchor or not learnt.exists():
        return ring
    kept = read_ring(learnt)
    try:
        return ring.successor(kept.sealed) or ring
    except BadSeal:
        # The site began anew: what was learnt before is of no use.
        return ring


def _kept_revoked(path: Path, ring: Ring) -> Revoked:
    if not path.exists():
        return Revoked()
    try:
        return Revoked().successor(ring, read_trusted(path)) or Revoked()
    except BadSeal:
        # Sealed by a key that is retired by now: the controllers send the list anew.
        return Revoked()
