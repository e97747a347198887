"""The supervisor itself, after `__main__` has made its room: it gives root up, reads the past, and serves.

It is forked from the process that becomes `procd`, and ends with it.
"""

from __future__ import annotations

import gc
import importlib
import os
import selectors
import socket
from collections.abc import Sequence

from eslurm.security.account import Account, drop
from eslurm.telemetry.clocks import wall_us
from esnoded.procd import procfs
from esnoded.stepd.groups import Groups
from esnoded.stepd.journal import Finished, Journal
from esnoded.stepd.processes import Processes
from esnoded.stepd.recovery import lost_steps
from esnoded.stepd.server import Server
from esnoded.stepd.table import StepTable
from esnoded.stepd.terms import SpecReader
from esnoded.stepd.terms import read_spec as read_sealed
from esnoded.stepd.timers import Timers
from esnoded.stepd.wire import Welcome

_READY = b"1"
_LATER = (
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.hashes",
    "cryptography.hazmat.primitives.kdf.hkdf",
)
"""Imported at their first use by others: where Python lies in root's own home, the agent's user cannot."""


def serve(
    path: str,
    end: socket.socket,
    listener: socket.socket,
    welcome: Welcome,
    survivors: Sequence[int],
    account: Account | None,
    ready_fd: int,
    read_spec: SpecReader | None = None,
    base: str = "",
) -> None:
    """Be the supervisor: 1. give root up 2. settle the past 3. say so 4. serve until stopped or long idle.

    `path` is the journal's, `survivors` are processes of an earlier supervisor that `procd` could not end. `read_spec`
    says what an order starts: what is sealed in it, unless a test says otherwise. `base` is the directory of control groups,
    empty: steps have none. Raises OSError.
    """
    if account is not None:
        for name in _LATER:
            importlib.import_module(name)
        drop(account)
        # The agent is of the same user, and speaks with the network.
        procfs.hide()
    journal = Journal(path, welcome.boot_id)
    past = journal.contents
    lost = lost_steps(past.unfinished.values(), survivors, welcome.boot_id, wall_us())
    for outcome in lost:
        journal.add(Finished(outcome))
    journal.commit()
    timers, selector = Timers(), selectors.DefaultSelector()
    processes = Processes(end, read_spec or read_sealed)
    outputs = os.path.join(os.path.dirname(path), "phases")
    groups = Groups(base)
    table = StepTable(processes, groups, journal, timers, selector, [*past.outcomes.values(), *lost], outputs)
    server = Server(table, processes, timers, selector, listener, welcome)
    # What exists now lives as long as the process: keep the collector from touching it.
    gc.collect()
    gc.freeze()
    os.write(ready_fd, _READY)
    os.close(ready_fd)
    server.run()
    journal.close()
