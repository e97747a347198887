"""The state of a controller's key files for the doctor. Every look reads them anew."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec

from eslurm.core.doctor.host import KeyFile
from eslurm.security.files import UnsafeFile, read_trusted
from eslurm.security.membership import Members, NotAMember, read_identity
from eslurm.security.site_keys import SITE_KEY, SITE_PUB, SiteKeyError, read_ring, read_site_keys


class KeyFiles(msgspec.Struct, frozen=True):
    """Paths of the files. The site's keys lie in `directory`."""

    directory: Path
    identity: Path
    membership: Path

    def look(self, now_us: int) -> list[KeyFile]:
        """The files as they are now."""
        return [
            _look(
                self.directory / SITE_KEY,
                _site_key(self.directory, now_us),
                is_secret=True,
                may_group_read=True,
            ),
            _look(self.directory / SITE_PUB, _site_pub(self.directory)),
            _look(self.identity, _identity(self.identity), is_secret=True),
            _look(self.membership, _membership(self, now_us)),
        ]


_Read = Callable[[KeyFile], KeyFile]
"""Adds what the content says. Raises what `_look` makes a problem of."""


def _look(path: Path, read: _Read, *, is_secret: bool = False, may_group_read: bool = False) -> KeyFile:
    found = KeyFile(str(path), is_secret=is_secret, may_group_read=may_group_read)
    try:
        status = os.lstat(path)
        found = msgspec.structs.replace(
            found, mode=stat.S_IMODE(status.st_mode), is_foreign=status.st_uid not in (0, os.geteuid())
        )
        return read(found)
    except OSError as error:
        return msgspec.structs.replace(found, problem=error.strerror or str(error))
    except (UnsafeFile, SiteKeyError, NotAMember) as error:
        return msgspec.structs.replace(found, problem=str(error))


def _site_key(directory: Path, now_us: int) -> _Read:
    def read(found: KeyFile) -> KeyFile:
        [signing] = [record for record in read_site_keys(directory).records if record.state == "signing"]
        return msgspec.structs.replace(found, age_s=max(0, now_us - signing.created_us) // 1_000_000)

    return read


def _site_pub(directory: Path) -> _Read:
    def read(found: KeyFile) -> KeyFile:
        read_ring(directory / SITE_PUB)
        return found

    return read


def _identity(path: Path) -> _Read:
    def read(found: KeyFile) -> KeyFile:
        read_identity(path)
        return found

    return read


def _membership(files: KeyFiles, now_us: int) -> _Read:
    def read(found: KeyFile) -> KeyFile:
        # One that has ended says so by itself: when is more use than that.
        membership = Members(read_ring(files.directory / SITE_PUB)).check(read_trusted(files.membership), 0)
        if membership.public != read_identity(files.identity).public:
            raise NotAMember("the membership is for another identity key")
        if not membership.until_us:
            return found
        return msgspec.structs.replace(found, left_s=(membership.until_us - now_us) // 1_000_000)

    return read
