"""Members in the core: join tokens and their bounds, approvals, revocations, and what a restart leaves of them."""

from __future__ import annotations

import pytest

from eslurm.core.control.timers import drop_stale
from eslurm.core.control.waiting_members import (
    FORGOTTEN_US,
    WAITING_ADDRESS_MAX,
    WAITING_MAX,
    Denied,
    NoRoom,
    WaitingHosts,
)
from eslurm.core.model.job import Principal
from eslurm.core.model.member import JOIN_TOKENS_MAX, LIFE_MAX_S, Revocation
from eslurm.core.model.messages import (
    ApproveHost,
    Changed,
    CreateJoinToken,
    JoinHost,
    JoinTokenMade,
    Message,
    RefusalCode,
    Refused,
    RevokeJoinTokens,
    RevokeMembers,
    Tick,
)
from tests.kits.core import ALICE, ROOT, SECOND, World


def key(number: int) -> bytes:
    return number.to_bytes(32)


def token(
    number: int = 1,
    uses: int = 1,
    names: str = "",
    by: Principal = ROOT,
    role: str = "agent",
    life_s: int = 60,
) -> CreateJoinToken:
    return CreateJoinToken(by, number.to_bytes(16), b"h" * 32, role, names, uses, life_s)


def join(number: int, names: str, token: int = 1, role: str = "agent", public: int = 0) -> JoinHost:
    return JoinHost(token.to_bytes(16), role, names, key(public or number), number.to_bytes(16), "192.0.2.1")


def revoke(*serials: int, revision: int = 0, by: Principal | None = ROOT) -> RevokeMembers:
    found = (Revocation(serial.to_bytes(16), "agent", "", "", 0) for serial in serials)
    return RevokeMembers(by, tuple(found), revision)


def refusal(world: World, message: Message) -> Refused:
    answer = world.send(message)
    assert isinstance(answer, Refused), answer
    return answer


def members(world: World) -> list[str]:
    return [one.names for one in world.state.members.issued.values()]


def test_a_token_s_last_use_is_spent_once() -> None:
    world = World(nodes=1)
    assert isinstance(world.send(token(uses=2)), JoinTokenMade)
    assert world.send(join(1, "cn1")) == Changed(1)
    # The same host asks again: its answer was lost.
    assert world.send(join(7, "cn1", public=1)) == Changed(0)
    assert world.send(join(2, "cn2")) == Changed(1)
    assert refusal(world, join(3, "cn3")).text == "the join token is used up: have another one made"
    world.restart()
    assert members(world) == ["cn1", "cn2"]
    assert world.state.members.tokens[(1).to_bytes(16)].uses_left == 0
    assert refusal(world, join(3, "cn3")).code is RefusalCode.EXHAUSTED


def test_a_name_joins_once_with_a_token() -> None:
    world = World(nodes=1)
    world.send(token(uses=5, names="cn[1-9]"))
    world.send(join(1, "cn[1-3]"))
    assert "cn2 has joined with this token already" in refusal(world, join(2, "cn[2,5]")).text
    assert "is for cn[1-9], not for cn10" in refusal(world, join(2, "cn[9-10]")).text
    assert "is for the role agent" in refusal(world, join(2, "sat1", role="satellite")).text
    assert "a member as agent cn[1-3] already" in refusal(world, join(2, "cn4", public=1)).text
    assert "cannot join" in refusal(world, join(2, "c2", role="controller")).text
    assert members(world) == ["cn[1-3]"]


def test_a_token_ends_by_itself_and_when_it_is_taken_back() -> None:
    world = World(nodes=1)
    for number in (1, 2):
        world.send(token(number, life_s=number * 60))
    world.restart()
    world.now_us += 60 * SECOND
    assert "has ended" in refusal(world, join(1, "cn1")).text, "before the timer has fired"
    world.send(Tick())
    drop_stale(world.state)
    assert [int.from_bytes(one) for one in world.state.members.tokens] == [2]
    answer = world.send(RevokeJoinTokens(ROOT, ((2).to_bytes(16), (3).to_bytes(16))))
    assert isinstance(answer, Changed) and answer.count == 1 and len(answer.problems) == 1
    assert refusal(world, join(1, "cn1", token=2)).code is RefusalCode.DENIED


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (token(by=ALICE), "alice is no administrator: only they make join tokens"),
        (token(role="controller"), "role 'controller' cannot join"),
        (token(uses=0), "0 uses"),
        (token(uses=10_001), "10001 uses"),
        (token(life_s=LIFE_MAX_S + 1), "is not within 1..604800 s"),
        (token(names="c" * 2000), "names of 2000 characters"),
        (RevokeJoinTokens(ALICE, (b"x" * 16,)), "only they revoke join tokens"),
        (ApproveHost(ALICE, "agent", "cn1", key(1), b"s" * 16, ""), "only they let hosts join"),
        (ApproveHost(ROOT, "satellite", "s[1-2]", key(1), b"s" * 16, ""), "under one name"),
        (ApproveHost(ROOT, "agent", "", key(1), b"s" * 16, ""), "cannot be used"),
        (ApproveHost(ROOT, "agent", "cn1", b"short", b"s" * 16, ""), "cannot be used"),
        (revoke(1, by=ALICE), "only they revoke members"),
    ],
)
def test_what_is_refused(message: Message, text: str) -> None:
    world = World(nodes=1)
    assert text in refusal(world, message).text


