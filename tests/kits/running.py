"""Jobs that run, for tests of what is done to running jobs: placed where the test says, whatever a planner would do."""

from __future__ import annotations

import msgspec

from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.model.job import Span, StepEnd
from eslurm.core.model.messages import PlanMade, Preemption
from eslurm.core.model.placement import Placement
from eslurm.core.model.protocol import Gone, NodeGone, Start, Started, StepEnded
from eslurm.core.model.request import Request
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.allocation_amounts import end_us
from tests.kits.core import SECOND, World

CORES = 4
GONE = msgspec.msgpack.encode(Gone(True))


def place(world: World, job: int, nodes: tuple[int, ...], cores: int = CORES, memory_mib: int = 100) -> None:
    """Give the job so much of each of these nodes."""
    limit_s = world.job(job).spec.time_limit_s
    until_us = world.now_us + limit_s * SECOND if limit_s else INFINITY_US
    spans = tuple(Span(node, (cores, memory_mib), 1) for node in nodes)
    world.send(PlanMade((Placement(job, spans, until_us),), world.state.generation))


def start(world: World, job: int) -> None:
    """The nodes say that it runs; nothing else may be owed to them."""
    for _ in range(2):
        for send in world.sends():
            is_last = isinstance(send.body, Start) or len(send.nodes) == 1
            world.done(send, payload=msgspec.msgpack.encode(Started(world.now_us)) if is_last else b"")
    assert world.state_of(job) == "RUNNING"


def run(world: World, nodes: tuple[int, ...] = (0,), cores: int = CORES, **spec: object) -> int:
    """A job that runs on these nodes."""
    request = Request(tasks=len(nodes), nodes_min=len(nodes), nodes_max=len(nodes))
    job = world.submit(request=request, **{"time_limit_s": 100} | spec)  # type: ignore[arg-type]
    place(world, job, nodes, cores)
    start(world, job)
    return job


def end(world: World, job: int, **fields: object) -> None:
    """Its script ends, and its nodes give everything back."""
    attempt = world.attempt(job)
    report = StepEnd(**{"exit_code": 0} | fields)  # type: ignore[arg-type]
    world.report(StepEnded(attempt.first, 1, job, attempt.number, report, True))
    for span in attempt.spans[1:]:
        world.report(NodeGone(span.node, 1, job, attempt.number))


def free(world: World, node: int) -> tuple[int, ...]:
    return world.state.ledger.free(node)[:2]


def preempt(world: World, victim: int, mode: str, for_job: int) -> None:
    """A plan says so."""
    made = Preemption(victim, world.job(victim).attempts, mode, for_job)
    world.send(PlanMade((), world.state.generation, (made,)))


def only(sends: list[Send]) -> Send:
    (send,) = sends
    return send


__all__ = ["CORES", "GONE", "end", "end_us", "free", "only", "place", "preempt", "run", "start"]
