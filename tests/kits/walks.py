"""Random walks of a core world: messages arrive late or not at all, steps end, nodes are left."""

from __future__ import annotations

import random

from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.model.job import StepEnd
from eslurm.core.model.job_states import AttemptPhase
from eslurm.core.model.messages import UpdateNodes
from eslurm.core.model.protocol import NodeGone, StepEnded
from eslurm.core.state.cluster import attempts_of
from tests.kits.core import ROOT, World


def deliver_some(world: World, unsent: list[Send], rng: random.Random) -> None:
    """Some of the nodes hear some of what is owed to them, now or too late; `unsent` is what they have not heard."""
    unsent += world.sends()
    for send in unsent:
        assert len(set(send.nodes)) == len(send.nodes)
    rng.shuffle(unsent)
    while unsent and rng.random() < 0.8:
        send = unsent.pop()
        nodes = tuple(node for node in send.nodes if rng.random() < 0.9)
        status = rng.choice(("ok",) * 9 + ("failed",))
        world.done(send, status, nodes, world.answer_of(send))


def end_some(world: World, rng: random.Random) -> None:
    """The script of an attempt ends, for one reason or another, and some of its other nodes are left."""
    live = [
        (job, attempt)
        for job in world.state.jobs.values()
        for attempt in attempts_of(job)
        if attempt.phase is not AttemptPhase.PREPARING
    ]
    if not live:
        return
    job, attempt = rng.choice(live)
    end = StepEnd(0, cause=rng.choice(("", "orphaned", "time_limit")))
    world.report(StepEnded(attempt.first, 1, job.job_id, attempt.number, end, rng.random() < 0.7))
    for node in attempt.nodes[1:]:
        if rng.random() < 0.7:
            world.report(NodeGone(node, 1, job.job_id, attempt.number))


def lose_some(world: World, nodes: int, rng: random.Random) -> None:
    """A node is lost and comes back, or an administrator drains or resumes it."""
    number = rng.randrange(nodes)
    if rng.random() < 0.5:
        world.send(UpdateNodes(ROOT, (f"cn{number}",), "lost", "gone"))
        world.register(number, boot=f"b{rng.random()}", session=f"s{rng.random()}")
    else:
        world.send(UpdateNodes(ROOT, (f"cn{number}",), rng.choice(("drain", "resume")), "test"))
