"""Jobs that lend or borrow cores, and get nodes or give them back meanwhile: who uses which cores, and who pays (R-04)."""

from __future__ import annotations

import pytest

from eslurm.core.model.config import PriorityWeights
from eslurm.core.model.lending import Exclusion, Loan
from eslurm.core.model.messages import JobRef, Refused, Resized, ResizeJob
from eslurm.core.model.protocol import Exclude
from eslurm.core.model.request import Request
from eslurm.core.plan.slices import exhaust
from eslurm.core.state.allocation_amounts import borrowed_core_us
from eslurm.core.state.usage import usage_now
from tests.kits.core import ALICE, SECOND, World
from tests.kits.lending import asks, ends, excludes, exclusion, launches, lend, submit_borrower, tell

CHARGED = PriorityWeights(half_life_s=0, billing=(("cores", 1.0),))


def wide(nodes: int, cores: int = 4) -> Request:
    return Request(tasks=nodes, cpus_per_task=cores, nodes_min=nodes, nodes_max=nodes)


def owner_of(world: World, nodes: int, *, account: str = "owner", **spec: object) -> int:
    """A running job of all cores of so many nodes that cooperates."""
    job = world.submit(
        request=wide(nodes), cooperate="full", time_limit_s=1000, name="owner", account=account, **spec
    )
    world.start()
    assert world.state_of(job) == "RUNNING"
    return job


def resize(world: World, job: int, **how: object) -> Resized:
    answer = world.send(ResizeJob(ALICE, JobRef(job), **how))  # type: ignore[arg-type]
    assert isinstance(answer, Resized), answer
    return answer


def leave(world: World, job: int, node: int) -> None:
    """The job gives this node back, which has begun to end what is there."""
    resize(world, job, without=(f"cn{node}",))
    (send,) = world.sends()
    assert [(end.job_id, end.cause) for end in ends([send])] == [(job, "released")] and send.nodes == (node,)
    world.done(send)


def give_back(world: World, job: int, node: int) -> None:
    """The job gives this node back, and nothing of it is left there."""
    leave(world, job, node)
    world.gone(node, job, world.attempt(job).number)


def paid(world: World) -> dict[str, float]:
    """Core-seconds by account so far."""
    found = exhaust(usage_now(world.state, list(world.state.jobs.values()), world.now_us))
    return {account: amount for (account, _), amount in found.items()}


def lent_on_second(cooperate: str = "requeue,30") -> tuple[World, int, int]:
    """An owner of two nodes, and a borrower of two cores of its second one."""
    world = World(2, 4, priority=CHARGED)
    owner = owner_of(world, 2)
    borrower = submit_borrower(world, borrow=cooperate, account="borrower", limit_s=500)
    lend(world, owner, 2, node=1)
    assert world.start() == [borrower]
    assert [loan.node for loan in world.attempt(borrower).loans] == [1]
    return world, owner, borrower


# ---- the owner gives a node back ----


@pytest.mark.parametrize("restarts", [False, True])
def test_a_borrower_keeps_what_its_owner_gives_back(restarts: bool) -> None:
    world, owner, borrower = lent_on_second()
    world.pass_time(10)
    leave(world, owner, 1)
    if restarts:
        world.restart()
    assert [loan.owner for loan in world.attempt(borrower).loans] == [owner], "the node is left, not free"
    world.pass_time(5)
    world.gone(1, owner, 1)
    if restarts:
        world.restart()
    assert world.state_of(borrower) == "RUNNING" and world.attempt(borrower).loans == ()
    assert world.state.ledger.free(1)[0] == 2, "it holds its two now"
    assert exclusion(world, owner, 1) is None and not world.state.loans
    world.pass_time(7)
    assert paid(world) == {"owner": 8 * 15 + 4 * 7, "borrower": 2 * 7}
    world.end(borrower)
    assert paid(world)["borrower"] == 2 * 7 and world.state.ledger.free(1)[0] == 4
    more = world.attempt(owner).more
    assert more is not None and more.lent_core_us == 2 * 15 * SECOND


def test_a_node_that_is_given_back_lends_nothing_more() -> None:
    world = World(2, 4)
    owner = owner_of(world, 2)
    borrower = submit_borrower(world)
    lend(world, owner, 2, node=1)
    plan = world.planned()
    assert [one.job_id for one in plan.placements] == [borrower]
    resize(world, owner, without=("cn1",))
    world.send(plan)
    assert world.state_of(borrower) == "PENDING" and not world.plan()
    tell(world, owner, 3, node=1)
    assert not excludes(world), "no more is excluded where its end is on its way"
    world.gone(1, owner, 1)
    assert world.start() == [borrower]
    assert world.attempt(borrower).loans == (), "the cores are free"


