"""A hash tree over bodies that are signed together: one root for all, and for each body its path to the root.

Leaves and inner nodes are hashed under different prefixes, and an odd node at the end of a level is carried up as it is.
Invariant: `climb` reaches the root of a tree only from a leaf of it, at the leaf's own place, with exactly the path that
`grow` gave it: place and number of leaves say how long a path is and on which side each sibling stands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

DIGEST_BYTES = 32
LEAVES_MAX = 256
_LEAF = b"\0eslurm/v2/leaf/"
_INNER = b"\1eslurm/v2/inner/"


def leaf(context: bytes, body: bytes) -> bytes:
    """The digest of a body. `context` goes under it, with its length."""
    return hashlib.sha256(b"".join((_LEAF, len(context).to_bytes(2, "big"), context, body))).digest()


def grow(leaves: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """The root of at least one leaf, and the path of each."""
    paths: list[list[bytes]] = [[] for _ in leaves]
    level = list(leaves)
    # The places of the leaves below each node of the level: consecutive ones.
    span = 1
    while len(level) > 1:
        for place, path in enumerate(paths):
            sibling = place // span ^ 1
            if sibling < len(level):
                path.append(level[sibling])
        pairs = zip(level[::2], level[1::2], strict=False)
        odd = level[-1:] if len(level) % 2 else []
        level = [_inner(left, right) for left, right in pairs] + odd
        span *= 2
    return level[0], [b"".join(path) for path in paths]


def path_bytes(place: int, count: int) -> int:
    """The length of the path of leaf `place` of `count`. Raises ValueError for a place that is none."""
    if not 0 <= place < count <= LEAVES_MAX:
        raise ValueError(f"leaf {place} of {count}")
    steps = 0
    while count > 1:
        steps += place ^ 1 < count
        place, count = place // 2, (count + 1) // 2
    return steps * DIGEST_BYTES


def climb(digest: bytes, place: int, count: int, path: bytes) -> bytes:
    """The root that the path leads to from leaf `place` of `count`. Raises ValueError for a path of another length."""
    if len(path) != path_bytes(place, count):
        raise ValueError(f"a path of {len(path)} bytes for leaf {place} of {count}")
    at = 0
    while count > 1:
        if place ^ 1 < count:
            sibling = path[at : at + DIGEST_BYTES]
            digest = _inner(sibling, digest) if place & 1 else _inner(digest, sibling)
            at += DIGEST_BYTES
        place, count = place // 2, (count + 1) // 2
    return digest


def _inner(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(_INNER + left + right).digest()
