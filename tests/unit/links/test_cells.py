"""Handshakes with other cells of a federation: the controllers of pinned ones, as cells and nothing else."""

from __future__ import annotations

import time

import msgspec
import pytest
from msgspec.structs import replace

from eslurm.links.hello import Handshake, LocalPeer, only_item
from eslurm.links.kinds import ALL, STATEMENTS, allowed
from eslurm.ports.link import ANYBODY, CELL, LinkRefused, PeerInfo, Wanted
from eslurm.security import cells
from eslurm.security.cells import CellKeys, CellTrust
from eslurm.security.credentials import Credentials
from eslurm.security.joining import fingerprint
from eslurm.security.membership import NotAMember
from eslurm.security.revocation import seal_revoked
from eslurm.security.sealing import HEAD_BYTES, BadSeal, Purpose
from eslurm.security.site_keys import Ring, RingStatement, SiteKeys
from tests.support.trust import Site

ALPHA, BETA, GAMMA = Site("alpha"), Site("beta"), Site("gamma")
US = LocalPeer("alpha", "controller", "main.aa", "127.0.0.1:1", epoch=3)
THEM = LocalPeer("beta", "controller", "main.bb", "127.0.0.1:2", epoch=7)


def trusting(*sites: tuple[str, Site], of: Site = ALPHA) -> Credentials:
    """A controller's credentials that trust these cells."""
    credentials = of.credentials("controller", "main")
    trusted: dict[str, CellKeys] = {}
    for name, site in sites:
        trusted[name] = CellKeys(name, site.keys.ring, trusted)
    credentials.cells = trusted
    return credentials


def met(
    them: Credentials, us: Credentials, peer: LocalPeer = THEM, local: LocalPeer = US
) -> tuple[PeerInfo, PeerInfo]:
    """A handshake that they dial: they as we see them, and we as they do."""
    dialler, listener = Handshake(peer, them), Handshake(local, us)
    listener.on_open(dialler.open())
    answer = listener.answer()
    seen, confirmation = dialler.on_answer(only_item(answer, "hello_reply").hello_reply, answer)
    return listener.on_confirmation(confirmation), seen


def refused(them: Credentials, us: Credentials, peer: LocalPeer = THEM) -> str:
    with pytest.raises(LinkRefused) as caught:
        met(them, us, peer)
    return str(caught.value)


def test_a_pinned_cell_is_a_cell_and_nothing_else() -> None:
    them, us = met(trusting(("alpha", ALPHA), of=BETA), trusting(("beta", BETA)))
    assert (them.role, them.cell, them.process) == (CELL, "beta", "beta/main.bb")
    assert (us.role, us.cell, us.process) == (CELL, "alpha", "alpha/main.aa")
    # What is looked for in our own cluster is never found in another.
    for wanted in (ANYBODY, Wanted("controller"), Wanted("controller", "main"), Wanted("", "main")):
        assert not wanted.fits(them)
    assert not Wanted(CELL, cell="gamma").fits(them)
    assert Wanted(CELL, cell="beta").fits(them)
    ours = replace(them, role="controller", cell="")
    assert not Wanted("controller", cell="beta").fits(ours)


def test_a_cell_is_known_by_its_keys_whatever_its_cluster_is_called() -> None:
    twin = Site("alpha")
    peer = LocalPeer("alpha", "controller", "main.bb", "127.0.0.1:2")
    them, _us = met(trusting(("alpha", ALPHA), of=twin), trusting(("twin", twin)), peer)
    assert (them.role, them.cell) == (CELL, "twin")
    assert "not of this cluster" in refused(trusting(of=twin), trusting(("beta", BETA)), peer)


def test_an_unpinned_cell_is_refused() -> None:
    said = refused(trusting(("alpha", ALPHA), of=BETA), trusting())
    assert "wrong cluster: this is 'alpha', the peer belongs to 'beta'" in said
    assert "none of the cells that are trusted here" in refused(
        trusting(("alpha", ALPHA), of=BETA), trusting(("gamma", GAMMA))
    )


def test_a_cell_that_does_not_trust_us_is_no_cell_for_us() -> None:
    assert "wrong cluster" in refused(trusting(of=BETA), trusting(("beta", BETA)))


@pytest.mark.parametrize("role", ["agent", "satellite", "login", "estimator"])
@pytest.mark.parametrize("said", ["its own", "controller"])
def test_only_a_controller_speaks_for_its_cell(role: str, said: str) -> None:
    member = BETA.credentials(role, "main")  # type: ignore[arg-type]
    member.cells = trusting(("alpha", ALPHA)).cells
    peer = LocalPeer("beta", role if said == "its own" else said, "main.bb", "127.0.0.1:2")
    assert "only controllers speak for cell beta" in refused(member, trusting(("beta", BETA)), peer)


