"""Membership of hosts: joining by token or approval, and revocation.

The daemon has checked the proofs: that the host holds its identity key, and the token's secret. Invariants: a token's last
use is spent once; a name joins once with a token; a key has one membership; only administrators make tokens, approve and
revoke.
"""

from __future__ import annotations

from eslurm.core.control.rights import is_administrator
from eslurm.core.model import facts
from eslurm.core.model.hostlist import holds, unfold
from eslurm.core.model.job import Principal
from eslurm.core.model.member import (
    HASH_BYTES,
    ID_BYTES,
    JOIN_TOKENS_MAX,
    LIFE_MAX_S,
    MEMBERS_MAX,
    NAMES_CHARS_MAX,
    PUBLIC_BYTES,
    REVOKED_MAX,
    ROLES,
    SERIAL_BYTES,
    USES_MAX,
    JoinToken,
    Member,
    Revocation,
)
from eslurm.core.model.messages import (
    ApproveHost,
    Changed,
    CreateJoinToken,
    JobProblem,
    JoinHost,
    JoinTokenMade,
    RefusalCode,
    Refused,
    RevokeJoinTokens,
    RevokeMembers,
)
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State

NAMED_MAX = 1_000
"""Join tokens named in one message."""


def on_create_token(
    state: State, message: CreateJoinToken, now_us: int
) -> tuple[list[facts.Fact], JoinTokenMade]:
    """Make one join token. Raises `Refused` naming the bound and the way out."""
    by = message.by
    _check_administrator(state, by, "make join tokens")
    _check_role(message.role)
    if not 1 <= message.uses <= USES_MAX:
        raise Refused(RefusalCode.INVALID, f"{message.uses} uses: a join token has 1 to {USES_MAX} (--uses)")
    if not 1 <= message.life_s <= LIFE_MAX_S:
        raise Refused(
            RefusalCode.INVALID,
            f"a life of {message.life_s} s is not within 1..{LIFE_MAX_S} s: ask for less (--hours)",
        )
    if len(message.names) > NAMES_CHARS_MAX:
        raise Refused(
            RefusalCode.INVALID,
            f"names of {len(message.names)} characters are more than {NAMES_CHARS_MAX}: fold them, or leave them out",
        )
    tokens = state.members.tokens
    if len(tokens) >= JOIN_TOKENS_MAX:
        raise Refused(
            RefusalCode.EXHAUSTED,
            f"the cluster has {len(tokens)} join tokens, {JOIN_TOKENS_MAX} are possible: revoke some "
            "(esctl node token list)",
        )
    if (len(message.id), len(message.secret_hash)) != (ID_BYTES, HASH_BYTES) or message.id in tokens:
        raise Refused(RefusalCode.INTERNAL, "the join token's id cannot be used: try again")
    expires_us = now_us + message.life_s * SECOND_US
    token = JoinToken(
        message.id,
        message.secret_hash,
        message.role,
        message.names,
        message.uses,
        now_us,
        expires_us,
        by.name,
        by.uid,
    )
    return [facts.JoinTokenMade(token)], JoinTokenMade(message.id, expires_us)


def on_revoke_tokens(state: State, message: RevokeJoinTokens) -> tuple[list[facts.Fact], Changed]:
    """Revoke join tokens."""
    _check_administrator(state, message.by, "revoke join tokens")
    if len(message.ids) > NAMED_MAX:
        raise Refused(
            RefusalCode.INVALID,
            f"{len(message.ids)} join tokens at once are more than {NAMED_MAX}: split them",
        )
    found = tuple(dict.fromkeys(one for one in message.ids if one in state.members.tokens))
    problems = tuple(
        JobProblem(
            f"join token {one.hex()}",
            RefusalCode.NOT_FOUND,
            "there is no such token (any more): see esctl node token list",
        )
        for one in message.ids
        if one not in state.members.tokens
    )
    ended: list[facts.Fact] = [facts.JoinTokensEnded(found, message.by.name)] if found else []
    return ended, Changed(len(found), problems)


def on_join(state: State, message: JoinHost, now_us: int) -> tuple[list[facts.Fact], Changed]:
    """Admit a host that has proved a token's secret. A repeated request of the same host is one use."""
    token = state.members.tokens.get(message.token)
    if token is None or token.expires_us <= now_us:
        raise Refused(RefusalCode.DENIED, "the join token has ended: have another one made")
    known = _check_new(state, message.role, message.names, message.public, message.serial)
    if known:
        return [], Changed(0)
    if message.role != token.role:
        raise Refused(
            RefusalCode.DENIED,
            f"the join token is for the role {token.role}, not {message.role}: give --role",
        )
    names = unfold(message.names)
    strange = next((name for name in names if token.names and not holds(token.names, name)), "")
    if strange:
        raise Refused(RefusalCode.DENIED, f"the join token is for {token.names}, not for {strange}")
    taken = state.members.taken.get(token.id, set())
    again = next((name for name in names if name in taken), "")
    if again:
        raise Refused(
            RefusalCode.CONFLICT,
            f"{again} has joined with this token already, with another key: revoke that membership first "
            f"(esctl node revoke {again}), or have another token made",
        )
    if token.uses_left < 1:
        raise Refused(RefusalCode.EXHAUSTED, "the join token is used up: have another one made")
    member = Member(
        *(message.serial, message.role, message.names, message.public, now_us, token.by),
        *(message.address, token.id),
    )
    return [facts.HostJoined(member)], Changed(1)


