"""The end of what a program of the site prints, kept in memory and then in a file.

Invariants: what is held and kept is bounded, in bytes and in files. The files lie in a directory of this user's own, where
no other user can put, rename or read one.
"""

from __future__ import annotations

import os
from contextlib import suppress

from eslurm.core.model.wording import printable_line

KEPT_BYTES = 64 * 1024
KEPT_FILES = 256
_WORDS_CHARS = 400


def last_words(kept: bytes | bytearray) -> str:
    """The end of an output as one line of printable text, bounded; of longer ones the last is looked at."""
    words = printable_line(kept[-4 * _WORDS_CHARS :].decode(errors="replace"))
    return words if len(words) <= _WORDS_CHARS else "..." + words[-_WORDS_CHARS:]


class KeptOutput:
    """The last `KEPT_BYTES` of an output."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._is_cut = False

    def add(self, data: bytes) -> None:
        """More of it was printed."""
        self._kept += data
        if len(self._kept) > KEPT_BYTES:
            self._is_cut = True
            del self._kept[:-KEPT_BYTES]

    def last_words(self) -> str:
        """See `last_words`."""
        return last_words(self._kept)

    def write(self, directory: str, name: str) -> None:
        """Keep it in a file of this name, as one of the last `KEPT_FILES` of the directory. Raises OSError."""
        os.makedirs(directory, 0o700, exist_ok=True)
        with suppress(FileNotFoundError):
            _make_room(directory)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(f"{directory}/{name}", flags, 0o600), "wb") as file:
            if self._is_cut:
                file.write(b"(the beginning was cut off)\n")
            file.write(self._kept)


def _make_room(directory: str) -> None:
    with os.scandir(directory) as entries:
        files = sorted((entry.stat(follow_symlinks=False).st_mtime_ns, entry.path) for entry in entries)
    for _, path in files[: max(0, len(files) - KEPT_FILES + 1)]:
        os.unlink(path)
