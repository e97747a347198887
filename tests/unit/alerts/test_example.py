"""The example of a site's predictor: installs as a package, is found by its name, predicts, and refuses bad settings."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eslurm.alerts.plugins import ThreadedPredictor, UnknownPredictor, find_plugin, plugin
from eslurm.core.prediction.predictor import BroadcastSeen, NodesKnown

EXAMPLE = Path(__file__).parents[3] / "examples" / "predictor"
NODES = NodesKnown({1: "cn0001", 2: "cn0002", 3: "cn0003"})
WAIT_S = 50.0


@pytest.fixture(scope="module")
def site_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the package was installed into as pip does it."""
    target = tmp_path_factory.mktemp("site-packages")
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(EXAMPLE)], check=True
    )
    return target


@pytest.fixture
def installed(site_packages: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(site_packages))
    yield
    sys.modules.pop("thermal_predictor", None)


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.002)


def end(predictor: ThreadedPredictor) -> None:
    predictor.close()
    until(lambda: predictor.finished)


@pytest.mark.usefixtures("installed")
def test_the_installed_example_predicts_hot_nodes(tmp_path: Path) -> None:
    file = tmp_path / "temperatures"
    notices: list[str] = []
    thermal = plugin("thermal", {"file": str(file), "limit_celsius": 80}, WAIT_S, notices.append)
    thermal.observe(NODES)
    thermal.observe(BroadcastSeen(0, (1, 2)))
    assert thermal.predict(0) == frozenset()
    file.write_text("cn0001 91.5\ncn0002 40\nzz 99\n\ncn0003 80.1\n")
    until(lambda: thermal.predict(0) == {1, 3})
    file.write_text("cn0001 not-a-number\n")
    # The question before may have been answered from the old file: ask again and again.
    until(lambda: thermal.predict(0) == frozenset() and thermal.switched_off)
    thermal.predict(0)
    assert len(notices) == 1
    end(thermal)


@pytest.mark.usefixtures("installed")
def test_the_example_refuses_settings_that_cannot_be() -> None:
    notices: list[str] = []
    thermal = plugin("thermal", {}, WAIT_S, notices.append)
    until(lambda: thermal.switched_off)
    thermal.predict(0)
    assert "settings: file" in notices[0]
    end(thermal)


@pytest.mark.usefixtures("installed")
def test_a_misspelt_name_is_told_with_the_installed_one() -> None:
    with pytest.raises(UnknownPredictor, match=r"use .*thermal"):
        find_plugin("thermall")
