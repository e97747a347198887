"""Applications that lend cores, and jobs that borrow them, in a core world."""

from __future__ import annotations

from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.model.lending import Exclusion
from eslurm.core.model.protocol import AskCores, CoresReported, End, Exclude, Prepare
from eslurm.core.model.request import Request
from tests.kits.core import World


def run_owner(world: World, cores: int = 4, *, cooperate: str = "full", **spec: object) -> int:
    """A running job of one node whose application cooperates."""
    job = world.submit(
        request=Request(cpus_per_task=cores), cooperate=cooperate, time_limit_s=1000, name="owner", **spec
    )
    world.start()
    assert world.state_of(job) == "RUNNING"
    return job


def submit_borrower(
    world: World, cores: int = 2, *, borrow: str = "requeue,30", limit_s: int = 100, **spec: object
) -> int:
    return world.submit(
        request=Request(cpus_per_task=cores), borrow=borrow, time_limit_s=limit_s, name="borrower", **spec
    )


def tell(
    world: World, job: int, idle: int, *, node: int = 0, remaining_s: int = -1, rejects: bool = False
) -> None:
    """The application's latest word, as its node reports it."""
    attempt = world.attempt(job)
    one = exclusion(world, job, node)
    excluded = one.cores if one is not None else 0
    key = node, world.state.nodes[node].incarnation, job, attempt.number
    world.report(CoresReported(*key, idle, excluded, remaining_s, rejects))


def exclusion(world: World, job: int, node: int = 0) -> Exclusion | None:
    found = world.job(job).attempt
    return next((one for one in found.exclusions if one.node == node), None) if found is not None else None


def excludes(world: World) -> list[Send]:
    """The commands about cores that are due; all others are answered well."""
    found = []
    for send in world.sends():
        if isinstance(send.body, Exclude):
            found.append(send)
        else:
            world.done(send, payload=world.answer_of(send))
    return found


def lend(world: World, job: int, idle: int, *, node: int = 0) -> None:
    """The application reports idle cores, and its node confirms their exclusion."""
    tell(world, job, idle, node=node)
    for send in excludes(world):
        assert isinstance(send.body, Exclude)
        world.done(send)


def asks(sends: list[Send]) -> list[AskCores]:
    return [send.body for send in sends if isinstance(send.body, AskCores)]


def ends(sends: list[Send]) -> list[End]:
    return [send.body for send in sends if isinstance(send.body, End)]


def launches(sends: list[Send]) -> list[int]:
    return [send.body.launch.job_id for send in sends if isinstance(send.body, Prepare)]
