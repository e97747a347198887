"""Revocations at leaders that follow one another: files become facts, facts the list, and no later list is shorter."""

from __future__ import annotations

from pathlib import Path

import pytest

from esctld.lead.revocations import BY_FILE, Revocations
from esctld.lead.site import Member, SiteSigner
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import Changed, Message, RefusalCode, Refused
from eslurm.core.state.cluster import State
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.api import Caller
from eslurm.security import ledger
from eslurm.security.files import write_public
from eslurm.security.membership import Identity
from eslurm.security.revocation import REVOKED, Revoked, seal_revoked
from eslurm.v1 import controller_pb2 as pb
from tests.kits.leading import CLUSTER, LeadingController
from tests.support.loops import run
from tests.support.trust import Site

ROOT = Caller(Principal("root", 0, 0), b"r" * 16, False, None, "socket")


def serial(number: int) -> bytes:
    return number.to_bytes(16)


class Host:
    """A controller's host: its directory, and the part of a leader that is looked at."""

    def __init__(self, site: Site, directory: Path, name: str) -> None:
        directory.mkdir()
        self.site, self.directory = site, directory
        self.signer: SiteSigner
        self.member: Member
        self.signer, self.member = site.controller(directory, name)
        self.member.credentials.on_learnt = self.member.credentials.keep

    def part(self, leading: LeadingController) -> Revocations:
        async def change(message: Message, _caller: Caller) -> pb.ChangeReply:
            answer = await leading.dispatcher.request(message)
            if isinstance(answer, Refused):
                raise answer
            assert isinstance(answer, Changed)
            return pb.ChangeReply(count=answer.count, notes=answer.notes)

        return Revocations(
            leading.state, self.signer, self.member, self.directory, leading.dispatcher.request, change
        )

    @property
    def known(self) -> tuple[int, set[bytes]]:
        """The revocations that this host knows: their revision, and the serials that it refuses."""
        revoked = self.member.credentials.revoked
        return revoked.revision, set(revoked.serials)

    def in_file(self) -> set[bytes]:
        return set(ledger.read_revoked(self.directory, self.site.keys).serials)


def recorded(state: State) -> set[bytes]:
    return set(state.members.revoked)


def test_what_was_revoked_while_no_controller_ran_becomes_a_fact(tmp_path: Path) -> None:
    async def scenario() -> None:
        site, image = Site(CLUSTER), StoreImage(CLUSTER)
        host = Host(site, tmp_path / "a", "main")
        ledger.append(host.directory, ledger.Issued(serial(1).hex(), "agent", "cn1", "", 0))
        ledger.revoke(host.directory, site.keys, frozenset({serial(1)}))
        async with LeadingController(image) as leading:
            await host.part(leading).settle()
            [one] = leading.state.members.revoked.values()
            assert (one.serial, one.role, one.names, one.by) == (serial(1), "agent", "cn1", BY_FILE)
            assert host.known == (2, {serial(1)}) and host.in_file() == {serial(1)}
            await host.part(leading).settle()
            assert leading.state.revoked_revision == 2, "nothing is new"
        # Another host, which has never heard of it, leads next.
        other = Host(site, tmp_path / "b", "c2")
        async with LeadingController(image, "c2") as leading:
            await other.part(leading).settle()
            assert other.known == (2, {serial(1)})

    run(scenario())


def test_two_that_write_the_list_at_once_lose_nothing(tmp_path: Path) -> None:
    """The command has read the list before the leader wrote it, and writes its own under the same revision."""

    async def scenario() -> None:
        site = Site(CLUSTER)
        host = Host(site, tmp_path / "a", "main")
        async with LeadingController(StoreImage(CLUSTER)) as leading:
            part = host.part(leading)
            await part.revoke(pb.RevokeMembersRequest(which=[serial(1).hex()]), ROOT)
            assert host.known == (1, {serial(1)})
            write_public(host.directory / REVOKED, seal_revoked(site.keys, 1, frozenset({serial(2)})))
            assert host.member.has_new_list()
            await part.settle()
            assert recorded(leading.state) == {serial(1), serial(2)} == host.in_file()
            assert host.known[0] == 2

    run(scenario())


def test_the_next_leader_s_list_is_later_than_any_that_a_host_may_know(tmp_path: Path) -> None:
    async def scenario() -> None:
        site, image = Site(CLUSTER), StoreImage(CLUSTER)
        first = Host(site, tmp_path / "a", "main")
        async with LeadingController(image) as leading:
            part = first.part(leading)
            for number in (1, 2):
                await part.revoke(pb.RevokeMembersRequest(which=[serial(number).hex()]), ROOT)
        agent = Revoked().successor(site.keys.ring, first.member.credentials.revoked.sealed)
        assert agent is not None and agent.revision == 2
        # This one has heard of neither list, and its first one has to pass.
        second = Host(site, tmp_path / "b", "c2")
        async with LeadingController(image, "c2") as leading:
            part = second.part(leading)
            await part.settle()
            await part.revoke(pb.RevokeMembersRequest(which=[serial(3).hex()]), ROOT)
            later = agent.successor(site.keys.ring, second.member.credentials.revoked.sealed)
        assert later is not None and later.serials == {serial(1), serial(2), serial(3)}

    run(scenario())


def test_a_file_that_no_key_of_the_site_has_sealed_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        host = Host(Site(CLUSTER), tmp_path / "a", "main")
        async with LeadingController(StoreImage(CLUSTER)) as leading:
            part = host.part(leading)
            await part.revoke(pb.RevokeMembersRequest(which=[serial(1).hex()]), ROOT)
            for sealed in (seal_revoked(Site(CLUSTER).keys, 9, frozenset({serial(2)})), b"nothing"):
                write_public(host.directory / REVOKED, sealed)
                await part.settle()
            assert recorded(leading.state) == {serial(1)} and host.known == (1, {serial(1)})

    run(scenario())


def test_names_serials_and_what_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = Site(CLUSTER)
        host = Host(site, tmp_path / "a", "main")
        for number, names in ((0xAB1, "cn[1-4]"), (0xAB2, "cn5")):
            entry = ledger.Issued(serial(number << 64).hex(), "agent", names, "", 0)
            ledger.append(host.directory, entry)
        async with LeadingController(StoreImage(CLUSTER)) as leading:
            part = host.part(leading)
            reply = await part.revoke(pb.RevokeMembersRequest(which=["cn3", "cn9", "zz" * 16]), ROOT)
            assert reply.count == 1 and [one.what for one in reply.problems] == ["cn9", "zz" * 16]
            own = host.member.serial.hex()
            for which in ([own], ["main"]):
                with pytest.raises(Refused, match="that is the controller that leads"):
                    await part.revoke(pb.RevokeMembersRequest(which=which), ROOT)
            with pytest.raises(Refused) as refused:
                await part.revoke(pb.RevokeMembersRequest(), ROOT)
            assert refused.value.code is RefusalCode.INVALID
            with pytest.raises(Refused):
                await part.revoke(pb.RevokeMembersRequest(join_ids=["xyz"]), ROOT)
            assert recorded(leading.state) == {serial(0xAB1 << 64)}
            # A member of these names is refused by this very process from now on.
            revoked = site.issue(Identity.generate(), "agent", "cn[1-4]", serial=serial(0xAB1 << 64))
            with pytest.raises(Exception, match="was revoked"):
                host.member.credentials.members.check(revoked, 1)

    run(scenario())
