"""The controller's ends of links: what does not fit is refused with the time to come again, for good is for good."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from esctld.lead import links as links_module
from esctld.lead.leadership import Standbys
from esctld.lead.links import RETRY_AFTER_MS, ControllerLinks
from eslurm.api.forward import CallParts
from eslurm.core.model.job import Principal, StepEnd
from eslurm.core.model.node import Node
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.protocol import NodeGone, Registration, Report, ReportBody, StepEnded
from eslurm.core.state.cluster import State
from eslurm.links.codec import report_ack_from_pb, report_to_pb
from eslurm.ports.api import Answered, Caller, Status
from eslurm.ports.link import PeerInfo
from eslurm.v1 import link_pb2
from tests.kits.api import until
from tests.support.loops import run


class FakeLink:
    """One end of a link; keeps what is sent."""

    def __init__(self, role: str, names: str = "c2") -> None:
        self.peer = PeerInfo("test", role, "c2.abc", "c2:1", frozenset(), 1, 0, names=names, serial=b"serial")
        self.sent: list[link_pb2.DoorReply] = []
        self.acks: list[link_pb2.ReportAck] = []

    def send(self, item: link_pb2.Item, traceparent: str = "") -> bool:
        if item.WhichOneof("kind") == "report_ack":
            self.acks.append(item.report_ack)
        else:
            self.sent.append(item.door_reply)
        return True


class Resolver:
    """Everybody is who they say they are."""

    async def resolve_relayed(self, uid: int, gid: int) -> Principal:
        return Principal(f"user{uid}", uid, gid)


class Held:
    """Answers once it may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.ways: list[str] = []
        self.payloads: list[bytes] = []

    async def answer(self, _method: Any, payload: bytes, caller: Caller) -> Answered:
        self.ways.append(caller.via)
        self.payloads.append(payload)
        await self.may_answer.wait()
        return Answered(Status.OK, "", b"answer")


class Nobody:
    """Hears of links, and has none."""

    def remove(self, _link: Any) -> None:
        return None

    def on_down(self, _link: Any) -> None:
        return None


class Ends:
    """The controller's links, as far as calls go."""

    def __init__(self) -> None:
        anything: Any = Nobody()
        resolver: Any = Resolver()
        self.held = Held()
        self.state = State("main")
        self.revoked: set[bytes] = set()
        self.foreign = 0
        self.links = ControllerLinks(
            *(self.state, anything, anything, Standbys(), resolver, anything),
            revoked=lambda: self.revoked,
            count_foreign=self.count,
        )
        # Everything is committed here: the view has what the state has.
        dispatcher: Any = SimpleNamespace(view=self.state)
        self.links.attach(anything, dispatcher, anything, self.held)

    def count(self) -> None:
        self.foreign += 1

    def origin(self, node: int) -> link_pb2.Origin:
        """The origin that a satellite states for a node's link."""
        role = "login" if node in self.state.login else "agent"
        (name,) = self.state.node_names([node])
        return link_pb2.Origin(role=role, names=name, serial=b"serial")

    def call(self, link: Any, number: int, request: bytes = b"", **fields: Any) -> None:
        process = "c2.abc"
        if link.peer.role == "satellite":
            fields.setdefault("origin", self.origin(fields["node"]))
            process = f"esnoded.{fields['origin'].names}.abc"
        call = link_pb2.DoorCall(process=process, call=number, method="Ping", request=request, **fields)
        self.links.on_items(link, [link_pb2.Item(door_call=call)])


def test_a_call_too_many_is_told_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "DOOR_CALLS_MAX", 2)

    async def main() -> None:
        ends, standby = Ends(), FakeLink("controller")
        ends.links.on_up(standby)  # type: ignore[arg-type]
        for number in (1, 2, 3):
            ends.call(standby, number)
        [refused] = standby.sent
        assert (refused.call, refused.status) == (3, Status.RESOURCE_EXHAUSTED)
        assert refused.retry_after_ms == RETRY_AFTER_MS > 0
        ends.held.may_answer.set()
        await until(lambda: len(standby.sent) == 3)
        assert [(one.status, one.retry_after_ms) for one in standby.sent[1:]] == [(Status.OK, 0)] * 2
        await ends.links.close()

    run(main())


