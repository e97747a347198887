"""Expressions over features: what they mean, and where they are wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.model import features
from eslurm.core.resources.nodes import NodeView, Topology

TOPOLOGY = Topology(
    [
        NodeView(0, "n0", (1,), features=("ib", "rack=1")),
        NodeView(1, "n1", (1,), features=("ib", "old"), device_type="a100"),
        NodeView(2, "n2", (1,), features=("old",)),
        NodeView(3, "n3", (1,)),
    ]
)


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("ib", 0b0011),
        ("ib&old", 0b0010),
        ("ib,old", 0b0010),
        ("ib|old", 0b0111),
        ("!ib", 0b1100),
        ("!(ib|old)", 0b1000),
        ("rack=1|gpu:a100&ib", 0b0011),
        ("!!ib", 0b0011),
        (" ( ib ) ", 0b0011),
        ("host=n2", 0b0100),
        ("ghost", 0),
        ("!ghost", 0b1111),
        ("", 0b1111),
        ("ib&", 0),
    ],
)
def test_what_an_expression_means(text: str, mask: int) -> None:
    assert TOPOLOGY.mask_of_constraint(text) == mask


@pytest.mark.parametrize(
    ("text", "column", "why"),
    [
        ("", 1, "a feature is missing"),
        ("ib&", 4, "a feature is missing"),
        ("ib old", 4, "'o' cannot stand here"),
        ("(ib", 4, "a ')' is missing"),
        ("ib)", 3, "')' cannot stand here"),
        ("[a|b]", 1, "one feature on all nodes alike"),
        ("a*2", 2, "counts nodes by feature"),
        ("a&%", 3, "a feature is missing"),
        ("!" * 40 + "a", 33, "nested too deeply"),
        ("a" * 1025, 1025, "longer than 1024"),
    ],
)
def test_what_is_no_expression_names_the_column(text: str, column: int, why: str) -> None:
    with pytest.raises(features.FeatureError, match="column") as caught:
        features.parse(text)
    assert caught.value.column == column
    assert why in caught.value.why


def test_words_and_joining() -> None:
    assert features.words("b&(a|!b)") == ("b", "a")
    assert features.both("a|b", "c") == "(a|b)&c"
    assert features.both("", "c") == features.both("c", "") == "c"


@given(st.text("ab!&|(),x= ", max_size=12), st.text("ab!&|()", max_size=8))
def test_any_text_is_an_expression_or_refused(left: str, right: str) -> None:
    masks = []
    for text in (left, right):
        try:
            features.parse(text)
        except features.FeatureError:
            return
        masks.append(TOPOLOGY.mask_of_constraint(text))
    assert TOPOLOGY.mask_of_constraint(features.both(left, right)) == masks[0] & masks[1]


def test_an_expression_is_parsed_once_for_all_that_ask() -> None:
    features.parse.cache_clear()
    assert features.terms("a100&(ib|old)") == ["a100", "(ib|old)"]
    assert features.words("a100&(ib|old)") == ("a100", "ib", "old")
    assert features.evaluate("a100&(ib|old)", lambda word: 0b110 if word == "a100" else 0b011, 0b111) == 0b010
    assert features.parse.cache_info().misses == 1
