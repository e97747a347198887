"""The leader's answers to hosts that ask to join, and to administrators about them."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from esctld.lead.dispatcher import Dispatcher
from esctld.lead.joining import BAD_TOKEN, UNPROVED, Joining
from esctld.lead.site import SiteSigner
from esctld.serve.request_ids import bound_id
from eslurm.api.audit import CallAudit
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.job import Principal
from eslurm.core.model.member import Revocation
from eslurm.core.model.messages import Message, Refused, RevokeMembers
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.api import Caller
from eslurm.ports.audit import AuditLine
from eslurm.security import ledger
from eslurm.security.joining import Conversation, JoinSecret, Trust, check_issued, fingerprint
from eslurm.security.membership import Identity
from eslurm.v1 import controller_pb2 as pb
from eslurm.v1 import join_pb2
from tests.kits.leading import CLUSTER, LeadingController
from tests.support.loops import run
from tests.support.trust import Site

ROOT = Caller(Principal("root", 0, 0), b"r" * 16, False, None, "socket")
SITE = Site(CLUSTER)
[PUBLIC] = SITE.keys.ring.keys.publics
PIN = fingerprint(PUBLIC)


class Office:
    """The part of a leader that is looked at."""

    def __init__(self, dispatcher: Dispatcher, directory: Path) -> None:
        SITE.write_keys(directory)
        self.dispatcher = dispatcher
        self.directory = directory
        self.lines: list[AuditLine] = []
        view = dispatcher.view
        where = (SiteSigner(directory), directory, directory)
        calls = (dispatcher.request, self._decide, self._change)
        self.joining = Joining(dispatcher.state, view, *where, CallAudit(self), *calls)

    def write(self, line: AuditLine) -> None:
        self.lines.append(line)

    async def _decide(self, message: Message, by: Caller) -> BatchAnswer:
        answer = await self.dispatcher.request(message, bound_id(by, type(message).__name__))
        if isinstance(answer, Refused):
            raise answer
        return answer

    async def _change(self, message: Message, by: Caller) -> pb.ChangeReply:
        answer: Any = await self._decide(message, by)
        return pb.ChangeReply(count=answer.count)

    async def token(self, **given: Any) -> JoinSecret:
        """One more."""
        by = ROOT._replace(request_id=secrets.token_bytes(16))
        made = await self.joining.create(pb.CreateJoinTokenRequest(**given), by)
        return JoinSecret.parse(made.token)


class Host:
    """A host and what it says."""

    def __init__(self, role: str = "agent", names: str = "cn1", address: str = "192.0.2.1") -> None:
        self.identity = Identity.generate()
        self.role, self.names, self.address = role, names, address

    async def ask(
        self, office: Office, token: JoinSecret | None = None, **forged: bytes
    ) -> join_pb2.JoinAnswer:
        """One conversation; an answer that lets it in is checked as the host would."""
        request = join_pb2.JoinRequest(
            role=self.role,
            names=self.names,
            public=self.identity.public,
            nonce=b"n" * 32,
            token_id=token.id if token is not None else b"",
        )
        conversation = Conversation(request.SerializeToString(), b"challenge")
        proof = join_pb2.JoinProof(
            signature=conversation.sign(self.identity),
            token_proof=conversation.prove(token.hash) if token is not None else b"",
        )
        for field, value in forged.items():
            setattr(proof, field, value)
        reply = await office.joining.answer(request, conversation, proof, b"proof", self.address)
        answer = join_pb2.JoinAnswer.FromString(reply.answer)
        if answer.state == "issued":
            answered = conversation.answered(b"proof", reply.answer)
            ring = Trust(token, PIN).check(answered, answer.ring, reply.token_proof, reply.seals)
            role: Any = self.role
            check_issued(ring, answer.membership, self.identity, role, self.names, 1)
        return answer


def test_a_host_gets_the_same_membership_from_each_leader_and_the_ledger_has_it_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        image, host = StoreImage(CLUSTER), Host()
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        async with LeadingController(image) as leading:
            office = Office(leading.dispatcher, tmp_path / "a")
            token = await office.token()
            first = await host.ask(office, token)
            assert first.state == "issued"
            assert [(one.role, one.names) for one in ledger.read(tmp_path / "a")] == [("agent", "cn1")]
            [joined] = [line for line in office.lines if line.result == "ok"]
            assert (joined.method, joined.origin, joined.user) == ("Join", "192.0.2.1", "root")
            # The secret is nowhere.
            assert token.secret not in repr(image.__dict__).encode() and token.text not in joined.what
        async with LeadingController(image, "c2") as leading:
            office = Office(leading.dispatcher, tmp_path / "b")
            assert (await host.ask(office, token)).membership == first.membership
            # Its key alone is enough: it is a member, and the site's key proves the answer.
            assert (await host.ask(office)).membership == first.membership
            assert len(ledger.read(tmp_path / "b")) == 1
            [serial] = leading.state.members.issued
            await leading.dispatcher.request(
                RevokeMembers(ROOT.principal, (Revocation(serial, "", "", "", 0),))
            )
            assert (await host.ask(office, token)).state == "refused"
            assert (await host.ask(office)).state == "pending", "an administrator may let it in anew"

    run(scenario())


def test_nothing_is_told_to_a_host_that_proves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with LeadingController(StoreImage(CLUSTER)) as leading:
            office = Office(leading.dispatcher, tmp_path)
            token, host = await office.token(), Host()
            for forged in ({"signature": b""}, {"signature": b"s" * 64}):
                answer = await host.ask(office, token, **forged)
                assert (answer.state, answer.text) == ("refused", UNPROVED)
            for secret in (JoinSecret.new(), JoinSecret(token.id, bytes(32)), JoinSecret(token.id, b"")):
                answer = await host.ask(office, secret)
                assert (answer.state, answer.text) == ("refused", BAD_TOKEN)
            assert not leading.state.members.issued
            assert {line.result for line in office.lines} == {"refused"} and len(office.lines) == 5

    run(scenario())


@pytest.mark.parametrize(
    ("role", "names"),
    [
        ("controller", "main"),
        ("root\x1b[2J", "cn1"),
        ("", "cn1"),
        ("agent", ""),
        ("agent", "cn1\x1b[2J"),
        ("agent", "../cn1"),
        ("agent", "cn1,cn1"),
        ("agent", "cn[1-99999999]"),
        ("agent", "c" * 1025),
        ("satellite", "sat[1-2]"),
    ],
)
def test_no_host_waits_under_what_is_no_role_or_name(tmp_path: Path, role: str, names: str) -> None:
    async def scenario() -> None:
        async with LeadingController(StoreImage(CLUSTER)) as leading:
            office = Office(leading.dispatcher, tmp_path)
            answer = await Host(role, names).ask(office)
            assert answer.state == "refused" and answer.text.isprintable(), answer
            assert not (await office.joining.show(pb.JoinsRequest(), ROOT)).pending

    run(scenario())


def test_a_token_s_answer_that_was_lost_is_not_made_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with LeadingController(StoreImage(CLUSTER)) as leading:
            office = Office(leading.dispatcher, tmp_path)
            await office.joining.create(pb.CreateJoinTokenRequest(), ROOT)
            with pytest.raises(Refused, match="was made by an earlier try whose answer was lost: revoke it"):
                await office.joining.create(pb.CreateJoinTokenRequest(), ROOT)
            assert len(leading.state.members.tokens) == 1
            with pytest.raises(Refused, match="is no list of different host names"):
                await office.joining.create(pb.CreateJoinTokenRequest(names="a,a"), ROOT)

    run(scenario())


def test_approval_is_of_one_key(tmp_path: Path) -> None:
    """Two hosts ask under one name: the one whose fingerprint the administrator has read is let in."""

    async def scenario() -> None:
        async with LeadingController(StoreImage(CLUSTER)) as leading:
            office = Office(leading.dispatcher, tmp_path)
            host, other = Host(), Host(address="192.0.2.66")
            for one in (host, other):
                assert (await one.ask(office)).state == "pending"
            shown = fingerprint(host.identity.public)
            settle = office.joining.settle
            for wrong in ("", shown[:16], "0" * 32):
                with pytest.raises(Refused):
                    await settle(pb.DecideJoinRequest(name="cn1", fingerprint=wrong), ROOT)
            with pytest.raises(Refused, match="no host 'cn2' waits"):
                await settle(pb.DecideJoinRequest(name="cn2", fingerprint=shown), ROOT)
            approval = pb.DecideJoinRequest(name="cn1", fingerprint=shown.upper())
            assert (await settle(approval, ROOT)).count == 1
            assert (await other.ask(office)).state == "pending"
            assert (await host.ask(office)).state == "issued"
            # Said once more, when its first answer was lost.
            assert (await settle(approval, ROOT)).notes == ["cn1 is a member already"]
            assert (await settle(pb.DecideJoinRequest(name="cn1", deny=True), ROOT)).count == 1
            assert (await other.ask(office)).state == "refused"

    run(scenario())