def test_a_borrower_is_not_stopped_for_a_node_that_its_owner_gives_back() -> None:
    """Goal: the owner's processes take their cores back on their way out; the loan outlives them."""
    world, owner, borrower = lent_on_second()
    leave(world, owner, 1)
    tell(world, owner, 0, node=1)
    assert not world.sends() and world.attempt(borrower).stop is None
    world.gone(1, owner, 1)
    assert world.state_of(borrower) == "RUNNING"


def test_what_is_not_lent_of_a_node_that_is_given_back_is_the_owners_at_once() -> None:
    world, owner, _borrower = lent_on_second()
    submit_borrower(world, 3)
    lend(world, owner, 3, node=1)
    leave(world, owner, 1)
    tell(world, owner, 0, node=1)
    (send,) = world.sends()
    assert send.body == Exclude(owner, 1, 2)


def test_an_application_is_not_asked_for_cores_of_nodes_that_it_gives_back() -> None:
    world = World(2, 4)
    owner = owner_of(world, 2)
    tell(world, owner, 0, node=1, remaining_s=10)
    submit_borrower(world)
    resize(world, owner, without=("cn1",))
    world.pass_time(6)
    assert not asks(world.sends())


def test_work_is_shared_by_the_nodes_that_are_left() -> None:
    """Goal: of two applications the one that loses less is asked; nodes given back do none of its work."""
    world = World(4, 4)
    shrunk, other = owner_of(world, 2), owner_of(world, 2)
    give_back(world, shrunk, 1)
    filler = world.submit(request=wide(1), time_limit_s=1000)
    assert world.start() == [filler]
    # Of four cores one leaves: 100 s become 133 s; of eight, 180 s become 206 s.
    tell(world, shrunk, 0, node=0, remaining_s=400)
    tell(world, other, 0, node=2, remaining_s=1440)
    submit_borrower(world, 1)
    world.pass_time(6)
    assert [ask.job_id for ask in asks(world.sends())] == [other]


# ---- the borrower gives a node back ----


def over_two_nodes(nodes: int = 2) -> tuple[World, int, int]:
    """A borrower of four free cores on the first node, and of four lent ones on the second; others own further nodes."""
    world = World(nodes, 4, priority=CHARGED)
    blocker = world.submit(request=wide(1), time_limit_s=10)
    world.start()
    owner = owner_of(world, 1)
    assert world.attempt(owner).first == 1
    for _ in range(2, nodes):
        owner_of(world, 1)
    borrower = world.submit(request=wide(2), borrow="requeue,30", account="borrower", time_limit_s=500)
    lend(world, owner, 4, node=1)
    assert world.start() == []
    world.end(blocker)
    assert world.start() == [borrower]
    assert world.attempt(borrower).loans == (Loan(owner, 1, 1, 4, world.now_us),)
    return world, owner, borrower


@pytest.mark.parametrize("restarts", [False, True])
def test_borrowed_cores_go_back_with_their_node(restarts: bool) -> None:
    world, owner, borrower = over_two_nodes()
    world.pass_time(10)
    give_back(world, borrower, 1)
    if restarts:
        world.restart()
    assert not world.state.loans and world.attempt(borrower).held == {0}
    assert exclusion(world, owner, 1) == Exclusion(1, 4, 4), "they stay excluded for the next one"
    world.pass_time(10)
    # Its own four, and nothing of what it has borrowed, before and after the end of the loan.
    assert paid(world)["borrower"] == 4 * 20
    attempt = world.attempt(borrower)
    world.end(borrower)
    assert paid(world)["borrower"] == 4 * 20
    ended = world.state.jobs.get(borrower)
    assert ended is not None and ended.state.value == "COMPLETED"
    assert borrowed_core_us(attempt) == 4 * 10 * SECOND
    more = world.attempt(owner).more
    assert more is not None and more.lent_core_us == 4 * 10 * SECOND


def test_a_node_of_cores_that_became_its_own_is_charged_from_then_on() -> None:
    world, owner, borrower = over_two_nodes()
    world.pass_time(10)
    world.end(owner)
    assert world.attempt(borrower).loans == ()
    world.pass_time(10)
    give_back(world, borrower, 1)
    world.pass_time(10)
    assert paid(world)["borrower"] == 4 * 30 + 4 * 10
    assert borrowed_core_us(world.attempt(borrower)) == 4 * 10 * SECOND
    world.end(borrower)
    assert paid(world)["borrower"] == 4 * 30 + 4 * 10


