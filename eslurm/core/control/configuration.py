"""Configurations that come into force: at a start, at a takeover, or when a running controller reads its file again.

All three end in one fact, `ConfigAccepted`, which says what is in force and numbers new nodes; nothing else of the file is
remembered. Invariant: a change that is refused has changed nothing. A running controller refuses more than one that
starts: a job keeps its nodes and its partition until it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eslurm.core.control.config_changes import amounts_of, change_lines, merged
from eslurm.core.control.jobs.users import held_by_user
from eslurm.core.control.rights import is_administrator
from eslurm.core.model import facts
from eslurm.core.model.config import ClusterConfig, NodeConfig
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.messages import (
    Changed,
    ConfigLoaded,
    JobProblem,
    Reconfigure,
    RefusalCode,
    Refused,
)
from eslurm.core.model.node import Node
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.parts import partitions_of
from eslurm.core.resources.vector import RESOURCES, fits, subtract
from eslurm.core.state.allocation_amounts import attempts_of
from eslurm.core.state.cluster import State

PROBLEMS_MAX: Final = 100
JOBS_NAMED: Final = 5


def on_config(state: State, message: ConfigLoaded) -> list[facts.Fact]:
    """Accept the configuration of a controller that begins to lead; new nodes get numbers that no node has had before.

    Raises `Refused` if it takes resources from a node that a job holds, or if a standby that takes over brings a file
    that was replaced while another controller led.
    """
    config = message.config
    if message.is_takeover and message.digest and message.digest in state.config_digests[:-1]:
        raise Refused(
            RefusalCode.CONFLICT,
            "this controller's file is older than the configuration in force, which was read again from a later one: "
            "copy that file to this host, and run esctl reconfigure",
        )
    if config == state.config and not _is_new(state, message.digest):
        return []
    check_holdings(state, config)
    return _accepted(state, config, message.digest)


def on_reconfigure(state: State, message: Reconfigure) -> tuple[list[facts.Fact], Changed]:
    """Take the live parts of a file that was read again, all of them or none. The answer has a line for each change, or the
    problems, with the number of changes 0.

    Raises `Refused` for callers that are no administrators, and for what `on_config` refuses.
    """
    if message.by is not None and not is_administrator(state, message.by):
        text = f"{message.by.name} is no administrator: the configuration is theirs to change"
        raise Refused(RefusalCode.DENIED, text)
    config = merged(state.config, message.config)
    if config == state.config:
        # A later file all the same, of which keys wait for a restart.
        is_later = _is_new(state, message.digest) and not message.is_trial
        return _accepted(state, config, message.digest) if is_later else [], Changed(0)
    problems = [*_partition_problems(state, config), *_node_problems(state, config), *_other_problems(config)]
    if len(problems) > PROBLEMS_MAX:
        text = f"and {len(problems) - PROBLEMS_MAX} more problems"
        problems = [*problems[:PROBLEMS_MAX], JobProblem("", RefusalCode.CONFLICT, text)]
    if problems:
        return [], Changed(0, tuple(problems))
    check_holdings(state, config)
    lines = change_lines(state.config, config)
    if message.is_trial:
        return [], Changed(0, (), lines)
    found = _accepted(state, config, message.digest)
    return [*found, *_drained(state, config)], Changed(len(lines), (), lines)


def _is_new(state: State, digest: bytes) -> bool:
    return bool(digest) and digest not in state.config_digests[-1:]


def _accepted(state: State, config: ClusterConfig, digest: bytes) -> list[facts.Fact]:
    names = (*(node.name for node in config.nodes), *config.login_nodes)
    added = [name for name in names if name not in state.numbers]
    numbers = tuple((name, state.next_number + at) for at, name in enumerate(added))
    return [facts.ConfigAccepted(config, numbers, digest), *held_by_user(state, config)]


# ---- what may not change while jobs hold nodes ----


def check_holdings(state: State, config: ClusterConfig) -> None:
    """Check that no job loses what it holds. Raises `Refused`."""
    _check_resources(state, config)
    for node_config in config.nodes:
        number = state.numbers.get(node_config.name)
        if number is not None and not fits(_held_on(state, number), node_config.total):
            raise Refused(
                RefusalCode.CONFLICT,
                f"node {node_config.name}: its jobs hold {_held_on(state, number)}, more than {node_config.total}: "
                f"drain it and change it when they have ended",
            )
    _check_login(state, config)


def _check_resources(state: State, config: ClusterConfig) -> None:
    """Check that resources change only at the end while jobs hold nodes: holdings are counted in their order."""
    if not state.jobs_on:
        return
    for wide in (False, True):
        before = [one.name for one in state.config.resources if bool(one.wide_total) is wide]
        after = [one.name for one in config.resources if bool(one.wide_total) is wide]
        if after[: len(before)] != before:
            raise Refused(
                RefusalCode.CONFLICT,
                f"resource: jobs hold nodes while {', '.join(before)} become {', '.join(after) or 'none'}: "
                "give each a [[resource]] in this order, new ones at the end, or drain the nodes first",
            )
    numbered = {one.name for one in config.resources if one.devices}
    for one in state.config.resources:
        if one.devices is not (one.name in numbered):
            raise Refused(
                RefusalCode.CONFLICT,
                f"resource {one.name}: jobs hold nodes while devices = {str(not one.devices).lower()} is set, and it is "
                "unknown which items are theirs: drain the nodes first",
            )


def _check_login(state: State, config: ClusterConfig) -> None:
    """Check that a new login host holds nothing: a node becomes one when its last job has left it."""
    if state.login.issuperset(state.numbers.get(name, -1) for name in config.login_nodes):
        return
    named = state.named_nodes()
    for name in config.login_nodes:
        if state.numbers.get(name) in named:
            raise Refused(
                RefusalCode.CONFLICT,
                f"login.nodes: {name} is a node that jobs are on: drain it and make it a login host when they have ended",
            )


def _held_on(state: State, number: int) -> tuple[int, ...]:
    position = state.ledger.topology.positions.get(number)
    if position is None or number not in state.jobs_on:
        return ()
    return subtract(state.ledger.topology.totals[position], state.ledger.free_on(position))


# ---- what may not change while the controller leads ----


def _partition_problems(state: State, config: ClusterConfig) -> list[JobProblem]:
    """Partitions that would go with jobs in them; as in Slurm a partition in use is not deleted."""
    kept = {partition.name for partition in config.partitions}
    gone = {name: list[int]() for name in state.partitions if name not in kept}
    if not gone:
        return []
    for job in state.jobs.values():
        if job.state in FINAL:
            continue
        for name in partitions_of(job.spec):
            if name in gone:
                gone[name].append(job.job_id)
    return [
        _problem(
            f"partition {name}",
            f"{_jobs_text(jobs)} in it: set up = false, move or end them, then remove it",
        )
        for name, jobs in gone.items()
        if jobs
    ]


def _node_problems(state: State, config: ClusterConfig) -> list[JobProblem]:
    nodes = {node.name: node for node in config.nodes}
    login = frozenset(config.login_nodes)
    found: list[JobProblem] = []
    gone: list[Node] = []
    for old in state.config.nodes:
        new = nodes.get(old.name)
        number = state.numbers[old.name]
        if old.name in login:
            text = "becomes a login host: remove it first, then name it as one"
            found.append(_problem(f"node {old.name}", text))
        elif new is None:
            gone.append(state.nodes[number])
        elif new != old and number in state.jobs_on and _is_resized(old, new, state.config, config):
            text = f"{_jobs_text(state.jobs_on[number])} on it: drain it, and change it when they have ended"
            found.append(_problem(f"node {old.name}", text))
    for name in state.config.login_nodes:
        if name in nodes:
            text = "is a login host: remove it there first, then name it as a node"
            found.append(_problem(f"node {name}", text))
    return found + (_removal_problems(state, gone) if gone else [])


def _removal_problems(state: State, gone: Iterable[Node]) -> list[JobProblem]:
    """Nodes that take work, or that a job has or had in its present run: nothing of one that leaves is to be left."""
    jobs: dict[int, list[int]] = {node.number: [] for node in gone}
    for job in state.jobs.values():
        for attempt in attempts_of(job):
            for number in {span.node for span in attempt.spans} & jobs.keys():
                jobs[number].append(job.job_id)
    found: list[JobProblem] = []
    for node in gone:
        if jobs[node.number]:
            text = f"{_jobs_text(jobs[node.number])} on it: drain it, and remove it when they have ended"
        elif node.state is NodeState.UP and not node.drain:
            text = f"takes work: drain it first (esctl drain {node.name} reason=removed)"
        else:
            continue
        found.append(_problem(f"node {node.name}", text))
    return found


def _other_problems(config: ClusterConfig) -> list[JobProblem]:
    """Resources that keys which are not live still name."""
    known = {*RESOURCES, *(resource.name for resource in config.resources)}
    return [
        _problem(f"resource {name}", "priority.billing counts it, and needs a restart: keep it until then")
        for name, _ in config.priority.billing
        if name not in known
    ]


def _is_resized(old: NodeConfig, new: NodeConfig, before: ClusterConfig, after: ClusterConfig) -> bool:
    """Check whether more than a node's features, its weight and the number of known resources changes."""
    if amounts_of(old, before) != amounts_of(new, after):
        return True
    return any(
        getattr(old, name) != getattr(new, name) for name in ("cores_for_devices", "device_type", "module")
    )


