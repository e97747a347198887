"""The SLURM_* variables for programs, each with an ESLURM_* twin, and the environment blob's form.

Invariant: a job's own variables never come from an outer job: a job submitted from inside another gets none of the
other's.
"""

from __future__ import annotations

from eslurm.compat.hostlist import fold

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eslurm.core.model.protocol import JobLaunch, LaunchStep, NodeGroup

_CORES = 0
_MEMORY_MIB = 1
_SUBMIT_NAMES = frozenset({"SUBMIT_DIR", "SUBMIT_HOST", "CLUSTER_NAME", "CONF"})
_OF_JOBS = ("SLURM", "ESLURM")
"""How names begin that may describe a job."""
_KEPT_NAMES = frozenset({"ESLURM_SOCKET", "ESLURM_STATE_DIR"})


def encode_environment(variables: Mapping[str, str]) -> bytes:
    """The blob: `NAME=value` entries, each ended by NUL, sorted so that equal environments are equal blobs.

    Names and values come from a process's environment, so undecodable bytes arrive as surrogates and go
    back as they were. Entries that a blob cannot hold (NUL, or a name with `=`) are left out.
    """
    entries = [
        f"{name}={value}"
        for name, value in sorted(variables.items())
        if name and "=" not in name and "\0" not in name and "\0" not in value
    ]
    return "".join(f"{entry}\0" for entry in entries).encode("utf-8", "surrogateescape")


def decode_environment(blob: bytes) -> dict[str, str]:
    """The variables of a blob; entries without a name are ignored."""
    variables: dict[str, str] = {}
    for entry in blob.decode("utf-8", "surrogateescape").split("\0"):
        name, equals, value = entry.partition("=")
        if equals and name:
            variables[name] = value
    return variables


