"""The call `StepUsage`: who is answered, which nodes are asked, and what becomes of those that are silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from esctld.serve import step_usage
from esctld.serve.step_usage import ASKED_MAX, ASKED_OF_USER_MAX, CALLS_OF_USER_PER_S, StepUsages
from eslurm.api.limits import BURST_S
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.protocol import Measure
from eslurm.core.model.request import Request
from eslurm.core.model.step_usage import Measured, StepUse, amount_of
from eslurm.core.relay.results import Outcome, Results, Status, failed, from_mapping
from eslurm.ports.api import ApiError, Caller
from eslurm.v1 import controller_pb2 as pb
from tests.kits.api import until
from tests.kits.core import ALICE, BOB, World
from tests.kits.steps import create, number
from tests.support.loops import run

ROOT = Principal("root", 0, 0)


class Nodes:
    """Nodes that answer `outcomes`; of a node without one nothing is heard."""

    def __init__(self) -> None:
        self.questions: list[tuple[tuple[int, ...], Measure]] = []
        self.outcomes: dict[int, Outcome] = {}
        self.gate: Callable[[], Awaitable[object]] | None = None

    async def ask(self, nodes: tuple[int, ...], question: Measure) -> Results:
        self.questions.append((nodes, question))
        if self.gate is not None:
            await self.gate()
        return from_mapping({node: out for node, out in self.outcomes.items() if node in nodes})


def measured(*uses: StepUse) -> Outcome:
    return Outcome(Status.OK, payload=msgspec.msgpack.encode(Measured(uses)))


def use(step: int, task: int, cpu_us: int, **more: object) -> StepUse:
    return StepUse(step, 1, amount_of([(task, cpu_us)]), amount_of([(task, 1024)]), **more)  # type: ignore[arg-type]


def running(nodes: int = 2) -> tuple[World, int]:
    """A job with two nodes or more and a core on each."""
    world = World(nodes=nodes)
    job = world.submit(request=Request(tasks=nodes, nodes_min=nodes, nodes_max=nodes))
    world.start()
    return world, job


def ask(
    usages: StepUsages, job: int, *steps: int, by: Principal = ALICE, processes: bool = False
) -> pb.StepUsageReply:
    request = pb.StepUsageRequest(job=pb.JobRef(job_id=job), steps=steps, processes=processes)
    return run(usages.call(request, Caller(by, b"r" * 16, False, 1_000_000, "socket")))


def refusal(usages: StepUsages, job: int, *steps: int, by: Principal = ALICE) -> tuple[RefusalCode, str]:
    with pytest.raises(Refused) as caught:
        ask(usages, job, *steps, by=by)
    return caught.value.code, caught.value.text


def test_a_job_s_user_and_operators_alone_are_answered() -> None:
    world, job = running()
    nodes = Nodes()
    usages = StepUsages(world.view, nodes.ask)
    code, text = refusal(usages, job, -1, by=BOB)
    assert code is RefusalCode.DENIED and "only its user and operators" in text
    assert not nodes.questions, "the nodes are not even asked"
    for who in (ALICE, ROOT):
        assert ask(usages, job, -1, by=who).silent[0].why == step_usage.SILENT
    assert refusal(usages, 99, -1)[0] is RefusalCode.NOT_FOUND


def test_bounds_are_checked_before_nodes_are_asked() -> None:
    world, job = running()
    waiting = world.submit()
    nodes = Nodes()
    usages = StepUsages(world.view, nodes.ask)
    assert refusal(usages, job) == (RefusalCode.INVALID, "steps: 0 of them: name 1 to 16 in a call")
    assert refusal(usages, job, *range(17))[0] is RefusalCode.INVALID
    assert refusal(usages, waiting, -1)[0] is RefusalCode.CONFLICT
    # A step that is not there, or a number that is none, is left out.
    assert ask(usages, job, 5, -3, 2**31 - 1) == pb.StepUsageReply()
    assert not nodes.questions


def test_the_answer_is_put_together_by_steps_and_nodes() -> None:
    world, job = running()
    step = number(create(world, job, 2, 2, claim=None))
    world.deliver()
    nodes = Nodes()
    usages = StepUsages(world.view, nodes.ask)
    # A node speaks only for steps that it was asked about.
    nodes.outcomes[0] = measured(
        use(-1, 0, 5), use(step, 0, 7, pids=(11, 12), local_ranks=(0, -5)), use(9, 0, 1)
    )
    nodes.outcomes[1] = measured(
        use(-1, 0, 1_000), use(step, 1, 4, pids=(13,), local_ranks=(2**40,), first_task=1)
    )
    reply = ask(usages, job, step, -1, 9, processes=True)
    assert nodes.questions == [((0, 1), Measure(job, 1, (-1, step), True))]
    assert [one.step for one in reply.steps] == [-1, step]
    script, tasks = reply.steps
    names = [world.state.nodes[node].name for node in (0, 1)]
    assert (script.tasks, script.cpu_us.total, script.node_names) == (1, 5, names[0])
    assert (tasks.tasks, tasks.cpu_us.total, tasks.memory_kib.total) == (2, 11, 2048)
    assert (tasks.cpu_us.most_node, tasks.cpu_us.least_node, tasks.cpu_us.least_task) == (*names, 1)
    assert [(one.node, list(one.pids)) for one in tasks.processes] == [(names[0], [11, 12]), (names[1], [13])]
    assert [(list(one.local_ranks), one.first_task) for one in tasks.processes] == [
        ([0, -1], 0),
        ([2**31 - 1], 1),
    ]
    assert not reply.silent
    # One node alone is asked, if it is one of theirs.
    nodes.questions.clear()
    for name in (names[1], "else"):
        request = pb.StepUsageRequest(job=pb.JobRef(job_id=job), steps=[-1, step], node=name)
        reply = run(usages.call(request, Caller(ALICE, b"r" * 16, False, 1_000_000, "socket")))
        assert [one.node_names for one in reply.steps] == ([name] if name == names[1] else [])
    assert [asked for asked, _ in nodes.questions] == [(1,)]


def test_silent_nodes_are_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    world, job = running(nodes=4)
    step = number(create(world, job, 4, 4, claim=None))
    world.deliver()
    nodes = Nodes()
    usages = StepUsages(world.view, nodes.ask)
    names = [world.state.nodes[node].name for node in range(4)]
    nodes.outcomes = {
        0: measured(use(step, 0, 7)),
        1: failed("no room"),
        2: Outcome(Status.OK, payload=b"\xff"),
    }
    reply = ask(usages, job, step)
    assert [one.node_names for one in reply.steps] == [names[0]]
    assert {one.node_names: one.why for one in reply.silent} == {
        names[1]: "no room",
        names[2]: "its answer cannot be read",
        names[3]: step_usage.SILENT,
    }
    monkeypatch.setattr(step_usage, "NODES_MEASURED_MAX", 3)
    assert {one.node_names: one.why for one in ask(usages, job, step).silent}[
        names[3]
    ] == step_usage.NOT_ASKED
    # Agents of an earlier release are not asked.
    monkeypatch.setattr(step_usage, "MEASURES", 99)
    nodes.questions.clear()
    assert [one.why for one in ask(usages, job, step).silent] == [step_usage.TOO_OLD]
    assert not nodes.questions


def test_a_user_has_few_questions_open_and_all_together_not_many() -> None:
    world, job = running()
    nodes = Nodes()

    async def main() -> None:
        opened = asyncio.Event()
        nodes.gate = opened.wait
        usages = StepUsages(world.view, nodes.ask)
        request = pb.StepUsageRequest(job=pb.JobRef(job_id=job), steps=[-1])

        def call(by: Principal) -> Awaitable[pb.StepUsageReply]:
            return usages.call(request, Caller(by, b"r" * 16, False, 1_000_000, "socket"))

        waiting = [asyncio.ensure_future(call(ALICE)) for _ in range(ASKED_OF_USER_MAX)]
        await until(lambda: len(nodes.questions) == ASKED_OF_USER_MAX)
        with pytest.raises(ApiError, match="too many questions"):
            await call(ALICE)
        usages._asked[12345] = ASKED_MAX - ASKED_OF_USER_MAX
        with pytest.raises(ApiError, match="too many questions"):
            await call(ROOT)
        del usages._asked[12345]
        opened.set()
        await asyncio.gather(*waiting)
        assert not usages._asked, "nothing is kept of users whose calls are over"
        await call(ALICE)

    run(main())


def test_a_user_s_questions_have_a_rate_and_an_operator_s_have_none() -> None:
    world, job = running()
    nodes = Nodes()
    now_s = [0.0]
    usages = StepUsages(world.view, nodes.ask, lambda: now_s[0])
    saved = round(CALLS_OF_USER_PER_S * BURST_S)
    for _ in range(saved):
        ask(usages, job, -1)
    with pytest.raises(ApiError, match="questions a second about the use of steps") as caught:
        ask(usages, job, -1)
    assert caught.value.retry_after_s > 0, "clients come again by themselves"
    assert len(nodes.questions) == saved, "the nodes were not asked"
    for _ in range(saved + 1):
        ask(usages, job, -1, by=ROOT)
    now_s[0] += 1.0
    for _ in range(round(CALLS_OF_USER_PER_S)):
        ask(usages, job, -1)
    with pytest.raises(ApiError):
        ask(usages, job, -1)


def test_as_many_users_are_remembered_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    world, job = running()
    monkeypatch.setattr(step_usage, "USERS_MAX", 3)
    usages = StepUsages(world.view, Nodes().ask)
    for uid in range(10):
        usages._charge(uid)
    ask(usages, job, -1)
    assert len(usages._budgets) == 3
