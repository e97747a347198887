"""The fixture around `fakes.Fakes`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from escli.local import ports
from escli.local.stop import leftovers, stop_all
from tests.unit.cli.local.fakes import Fakes


@pytest.fixture(autouse=True)
def _reserved_ports() -> Iterator[None]:
    """A command gives the ports that it has chosen back when it ends, which a test does not."""
    yield
    while ports._reserved:
        ports._reserved.pop().close()


@pytest.fixture
def fakes(
    state_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Fakes]:
    for name in ("ESLURM_STATE_DIR", "ESLURM_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    fakes = Fakes(state_dir / "c", capsys)
    yield fakes
    if fakes.layout.record_file.exists():
        fakes.edit_record(owner_uid=os.getuid(), format=1, version="0")
        stop_all(fakes.layout, fakes.record(), grace_s=0)
        assert leftovers(fakes.layout, fakes.record()) == []
