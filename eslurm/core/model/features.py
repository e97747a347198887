"""Expressions over node features, as `-C` and chunks write them: `a100&(ib|!old)`.

`&` and `,` bind more strongly than `|`, `!` most strongly. A word is true on the nodes that have the feature of that
name; `host=NAME` on that node alone. An unknown word is true nowhere; the caller reports it.
Invariant: `evaluate` never raises for a text that `parse` has taken.
"""

from __future__ import annotations

from functools import lru_cache

from eslurm.core.model.request_limits import CONSTRAINT_CHARS_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Tree: TypeAlias = "str | tuple[str, tuple[Tree, ...]]"

WORD_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:=-+@/")
DEPTH_MAX = 32
PARSED_KEPT = 1_024
"""A cluster's jobs share few expressions, and each is asked for at every plan, reason and variant."""


class FeatureError(ValueError):
    """A syntax error at `column` (from 1 on) with its reason `why`; `way_out` is the correct form."""

    def __init__(self, column: int, why: str, way_out: str) -> None:
        self.column = column
        self.why = why
        self.way_out = way_out
        super().__init__(f"column {column}: {why}: {way_out}")


class _Reader:
    """Recursive descent over one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> Tree:
        if len(self._text) > CONSTRAINT_CHARS_MAX:
            raise FeatureError(
                CONSTRAINT_CHARS_MAX + 1,
                f"is longer than {CONSTRAINT_CHARS_MAX} characters",
                "name fewer features",
            )
        tree = self._any()
        if self._peek():
            raise self._unexpected()
        return tree

    def _any(self) -> Tree:
        parts = [self._all()]
        while self._peek() == "|":
            self._at += 1
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else ("|", tuple(parts))

    def _all(self) -> Tree:
        parts = [self._one()]
        while self._peek() in ("&", ","):
            self._at += 1
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else ("&", tuple(parts))

    def _one(self) -> Tree:
        char = self._peek()
        if char in ("!", "("):
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise FeatureError(self._at + 1, "is nested too deeply", "write it without so many brackets")
            self._at += 1
            inner: Tree = ("!", (self._one(),)) if char == "!" else self._any()
            if char == "(":
                if self._peek() != ")":
                    raise self._unexpected("a ')' is missing")
                self._at += 1
            self._depth -= 1
            return inner
        start = self._at
        while self._at < len(self._text) and self._text[self._at] in WORD_CHARS:
            self._at += 1
        if start == self._at:
            raise self._unexpected("a feature is missing")
        return self._text[start : self._at]

    def _peek(self) -> str:
        while self._at < len(self._text) and self._text[self._at] == " ":
            self._at += 1
        return self._text[self._at] if self._at < len(self._text) else ""

    def _unexpected(self, why: str = "") -> FeatureError:
        char = self._peek()
        column = self._at + 1
        if char in ("[", "]"):
            way_out = "name one of the features, or submit one job for each"
            return FeatureError(
                column, "asks for one feature on all nodes alike, which is not supported", way_out
            )
        if char == "*":
            way_out = "ask for chunks: --rset '2:ncpus=1:rack=1+4:ncpus=1:rack=2'"
            return FeatureError(column, "counts nodes by feature, which is not supported", way_out)
        if not why:
            why = f"'{char}' cannot stand here"
        return FeatureError(column, why, "write e.g. -C 'a100&(ib|!old)'")


@lru_cache(PARSED_KEPT)
def parse(text: str) -> Tree:
    """The expression as a tree, parsed once for all that ask. Raises `FeatureError`."""
    return _Reader(text).read()


def all_of(text: str) -> tuple[Tree, ...]:
    """The terms that must all hold: of `a&(b|c)` a and `b|c`. Raises `FeatureError`."""
    tree = parse(text)
    return tree[1] if tree[0] == "&" and not isinstance(tree, str) else (tree,)


def terms(text: str) -> list[str]:
    """The same as texts, which `&` may join: a and `(b|c)`. A text that is no expression is one term."""
    try:
        parts = all_of(text)
    except FeatureError:
        return [text.strip()] if text.strip() else []
    return [_text(part, inside="&" if len(parts) > 1 else "") for part in parts]


def _text(tree: Tree, inside: str) -> str:
    """The expression as a part of one whose operator is `inside`."""
    if isinstance(tree, str):
        return tree
    operator, parts = tree
    if operator == "!":
        return f"!{_text(parts[0], '!')}"
    text = operator.join([_text(part, operator) for part in parts])
    # What `&` joins stands in an alternative without brackets.
    return f"({text})" if inside and (inside, operator) != ("|", "&") else text


def words(text: str) -> tuple[str, ...]:
    """The features in an expression, in order, each once. Raises `FeatureError`."""
    found: dict[str, None] = {}

    def collect(tree: Tree) -> None:
        if isinstance(tree, str):
            found[tree] = None
        else:
            for part in tree[1]:
                collect(part)

    collect(parse(text))
    return tuple(found)


def evaluate(text: str, having: Callable[[str], int], everything: int) -> int:
    """The set of positions on which the expression is true; `having(word)` gives those with a feature. Raises
    `FeatureError`.
    """

    def value(tree: Tree) -> int:
        if isinstance(tree, str):
            return having(tree)
        operator, parts = tree
        if operator == "!":
            return everything & ~value(parts[0])
        found = value(parts[0])
        for part in parts[1:]:
            found = found & value(part) if operator == "&" else found | value(part)
        return found

    return value(parse(text))


def both(left: str, right: str) -> str:
    """The conjunction of two expressions; either may be empty."""
    if not left or not right:
        return left or right
    return "&".join(f"({side})" if "|" in side else side for side in (left, right))
