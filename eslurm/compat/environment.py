"""The SLURM_* variables for programs, each with an ESLURM_* twin, and the environment blob's form.

Of a job of several parts, names without a suffix describe part 0, or the parts of a step; `_HET_GROUP_<n>` describe part n.
Invariant: a job's own variables never come from an outer job: a job submitted from inside another gets none of the
other's.
"""

from __future__ import annotations

from eslurm.compat.cpu_binding import ASKED as BINDING_ASKED
from eslurm.compat.filenames import routes_file
from eslurm.compat.hostlist import fold
from eslurm.compat.lsf import environment as lsf
from eslurm.compat.pbs import environment as pbs
from eslurm.compat.resource_limits import PREFIX
from eslurm.core.model.mpi import PMI
from eslurm.core.model.node_groups import (
    count_nodes,
    distinct_nodes,
    find_place,
    find_share,
    group_size,
    has_parts,
    node_numbers,
)
from eslurm.core.model.request_limits import ARGUMENT_BYTES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from eslurm.core.model.protocol import JobLaunch, LaunchStep, NodeGroup

_CORES = 0
_MEMORY_MIB = 1
_SUBMIT_NAMES = frozenset({"SUBMIT_DIR", "SUBMIT_HOST", "CLUSTER_NAME", "CONF", "OPEN_MODE"})
_OF_JOBS = ("SLURM", "ESLURM")
"""Prefixes of names that may describe a job."""
PMI_FD = "PMI_FD"
"""Of a task with MPI: the number of the descriptor on which its library speaks PMI."""
_PMI_NAMES = frozenset(
    (PMI_FD, "PMI_JOBID", "PMI_RANK", "PMI_SIZE", "PMI_SPAWNED", "PMIX_NAMESPACE", "PMIX_RANK")
)
_BEGINNINGS = (*_OF_JOBS, "PMI")
PHASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of the programs of a node's phases; Slurm sets none."""
PHASE_VALUE_CHARS_MAX = 65_536
SPAN_NODELIST_BYTES_MAX = ARGUMENT_BYTES_MAX - len("ESLURM_SPAN_NODELIST=")
"""The lists of sixteen cells may be more than the kernel takes: a job starts without the variable then."""
_KEPT_NAMES = frozenset({"ESLURM_SOCKET", "ESLURM_STATE_DIR", "SLURM_MPI_TYPE", BINDING_ASKED})


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
    values = _job_values(launch, names)
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
    _put_gateways(environment, launch)
    environment |= {"ENVIRONMENT": "BATCH", "SLURMD_NODENAME": names[0], "ESLURM_NODENAME": names[0]}
    _put_devices(environment, launch, launch.groups[0].runs[0][0], 0, "JOB")
    _put_other_systems(environment, launch, names)
    return environment


def allocation_environment(launch: JobLaunch, names: Sequence[str], cluster: str) -> dict[str, str]:
    """The variables of a job for a command that works in it from another host: none of a node's own."""
    environment: dict[str, str] = {}
    _put(environment, _job_values(launch, names))
    return environment | cluster_variables(cluster)


def cluster_variables(cluster: str) -> dict[str, str]:
    """The variables that name the job's cluster; the submitted ones may name another."""
    return {f"{prefix}_CLUSTER_NAME": cluster for prefix in _OF_JOBS}


def phase_environment(
    launch: JobLaunch,
    names: Sequence[str],
    cluster: str,
    node_name: str,
    number: int,
    phase: str,
    end: tuple[int, int] | None,
) -> dict[str, str]:
    """The whole environment of a node's prolog or epilog (`phase`): the job's variables, none of the submitted ones.

    Nodes and devices are those of all parts. `end` is the script's exit code and signal, where they are known. What could
    grow beyond what a program takes is left out, for the node would be blamed for the job: the values of single parts, and
    lists of more than `PHASE_VALUE_CHARS_MAX`.
    """
    environment = _phase_values(
        launch, names, cluster, f"{phase}_slurmd", end, {"NODEID": str(list(names).index(node_name))}
    )
    _put_devices(environment, launch, number, None, "JOB")
    return environment | {"SLURMD_NODENAME": node_name, "ESLURM_NODENAME": node_name, "ESLURM_PHASE": phase}


def controller_phase_environment(
    launch: JobLaunch,
    names: Sequence[str],
    cluster: str,
    phase: str,
    run: int,
    end: tuple[int, int] | None,
) -> dict[str, str]:
    """The same for a program on the controller's host; `run` counts the leaders that have started it."""
    environment = _phase_values(launch, names, cluster, f"{phase}_slurmctld", end, {})
    return environment | {"ESLURM_PHASE": phase, "ESLURM_PHASE_RUN": str(run)}


