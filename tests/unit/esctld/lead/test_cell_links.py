"""Calls between cells: who passes, as whom, and what another cell's controller can do with its link."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from esctld.lead import cell_links
from esctld.lead.cell_links import CellLinks
from eslurm.api import forward
from eslurm.api.audit import CallAudit
from eslurm.api.methods import BY_NAME, METHODS
from eslurm.api.scopes import FROM_CELLS
from eslurm.core.federation.membership import Standing
from eslurm.core.federation.view import CellState, CellView, FederationView
from eslurm.core.model.federation import Alive, CellRecord
from eslurm.core.model.job import Principal
from eslurm.ports.api import Answered, ApiError, Caller, Status
from eslurm.ports.link import CELL, Link, LinkRefused, LinkUnreachable, PeerInfo, Wanted
from eslurm.security.cells import CellTrust
from eslurm.v1 import link_pb2
from tests.kits.api import until
from tests.support.loops import run
from tests.support.trust import Site

ALPHA, BETA, GAMMA = Site("alpha"), Site("beta"), Site("gamma")
ADA = Principal("ada", 5001, 5001, (5001,))
ROOT = Principal("root", 0, 0, (0,))


class FakeLink:
    """One end of a link to a cell."""

    def __init__(self, cell: str = "beta", epoch: int = 7) -> None:
        self.peer = PeerInfo(
            cell, CELL, f"{cell}/main.b", "127.0.0.1:2", frozenset(), 1, epoch, names="main", cell=cell
        )
        self.items: list[link_pb2.Item] = []
        self.ended = ""
        self.may_send = True

    def send(self, item: link_pb2.Item, traceparent: str = "") -> bool:
        self.items.append(item)
        return self.may_send

    async def send_bulk(self, item: link_pb2.Item) -> None:
        self.items.append(item)

    def close(self, reason: str) -> None:
        self.ended = reason

    @property
    def replies(self) -> list[link_pb2.DoorReply]:
        return [item.door_reply for item in self.items if item.HasField("door_reply")]


class Names:
    """The name service: ada here has the uid that she has there; ben has another."""

    async def resolve_relayed(self, uid: int, gid: int) -> Principal:
        if uid == 0:
            return ROOT
        if uid == 5001:
            return ADA
        raise ApiError(Status.PERMISSION_DENIED, f"uid {uid} is unknown on the controller's host")

    async def find_named(self, name: str) -> Principal | None:
        return {"ada": Principal("ada", 7001, 7001, (7001,)), "toor": ROOT}.get(name)


class World:
    """A cell called alpha, the federation as it sees it, and its links."""

    def __init__(self, users: str = "same", links: Callable[[str], Any] | None = None) -> None:
        self.callers: list[Caller] = []
        self.methods: list[str] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.states = {"alpha": CellState.ALIVE, "beta": CellState.ALIVE, "gamma": CellState.ALIVE}
        self.dialled: list[tuple[str, Wanted]] = []
        self.links_of = links or (lambda _endpoint: FakeLink())
        self.checked = 0
        pins = {"beta": frozenset({cell_fingerprint(BETA)})}
        anything: Any = self
        self.credentials = ALPHA.credentials("controller", "main")
        self.cells = CellLinks(
            anything, CellTrust(pins, believes_store=False), self.credentials, "main.a", anything, users
        )
        self.resolve_relayed = Names().resolve_relayed
        self.find_named = Names().find_named
        self.cells.attach(anything, anything, CallAudit())
        self.cells.follow()

    # ---- the federation ----

    cell = "alpha"
    is_draining = False
    silent_us = 42_000_000

    @property
    def records_version(self) -> object:
        return object()

    def rings(self) -> dict[str, bytes]:
        sites = {"beta": BETA, "gamma": GAMMA}
        return {name: sites[name].keys.ring.sealed for name in self.states if name in sites}

    def view(self) -> FederationView:
        cells = tuple(
            CellView(
                name,
                state,
                CellRecord(1, 1, name, name, b"", 0),
                Alive(1, 7, "127.0.0.1:2", ("127.0.0.1:3",)) if state is CellState.ALIVE else None,
                silent_us=self.silent_us if state is CellState.SILENT else None,
            )
            for name, state in self.states.items()
        )
        return FederationView("lab", "alpha", Standing.MEMBER, age_us=0, cells=cells)

    # ---- the table of links ----

    def check_links(self) -> None:
        self.checked += 1

    def close_quiet(self, _role: str, _quiet_s: float) -> None:
        pass

    async def get(self, endpoint: str, wanted: Wanted, _backoff_max_s: float) -> Link:
        self.dialled.append((endpoint, wanted))
        found = self.links_of(endpoint)
        if isinstance(found, Exception):
            raise found
        self.cells.on_up(found)
        return found  # type: ignore[no-any-return]

    # ---- the interceptor ----

    async def answer(self, method: Any, payload: bytes, caller: Caller) -> Answered:
        self.callers.append(caller)
        self.methods.append(method.name)
        await self.may_answer.wait()
        return Answered(Status.OK, "", payload[::-1])

    def takes(self, link: FakeLink, **fields: Any) -> None:
        """A call from another cell."""
        known: dict[str, Any] = {
            "process": "main.b",
            "call": 1,
            "method": "Jobs",
            "deadline_us": 10_000_000,
            "uid": 5001,
            "gid": 5001,
            "user": "ada",
        }
        call = link_pb2.DoorCall(**(known | fields))
        self.cells.on_items(link, [link_pb2.Item(door_call=call)])  # type: ignore[arg-type]

    def linked(self, cell: str = "beta") -> FakeLink:
        link = FakeLink(cell)
        self.cells.on_up(link)  # type: ignore[arg-type]
        return link


def cell_fingerprint(site: Site) -> str:
    from eslurm.security.joining import fingerprint

    return fingerprint(site.keys.signing.public)


def caller(who: Principal = ADA, via: str = "socket", deadline_s: float = 10.0) -> Caller:
    return Caller(who, b"r" * 16, True, int(deadline_s * 1e6), via)


async def passed(world: World, method: str = "Jobs", cell: str = "beta", **options: Any) -> Answered:
    return await world.cells.pass_on(cell, BY_NAME[method], b"question", caller(**options))


# ---- out ----


def test_a_call_goes_out_with_its_user_and_its_request_id_and_comes_back() -> None:
    async def main() -> None:
        link = FakeLink()
        world = World(links=lambda _endpoint: link)
        asked = asyncio.create_task(passed(world, "Submit"))
        await until(lambda: bool(link.items))
        call = link.items[0].door_call
        assert (call.method, call.request, call.user, call.uid, call.gid) == (
            "Submit",
            b"question",
            "ada",
            5001,
            5001,
        )
        assert (call.request_id, call.retry, call.node) == (b"r" * 16, True, 0)
        assert 0 < call.deadline_us <= 10_000_000
        assert world.dialled == [("127.0.0.1:2", Wanted(CELL, cell="beta"))]
        reply = link_pb2.DoorReply(process=call.process, call=call.call, reply=b"answer")
        # Another cell does not answer for it.
        other = world.linked("gamma")
        world.cells.on_items(other, [link_pb2.Item(door_reply=reply)])  # type: ignore[arg-type]
        assert not asked.done()
        world.cells.on_items(link, [link_pb2.Item(door_reply=reply)])  # type: ignore[arg-type]
        assert (await asked) == Answered(Status.OK, "", b"answer")

    run(main())


def test_refusals_name_the_cell_its_state_and_the_way_out() -> None:
    async def main() -> None:
        world = World()
        found = await passed(world, cell="delta")
        assert found.status is Status.NOT_FOUND
        assert found.text == "no such cell: alive are alpha, beta, gamma"
        found = await passed(world, cell="gamma")
        assert found.status is Status.FAILED_PRECONDITION
        assert "it is not pinned here" in found.text and cell_fingerprint(GAMMA) in found.text
        world.states["beta"] = CellState.LEFT
        found = await passed(world)
        assert found.text == "it has left the federation: alive are alpha, gamma"
        found = await passed(world, "CreateToken")
        assert found.status is Status.PERMISSION_DENIED
        assert "CreateToken does not pass to other cells" in found.text
        assert not world.dialled

    run(main())


def test_a_silent_cell_is_asked_where_it_was_last_and_said_to_be_silent() -> None:
    async def main() -> None:
        world = World(links=lambda endpoint: LinkUnreachable(f"{endpoint}: connection refused"))
        first = await passed(world)
        assert (first.status, first.retry_after_s) == (Status.UNAVAILABLE, cell_links.RETRY_S)
        assert [endpoint for endpoint, _ in world.dialled] == ["127.0.0.1:2", "127.0.0.1:3"]
        world.states["beta"] = CellState.SILENT
        told = await passed(world)
        # It is no use to wait: the time is longer than any command has.
        assert (told.status, told.retry_after_s) == (Status.UNAVAILABLE, cell_links.NEVER_S)
        assert "it is silent, its lease ended 42 s ago; 127.0.0.1:3: connection refused" in told.text
        # A moment ago: its standby may be about to lead.
        world.silent_us = 2_000_000
        assert (await passed(world)).retry_after_s == cell_links.RETRY_S
        assert len(world.dialled) == 6

    run(main())


def test_a_cell_that_refuses_links_is_not_waited_for() -> None:
    async def main() -> None:
        world = World(links=lambda _endpoint: LinkRefused("refused by the peer: wrong cluster"))
        told = await passed(world)
        assert told.retry_after_s == cell_links.NEVER_S
        assert told.text.startswith("refused by the peer: wrong cluster (does cell beta trust this one")
        # The table's back-off repeats its words.
        world.links_of = lambda _endpoint: LinkUnreachable("wrong cluster", retry_after_s=1.0)
        assert (await passed(world)).retry_after_s == cell_links.NEVER_S
        world.links_of = lambda _endpoint: LinkUnreachable("connection refused")
        assert (await passed(world)).retry_after_s == cell_links.RETRY_S

    run(main())


def test_a_former_leader_is_not_asked() -> None:
    async def main() -> None:
        former = FakeLink(epoch=6)
        world = World(links=lambda _endpoint: former)
        told = await passed(world)
        assert "another controller leads there" in told.text
        assert former.ended and not former.items

    run(main())


def test_a_call_passes_once_and_never_as_root() -> None:
    async def main() -> None:
        world = World()
        told = await passed(world, via="cell")
        assert told.status is Status.FAILED_PRECONDITION
        assert "a call passes between cells once" in told.text
        told = await passed(world, who=ROOT)
        assert told.status is Status.PERMISSION_DENIED and "root's commands" in told.text
        assert not world.dialled

    run(main())


def test_a_cell_that_does_not_answer_is_an_error_within_the_deadline() -> None:
    async def main() -> None:
        world = World()
        told = await passed(world, deadline_s=cell_links.MARGIN_S + 0.1)
        assert told == Answered(Status.DEADLINE_EXCEEDED, "cell beta did not answer in time", b"")
        assert not world.cells._peers["beta"].out.taken

    run(main())


def test_the_end_of_a_link_ends_the_calls_on_it() -> None:
    async def main() -> None:
        link = FakeLink()
        world = World(links=lambda _endpoint: link)
        asked = asyncio.create_task(passed(world))
        await until(lambda: bool(link.items))
        world.cells.on_down(link, "the peer is gone")  # type: ignore[arg-type]
        told = await asked
        assert told == Answered(Status.UNAVAILABLE, "the link to cell beta ended", b"")

    run(main())


def test_words_of_another_cell_do_not_reach_a_terminal_as_they_are() -> None:
    async def main() -> None:
        link = FakeLink()
        world = World(links=lambda _endpoint: link)
        asked = asyncio.create_task(passed(world))
        await until(lambda: bool(link.items))
        text = "\x1b[2J" + "x" * 5_000
        reply = link_pb2.DoorReply(process="main.a", call=1, status=7, text=text)
        world.cells.on_items(link, [link_pb2.Item(door_reply=reply)])  # type: ignore[arg-type]
        told = await asked
        assert told.text == "?[2J" + "x" * (cell_links.TEXT_MAX - 4)
        # What listens in the cell's place needs no key to refuse a link.
        world = World(links=lambda _endpoint: LinkRefused("refused by the peer: \x1b[2J"))
        assert "\x1b" not in (await passed(world)).text

    run(main())


def test_answers_that_come_in_parts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_links, "BYTES_MAX", 1_000)

    async def main() -> None:
        link = FakeLink()
        world = World(links=lambda _endpoint: link)
        asked = asyncio.create_task(passed(world))
        await until(lambda: bool(link.items))
        for _ in range(10):
            reply = link_pb2.DoorReply(process="main.a", call=1, reply=b"x" * 400, more=True)
            world.cells.on_items(link, [link_pb2.Item(door_reply=reply)])  # type: ignore[arg-type]
        assert (await asked).status is Status.RESOURCE_EXHAUSTED
        assert not world.cells._peers["beta"].forwarder._begun

    run(main())


def test_one_user_does_not_take_all_calls_to_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_links, "CALLS_MAX", 8)

    async def main() -> None:
        world = World()
        asked = [asyncio.create_task(passed(world, deadline_s=5)) for _ in range(8)]
        await until(lambda: sum(task.done() for task in asked) > 4)
        told = [task.result() for task in asked if task.done()]
        assert {one.status for one in told} == {Status.RESOURCE_EXHAUSTED}
        other = asyncio.create_task(passed(world, who=Principal("ben", 5002, 5002), deadline_s=1))
        assert (await other).status is Status.DEADLINE_EXCEEDED
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    run(main())


# ---- in ----


def test_a_call_comes_in_as_a_user_of_here() -> None:
    async def main() -> None:
        world = World()
        link = world.linked()
        world.takes(link, method="Submit", request=b"abc", request_id=b"i" * 16, retry=True)
        await until(lambda: bool(link.replies))
        [one] = world.callers
        assert one.principal == Principal("ada", 5001, 5001, (5001,), via="cell")
        assert (one.via, one.request_id, one.retry, one.peer, one.token) == (
            "cell",
            b"i" * 16,
            True,
            "cell beta",
            "",
        )
        [reply] = link.replies
        assert (reply.status, reply.reply, reply.process, reply.call) == (0, b"cba", "main.b", 1)

    run(main())


def test_named_users_have_the_numbers_of_here() -> None:
    async def main() -> None:
        world = World(users="named")
        link = world.linked()
        world.takes(link)
        await until(lambda: bool(link.replies))
        assert world.callers[0].principal == Principal("ada", 7001, 7001, (7001,), via="cell")

    run(main())


@pytest.mark.parametrize(
    ("users", "fields", "text"),
    [
        ("same", {"uid": 0, "user": "root"}, "root's commands do not pass through other cells"),
        ("same", {"uid": 0, "user": "ada"}, "root's commands do not pass through other cells"),
        ("same", {"user": "ben"}, "uid 5001 is ben in cell beta and ada in cell alpha"),
        ("same", {"uid": 9, "user": "ada"}, "uid 9 is unknown"),
        ("same", {"user": ""}, "names its user"),
        ("same", {"user": "x" * 300}, "the user of a call has 300 characters"),
        ("same", {"user": "a\x1b[2J"}, "names its user"),
        ("named", {"user": "eve"}, "there is no user eve in cell alpha"),
        ("named", {"user": "toor"}, "root's commands do not pass through other cells"),
        ("same", {"method": "UpdateNodes"}, "UpdateNodes does not pass to other cells"),
        ("same", {"method": "CreateToken"}, "CreateToken does not pass to other cells"),
        ("same", {"method": "CallCell"}, "CallCell does not pass to other cells"),
        ("same", {"method": "Nonsense" * 30}, "does not pass to other cells"),
        ("same", {"method": "Nonsense" * 100}, "the method of a call has 800 characters"),
        ("same", {"method": ""}, "does not pass to other cells"),
        ("same", {"request": b"x" * (3 * 1024 * 1024)}, "at most 2097152 are taken at once"),
        ("same", {"part": 4}, "a part of the request was lost"),
    ],
)
def test_what_does_not_fit_is_one_refusal(users: str, fields: dict[str, Any], text: str) -> None:
    async def main() -> None:
        world = World(users=users)
        link = world.linked()
        world.takes(link, **fields)
        await until(lambda: bool(link.replies))
        [reply] = link.replies
        assert reply.status and text in reply.text
        assert not world.callers and world.cells.refused == 1
        # And the next call of the cell is answered.
        world.takes(link, call=2, user="ada")
        await until(lambda: len(link.replies) == 2)
        assert link.replies[1].status == 0
        assert not link.ended

    run(main())


def test_a_draining_cell_takes_no_jobs_of_others_and_answers_the_rest() -> None:
    """A repeated submission may be one that was accepted before the order: it is looked up."""

    async def main() -> None:
        world = World()
        world.is_draining = True
        link = world.linked()
        world.takes(link, method="Submit")
        await until(lambda: len(link.replies) == 1)
        assert "cell alpha is draining" in link.replies[0].text and not world.callers
        world.takes(link, call=2, method="Submit", retry=True)
        world.takes(link, call=3, method="Jobs")
        await until(lambda: len(link.replies) == 3)
        assert [one.status for one in link.replies[1:]] == [0, 0]

    run(main())


def test_no_method_with_more_than_a_user_s_rights_passes() -> None:
    assert {one.name for one in METHODS if one.name in FROM_CELLS} == FROM_CELLS
    assert not [one.name for one in METHODS if one.is_privileged and one.name in FROM_CELLS]
    assert not FROM_CELLS & {"CallCell", "CreateToken", "Tokens", "RevokeTokens"}


def test_calls_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_links, "CALLS_MAX", 3)

    async def main() -> None:
        world = World()
        world.may_answer.clear()
        link, other = world.linked(), world.linked("gamma")
        for number in range(5):
            world.takes(link, call=number)
        assert len(link.replies) == 2
        assert all(
            "too many calls of cell beta" in reply.text and reply.retry_after_ms for reply in link.replies
        )
        # Another cell has its own.
        world.takes(other)
        await until(lambda: len(world.callers) == 4)
        world.may_answer.set()
        await until(lambda: len(link.replies) == 5 and len(other.replies) == 1)
        assert not world.cells._peers["beta"].tasks

    run(main())


def test_requests_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_links, "BYTES_MAX", 1_000)

    async def main() -> None:
        world = World()
        world.may_answer.clear()
        link = world.linked()
        world.takes(link, call=1, request=b"x" * 900)
        world.takes(link, call=2, request=b"x" * 200)
        assert "too many calls" in link.replies[0].text
        world.takes(link, call=3, request=b"x" * 900, more=True)
        world.takes(link, call=4, request=b"x" * 200, more=True)
        assert "too many large requests" in link.replies[1].text
        world.may_answer.set()
        await until(lambda: len(link.replies) == 3)
        assert not world.cells._peers["beta"].bytes_now

    run(main())


def test_a_flood_of_calls_is_told_when_to_come_again_and_a_worse_one_ends_the_link() -> None:
    async def main() -> None:
        world = World()
        link, other = world.linked(), world.linked("gamma")
        for number in range(int(cell_links.ITEMS_PER_S * 60)):
            world.takes(link, call=number, method="no such")
            if link.ended:
                break
        assert "items a second" in link.ended
        world.takes(link, call=2**40)
        assert any(
            reply.status == Status.RESOURCE_EXHAUSTED and reply.retry_after_ms for reply in link.replies
        )
        assert not [reply for reply in link.replies if reply.call == 2**40]
        world.takes(other)
        await until(lambda: bool(other.replies))
        assert other.replies[0].status == 0

    run(main())


def test_parts_without_an_end_do_not_hold_the_leader_up() -> None:
    """In one frame: each of its items counts, and costs the same however many are before it."""

    async def main() -> None:
        world = World()
        link, other = world.linked(), world.linked("gamma")
        for data in (b"", b"x"):
            items = [
                link_pb2.Item(door_call=link_pb2.DoorCall(call=number, request=data, more=True))
                for number in range(1, 12_001)
            ]
            began_s = time.process_time()
            world.cells.on_items(link, items)  # type: ignore[arg-type]
            assert time.process_time() - began_s < 5.0
        assert "items a second" in link.ended
        assert len(link.replies) <= 5 * cell_links.ITEMS_PER_S
        parts = world.cells._peers["beta"].parts[link]  # type: ignore[index]
        assert len(parts._begun) <= forward.CALLS_BEGUN_MAX
        world.takes(other)
        await until(lambda: bool(other.replies))

    run(main())


def test_a_call_that_comes_in_parts_counts_when_it_begins() -> None:
    async def main() -> None:
        world = World()
        link = world.linked()
        for number in range(1, 5_001):
            world.takes(link, call=number, request=b"x", more=True)
        # On a slow machine some of them are in time, and then their parts are too many.
        assert any("makes too many calls a second" in reply.text for reply in link.replies) and not link.ended

    run(main())


@pytest.mark.parametrize("field", ["method", "user", "request_id"])
def test_long_words_of_a_call_are_refused(field: str) -> None:
    async def main() -> None:
        world = World()
        link = world.linked()
        world.takes(link, **{field: b"x" * 257 if field == "request_id" else "x" * 257})
        [reply] = link.replies
        assert reply.status == Status.INVALID_ARGUMENT and "at most 256" in reply.text
        assert not world.callers and not world.cells._peers["beta"].tasks

    run(main())


def test_a_long_name_of_a_process_ends_the_link() -> None:
    async def main() -> None:
        world = World()
        link = world.linked()
        world.takes(link, process="x" * 257)
        assert "name has more than 256 characters" in link.ended and not link.replies
        world.takes(link)
        assert not world.cells._peers["beta"].tasks

    run(main())


def test_all_of_a_call_counts_not_its_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_links, "BYTES_MAX", 1_000)

    async def main() -> None:
        world = World()
        link = world.linked()
        world.takes(link, origin=link_pb2.Origin(names="x" * 2_000))
        assert "too many calls" in link.replies[0].text

    run(main())


def test_large_answers_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that does not take its answers has some kept for it, not all."""
    monkeypatch.setattr(cell_links, "CONTROL_CALL_BYTES_MAX", 100)
    monkeypatch.setattr(forward, "CONTROL_CALL_BYTES_MAX", 100)
    monkeypatch.setattr(cell_links, "BYTES_MAX", 2_500)

    async def main() -> None:
        world = World()
        link = world.linked()
        takes_now = asyncio.Event()

        async def send_bulk(item: link_pb2.Item) -> None:
            await takes_now.wait()
            link.items.append(item)

        async def answer(*_call: Any) -> Answered:
            return Answered(Status.OK, "", b"x" * 1_000)

        monkeypatch.setattr(link, "send_bulk", send_bulk)
        monkeypatch.setattr(world, "answer", answer)
        for number in range(5):
            world.takes(link, call=number)
        await until(lambda: len(link.replies) == 3)
        assert {one.status for one in link.replies} == {Status.RESOURCE_EXHAUSTED}
        assert world.cells._peers["beta"].bytes_now >= 2_000
        takes_now.set()
        await until(lambda: len(link.replies) == 5)
        await until(lambda: not world.cells._peers["beta"].tasks)
        assert not world.cells._peers["beta"].bytes_now

    run(main())


