"""The tree of a shared signature against a naive one that is defined by recursion over its leaves."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.security.hash_tree import DIGEST_BYTES, LEAVES_MAX, climb, grow, leaf, path_bytes

leaves = st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=40)


def naive_split(count: int) -> int:
    """Leaves of the left half: the largest power of two below `count`."""
    return 1 << (count - 1).bit_length() - 1


def naive_root(digests: Sequence[bytes]) -> bytes:
    if len(digests) == 1:
        return digests[0]
    half = naive_split(len(digests))
    left, right = naive_root(digests[:half]), naive_root(digests[half:])
    return hashlib.sha256(b"\1eslurm/v2/inner/" + left + right).digest()


def naive_path(digests: Sequence[bytes], place: int) -> bytes:
    if len(digests) == 1:
        return b""
    half = naive_split(len(digests))
    if place < half:
        return naive_path(digests[:half], place) + naive_root(digests[half:])
    return naive_path(digests[half:], place - half) + naive_root(digests[:half])


@given(leaves)
def test_roots_and_paths_are_those_of_the_naive_tree(digests: list[bytes]) -> None:
    root, paths = grow(digests)
    assert root == naive_root(digests)
    assert paths == [naive_path(digests, place) for place in range(len(digests))]
    for place, path in enumerate(paths):
        assert len(path) == path_bytes(place, len(digests))
        assert climb(digests[place], place, len(digests), path) == root


@given(leaves, st.data())
def test_no_other_leaf_place_count_or_path_leads_to_the_root(
    digests: list[bytes], data: st.DataObject
) -> None:
    root, paths = grow(digests)
    place = data.draw(st.integers(0, len(digests) - 1))
    digest = data.draw(st.sampled_from([digests[place], *digests]) | st.binary(min_size=32, max_size=32))
    other = data.draw(st.integers(0, len(digests)) | st.just(place))
    count = data.draw(st.just(len(digests)) | st.integers(0, LEAVES_MAX + 1))
    path = data.draw(
        st.sampled_from([paths[place], paths[place] + bytes(32), paths[place][:-1], *paths])
        | st.binary(max_size=5 * DIGEST_BYTES)
    )
    try:
        reached = climb(digest, other, count, path)
    except ValueError:
        return
    if reached == root and count == len(digests):
        assert digest == digests[other] and path == paths[other]


@given(st.integers(1, LEAVES_MAX))
def test_paths_are_no_longer_than_the_tree_is_high(count: int) -> None:
    lengths = [path_bytes(place, count) for place in range(count)]
    assert max(lengths) == (count - 1).bit_length() * DIGEST_BYTES


@pytest.mark.parametrize(("place", "count"), [(0, 0), (1, 1), (-1, 4), (0, LEAVES_MAX + 1), (65_535, 65_535)])
def test_a_place_that_is_none_is_refused(place: int, count: int) -> None:
    with pytest.raises(ValueError, match="leaf"):
        path_bytes(place, count)
    with pytest.raises(ValueError, match="leaf"):
        climb(bytes(32), place, count, b"")


@given(st.binary(), st.binary(), st.binary(), st.binary())
def test_context_and_body_do_not_run_into_each_other(a: bytes, b: bytes, c: bytes, d: bytes) -> None:
    assert (leaf(a, b) == leaf(c, d)) == ((a, b) == (c, d))
