"""A leader keeps its lease, knows its standbys, and hands over once, to somebody who is there."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from esctld.lead.leadership import Leadership, Lease, Standbys, give_up
from eslurm.core.dispatch.leader_lease import LeaderLease
from eslurm.core.dispatch.standby import Lead
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import CancelJobs, Changed, JobRef, RefusalCode, Refused
from eslurm.core.state.cluster import State
from eslurm.lab.sim.memory_store import MemoryStore
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.link import PeerInfo
from eslurm.ports.store import Claim, FenceLost, StoreUnavailable
from eslurm.v1 import controller_pb2 as pb
from tests.kits.api import until
from tests.kits.leading import CLUSTER, OWNER, LeadingController
from tests.support.loops import run

REQUEST_ID = bytes(range(1, 17))


class FakeLink:
    """A link as far as standbys matter."""

    def __init__(self, name: str, *features: str) -> None:
        process, endpoint = f"{name}.abc", f"{name}:1"
        self.peer = PeerInfo(
            CLUSTER, "controller", process, endpoint, frozenset(features), 1, 0, OWNER, "1.0"
        )


class AwayStore(MemoryStore):
    """Does not answer as often as told."""

    away = 0

    async def renew(self) -> None:
        self._fail()
        await super().renew()

    async def release(self, successor: str = "") -> None:
        self._fail()
        await super().release(successor)

    def _fail(self) -> None:
        if self.away:
            self.away -= 1
            raise StoreUnavailable("away")


async def opened(image: StoreImage, name: str = "c1") -> AwayStore:
    store = AwayStore(image, CLUSTER)
    await store.open(OWNER, Claim(name, f"{name}:1", await store.leader(OWNER)))
    return store


def leading(*standbys: str) -> Leadership:
    linked = Standbys()
    for name in standbys:
        linked.add(FakeLink(name), 5)  # type: ignore[arg-type]
    return Leadership(Lead("c1", "c1:1", 4, State(OWNER)), linked, 3)


def test_it_lists_itself_first_and_then_its_standbys_by_name() -> None:
    infos = leading("c3", "c2").controllers()
    assert [(one.name, one.role, one.endpoint, one.epoch, one.since_us) for one in infos] == [
        ("c1", "leader", "c1:1", 4, 3),
        ("c2", "standby", "c2:1", 0, 5),
        ("c3", "standby", "c3:1", 0, 5),
    ]


def test_a_standby_is_known_by_the_name_that_it_says_and_while_it_is_linked() -> None:
    standbys, link, again = Standbys(), FakeLink("host", "controller=c2"), FakeLink("host", "controller=c2")
    assert standbys.add(link, 1).name == "c2"  # type: ignore[arg-type]
    standbys.add(again, 2)  # type: ignore[arg-type]
    assert [one.since_us for one in standbys.all] == [2]
    standbys.remove(again)  # type: ignore[arg-type]
    assert [one.since_us for one in standbys.all] == [1]
    standbys.remove(link)  # type: ignore[arg-type]
    assert standbys.all == [] and standbys.remove(link) is None  # type: ignore[arg-type]


def test_a_standby_says_what_is_wrong_with_its_configuration() -> None:
    standbys, link, stranger = Standbys(), FakeLink("c2"), FakeLink("c3")
    standbys.add(link, 1)  # type: ignore[arg-type]
    standbys.note(link, "it is older")  # type: ignore[arg-type]
    standbys.note(stranger, "it is nothing")  # type: ignore[arg-type]
    leadership = Leadership(Lead("c1", "c1:1", 4, State(OWNER)), standbys, 3)
    assert [(one.name, one.configuration) for one in leadership.controllers()] == [
        ("c1", ""),
        ("c2", "it is older"),
    ]
    standbys.note(link, "x" * 5_000)  # type: ignore[arg-type]
    assert len(standbys.all[0].configuration) == 1_000


@pytest.mark.parametrize(
    ("standbys", "to", "code", "said"),
    [
        ((), "", RefusalCode.CONFLICT, "no standby is linked"),
        ((), "c2", RefusalCode.CONFLICT, "no standby is linked"),
        (("c2",), "c1", RefusalCode.CONFLICT, "leads already"),
        (("c2", "c3"), "c9", RefusalCode.NOT_FOUND, "standbys: c2, c3"),
    ],
)
def test_a_switch_that_cannot_be_is_refused_and_changes_nothing(
    standbys: tuple[str, ...], to: str, code: RefusalCode, said: str
) -> None:
    leadership = leading(*standbys)
    with pytest.raises(Refused, match=said) as refused:
        leadership.hand_over(to, REQUEST_ID)
    assert refused.value.code is code
    assert not leadership.handing_over.is_set()


def test_a_switch_is_begun_once() -> None:
    leadership = leading("c3", "c2")
    reply = leadership.hand_over("", REQUEST_ID)
    assert (getattr(reply, "from"), reply.to, reply.epoch) == ("c1", "c2", 4)
    assert leadership.handing_over.is_set()
    with pytest.raises(Refused, match="passes to c2 already"):
        leadership.hand_over("c3", REQUEST_ID)


def test_letting_go_names_the_successor_and_keeps_the_answer_for_retries() -> None:
    async def main() -> None:
        image = StoreImage(CLUSTER)
        store = await opened(image)
        leadership = leading("c2")
        reply = leadership.hand_over("c2", REQUEST_ID)
        store.away = 1
        await leadership.let_go(Lease(store, LeaderLease(4_000)), 0)
        row = image.leader(OWNER)
        assert (row.released, row.successor) == (True, "c2")
        stored = await MemoryStore(image, CLUSTER).lookup_request(REQUEST_ID)
        assert stored is not None and pb.TakeoverReply.FromString(stored) == reply

    run(main())


def test_letting_go_after_a_batch_of_answers_alone_does_not_turn_the_time_back() -> None:
    """Such a batch moves the row's time, not the state's."""

    async def main() -> None:
        image = StoreImage(CLUSTER)
        async with LeadingController(image) as leader:
            nothing = CancelJobs(Principal("ann", 1000, 1000), (JobRef(999),))
            answer = await leader.dispatcher.request(nothing, bytes([7] * 16))
            assert isinstance(answer, Changed) and answer.problems
            assert image.head(OWNER).at_us > leader.state.now_us
            linked = Standbys()
            linked.add(FakeLink("c2"), 5)  # type: ignore[arg-type]
            leadership = Leadership(Lead("c1", "c1:1", leader.epoch, leader.state), linked, 3)
            leadership.hand_over("c2", REQUEST_ID)
        await leadership.let_go(Lease(leader.store, LeaderLease(4_000)), leader.dispatcher.now_us())
        assert (image.leader(OWNER).released, image.leader(OWNER).successor) == (True, "c2")
        assert await leader.store.lookup_request(REQUEST_ID) is not None

    run(main())


def test_a_clean_stop_lets_go_for_anybody() -> None:
    async def main() -> None:
        image = StoreImage(CLUSTER)
        store = await opened(image)
        await leading("c2").let_go(Lease(store, LeaderLease(4_000)), 0)
        assert (image.leader(OWNER).released, image.leader(OWNER).successor) == (True, "")

    run(main())


def test_letting_go_of_what_another_has_or_of_an_absent_store_ends_quietly() -> None:
    async def main() -> None:
        image = StoreImage(CLUSTER)
        store = await opened(image)
        store.away = 100
        await leading().let_go(Lease(store, LeaderLease(4_000)), 0)
        assert not image.leader(OWNER).released
        store.away = 0
        await opened(image, "c2")
        await leading().let_go(Lease(store, LeaderLease(4_000)), 0)
        await give_up(store)
        row = image.leader(OWNER)
        assert (row.holder, row.released) == ("c2", False)

    run(main())


def test_the_lease_is_kept_over_an_outage_and_ends_with_the_lead() -> None:
    async def main() -> None:
        image = StoreImage(CLUSTER)
        store = await opened(image)
        store.away = 3
        times = itertools.count()
        proved: list[int] = []
        kept = Lease(store, LeaderLease(4_000), lambda: next(times), proved.append)
        lease = asyncio.create_task(kept.run())
        await until(lambda: image.leader(OWNER).beat >= 3)
        assert store.away == 0 and not lease.done()
        # What failed proves nothing, and what succeeded was begun then.
        assert proved[:3] == [3, 4, 5]
        await opened(image, "c2")
        with pytest.raises(FenceLost):
            await lease
        assert image.leader(OWNER).beat == 0

    run(main())