def test_answers_that_nobody_waits_for_are_dropped() -> None:
    async def main() -> None:
        world = World()
        link = world.linked()
        for fields in ({"call": 1}, {"call": 1, "more": True}, {"process": "main.a", "call": 2**63}):
            reply = link_pb2.DoorReply(**fields)
            world.cells.on_items(link, [link_pb2.Item(door_reply=reply)])  # type: ignore[arg-type]
        world.takes(link)
        await until(lambda: bool(link.replies))

    run(main())


# ---- trust ----


def test_a_record_that_does_not_decode_keeps_no_cell_in() -> None:
    """Beta's record is gone; another one is invalid."""
    world = World()
    assert list(world.credentials.cells) == ["beta"]
    garbage = bytes(72) + b"\x93\xa4\xff\xfe\xff\xfe\x01\x91\xc4\x01x"
    world.rings = lambda: {"aaa": garbage}  # type: ignore[method-assign]
    checked = world.checked
    world.cells.follow()
    assert not world.credentials.cells
    assert world.checked == checked + 1


def test_a_fault_in_following_lets_no_cell_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    whole = CellTrust.follow

    def faulty(trust: CellTrust, rings: Mapping[str, bytes]) -> bool:
        whole(trust, rings)
        raise ArithmeticError("a fault")

    monkeypatch.setattr(CellTrust, "follow", faulty)
    world.rings = dict  # type: ignore[method-assign]
    checked = world.checked
    with pytest.raises(ArithmeticError):
        world.cells.follow()
    assert not world.credentials.cells
    assert world.checked == checked + 1
