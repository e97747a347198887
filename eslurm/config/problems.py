"""Problems of a configuration file: collected, so that one look at the file shows all of them.

Invariant: at most `PROBLEMS_MAX` are kept, and a value of the wrong form has one problem, whatever else follows from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from eslurm.compat.errors import OptionError, escaped
from eslurm.config.positions import Path, Place, normal, places, position_of

PROBLEMS_MAX = 100


class ConfigError(Exception):
    """The file is unusable. The text names the file, the place, the key, the value and the way out, in one line."""

    def __init__(self, text: str) -> None:
        super().__init__(escaped(text))


class Problem(msgspec.Struct, frozen=True):
    """A reason why one key or value cannot be used. `line` and `column` are 0 where no place in a file is known."""

    path: Path
    error: OptionError
    is_key: bool = False
    """The key is wrong, and not its value."""
    line: int = 0
    column: int = 0

    def text(self, origin: str, kind: str = "") -> str:
        """`eslurm.toml:12:8: nodes.cores: '0' is out of bounds: ...`, in one line."""
        place = f":{self.line}:{self.column}" if self.line else ""
        return f"{escaped(origin)}{place}: {kind}{self.error}"


class Problems:
    """Collects problems. With the `values` of the file, a problem of a list names the item."""

    def __init__(self, values: Any = None) -> None:
        self._values = values
        self._malformed: set[Path] = set()
        self._keys: set[tuple[str, ...]] = set()
        self._around: set[tuple[str, ...]] = set()
        self.found: list[Problem] = []
        self.left_out = 0

    def __bool__(self) -> bool:
        return bool(self.found)

    def add_malformed(self, path: Path, error: OptionError | None, *, is_key: bool = False) -> None:
        """Add a value whose form is wrong, for which something else now stands: further problems of it are no news.

        Without an `error` the problem is that of another key, which is a misspelling of this one.
        """
        self._malformed.add(path)
        self._note(path)
        if error is not None:
            self._add(Problem(path, error, is_key))

    def add(self, path: Path, error: OptionError) -> None:
        """Add a contradiction, unless it follows from the form of a value."""
        if len(self.found) >= PROBLEMS_MAX:
            self.left_out += 1
            return
        path = self._narrowed(path, error.value)
        if any(path[:end] in self._malformed for end in range(len(path) + 1)):
            return
        if any(known[: len(path)] == path for known in self._malformed):
            # The value is no item of the list: it stands for a malformed one.
            return
        if all(problem.path != path or str(problem.error) != str(error) for problem in self.found):
            self._add(Problem(path, error))

    @contextmanager
    def at(self, *path: str | int) -> Iterator[None]:
        """Collect what is raised about the table at `path`: an option's name begins with the table's."""
        try:
            yield
        except OptionError as error:
            self.add(_path_of(path, error.option), error)

    def take(self, table: str, errors: Iterable[OptionError]) -> None:
        """Collect all contradictions within a table, whose values have the right form."""
        if not self.has(table):
            for error in errors:
                self.add(_path_of((table,), error.option), error)

    def has(self, *keys: str) -> bool:
        """Check whether a problem is known of these keys, what is in them or what they are in, in any item of lists."""
        return keys in self._around or any(keys[:end] in self._keys for end in range(len(keys) + 1))

    def _note(self, path: Path) -> None:
        keys = tuple(part for part in path if isinstance(part, str))
        self._keys.add(keys)
        self._around.update(keys[:end] for end in range(len(keys)))

    def _add(self, problem: Problem) -> None:
        self._note(problem.path)
        if len(self.found) < PROBLEMS_MAX:
            self.found.append(problem)
        else:
            self.left_out += 1

    def _narrowed(self, path: Path, value: str | None) -> Path:
        """The path of the list's item that has the value, if `path` is that of a list."""
        found = _value_at(self._values, path)
        if isinstance(found, list) and value in found:
            return (*path, found.index(value))
        return path


def located(problems: Sequence[Problem], text: str) -> list[Problem]:
    """The problems with their places in the text, in its order. What is missing is placed at its table."""
    text = normal(text)
    wanted = {
        path[:end] for path in (problem.path for problem in problems) for end in range(1, len(path) + 1)
    }
    known: dict[Path, Place] = {}
    for path, place in places(text) if wanted else ():
        if path in wanted:
            known.setdefault(path, place)
    found = []
    for problem in problems:
        ends = range(len(problem.path), 0, -1)
        path = next((problem.path[:end] for end in ends if problem.path[:end] in known), ())
        if path:
            is_key = problem.is_key or path != problem.path
            line, column = position_of(text, known[path].key if is_key else known[path].value)
            problem = msgspec.structs.replace(problem, line=line, column=column)
        found.append(problem)
    return sorted(found, key=lambda one: (one.line, one.column))


def refusal(origin: str, problems: Sequence[Problem], left_out: int) -> ConfigError:
    """The error for a file with these problems: the first, and the number of the others."""
    others = len(problems) - 1 + left_out
    more = f" (and {others} more: `eslurm check` lists them)" if others else ""
    return ConfigError(problems[0].text(origin) + more)


def _path_of(table: Path, option: str) -> Path:
    keys = option.split(".")
    return (*table, *keys[sum(isinstance(part, str) for part in table) :])


def _value_at(values: Any, path: Path) -> Any:
    for part in path:
        is_there = isinstance(values, dict) if isinstance(part, str) else isinstance(values, list)
        if not is_there or (part not in values if isinstance(part, str) else part >= len(values)):
            return None
        values = values[part]
    return values
