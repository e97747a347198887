"""The supervisor's data of a step that `procd` has admitted: time limit, tasks, output.

It reads the same sealed command, as the agent's user; `procd` verifies the seal. Invariant: a step whose values no task
could be started with is refused before it is accepted.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from eslurm.core.model.earlier_launch import decode_command
from eslurm.core.model.protocol import JobLaunch
from eslurm.core.model.step_input import StepInput
from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_checks import spec_problem
from eslurm.ports.step_runner import OutputEndpoint, StepOrder, StepSpec, StepWarning
from eslurm.security.sealing import unverified_shared_body
from esnoded.procd.credential import NotAllowed, find_launch
from esnoded.task.build import outline
from esnoded.task.phases import build_phase

SpecReader = Callable[[StepOrder], StepSpec]


class Terms(msgspec.Struct, frozen=True):
    """Of a step that may be started (`StepSpec`); what it runs and as which user is `procd`'s to know."""

    key: StepKey
    node_name: str
    tasks: int
    first_task: int
    time_limit_us: int
    kill_grace_us: int
    orphan_timeout_us: int
    warning: StepWarning | None
    endpoint: OutputEndpoint | None
    input: StepInput | None
    mpi: str = ""
    cores: int = 0
    memory_mib: int = 0
    own_memory_mib: int = 0

    def reads_stream(self, local: int) -> bool:
        """Check whether the task of this rank on its node reads what the step's command passes on."""
        return self.input is not None and self.input.is_streamed_to(self.first_task + local)

    def has_terminal(self, local: int) -> bool:
        """Check whether the task of this rank on its node has a terminal."""
        return self.input is not None and self.input.terminal is not None and self.reads_stream(local)


def read_spec(order: StepOrder) -> StepSpec:
    """The step that an admitted order starts, without its variables. Raises `NotAllowed`, ValueError."""
    found = find_launch(order.key, decode_command(unverified_shared_body(order.credential)))
    if found.launch.spec.parts:
        _check_parts(found.launch)
    if order.key.is_phase:
        user = found.launch.spec.user
        phase = order.key.phase
        sealed = (order.key, found.launch, found.node_name, found.names, found.cluster)
        return build_phase(*sealed, user, phase, order.end)
    return outline(order.key, found.launch, found.request, found.node_name)


def _check_parts(launch: JobLaunch) -> None:
    """Check that a launch of several parts describes each of them. Raises `NotAllowed`."""
    parts = len(launch.spec.parts)
    components = [group.component for group in launch.groups]
    if len(launch.spec.components) != parts or not all(0 <= one < parts for one in components):
        raise NotAllowed(f"the credential has groups of other parts than its {parts}")
    if len(launch.device_parts) not in (0, len(launch.devices)):
        raise NotAllowed("the credential does not say of which parts its devices are")


def terms_of(spec: StepSpec) -> Terms:
    """Raises `NotAllowed` for a step that cannot be started."""
    if problem := spec_problem(spec):
        raise NotAllowed(problem)
    return Terms(
        spec.key,
        spec.node_name,
        spec.tasks,
        spec.first_task,
        spec.time_limit_us,
        spec.kill_grace_us,
        spec.orphan_timeout_us,
        spec.warning,
        spec.endpoint,
        spec.input,
        spec.mpi,
        spec.cores,
        spec.memory_mib,
        spec.own_memory_mib,
    )
