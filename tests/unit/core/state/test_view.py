"""The readers' view: the last committed state, as a whole."""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.control.planning import plan_slices
from eslurm.core.model.messages import ConfigLoaded, EpochStarted, Message, PlanMade, SubmitJobs
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.state.cluster import attempts_of
from eslurm.core.state.view import View
from tests.kits.core import World, check_view


def shown(view: View) -> dict[str, object]:
    """All that readers can see, as values of now."""
    return {
        name: dict(value) if isinstance(value, dict) else value
        for name, value in vars(view).items()
        if name != "_state"
    }


def test_nothing_of_a_batch_shows_before_its_commit() -> None:
    """Placed jobs, what they hold, tasks of arrays, the epoch and the configuration: as of the last commit."""
    world = World(nodes=2)
    array = world.submit(tasks=((0, 3),))
    large = world.submit(request=Request(nodes_min=1, nodes_max=1, tasks=3))
    before = shown(world.view)
    process, state = world.reactor.process, world.state
    plan = plan_of(world)
    touched = [process([plan], world.now_us)]
    assert state.jobs_on and state.tasks_of[array], "the state is ahead"
    touched.append(process([EpochStarted(state.epoch + 1)], world.now_us))
    config = state.config
    touched.append(process([ConfigLoaded(type(config)("test", config.nodes[:1], ()))], world.now_us))
    assert (state.epoch, len(state.config.nodes)) == (world.view.epoch + 1, 1)
    assert shown(world.view) == before
    for batch in touched:
        world.view.advance(batch.touched, state.revision, batch.now_us)
    check_view(world.view, state)
    numbers = {span.node for one in attempts_of(state.get_job(large)) for span in one.spans}
    assert numbers and all(large in world.view.jobs_on[number] for number in numbers)


def plan_of(world: World) -> Message:
    slices = plan_slices(world.state, world.now_us, None, PlanLimits())
    while True:
        try:
            next(slices)
        except StopIteration as finished:
            return PlanMade(finished.value.placements, finished.value.generation)


def test_tasks_of_an_array_leave_the_view_with_it() -> None:
    world = World()
    array = world.submit(tasks=((0, 1),))
    tasks = world.start()
    assert world.view.tasks_of == {array: set(tasks) - {array}}
    for task in tasks:
        world.end(task)
    for _ in range(3):
        world.pass_time(10 * 86_400)
    assert array not in world.view.jobs and world.view.tasks_of == {}


def test_a_submission_of_too_many_parts_is_refused_by_the_core() -> None:
    """The door refuses it as well; other doors end here."""
    world = World()
    spec = replace(world.job(world.submit(held=True)).spec, components=(Request(),) * 129)
    answer = world.send(SubmitJobs((spec,)))
    assert "a job of 129 parts: at most 128 are possible" in str(answer)
