"""The grammar of slurm.conf and its kin: `Key=Value` pairs on lines, comments, continued lines, `Include`.

Invariant: any text is read; what the grammar does not know is a line with a `problem`. Nothing is opened here.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    Open: TypeAlias = Callable[[str, str], tuple[str, str]]
    """(path as written, file that includes it) -> (name of the file, its text). Raises OptionError."""

LINE_MAX = 1_048_576
"""Most characters of a line with all that continue it."""
PAIRS_MAX = 4_096
FILES_MAX = 256
DEPTH_MAX = 8
_OPERATORS = "+-*/"


class Pair:
    """A key as written, and its value without quotes."""

    __slots__ = ("key", "value")

    def __init__(self, key: str, value: str) -> None:
        self.key = key
        self.value = value


class Line:
    """The pairs of a line. With a `problem` the line, or the rest of it, is not understood; `rest` is that text."""

    __slots__ = ("file", "number", "pairs", "problem", "rest")

    def __init__(self, file: str, number: int, pairs: list[Pair], problem: str = "", rest: str = "") -> None:
        self.file = file
        self.number = number
        self.pairs = pairs
        self.problem = problem
        self.rest = rest

    @property
    def kind(self) -> str:
        """The first key in lower letters: nodes, partitions and switches are told by it."""
        return self.pairs[0].key.lower() if self.pairs else ""


def read_all(path: str, opened: Open) -> list[Line]:
    """The lines of a file and of those it includes, in their places. Raises OptionError for the first file alone."""
    name, text = opened(path, "")
    found: list[Line] = []
    _Includes(opened, found).add(name, text, (name,))
    return found


class _Includes:
    """The files that are read: each is bounded by its opener, and all of them in number and depth."""

    def __init__(self, opened: Open, found: list[Line]) -> None:
        self._open = opened
        self._found = found
        self._files = 1

    def add(self, name: str, text: str, above: tuple[str, ...]) -> None:
        """Add a file's lines."""
        for line in read_lines(name, text):
            if line.kind != "include":
                self._found.append(line)
                continue
            path = line.pairs[0].value
            try:
                if len(above) >= DEPTH_MAX or self._files >= FILES_MAX:
                    raise OptionError("Include", path, "is one file too many", "put the files into one")
                included, inner = self._open(path, name)
                if included in above:
                    raise OptionError("Include", path, "includes itself", "leave out the circle")
            except OptionError as error:
                line.problem = f"{error.why}: {error.way_out}" if error.way_out else error.why
                line.rest = path
                self._found.append(line)
                continue
            self._files += 1
            self.add(included, inner, (*above, included))


def read_lines(file: str, text: str) -> Iterator[Line]:
    """The lines of a text that hold anything; those that are continued have the number of the first."""
    start, parts = 0, list[str]()
    for number, raw in enumerate(text.split("\n"), 1):
        part = _without_comment(raw)
        start = start if parts else number
        stripped = part.rstrip()
        if stripped.endswith("\\") and not stripped.endswith("\\\\"):
            parts.append(stripped[:-1])
            continue
        parts.append(part)
        whole = "".join(parts).strip()
        parts = []
        if whole:
            yield _line(file, start, whole)
    whole = "".join(parts).strip()
    if whole:
        yield _line(file, start, whole)


def _without_comment(raw: str) -> str:
    at = raw.find("#")
    while at > 0 and raw[at - 1] == "\\":
        at = raw.find("#", at + 1)
    return (raw if at < 0 else raw[:at]).replace("\\#", "#")


def _line(file: str, number: int, text: str) -> Line:
    if len(text) > LINE_MAX:
        return Line(file, number, [], f"is longer than {LINE_MAX} characters: split it", text[:40])
    head, _, rest = text.partition(" ")
    if head.lower() == "include" and not rest.lstrip().startswith("="):
        return Line(file, number, [Pair(head, rest.strip().strip('"'))])
    pairs: list[Pair] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        equals = text.find("=", at)
        key = text[at:equals].strip() if equals >= 0 else ""
        bare = key.rstrip(_OPERATORS).rstrip()
        if not bare or any(char.isspace() or not char.isprintable() for char in bare):
            return Line(file, number, pairs, "is not KEY=VALUE", text[at:])
        if bare != key:
            return Line(file, number, pairs, f"has an operator behind {bare}: write its value", text[at:])
        if len(pairs) == PAIRS_MAX:
            return Line(file, number, pairs, f"has more than {PAIRS_MAX} pairs: split it", text[at : at + 40])
        at = equals + 1
        while at < len(text) and text[at].isspace():
            at += 1
        if text[at : at + 1] == '"':
            end = text.find('"', at + 1)
            if end < 0:
                return Line(file, number, pairs, "has quotes that are not closed", text[at:])
            pairs.append(Pair(key, text[at + 1 : end]))
            at = end + 1
            continue
        end = at
        while end < len(text) and not text[end].isspace():
            end += 1
        pairs.append(Pair(key, text[at:end]))
        at = end
    return Line(file, number, pairs)