@pytest.mark.parametrize("role", ["agent", "satellite"])
def test_a_member_of_ours_does_not_become_a_cell(role: str) -> None:
    member = ALPHA.credentials(role, "cn1")  # type: ignore[arg-type]
    us = trusting(("beta", BETA))
    peer = LocalPeer("beta", "controller", "cn1.aa", "127.0.0.1:2")
    assert "wrong cluster" in refused(member, us, peer)
    peer = LocalPeer("alpha", "cell", "cn1.aa", "127.0.0.1:2")
    assert "its membership says" in refused(member, us, peer)
    # Nor with the ring of a cell beside its own membership.
    member.members.ring = BETA.keys.ring
    peer = LocalPeer("beta", "controller", "cn1.aa", "127.0.0.1:2")
    assert refused(member, us, peer)


def test_a_cell_is_not_another_one() -> None:
    us = trusting(("beta", BETA), ("gamma", GAMMA))
    peer = LocalPeer("beta", "controller", "main.cc", "127.0.0.1:2")
    them, _us = met(trusting(("alpha", ALPHA), of=GAMMA), us, peer)
    assert them.cell == "gamma"


def test_a_revoked_controller_of_a_cell_is_refused() -> None:
    us = trusting(("beta", BETA))
    them = trusting(("alpha", ALPHA), of=BETA)
    met(them, us)
    serial = BETA.keys.ring and us.check_peer(them.membership, "beta", 0).serial
    sealed = seal_revoked(BETA.keys, 1, frozenset({serial}))
    assert us.cells["beta"].learn_revoked(sealed)
    assert "was revoked" in refused(them, us)
    # Its list is about its own members.
    with pytest.raises(BadSeal):
        us.learn_revoked(sealed)


def test_a_membership_of_a_cell_that_has_ended_is_refused() -> None:
    them = BETA.credentials("controller", "main", until_us=1)
    them.cells = trusting(("alpha", ALPHA)).cells
    assert "has ended" in refused(them, trusting(("beta", BETA)))


def test_a_cell_s_new_keys_are_followed_and_are_not_ours() -> None:
    us = trusting(("beta", BETA))
    before = us.members.ring.sealed
    site = Site("beta")
    site.keys = BETA.keys.with_next(2).with_next_signing()
    them = trusting(("alpha", ALPHA), of=site)
    seen, _us = met(them, us)
    assert seen.cell == "beta"
    assert us.cells["beta"].members.ring.revision == site.keys.revision
    assert us.members.ring.sealed == before


def test_a_cell_cannot_take_the_keys_of_another_into_its_ring() -> None:
    us = trusting(("beta", BETA), ("gamma", GAMMA))
    stolen = SiteKeys("beta", 9, (*BETA.keys.records, replace(GAMMA.keys.records[0], state="old")))
    with pytest.raises(BadSeal, match="one of its keys is that of cell gamma"):
        us.cells["beta"].learn_ring(stolen.ring.sealed)


def test_the_kinds_that_a_cell_may_send() -> None:
    assert allowed(CELL, "controller") == {"door_call", "door_reply", "unsupported"} | STATEMENTS
    for receiver in ("satellite", "agent", "login"):
        assert allowed(CELL, receiver) == {"unsupported"} | STATEMENTS
    assert allowed(CELL, "controller") < ALL


# ---- trust ----


def pins(**sites: Site) -> dict[str, frozenset[str]]:
    return {name: frozenset({fingerprint(site.keys.signing.public)}) for name, site in sites.items()}


def test_a_ring_is_trusted_when_a_pinned_key_has_sealed_it() -> None:
    trust = CellTrust(pins(beta=BETA), believes_store=False)
    assert trust.follow({"beta": BETA.keys.ring.sealed, "gamma": GAMMA.keys.ring.sealed})
    assert list(trust.cells) == ["beta"]
    assert "it is not pinned here" in trust.refused["gamma"]
    assert fingerprint(GAMMA.keys.signing.public) in trust.refused["gamma"]
    assert not trust.follow({"beta": BETA.keys.ring.sealed, "gamma": GAMMA.keys.ring.sealed})
    # A record that goes ends the trust.
    assert trust.follow({})
    assert not trust.cells


