"""Limits on jobs of several parts against a dense model: each consumer's use at every instant of a short future."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.core.model.accounts import Amount, Limit
from eslurm.core.model.config import Resource
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.queue import Pending, PendingPart
from eslurm.core.plan.placement.compiled_request import compile_job
from eslurm.core.plan.placement.feasible import empty_ledger
from eslurm.core.plan.placement.mapping import choose, spans_of
from eslurm.core.plan.rules.constraints import Rules
from eslurm.core.plan.rules.limits import Consumer
from eslurm.core.resources.nodes import NodeView, Topology
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import sum_per_node
from tests.kits.plan_ruling import Future, Stay
from tests.support.profiles import draws

END = 12
WHERE = [("a",), ("a",), ("a", "b"), ("b",)]
TOPOLOGY = Topology(
    [NodeView(number, f"n{number}", (8, 0), True, names) for number, names in enumerate(WHERE)],
    resources=(Resource("matlab", wide_total=9),),
)
POLICIES = {
    "limit": {
        limit.name: limit
        for limit in (
            Limit("ada-cores", "user", "ada", "cores", Amount(20)),
            Limit("ada-nodes", "user", "ada", "nodes", Amount(5)),
            Limit("a-cores", "partition", "a", "cores", Amount(14)),
            Limit("a-nodes", "partition", "a", "nodes", Amount(4)),
            Limit("b-nodes", "partition", "b", "nodes", Amount(3)),
            Limit("each-matlab", "partition", "*", "matlab", Amount(2)),
        )
    }
}
USES = [
    (limit.name, (limit.kind, limit.consumer), limit.resource, limit.amount.items)
    for limit in POLICIES["limit"].values()
    if limit.consumer != "*"
] + [(f"each-matlab-{name}", ("partition", name), "matlab", 2) for name in "ab"]


def drawn(draw: random.Random, job_id: int) -> Pending:
    parts = tuple(
        PendingPart(
            Request(
                cpus_per_task=draw.randint(1, 4),
                nodes_min=(nodes := draw.choice([0, 1, 2])),
                nodes_max=nodes,
                tasks=max(1, nodes),
                exclusive=draw.random() < 0.2,
                wide=draw.choice([(), (("matlab", 1),)]),
            ),
            draw.choice("ab"),
        )
        for _ in range(draw.choice([1, 2, 2, 3]))
    )
    who = draw.choice(["ada", "bob"])
    several = parts if len(parts) > 1 else ()
    return Pending(job_id, parts[0].request, parts[0].partition, 10**9, user=who, parts=several)


def asked_of(job: Pending) -> tuple[PendingPart, ...]:
    return job.parts or (PendingPart(job.request, job.partition),)


def placed(job: Pending) -> tuple[Stay, dict[tuple[Consumer, str], int]] | None:
    """A job on the empty cluster, and what it uses of each (consumer, resource): counted span by span."""
    asked = asked_of(job)
    need = compile_job(
        [one.request for one in asked], [PartitionView(one.partition) for one in asked], TOPOLOGY
    )
    chosen = choose(empty_ledger(TOPOLOGY), need)
    if chosen is None:
        return None
    spans = spans_of(TOPOLOGY, need, chosen)
    pairs = sum_per_node([(span.node, span.amounts) for span in spans])
    parts = tuple([(span.component, span.node, span.amounts) for span in spans]) if job.parts else ()
    used: dict[tuple[Consumer, str], int] = {}
    for consumer in [
        ("user", job.user),
        *[("partition", name) for name in dict.fromkeys(one.partition for one in asked)],
    ]:
        own = [
            span for span in spans if consumer[0] == "user" or asked[span.component].partition == consumer[1]
        ]
        used[consumer, "cores"] = sum(span.amounts[0] for span in own)
        used[consumer, "nodes"] = len({span.node for span in own})
        used[consumer, "matlab"] = sum(
            items
            for one in asked
            if consumer[0] == "user" or one.partition == consumer[1]
            for _, items in one.request.wide
        )
    return Stay(0, 0, pairs, need.wide, parts=parts), used


@settings(max_examples=draws(300), deadline=None)
@given(st.integers(0, 1 << 60))
def test_each_consumer_sees_its_share_of_a_job_of_several_parts(seed: int) -> None:
    draw = random.Random(seed)
    rules = Rules(POLICIES, TOPOLOGY, Future(TOPOLOGY), now_us=0)
    dense: dict[tuple[Consumer, str], list[int]] = {}
    booked: list[tuple[Pending, Stay]] = []
    for job_id in range(draw.randint(0, 4)):
        job = drawn(draw, job_id)
        if (found := placed(job)) is None:
            continue
        start = draw.randint(0, END - 2)
        stay = Stay(start, draw.randint(start + 1, END), found[0].spans, found[0].wide, parts=found[0].parts)
        rules.book(job, stay)
        booked.append((job, stay))
        for key, items in found[1].items():
            line = dense.setdefault(key, [0] * (END + 1))
            for at in range(stay.start_us, stay.stop_us):
                line[at] += items
    job = drawn(draw, 99)
    if (found := placed(job)) is None:
        return
    asked = asked_of(job)
    need = compile_job(
        [one.request for one in asked], [PartitionView(one.partition) for one in asked], TOPOLOGY
    )
    chosen = choose(empty_ledger(TOPOLOGY), need)
    assert chosen is not None
    bound = rules.of(job, need)
    constraints = (*bound.constraints, *rules.recount(job, need, chosen))
    length = draw.randint(1, 4)

    def allowed(at: int) -> bool:
        return all(
            dense.get((consumer, resource), [0] * (END + 1))[min(instant, END)]
            + found[1].get((consumer, resource), 0)
            <= most
            for _, consumer, resource, most in USES
            if found[1].get((consumer, resource), 0)
            for instant in range(at, at + length)
        )

    for at in range(END + 1):
        assert allowed(at) == all(
            constraint.earliest(length, at, at + length) == at
            for constraint in constraints
            if constraint.kind == "limit"
        )
    for other, stay in booked:
        rules.revoke(other, stay)
    assert all(
        constraint.earliest(length, 0, INFINITY_US) in (0, None)
        for constraint in constraints
        if constraint.kind == "limit"
    )
