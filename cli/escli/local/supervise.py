"""The foreground of `eslurm up`: watch the daemons, report a death, restart a few times.

Invariant: the record decides what should run. A daemon that is no longer in it was stopped by `eslurm down` and stays
stopped; when none is left the watch ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from escli.errors import ClusterError, Interrupted
from escli.interrupts import Interrupts
from escli.local import processes
from escli.local.layout import Layout, locked
from escli.local.plan import Programs, daemons_of
from escli.local.processes import Identity
from escli.local.record import ClusterRecord, DaemonRecord
from escli.local.settings import load_config
from escli.local.start import log_tail, start_all

RESTARTS_MAX = 3
RESTART_WINDOW_S = 600.0
_RESTART_TIMEOUT_S = 60.0
_LOOK_AGAIN_S = 5.0


class Watch:
    """Keeps the daemons of one cluster running until it is interrupted."""

    def __init__(
        self, layout: Layout, programs: Programs, interrupts: Interrupts, tell: Callable[[str], None]
    ) -> None:
        self._layout = layout
        self._programs = programs
        self._interrupts = interrupts
        self._tell = tell
        self._restarts: dict[str, list[float]] = {}
        self._given_up: set[Identity] = set()

    def run(self) -> bool:
        """Watch until told to stop (false) or until another command has stopped the cluster (true)."""
        try:
            while True:
                record = self._layout.get_record()
                if not record.daemons:
                    return True
                dead = self._wait(record)
                if dead:
                    self._on_dead(dead)
        except Interrupted:
            return False
        except ClusterError:
            if self._layout.record_file.exists():
                raise
            return True  # Removed by `eslurm down --purge`.

    def _wait(self, record: ClusterRecord) -> list[DaemonRecord]:
        """The daemons that died, at once or after a while; reads the record anew every few seconds."""
        watched: dict[int, DaemonRecord] = {}
        dead = []
        try:
            for daemon in record.daemons:
                if daemon.identity in self._given_up:
                    continue
                pidfd = processes.open_pidfd(daemon.identity)
                if pidfd is None:
                    dead.append(daemon)
                else:
                    watched[pidfd] = daemon
            ready = self._interrupts.wait(list(watched), 0.0 if dead else _LOOK_AGAIN_S)
            return [*dead, *(watched[pidfd] for pidfd in ready)]
        finally:
            for pidfd in watched:
                os.close(pidfd)

    def _on_dead(self, dead: list[DaemonRecord]) -> None:
        for daemon in dead:
            processes.reap(daemon.identity.pid)
        with locked(self._layout):
            # The lock's former holder may have stopped or replaced them.
            record = self._layout.get_record()
            for daemon in dead:
                if record.find(daemon.name) == daemon:
                    record = self._restart(record, daemon)

    def _restart(self, record: ClusterRecord, daemon: DaemonRecord) -> ClusterRecord:
        name = daemon.name
        now_s = time.monotonic()
        recent = [at for at in self._restarts.get(name, []) if now_s - at < RESTART_WINDOW_S]
        if len(recent) >= RESTARTS_MAX:
            self._given_up.add(daemon.identity)
            self._tell(f"{name} died again and is left so; the end of its log:")
            self._tell_log(name)
            self._tell("`eslurm up` in another terminal tries it again")
            return record
        self._restarts[name] = [*recent, now_s]
        self._tell(f"{name} (pid {daemon.identity.pid}) died; starting it again; the end of its log:")
        self._tell_log(name)
        config = load_config(self._layout, record.cluster)
        planned = [one for one in daemons_of(self._layout, config, record) if one.name == name]
        try:
            return start_all(
                self._layout,
                record,
                planned,
                self._programs,
                self._interrupts,
                _RESTART_TIMEOUT_S,
                lambda _name, seconds: self._tell(f"{name} is ready again ({seconds:.1f} s)"),
            )
        except Interrupted:
            raise
        except ClusterError as error:
            self._tell(error.text)
            for line in error.tail:
                self._tell(f"    {line}")
            return self._layout.get_record()

    def _tell_log(self, name: str) -> None:
        for line in log_tail(self._layout.log_of(name), 3):
            self._tell(f"    {line}")