def test_a_record_with_the_keys_of_another_site_is_not_believed() -> None:
    trust = CellTrust(pins(beta=BETA), believes_store=True)
    forged = Site("beta").keys.ring.sealed
    trust.follow({"beta": forged})
    assert not trust.cells
    assert "no pinned key has sealed its keys" in trust.refused["beta"]
    # Nor one that has the pinned key in it, and another one's seal.
    trust.follow({"beta": BETA.keys.ring.sealed})
    theirs = Site("beta").keys.records[0]
    mixed = SiteKeys("beta", 9, (theirs, replace(BETA.keys.records[0], state="old")))
    assert not trust.follow({"beta": mixed.ring.sealed})
    assert trust.cells["beta"].members.ring.sealed == BETA.keys.ring.sealed
    assert trust.refused["beta"]
    # A ring is not changed by one byte.
    trust.follow({"beta": BETA.keys.ring.sealed[:-1]})
    assert trust.cells["beta"].members.ring.sealed == BETA.keys.ring.sealed


def test_the_store_is_believed_where_the_configuration_says_so() -> None:
    trust = CellTrust({}, believes_store=True)
    assert trust.follow({"gamma": GAMMA.keys.ring.sealed, "dark": b"x" * 200, "none": b""})
    assert list(trust.cells) == ["gamma"]
    assert "no keys of a site" in trust.refused["dark"] and "none" in trust.refused


def test_rotation_is_followed_without_the_pinned_key_in_the_end() -> None:
    trust = CellTrust(pins(beta=BETA), believes_store=False)
    trust.follow({"beta": BETA.keys.ring.sealed})
    both = BETA.keys.with_next(int(time.time() * 1e6)).with_next_signing()
    assert trust.follow({"beta": both.ring.sealed})
    alone = both.without(BETA.keys.signing.id)
    assert trust.follow({"beta": alone.ring.sealed})
    assert trust.cells["beta"].members.ring.keys.publics == (alone.signing.public,)
    # Who has not seen the step between needs the new pin.
    late = CellTrust(pins(beta=BETA), believes_store=False)
    late.follow({"beta": alone.ring.sealed})
    assert fingerprint(alone.signing.public) in late.refused["beta"]
    fresh = CellTrust({"beta": frozenset({fingerprint(alone.signing.public)})}, believes_store=False)
    fresh.follow({"beta": alone.ring.sealed})
    assert not fresh.refused


NO_TEXT = b"\0" * HEAD_BYTES + b"\x93\xa4\xff\xfe\xff\xfe\x01\x91\xc4\x01x"
"""A ring whose cluster has a name that is no UTF-8."""
NESTED = b"\0" * HEAD_BYTES + b"\x93\xa1x\x01" + b"\x91" * 5_000


@pytest.mark.parametrize("record", [NO_TEXT, NESTED], ids=["no text", "nested"])
def test_a_record_that_does_not_decode_concerns_its_own_name(record: bytes) -> None:
    trust = CellTrust(pins(beta=BETA, gamma=GAMMA), believes_store=False)
    trust.follow({"gamma": GAMMA.keys.ring.sealed})
    assert trust.follow({"aaa": record, "beta": BETA.keys.ring.sealed})
    assert list(trust.cells) == ["beta"]
    assert "no keys of a site" in trust.refused["aaa"]
    # Nor does what a cell seals and says over its link end more than that.
    keys = trust.cells["beta"]
    for learn, purpose in ((keys.learn_ring, Purpose.RING), (keys.learn_revoked, Purpose.REVOKED)):
        with pytest.raises(BadSeal):
            learn(BETA.keys.seal(purpose, record[HEAD_BYTES:]))
    with pytest.raises(NotAMember):
        keys.members.check(BETA.keys.seal(Purpose.MEMBER, b"\x97\xa4\xff\xfe\xff\xfe"), 0)


def test_a_fault_in_one_record_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Ring.from_sealed

    def faulty(sealed: bytes) -> Ring:
        if sealed == b"fault":
            raise ArithmeticError("a fault")
        return whole(sealed)

    monkeypatch.setattr(Ring, "from_sealed", staticmethod(faulty))
    trust = CellTrust(pins(beta=BETA), believes_store=False)
    assert trust.follow({"aaa": b"fault", "beta": BETA.keys.ring.sealed})
    assert list(trust.cells) == ["beta"]
    assert "a fault" in trust.refused["aaa"]


def rotated() -> tuple[SiteKeys, SiteKeys, SiteKeys]:
    """Beta's keys: at first, with a second one, and without the first."""
    both = BETA.keys.with_next(2).with_next_signing()
    return BETA.keys, both, both.without(BETA.keys.signing.id)