def test_what_a_borrower_loses_with_a_node_is_charged_to_the_owner() -> None:
    world = World(2, 4, priority=CHARGED)
    blocker = world.submit(request=wide(1), time_limit_s=10)
    world.start()
    owner = owner_of(world, 1)
    borrower = world.submit(
        request=wide(2), borrow="requeue", account="borrower", time_limit_s=500, no_kill=True
    )
    lend(world, owner, 4, node=1)
    world.end(blocker)
    assert world.start() == [borrower]
    world.pass_time(10)
    world.lose(1)
    assert world.state_of(borrower) == "RUNNING" and not world.state.loans
    world.pass_time(10)
    assert paid(world)["borrower"] == 4 * 20
    world.end(borrower)
    assert paid(world)["borrower"] == 4 * 20


def test_an_owner_that_asks_back_stops_the_borrower_of_a_leaving_node() -> None:
    """Goal: the site's grace may be longer than the one that the borrower agreed to."""
    world, owner, borrower = over_two_nodes()
    leave(world, borrower, 1)
    tell(world, owner, 0, node=1)
    assert [(end.job_id, end.grace_s) for end in ends(world.sends())] == [(borrower, 30.0)]


# ---- growth ----


def test_a_growth_takes_no_lent_cores() -> None:
    """Goal: a borrower agreed to give back what it began with; its further nodes are its own."""
    world, _owner, borrower = over_two_nodes(3)
    (other,) = world.state.jobs_on[2]
    waiting = submit_borrower(world, 4)
    lend(world, other, 4, node=2)
    world.cancel(waiting)
    assert exclusion(world, other, 2) == Exclusion(2, 4, 4)
    growth = resize(world, borrower, by_nodes=1).growth_id
    assert growth and growth not in world.state.borrowers
    world.plan()
    assert world.state_of(growth) == "PENDING" and world.attempt(borrower).held == {0, 1}
    world.end(other)
    world.plan()
    assert world.attempt(borrower).held == {0, 1, 2}


@pytest.mark.parametrize("restarts", [False, True])
def test_an_owner_gets_its_cores_back_while_it_waits_for_nodes(restarts: bool) -> None:
    """Goal: neither the growth that is planned nor the loan knows of the other."""
    world = World(3, 4)
    owner = owner_of(world, 2)
    other = world.submit(request=wide(1), time_limit_s=100)
    assert world.start() == [other]
    borrower = submit_borrower(world, 2, limit_s=50)
    lend(world, owner, 2, node=1)
    assert world.start() == [borrower]
    growth = resize(world, owner, by_nodes=1).growth_id
    assert not world.plan() and world.state_of(growth) == "PENDING"
    if restarts:
        world.restart()
    tell(world, owner, 0, node=1)
    assert [end.job_id for end in ends(world.sends())] == [borrower]
    world.end(borrower)
    world.end(other)
    world.plan()
    assert world.attempt(owner).joining == {2}
    if restarts:
        world.restart()
    world.deliver()
    assert world.attempt(owner).held == {0, 1, 2} and not world.attempt(owner).joining
    assert exclusion(world, owner, 1) is None
    assert world.state_of(growth) == "COMPLETED" and world.state_of(borrower) == "PENDING"
    world.pass_time(5)
    lend(world, owner, 3, node=2)
    assert world.start() == [borrower]
    assert [loan.node for loan in world.attempt(borrower).loans] == [2], (
        "a node that joined lends as the others"
    )


def test_a_growth_that_fails_leaves_the_loan_of_another_node() -> None:
    world = World(3, 4)
    owner = owner_of(world, 2)
    blocker = world.submit(request=wide(1), time_limit_s=10)
    assert world.start() == [blocker]
    borrower = submit_borrower(world, 2)
    lend(world, owner, 2, node=1)
    assert world.start() == [borrower]
    world.end(blocker)
    resize(world, owner, by_nodes=1)
    world.plan()
    assert world.attempt(owner).joining == {2}
    (send,) = [send for send in world.sends() if launch_of(send.body) == owner]
    world.done(send, "failed")
    world.deliver()
    world.gone(2, owner, 1)
    assert world.attempt(owner).held == {0, 1}
    assert [loan.owner for loan in world.attempt(borrower).loans] == [owner]
    assert world.state.ledger.free(2)[0] == 4


def launch_of(body: object) -> int:
    launch = getattr(body, "launch", None)
    return launch.job_id if launch is not None else 0


def test_a_borrower_is_launched_on_lent_cores_of_a_node_that_joined() -> None:
    world = World(2, 4)
    owner = owner_of(world, 1)
    resize(world, owner, by_nodes=1)
    world.start()
    assert world.attempt(owner).held == {0, 1}
    borrower = submit_borrower(world, 4)
    lend(world, owner, 4, node=1)
    assert world.plan() == [borrower]
    (send,) = [send for send in world.sends() if launches([send]) == [borrower]]
    assert send.nodes == (1,)
    refused = world.send(ResizeJob(ALICE, JobRef(borrower), without=("cn1",)))
    assert isinstance(refused, Refused)