def batch_environment(
    launch: JobLaunch, names: Sequence[str], submitted: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The whole environment of the batch script: the submitted one, then the job's variables over it.

    `names` are the job's nodes in order; the script runs on the first one.
    """
    values = _job_values(launch)
    values |= {
        "CPUS_ON_NODE": str(_amount(launch.groups[0], _CORES)),
        "GTIDS": "0",
        "LOCALID": "0",
        "NODEID": "0",
        "PROCID": "0",
    }
    environment = _without_outer_job(submitted or {})
    _put(environment, values)
    _put_submit_dir(environment, launch)
    environment |= {"ENVIRONMENT": "BATCH", "SLURMD_NODENAME": names[0], "ESLURM_NODENAME": names[0]}
    _put_devices(environment, launch, launch.groups[0].runs[0][0], "JOB")
    return environment


class StepEnvironment:
    """The variables of one step's tasks. `names` are the nodes of its job in order.

    `shared` is the whole environment that all tasks have in common: the submitted one with the job's and the step's
    variables over it. `of_task` gives the rest for one task. Each task may build it anew: its cost grows with the groups
    of the job's nodes, not with the nodes, where the step is on all of them.
    """

    def __init__(
        self,
        launch: JobLaunch,
        step: LaunchStep,
        names: Sequence[str],
        submitted: Mapping[str, str] | None = None,
    ) -> None:
        self._launch = launch
        self._step = step
        self._names = names
        values = _job_values(launch)
        values |= _step_values(step, self._node_list())
        self.shared = _without_outer_job(submitted or {})
        _put(self.shared, values)
        _put_submit_dir(self.shared, launch)

    def _node_list(self) -> str:
        if _merged(self._step.groups) == _merged(self._launch.groups):
            return self._launch.node_names
        by_number = dict(zip(_numbers(self._launch.groups), self._names, strict=True))
        return fold([by_number[number] for number in _numbers(self._step.groups)])

    def is_of(self, launch: JobLaunch, step: LaunchStep) -> bool:
        """Check whether it was built for exactly these."""
        return (launch, step) == (self._launch, self._step)

    def of_task(self, node_number: int, local: int) -> dict[str, str]:
        """A task's own variables, by its rank on this node, which has a part in the step."""
        place, in_job = _find(self._step.groups, node_number), _find(self._launch.groups, node_number)
        assert place is not None and in_job is not None
        index, first_task, group = place
        own: dict[str, str] = {}
        _put_devices(own, self._launch, node_number, "STEP")
        return own | _task_values(self._names[in_job[0]], index, group, first_task, local)


def find_share(step: LaunchStep, node_number: int) -> tuple[int, int] | None:
    """(tasks, rank of the first) of a node; None when it has no part in the step."""
    place = _find(step.groups, node_number)
    return None if place is None else (place[2].tasks, place[1])


def _step_values(step: LaunchStep, node_list: str) -> dict[str, str]:
    tasks_per_node = repeated((group.tasks, _size(group)) for group in step.groups)
    return {
        "CPUS_PER_TASK": str(step.cpus_per_task),
        "NPROCS": str(step.tasks),
        "NTASKS": str(step.tasks),
        "STEPID": str(step.step),
        "STEP_ID": str(step.step),
        "STEP_NODELIST": node_list,
        "STEP_NUM_NODES": str(sum(map(_size, step.groups))),
        "STEP_NUM_TASKS": str(step.tasks),
        "STEP_TASKS_PER_NODE": tasks_per_node,
        "TASKS_PER_NODE": tasks_per_node,
    }


def _task_values(name: str, index: int, group: NodeGroup, first_task: int, local: int) -> dict[str, str]:
    variables = {"SLURMD_NODENAME": name, "ESLURM_NODENAME": name}
    values = {
        "CPUS_ON_NODE": str(_amount(group, _CORES)),
        "GTIDS": ",".join(str(first_task + task) for task in range(group.tasks)),
        "LOCALID": str(local),
        "NODEID": str(index),
        "PROCID": str(first_task + local),
    }
    _put(variables, values)
    return variables


def _job_values(launch: JobLaunch) -> dict[str, str]:
    """Name without prefix -> value, for all values that are the same everywhere in the job."""
    spec = launch.spec
    nodes = str(sum(map(_size, launch.groups)))
    tasks = str(sum(group.tasks * _size(group) for group in launch.groups))
    tasks_per_node = repeated((group.tasks, _size(group)) for group in launch.groups)
    values = {
        "CPUS_PER_TASK": str(spec.components[0].cpus_per_task),
        "JOBID": str(launch.job_id),
        "JOB_CPUS_PER_NODE": repeated((_amount(group, _CORES), _size(group)) for group in launch.groups),
        "JOB_GID": str(spec.user.gid),
        "JOB_ID": str(launch.job_id),
        "JOB_NAME": spec.name,
        "JOB_NODELIST": launch.node_names,
        "JOB_NUM_NODES": nodes,
        "JOB_PARTITION": spec.partition,
        "JOB_UID": str(spec.user.uid),
        "JOB_USER": spec.user.name,
        "NNODES": nodes,
        "NODELIST": launch.node_names,
        "NPROCS": tasks,
        "NTASKS": tasks,
        "RESTART_COUNT": str(launch.attempt - 1),
        "TASKS_PER_NODE": tasks_per_node,
    }
    memory_mib = _amount(launch.groups[0], _MEMORY_MIB)
    if memory_mib:
        values["MEM_PER_NODE"] = str(memory_mib)
    named = {
        "JOB_ACCOUNT": spec.account,
        "JOB_QOS": spec.qos,
        "JOB_RESERVATION": spec.reservation,
    }
    values |= {name: str(value) for name, value in named.items() if value}
    if launch.array_task >= 0:
        values |= {
            "ARRAY_JOB_ID": str(launch.array_job_id),
            "ARRAY_TASK_COUNT": str(launch.array_count),
            "ARRAY_TASK_ID": str(launch.array_task),
            "ARRAY_TASK_MAX": str(launch.array_max),
            "ARRAY_TASK_MIN": str(launch.array_min),
        }
    return values


def _numbers(groups: Iterable[NodeGroup]) -> list[int]:
    return [
        number for group in groups for first, length in group.runs for number in range(first, first + length)
    ]


def _merged(groups: Iterable[NodeGroup]) -> list[tuple[int, int]]:
    """The runs of node numbers over all groups: (first, end), of maximal length."""
    runs: list[tuple[int, int]] = []
    for group in groups:
        for first, length in group.runs:
            start = runs.pop()[0] if runs and runs[-1][1] == first else first
            runs.append((start, first + length))
    return runs


def _find(groups: Iterable[NodeGroup], number: int) -> tuple[int, int, NodeGroup] | None:
    """(index among the nodes, rank of its first task, group) of a node; None when it is not among them."""
    index = first_task = 0
    for group in groups:
        for first, length in group.runs:
            if first <= number < first + length:
                return index + number - first, first_task + (number - first) * group.tasks, group
            index += length
            first_task += length * group.tasks
    return None


def _size(group: NodeGroup) -> int:
    return sum(length for _, length in group.runs)


def _amount(group: NodeGroup, resource: int) -> int:
    return group.amounts[resource] if resource < len(group.amounts) else 0


def _put(environment: dict[str, str], values: Mapping[str, str]) -> None:
    for name, value in values.items():
        environment[f"SLURM_{name}"] = value
        environment[f"ESLURM_{name}"] = value


def _put_submit_dir(environment: dict[str, str], launch: JobLaunch) -> None:
    submit_dir = environment.get("SLURM_SUBMIT_DIR", launch.spec.work_dir)
    _put(environment, {"SUBMIT_DIR": submit_dir})


def _put_devices(environment: dict[str, str], launch: JobLaunch, node_number: int, scope: str) -> None:
    """Set the variables of the job's devices on this node, as libraries expect them; `scope` is JOB or STEP.

    Resources that the job holds only elsewhere are empty here, whatever the submitted variables say.
    """
    here = {resource: held for number, resource, held in launch.devices if number == node_number}
    for resource in sorted({resource for _, resource, _ in launch.devices}):
        held = here.get(resource, ())
        listed = ",".join(map(str, held))
        if resource == "gpu":
            environment |= {"CUDA_VISIBLE_DEVICES": listed, "ROCR_VISIBLE_DEVICES": listed}
            _put(environment, {f"{scope}_GPUS": listed, "GPUS_ON_NODE": str(len(held))})
        else:
            _put(environment, {f"{scope}_{_variable(resource)}": listed})


def _variable(resource: str) -> str:
    """A resource's name as a part of a variable's."""
    return "".join(char if char.isalnum() else "_" for char in resource.upper())


def _without_outer_job(submitted: Mapping[str, str]) -> dict[str, str]:
    """The submitted variables without those of another job; the submitter's own (SUBMIT_*) stay."""
    return {
        name: value
        for name, value in submitted.items()
        # Most names begin otherwise: a look costs a third of the question.
        if not (name.startswith(_OF_JOBS) and describes_a_job(name))
    }


def describes_a_job(name: str) -> bool:
    """Check whether a variable identifies the job of a process, so that it must not leak into another one."""
    if name in _KEPT_NAMES:
        return False
    prefix, underscore, rest = name.partition("_")
    if not underscore or prefix not in ("SLURM", "ESLURM", "SLURMD"):
        return False
    return rest not in _SUBMIT_NAMES


def repeated(counts: Iterable[tuple[int, int]]) -> str:
    """Slurm's run-length form of (count, repetitions): `2(x3),1`."""
    parts: list[str] = []
    last, length = -1, 0
    for count, times in (*counts, (-1, 0)):
        if count == last:
            length += times
            continue
        if length:
            parts.append(f"{last}(x{length})" if length > 1 else str(last))
        last, length = count, times
    return ",".join(parts)
