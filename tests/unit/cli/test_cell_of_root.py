"""Root's command to another cell of this machine: the refusal names the line that reaches the cell."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from escli.cells import CellApi
from escli.endpoint import Endpoint
from escli.failures import CommandFailed
from eslurm.api.authoriser import root_text
from eslurm.api.methods import BY_NAME
from eslurm.ports.api import ApiRefused, Status


class Refusing(Endpoint):
    """A controller that refuses each call with this text."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = str(path)
        self.text = text

    @property
    def first(self) -> str:
        return self.path

    def client(self, patience_s: float, on_refused: Callable[[str], None]) -> Any:
        return self

    def call(self, *_of_call: object) -> Any:
        raise ApiRefused(Status.PERMISSION_DENIED, self.text)

    def close(self) -> None:
        pass

    def user(self) -> str:
        return "root"


def refusal(path: Path, cell: str, text: str) -> str:
    api = CellApi(Refusing(path, text), "esqueue", cell, f"--cell {cell}")
    with pytest.raises(CommandFailed) as told:
        api.call("Jobs", BY_NAME["Jobs"].request())
    return told.value.text


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    """The directory of `eslurm up --cells alpha,beta`."""
    for name in ("alpha", "beta"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "esctld.sock").touch()
    (tmp_path / "esctld.sock").symlink_to("alpha/esctld.sock")
    return tmp_path


@pytest.mark.parametrize("of", ["", "alpha"])
def test_root_is_told_the_line(cells: Path, of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    text = refusal(cells / of / "esctld.sock", "beta", root_text("cell"))
    assert text == (
        "--cell beta: root's commands do not pass through other cells: use a host of the controller; its own is here: "
        f"ESLURM_STATE_DIR={cells}/beta esqueue ..."
    )


@pytest.mark.parametrize(
    ("uid", "cell", "text"),
    [(1000, "beta", root_text("cell")), (0, "gamma", root_text("cell")), (0, "beta", "no such job")],
)
def test_others_are_told_what_the_cell_says(
    cells: Path, uid: int, cell: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert refusal(cells / "esctld.sock", cell, text) == f"--cell {cell}: {text}"
