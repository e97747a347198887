"""The key that signs tokens."""

from __future__ import annotations

import pytest

from eslurm.rpc.signing import BadSignature, Keyring


@pytest.mark.parametrize(
    ("keys", "signing_id", "text"),
    [({}, None, "at least one"), ({1: b"short"}, None, "5 bytes"), ({1: b"k" * 16}, 2, "signing key 2")],
)
def test_a_ring_that_cannot_work_is_refused(
    keys: dict[int, bytes], signing_id: int | None, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        Keyring(keys, signing_id)


def test_another_key_or_message_does_not_pass() -> None:
    ring = Keyring({1: b"the key of last year", 2: b"the key of this year"})
    mac = ring.mac(b"token", 2, b"alice")
    ring.check(b"token", 2, b"alice", mac)
    for key_id, message in ((1, b"alice"), (2, b"bob"), (3, b"alice")):
        with pytest.raises(BadSignature):
            ring.check(b"token", key_id, message, mac)
