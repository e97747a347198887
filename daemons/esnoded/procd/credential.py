"""Checks of a sealed command against this host. `procd` acts on nothing else that names a process's user.

A launch credential is a `Command` as a controller has sealed it: `Prepare` with `start`, `Start`, or `LaunchStep`, each
with the `JobLaunch`; any `Prepare` or `Start` of the attempt permits the phases that it names. Invariant: a command that
passes `Warrants.launch` was sealed by a key of this site for this cluster, for a node of this host, for exactly this step,
is in date (an epilog's: was), and runs as a user that root has not excluded. Pure: no file, no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import msgspec

from eslurm.compat.errors import OptionError
from eslurm.compat.hostlist import expand
from eslurm.core.model.earlier_launch import decode_command
from eslurm.core.model.gateways import GATEWAY
from eslurm.core.model.job import Principal
from eslurm.core.model.node_groups import find_place, find_share
from eslurm.core.model.protocol import Command, JobLaunch, LaunchStep, NodeGroup, Prepare, Start
from eslurm.core.model.step_key import BATCH_STEP, EPILOG_STEP, GATEWAY_STEP, StepKey
from eslurm.core.model.values import id_problem
from eslurm.ports.step_checks import TASKS_MAX
from eslurm.security.sealing import BadSeal, Purpose
from eslurm.security.site_keys import Ring
from esnoded.procd.options import Options

TOLERANCE_US = 60_000_000
"""Clocks of controllers and nodes may differ by so much, as for agents (`core.relay.command_dates`)."""
EPILOG_AGAIN_US = 12 * 3_600_000_000
"""An epilog is due when its attempt is over, so the launch permits it for ever, and only once in this time."""
_OPENED_MAX = 64
_LISTS_MAX = 16


class NotAllowed(Exception):
    """No credential, or one for something else; the text says what does not fit."""


class UserNotAllowed(NotAllowed):
    """This user's processes are never started here."""


class Launchable(msgspec.Struct, frozen=True):
    """The permitted launch: the batch script, a phase, or with `request` a step's tasks or one of the job's gateways.

    `names` are the job's nodes in order, `cluster` is the job's. `until_us` is the end of the credential.
    """

    launch: JobLaunch
    request: LaunchStep | None
    node_name: str
    names: tuple[str, ...]
    tasks: int
    until_us: int
    cluster: str


class Seals:
    """Opens what a controller of the site has sealed. Another ring means another `Seals`."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        # A step of many nodes of this host comes once for each of them.
        self._open: Callable[[bytes], Command] = lru_cache(_OPENED_MAX)(self._opened)

    def command(self, key: StepKey, sealed: bytes) -> Command:
        """A command to the node of `key`. Raises `NotAllowed`."""
        if not sealed:
            raise NotAllowed("no launch credential came with it: was the job sent by an earlier version?")
        try:
            command = self._open(sealed)
        except BadSeal as error:
            raise NotAllowed(f"the credential is not of this site: {error}") from None
        if command.cluster != self.ring.cluster:
            raise NotAllowed(f"the credential is of cluster {command.cluster!r}, not {self.ring.cluster!r}")
        if not any(first <= key.node < first + length for first, length in command.nodes):
            raise NotAllowed(f"the credential is not for node number {key.node}")
        return command

    def _opened(self, sealed: bytes) -> Command:
        body = self.ring.keys.open_shared(Purpose.COMMAND, sealed)
        try:
            return decode_command(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise BadSeal("not a command") from None


class Warrants(Seals):
    """Checks credentials for this host, as root describes it. Other options mean another `Warrants`."""

    def __init__(self, ring: Ring, options: Options, own_uid: int) -> None:
        """`own_uid` is `procd`'s. Raises `OptionError` for a list of nodes that is none."""
        super().__init__(ring)
        self._options = options
        self._hosts = frozenset(expand(options.nodes, "--nodes"))
        self._is_root = own_uid == 0

    def launch(self, key: StepKey, sealed: bytes, now_us: int) -> Launchable:
        """The launch that the credential permits for step `key`. `now_us` is UTC. Raises `NotAllowed`."""
        command = self.command(key, sealed)
        is_epilog = key.step == EPILOG_STEP
        if now_us > command.expires_us + TOLERANCE_US and not is_epilog:
            raise NotAllowed(
                f"the launch credential ended {(now_us - command.expires_us) // 1_000_000} s ago: "
                "is the clock of this host right?"
            )
        found = find_launch(key, command)
        if found.node_name not in self._hosts:
            raise NotAllowed(
                f"the launch credential is for node {found.node_name}, which is not of this host"
            )
        user = found.launch.spec.user
        if problem := next(filter(None, map(id_problem, (user.uid, user.gid, *user.groups))), ""):
            raise NotAllowed(f"the launch credential names a user that cannot be: {problem}")
        if not key.is_phase:
            self.check_user(user)
        return msgspec.structs.replace(found, until_us=now_us + EPILOG_AGAIN_US) if is_epilog else found

    def check_user(self, user: Principal) -> None:
        """Raises `UserNotAllowed` for a user whose processes root has excluded."""
        # Where `procd` is not root, a step of another user cannot be started, and says so itself.
        if self._is_root and user.uid == 0 and not self._options.allow_root_jobs:
            raise UserNotAllowed("jobs of root are refused here (esnoded --allow-root-jobs)")
        if self._is_root and 0 < user.uid < (least := self._options.min_uid):
            raise UserNotAllowed(
                f"jobs of uid {user.uid} are refused here: it is below {least} (esnoded --min-uid)"
            )