@pytest.mark.parametrize("is_gone_between", [False, True], ids=["replaced", "gone and back"])
def test_an_old_record_brings_no_retired_key_back(is_gone_between: bool) -> None:
    first, both, last = rotated()
    trust = CellTrust(pins(beta=BETA), believes_store=False)
    for keys in (first, both, last):
        trust.follow({"beta": keys.ring.sealed})
    assert trust.cells["beta"].learn_revoked(seal_revoked(last, 9, frozenset({b"serial"})))
    for old in (first, both):
        if is_gone_between:
            trust.follow({})
            assert not trust.cells
        trust.follow({"beta": old.ring.sealed})
        assert "which its site has retired" in trust.refused["beta"]
        if not is_gone_between:
            assert trust.cells["beta"].members.ring.keys.publics == (last.signing.public,)
    # The true record counts again, with what was revoked.
    trust.follow({"beta": last.ring.sealed})
    assert not trust.refused
    [back] = trust.cells.values()
    assert back.members.ring.sealed == last.ring.sealed
    assert back.members.revoked == {b"serial"} and back.revoked.revision == 9
    assert trust.follow({"beta": last.with_next(3).ring.sealed})


def test_an_older_ring_of_a_site_is_no_successor() -> None:
    """Of keys that were retired before the first look, one is pinned still."""
    _first, both, _last = rotated()
    third = both.with_next(3).with_next_signing()
    late = third.without(BETA.keys.signing.id)
    pinned = frozenset(fingerprint(record) for record in both.ring.keys.publics)
    trust = CellTrust({"beta": pinned}, believes_store=False)
    trust.follow({"beta": late.ring.sealed})
    trust.follow({"beta": both.ring.sealed})
    assert f"revision {both.revision} of its keys, {late.revision} is known" in trust.refused["beta"]
    assert trust.cells["beta"].members.ring.sealed == late.ring.sealed


def test_a_step_that_was_missed_keeps_what_was_revoked() -> None:
    first, both, last = rotated()
    pinned = frozenset(fingerprint(record) for record in both.ring.keys.publics)
    trust = CellTrust({"beta": pinned}, believes_store=False)
    trust.follow({"beta": first.ring.sealed})
    trust.cells["beta"].learn_revoked(seal_revoked(first, 9, frozenset({b"serial"})))
    assert trust.follow({"beta": last.ring.sealed})
    assert trust.cells["beta"].members.revoked == {b"serial"}
    trust.follow({"beta": first.ring.sealed})
    assert trust.cells["beta"].members.ring.sealed == last.ring.sealed


def test_a_cell_that_comes_back_has_the_same_members_revoked() -> None:
    for trust in (
        CellTrust(pins(beta=BETA), believes_store=False),
        CellTrust({}, believes_store=True),
    ):
        trust.follow({"beta": BETA.keys.ring.sealed})
        trust.cells["beta"].learn_revoked(seal_revoked(BETA.keys, 3, frozenset({b"serial"})))
        trust.follow({})
        assert trust.follow({"beta": BETA.keys.ring.sealed})
        assert trust.cells["beta"].members.revoked == {b"serial"}
    # With newer keys too.
    trust = CellTrust(pins(beta=BETA), believes_store=False)
    trust.follow({"beta": BETA.keys.ring.sealed})
    trust.cells["beta"].learn_revoked(seal_revoked(BETA.keys, 3, frozenset({b"serial"})))
    trust.follow({})
    assert trust.follow({"beta": rotated()[1].ring.sealed})
    assert trust.cells["beta"].members.revoked == {b"serial"}


def test_cells_that_the_store_alone_has_named_are_forgotten_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cells, "GONE_MAX", 2)
    trust = CellTrust(pins(beta=BETA), believes_store=True)
    trust.follow({"beta": BETA.keys.ring.sealed})
    trust.cells["beta"].learn_revoked(seal_revoked(BETA.keys, 3, frozenset({b"serial"})))
    for number in range(5):
        trust.follow({f"c{number}": GAMMA.keys.ring.sealed})
    trust.follow({})
    assert len(trust._gone) == 3
    trust.follow({"beta": BETA.keys.ring.sealed})
    assert trust.cells["beta"].members.revoked == {b"serial"}


@pytest.mark.parametrize("believes_store", [False, True])
def test_a_pinned_key_is_in_no_other_cell_s_ring(believes_store: bool) -> None:
    evil = Site("aaa")
    pinned = pins(aaa=evil, beta=BETA)
    statement = RingStatement("aaa", 2, (evil.keys.signing.public, BETA.keys.signing.public))
    stolen = evil.keys.signing.seal(Purpose.RING, msgspec.msgpack.encode(statement))
    trust = CellTrust(pinned, believes_store=believes_store)
    # Its record comes first, and alone.
    trust.follow({"aaa": stolen})
    trust.follow({"aaa": stolen, "beta": BETA.keys.ring.sealed})
    assert list(trust.cells) == ["beta"]
    assert trust.refused == {"aaa": "one of its keys is pinned for cell beta"}
    # Nor over a link, while beta is away.
    trust.follow({"aaa": evil.keys.ring.sealed})
    with pytest.raises(BadSeal, match="pinned for cell beta"):
        trust.cells["aaa"].learn_ring(stolen)
