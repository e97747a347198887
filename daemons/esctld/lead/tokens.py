"""Tokens at the controller: creation, listing, revocation, and the authenticator's queries of the state.

The core decides and the log records; here a granted token is sealed, once its record is committed. Invariant: a token
stands in the reply to its maker and nowhere else.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from esctld.lead.site import SiteSigner
from eslurm.api.principals import PRIMARY, Principals
from eslurm.api.tokens import GROUPS_MAX, Claims, Ledger, seal_token
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.control.rights import is_administrator
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import CreateToken, Message, RefusalCode, Refused, RevokeTokens, TokenMade
from eslurm.core.model.token import ID_BYTES, TOKEN, IssuedToken, TokenRules
from eslurm.core.state.cluster import State
from eslurm.core.state.view import View
from eslurm.ports.api import Caller
from eslurm.v1 import controller_pb2 as pb

LIFE_S: Final = 8 * 3600
"""Of a token whose maker says nothing else."""
SCOPE: Final = "submit"
NAME_MAX: Final = 256
IDS_MAX: Final = 1_000

Decide = Callable[[Message, Caller], Awaitable[BatchAnswer]]


class Tokens:
    """The calls about tokens. `decide` gives the durable answer to a message."""

    def __init__(
        self,
        state: State,
        view: View,
        principals: Principals,
        site: SiteSigner,
        decide: Decide,
    ) -> None:
        self._state = state
        self._view = view
        self._principals = principals
        self._site = site
        self._decide = decide

    @property
    def ledger(self) -> Ledger:
        """The committed token records, for the authenticator."""
        return Ledger(self._find, self._rules)

    def _find(self, identifier: bytes) -> IssuedToken | None:
        record = self._view.records.get((TOKEN, identifier.hex()))
        return record if isinstance(record, IssuedToken) else None

    def _rules(self) -> TokenRules:
        return self._state.config.tokens

    async def create(self, request: pb.CreateTokenRequest, caller: Caller) -> pb.CreateTokenReply:
        """Make a token. A retry gets the same one."""
        of = await self._bearer(request.user, caller.principal)
        if len(of.groups) > GROUPS_MAX:
            raise Refused(
                RefusalCode.INVALID,
                f"{of.name} is in {len(of.groups)} groups: a token holds {GROUPS_MAX} at most",
            )
        message = CreateToken(
            caller.principal,
            of,
            secrets.token_bytes(ID_BYTES),
            request.scope or SCOPE,
            request.life_s or LIFE_S,
        )
        made = await self._decide(message, caller)
        assert isinstance(made, TokenMade)
        claims = Claims(made.id, self._site.cluster, made.of, made.scope, made.issued_us, made.expires_us)
        by = caller.principal
        issued = IssuedToken(
            made.id,
            made.of.name,
            made.of.uid,
            made.scope,
            made.issued_us,
            made.expires_us,
            by.name,
            by.uid,
            by.via,
        )
        return pb.CreateTokenReply(
            token=seal_token(self._site, claims),
            info=_info(issued),
            gid=made.of.gid,
            cluster=self._site.cluster,
        )

    async def show(self, request: pb.TokensRequest, caller: Caller) -> pb.TokensReply:
        """The caller's own tokens, or those that an administrator requests."""
        who = caller.principal
        trusted = is_administrator(self._state, who)
        if request.user and request.user != who.name and not trusted:
            raise Refused(
                RefusalCode.DENIED,
                f"{who.name} is no administrator: only they see {_shown(request.user)}'s tokens",
            )
        found = [
            token
            for token in self._view.all_of(IssuedToken)
            if (trusted or token.uid == who.uid) and request.user in ("", token.user)
        ]
        found.sort(key=lambda token: (token.user, token.expires_us, token.id))
        return pb.TokensReply(tokens=map(_info, found))

    async def read_revocation(self, request: pb.RevokeTokensRequest, by: Principal) -> RevokeTokens:
        """The message for a call. Raises `Refused`."""
        if not request.user and not request.ids:
            raise Refused(RefusalCode.INVALID, "tokens: none is named: give ids, or a user")
        if len(request.ids) > IDS_MAX or len(request.user) > NAME_MAX:
            raise Refused(
                RefusalCode.INVALID, f"tokens: {len(request.ids)} ids in one call: give {IDS_MAX} at most"
            )
        return RevokeTokens(
            by,
            tuple(map(_id, request.ids)),
            request.user,
        )

    async def _bearer(self, name: str, by: Principal) -> Principal:
        """The bearer, as this host's name service knows the user."""
        if len(name) > NAME_MAX:
            raise Refused(RefusalCode.INVALID, f"user: a name of {len(name)} characters is none")
        if name and name != by.name and not is_administrator(self._state, by):
            # Before the name service is asked.
            raise Refused(
                RefusalCode.DENIED,
                f"{by.name} is no administrator: only they have tokens made for others ({_shown(name)})",
            )
        if name:
            found = await self._principals.find_named(name)
        else:
            found = await self._principals.resolve(by.uid, PRIMARY)
        if found is None or found.gid == PRIMARY:
            raise Refused(
                RefusalCode.NOT_FOUND,
                f"user {_shown(name or by.name)} is not known on the controller's host: "
                "use a name that `getent passwd NAME` finds there",
            )
        return found


def read_id(text: str, what: str, see: str) -> bytes:
    """The id of a token or join token from its text. `what` names it, `see` lists such ids. Raises `Refused`."""
    try:
        identifier = bytes.fromhex(text)
    except ValueError:
        identifier = b""
    if len(identifier) != ID_BYTES:
        raise Refused(
            RefusalCode.INVALID, f"{what}: is no id of {2 * ID_BYTES} hexadecimal digits: see {see}"
        )
    return identifier


def _id(text: str) -> bytes:
    return read_id(text, f"token {_shown(text)}", "esctl token list")


def _shown(text: str) -> str:
    """A caller's text, short and without control characters."""
    return repr(text[:NAME_MAX])


def _info(token: IssuedToken) -> pb.TokenInfo:
    return pb.TokenInfo(
        id=token.id.hex(),
        user=token.user,
        uid=token.uid,
        scope=token.scope,
        issued_us=token.issued_us,
        expires_us=token.expires_us,
        by=token.by,
        via=token.via,
    )
