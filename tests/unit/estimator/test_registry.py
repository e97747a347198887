"""Estimators by name: nothing is imported to list them, and whatever is wrong with one is said by name."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from eslurm.estimator import registry
from eslurm.estimator.registry import UnknownEstimator, make, names
from tests.kits.estimator import Scribe

HERE = "tests.unit.estimator.test_registry"


def scribe(settings: dict[str, Any]) -> Scribe:
    if settings:
        raise ValueError(f"estimator scribe: {min(settings)!r} is no setting of it")
    return Scribe()


def broken(settings: dict[str, Any]) -> Scribe:
    raise RuntimeError("no such library")


def half(settings: dict[str, Any]) -> object:
    return object()


NOTHING = 3


def install(monkeypatch: pytest.MonkeyPatch, **points: str) -> None:
    found = [EntryPoint(name, f"{HERE}:{value}", registry.ENTRY_POINTS) for name, value in points.items()]
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints(found))


def test_an_installed_estimator_stands_beside_the_built_in_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, scribe="scribe")
    assert names() == (*registry.BUILT_IN, "scribe")
    assert isinstance(make("scribe"), Scribe)
    assert make("user").name == "user"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("scribe", "broken", "estimator scribe cannot be made: RuntimeError('no such library')"),
        ("other", "scribe", "estimator other is none: it calls itself 'scribe'"),
        ("half", "half", "estimator half is none: it has no submitted()"),
        ("gone", "gone", "estimator 'gone' cannot be loaded: AttributeError"),
        ("nothing", "NOTHING", "estimator 'nothing' cannot be loaded: 3 makes nothing"),
    ],
)
def test_a_plug_in_that_is_none_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str
) -> None:
    install(monkeypatch, **{name: value})
    with pytest.raises(UnknownEstimator) as caught:
        make(name)
    assert told in str(caught.value)


def test_wrong_settings_and_names_say_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, scribe="scribe")
    with pytest.raises(UnknownEstimator, match="estimator scribe: 'depth' is no setting of it"):
        make("scribe", {"depth": 3})
    with pytest.raises(UnknownEstimator, match="last-2: 'depth' is no setting of it: it has default_s"):
        make("last-2", {"depth": 3})
    with pytest.raises(UnknownEstimator, match=r"'none' is unknown: use user, last-2, .*scribe, or"):
        make("none")


def test_a_name_that_is_offered_twice_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [EntryPoint("scribe", f"{HERE}:{value}", registry.ENTRY_POINTS) for value in ("scribe", "half")]
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints(found))
    with pytest.raises(
        UnknownEstimator, match=r"is offered twice \(.*half and .*scribe\): remove one package"
    ):
        make("scribe")


def test_a_library_that_is_missing_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setattr(registry, "BUILT_IN", {"svr": "sklearn:make"})
    with pytest.raises(UnknownEstimator, match="pip install scikit-learn"):
        make("svr")


def test_the_commands_import_no_library_to_start() -> None:
    code = (
        "import sys, escli.local.main, eslurm.estimator.registry as r; r.names(); "
        "print(sorted({'numpy', 'sklearn', 'scipy', 'matplotlib'} & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_settings_may_follow_a_name() -> None:
    assert registry.parse("user") == ("user", {})
    text = "clustered-svr:gate=0:alpha=1.02:k=elbow:limits=true"
    settings = {"gate": 0, "alpha": 1.02, "k": "elbow", "limits": True}
    assert registry.parse(text) == ("clustered-svr", settings)
    assert registry.slug(text) == "clustered-svr-gate-0-alpha-1.02-k-elbow-limits-true"
    assert all(registry.parse(text)[0] in names() for text in registry.VARIANTS)
    for wrong in ("history:", "history:c", "history:=3"):
        with pytest.raises(UnknownEstimator, match="is no setting: write NAME:KEY=VALUE"):
            registry.parse(wrong)
