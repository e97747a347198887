"""`eslurm chaos`: let nodes, satellites and controllers of a personal cluster fail, and heal them.

Nodes that share a process fail inside it, through its private socket, which also times `--for`. A controller, a satellite,
or an agent with a single node, is killed or stopped as a process. Invariant: everything is checked before anything fails,
and this command undoes its own failures even when it is interrupted.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Collection, Sequence

import msgspec

from escli.errors import ClusterError, Interrupted, unusable
from escli.interrupts import Interrupts
from escli.local import processes
from escli.local.chaos_client import ask
from escli.local.controller import ping_and_roles
from escli.local.layout import MAIN, Layout, controller_daemon, is_supervised, locked
from escli.local.plan import ESTIMATOR, Programs, daemons_of
from escli.local.record import AgentRecord, ClusterRecord, DaemonRecord
from escli.local.settings import load_config
from escli.local.start import start_all
from eslurm.compat.errors import OptionError
from eslurm.compat.hostlist import expand, fold
from eslurm.faults.chaos_socket import ChaosRequest, Struck

MODES = {"kill": "dead", "hang": "silent", "slow": "slow", "partition": "partitioned"}
WAYS = {"out": "cut-out", "in": "cut-in"}
"""Modes of `cut`, by its direction."""
STRIKES = (*MODES, "cut")
ACTIONS = (*STRIKES, "heal", "show")
DELAY_DEFAULT_US = 500_000
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 5.0
_STOP_POLL_S = 0.005
_FENCED_S = 2.0
_FENCED_MAX_S = 20.0
_SEEDS = 1_000_000
_TEXT_MAX = 60

Tell = Callable[[str], None]


class Request(msgspec.Struct, frozen=True):
    """The command line. `share` is a part of the nodes, 0 to 1; `names` are controllers and satellites; `one_way` is one
    of `WAYS`, for `cut`.
    """

    action: str
    nodes: str = ""
    satellites: tuple[str, ...] = ()
    share: float | None = None
    for_us: int | None = None
    delay_us: int | None = None
    seed: int | None = None
    names: tuple[str, ...] = ()
    one_way: str = ""

    @property
    def mode(self) -> str:
        """The mode of failure."""
        return WAYS[self.one_way] if self.action == "cut" else MODES[self.action]

    @property
    def names_something(self) -> bool:
        """Check whether it names nodes or daemons, instead of all."""
        return bool(self.nodes or self.names_daemons or self.share is not None)

    @property
    def names_daemons(self) -> bool:
        """Check whether it names satellites or controllers."""
        return bool(self.satellites or self.names)


class Failed(msgspec.Struct, frozen=True):
    """One kind of failure that holds now. For nodes `satellite`, `controller` and `estimator` are empty.

    `left_s` is None for one without an end.
    """

    mode: str
    nodes: str = ""
    count: int = 0
    satellite: str = ""
    left_s: float | None = None
    delay_ms: float = 0.0
    controller: str = ""
    estimator: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """The actions taken, and all failures in force in the cluster."""

    action: str
    nodes: int = 0
    satellites: tuple[str, ...] = ()
    seed: int | None = None
    failed: tuple[Failed, ...] = ()
    controllers: tuple[str, ...] = ()


class _Targets(msgspec.Struct, frozen=True):
    """By name of their daemon: folded nodes to fail inside it; and daemons to fail as a whole."""

    inside: dict[str, str]
    whole: tuple[str, ...]
    satellites: tuple[str, ...]
    nodes: int
    seed: int | None


class Chaos:
    """The failures of one cluster. Raises `ClusterError` for what cannot be done; then nothing was changed."""

    def __init__(
        self, layout: Layout, record: ClusterRecord, programs: Programs, interrupts: Interrupts, tell: Tell
    ) -> None:
        self._layout = layout
        self._record = record
        self._programs = programs
        self._interrupts = interrupts
        self._tell = tell
        self._killed: set[str] = set()
        """Daemons killed by this command: the supervising `eslurm up` may already be restarting them."""
        config = load_config(layout, record.cluster)
        # The daemon is named by position, the satellite as its configuration says.
        self._satellites = {one.name: f"sat{at}" for at, one in enumerate(config.satellite, 1)}
        names = [MAIN, *(one.name for one in record.standbys)]
        self._controllers = {name: controller_daemon(name) for name in names}
        # What can only be struck as a whole.
        self._wholes = self._controllers | ({ESTIMATOR: ESTIMATOR} if record.estimator else {})

    def do(self, request: Request) -> Outcome:
        """Carry out a request; returns the failures afterwards."""
        _check(request)
        targets = self._choose(request)
        if request.action == "heal":
            self._heal(targets)
        elif request.action != "show":
            self._strike(request, targets)
        satellites = tuple(name for name, daemon in self._satellites.items() if daemon in targets.satellites)
        controllers = tuple(name for name, daemon in self._controllers.items() if daemon in targets.whole)
        return Outcome(request.action, targets.nodes, satellites, targets.seed, self.look(), controllers)

    # ---- targets ----

    def _choose(self, request: Request) -> _Targets:
        seed = request.seed
        if request.share is not None and seed is None:
            seed = random.SystemRandom().randrange(_SEEDS)
        chosen = set(self._nodes(request, seed))
        whole: list[str] = []
        inside: dict[str, str] = {}
        for agent in self._record.agents:
            names = [name for name in _names(agent) if name in chosen]
            if names and request.action in ("kill", "hang", "heal") and len(_names(agent)) == 1:
                whole.append(agent.name)
            if names and (agent.name not in whole or request.action == "heal"):
                inside[agent.name] = fold(names)
        controllers, satellites = self._daemons(request)
        if request.action == "heal" and not request.names_something:
            controllers, satellites = list(self._wholes.values()), list(self._satellites.values())
        whole += controllers
        return _Targets(inside, tuple(whole), tuple(satellites), len(chosen), seed)

    def _nodes(self, request: Request, seed: int | None) -> Sequence[str]:
        known = [name for agent in self._record.agents for name in _names(agent)]
        if request.action == "show" or (
            request.names_daemons and not request.nodes and request.share is None
        ):
            return ()
        names = known
        if request.nodes:
            try:
                names = list(dict.fromkeys(expand(request.nodes, "--nodes")))
            except OptionError as error:
                raise unusable(str(error)) from None
            unknown = sorted(set(names) - set(known))
            if unknown:
                raise unusable(f"--nodes: {_some(unknown)}: not in this cluster, which has {_some(known)}")
        if request.share is None:
            return names
        return random.Random(seed).sample(names, round(request.share * len(names)))

    def _daemons(self, request: Request) -> tuple[list[str], list[str]]:
        """Daemons of the controllers (and the estimator), and of the satellites that are named."""
        satellites = [self._satellite(name) for name in request.satellites]
        controllers = []
        for name in request.names:
            if name in self._wholes:
                controllers.append(self._wholes[name])
            elif name in self._satellites:
                satellites.append(self._satellites[name])
            else:
                known = ", ".join((*self._wholes, *self._satellites))
                raise unusable(f"NAME: there is no {name}: use some of {known}, or --nodes for nodes")
        if controllers and request.action in ("slow", "partition"):
            raise unusable(
                f"eslurm chaos {request.action}: {_whole_kind(controllers)} can be killed or hung: use kill or hang"
            )
        return controllers, satellites

    def _satellite(self, name: str) -> str:
        daemon = self._satellites.get(name)
        if daemon is None:
            raise unusable(
                f"--satellite: there is no {name}: the cluster has {', '.join(self._satellites) or 'none'}"
            )
        return daemon

    # ---- striking ----

    def _strike(self, request: Request, targets: _Targets) -> None:
        by_signal = list(targets.whole)
        through_socket = [(name, nodes) for name, nodes in targets.inside.items()]
        if request.action in ("kill", "hang"):
            by_signal += targets.satellites
        else:
            through_socket += [(name, "") for name in targets.satellites]
        for name in (*by_signal, *(name for name, _ in through_socket)):
            self._get_alive(name)
        for name, nodes in through_socket:
            order = ChaosRequest(
                request.mode,
                nodes,
                request.for_us,
                DELAY_DEFAULT_US if request.delay_us is None else request.delay_us,
            )
            ask(self._layout, name, order)
        if by_signal:
            self._strike_processes(request, by_signal)

    def _strike_processes(self, request: Request, names: Sequence[str]) -> None:
        is_kill = request.action == "kill"
        try:
            for name in names:
                self._signal(self._get_alive(name), signal.SIGKILL if is_kill else signal.SIGSTOP)
            if request.for_us is not None:
                self._wait(request.for_us, names)
        finally:
            if request.for_us is not None:
                self._revive(names)
        if is_kill and is_supervised(self._layout):
            self._tell(
                f"{', '.join(names)}: the `eslurm up` that watches the cluster starts it again at once; "
                "`hang` keeps it away"
            )

    def _wait(self, for_us: int, names: Sequence[str]) -> None:
        self._tell(
            f"{', '.join(names)}: {for_us / 1e6:g} s, kept by this command: Ctrl-C ends it early and heals"
        )
        deadline_s = time.monotonic() + for_us / 1e6
        try:
            while (left_s := deadline_s - time.monotonic()) > 0:
                self._interrupts.wait((), left_s)
        except Interrupted:
            self._tell("interrupted: healing")

    # ---- healing ----

    def _heal(self, targets: _Targets) -> None:
        failed = [name for name in targets.inside if self._process_mode(name)]
        self._revive(dict.fromkeys((*targets.whole, *failed, *targets.satellites)))
        for name, nodes in targets.inside.items():
            ask(self._layout, name, ChaosRequest("heal", nodes))
        for name in targets.satellites:
            ask(self._layout, name, ChaosRequest("heal"))

    def _revive(self, names: Collection[str]) -> None:
        """Stopped processes go on, dead ones are started."""
        dead = []
        for name in names:
            daemon = self._record.find(name)
            if daemon is None or not processes.is_alive(daemon.identity):
                dead.append(name)
                continue
            was_stopped = processes.is_stopped(daemon.identity)
            self._signal(daemon, signal.SIGCONT)
            if was_stopped and self._ends_fenced(daemon):
                dead.append(name)
        if dead:
            self._start(dead)
        self._killed.difference_update(names)

    def _ends_fenced(self, daemon: DaemonRecord) -> bool:
        """Check whether it was a leader that ends when it resumes, because another one has taken over."""
        if daemon.kind != "esctld" or not self._record.standbys:
            return False
        deadline_s = time.monotonic() + _FENCED_MAX_S
        while processes.wait_all([daemon.identity], _FENCED_S):
            if time.monotonic() > deadline_s or not self._is_led_without(daemon):
                return False
        return True

    def _is_led_without(self, daemon: DaemonRecord) -> bool:
        """Check whether the others have a leader that does not list this controller."""
        own = str(self._layout.directory / f"{daemon.name}.sock")
        # Its own word is what it knew before it was stopped.
        others = [socket for socket in self._layout.sockets(self._record) if socket != own]
        _, roles = ping_and_roles(others)
        return bool(roles) and daemon.name not in map(controller_daemon, roles)

    def _start(self, names: Collection[str]) -> None:
        with locked(self._layout):
            record = self._layout.get_record()
            config = load_config(self._layout, record.cluster)
            # The supervising `eslurm up` may have been faster.
            missing = [
                planned
                for planned in daemons_of(self._layout, config, record)
                if planned.name in names and not _runs(record.find(planned.name))
            ]
            self._record = start_all(
                self._layout,
                record,
                missing,
                self._programs,
                self._interrupts,
                _START_TIMEOUT_S,
                lambda name, seconds: self._tell(f"{name} is ready again ({seconds:.1f} s)"),
            )

    # ---- looking ----

    def look(self) -> tuple[Failed, ...]:
        """Every failure in force."""
        found: list[Failed] = []
        for agent in self._record.agents:
            process_mode = self._process_mode(agent.name)
            if process_mode:
                _add(found, Failed(process_mode), _names(agent))
                continue
            for struck in ask(self._layout, agent.name, ChaosRequest("show")).struck:
                _add(found, _failed(struck), expand(struck.nodes, "nodes"))
        for name, daemon in self._controllers.items():
            process_mode = self._process_mode(daemon)
            if process_mode:
                found.append(Failed(process_mode, controller=name))
        if ESTIMATOR in self._wholes and (process_mode := self._process_mode(ESTIMATOR)):
            found.append(Failed(process_mode, estimator=ESTIMATOR))
        for name, daemon in self._satellites.items():
            process_mode = self._process_mode(daemon)
            if process_mode:
                found.append(Failed(process_mode, satellite=name))
                continue
            shown = ask(self._layout, daemon, ChaosRequest("show")).struck
            found += [msgspec.structs.replace(_failed(struck), satellite=name) for struck in shown]
        return tuple(found)

    def _process_mode(self, name: str) -> str:
        """The failure of the process as a whole; empty when it runs."""
        daemon = self._layout.get_record().find(name)
        if daemon is None or not _runs(daemon) or name in self._killed:
            return MODES["kill"]
        return MODES["hang"] if processes.is_stopped(daemon.identity) else ""

    # ---- processes ----

    def _get_alive(self, name: str) -> DaemonRecord:
        daemon = self._record.find(name)
        if daemon is None or not _runs(daemon):
            raise ClusterError(f"{name} does not run: `eslurm up` or `eslurm chaos heal` starts it")
        return daemon

    def _signal(self, daemon: DaemonRecord, signum: int) -> None:
        """Signal it, and wait until the kernel has stopped or ended it, so that its state can be shown."""
        if not processes.signal_one(daemon.identity, signum):
            raise ClusterError(f"{daemon.name} has just ended")
        if signum == signal.SIGKILL:
            stuck = bool(processes.wait_all([daemon.identity], _STOP_TIMEOUT_S))
            self._killed.add(daemon.name)
        else:
            deadline_s = time.monotonic() + _STOP_TIMEOUT_S
            wanted = signum == signal.SIGSTOP
            while (
                stuck := processes.is_stopped(daemon.identity) != wanted
            ) and time.monotonic() < deadline_s:
                time.sleep(_STOP_POLL_S)
        if stuck:
            raise ClusterError(f"{daemon.name} does not take the signal, it is stuck in the kernel")


def _check(request: Request) -> None:
    strikes = request.action in STRIKES
    if request.action == "cut" and not request.one_way:
        raise unusable(
            "eslurm chaos cut: which way? add --one-way out or --one-way in; `partition` cuts both"
        )
    if request.one_way and request.action != "cut":
        raise unusable(f"--one-way: is for `cut`, not for `{request.action}`")
    if request.action == "cut" and request.names_daemons:
        raise unusable(
            "eslurm chaos cut: only nodes can be cut off one way: name them with --nodes or --share"
        )
    if strikes and not request.names_something:
        raise unusable(
            f"eslurm chaos {request.action}: whom? name nodes (--nodes cn[01-04]), a part of them (--share 30%), "
            "a satellite or a controller (sat1, main)"
        )
    for option, value in (("--for", request.for_us), ("--delay", request.delay_us)):
        if value is not None and not strikes:
            raise unusable(f"{option}: means nothing to `{request.action}`: leave it out")
    if request.delay_us is not None and request.action != "slow":
        raise unusable(f"--delay: is for `slow`, not for `{request.action}`")
    if request.seed is not None and request.share is None:
        raise unusable("--seed: goes with --share")
    if request.action == "show" and request.names_something:
        raise unusable(
            "eslurm chaos show: shows everything: leave names, --nodes, --share and --satellite out"
        )


def _whole_kind(daemons: Sequence[str]) -> str:
    return ESTIMATOR if daemons[0] == ESTIMATOR else "a controller"


def _names(agent: AgentRecord) -> list[str]:
    return list(expand(agent.nodes, "nodes"))


def _some(names: Sequence[str]) -> str:
    """A folded list, cut where it gets long."""
    text = fold(names)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."


def _runs(daemon: DaemonRecord | None) -> bool:
    return daemon is not None and processes.is_alive(daemon.identity)


def _failed(struck: Struck) -> Failed:
    left_s = None if struck.left_us is None else round(struck.left_us / 1e6, 1)
    return Failed(struck.mode, left_s=left_s, delay_ms=struck.delay_us / 1000)


def _add(found: list[Failed], kind: Failed, names: Sequence[str]) -> None:
    """Add nodes with the same failure. Processes were asked one after the other, so their times differ a little."""
    for at, other in enumerate(found):
        if (other.mode, other.delay_ms) == (kind.mode, kind.delay_ms) and _is_near(other.left_s, kind.left_s):
            names = [*expand(other.nodes, "nodes"), *names]
            del found[at]
            kind = msgspec.structs.replace(kind, left_s=other.left_s)
            break
    found.append(msgspec.structs.replace(kind, nodes=fold(names), count=len(names)))


def _is_near(one_s: float | None, other_s: float | None) -> bool:
    if one_s is None or other_s is None:
        return one_s is other_s
    return abs(one_s - other_s) <= 1.0
