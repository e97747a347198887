"""The calls about tokens at a leader with a store: what is sealed, remembered, shown, and taken back."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from msgspec.structs import replace

from esctld.lead.dispatcher import Dispatcher
from esctld.lead.site import SiteSigner
from esctld.lead.tokens import Tokens
from esctld.serve.request_ids import bound_id
from eslurm.api.principals import Principals, look_up
from eslurm.api.tokens import GROUPS_MAX, TokenAuthenticator, open_token
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import Message, RefusalCode, Refused, RevokeTokens, TokenMade
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.api import ApiError, Caller
from eslurm.telemetry.clocks import wall_us
from eslurm.v1 import controller_pb2 as pb
from tests.kits.leading import CLUSTER, LeadingController
from tests.support.loops import run
from tests.support.trust import Site

NOBODY = look_up(pwd.getpwnam("nobody").pw_uid, -1)
ROOT = Principal("root", 0, 0)
SITE = Site()


def caller(who: Principal = NOBODY, request_id: bytes = b"") -> Caller:
    return Caller(who, request_id or os.urandom(16), False, None, who.via)


def tokens_of(dispatcher: Dispatcher, principals: Principals, directory: Path) -> Tokens:
    async def decide(message: Message, by: Caller) -> BatchAnswer:
        answer = await dispatcher.request(message, bound_id(by, type(message).__name__))
        if isinstance(answer, Refused):
            raise answer
        return answer

    SITE.write_keys(directory)
    return Tokens(dispatcher.state, dispatcher.view, principals, SiteSigner(directory), decide)


def test_a_retry_gets_the_same_token_and_the_next_leader_takes_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        image, principals = StoreImage(CLUSTER), Principals()
        async with LeadingController(image) as leading:
            tokens = tokens_of(leading.dispatcher, principals, tmp_path)
            by = caller()
            made = await tokens.create(pb.CreateTokenRequest(scope="read", life_s=60), by)
            again = await tokens.create(pb.CreateTokenRequest(scope="read", life_s=60), by)
            assert made == again and len(leading.state.tokens) == 1
            assert (made.info.user, made.info.uid, made.gid) == ("nobody", NOBODY.uid, NOBODY.gid)
            claims = open_token(SITE.keys.ring, made.token)
            assert claims.principal == NOBODY and claims.expires_us - claims.issued_us == 60_000_000
            # What is stored is not the token.
            assert made.token.encode() not in repr(image.__dict__).encode()
            other = caller(request_id=by.request_id)._replace(principal=replace(NOBODY, uid=NOBODY.uid - 1))
            with pytest.raises(Refused):
                await tokens.create(pb.CreateTokenRequest(user="nobody"), other)
        async with LeadingController(image, "c2") as leading:
            tokens = tokens_of(leading.dispatcher, principals, tmp_path)
            authenticator = TokenAuthenticator(lambda: SITE.keys.ring, tokens.ledger, wall_us)
            metadata = {"authorization": f"Bearer {made.token}"}
            who = await authenticator.identify(metadata, "unix:", encrypted=False)
            assert who.token == made.info.id and who.principal.scope == "read"
            message = await tokens.read_revocation(pb.RevokeTokensRequest(ids=[made.info.id]), NOBODY)
            await leading.dispatcher.request(message)
            with pytest.raises(ApiError, match="was revoked"):
                await authenticator.identify(metadata, "unix:", encrypted=False)
        async with LeadingController(image, "c3") as leading:
            assert leading.state.tokens == {}
        principals.close()

    run(scenario())


def test_each_sees_their_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        principals = Principals()
        async with LeadingController(StoreImage(CLUSTER)) as leading:
            tokens = tokens_of(leading.dispatcher, principals, tmp_path)
            await tokens.create(pb.CreateTokenRequest(), caller())
            await tokens.create(pb.CreateTokenRequest(user="daemon"), caller(ROOT))

            async def seen(who: Principal, user: str = "") -> list[str]:
                return [
                    one.user for one in (await tokens.show(pb.TokensRequest(user=user), caller(who))).tokens
                ]

            assert (
                await seen(NOBODY) == await seen(NOBODY, "nobody") == await seen(ROOT, "nobody") == ["nobody"]
            )
            assert await seen(ROOT) == ["daemon", "nobody"]
            assert await seen(replace(ROOT, via="token", scope="read")) == []
            assert await seen(replace(ROOT, via="login")) == []
            # An account that has taken a name over does not see its tokens.
            assert await seen(replace(NOBODY, uid=77)) == []
            with pytest.raises(Refused, match="no administrator"):
                await seen(NOBODY, "daemon")
        principals.close()

    run(scenario())


def test_who_is_unknown_or_too_large_gets_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        crowd = replace(NOBODY, groups=tuple(range(GROUPS_MAX + 1)))
        principals = Principals(lookup=lambda uid, gid: crowd if uid == 5 else look_up(uid, gid))
        async with LeadingController(StoreImage(CLUSTER)) as leading:
            tokens = tokens_of(leading.dispatcher, principals, tmp_path)
            for who, user, code, told in (
                (ROOT, "no-such-user", RefusalCode.NOT_FOUND, "'no-such-user' is not known"),
                (ROOT, "a\0b", RefusalCode.NOT_FOUND, r"'a\x00b' is not known"),
                (ROOT, "x" * 257, RefusalCode.INVALID, "a name of 257 characters"),
                (Principal("4242", 4242, 4242), "", RefusalCode.NOT_FOUND, "'4242' is not known"),
                (Principal("crowd", 5, 5), "", RefusalCode.INVALID, "is in 1001 groups: a token holds 1000"),
                (NOBODY, "no-such-user", RefusalCode.DENIED, "no administrator"),
                (ROOT, "", RefusalCode.DENIED, "root gets no token"),
            ):
                with pytest.raises(Refused) as refused:
                    await tokens.create(pb.CreateTokenRequest(user=user), caller(who))
                assert refused.value.code is code and told in refused.value.text
            assert leading.state.tokens == {}
        principals.close()

    run(scenario())


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (pb.RevokeTokensRequest(), "none is named"),
        (pb.RevokeTokensRequest(ids=["00" * 16] * 1001), "1001 ids in one call"),
        (pb.RevokeTokensRequest(ids=["00"]), "token '00': is no id of 32 hexadecimal digits"),
        (pb.RevokeTokensRequest(ids=["zz" * 16]), "is no id"),
        (pb.RevokeTokensRequest(ids=["\x1b[2J"]), r"token '\x1b[2J': is no id"),
        (pb.RevokeTokensRequest(user="x" * 300), "in one call"),
    ],
)
def test_revocations_that_are_none(tmp_path: Path, request_: pb.RevokeTokensRequest, told: str) -> None:
    async def scenario() -> None:
        async with LeadingController(StoreImage(CLUSTER)) as leading:
            tokens = tokens_of(leading.dispatcher, Principals(), tmp_path)
            with pytest.raises(Refused) as refused:
                await tokens.read_revocation(request_, NOBODY)
            assert told in refused.value.text
            read = await tokens.read_revocation(pb.RevokeTokensRequest(ids=["AB" * 16], user="u"), NOBODY)
            assert read == RevokeTokens(NOBODY, (b"\xab" * 16,), "u")

    run(scenario())


def test_a_stored_answer_about_a_token_is_found_by_its_bound_id_only() -> None:
    """A bare id, which may be known to others, never leads to one."""
    from esctld.serve.request_ids import is_own
    from eslurm.core.model.messages import CreateToken, StoredAnswer

    made: StoredAnswer = TokenMade(bytes(16), NOBODY, "submit", 1, 2)
    message = CreateToken(NOBODY, NOBODY, bytes(16), "submit", 5)
    assert not is_own(made, message, caller(), lambda _job_id: None)
