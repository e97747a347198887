"""Vectors and position sets: short vectors mean zero, sets keep the order."""

from __future__ import annotations

import pytest

from eslurm.core.resources import bits, vector


@pytest.mark.parametrize("left", [(), (3,), (3, 5), (3, 5, 7)])
@pytest.mark.parametrize("right", [(), (2,), (2, 9), (2, 9, 1)])
def test_missing_entries_are_zero(left: vector.Vector, right: vector.Vector) -> None:
    a, b = vector.padded(left, 3), vector.padded(right, 3)
    assert vector.padded(vector.add(left, right), 3) == tuple(x + y for x, y in zip(a, b, strict=True))
    assert vector.padded(vector.subtract(left, right), 3) == tuple(x - y for x, y in zip(a, b, strict=True))
    assert vector.padded(vector.least(left, right), 3) == tuple(min(x, y) for x, y in zip(a, b, strict=True))
    assert vector.fits(left, right) == all(x <= y for x, y in zip(a, b, strict=True))
    assert vector.padded(vector.scale(left, 4), 3) == tuple(x * 4 for x in a)


@pytest.mark.parametrize(
    ("free", "unit", "expected"),
    [
        ((8, 100), (2, 0), 4),
        ((8, 100), (2, 60), 1),
        ((8, 100), (0, 30), 3),
        ((8,), (2, 1), 0),
        ((-8, 100), (2, 0), 0),
        ((8, 100, 3), (1, 1, 2), 1),
    ],
)
def test_times(free: vector.Vector, unit: vector.Vector, expected: int) -> None:
    assert vector.times(free, unit) == expected


def test_a_unit_of_nothing_has_no_count() -> None:
    with pytest.raises(ValueError, match="without bound"):
        vector.times((8, 8), (0, 0))


def test_negative_and_words() -> None:
    assert vector.is_negative((1, -1))
    assert not vector.is_negative(())
    assert vector.describe((8, 1024)) == "8 cores, 1024 MiB of memory"
    assert vector.describe((0, 5)) == "5 MiB of memory"
    assert vector.describe(()) == "nothing"


def test_sets_keep_order_and_count() -> None:
    mask = bits.mask_of([9, 2, 70, 2], 100)
    assert bits.all_positions(mask) == [2, 9, 70]
    assert bits.lowest(mask) == 2
    assert bits.first_positions(mask, 2) == [2, 9]
    assert bits.first_positions(mask, 0) == []
    assert bits.lowest_part(mask, 2) == (1 << 2) | (1 << 9)
    assert bits.lowest_part(mask, 0) == 0
    assert bits.lowest_part(mask, 3) == mask
    assert bits.all_positions(0) == []
