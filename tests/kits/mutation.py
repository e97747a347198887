"""Damage to valid examples for Hypothesis: texts and bytes that are nearly right find more than any others."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

EDITS_MAX = 4


@st.composite
def damaged(draw: st.DrawFn, examples: Sequence[bytes]) -> bytes:
    """One of the examples after a few edits: bytes changed, cut out, doubled, put in, taken from another example."""
    data = draw(st.sampled_from(examples))
    for _ in range(draw(st.integers(0, EDITS_MAX))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 12)))
        match draw(st.sampled_from(["put", "cut", "double", "end", "cross", "flip"])):
            case "put":
                data = data[:start] + draw(st.binary(min_size=1, max_size=6)) + data[end:]
            case "cut":
                data = data[:start] + data[end:]
            case "double":
                data = data[:end] + data[start:]
            case "end":
                data = data[:start]
            case "cross":
                other = draw(st.sampled_from(examples))
                data = data[:start] + other[draw(st.integers(0, len(other))) :]
            case "flip" if start < len(data):
                flipped = data[start] ^ (1 << draw(st.integers(0, 7)))
                data = data[:start] + bytes([flipped]) + data[start + 1 :]
    return data


def damaged_texts(examples: Sequence[str]) -> st.SearchStrategy[str]:
    """The same for texts, whatever characters come out of it."""
    raw = damaged([example.encode() for example in examples])
    return raw.map(lambda data: data.decode("utf-8", "replace"))
