"""The command that the gateways of an attempt owe in their present stage: daemons, routes, or the error file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.gateways import GATEWAY, GatewayStage, GatewayState, GatewayStep
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import Attempt, JobSpec, Span
from eslurm.core.model.parts import gateway_nodes
from eslurm.core.model.protocol import JobLaunch, LaunchStep, NodeGroup
from eslurm.core.model.step_key import GATEWAY_STEP, ROUTE_ERROR_STEP, ROUTE_STEP
from eslurm.core.state.cluster import State

_STEPS = {GatewayStage.DAEMONS: GATEWAY_STEP, GatewayStage.FAILED: ROUTE_ERROR_STEP}


def step_spans(spec: JobSpec, attempt: Attempt, gateway: GatewayState) -> list[Span]:
    """The tasks of the stage's step: the daemons on the gateways, else the helper on the first node."""
    request = spec.gateway
    assert request is not None
    if gateway.stage != GatewayStage.DAEMONS:
        return [Span(attempt.first, (1,))]
    part = len(spec.components) - 1
    return [
        Span(number, (request.per_node,), request.per_node, component=part)
        for number in gateway_nodes(spec, attempt)
    ]


def gateway_step(
    state: State, spec: JobSpec, attempt: Attempt, launch: JobLaunch, groups: Sequence[NodeGroup]
) -> LaunchStep:
    """The command of the present stage."""
    gateway, request = attempt.gateway, spec.gateway
    assert gateway is not None and request is not None
    are_daemons = gateway.stage == GatewayStage.DAEMONS
    return LaunchStep(
        job_id=launch.job_id,
        attempt=launch.attempt,
        step=_STEPS.get(gateway.stage, ROUTE_STEP),
        groups=tuple(groups),
        argv=(),
        environment_hash=spec.environment_hash,
        work_dir=spec.work_dir,
        endpoint="",
        cookie=b"",
        tasks=request.count * request.per_node if are_daemons else 1,
        launch=launch,
        component=groups[0].component,
        gateway=_content(state, spec, attempt, gateway),
    )


def _content(state: State, spec: JobSpec, attempt: Attempt, gateway: GatewayState) -> GatewayStep:
    if gateway.stage == GatewayStage.DAEMONS:
        return GatewayStep()
    if gateway.stage == GatewayStage.FAILED:
        return GatewayStep(failed=gateway.text)
    numbers = gateway_nodes(spec, attempt)
    told = dict(gateway.addresses)
    users = dict.fromkeys(span.node for span in attempt.spans if span.node not in told)
    modules = nodes_by_module(state.config, state.node_names(users))
    return GatewayStep(
        names=fold(state.node_names(numbers)),
        addresses=tuple(told[number] for number in numbers),
        modules=tuple((name, fold(nodes)) for name, nodes in modules.items()),
        direct=direct_pairs(state.config, modules),
    )


def nodes_by_module(config: ClusterConfig, names: Iterable[str]) -> dict[str, list[str]]:
    """Nodes by their module, in their order; nodes of no module are one, without a name."""
    of = {node.name: node.module for node in config.nodes if node.module}
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(of.get(name, ""), []).append(name)
    return found


def direct_pairs(config: ClusterConfig, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The pairs of these modules that reach each other without gateways."""
    reaches = {module.name: module.reaches for module in config.modules if module.kind != GATEWAY}
    ordered = list(names)
    return tuple(
        (one, other)
        for at, one in enumerate(ordered)
        for other in ordered[at + 1 :]
        if other in reaches.get(one, ()) or one in reaches.get(other, ())
    )
