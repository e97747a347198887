"""Work in slices comes to the same as all at once, and what did not change is not looked at."""

from __future__ import annotations

import pytest

from eslurm.core.model.job import Span
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import exhaust, plan_at_once
from eslurm.core.plan.cycle.queue import CHANGES_MAX, Journal, PendingQueue
from eslurm.core.plan.cycle.schedule import Booking, Schedule
from eslurm.core.plan.cycle.snapshot import Running, Snapshot, changes_since
from eslurm.core.plan.placement.compiled_request import CompiledRequest, compile_request
from eslurm.core.plan.profile import profile as book_module
from eslurm.core.plan.profile import rows
from eslurm.core.plan.profile.profile import ProfileError, ResourceProfile
from eslurm.core.resources.nodes import Topology
from tests.kits.plan_building import NOW, job, ledger, nodes

NODES = 9
MAIN = PartitionView("main")


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "NODES_PER_SLICE", 2)
    monkeypatch.setattr(rows, "NODES_PER_SLICE", 2)
    monkeypatch.setattr(rows, "FLIPS_PER_SLICE", 2)


def busy_book() -> ResourceProfile:
    """Each node has another future; four begin and end with others."""
    book = ResourceProfile(Topology(nodes(NODES, memory_mib=100)), now_us=NOW)
    for node in range(NODES):
        book.book([(node, (1 + node % 3, 10 * node))], NOW + node // 2, NOW + 50 + node)
    return book


def need_of(
    book: ResourceProfile, *, cores: int = 2, memory_mib: int = 25, exclusive: bool = False
) -> CompiledRequest:
    request = Request(
        tasks=3 * cores,
        nodes_min=3,
        nodes_max=3,
        tasks_per_node=cores,
        memory_per_cpu_mib=memory_mib,
        exclusive=exclusive,
    )
    return compile_request(request, MAIN, book.topology)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("cores", [1, 2, 3, 4])
def test_what_was_prepared_is_found_as_without(cores: int, exclusive: bool) -> None:
    book, other = busy_book(), busy_book()
    need = need_of(book, cores=cores, exclusive=exclusive)
    # Rows of other amounts, for those that are made later to lie between.
    for memory_mib in (10, 40):
        book.earliest(need_of(book, memory_mib=memory_mib), 20, NOW)
    assert len(list(book.preparing(need))) > 1
    assert not list(book.preparing(need))
    book.check()
    assert book.earliest(need, 20, NOW) == other.earliest(need, 20, NOW)


@pytest.mark.parametrize("slots_max", [1024, 4])
def test_a_booking_in_slices_is_the_same_and_ends_as_one(slots_max: int) -> None:
    book, other = busy_book(), busy_book()
    book.slots_max = other.slots_max = slots_max
    spans = [(node, (1, 5)) for node in range(NODES)]
    assert len(list(book.booking(spans, NOW + 3, NOW + 1_000))) == 5
    for pair in spans:
        other.book([pair], NOW + 3, NOW + 1_000)
    book.check()
    assert [book.used(resource) == other.used(resource) for resource in (0, 1)] == [True, True]
    assert len(list(book.revoking(spans, NOW + 3, NOW + 1_000))) == 5
    book.check()
    assert book.slots == busy_book().slots
    assert book.used(0) == busy_book().used(0)


def test_a_booking_that_fails_in_a_later_slice_leaves_nothing() -> None:
    book = busy_book()
    book.book([(8, (1, 0))], NOW + 500, NOW + 600)
    slots = book.slots
    with pytest.raises(ProfileError, match="node n8: cannot book"):
        exhaust(book.booking([(node, (4, 0)) for node in range(NODES)], NOW + 400, NOW + 700))
    book.book([(node, (0, 1)) for node in range(NODES)], NOW + 400, NOW + 700)
    too_much = [(node, (0, 1 if node < 8 else 90)) for node in range(NODES)]
    with pytest.raises(ProfileError, match="node n8: cannot revoke"):
        exhaust(book.revoking(too_much, NOW + 400, NOW + 700))
    book.check()
    book.revoke([(node, (0, 1)) for node in range(NODES)], NOW + 400, NOW + 700)
    book.check()
    assert book.slots == slots


def test_what_cannot_be_booked_displaces_no_plan() -> None:
    views = nodes(1)
    there = ledger(views)
    there.hold(0, (4, 0), NOW + 100)
    schedule = Schedule()
    waiting = PendingQueue([job(1, Request(cpus_per_task=2), limit_us=50)])
    running = {(900, 1): Running(900, ((0, (4, 0)),), NOW + 100)}
    seen = Snapshot.take(there, {"main": MAIN}, waiting, generation=0, now_us=NOW, running=running, known=[1])
    plan = plan_at_once(seen, policy="planned", schedule=schedule)
    assert [(one.start_us, one.stop_us) for one in plan.promises()] == [(NOW + 100, NOW + 150)]

    def going_on(job_id: int, start_us: int) -> Booking:
        """A booking: a suspended job that made room is to have three cores then."""
        return Booking(job_id, start_us, NOW + 300, (Span(0, (3,), 0),))

    exhaust(schedule.taking(None, going_on(8, NOW + 200)))
    slots, freed, why = schedule.book.slots, schedule.freed, schedule.whys[1]
    with pytest.raises(ProfileError):
        exhaust(schedule.claiming(None, going_on(9, NOW + 100)))
    schedule.book.check()
    assert schedule.bookings == plan.bookings and not schedule.displaced
    assert (schedule.book.slots, schedule.freed, schedule.whys[1]) == (slots, freed, why)


def test_a_journal_tells_what_changed_since() -> None:
    journal = Journal()
    begin = journal.mark
    assert journal.since(begin) == frozenset()
    for job_id in (3, 5, 3):
        journal.note(job_id)
    middle = journal.mark
    journal.note(7)
    assert journal.since(begin) == frozenset({3, 5, 7})
    assert journal.since(middle) == frozenset({7})
    assert journal.since(None) is None
    assert Journal().since(middle) is None
    for _ in range(2 * CHANGES_MAX):
        journal.note(1)
    assert journal.since(middle) is None
    assert journal.since(journal.mark) == frozenset()


def test_every_change_of_a_queue_is_in_its_journal() -> None:
    queue = PendingQueue([job(1), job(2), job(3)])
    later = PendingQueue([job(4)], queue.shapes)
    mark = queue.shapes.journal.mark
    queue.remove(1)
    queue.replace(job(2, priority=5))
    queue.replace(job(3, startable=2))
    later.remove(4)
    queue.add(job(4))
    assert changes_since(mark, queue, later) == frozenset({1, 2, 3, 4})
    assert changes_since(mark, queue, PendingQueue()) is None


def test_a_job_that_is_gone_gives_its_place_back_without_the_others_being_asked() -> None:
    living = ledger(nodes(1))
    queue = PendingQueue([job(number, Request(tasks=4)) for number in (1, 2, 3)])
    schedule = Schedule()

    def cycle() -> Snapshot:
        since = schedule.mark
        known = schedule.known_jobs(changes_since(since, queue, None))
        snapshot = Snapshot.take(
            living, {"main": MAIN}, queue, generation=1, now_us=NOW, known=known, since=since
        )
        for placement in plan_at_once(snapshot, policy="planned", schedule=schedule).placements:
            queue.remove(placement.job_id)
        return snapshot

    cycle()
    assert set(schedule.bookings) == {2, 3}
    queue.remove(2)
    # The first has not become a running attempt, nor does it wait: it is given up.
    assert not cycle().known
    assert set(schedule.bookings) == set()
    assert 3 not in queue
    schedule.book.check()
