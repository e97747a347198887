"""A mirror under random words of the store ends up with what the store holds: changes that are merged, watches that break or
lose their past, listings in pages during which the store changes, answers that come too late.
"""

from __future__ import annotations

import random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from eslurm.core.federation.actions import Failure, List, Problem, Watch
from eslurm.core.federation.mirror import Mirror
from eslurm.lab.kv.image import KvImage
from eslurm.ports.kv import Page, WatchBroken
from tests.kits.federation import copied, held, put, remove

PREFIX = "/eslurm/lab/cells/"
KEYS = [f"{PREFIX}{name}" for name in "abcde"]
CUT = Failure(Problem.UNAVAILABLE, "cut off")


class Store:
    """A store and one mirror of it."""

    def __init__(self, draws: random.Random) -> None:
        self.draws = draws
        self.image = KvImage()
        self.mirror = Mirror(PREFIX)
        self.asked: List | Watch | None = None
        self.watched: Watch | None = None
        self.told = 0
        self.former: list[tuple[List, Page]] = []
        self.now_us = 0
        self.states: dict[int, dict[str, tuple[bytes, int]]] = {}

    def change(self) -> None:
        """One change of the store."""
        key = self.draws.choice(KEYS)
        if self.draws.random() < 0.35:
            remove(self.image, key)
        else:
            put(self.image, key, self.draws.randbytes(3))
        self.note()

    def note(self) -> None:
        """Keep what the store holds at this revision."""
        self.states[self.image.revision] = held(self.image, PREFIX)

    def serve(self, faults: float) -> None:
        """One answer, or a fault in its place."""
        self.now_us += 50_000
        self.asked = self.mirror.tick(self.now_us, self.draws.random()) or self.asked
        if isinstance(self.asked, Watch):
            self._watch(self.asked, faults)
        elif isinstance(self.asked, List):
            self._list(self.asked, faults)

    def _list(self, asked: List, faults: float) -> None:
        if self.former and self.draws.random() < faults:
            self.mirror.listed(*self.draws.choice(self.former), self.now_us)
        if self.draws.random() < faults:
            self.mirror.failed(asked, CUT, self.now_us)
            return
        try:
            page = self.image.list(asked.prefix, asked.after, asked.revision, 2)
        except WatchBroken:
            self.mirror.failed(asked, Failure(Problem.BROKEN, "compacted"), self.now_us)
            return
        stale = [former for action, former in self.former if action.after == asked.after]
        if stale and self.draws.random() < faults:
            page = self.draws.choice(stale)
        else:
            self.former.append((asked, page))
        self.mirror.listed(asked, page, self.now_us)

    def _watch(self, asked: Watch, faults: float) -> None:
        if asked is not self.watched:
            self.watched, self.told = asked, asked.revision
        if self.draws.random() < faults / 2:
            self.mirror.failed(asked, CUT, self.now_us)
            return
        until = self.image.revision
        if faults:
            until = self.draws.randint(min(self.told, until), until)
        try:
            changes = self.image.changes(PREFIX, self.told, until)
        except WatchBroken:
            self.mirror.failed(asked, Failure(Problem.BROKEN, "compacted"), self.now_us)
            return
        self.told = changes.revision
        self.mirror.changed(asked, changes, self.now_us)


# A smaller seed is no simpler world: nothing is shrunk.
@settings(phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(seed=st.integers(0, 2**32 - 1))
def test_the_copy_is_what_the_store_held_and_catches_up(seed: int) -> None:
    store = Store(random.Random(seed))
    store.note()
    last = 0
    for _ in range(store.draws.randint(10, 120)):
        roll = store.draws.random()
        if roll < 0.4:
            store.change()
        elif roll < 0.43:
            store.image.compact(store.draws.randint(1, store.image.revision))
        else:
            store.serve(0.2)
        assert store.mirror.revision >= last, "it went back"
        last = store.mirror.revision
        if store.mirror.is_listed:
            assert copied(store.mirror) == store.states[last]
    for _ in range(400):
        store.serve(0.0)
    assert copied(store.mirror) == held(store.image, PREFIX)
