"""Places of keys and values in TOML: each that `tomllib` finds has one, and there stands what it says."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eslurm.config.positions import DEPTH_MAX, Path, Place, normal, places, position_of
from tests.kits.mutation import damaged

CORPUS = b"""# a comment = [
title = "a ] b # c"
"quoted \\"key\\"" = 'x'
a.b . "c.d" = 1979-05-27 07:32:00 # when
empty = ""
[ table . 'sub' ]
many = \"\"\"
[no]
key = 1 \\"\"\"\" ""\"\"\"
raw = '''
it's ]] ''''
list = [ 1, [ "a", 'b]', ], # , ]
  { x = 1, y.z = [ {} ] } ,
]
[[item]]
n = 1
[item.inner]
n = true
[[item.deep]]
m = {a={b={}}}
[[item.deep]]
[[item]]
n = -1.5e3
"""
WORDS = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
VALUES = st.recursive(
    st.integers(-9, 9) | st.booleans() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


def paths(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """All paths of a value, with what is there."""
    if path:
        yield path, value
    if isinstance(value, dict):
        for key, one in value.items():
            yield from paths(one, (*path, key))
    elif isinstance(value, list) and len(path) <= DEPTH_MAX:
        for index, one in enumerate(value):
            yield from paths(one, (*path, index))


def found(text: str) -> dict[Path, Place]:
    known: dict[Path, Place] = {}
    for path, place in places(text):
        known.setdefault(path, place)
    return known


def spelled(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)} = {spelled(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[\n" + ", # ]\n".join(map(spelled, value)) + "]"
    return quoted(value) if isinstance(value, str) else json.dumps(value)


def quoted(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f") if text.isascii() else f'"{escaped(text)}"'


def escaped(text: str) -> str:
    return "".join(f"\\U{ord(char):08x}" for char in text)


@given(damaged([CORPUS]))
@example(CORPUS)
@example(CORPUS.replace(b"\n", b"\r\n"))
@example(b"a = " + b"[" * 90 + b"{b = ']'}" + b"]" * 90 + b"\nc = 1")
def test_each_key_and_item_has_a_place(raw: bytes) -> None:
    try:
        values = tomllib.loads(raw.decode())
    except (ValueError, RecursionError):
        return
    text = normal(raw.decode())
    known = found(text)
    wanted = {path for path, _ in paths(values) if sum(isinstance(part, int) for part in path) < DEPTH_MAX}
    assert wanted <= known.keys()
    assert all(0 <= place.key <= place.value < len(text) for place in known.values())


@given(st.dictionaries(WORDS, VALUES, max_size=4))
def test_at_the_place_stands_the_value(values: dict[str, Any]) -> None:
    text = "".join(f"{quoted(key)} = {spelled(value)}\n" for key, value in values.items())
    assert tomllib.loads(text) == values
    known = found(text)
    for path, value in paths(values):
        assert text.startswith(spelled(value), known[path].value)
        if isinstance(path[-1], str):
            assert text.startswith(quoted(path[-1]), known[path].key)


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        (("title",), 2, 9),
        (('quoted "key"',), 3, 20),
        (("a", "b", "c.d"), 4, 15),
        (("table", "sub", "list", 1, 1), 12, 20),
        (("table", "sub", "list", 2, "y", "z", 0), 13, 20),
        (("item", 1, "n"), 23, 5),
        (("item", 0, "deep", 1), 21, 1),
    ],
)
def test_lines_and_columns(path: Path, line: int, column: int) -> None:
    text = CORPUS.decode()
    assert position_of(text, found(text)[path].value) == (line, column)
