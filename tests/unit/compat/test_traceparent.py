"""`TRACEPARENT` as W3C Trace Context writes it. Goal: a trace id or nothing, whatever somebody's environment holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.compat.traceparent import TRACE_BYTES, trace_of

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    "text",
    [
        f"00-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-00",
        f"cc-{TRACE}-{PARENT}-01",
        f"cc-{TRACE}-{PARENT}-01-what-the-future-will-be-like",
    ],
)
def test_a_trace(text: str) -> None:
    assert trace_of(text) == bytes.fromhex(TRACE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        TRACE,
        f"00-{TRACE}",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}-01-",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE[:-2]}-{PARENT}-01",
        f"00-{TRACE[:-1]}g-{PARENT}-01",
        f"00-{TRACE[:-1]}٣-{PARENT}-01",
        f" 00-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01\n",
        f"cc-{TRACE}-{PARENT}-01-{'x' * 10_000}",
    ],
)
def test_what_is_none_is_ignored(text: str) -> None:
    assert trace_of(text) == b""


@given(st.text(alphabet="0123456789abcdefABCDEF-\x00é", max_size=80) | st.text(max_size=80))
def test_any_text_is_a_trace_or_none(text: str) -> None:
    assert len(trace_of(text)) in (0, TRACE_BYTES)


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8), st.integers(0, 254))
def test_every_trace_is_read(trace: bytes, parent: bytes, version: int) -> None:
    expected = trace if any(trace) and any(parent) else b""
    assert trace_of(f"{version:02x}-{trace.hex()}-{parent.hex()}-01") == expected
