"""Rules of tokens: makers, bearers, scopes, lives; and revocation.

Invariants: root never gets one; a token is never made with a token, so none outlives the one before; a caller that a
node vouches for gains no rights by a token.
"""

from __future__ import annotations

from typing import Final

from eslurm.core.control.rights import is_administrator
from eslurm.core.model import facts
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import (
    Changed,
    CreateToken,
    JobProblem,
    RefusalCode,
    Refused,
    RevokeTokens,
    TokenMade,
)
from eslurm.core.model.token import ID_BYTES, SCOPES, IssuedToken, life_max_s
from eslurm.core.model.units import SECOND_US
from eslurm.core.model.wording import quoted
from eslurm.core.state.cluster import State

REVOKED_MAX: Final = 1_000
"""Tokens named in one message."""
NAME_MAX: Final = 256
_NOT_BY: Final = {
    "token": "tokens are not made with a token: use a host of the cluster",  # nosec B105 # a text for people
    "cell": "tokens are not made from another cell: use a host of this one",
    "agent": "tokens are not made on nodes, which vouch for their jobs' users only: use a login host or a controller's",
}


def on_create(state: State, message: CreateToken, now_us: int) -> tuple[list[facts.Fact], TokenMade]:
    """Make one token. Raises `Refused` naming the bound and the way out."""
    by, of = message.by, message.of
    _check_maker(state, by, of)
    _check_scope(state, message)
    token = IssuedToken(
        message.id,
        of.name,
        of.uid,
        message.scope,
        now_us,
        now_us + message.life_s * SECOND_US,
        by.name,
        by.uid,
        by.via,
    )
    longest_s = life_max_s(state.config.tokens, token)
    if not 0 < message.life_s <= longest_s:
        key = "life_user_max_s" if by.uid == of.uid else "life_max_s"
        raise Refused(
            RefusalCode.INVALID,
            f"a life of {message.life_s} s is not within 1..{longest_s} s (tokens.{key}): ask for less",
        )
    _check_room(state, of)
    if len(message.id) != ID_BYTES or message.id in state.tokens or len(of.name) > NAME_MAX:
        raise Refused(RefusalCode.INTERNAL, "the token's id or name cannot be used: try again")
    made = TokenMade(token.id, of, token.scope, token.issued_us, token.expires_us)
    return [facts.TokenIssued(token)], made


def on_revoke(state: State, message: RevokeTokens) -> tuple[list[facts.Fact], Changed]:
    """Revoke the tokens of these ids, or all of a user's. Others' tokens are unknown to callers who are no
    administrators.
    """
    by = message.by
    if len(message.ids) > REVOKED_MAX:
        raise Refused(
            RefusalCode.INVALID, f"{len(message.ids)} tokens at once are more than {REVOKED_MAX}: split them"
        )
    trusted = is_administrator(state, by)
    if message.user and not trusted and message.user != by.name:
        raise Refused(
            RefusalCode.DENIED, f"{by.name} is no administrator: only they revoke {message.user}'s tokens"
        )
    found: dict[bytes, None] = {}
    problems: list[JobProblem] = []
    if message.user:
        for token in state.tokens.values():
            # A name may pass from one account to another; its number is what counts.
            if token.user == message.user and (trusted or token.uid == by.uid):
                found[token.id] = None
    for identifier in message.ids:
        known = state.tokens.get(identifier)
        if known is not None and (trusted or known.uid == by.uid):
            found[identifier] = None
        else:
            problems.append(
                JobProblem(
                    f"token {identifier.hex()}",
                    RefusalCode.NOT_FOUND,
                    "there is no such token (any more): see esctl token list",
                )
            )
    gone: list[facts.Fact] = [facts.TokensRevoked(tuple(found), by.name)] if found else []
    return gone, Changed(len(found), tuple(problems))


def expired(state: State, identifier: bytes, now_us: int) -> list[facts.Fact]:
    """The facts of a fired token timer."""
    token = state.tokens.get(identifier)
    return [facts.TokensExpired((identifier,))] if token is not None and token.expires_us <= now_us else []


def _check_maker(state: State, by: Principal, of: Principal) -> None:
    if of.uid == 0:
        raise Refused(
            RefusalCode.DENIED,
            f"{of.name} gets no token: its bearer would be root on every node: name an account of its own",
        )
    if by.via in _NOT_BY:
        raise Refused(RefusalCode.DENIED, _NOT_BY[by.via])
    if by.uid != of.uid and not is_administrator(state, by):
        raise Refused(
            RefusalCode.DENIED,
            f"{by.name} is no administrator: only they have tokens made for others ({of.name})",
        )


def _check_scope(state: State, message: CreateToken) -> None:
    scope, by = message.scope, message.by
    if scope not in SCOPES:
        raise Refused(
            RefusalCode.INVALID, f"scope: {quoted(scope)} does not exist: use one of {', '.join(SCOPES)}"
        )
    if scope == "estimator" and not is_administrator(state, by):
        raise Refused(
            RefusalCode.DENIED, f"{by.name} is no administrator: only they make tokens for estimators"
        )
    if scope == "admin" and by.via == "login":
        raise Refused(
            RefusalCode.DENIED,
            "scope admin is not given through a login host: use a controller's host, or --scope submit",
        )


def _check_room(state: State, of: Principal) -> None:
    rules = state.config.tokens
    has = sum(token.uid == of.uid for token in state.tokens.values())
    if has >= rules.user_max:
        raise Refused(
            RefusalCode.EXHAUSTED,
            f"{of.name} has {has} tokens, {rules.user_max} are possible (tokens.user_max): revoke one",
        )
    if len(state.tokens) >= rules.total_max:
        raise Refused(
            RefusalCode.EXHAUSTED,
            f"the cluster has {len(state.tokens)} tokens, {rules.total_max} are possible (tokens.total_max): "
            "revoke some",
        )