def test_tokens_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert JOIN_TOKENS_MAX == 1_000
    monkeypatch.setattr("eslurm.core.control.members.JOIN_TOKENS_MAX", 20)
    world = World(nodes=1)
    for number in range(20):
        assert isinstance(world.send(token(number)), JoinTokenMade)
    assert refusal(world, token(20)).code is RefusalCode.EXHAUSTED


def test_what_is_revoked_is_a_member_no_more_and_its_token_ends() -> None:
    world = World(nodes=1)
    world.send(token(uses=3))
    world.send(join(1, "cn1"))
    world.send(ApproveHost(ROOT, "agent", "cn2", key(2), (2).to_bytes(16), "192.0.2.2"))
    answer = world.send(revoke(1))
    assert isinstance(answer, Changed) and answer.count == 1 and "has ended, too" in answer.notes[0]
    assert not world.state.members.tokens and members(world) == ["cn2"]
    assert world.state.revoked_revision == 1
    assert world.send(revoke(1)) == Changed(0), "it is already"
    world.restart()
    assert world.state.revoked_revision == 1 and list(world.state.members.revoked) == [(1).to_bytes(16)]
    # The host is let in again only as a new member.
    assert (
        refusal(world, ApproveHost(ROOT, "agent", "cn1", key(1), (1).to_bytes(16), "")).code
        is RefusalCode.INTERNAL
    )
    assert world.send(ApproveHost(ROOT, "agent", "cn1", key(1), (3).to_bytes(16), "")) == Changed(1)


def test_a_list_from_a_file_moves_the_revision_on() -> None:
    """A later list that another controller sealed, with nothing new in it: the next one has to be later still."""
    world = World(nodes=1)
    world.send(revoke(9, revision=4, by=None))
    assert world.state.revoked_revision == 5
    assert world.send(revoke(9, revision=5, by=None)) == Changed(0)
    world.send(revoke(revision=8, by=None))
    assert world.state.revoked_revision == 9
    world.send(revoke(10))
    assert world.state.revoked_revision == 10 and len(world.state.members.revoked) == 2


def test_hosts_that_wait_are_few_and_forgotten() -> None:
    room = WaitingHosts()
    for number in range(WAITING_ADDRESS_MAX):
        room.ask("agent", f"cn{number}", key(number), "192.0.2.1", 1)
    with pytest.raises(NoRoom, match="of this address"):
        room.ask("agent", "cn9", key(9), "192.0.2.1", 1)
    room.ask("agent", "cn0", key(0), "192.0.2.1", 2)
    for number in range(WAITING_MAX - WAITING_ADDRESS_MAX):
        room.ask("agent", f"cx{number}", key(100 + number), f"192.0.3.{number}", 2)
    with pytest.raises(NoRoom, match=f"{WAITING_MAX} hosts wait"):
        room.ask("agent", "cn9", key(99), "192.0.2.9", 2)
    assert len(room.all(2)) == WAITING_MAX
    assert room.all(2)[1].public == key(1) and room.all(2)[0].since_us == 1
    room.deny(room.all(2)[0], 2)
    with pytest.raises(Denied):
        room.ask("agent", "cn0", key(0), "192.0.2.1", 3)
    # One host has many addresses of IPv6.
    crowd = WaitingHosts()
    for number in range(WAITING_ADDRESS_MAX):
        crowd.ask("agent", "cn1", key(number), f"2001:db8::{number}:1", 1)
    with pytest.raises(NoRoom, match="of this address"):
        crowd.ask("agent", "cn1", key(9), "2001:db8::ffff", 1)
    crowd.ask("agent", "cn1", key(9), "2001:db8:0:1::1", 1)
    later = FORGOTTEN_US + 3
    assert room.all(later) == []
    assert room.ask("agent", "cn0", key(0), "192.0.2.1", later).since_us == later
