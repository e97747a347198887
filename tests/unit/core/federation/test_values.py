"""Values that others wrote: read, or skipped with the reason, and never an exception."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.federation.values import Reader, Unreadable, Value, encode, name_in
from eslurm.core.model.federation import (
    NUMBER_MAX,
    Alive,
    CellRecord,
    NextNumber,
    NodeClass,
    Summary,
)
from tests.kits.federation import KEYS, summary

RECORD = CellRecord(1, 3, "alpha", "site", b"ring", 5)
ALIVE = Alive(1, 7, "host:1", ("host:2",), "2.0", 3, 5)
GOOD: list[tuple[str, Value]] = [
    (f"{KEYS.cells}alpha", RECORD),
    (KEYS.number, NextNumber(1, 4)),
    (f"{KEYS.alive}alpha", ALIVE),
    (f"{KEYS.summary}alpha", msgspec.structs.replace(summary(), horizon=((60, (3,)),))),
]
READERS = {
    CellRecord: Reader(CellRecord, KEYS.cells),
    NextNumber: Reader(NextNumber, KEYS.cells),
    Alive: Reader(Alive, KEYS.alive),
    Summary: Reader(Summary, KEYS.summary),
}


def reason(key: str, value: Value, body: bytes | None = None) -> str:
    read = READERS[type(value)].read(key, msgspec.msgpack.encode(value) if body is None else body)
    assert isinstance(read, Unreadable), read
    assert read.key == key
    return read.reason


@pytest.mark.parametrize(("key", "value"), GOOD)
def test_what_is_written_is_read(key: str, value: Value) -> None:
    assert READERS[type(value)].read(key, encode(value)) == value


@pytest.mark.parametrize(("key", "value"), GOOD)
def test_fields_that_later_releases_append_are_left_out(key: str, value: Value) -> None:
    longer = [*msgspec.to_builtins(value, builtin_types=(bytes,)), "more", 5]
    assert READERS[type(value)].read(key, msgspec.msgpack.encode(longer)) == value


@pytest.mark.parametrize(("key", "value"), GOOD)
def test_other_formats_sizes_and_bytes_are_unreadable(key: str, value: Value) -> None:
    assert "format 2" in reason(key, msgspec.structs.replace(value, format=2))
    assert "at most" in reason(key, value, b"\xc0" * 20_000)
    assert reason(key, value, b"")
    assert reason(key, value, b"\xc1")
    assert reason(key, value, b"\x91" * 4_000 if not isinstance(value, NextNumber) else b"\x91" * 60)
    assert "at most" in str(READERS[type(value)].read(key, b"", 20_000))


def test_names_and_keys_agree() -> None:
    assert "of cell alpha under the key of beta" in reason(f"{KEYS.cells}beta", RECORD)
    assert "names no cell" in reason(f"{KEYS.alive}alpha/more", ALIVE)
    assert name_in(KEYS.cells, KEYS.number) == ""
    assert name_in(KEYS.cells, f"{KEYS.alive}alpha") == ""


@pytest.mark.parametrize(
    "value",
    [
        msgspec.structs.replace(RECORD, number=0),
        msgspec.structs.replace(RECORD, number=NUMBER_MAX + 1),
        msgspec.structs.replace(RECORD, name="al pha"),
        msgspec.structs.replace(RECORD, name="alpha\n"),
        msgspec.structs.replace(RECORD, cluster=""),
        msgspec.structs.replace(RECORD, since_us=-1),
        msgspec.structs.replace(ALIVE, epoch=0),
        msgspec.structs.replace(ALIVE, epoch=2**60),
        msgspec.structs.replace(ALIVE, endpoint="\x1b[2J"),
        msgspec.structs.replace(ALIVE, endpoint="h\u202e"),
        msgspec.structs.replace(ALIVE, endpoint="h" * 300),
        msgspec.structs.replace(ALIVE, others=("h",) * 6),
        msgspec.structs.replace(summary(), classes=(NodeClass(8, 1),) * 65),
        msgspec.structs.replace(summary(), classes=(NodeClass(8, 1, total=2, free=3),)),
        msgspec.structs.replace(summary(), classes=(NodeClass(8, 1, total=2, cores_free=17),)),
        msgspec.structs.replace(summary(), classes=(NodeClass(-8, 1),)),
        msgspec.structs.replace(summary(), classes=(NodeClass(8, 1, partitions=("a\nb",)),)),
        msgspec.structs.replace(summary(), horizon=((60, (1, 2)),)),
    ],
)
def test_values_beyond_their_bounds_are_unreadable(value: Value) -> None:
    prefix = {CellRecord: KEYS.cells, Alive: KEYS.alive, Summary: KEYS.summary}[type(value)]
    assert reason(f"{prefix}alpha", value)


def test_own_values_beyond_their_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="a CellRecord of"):
        encode(msgspec.structs.replace(RECORD, ring=b"x" * 9_000))


@given(body=st.binary(max_size=200), which=st.integers(0, 3))
def test_any_bytes_are_a_value_or_a_reason(body: bytes, which: int) -> None:
    key, value = GOOD[which]
    assert isinstance(READERS[type(value)].read(key, body), type(value) | Unreadable)


@given(at=st.integers(0, 500), bit=st.integers(0, 7), which=st.integers(0, 3))
def test_damaged_values_are_a_value_or_a_reason(at: int, bit: int, which: int) -> None:
    key, value = GOOD[which]
    body = bytearray(encode(value))
    body[at % len(body)] ^= 1 << bit
    assert isinstance(READERS[type(value)].read(key, bytes(body)), type(value) | Unreadable)
