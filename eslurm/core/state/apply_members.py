"""Application of facts about members, and their indexes."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from msgspec.structs import replace

from eslurm.core.model.member import JOIN_TOKEN, MEMBER, REVOCATION, JoinToken, Member, Revocation

if TYPE_CHECKING:
    from eslurm.core.model import facts
    from eslurm.core.state.cluster import State


def put_join_token(state: State, token: JoinToken) -> None:
    """Insert a join token and set the timer of its end."""
    state.members.tokens[token.id] = token
    state.touched.records.add((JOIN_TOKEN, token.id.hex()))
    heapq.heappush(state.timers, (token.expires_us, JOIN_TOKEN, int.from_bytes(token.id)))


def put_member(state: State, member: Member) -> None:
    """Insert a membership."""
    state.members.enter(member)
    state.touched.records.add((MEMBER, member.serial.hex()))


def put_revocation(state: State, revocation: Revocation) -> None:
    """Insert a revocation and remove the membership."""
    state.members.revoked[revocation.serial] = revocation
    state.touched.records.add((REVOCATION, revocation.serial.hex()))
    if state.members.remove(revocation.serial):
        state.touched.records.add((MEMBER, revocation.serial.hex()))


def apply_token_made(state: State, fact: facts.JoinTokenMade) -> None:
    put_join_token(state, fact.token)


def apply_tokens_ended(state: State, fact: facts.JoinTokensEnded) -> None:
    for identifier in fact.ids:
        del state.members.tokens[identifier]
        state.touched.records.add((JOIN_TOKEN, identifier.hex()))


def apply_joined(state: State, fact: facts.HostJoined) -> None:
    member = fact.member
    put_member(state, member)
    token = state.members.tokens.get(member.token)
    if token is not None:
        state.members.tokens[token.id] = replace(token, uses_left=token.uses_left - 1)
        state.touched.records.add((JOIN_TOKEN, token.id.hex()))


def apply_revoked(state: State, fact: facts.MembersRevoked) -> None:
    for revocation in fact.revocations:
        put_revocation(state, revocation)
    state.revoked_revision = fact.revision
    state.touched.settings = True
