"""Modules and gateways of a simulated cluster, the jobs that use them, and how daemons and helpers go.

A small share of the clusters has gateways, by a generator of their own: the other choices of a seed stay what they are.
"""

from __future__ import annotations

import random
from typing import Final

from msgspec.structs import replace

from eslurm.core.model.config import ClusterConfig, Module
from eslurm.core.model.gateways import GATEWAY, PARTITION, GatewayRequest
from eslurm.core.model.job import JobSpec
from eslurm.core.model.protocol import JobLaunch
from eslurm.core.model.request import PartSpec, Request
from eslurm.core.model.step_key import GATEWAY_STEP, GATEWAY_STEPS, ROUTE_STEP, StepKey
from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.cluster_config import with_modules
from eslurm.lab.sim.step_runner import StepScript

WORLDS_SHARE: Final = 0.1
NODES_MIN: Final = 4
ONE, OTHER, GATEWAYS = "one", "other", "gw"
"""The modules: two of nodes for users, and that of the gateways."""
PER_NODE_MAX: Final = 2
LIMIT_S: Final = 90
"""The time limit that makes a simulated script run so long that daemons die meanwhile."""
CLEANUP: Final = "--cleanup"
"""The word for the helper that stays and removes the file of routes."""


def draw_modules(seed: int, config: ClusterConfig) -> ClusterConfig:
    """The cluster of a seed: mostly as it is, else with its last nodes as gateways between two modules."""
    rng = random.Random(f"{seed}/modules")
    nodes = len(config.nodes)
    if rng.random() >= WORLDS_SHARE or nodes < NODES_MIN:
        return config
    gateways = rng.choice((1, 2)) if nodes < 2 * NODES_MIN else rng.choice((2, 3))
    first = nodes - gateways
    middle = rng.randint(1, first - 1)
    names = (ONE,) * middle + (OTHER,) * (first - middle) + (GATEWAYS,) * gateways
    modules = (Module(ONE), Module(OTHER), Module(GATEWAYS, GATEWAY))
    return replace(with_modules(config, names, modules), gateway_signal=rng.choice((12, 12, 0)))


def gateways_of(config: ClusterConfig) -> tuple[str, ...]:
    """The names of the gateway nodes."""
    return next((partition.nodes for partition in config.partitions if partition.name == PARTITION), ())


def draw_gateway_spec(rng: random.Random, spec: JobSpec, config: ClusterConfig) -> JobSpec:
    """The same job as one over both modules, with gateways between them."""
    of = {module: sum(node.module == module for node in config.nodes) for module in (ONE, OTHER)}
    components = tuple(
        [
            Request(tasks=count, nodes_min=count, nodes_max=count, tasks_per_node=1, constraint=module)
            for module in (ONE, OTHER)
            for count in (rng.randint(1, min(2, of[module])),)
        ]
    )
    gateway = GatewayRequest(
        min(rng.choice((1, 1, 2)), len(gateways_of(config))),
        per_node=rng.randint(1, PER_NODE_MAX),
        cleanup=rng.random() < 0.5,
    )
    return replace(
        spec,
        components=components,
        parts=(PartSpec(), PartSpec()),
        gateway=gateway,
        start_at_us=0,
        deadline_us=0,
        time_limit_s=LIMIT_S,
        reservation="",
    )


def gateway_argv(key: StepKey, launch: JobLaunch) -> tuple[str, ...]:
    """The program of a step of gateways."""
    asked = launch.spec.gateway
    name = next(name for name, step in GATEWAY_STEPS.items() if step == key.step)
    return (name, CLEANUP) if asked is not None and asked.cleanup else (name,)


def draw_gateway_script(
    seed: float, key: StepKey, tasks: int, argv: tuple[str, ...], *, is_calm: bool
) -> StepScript:
    """The end of a daemon or a helper: a function of its identity, but that all goes well in the end.

    Most jobs with gateways begin when all is calm, so their first attempts may go badly even then; daemons, whose limit is
    the longest, do not hang then.
    """
    rng = random.Random(f"{seed}/{key}")
    fate = 1.0 if is_calm and key.attempt > 1 else rng.random()
    begin_us = int(rng.choice((0.0, 0.3, 1.0, 3.0)) * rng.random() * SECOND_US)
    ignores_term = rng.random() < 0.15
    if fate < 0.03:
        return StepScript(exit_code=127, spawn_error="no such file")
    if fate < 0.11:
        return StepScript(begin_us, exit_code=1)
    if fate < 0.17 and not (is_calm and key.step == GATEWAY_STEP):
        return StepScript(None, ignores_term=ignores_term)
    if key.step == GATEWAY_STEP:
        lines = tuple([f"192.0.2.{key.node % 250 + 1}:{5000 + task}" for task in range(tasks)])
        dies_us = begin_us + int(12 * rng.random() * SECOND_US) if fate < 0.42 else None
        return StepScript(dies_us, exit_code=139, ignores_term=ignores_term, ready_us=begin_us, lines=lines)
    if key.step == ROUTE_STEP and CLEANUP in argv:
        return StepScript(None, ignores_term=ignores_term, ready_us=begin_us, lines=("/home/routes",))
    return StepScript(begin_us)
