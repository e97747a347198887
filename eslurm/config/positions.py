"""Lines and columns of keys and values in a TOML text that `tomllib` has taken.

`tomllib` gives values without their places. This reads the text once more for places alone: it decodes keys, and passes over
values. Invariant: each key and each item that `tomllib` finds has a place, down to `DEPTH_MAX` levels.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Generator, Iterator
from typing import NamedTuple, TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""Keys, and indexes of items from 0: ("nodes", 2, "cores")."""

DEPTH_MAX = 64
"""Levels of brackets within a value of which items have places of their own."""

_STRING = (
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
)
_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r'[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'")
_SCALAR = re.compile(rf"(?:{_STRING})|[^,\]}}#\n]+", re.DOTALL)
_BRACKETED = re.compile(rf"(?:{_STRING})|#[^\n]*|[\[\]{{}}]|[^\[\]{{}}\"'#]+", re.DOTALL)


class Place(NamedTuple):
    """A place in a text, as offsets: of the key, and of its value. Of an item or a table both are the same."""

    key: int
    value: int


class Position(NamedTuple):
    """A line and a column in characters, both from 1."""

    line: int
    column: int


def normal(text: str) -> str:
    """The text with the line ends that `tomllib` counts by."""
    return text.replace("\r\n", "\n")


def position_of(text: str, offset: int) -> Position:
    """Line and column of an offset."""
    return Position(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))


def places(text: str) -> Iterator[tuple[Path, Place]]:
    """Each path of a valid TOML text with its place, in the order of the text. Line ends are those of `normal`.

    A table that several headers or dotted keys open comes several times; its first place is where it begins.
    """
    table: Path = ()
    items: dict[Path, int] = {}
    at = _blank(text, 0)
    while at < len(text):
        if text[at] == "[":
            opening = "[[" if text.startswith("[[", at) else "["
            begin = at
            keys, at = _keys(text, at + len(opening))
            table = ()
            for index, (key, _) in enumerate(keys):
                table = (*table, key)
                if index == len(keys) - 1 and opening == "[[":
                    items[table] = items.get(table, -1) + 1
                yield table, Place(begin, begin)
                if table in items:
                    table = (*table, items[table])
                    yield table, Place(begin, begin)
            at += len(opening)
        else:
            at = yield from _pair(text, at, table, 0)
        at = _blank(text, at)


def _pair(text: str, at: int, table: Path, depth: int) -> Generator[tuple[Path, Place], None, int]:
    """A key and its value; returns the offset behind them."""
    keys, at = _keys(text, at)
    at = _end(_SPACE, text, at + 1)
    path = table
    for key, key_at in keys:
        path = (*path, key)
        yield path, Place(key_at, at)
    return (yield from _value(text, at, path, depth))


def _value(text: str, at: int, path: Path, depth: int) -> Generator[tuple[Path, Place], None, int]:
    """The places within a value; returns the offset behind it."""
    if text[at] not in "[{":
        return _end(_SCALAR, text, at)
    if depth >= DEPTH_MAX:
        return _skip(text, at)
    closing, index = ("]" if text[at] == "[" else "}"), 0
    at = _blank(text, at + 1)
    while text[at] != closing:
        if closing == "]":
            item = (*path, index)
            yield item, Place(at, at)
            at = yield from _value(text, at, item, depth + 1)
            index += 1
        else:
            at = yield from _pair(text, at, path, depth + 1)
        at = _blank(text, at)
        if text[at] == ",":
            at = _blank(text, at + 1)
    return at + 1


def _skip(text: str, at: int) -> int:
    """The offset behind a bracketed value, whatever is in it."""
    level = 0
    while True:
        opened = text[at]
        level += (opened in "[{") - (opened in "]}")
        at = _end(_BRACKETED, text, at)
        if not level:
            return at


def _keys(text: str, at: int) -> tuple[list[tuple[str, int]], int]:
    """The parts of a dotted key with their offsets, and the offset of what follows: `=` or `]`."""
    found = []
    while True:
        at = _end(_SPACE, text, at)
        end = _end(_KEY, text, at)
        found.append((_decoded(text[at:end]), at))
        at = _end(_SPACE, text, end)
        if text[at] != ".":
            return found, at
        at += 1


def _decoded(key: str) -> str:
    if key[0] == "'":
        return key[1:-1]
    if key[0] != '"' or "\\" not in key:
        return key.strip('"')
    ((decoded, _),) = tomllib.loads(f"{key} = 0").items()
    return decoded


def _blank(text: str, at: int) -> int:
    return _end(_BLANK, text, at)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    assert found is not None, "tomllib takes no such text"
    return found.end()
