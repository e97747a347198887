"""A server of the shared store: it answers reads and watches from what has reached it, and passes changes to the leader.

Invariants: a read that is not stale is answered from a revision that its leader had when it was asked, or a later one; a
watch shows whole revisions in order; a server that has not heard of a leader for a while answers nothing and breaks
its watches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim import kv_wire as wire
from eslurm.lab.sim.bare_process import BareProcess, Ground
from eslurm.lab.sim.kv_ensemble import KvEnsemble
from eslurm.ports.kv import PROGRESS_S, Changes, Found, KvError, KvUnavailable, Put, WatchBroken

LEADERLESS_US = 1_500_000
LOOK_EVERY_US = 500_000


class _Watching(msgspec.Struct):
    """A watch at this server: up to where it has shown everything."""

    client: str
    prefix: str
    seen: int
    serial: int = 0
    told_us: int = 0


class KvServer(BareProcess):
    """One start of one member."""

    def __init__(self, ground: Ground, index: int, ensemble: KvEnsemble) -> None:
        super().__init__(ground, kv_address(index))
        self.index = index
        self.answers_lost = 0.0
        """Share of the answers to changes that never leave."""
        self._ensemble = ensemble
        self._disk = ensemble.disks[index]
        self._image = ensemble.image
        self._watches: dict[tuple[str, int], _Watching] = {}
        # Reads that wait until a revision is applied.
        self._reads: list[tuple[int, Callable[[], None]]] = []

    def start(self) -> None:
        """Serve."""
        self._look()

    @property
    def sees_leader(self) -> bool:
        """Check whether it has heard of a leader lately."""
        return self.now_us - self._disk.contact_us <= LEADERLESS_US

    def advance(self) -> None:
        """More of the log is applied here."""
        waiting, self._reads = self._reads, []
        for revision, read in waiting:
            if revision <= self._disk.applied:
                read()
            else:
                self._reads.append((revision, read))
        self._tell_all()

    # ---- in ----

    def on_message(self, source: str, message: Any) -> None:
        """A call, or the beginning or end of a watch."""
        match message:
            case wire.Ask(ask_id, request):
                if self.sees_leader:
                    self._ask(source, ask_id, request)
                else:
                    self.send(source, wire.Answer(ask_id, _leaderless()))
            case wire.BeginWatch(watch_id, prefix, revision):
                self._watches[source, watch_id] = _Watching(source, prefix, revision, told_us=self.now_us)
                self._tell_all()
            case wire.EndWatch(watch_id):
                self._watches.pop((source, watch_id), None)

    def on_link_down(self, peer: str) -> None:
        """A client is gone."""
        for client, watch_id in [key for key in self._watches if key[0] == peer]:
            del self._watches[client, watch_id]

    def _ask(self, source: str, ask_id: int, request: wire.Request) -> None:
        ensemble = self._ensemble

        def answer(result: Any) -> None:
            self.send(source, wire.Answer(ask_id, result))

        def answer_change(result: Any) -> None:
            if not self.answers_lost or self._ensemble.draw() >= self.answers_lost:
                answer(result)

        match request:
            case wire.Get(key, stale):
                self._read(lambda: self._found(key), answer, stale=stale)
            case wire.ListPage(prefix, after, revision, limit):
                self._read(lambda: self._image.list(prefix, after, revision or self._revision, limit), answer)
            case wire.Swap(expect, then):
                has_put = any(isinstance(one, Put) for one in then)
                ensemble.propose(
                    self, lambda image: image.swap(expect, then), answer_change, needs_room=has_put
                )
            case wire.Grant(ttl_us):
                # Its life begins when it is made.
                now_us = self._ground.scheduler.now_us
                ensemble.propose(
                    self, lambda image: image.grant(ttl_us, now_us()), answer_change, needs_room=True
                )
            case wire.Keep(lease):
                ensemble.keep(self, lease, answer)
            case wire.Revoke(lease):
                ensemble.propose(self, lambda image: image.revoke(lease), answer_change, needs_room=False)
            case wire.Compact(revision):
                ensemble.propose(self, lambda image: image.compact(revision), answer, needs_room=False)

    # ---- reads ----

    @property
    def _revision(self) -> int:
        """The revision that reads see here: the last applied one, or the compacted one if that is higher."""
        return max(self._disk.applied, self._image.compacted)

    def _found(self, key: str) -> Found:
        revision = self._revision
        return Found(self._image.get(key, revision).entry, revision)

    def _read(self, read: Callable[[], Any], answer: Callable[[Any], None], *, stale: bool = False) -> None:
        def make() -> None:
            try:
                answer(read())
            except KvError as error:
                answer(error)

        if stale:
            make()
            return
        revision = self._ensemble.read_index(self)
        if not revision:
            # It waits for a leader's word until its caller has enough of that.
            return
        if revision <= self._disk.applied:
            make()
        else:
            self._reads.append((revision, make))

    # ---- watches ----

    def _tell_all(self) -> None:
        for (client, watch_id), watch in list(self._watches.items()):
            self._tell(client, watch_id, watch)

    def _tell(self, client: str, watch_id: int, watch: _Watching) -> None:
        try:
            changes = self._image.changes(watch.prefix, watch.seen, self._disk.applied)
        except WatchBroken as error:
            self._break(client, watch_id, error)
            return
        watch.seen = changes.revision
        if changes.entries or changes.deleted:
            self._show(client, watch_id, watch, changes)

    def _show(self, client: str, watch_id: int, watch: _Watching, changes: Changes) -> None:
        watch.told_us = self.now_us
        self.send(client, wire.Told(watch_id, watch.serial, changes))
        watch.serial += 1

    def _break(self, client: str, watch_id: int, error: KvError) -> None:
        watch = self._watches.pop((client, watch_id))
        self.send(client, wire.Broke(watch_id, watch.serial, error))

    def _look(self) -> None:
        """Break watches without a leader; say of the others at times that they live."""
        self.later(LOOK_EVERY_US, self._look)
        if not self.sees_leader:
            # Calls that still wait here get no answer: their callers' patience ends them.
            self._reads.clear()
        for (client, watch_id), watch in list(self._watches.items()):
            if not self.sees_leader:
                self._break(client, watch_id, _leaderless())
            elif self.now_us - watch.told_us >= PROGRESS_S * SECOND_US:
                self._show(client, watch_id, watch, Changes(watch.seen))


def kv_address(index: int) -> str:
    """The address of a member."""
    return f"kv{index}"


def _leaderless() -> KvUnavailable:
    return KvUnavailable("etcdserver: no leader")
