"""Reading an estimator's settings: a wrong name or value is a `ValueError` with the reason and the allowed ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeVar

from eslurm.ports.estimator import Setting

Number = TypeVar("Number", int, float)


class SettingsReader:
    """Takes the settings of one estimator one by one; `finish` refuses those that were not taken."""

    def __init__(self, estimator: str, settings: Mapping[str, Setting]) -> None:
        self._estimator = estimator
        self._settings = settings
        self._known: list[str] = []

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number in a range."""
        value = self._value(name, default)
        whole = value if isinstance(value, int) and not isinstance(value, bool) else _parsed(int, value)
        if whole is None or not least <= whole <= most:
            raise self._wrong(name, value, f"a whole number from {least} to {most}")
        return whole

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """A number in a range."""
        value = self._value(name, default)
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        number = float(value) if plain else _parsed(float, value)
        if number is None or not math.isfinite(number) or not least <= number <= most:
            raise self._wrong(name, value, f"a number from {least:g} to {most:g}")
        return number

    def flag(self, name: str, default: bool) -> bool:
        """True or false, as such or as a word."""
        value = self._value(name, default)
        word = str(value).lower()
        if word not in _FLAGS:
            raise self._wrong(name, value, "true or false")
        return _FLAGS[word]

    def choice(self, name: str, default: str, *allowed: str) -> str:
        """One of some words."""
        value = self._value(name, default)
        if value not in allowed:
            raise self._wrong(name, value, "one of " + ", ".join(allowed))
        return str(value)

    def peek(self, name: str) -> Setting | None:
        """The raw value of a setting that has two forms; None when it is not given."""
        self._known.append(name)
        return self._settings.get(name)

    def finish(self) -> None:
        """Raise `ValueError` for a setting that was not taken."""
        for name in self._settings:
            if name not in self._known:
                raise ValueError(
                    f"estimator {self._estimator}: {name!r} is no setting of it: "
                    f"it has {', '.join(sorted(set(self._known)))}"
                )

    def _value(self, name: str, default: Setting) -> Setting:
        self._known.append(name)
        return self._settings.get(name, default)

    def _wrong(self, name: str, value: Setting, allowed: str) -> ValueError:
        return ValueError(f"estimator {self._estimator}: {name} = {value!r}: write {allowed}")


_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _parsed(kind: Callable[[str], Number], value: Setting) -> Number | None:
    """A value that came as text, as from a command line."""
    if not isinstance(value, str):
        return None
    try:
        return kind(value)
    except ValueError:
        return None