def _phase_values(
    launch: JobLaunch,
    names: Sequence[str],
    cluster: str,
    context: str,
    end: tuple[int, int] | None,
    own: Mapping[str, str],
) -> dict[str, str]:
    """A job's variables for all programs of phases."""
    values = _job_values(launch, names, range(len(launch.spec.components))) | {
        "JOB_WORK_DIR": launch.spec.work_dir,
        "JOB_CONSTRAINTS": launch.spec.components[0].constraint,
        "JOB_COMMENT": launch.spec.comment,
        "SCRIPT_CONTEXT": context,
        **own,
    }
    if end is not None:
        code, signum = end
        values |= {
            "JOB_EXIT_CODE": str(signum or code << 8),
            "JOB_EXIT_CODE2": f"{code}:{signum}",
        }
    environment = {"PATH": PHASE_PATH, "LC_ALL": "C.UTF-8"} | cluster_variables(cluster)
    _put(
        environment,
        {
            name: value
            for name, value in values.items()
            if len(value) <= PHASE_VALUE_CHARS_MAX and "_HET_GROUP_" not in name
        },
    )
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
        self._groups = step.whole or step.groups
        values = _job_values(launch, names, parts_of(step), step.component)
        values |= _step_values(step, self._groups, self._node_list())
        self.shared = _without_outer_job(submitted or {})
        _put(self.shared, values)
        _put_submit_dir(self.shared, launch)
        _put_gateways(self.shared, launch)

    def _node_list(self) -> str:
        if _merged(self._groups) == _merged(self._launch.groups):
            return self._launch.node_names
        return _folded(self._groups, _names_by_number(self._launch, self._names))

    def is_of(self, launch: JobLaunch, step: LaunchStep) -> bool:
        """Check whether it was built for exactly these."""
        return (launch, step) == (self._launch, self._step)

    def of_task(self, node_number: int, local: int) -> dict[str, str]:
        """A task's own variables, by its rank on this node, which has a part in the step."""
        share, in_job = (
            find_share(self._step.groups, node_number),
            find_place(self._launch.groups, node_number),
        )
        index = find_place(self._groups, node_number)
        assert share is not None and in_job is not None and index is not None
        _, first_task, group = share
        own: dict[str, str] = {}
        _put_devices(own, self._launch, node_number, self._step.component, "STEP")
        if self._step.joint is not None:
            index += self._step.joint.node_first
        first_rank = first_task + self._step.rank_first
        if self._step.mpi == PMI:
            own |= _pmi_values(self._launch, self._step, first_rank + local)
        return own | _task_values(self._names[in_job], index, group, first_rank, local)


def find_tasks(step: LaunchStep, node_number: int) -> tuple[int, int] | None:
    """(tasks, rank of the first) of a node; None when it has no part in the step."""
    place = find_share(step.groups, node_number)
    return None if place is None else (place[2].tasks, place[1] + step.rank_first)


def _step_values(step: LaunchStep, groups: Sequence[NodeGroup], node_list: str) -> dict[str, str]:
    tasks_per_node = _on_each(groups, _tasks)
    tasks = str(step.tasks_total or step.tasks)
    number = str(step.step if step.first < 0 else step.first)
    nodes = str(count_nodes(groups))
    joint = step.joint
    if joint is not None:
        node_list, nodes, tasks_per_node = joint.node_list, str(joint.nodes), joint.tasks_per_node
    return {
        "CPUS_PER_TASK": str(step.cpus_per_task),
        "NPROCS": tasks,
        "NTASKS": tasks,
        "STEPID": number,
        "STEP_ID": number,
        "STEP_NODELIST": node_list,
        "STEP_NUM_NODES": nodes,
        "STEP_NUM_TASKS": tasks,
        "STEP_TASKS_PER_NODE": tasks_per_node,
        "TASKS_PER_NODE": tasks_per_node,
    } | ({"SPAN_JOB_ID": joint.home} if joint is not None else {})


