"""Reads the YAML of a pack file into texts, lists and mappings, without any conversion of values.

`2:00:00` stays a text: YAML 1.1 would make it a number. Invariant: anchors, aliases and tags are refused, and depth and
number of nodes are bounded while reading, so that no text becomes larger than it is.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEPTH_MAX = 8
NODES_MAX = 20_000


def read_yaml(text: str, option: str) -> Any:
    """The document's content. Raises OptionError."""
    import yaml

    reader = _Reader(option)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            reader.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark is not None else 1
        raise reader.refusal(line, f"is not YAML ({error.problem})", "see docs/guide/workflows.md") from None
    except yaml.YAMLError as error:
        raise reader.refusal(0, f"is not YAML ({error})", "see docs/guide/workflows.md") from None
    return reader.root


class _Reader:
    """Builds the content event by event."""

    def __init__(self, option: str) -> None:
        self.root: Any = ""
        self._option = option
        self._open: list[tuple[Any, str | None]] = []
        """Lists and mappings that have begun, each with the key whose value comes next."""
        self._nodes = 0
        self._documents = 0

    def refusal(self, line: int, why: str, way_out: str) -> OptionError:
        where = f" (line {line})" if line else ""
        return OptionError(f"{self._option}{where}", None, why, way_out)

    def take(self, event: Any) -> None:
        """The next event of the parser."""
        kind = type(event).__name__
        line = event.start_mark.line + 1
        if kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                raise self.refusal(line, "begins a second document", "write one file for each pack")
        elif kind == "AliasEvent":
            raise self.refusal(line, f"has the alias *{event.anchor}", "write the value out")
        elif kind == "ScalarEvent":
            self._check(event, line)
            self._put(event.value, line)
        elif kind in ("SequenceStartEvent", "MappingStartEvent"):
            self._check(event, line)
            self._begin([] if kind == "SequenceStartEvent" else {}, line)
        elif kind in ("SequenceEndEvent", "MappingEndEvent"):
            self._open.pop()

    def _check(self, event: Any, line: int) -> None:
        if event.anchor is not None:
            raise self.refusal(
                line, f"has the anchor &{event.anchor}", "write the value out where it is used"
            )
        if event.tag is not None:
            raise self.refusal(line, f"has the tag {event.tag}", "leave it out: all values are texts")
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise self.refusal(line, f"has more than {NODES_MAX} values", "submit several packs")

    def _begin(self, value: Any, line: int) -> None:
        if len(self._open) >= DEPTH_MAX:
            raise self.refusal(line, f"is nested more than {DEPTH_MAX} deep", "see docs/guide/workflows.md")
        self._put(value, line)
        self._open.append((value, None))

    def _put(self, value: Any, line: int) -> None:
        if not self._open:
            self.root = value
            return
        into, key = self._open[-1]
        if isinstance(into, list):
            into.append(value)
        elif key is None:
            if not isinstance(value, str):
                raise self.refusal(line, "has a list or a mapping as a key", "use e.g. `script: run.sh`")
            if value in into:
                raise self.refusal(line, f"gives {value!r} twice", "give it once")
            self._open[-1] = (into, value)
        else:
            into[key] = value
            self._open[-1] = (into, None)
