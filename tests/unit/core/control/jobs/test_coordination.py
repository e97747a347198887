"""The scenario of the third paper's figure 1 (R-08): three applications run, the fourth needs four cores, two are free."""

from __future__ import annotations

from collections.abc import Callable

from eslurm.core.model.request import Request
from tests.kits.core import SECOND, World
from tests.kits.lending import asks, excludes, tell

RESOURCES = 10


def named(world: World, job: int) -> str:
    attempt = world.job(job).attempt
    return "-" if attempt is None else ",".join(f"R{span.node + 1}" for span in attempt.spans)


def test_four_resources_come_together(golden: Callable[[str, str], None]) -> None:
    world = World(RESOURCES, 1, policy="fcfs")
    lines: list[str] = []
    apps: dict[str, int] = {}

    def say(what: str) -> None:
        lines.append(what)
        lines.extend(
            f"  {name}: {world.state_of(job):9} {named(world, job)}" for name, job in sorted(apps.items())
        )

    def submit(name: str, tasks: int, **spec: object) -> int:
        world.now_us += SECOND
        apps[name] = world.submit(name=name, request=Request(tasks=tasks), time_limit_s=3600, **spec)
        return apps[name]

    submit("App1", 4, cooperate="full")
    submit("App2", 2, cooperate="full")
    submit("App3", 2, cooperate="full")
    world.start()
    tell(world, apps["App2"], 0, node=4, remaining_s=500)
    app4 = submit("App4", 4, borrow="requeue")
    app5 = submit("App5", 4, borrow="requeue")
    world.start()
    say("App1, App2 and App3 run; App4 needs four, R9 and R10 are free")

    world.pass_time(6)
    (ask,) = asks(world.sends())
    assert (ask.job_id, ask.cores) == (apps["App2"], 1)
    tell(world, apps["App2"], 0, node=4, remaining_s=500, rejects=True)
    assert not excludes(world)
    world.start()
    say("App2 is asked for R5, and refuses")

    tell(world, apps["App1"], 1, node=3)
    for send in excludes(world):
        world.done(send)
    world.start()
    say("App1 reports R4 idle")

    tell(world, apps["App3"], 1, node=6)
    for send in excludes(world):
        world.done(send)
    world.start()
    say("App3 reports R7 idle")
    assert [span.node + 1 for span in world.attempt(app4).spans] == [4, 7, 9, 10]
    assert world.state_of(app5) == "PENDING"
    assert [(loan.owner, loan.node + 1) for loan in world.attempt(app4).loans] == [
        (apps["App1"], 4),
        (apps["App3"], 7),
    ]

    world.end(apps["App2"])
    world.start()
    say("App2 ends: App5 still lacks two")
    world.end(app4)
    world.start()
    say("App4 ends: App5 gets R4 and R7 as well")
    golden("coordination_fig1.txt", "\n".join(lines) + "\n")