def _drained(state: State, config: ClusterConfig) -> list[facts.Fact]:
    """Drain nodes whose agents have not offered as much as they now have to, as their registration would have."""
    before = {node.name: node for node in state.config.nodes}
    found: list[facts.Fact] = []
    for new in config.nodes:
        old = before.get(new.name)
        if old is None or new is old or new == old:
            continue
        node = state.nodes[state.numbers[new.name]]
        text = _shortfall(node, amounts_of(old, state.config), amounts_of(new, config), new)
        if text and not node.drain:
            found.append(facts.NodeDrainChanged(node.number, True, text))
    return found


def _shortfall(node: Node, old: dict[str, int], new: dict[str, int], config: NodeConfig) -> str:
    if not node.incarnation:
        # It has never registered: it is looked at when it does.
        return ""
    counted = config.total[: len(RESOURCES)]
    is_more = any(new.get(name, 0) > old.get(name, 0) for name in RESOURCES)
    if is_more and not (node.offered and fits(counted, node.offered)):
        return f"offers {node.offered}, configured are {counted}"
    for name, count in new.items():
        if name not in RESOURCES and count > old.get(name, 0):
            return f"its agent has not counted {name} since {count} are configured: restart its esnoded"
    return ""


def _jobs_text(jobs: Iterable[int]) -> str:
    ordered = sorted(set(jobs))
    named = ", ".join(map(str, ordered[:JOBS_NAMED]))
    if len(ordered) == 1:
        return f"job {named} is"
    more = len(ordered) - JOBS_NAMED
    return f"jobs {named} and {more} more are" if more > 0 else f"jobs {named} are"


def _problem(what: str, text: str) -> JobProblem:
    return JobProblem(what, RefusalCode.CONFLICT, text)
