"""A copy of the store's keys below a prefix, kept by listings and a watch.

Invariants: the copy is what the store held at one revision; a complete listing replaces everything, so keys that it lacks
are gone; the copy never goes back to an older revision. Whatever breaks a watch, the mirror lists again: there is one way to
catch up, and missed or merged changes do no harm. Values are kept as they are, but for those that are too large: these are
empty here, and their size tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from eslurm.core.federation.actions import (
    Failure,
    List,
    MirrorAction,
    Problem,
    StoredChanges,
    StoredEntry,
    StoredPage,
    Watch,
)
from eslurm.core.federation.values import VALUE_BYTES_MAX

ENTRIES_MAX: Final = 4_096
"""Further keys are left out and counted, unless the mirror has another bound."""
BACK_OFF_MIN_US: Final = 200_000
BACK_OFF_MAX_US: Final = 5_000_000


class Word(msgspec.Struct, frozen=True, gc=False):
    """The value of a key, and the time when this cell last heard of it (monotonic). `size` is that of the stored value."""

    key: str
    value: bytes
    version: int
    lease: int
    size: int
    heard_us: int


class Gone(msgspec.Struct, frozen=True, gc=False):
    """The time when a key was seen to be gone, and when the cell last heard of it."""

    at_us: int
    heard_us: int


class Mirror:
    """The keys below a prefix. `tick` says what to ask of the store; an answer goes back with its action.

    `changes` rises whenever the copy changes. `skipped` counts keys that were left out. With `notes_keys` it notes
    which keys have changed, for one reader: `take_noted`.
    """

    def __init__(self, prefix: str, entries_max: int = 0, *, notes_keys: bool = False) -> None:
        self.prefix = prefix
        self._noted: set[str] | None = set() if notes_keys else None
        self._entries_max = entries_max or ENTRIES_MAX
        self.revision = 0
        self.changes = 0
        self.skipped = 0
        self.is_listed = False
        """A complete listing has been seen; with a problem the copy may be old."""
        self.problem = ""
        self._words: dict[str, Word] = {}
        self._gone: dict[str, Gone] = {}
        self._heard_us = -1
        self._action: MirrorAction | None = None
        self._next: MirrorAction | None = None
        self._pages: dict[str, Word] = {}
        self._is_cut = False
        self._failures = 0
        self._list_at_us: int | None = None
        self._must_list = True

    @property
    def words(self) -> Mapping[str, Word]:
        """All keys, read-only."""
        return MappingProxyType(self._words)

    def age_us(self, now_us: int) -> int | None:
        """The time since the store last said anything here; None: it never did."""
        return None if self._heard_us < 0 else max(0, now_us - self._heard_us)

    def gone(self, key: str) -> Gone | None:
        """The times of a key that was here before and is gone."""
        return self._gone.get(key)

    def take_noted(self) -> set[str]:
        """The keys that have changed since the last call."""
        noted = self._noted
        if not noted:
            return set()
        self._noted = set()
        return noted

    def doubt(self) -> None:
        """List again: something that must be in the store has not come here."""
        self._must_list = True

    def tick(self, now_us: int, draw: float) -> MirrorAction | None:
        """The next request, once; it replaces the request before. `draw` is of [0, 1), for pauses."""
        if self._must_list and self._list_at_us is None:
            self._list_at_us = now_us + int(draw * self._longest_pause_us())
        if self._list_at_us is not None and now_us >= self._list_at_us:
            self._list_at_us = None
            self._must_list = False
            self._is_cut = False
            self._pages.clear()
            self._ask(List(self.prefix))
        asked, self._next = self._next, None
        return asked

    @property
    def due_us(self) -> int | None:
        """The next instant at which `tick` has something to do, as far as it depends on time; None: no such instant."""
        return self._list_at_us

    def listed(self, action: List, page: StoredPage, now_us: int) -> None:
        """A page has come."""
        if action is not self._action:
            return
        if problem := self._faulty(action, page):
            self._fail(problem)
            return
        self._heard_us = now_us
        for entry in page.entries:
            if self._fits(self._pages, entry):
                known = self._words.get(entry.key)
                # A word that has not changed is not heard again.
                same = known is not None and known.version == entry.version
                self._pages[entry.key] = known if known is not None and same else _word(entry, now_us)
        if page.more:
            self._ask(List(self.prefix, page.entries[-1].key, page.revision))
        else:
            self._replace(page.revision, now_us)
            self._ask(Watch(self.prefix, page.revision))

    def changed(self, action: Watch, changes: StoredChanges, now_us: int) -> None:
        """Changes have come, or a sign of life without any. Those that are known already are left out."""
        if action is not self._action:
            return
        self._heard_us = now_us
        self._failures = 0
        if changes.revision <= self.revision or not (changes.entries or changes.deleted):
            return
        self.revision = changes.revision
        for key in changes.deleted:
            if word := self._words.pop(key, None):
                self._note_gone(word, now_us)
            if self._is_cut and self._list_at_us is None:
                # There is room for a key that was left out.
                self._list_at_us = now_us + BACK_OFF_MAX_US
        for entry in changes.entries:
            if self._fits(self._words, entry):
                self._words[entry.key] = _word(entry, now_us)
                self._gone.pop(entry.key, None)
        if self._noted is not None:
            self._noted.update(changes.deleted)
            self._noted.update(entry.key for entry in changes.entries)
        self.changes += 1

    def failed(self, action: MirrorAction, failure: Failure, now_us: int) -> None:
        """The listing failed or the watch has ended."""
        if action is not self._action:
            return
        if isinstance(action, Watch) and failure.problem is not Problem.DENIED:
            # The copy is as good as before until a listing fails, too.
            self._action = self._next = None
            self._must_list = True
            self._failures += 1
            return
        self._fail(failure.text)

    # ---- within ----

    def _fail(self, problem: str) -> None:
        self.problem = problem or "the store does not answer"
        self._action = self._next = None
        self._must_list = True
        self._failures += 1

    def _ask(self, action: MirrorAction) -> None:
        self._action = self._next = action

    def _longest_pause_us(self) -> int:
        if not self._failures:
            return 0
        return min(BACK_OFF_MAX_US, BACK_OFF_MIN_US << min(self._failures - 1, 8))

    def _faulty(self, action: List, page: StoredPage) -> str:
        if page.revision < self.revision:
            return (
                f"the store is at revision {page.revision}, but was at {self.revision}: "
                "its data are older than before, or those of another store"
            )
        if action.revision and page.revision != action.revision:
            return f"a page of revision {page.revision} in a listing at {action.revision}"
        last = action.after
        for entry in page.entries:
            if entry.key <= last:
                return f"the store lists {entry.key[:80]!r} after {last[:80]!r}"
            last = entry.key
        return "the store has more to list and does not list it" if page.more and last == action.after else ""

    def _fits(self, words: Mapping[str, Word], entry: StoredEntry) -> bool:
        if not entry.key.startswith(self.prefix):
            self.skipped += 1
            return False
        if entry.key not in words and len(words) >= self._entries_max:
            self.skipped += 1
            self._is_cut = True
            return False
        return True

    def _replace(self, revision: int, now_us: int) -> None:
        before = self._words
        self._words, self._pages = self._pages, {}
        for key in before.keys() - self._words.keys():
            self._note_gone(before[key], now_us)
        if self._noted is not None:
            self._noted.update(before.keys() - self._words.keys())
            self._noted.update(key for key, word in self._words.items() if before.get(key) is not word)
        for key in self._words.keys() & self._gone.keys():
            del self._gone[key]
        if self._words != before or not self.is_listed:
            self.changes += 1
        self.revision = revision
        self.is_listed = True
        self.problem = ""

    def _note_gone(self, word: Word, now_us: int) -> None:
        if len(self._gone) >= ENTRIES_MAX:
            del self._gone[next(iter(self._gone))]
        self._gone[word.key] = Gone(now_us, word.heard_us)


def _word(entry: StoredEntry, now_us: int) -> Word:
    size = len(entry.value)
    value = entry.value if size <= VALUE_BYTES_MAX else b""
    return Word(entry.key, value, entry.version, entry.lease, size, now_us)