def test_so_is_a_large_call_that_found_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "CallParts", lambda: CallParts(bytes_max=10))

    async def main() -> None:
        ends, standby = Ends(), FakeLink("controller")
        ends.links.on_up(standby)  # type: ignore[arg-type]
        ends.call(standby, 1, bytes(11), more=True)
        [refused] = standby.sent
        assert (refused.status, refused.retry_after_ms) == (Status.RESOURCE_EXHAUSTED, RETRY_AFTER_MS)

    run(main())


def test_a_refusal_for_good_names_no_time() -> None:
    async def main() -> None:
        ends, agent = Ends(), FakeLink("agent")
        ends.call(agent, 1)
        assert ends.foreign == 1
        await until(lambda: bool(agent.sent))
        [refused] = agent.sent
        assert (refused.status, refused.retry_after_ms) == (Status.PERMISSION_DENIED, 0)

    run(main())


NODES = ("cn0", "cn1")


def site_with_login(*login: str) -> Ends:
    """Two nodes with numbers 0 and 1, on the first of which user 7 has a job; then login hosts, the first of them up."""
    ends = Ends()
    state = ends.state
    for number, name in enumerate((*NODES, *login)):
        up = NodeState.UNKNOWN if number > len(NODES) else NodeState.UP
        state.nodes[number] = Node(number, name, (4, 1000), up, endpoint=f"host:{number}")
    state.login = frozenset(range(len(NODES), len(NODES) + len(login)))
    job: Any = SimpleNamespace(spec=SimpleNamespace(user=Principal("seven", 7, 7)))
    state.jobs[1] = job
    state.jobs_on[0] = frozenset({1})
    ends.held.may_answer.set()
    return ends


def answers(ends: Ends, link: FakeLink, uid: int, node: int) -> tuple[int, str]:
    """The answer to a call of this user from this node."""

    async def main() -> tuple[int, str]:
        seen = len(link.sent)
        ends.call(link, 1, uid=uid, node=node)
        await until(lambda: len(link.sent) > seen)
        return link.sent[-1].status, link.sent[-1].text

    return run(main())


@pytest.mark.parametrize("is_relayed", [False, True])
def test_who_may_call_from_where(is_relayed: bool) -> None:
    ends = site_with_login("login1")
    link, login = FakeLink("agent", "cn[0-1]"), FakeLink("login", "login1")
    if is_relayed:
        link = login = FakeLink("satellite")
    assert answers(ends, link, 7, 0) == (Status.OK, "")
    assert answers(ends, login, 8, 2) == (Status.OK, "")
    assert ends.held.ways == ["agent", "login"]
    assert answers(ends, link, 8, 0)[0] == answers(ends, login, 0, 2)[0] == Status.PERMISSION_DENIED
    assert answers(ends, link, 7, 9)[0] == Status.PERMISSION_DENIED


def test_who_may_not_is_told_where_to_go() -> None:
    link, login = FakeLink("agent", "cn[0-1]"), FakeLink("login", "login[1-2]")
    no_job = "uid 8 has no job on this node (cn1): "
    assert answers(site_with_login("login1", "login2"), link, 8, 1)[1] == no_job + "use a login host: login1"
    assert answers(site_with_login(), link, 8, 1)[1].endswith("(no login hosts are configured)")
    ends = site_with_login("login1", "login2")
    ends.state.nodes[2] = Node(2, "login1", (0, 0))
    assert answers(ends, link, 8, 1)[1] == no_job + "use a login host: login[1-2]"
    assert (
        answers(ends, login, 0, 2)[1]
        == "root's commands do not pass through login hosts: use a host of the controller"
    )


def test_one_login_host_does_not_keep_the_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "DOOR_CALLS_PER_NODE_MAX", 2)

    async def main() -> None:
        ends, link = site_with_login("login1", "login2"), FakeLink("satellite")
        ends.held.may_answer.clear()
        for number in (1, 2, 3):
            ends.call(link, number, uid=8, node=2)
        ends.call(link, 4, uid=8, node=3)
        [refused] = link.sent
        assert (refused.call, refused.status) == (3, Status.RESOURCE_EXHAUSTED)
        assert refused.text == "too many calls from login host login1 at once: try again in a moment"
        assert refused.retry_after_ms == RETRY_AFTER_MS
        ends.held.may_answer.set()
        await until(lambda: len(link.sent) == 4)
        ends.call(link, 5, uid=8, node=2)
        await until(lambda: len(link.sent) == 5)
        assert link.sent[-1].status == Status.OK
        await ends.links.close()

    run(main())