def find_launch(key: StepKey, command: Command) -> Launchable:
    """The command's launch of step `key`: the job, the step's own request, and the number of tasks. Raises `NotAllowed`."""
    body, phase = command.body, key.phase
    match body:
        case Prepare(launch=found) | Start(launch=JobLaunch() as found) if phase:
            launch, request, step = found, None, key.step
        case Prepare(launch=found, start=True) | Start(launch=JobLaunch() as found):
            launch, request, step = found, None, BATCH_STEP
        case LaunchStep(launch=JobLaunch() as found):
            launch, request, step = found, body, body.step
        case _:
            raise NotAllowed("the credential starts nothing")
    named = {(launch.job_id, launch.attempt, step)}
    if not isinstance(body, Prepare):
        named.add((body.job_id, body.attempt, step))
    is_known = key.step >= BATCH_STEP or bool(phase) or key.is_gateway
    if named != {(key.job_id, key.attempt, key.step)} or not is_known:
        raise NotAllowed(f"the credential is for another step than {key}")
    if phase and (request is not None or phase not in launch.phases):
        raise NotAllowed(f"the credential has no {phase}")
    if request is None and not phase and launch.groups[0].runs[0][0] != key.node:
        raise NotAllowed(f"node number {key.node} is not the first of the job")
    if key.is_gateway:
        _check_gateway(launch, request, key)
    tasks = 0 if launch.spec.no_script and not phase else 1
    if request is not None:
        tasks = _tasks_on(request.groups, key.node)
        if not 1 <= tasks <= TASKS_MAX:
            raise NotAllowed(f"the credential has {tasks} tasks for node number {key.node}")
    if launch.spec.parts and request is not None:
        _check_share(launch, request, key.node, tasks)
    place = find_place(launch.groups, key.node)
    if place is None:
        raise NotAllowed(f"node number {key.node} has no part in it")
    try:
        names = _expand(launch.node_names)
    except OptionError as error:
        raise NotAllowed(f"the credential names no nodes: {error}") from None
    if place >= len(names):
        raise NotAllowed(f"node number {key.node} is none of the job's")
    until_us = command.expires_us + TOLERANCE_US
    return Launchable(launch, request, names[place], names, tasks, until_us, command.cluster)


def _tasks_on(groups: tuple[NodeGroup, ...], number: int) -> int:
    """The number of a node's tasks. Raises `NotAllowed`."""
    found = find_share(groups, number)
    if found is None:
        raise NotAllowed(f"node number {number} has no part in it")
    return found[2].tasks


def _check_gateway(launch: JobLaunch, request: LaunchStep | None, key: StepKey) -> None:
    """Check that a step of gateways is of a job that has some, and on its node. Raises `NotAllowed`."""
    spec = launch.spec
    if spec.gateway is None or request is None or request.gateway is None:
        raise NotAllowed("the credential has no gateways")
    if key.step != GATEWAY_STEP:
        if launch.groups[0].runs[0][0] != key.node:
            raise NotAllowed(f"node number {key.node} is not the first of the job")
        return
    parts = {index for index, part in enumerate(spec.parts) if part.role == GATEWAY}
    if find_share([group for group in launch.groups if group.component in parts], key.node) is None:
        raise NotAllowed(f"node number {key.node} is no gateway of the job")


def _check_share(launch: JobLaunch, request: LaunchStep, number: int, tasks: int) -> None:
    """Check that a step fits what its own part holds on a node: other parts' cores are not its. Raises `NotAllowed`."""
    own = [group for group in launch.groups if group.component == request.component]
    found = find_share(own, number)
    if found is None:
        raise NotAllowed(f"node number {number} is none of part {request.component}")
    # Cores are the first of the amounts.
    cores, asked = next(iter(found[2].amounts), 0), tasks * max(1, request.cpus_per_task)
    if asked > cores:
        raise NotAllowed(
            f"the credential has {asked} cores for node number {number}, where part {request.component} holds {cores}"
        )


@lru_cache(_LISTS_MAX)
def _expand(text: str) -> tuple[str, ...]:
    return expand(text)