def _pmi_values(launch: JobLaunch, step: LaunchStep, rank: int) -> dict[str, str]:
    """The variables of PMI-1 and PMI-2, but for the descriptor (`PMI_FD`)."""
    number = step.step if step.first < 0 else step.first
    return {
        "PMI_JOBID": f"{launch.job_id}.{number}",
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(step.tasks_total or step.tasks),
        "PMI_SPAWNED": "0",
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


def _job_values(
    launch: JobLaunch, names: Sequence[str], components: Sequence[int] = (0,), own: int = 0
) -> dict[str, str]:
    """Name without prefix -> value, for all values that are the same everywhere in the job.

    Of a job of several parts: nodes and tasks of these parts, the rest of its part `own`; and all parts by their suffixes.
    """
    spec = launch.spec
    groups = launch.groups
    node_names = launch.node_names
    if spec.parts:
        groups = tuple(group for group in groups if group.component in components)
        by_number = _names_by_number(launch, names)
        node_names = _folded(groups, by_number)
    nodes = str(count_nodes(groups))
    tasks = str(sum(group.tasks * group_size(group) for group in groups))
    values = {
        "JOBID": str(launch.job_id),
        "JOB_GID": str(spec.user.gid),
        "JOB_ID": str(launch.job_id),
        "JOB_NAME": spec.name,
        "JOB_NODELIST": node_names,
        "JOB_NUM_NODES": nodes,
        "JOB_UID": str(spec.user.uid),
        "JOB_USER": spec.user.name,
        "NNODES": nodes,
        "NODELIST": node_names,
        "NPROCS": tasks,
        "NTASKS": tasks,
        "RESTART_COUNT": str(launch.attempt - 1),
    }
    values |= _part_values(launch, own, groups)
    if launch.guests:
        all_names = ",".join([node_names, *(guest.node_list for guest in launch.guests)])
        if len(all_names.encode()) <= SPAN_NODELIST_BYTES_MAX:
            values["SPAN_NODELIST"] = all_names
        values |= {
            "SPAN_CELLS": ",".join([guest.cell for guest in launch.guests]),
            "SPAN_NUM_NODES": str(count_nodes(groups) + sum(guest.nodes for guest in launch.guests)),
        }
    if spec.parts:
        values |= _het_values(launch, by_number)
    if launch.array_task >= 0:
        values |= {
            "ARRAY_JOB_ID": str(launch.array_job_id),
            "ARRAY_TASK_COUNT": str(launch.array_count),
            "ARRAY_TASK_ID": str(launch.array_task),
            "ARRAY_TASK_MAX": str(launch.array_max),
            "ARRAY_TASK_MIN": str(launch.array_min),
        }
    return values


def _part_values(launch: JobLaunch, component: int, groups: Sequence[NodeGroup]) -> dict[str, str]:
    """Variables of one part, and of each node of `groups`."""
    spec = launch.spec
    partition = spec.parts[component].partition if spec.parts else ""
    values = {
        "CPUS_PER_TASK": str(spec.components[component].cpus_per_task),
        "JOB_CPUS_PER_NODE": _on_each(groups, _cores),
        "JOB_PARTITION": partition or spec.partition,
        "TASKS_PER_NODE": _on_each(groups, _tasks),
    }
    memory_mib = next((_amount(one, _MEMORY_MIB) for one in groups if one.component == component), 0)
    if memory_mib:
        values["MEM_PER_NODE"] = str(memory_mib)
    named = {
        "JOB_ACCOUNT": spec.account,
        "JOB_QOS": spec.qos,
        "JOB_RESERVATION": spec.reservation,
    }
    return values | {name: str(value) for name, value in named.items() if value}


def _het_values(launch: JobLaunch, by_number: Mapping[int, str]) -> dict[str, str]:
    """Values of all parts by their suffixes (Slurm: `_foreach_set_het_job_env`, and what salloc sets).

    A part of gateways is none of the parts that users know.
    """
    size = len(launch.spec.parts) - (launch.spec.gateway is not None)
    if size < 2:
        return {}
    values = {"HET_SIZE": str(size), "PACK_SIZE": str(size)}
    by_part: list[list[NodeGroup]] = [[] for _ in range(size)]
    for group in launch.groups:
        if group.component < size:
            by_part[group.component].append(group)
    for component, groups in enumerate(by_part):
        nodes = str(count_nodes(groups))
        # Parts have consecutive ids, tasks of an array one for all of their parts.
        job_id = launch.job_id + (component if launch.array_task < 0 else 0)
        own = _part_values(launch, component, groups) | {
            "JOB_ID": str(job_id),
            "JOB_NAME": launch.spec.name,
            "JOB_NODELIST": _folded(groups, by_number),
            "JOB_NUM_NODES": nodes,
            "NNODES": nodes,
            "NTASKS": str(sum(group.tasks * group_size(group) for group in groups)),
        }
        values |= {f"{name}_HET_GROUP_{component}": value for name, value in own.items()}
    return values


def parts_of(step: LaunchStep) -> tuple[int, ...]:
    """The parts of the job that the whole step runs on, in the order of its ranks."""
    if not step.whole:
        return (step.component,)
    return tuple(dict.fromkeys(group.component for group in step.whole))


def _names_by_number(launch: JobLaunch, names: Sequence[str]) -> dict[int, str]:
    return dict(zip(distinct_nodes(launch.groups), names, strict=True))


def _folded(groups: Iterable[NodeGroup], by_number: Mapping[int, str]) -> str:
    """The host list of the groups' nodes, each once."""
    return fold([by_number[number] for number in distinct_nodes(groups)])


def _on_each(groups: Sequence[NodeGroup], amount: Callable[[NodeGroup], int]) -> str:
    """An amount on each node, in Slurm's form; of parts that share a node, the sum."""
    if not has_parts(groups):
        return repeated((amount(group), group_size(group)) for group in groups)
    found: dict[int, int] = {}
    for group in groups:
        for number in node_numbers((group,)):
            found[number] = found.get(number, 0) + amount(group)
    return repeated((items, 1) for items in found.values())


def _cores(group: NodeGroup) -> int:
    return _amount(group, _CORES)


def _tasks(group: NodeGroup) -> int:
    return group.tasks


def _merged(groups: Iterable[NodeGroup]) -> list[tuple[int, int]]:
    """The runs of node numbers over all groups: (first, end), of maximal length."""
    runs: list[tuple[int, int]] = []
    for group in groups:
        for first, length in group.runs:
            start = runs.pop()[0] if runs and runs[-1][1] == first else first
            runs.append((start, first + length))
    return runs


def _amount(group: NodeGroup, resource: int) -> int:
    return group.amounts[resource] if resource < len(group.amounts) else 0


def _put(environment: dict[str, str], values: Mapping[str, str]) -> None:
    for name, value in values.items():
        environment[f"SLURM_{name}"] = value
        environment[f"ESLURM_{name}"] = value


def _put_submit_dir(environment: dict[str, str], launch: JobLaunch) -> None:
    submit_dir = environment.get("SLURM_SUBMIT_DIR", launch.spec.work_dir)
    _put(environment, {"SUBMIT_DIR": submit_dir})


def _put_gateways(environment: dict[str, str], launch: JobLaunch) -> None:
    """Set the number of gateways between the modules of the job, and the file of routes over them."""
    spec = launch.spec
    if spec.gateway is not None:
        path = routes_file(launch.job_id, spec.gateway.file, spec.work_dir)
        environment |= {"ESLURM_GATEWAYS": str(spec.gateway.count), "ESLURM_GATEWAY_ROUTES": path}


def _put_devices(
    environment: dict[str, str], launch: JobLaunch, node_number: int, component: int | None, scope: str
) -> None:
    """Set the variables of one part's devices on this node (None: of all), as libraries expect them; `scope` is JOB or STEP.

    Resources that the job holds only elsewhere are empty here, whatever the submitted variables say.
    """
    parts = launch.device_parts or (0,) * len(launch.devices)
    here: dict[str, tuple[int, ...]] = {}
    for (number, resource, held), part in zip(launch.devices, parts, strict=True):
        if number == node_number and component in (part, None):
            here[resource] = here.get(resource, ()) + held
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


def _put_other_systems(environment: dict[str, str], launch: JobLaunch, names: Sequence[str]) -> None:
    """Add the variables of LSF or PBS to a job that their commands have submitted."""
    if lsf.SUBMIT_DIRECTORY not in environment and pbs.PROCESSES not in environment:
        return
    by_number = _names_by_number(launch, names)
    slots = [
        (by_number[number], group.tasks) for group in launch.groups for number in distinct_nodes((group,))
    ]
    if lsf.SUBMIT_DIRECTORY in environment:
        environment |= lsf.job_variables(environment, slots)
    if pbs.PROCESSES in environment:
        environment |= pbs.job_variables(environment, slots)


def _without_outer_job(submitted: Mapping[str, str]) -> dict[str, str]:
    """The submitted variables without those of another job; the submitter's own (SUBMIT_*) stay."""
    return {
        name: value
        for name, value in submitted.items()
        # Most names begin otherwise: a look costs a third of the question.
        if not (name.startswith(_BEGINNINGS) and describes_a_job(name))
    }


def describes_a_job(name: str) -> bool:
    """Check whether a variable identifies the job of a process, so that it must not leak into another one."""
    if name in _KEPT_NAMES:
        return False
    if name in _PMI_NAMES:
        return True
    prefix, underscore, rest = name.partition("_")
    if not underscore or prefix not in ("SLURM", "ESLURM", "SLURMD"):
        return False
    return rest not in _SUBMIT_NAMES and not name.startswith(PREFIX)


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