def test_a_large_call_of_a_login_host_comes_in_parts_and_of_nobody_else() -> None:
    async def main() -> None:
        ends, agent = site_with_login("login1"), FakeLink("login", "login1")
        ends.call(agent, 1, b"half and ", more=True, node=2)
        ends.call(agent, 1, b"half", part=1, uid=8, node=2)
        await until(lambda: len(agent.sent) == 1)
        assert agent.sent[0].status == Status.OK and ends.held.payloads == [b"half and half"]
        node_link, satellite = FakeLink("agent", "cn[0-1]"), FakeLink("satellite")
        ends.call(node_link, 3, b"half and ", more=True, node=0)
        ends.call(satellite, 3, b"half and ", more=True, node=2)
        assert [link.sent[0].status for link in (node_link, satellite)] == [Status.PERMISSION_DENIED] * 2
        # What it has begun goes with its link.
        ends.call(agent, 4, b"half and ", more=True, node=2)
        ends.links.on_down(agent, "gone")  # type: ignore[arg-type]
        ends.call(agent, 4, b"half", part=1, uid=8, node=2)
        assert agent.sent[-1].status == Status.UNAVAILABLE

    run(main())


def test_a_node_s_door_is_no_other_node_s() -> None:
    """A host with a membership of its own claims another node's door, a login host's, and another host's address."""
    ends, eve = site_with_login("login1"), FakeLink("agent", "cn1")
    for node in (0, 2):
        assert answers(ends, eve, 7, node)[0] == Status.PERMISSION_DENIED
    ends.state.nodes[1] = Node(1, "cn1", (4, 1000), NodeState.UP, endpoint="host:0")
    status, text = answers(ends, eve, 7, 1)
    assert status == Status.PERMISSION_DENIED and "has no job on this node (cn1)" in text
    assert answers(ends, FakeLink("agent", "login1"), 8, 2)[0] == Status.PERMISSION_DENIED
    assert ends.foreign == 3 and not ends.held.ways


def test_a_satellite_says_whose_call_it_is_and_cannot_make_one_itself() -> None:
    ends, satellite = site_with_login("login1"), FakeLink("satellite")
    strange = [
        link_pb2.Origin(),
        link_pb2.Origin(role="controller", names="cn0", serial=b"serial"),
        link_pb2.Origin(role="agent", names="cn[0-99999999999999999999]", serial=b"serial"),
        link_pb2.Origin(role="agent", names="[" * 1000 + "cn0", serial=b"serial"),
    ]
    for number, origin in enumerate(strange, 1):
        ends.call(satellite, number, uid=7, node=0, origin=origin)
    assert [one.status for one in satellite.sent] == [Status.PERMISSION_DENIED] * len(strange)
    ends.revoked.add(b"serial")
    ends.call(satellite, 9, uid=7, node=0)
    assert "was revoked" in satellite.sent[-1].text


def report(body: ReportBody, process: str = "c2.abc", **fields: Any) -> link_pb2.Item:
    message = report_to_pb(Report(process, 5, body))
    message.MergeFrom(link_pb2.Report(**fields))
    return link_pb2.Item(report=message)


def registration(name: str, *, login: bool = False) -> Registration:
    return Registration(name, "uid", "boot", "session", 1, "host:1", (1, 1), login=login)


@pytest.mark.parametrize(
    ("role", "item", "why"),
    [
        ("agent", report(registration("cn0")), "a member as cn1, not as cn0"),
        (
            "agent",
            report(registration("cn1", login=True)),
            "offered as a login host; its host is a member as agent",
        ),
        ("login", report(registration("cn1")), "offered as a node; its host is a member as login"),
        ("agent", report(NodeGone(0, 1, 1, 1)), ""),
        ("agent", report(StepEnded(0, 1, 1, 1, StepEnd(0), True)), ""),
        ("agent", report(registration("cn1"), process="esnoded.cn0.abc"), ""),
        ("satellite", report(registration("cn1")), ""),
        ("satellite", report(NodeGone(0, 1, 1, 1), origin=link_pb2.Origin(role="agent", names="c2,cn1")), ""),
    ],
)
def test_a_host_reports_for_its_own_nodes_only(role: str, item: link_pb2.Item, why: str) -> None:
    ends, link = site_with_login(), FakeLink(role, "cn1")
    ends.links.on_items(link, [item])  # type: ignore[arg-type, list-item]
    assert ends.foreign == 1
    refused = [one.refused for ack in link.acks for one in report_ack_from_pb(ack).registrations]
    assert len(refused) == bool(why) and (not why or why in refused[0])
