"""One signature for commands that go out together: each proves itself alone, and nothing else passes for one of them."""

from __future__ import annotations

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eslurm.security.hash_tree import DIGEST_BYTES, LEAVES_MAX
from eslurm.security.sealing import (
    HEAD_BYTES,
    ROOTS_KEPT_MAX,
    SHARED_HEAD_BYTES,
    SHARED_SEAL_BYTES_MAX,
    BadSeal,
    KeyRing,
    Purpose,
    SealingKey,
)

KEY = SealingKey(bytes(range(32)))
OTHER = SealingKey(bytes(range(1, 33)))
BODIES = [b"launch job %d on cn%d until 9" % (number, number) for number in range(7)]


def seal(*bodies: bytes) -> list[bytes]:
    return KEY.seal_together(Purpose.COMMAND, bodies)


def opened(sealed: bytes, ring: KeyRing | None = None) -> bytes:
    return (ring or KeyRing([KEY.public])).open_shared(Purpose.COMMAND, sealed)


def parts(sealed: bytes, body: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Head, number of statements, place, path."""
    end = len(sealed) - len(body)
    return (
        sealed[:HEAD_BYTES],
        sealed[HEAD_BYTES:][:2],
        sealed[HEAD_BYTES:][2:4],
        sealed[SHARED_HEAD_BYTES:end],
    )


class Counting:
    """A public key that counts what it verifies."""

    def __init__(self) -> None:
        self.verified = 0
        self._key = Ed25519PrivateKey.from_private_bytes(KEY.seed).public_key()

    def verify(self, signature: bytes, data: bytes) -> None:
        self.verified += 1
        self._key.verify(signature, data)


def counting() -> tuple[KeyRing, Counting]:
    ring, key = KeyRing([KEY.public]), Counting()
    ring._keys[KEY.id] = key  # type: ignore[assignment]
    return ring, key


@pytest.mark.parametrize("count", [0, 1, 2, 3, 64, LEAVES_MAX, LEAVES_MAX + 1, 2 * LEAVES_MAX + 3])
def test_each_of_any_number_proves_itself_alone(count: int) -> None:
    bodies = [b"%d" % number for number in range(count)]
    sealed = seal(*bodies)
    assert [opened(one) for one in sealed] == bodies
    assert all(
        len(one) - len(body) <= SHARED_SEAL_BYTES_MAX for one, body in zip(sealed, bodies, strict=True)
    )
    assert len({one[:HEAD_BYTES] for one in sealed}) == -(-count // LEAVES_MAX), "one signature for each tree"


def test_a_signature_is_verified_once_for_all_that_share_it() -> None:
    ring, key = counting()
    for _ in range(2):
        assert [opened(one, ring) for one in seal(*BODIES)] == BODIES
    assert key.verified == 1


def test_the_memory_of_signatures_is_bounded() -> None:
    ring, key = counting()
    alone = [seal(b"%d" % number)[0] for number in range(ROOTS_KEPT_MAX + 1)]
    for sealed in alone:
        opened(sealed, ring)
    assert len(ring._roots) == ROOTS_KEPT_MAX
    opened(alone[-1], ring)
    assert key.verified == ROOTS_KEPT_MAX + 1
    opened(alone[0], ring)
    assert key.verified == ROOTS_KEPT_MAX + 2, "forgotten, and verified anew"


def test_what_was_refused_is_not_remembered_and_what_was_verified_vouches_for_itself_only() -> None:
    ring, _ = counting()
    good = seal(*BODIES)[3]
    opened(good, ring)
    forged = good[: -len(BODIES[3])] + BODIES[3].replace(b"cn3", b"cn4")
    for _ in range(2):
        with pytest.raises(BadSeal, match="does not match"):
            opened(forged, ring)
    assert len(ring._roots) == 1


def test_every_bit_counts_in_every_part_also_after_the_root_was_verified() -> None:
    ring = KeyRing([KEY.public])
    for sealed in seal(*BODIES[:3]):
        opened(sealed, ring)
        for at in range(len(sealed)):
            for bit in range(8):
                bad = bytearray(sealed)
                bad[at] ^= 1 << bit
                with pytest.raises(BadSeal):
                    opened(bytes(bad), ring)


def test_a_command_does_not_pass_in_another_s_place_or_batch() -> None:
    first, second = seal(*BODIES), seal(*BODIES[:5], b"launch job 9", BODIES[6])
    head, number, place, path = parts(first[5], BODIES[5])
    others = [
        # The body of another batch under this one's path; this one's path under the other's signature.
        first[5][: -len(BODIES[5])] + b"launch job 9",
        parts(second[5], b"launch job 9")[0] + number + place + path + BODIES[5],
        # Another place, another path, of this batch.
        head + number + (4).to_bytes(2, "big") + path + BODIES[5],
        head + number + place + parts(first[3], BODIES[3])[3] + BODIES[5],
        head + number + place + path[DIGEST_BYTES:] + path[:DIGEST_BYTES] + BODIES[5],
    ]
    for sealed in others:
        with pytest.raises(BadSeal):
            opened(sealed)


def test_lengths_of_paths_are_bounded_and_exact() -> None:
    sealed = seal(*BODIES)[0]
    head, number, place, path = parts(sealed, BODIES[0])
    wrong = [
        head + number + place,
        head + number + place + path[:-1],
        # A step more, a step less; a place outside; no statements, or more than there may be.
        head + number + place + path + bytes(DIGEST_BYTES) + BODIES[0],
        head + number + place + path[DIGEST_BYTES:] + BODIES[0],
        head + number + (7).to_bytes(2, "big") + path + BODIES[0],
        head + bytes(2) + place + path + BODIES[0],
        head + (LEAVES_MAX + 1).to_bytes(2, "big") + place + path + bytes(4096) + BODIES[0],
        head + b"\xff\xff" + place + path + bytes(4096) + BODIES[0],
    ]
    for bad in [*wrong, *(sealed[:length] for length in range(SHARED_HEAD_BYTES + len(path)))]:
        with pytest.raises(BadSeal):
            opened(bad)


def test_an_inner_node_is_no_leaf() -> None:
    """The second preimage: what two leaves are hashed to, sealed as if it were a body, is no command."""
    both = seal(*BODIES[:2])
    head, _, _, path = parts(both[0], BODIES[0])
    sibling = parts(both[1], BODIES[1])[3]
    for prefix in (b"", b"\1eslurm/v2/inner/"):
        with pytest.raises(BadSeal):
            opened(head + (1).to_bytes(2, "big") + bytes(2) + prefix + sibling + path)


def test_a_statement_with_a_signature_of_its_own_does_not_pass_for_a_shared_one_nor_the_other_way() -> None:
    ring = KeyRing([KEY.public])
    for body in (b"x", bytes(4) + b"x", b"\0\1\0\0x", hashlib.sha256(b"x").digest()):
        with pytest.raises(BadSeal):
            ring.open_shared(Purpose.COMMAND, KEY.seal(Purpose.COMMAND, body))
    for sealed in seal(*BODIES):
        with pytest.raises(BadSeal):
            ring.open(Purpose.COMMAND, sealed)


def test_another_key_and_another_purpose_are_refused() -> None:
    ring = KeyRing([KEY.public, OTHER.public])
    (sealed,) = seal(b"x")
    with pytest.raises(BadSeal, match="unknown key"):
        opened(sealed, KeyRing([OTHER.public]))
    with pytest.raises(BadSeal, match="does not match"):
        opened(OTHER.id + sealed[len(OTHER.id) :], ring)
    with pytest.raises(BadSeal, match="does not match"):
        ring.open_shared(Purpose.TOKEN, sealed)


def test_a_retired_key_s_signature_is_not_remembered() -> None:
    (sealed,) = seal(b"x")
    opened(sealed)
    with pytest.raises(BadSeal, match="unknown key"):
        opened(sealed, KeyRing([OTHER.public]))
