"""A client of the shared store: calls and watches by callbacks, with deadlines and a choice of servers like the real one.

Invariants: each call gets one answer; one that was sent and is a change of keys ends as ambiguous when there is no answer; a
watch hands out everything in order, as a stream does, or breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim import kv_wire as wire
from eslurm.lab.sim.bare_process import BareProcess, Ground
from eslurm.ports.kv import PROGRESS_S, Changes, KvAmbiguous, KvError, KvUnavailable

CALL_US = 3 * SECOND_US
REFUSED_US = 500
GAP_US = SECOND_US
"""A stream whose bytes have not come for so long, though later ones have, is taken for broken."""

Then = Callable[[Any], None]


class _Call(msgspec.Struct):
    """A call under way: the server it is at, and how many have been asked."""

    request: wire.Request
    then: Then
    server: str = ""
    tries: int = 0

    @property
    def is_change(self) -> bool:
        return isinstance(self.request, wire.Swap)


class _Watch(msgspec.Struct):
    """A watch: its server, and what came too early."""

    server: str
    on_changes: Callable[[Changes], None]
    on_end: Callable[[KvError], None]
    heard_us: int
    serial: int = 0
    early: dict[int, wire.Told | wire.Broke] = {}


class KvClient(BareProcess):
    """One process' connection to the store."""

    takes_links = False

    def __init__(self, ground: Ground, address: str, servers: Sequence[str], offset_us: int = 0) -> None:
        super().__init__(ground, address, offset_us)
        self._servers = servers
        self.moves = 0
        """Moves to another server."""
        self._at = 0
        self._last = 0
        self._calls: dict[int, _Call] = {}
        self._watches: dict[int, _Watch] = {}

    # ---- calls ----

    def ask(self, request: wire.Request, then: Then) -> None:
        """Make a call; `then` gets its result or the `KvError`."""
        self._last += 1
        self._calls[self._last] = _Call(request, then)
        self._try(self._last)

    def _try(self, ask_id: int) -> None:
        """Ask the present server."""
        call = self._calls[ask_id]
        call.tries += 1
        server = self._ground.network.find_dialled(self._servers[self._at])
        if not server:
            self.later(REFUSED_US, self._fail, ask_id, call.tries, KvUnavailable("connection refused"))
            return
        call.server = server
        self.send(server, wire.Ask(ask_id, call.request))
        patience_us = CALL_US if call.is_change else CALL_US // len(self._servers)
        error = f"no answer of {server} within {patience_us / 1e6:g} s"
        self.later(patience_us, self._fail, ask_id, call.tries, self._lost(call, error))

    def _lost(self, call: _Call, text: str) -> KvError:
        return KvAmbiguous(text) if call.is_change else KvUnavailable(text)

    def _fail(self, ask_id: int, tries: int, error: KvError) -> None:
        """The call has no answer there; one that has changed nothing goes to the next server."""
        call = self._calls.get(ask_id)
        if call is None or call.tries != tries:
            return
        self._move_on(self._servers[self._at])
        if isinstance(error, KvUnavailable) and call.tries < len(self._servers):
            self._try(ask_id)
        else:
            del self._calls[ask_id]
            call.then(error)

    def _move_on(self, address: str) -> None:
        if self._servers[self._at] == address:
            self._at = (self._at + 1) % len(self._servers)
            self.moves += 1

    def _on_answer(self, source: str, answer: wire.Answer) -> None:
        call = self._calls.get(answer.ask_id)
        if call is None or call.server != source:
            return
        if isinstance(answer.result, KvUnavailable):
            self._fail(answer.ask_id, call.tries, answer.result)
            return
        del self._calls[answer.ask_id]
        call.then(answer.result)

    # ---- watches ----

    def watch(
        self,
        prefix: str,
        revision: int,
        on_changes: Callable[[Changes], None],
        on_end: Callable[[KvError], None],
    ) -> int:
        """Watch keys from a revision on; returns its number."""
        self._last += 1
        number = self._last
        server = self._ground.network.find_dialled(self._servers[self._at])
        self._watches[number] = _Watch(server, on_changes, on_end, self.now_us, early={})
        if server:
            self.send(server, wire.BeginWatch(number, prefix, revision))
            self.later(SECOND_US, self._look_after, number)
        else:
            self.later(REFUSED_US, self._end, number, KvUnavailable("connection refused"))
        return number

    def end_watch(self, number: int) -> None:
        """Nothing of it is wanted any more."""
        watch = self._watches.pop(number, None)
        if watch is not None and watch.server:
            self.send(watch.server, wire.EndWatch(number))

    def _look_after(self, number: int) -> None:
        watch = self._watches.get(number)
        if watch is None:
            return
        if self.now_us - watch.heard_us >= 2 * PROGRESS_S * SECOND_US:
            self._end(number, KvUnavailable(f"{watch.server} is silent"))
        else:
            self.later(SECOND_US, self._look_after, number)

    def _on_told(self, source: str, told: wire.Told | wire.Broke) -> None:
        watch = self._watches.get(told.watch_id)
        if watch is None or watch.server != source:
            return
        watch.early[told.serial] = told
        if told.serial != watch.serial:
            self.later(GAP_US, self._check_gap, told.watch_id, watch.serial)
            return
        watch.heard_us = self.now_us
        while (found := watch.early.pop(watch.serial, None)) is not None:
            watch.serial += 1
            if isinstance(found, wire.Broke):
                self._end(told.watch_id, found.error)
                return
            watch.on_changes(found.changes)
            if self._watches.get(told.watch_id) is not watch:
                return

    def _check_gap(self, number: int, serial: int) -> None:
        watch = self._watches.get(number)
        if watch is not None and watch.serial == serial:
            self._end(number, KvUnavailable(f"the stream of {watch.server} is broken"))

    def _end(self, number: int, error: KvError) -> None:
        watch = self._watches.pop(number, None)
        if watch is None:
            return
        if watch.server:
            self.send(watch.server, wire.EndWatch(number))
        if isinstance(error, KvUnavailable):
            self._move_on(self._servers[self._at])
        watch.on_end(error)

    # ---- in ----

    def on_message(self, source: str, message: Any) -> None:
        """An answer, or something of a watch."""
        if isinstance(message, wire.Answer):
            self._on_answer(source, message)
        elif isinstance(message, wire.Told | wire.Broke):
            self._on_told(source, message)

    def on_link_down(self, peer: str) -> None:
        """A server is gone: its calls and watches are, too."""
        for ask_id, call in list(self._calls.items()):
            if call.server == peer:
                self._fail(ask_id, call.tries, self._lost(call, f"the connection to {peer} has ended"))
        for number, watch in list(self._watches.items()):
            if watch.server == peer:
                self._end(number, KvUnavailable(f"the connection to {peer} has ended"))
