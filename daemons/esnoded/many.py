"""`esnoded --each`: one agent process per node on one host, forked from a parent that has everything imported.

For emulation and benchmarks: a forked agent shares the parent's code and takes a few megabytes of its own. Invariants:
the parent stays single-threaded and makes no gRPC object, so that its children may use gRPC; it outlives its children,
and they end when it does.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import selectors
import signal
from collections.abc import Sequence

import msgspec

# Here, not in the children: what is imported before the fork is shared.
import uvloop  # noqa: F401

from eslurm.core.model.endpoint import split_endpoint
from eslurm.telemetry.logs import name_lines
from eslurm.telemetry.process import EXIT_CANNOT_START, EXIT_FAILED, announce, run_daemon, stop_on_signals
from esnoded.daemon import AgentOptions, NodeDaemon
from esnoded.spool import SpoolError

log = logging.getLogger("esnoded")

STARTING_MAX = 16
"""Children on their way up at one time: more would only wait for the processors."""
_PR_SET_PDEATHSIG = 1
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_HANDLED = (*_STOP_SIGNALS, signal.SIGCHLD)


class CannotStart(Exception):
    """The agents cannot be brought up; the text says why."""


def one_each(options: AgentOptions) -> list[AgentOptions]:
    """The options of each node's own agent: a directory of its own below `state_dir`, and a port of its own.

    Raises ValueError when the ports do not suffice.
    """
    listens = _addresses("--listen", options.listen, len(options.nodes))
    watched = [""] * len(options.nodes)
    if options.metrics_listen:
        watched = _addresses("--metrics-listen", options.metrics_listen, len(options.nodes))
    return [
        AgentOptions(
            cluster=options.cluster,
            nodes=(name,),
            total=options.total,
            satellites=options.satellites,
            controllers=options.controllers,
            credentials=options.credentials,
            supervisor=msgspec.structs.replace(options.supervisor, nodes=name),
            state_dir=options.state_dir / name,
            listen=listens[at],
            controller_socket=options.controller_socket,
            allow_chaos=options.allow_chaos,
            is_one_of_many=True,
            metrics_listen=watched[at],
            tls=options.tls,
            check=options.check,
            health=options.health,
        )
        for at, name in enumerate(options.nodes)
    ]


def _addresses(option: str, first: str, count: int) -> list[str]:
    """Consecutive ports from the first one on; port 0 stays what it is."""
    host, port = split_endpoint(first)
    if port and port + count > 1 << 16:
        raise ValueError(f"{option}: {count} ports from {port} on are more than there are")
    text = f"[{host}]" if ":" in host else host
    return [f"{text}:{port + at if port else 0}" for at in range(count)]


class Nursery:
    """The parent: forks the agents, says once that all serve, passes on SIGTERM and reaps."""

    def __init__(self, agents: Sequence[AgentOptions], loop: str) -> None:
        self._agents = list(agents)
        self._loop = loop
        self._parent = os.getpid()
        self._names: dict[int, str] = {}
        self._ready = 0
        self._stopping = False
        self._failed = False

    def run(self, ready_fd: int | None) -> int:
        """Run the agents until SIGTERM (or until all have ended); the exit status. Raises `CannotStart`."""
        threads = len(os.listdir("/proc/self/task"))
        if threads > 1:
            raise CannotStart(f"{threads} threads run before the agents are forked")
        gc.collect()
        gc.freeze()
        wake_fd, signal_fd = _watch_signals()
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        waiting = list(reversed(self._agents))
        with selectors.DefaultSelector() as selector:
            selector.register(wake_fd, selectors.EVENT_READ)
            selector.register(reader, selectors.EVENT_READ)
            while waiting or self._names:
                while waiting and not self._stopping and self._starting(waiting) < STARTING_MAX:
                    of_parent = (reader, wake_fd, signal_fd, selector.fileno())
                    self._fork(waiting.pop(), writer, of_parent)
                for key, _mask in selector.select():
                    if key.fd == reader:
                        self._count_ready(os.read(reader, 1 << 16), ready_fd)
                    else:
                        self._on_signals(os.read(wake_fd, 1 << 12))
                if self._stopping:
                    waiting.clear()
        if not self._stopping:
            log.error("all agents have ended")
        return EXIT_FAILED if self._failed or not self._stopping else 0

    def _starting(self, waiting: Sequence[AgentOptions]) -> int:
        return len(self._agents) - len(waiting) - self._ready

    def _fork(self, options: AgentOptions, ready_fd: int, of_parent: Sequence[int]) -> None:
        # A signal that came before the child has dropped the parent's handlers would be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        pid = os.fork()
        if pid:
            self._names[pid] = options.nodes[0]
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
            return
        code = EXIT_FAILED
        try:
            for fd in of_parent:
                os.close(fd)
            code = self._be_agent(options, ready_fd)
        except BaseException:
            log.exception("the agent of %s has failed", options.nodes[0])
        finally:
            # The parent's clean-up is none of the child's business.
            os._exit(code)

    def _be_agent(self, options: AgentOptions, ready_fd: int) -> int:
        signal.set_wakeup_fd(-1)
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        _end_with_parent(self._parent)
        name_lines(options.nodes[0])

        async def body() -> None:
            daemon = NodeDaemon(options)
            stop_on_signals(daemon.stop)
            await daemon.run(lambda endpoint: announce(endpoint, ready_fd))

        try:
            options.state_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
            run_daemon("esnoded", body, self._loop, starts_jobs=True)
        except (OSError, SpoolError) as error:
            log.error("cannot start: %s", error)
            return EXIT_CANNOT_START
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else EXIT_FAILED
        return 0

    def _count_ready(self, words: bytes, ready_fd: int | None) -> None:
        before = self._ready
        self._ready += words.count(b"\n")
        if before < len(self._agents) <= self._ready:
            log.info("%d agents serve one node each", self._ready)
            announce(f"{len(self._agents)} agents", ready_fd)

    def _on_signals(self, numbers: bytes) -> None:
        if any(number in _STOP_SIGNALS for number in numbers):
            # Asked twice, they are not asked again.
            self._end_all(signal.SIGKILL if self._stopping else signal.SIGTERM)
        if signal.SIGCHLD in numbers:
            self._reap()

    def _end_all(self, number: signal.Signals) -> None:
        self._stopping = True
        for pid in self._names:
            os.kill(pid, number)

    def _reap(self) -> None:
        while self._names:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            name = self._names.pop(pid, None)
            code = os.waitstatus_to_exitcode(status)
            if name is None or (code == 0 and self._stopping):
                continue
            log.warning("the agent of %s has ended: %s", name, _cause(code))
            if self._ready < len(self._agents) and not self._stopping:
                log.error("not all agents can start: the others are ended")
                self._end_all(signal.SIGTERM)
            # A child killed while all ran was killed on purpose.
            self._failed |= code > 0


def run_many(options: AgentOptions, loop: str, ready_fd: int | None) -> int:
    """One agent process for each node of `options`; the exit status. Raises `CannotStart` or ValueError."""
    return Nursery(one_each(options), loop).run(ready_fd)


def _cause(code: int) -> str:
    return f"exit status {code}" if code >= 0 else signal.Signals(-code).name


def _watch_signals() -> tuple[int, int]:
    """Signals as bytes on a pipe; its ends."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    for number in _HANDLED:
        signal.signal(number, lambda _number, _frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader, writer


def _end_with_parent(parent: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot ask for a signal at the parent's end")
    if os.getppid() != parent:
        raise CannotStart("the parent has ended")
