"""The foreground of `eslurm up`: watch the daemons, report a death, restart a few times.

Invariant: the record decides what should run. A daemon that is no longer in it was stopped by `eslurm down` and stays
stopped; when none is left the watch ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from escli.errors import ClusterError, Interrupted
from escli.interrupts import Interrupts
from escli.local import processes
from escli.local.layout import Layout, locked
from escli.local.plan import Planned, Programs, daemons_of
from escli.local.processes import Identity
from escli.local.record import ClusterRecord, DaemonRecord
from escli.local.settings import load_config
from escli.local.start import log_tail, start_all

RESTARTS_MAX = 3
RESTART_WINDOW_S = 600.0
_RESTART_TIMEOUT_S = 60.0
_LOOK_AGAIN_S = 5.0


def planned_by_config(layout: Layout, record: ClusterRecord) -> list[Planned]:
    """The daemons that a cluster should have."""
    return daemons_of(layout, load_config(layout, record.cluster), record)


class Watch:
    """Keeps the daemons of one record running until it is interrupted. `plan` says how each is started."""

    def __init__(
        self,
        layout: Layout,
        programs: Programs,
        interrupts: Interrupts,
        tell: Callable[[str], None],
        plan: Callable[[Layout, ClusterRecord], list[Planned]] = planned_by_config,
    ) -> None:
        self._layout = layout
        self._programs = programs
        self._interrupts = interrupts
        self._tell = tell
        self._plan = plan
        self._restarts: dict[str, list[float]] = {}
        self._given_up: set[Identity] = set()

    def run(self) -> bool:
        """Watch until told to stop (false) or until another command has stopped the cluster (true)."""
        return watch([self], self._interrupts)

    def daemons(self) -> list[DaemonRecord] | None:
        """The daemons to watch, without those that are left dead; None when there are none, or no cluster any more."""
        try:
            record = self._layout.get_record()
        except ClusterError:
            if self._layout.record_file.exists():
                raise
            return None  # Removed by `eslurm down --purge`.
        if not record.daemons:
            return None
        return [daemon for daemon in record.daemons if daemon.identity not in self._given_up]

    def on_dead(self, dead: list[DaemonRecord]) -> None:
        """Start daemons again that have ended."""
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
        planned = [one for one in self._plan(self._layout, record) if one.name == name]
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


def watch(watches: Sequence[Watch], interrupts: Interrupts) -> bool:
    """Watch until told to stop (false) or until other commands have stopped everything (true)."""
    try:
        while True:
            found = {one: daemons for one in watches if (daemons := one.daemons()) is not None}
            if not found:
                return True
            for one, dead in _wait(found, interrupts).items():
                _settle(one, dead)
    except Interrupted:
        return False


def _settle(one: Watch, dead: list[DaemonRecord]) -> None:
    try:
        one.on_dead(dead)
    except Interrupted:
        raise
    except ClusterError:
        if one.daemons() is not None:
            raise


def _wait(
    found: Mapping[Watch, list[DaemonRecord]], interrupts: Interrupts
) -> dict[Watch, list[DaemonRecord]]:
    """The daemons that died, at once or after a while; records are read anew every few seconds."""
    watched: dict[int, tuple[Watch, DaemonRecord]] = {}
    dead: dict[Watch, list[DaemonRecord]] = {}
    try:
        for one, daemons in found.items():
            for daemon in daemons:
                pidfd = processes.open_pidfd(daemon.identity)
                if pidfd is None:
                    dead.setdefault(one, []).append(daemon)
                else:
                    watched[pidfd] = (one, daemon)
        for pidfd in interrupts.wait(list(watched), 0.0 if dead else _LOOK_AGAIN_S):
            one, daemon = watched[pidfd]
            dead.setdefault(one, []).append(daemon)
        return dead
    finally:
        for pidfd in watched:
            os.close(pidfd)
