"""A `World` of two modules and gateways between them, and what the nodes of a job with gateways say."""

from __future__ import annotations

from eslurm.core.model.config import Module, NodeConfig, Partition
from eslurm.core.model.gateways import GATEWAY, PARTITION, GatewayRequest
from eslurm.core.model.job import StepEnd
from eslurm.core.model.parts import gateway_nodes
from eslurm.core.model.protocol import GatewayReported, PhaseReported
from eslurm.core.model.request import Request
from tests.kits.core import World

USERS = (("cn0", "cluster"), ("cn1", "cluster"), ("cn2", "booster"))
GATEWAYS = ("cn3", "cn4")
MODULES = (Module("cluster"), Module("booster", "booster"), Module("gw", GATEWAY))
ALL = Request(tasks=3, nodes_min=3, nodes_max=3)
"""All nodes that users name, of both modules."""


def config(*, modules: tuple[Module, ...] = MODULES, cores: int = 4) -> dict[str, object]:
    """The nodes, partitions and modules."""
    users = tuple(NodeConfig(name, (cores, 1000), (module,), module=module) for name, module in USERS)
    gateways = tuple(NodeConfig(name, (cores, 1000), ("gw",), module="gw") for name in GATEWAYS)
    return {
        "nodes_with": (*users, *gateways),
        "partitions": (
            Partition("main", tuple(name for name, _ in USERS), default=True),
            Partition(PARTITION, GATEWAYS, role=GATEWAY),
        ),
        "modules": modules,
    }


def gateway_world(**others: object) -> World:
    return World(len(USERS) + len(GATEWAYS), **{**config(), **others})  # type: ignore[arg-type]


def submit(world: World, count: int = 2, per_node: int = 1, **spec: object) -> int:
    return world.submit(**{"request": ALL, "gateway": GatewayRequest(count, per_node=per_node), **spec})  # type: ignore[arg-type]


def prepared(world: World, count: int = 2, per_node: int = 1, **spec: object) -> int:
    """A job all of whose nodes are prepared: its daemons are to start."""
    job_id = submit(world, count, per_node, **spec)
    assert job_id in world.plan()
    world.deliver()
    return job_id


def address(world: World, job_id: int, node: int, *addresses: str) -> None:
    """The daemons of a gateway tell their addresses."""
    number = world.attempt(job_id).number
    incarnation = world.state.nodes[node].incarnation
    world.report(GatewayReported(node, incarnation, job_id, number, addresses or (f"192.0.2.{node}:5000",)))


def ends(world: World, job_id: int, node: int, phase: str, end: StepEnd, attempt: int = 0) -> None:
    """A daemon or a helper ends."""
    number = attempt or world.attempt(job_id).number
    world.report(PhaseReported(node, world.state.nodes[node].incarnation, job_id, number, phase, end))


def addressed(world: World, job_id: int) -> None:
    """The daemons start and tell their addresses."""
    world.deliver()
    for node in gateway_nodes(world.job(job_id).spec, world.attempt(job_id)):
        address(world, job_id, node)


def started(world: World, job_id: int) -> None:
    """From prepared nodes to the running script."""
    addressed(world, job_id)
    world.deliver()
    ends(world, job_id, world.attempt(job_id).first, "routes", StepEnd(0))
    world.deliver()
    assert world.state_of(job_id) == "RUNNING"