def on_approve(state: State, message: ApproveHost, now_us: int) -> tuple[list[facts.Fact], Changed]:
    """Admit a waiting host that an administrator has recognised by its key."""
    _check_administrator(state, message.by, "let hosts join")
    known = _check_new(state, message.role, message.names, message.public, message.serial)
    if known:
        return [], Changed(0)
    member = Member(
        *(message.serial, message.role, message.names, message.public, now_us, message.by.name),
        message.address,
    )
    return [facts.HostJoined(member)], Changed(1)


def on_revoke(state: State, message: RevokeMembers, now_us: int) -> tuple[list[facts.Fact], Changed]:
    """Revoke memberships. With `by` None the list in a controller's directory has them already.

    A list of a later `revision` than that of the last fact is one too, because the next one must be later still.
    """
    if message.by is not None:
        _check_administrator(state, message.by, "revoke members")
    members = state.members
    fresh = {
        one.serial: Revocation(
            one.serial, one.role, one.names, message.by.name if message.by else one.by, now_us
        )
        for one in message.revocations
        if one.serial not in members.revoked and len(one.serial) == SERIAL_BYTES
    }
    if len(members.revoked) + len(fresh) > REVOKED_MAX:
        raise Refused(
            RefusalCode.EXHAUSTED,
            f"{len(members.revoked)} memberships are revoked, {REVOKED_MAX} are possible: give the site new keys",
        )
    if not fresh and message.revision <= state.revoked_revision:
        return [], Changed(0)
    revision = max(state.revoked_revision, message.revision) + 1
    found: list[facts.Fact] = [facts.MembersRevoked(tuple(fresh.values()), revision)]
    # What a host knew that is not to be trusted, others may know.
    used = dict.fromkeys(members.issued[serial].token for serial in fresh if serial in members.issued)
    ended = tuple(one for one in used if one in members.tokens and members.tokens[one].uses_left)
    if ended:
        found.append(facts.JoinTokensEnded(ended, message.by.name if message.by else ""))
    notes = tuple(f"join token {one.hex()} has ended, too: a revoked host knew it" for one in ended)
    return found, Changed(len(fresh), notes=notes)


def token_expired(state: State, identifier: bytes, now_us: int) -> list[facts.Fact]:
    """The facts of a fired join token timer."""
    token = state.members.tokens.get(identifier)
    if token is None or token.expires_us > now_us:
        return []
    return [facts.JoinTokensEnded((identifier,), "")]


def _check_administrator(state: State, who: Principal, what: str) -> None:
    if not is_administrator(state, who):
        raise Refused(RefusalCode.DENIED, f"{who.name} is no administrator: only they {what}")


def _check_role(role: str) -> None:
    if role not in ROLES:
        # A stranger's word, which people read.
        raise Refused(RefusalCode.INVALID, f"role {role[:32]!r} cannot join: use one of {', '.join(ROLES)}")


def check_wish(role: str, names: str) -> None:
    """Raise `Refused` for an impossible request to join. `names` is a list that the API has checked."""
    _check_role(role)
    if role != "agent" and len(unfold(names)) != 1:
        raise Refused(RefusalCode.INVALID, f"a host joins as {role} under one name, not {names[:64]}")


def _check_new(state: State, role: str, names: str, public: bytes, serial: bytes) -> bool:
    """Check whether the key has exactly this membership already. Raises `Refused` when it can have none."""
    members = state.members
    if (
        not names
        or len(names) > NAMES_CHARS_MAX
        or (len(public), len(serial)) != (PUBLIC_BYTES, SERIAL_BYTES)
    ):
        raise Refused(RefusalCode.INVALID, "the names or the key of the host cannot be used")
    check_wish(role, names)
    found = members.of_key.get(public)
    if found is not None:
        member = members.issued[found]
        if (member.role, member.names) == (role, names):
            return True
        raise Refused(
            RefusalCode.CONFLICT,
            f"this key is a member as {member.role} {member.names} already: revoke that first "
            f"(esctl node revoke {member.serial.hex()}), or join with a directory of its own",
        )
    if len(members.issued) >= MEMBERS_MAX:
        raise Refused(
            RefusalCode.EXHAUSTED,
            f"the cluster has {len(members.issued)} members, {MEMBERS_MAX} are possible",
        )
    if serial in members.issued or serial in members.revoked:
        raise Refused(RefusalCode.INTERNAL, "the serial cannot be used: try again")
    return False
