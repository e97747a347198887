"""Estimators by name: the built-in ones, and those that a site installs (entry points `eslurm.estimators`).

Nothing of an estimator is imported to learn the names, and scikit-learn only by those that need it. Invariant: what `make`
returns has that name and the methods of the port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Final, cast

from eslurm.compat.errors import escaped, quoted
from eslurm.ports.estimator import ENTRY_POINTS, Estimator, EstimatorFactory, Setting

DEFAULT: Final = "history"

BUILT_IN: Final[Mapping[str, str]] = {
    "user": "eslurm.estimator.baselines:make_user",
    "last-2": "eslurm.estimator.baselines:make_last_two",
    "clustered-svr": "eslurm.estimator.clustered_svr:make",
    "history": "eslurm.estimator.history:make",
}
"""Functions that make them, as in entry points."""

AIM: Final = "target_under"
AIMING: Final = frozenset((DEFAULT,))
"""Built-in estimators that aim at a share of underestimates, by the setting `AIM`."""

VARIANTS: Final = ("clustered-svr:gate=0",)
"""Worth a look beside the names: the published model by itself, where its gate would mostly leave the user's estimate."""

_METHODS: Final = ("submitted", "started", "ended", "ask", "answer", "due", "settle", "lesson", "adopt")


class UnknownEstimator(ValueError):
    """The estimator is unknown, cannot be loaded, or not with these settings: the text has the reason and the way out."""

    def __init__(self, text: str) -> None:
        super().__init__(escaped(text))


def names() -> tuple[str, ...]:
    """Every available estimator: the built-in ones, then the installed ones."""
    return (*BUILT_IN, *sorted({point.name for point in _installed()} - BUILT_IN.keys()))


def make(name: str, settings: Mapping[str, Setting] | None = None) -> Estimator:
    """A new, untrained estimator. Raises `UnknownEstimator`."""
    factory = _factory(name)
    try:
        made = factory(settings or {})
    except ValueError as error:
        raise UnknownEstimator(str(error)) from error
    except Exception as error:
        raise UnknownEstimator(f"estimator {name} cannot be made: {error!r}") from error
    missing = [method for method in _METHODS if not callable(getattr(made, method, None))]
    if missing or getattr(made, "name", None) != name:
        what = f"it has no {missing[0]}()" if missing else f"it calls itself {getattr(made, 'name', None)!r}"
        raise UnknownEstimator(f"estimator {name} is none: {what} (see eslurm.ports.estimator)")
    return made


def parse(text: str) -> tuple[str, dict[str, Setting]]:
    """`NAME[:KEY=VALUE]...` as a name and settings: numbers, true and false as such. Raises `UnknownEstimator`."""
    name, *words = text.split(":")
    if name not in names():
        raise UnknownEstimator(
            f"{quoted(name)} is unknown: use {', '.join(names())}, or install the package with it"
        )
    settings: dict[str, Setting] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise UnknownEstimator(f"{quoted(text)}: {quoted(word)} is no setting: write NAME:KEY=VALUE")
        settings[key] = _setting(value)
    return name, settings


def slug(text: str) -> str:
    """The name and settings as a part of a file name."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in text)


def _setting(text: str) -> Setting:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


def _factory(name: str) -> EstimatorFactory:
    if name in BUILT_IN:
        return _imported(name, EntryPoint(name, BUILT_IN[name], ENTRY_POINTS).load)
    found = {point.value: point for point in _installed() if point.name == name}
    if not found:
        raise UnknownEstimator(
            f"estimator {quoted(name)} is unknown: use {', '.join(names())}, or install the package with it"
        )
    if len(found) > 1:
        raise UnknownEstimator(
            f"estimator {quoted(name)} is offered twice ({' and '.join(sorted(found))}): remove one package"
        )
    (point,) = found.values()
    return _imported(name, point.load)


def _imported(name: str, load: Callable[[], object]) -> EstimatorFactory:
    try:
        factory = load()
    except Exception as error:
        hint = ""
        if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] in (
            "numpy",
            "sklearn",
        ):
            hint = ": pip install scikit-learn"
        raise UnknownEstimator(f"estimator {quoted(name)} cannot be loaded: {error!r}{hint}") from error
    if not callable(factory):
        raise UnknownEstimator(f"estimator {quoted(name)} cannot be loaded: {factory!r} makes nothing")
    return cast(EstimatorFactory, factory)


def _installed() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=ENTRY_POINTS))
