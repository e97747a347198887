"""A stranger that reads and swaps one key of the store all the time, and keeps what it saw: is that linearizable?

Invariant: every value that it writes is new.
"""

from __future__ import annotations

import random
from typing import Any

from eslurm.core.model.units import SECOND_US
from eslurm.lab.kv.linearizable import Call
from eslurm.lab.sim import kv_wire as wire
from eslurm.lab.sim.bare_process import Ground
from eslurm.lab.sim.kv_client import KvClient
from eslurm.ports.kv import Entry, Expect, KvAmbiguous, KvError, Put

KEY = "/probe/register"
CALLS_MAX = 60
READ_SHARE = 0.4


class Probe:
    """One of several; all append to one `history`."""

    def __init__(
        self, ground: Ground, number: int, servers: tuple[str, ...], seed: str, history: list[Call]
    ) -> None:
        self._name = f"probe{number}"
        self._client = KvClient(ground, self._name, servers)
        self._random = random.Random(f"{seed}/{self._name}")
        self._history = history
        self._ground = ground
        self._known: Entry | None = None
        self._serial = 0
        ground.network.attach(self._client)

    def start(self, until_us: int) -> None:
        """Go on until then."""
        self._until_us = until_us
        self._pause()

    def _pause(self) -> None:
        if self._serial < CALLS_MAX:
            self._client.later(int(self._random.expovariate(0.7) * SECOND_US), self._call)

    def _call(self) -> None:
        begin_us = self._ground.scheduler.at_us
        if begin_us >= self._until_us:
            return
        self._serial += 1
        if self._random.random() < READ_SHARE:
            self._client.ask(wire.Get(KEY), lambda found: self._read(begin_us, found))
            return
        known, written = self._known, f"{self._name}-{self._serial}".encode()
        swap = wire.Swap((Expect(KEY, known.version if known else 0),), (Put(KEY, written),))
        expected = known.value if known else None
        self._client.ask(swap, lambda answer: self._swapped(begin_us, expected, written, answer))

    def _read(self, begin_us: int, found: Any) -> None:
        if not isinstance(found, KvError):
            self._known = found.entry
            value = self._known.value if self._known else None
            self._history.append(Call(begin_us, self._ground.scheduler.at_us, value))
        self._pause()

    def _swapped(self, begin_us: int, expected: bytes | None, written: bytes, answer: Any) -> None:
        now_us = self._ground.scheduler.at_us
        if isinstance(answer, KvAmbiguous):
            call = Call(begin_us, now_us, is_swap=True, expected=expected, written=written, done=None)
            self._history.append(call)
            self._known = None
        elif not isinstance(answer, KvError):
            self._known = answer.current[KEY]
            seen = self._known.value if self._known else None
            call = Call(
                begin_us, now_us, seen, is_swap=True, expected=expected, written=written, done=answer.done
            )
            self._history.append(call)
        self._pause()
