"""The loop of `procd`: one supervisor's requests, and the ends of children. Single-threaded.

Invariant: an exception in one request refuses that request; when the supervisor is gone the loop ends, and with it all that
was started here (see `roundup`).

Children are noticed by SIGCHLD and reaped by `waitid`, not through pidfds: an adopted orphan is a child that no descriptor
is held for, and a descriptor per task would force an open-file limit upon this process that every task inherits. A pid
cannot be recycled under us, since only `reap` and `_drain` ever collect a child.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import StepOrder, StepOutcome
from eslurm.telemetry.clocks import boot_us
from esnoded.procd import procfs, wire
from esnoded.procd.credential import NotAllowed, UserNotAllowed
from esnoded.procd.families import Families, Step
from esnoded.procd.groups import path_of
from esnoded.procd.launches import Launches
from esnoded.procd.log import complain, complain_of, survive
from esnoded.procd.request_checks import Allowed, RequestChecks
from esnoded.procd.rooms import Rooms
from esnoded.procd.spawn import HANDLED_SIGNALS, Bounds, spawn_connector, spawn_task
from esnoded.task.connect import CONNECTOR_US
from esnoded.task.program import Program, SpawnError

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
LeftBehind = Callable[[bool], Sequence[StepOutcome]]
"""Outcomes of a supervisor before version 0.2, if it is gone; with True they are settled, and its files removed. Raises
OSError.
"""
_ASIDES_MAX = 16
"""Warnings of a step: one for each time that its limit is moved."""
_REAPED_MAX = 256
"""Children that are collected between two looks at requests."""


class Procd:
    """`server` is the supervisor's process, a child, which asks at the other end of the channel. `groups` is the directory
    of its steps' control groups; empty: there is none.
    """

    def __init__(
        self,
        channel: wire.Channel[wire.Request],
        checks: RequestChecks,
        launches: Launches,
        instance: str,
        server: int = 0,
        left_behind: LeftBehind = lambda _is_settled: (),
        groups: str = "",
    ) -> None:
        self._channel = channel
        self._checks = checks
        self._launches = launches
        self._instance = instance
        self._server = server
        self._left_behind = left_behind
        self._groups = groups
        self._rooms = Rooms()
        self._draining: set[int] = set()
        self._has_dead = False
        self._families = Families(instance, server)
        self._steps, self._tasks = self._families.steps, self._families.tasks
        self._first, self._connecting = self._families.first, self._families.connecting

    def run(self) -> None:
        """Serve until the supervisor is gone."""
        wake_fd = watch_signals()
        poller = select.poll()
        for fd in (wake_fd, self._channel.fileno()):
            poller.register(fd, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poller.poll(0 if self._has_dead else self._timeout_ms())]
            if wake_fd in ready:
                for signum in os.read(wake_fd, 4096):
                    if signum in _STOP_SIGNALS and self._server:
                        os.kill(self._server, signum)
            if wake_fd in ready or self._has_dead:
                survive("the reaping", self.reap)
            if self._channel.fileno() in ready and not self._serve():
                return
            if self._connecting:
                survive("the end of connectors", self._end_connectors)
            if self._families.is_sweep_wanted:
                survive("the sweep for strays", self._families.sweep)

    def _timeout_ms(self) -> float | None:
        """Milliseconds until there is something to do without a request; None: never."""
        waits_us = [due_us - boot_us() for due_us in self._connecting.values()]
        if self._families.is_sweep_wanted:
            waits_us.append(self._families.sweep_in_us)
        return max(0, min(waits_us)) / 1000 + 1 if waits_us else None

    def _end_connectors(self) -> None:
        """Kill those that their user has stopped; the others end by themselves, also after their step's last task."""
        for pid, due_us in self._connecting.items():
            if due_us <= boot_us():
                procfs.kill_process(pid, signal.SIGKILL)
                self._connecting[pid] = boot_us() + CONNECTOR_US

    def _serve(self) -> bool:
        """Answer one request; False when the supervisor is gone."""
        fds: list[int] = []
        try:
            request, fds = self._channel.receive()
            answer, fd = self.handle(request, fds)
            if not isinstance(request, wire.Over):
                self._answer(answer, fd)
            elif isinstance(answer, wire.Refused):
                complain(f"the end of steps: {answer.text}")
        except wire.BadMessage as error:
            self._answer(wire.Refused(str(error)))
        except (EOFError, ConnectionError):
            return False
        finally:
            wire.close_all(fds)
        return True

    def _answer(self, answer: wire.Told, fd: int = -1) -> None:
        try:
            self._channel.send(answer, [fd] if fd >= 0 else [])
        except ConnectionError:
            raise
        except OSError as error:
            # No descriptor for an answer of this size: a short one needs none.
            self._channel.send(wire.Refused(str(error)))
        finally:
            if fd >= 0:
                os.close(fd)

    def handle(self, request: wire.Request, fds: Sequence[int]) -> tuple[wire.Answer, int]:
        """The answer, and a descriptor that goes with it (-1: none)."""
        try:
            return self._handle(request, fds)
        except (SpawnError, NotAllowed, ValueError) as error:
            exit_code = error.exit_code if isinstance(error, SpawnError) else 1
            return wire.Refused(str(error), exit_code, isinstance(error, UserNotAllowed)), -1
        except OSError as error:
            return wire.Refused(f"{error.strerror or error}"), -1
        except Exception as error:
            return wire.Refused(complain_of("a request", error)), -1

    def _handle(self, request: wire.Request, fds: Sequence[int]) -> tuple[wire.Answer, int]:
        answer: wire.Answer = wire.Done()
        report_fd = -1
        kinds = wire.kinds_of(fds)
        if kinds != {wire.Spawn: kinds, wire.Connect: "s"}.get(type(request), ""):
            raise NotAllowed("descriptors that do not belong to the request")
        match request:
            case wire.Admit(order):
                self._admit(order)
            case wire.Spawn(key):
                answer, report_fd = self._spawn(self._step(key), request, fds)
            case wire.Connect(key):
                self._connect(self._step(key), fds[0])
            case wire.Deliver(deliveries):
                self._families.deliver(deliveries)
            case wire.Over(keys):
                self._end(keys)
            case wire.Vacate(attempts):
                self._rooms.close(attempts)
            case wire.Trust(ring):
                self._checks.trust(ring)
            case wire.Refresh():
                answer = wire.Refreshed(*self._checks.refresh(), tuple(self._left_behind(False)))
            case wire.Settled():
                self._left_behind(True)
        return answer, report_fd

    def _step(self, key: StepKey) -> Step:
        if key not in self._steps:
            raise NotAllowed(f"step {key} was not admitted, or is over")
        return self._steps[key]

    def _admit(self, order: StepOrder) -> None:
        known = self._steps.get(order.key)
        if known is not None and known.is_begun:
            raise NotAllowed(f"step {order.key} was launched before: a credential starts it once")
        if known is not None:
            self._end([order.key])
        if len(self._steps) >= wire.STEPS_MAX:
            raise NotAllowed(f"{len(self._steps)} steps are admitted")
        self._steps[order.key] = Step(self._checks.admit(order))

    def _begin(self, step: Step) -> None:
        if not step.is_begun:
            self._checks.begin(step.allowed)
            step.is_begun = True

    def _spawn(self, step: Step, asked: wire.Spawn, fds: Sequence[int]) -> tuple[wire.Answer, int]:
        allowed, local = step.allowed, asked.local
        mark = f"{self._instance}/{allowed.key}"
        program = Program(allowed.make, mark, local, limit_s=allowed.limit_s)
        is_task = asked.ended is None and asked.seconds_left is None
        if fds and not is_task:
            raise NotAllowed("descriptors that do not belong to the request")
        if asked.ended is not None:
            if local not in step.started or local in step.followed or not allowed.limit_s:
                raise NotAllowed(f"step {allowed.key} has no task {local} that an epilog follows")
            step.followed.add(local)
            program = replace(program, epilog=self._checks.task_epilog(), ended=asked.ended)
        elif asked.seconds_left is not None:
            if not allowed.warns or not step.started or local or step.asides >= _ASIDES_MAX:
                raise NotAllowed(f"step {allowed.key} has no warning to be given")
            step.asides += 1
            program = replace(program, seconds_left=asked.seconds_left)
        else:
            if local >= allowed.tasks or local in step.started:
                raise NotAllowed(f"step {allowed.key} has no task {local} that was not started")
            if wire.kinds_of(fds) not in allowed.streams:
                raise NotAllowed("the credential has output and input in other files or pipes")
            self._begin(step)
            step.started.add(local)
            program = replace(program, pipes=tuple(fds) or None, prolog=allowed.prolog)
        pid, report_fd = spawn_task(allowed.user, program, self._channel.fileno(), self._bounds(allowed))
        self._tasks[pid] = allowed.key
        if is_task and local == 0:
            self._first[allowed.key] = pid
        self._launches.began(pid, procfs.start_ticks_of(pid))
        return wire.Spawned(pid), report_fd

    def _bounds(self, allowed: Allowed) -> Bounds:
        key, options = allowed.key, self._checks.options
        group = path_of(self._groups, key) if self._groups else ""
        has_room = options.private_dirs and os.geteuid() == 0 and not key.is_phase
        room = self._rooms.find(key, options.private_dirs, options.private_dirs_mib) if has_room else -1
        return Bounds(group, room, not options.allow_set_user_id)

    def _connect(self, step: Step, fd: int) -> None:
        allowed = step.allowed
        if "" in allowed.streams or allowed.key.is_phase or allowed.key.is_gateway or not step.connects:
            raise NotAllowed(f"step {allowed.key} has no listener to connect to (any more)")
        self._begin(step)
        step.connects -= 1
        pid = spawn_connector(allowed.user, allowed.make, fd)
        self._connecting[pid] = boot_us() + CONNECTOR_US

    def _end(self, keys: Sequence[StepKey]) -> None:
        ended = {key: step.uid for key in keys if (step := self._steps.pop(key, None)) is not None}
        self._families.former.update(ended.values())
        for key in ended:
            self._first.pop(key, None)
            self._checks.release(key)
        for pid in [pid for pid, key in self._tasks.items() if key in ended]:
            procfs.kill_process(pid, signal.SIGKILL)
            procfs.kill_group(pid, signal.SIGKILL)
        self._families.is_sweep_wanted |= bool(ended)

    def reap(self) -> None:
        """Collect dead children, of which steps may leave more than are collected meanwhile: the others the next time."""
        self._has_dead = False
        for _ in range(_REAPED_MAX):
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if info is None:
                break
            self._collect(info.si_pid)
        else:
            self._has_dead = True
        for group in tuple(self._draining):
            used, is_drained = self._drain(group)
            if is_drained:
                self._draining.discard(group)
                self._answer(wire.Drained(group, used))

    def _collect(self, pid: int) -> None:
        """Collect a dead child. A task's group is killed while the zombie still guards its number."""
        is_task = self._tasks.pop(pid, None) is not None
        if is_task:
            procfs.kill_group(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        if is_task:
            self._launches.ended(pid)
            used, is_drained = self._drain(pid)
            if not is_drained:
                self._draining.add(pid)
            self._answer(wire.Exited(pid, status, (usage[:3], *used), is_drained))
        elif pid == self._server:
            self._server = 0
        self._connecting.pop(pid, None)

    def _drain(self, group: int) -> tuple[tuple[wire.Usage, ...], bool]:
        """Collect what is left of a killed group, and say whether that is all; its members are ours to collect once their
        leader is gone."""
        used: list[wire.Usage] = []
        while True:
            try:
                pid, _, usage = os.wait4(-group, os.WNOHANG)
            except ChildProcessError:
                return tuple(used), True
            if pid == 0:
                return tuple(used), False
            used.append(usage[:3])


def watch_signals() -> int:
    """Turn the signals this process handles into bytes on a pipe; returns its read end."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    for signum in HANDLED_SIGNALS:
        signal.signal(signum, lambda _signum, _frame: None)
    # A full pipe loses nothing: a byte that wakes the loop is in it.
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    return read_fd
