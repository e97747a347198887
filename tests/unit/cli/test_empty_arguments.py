"""Every command with an argument that is empty, or not there: what it says has no empty quotes."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from escli.admin import esctl
from escli.admin.policies import ACTIONS as POLICY_ACTIONS
from escli.admin.policies import EXAMPLES as POLICIES
from escli.commands import MODULES
from escli.errors import ClusterError
from escli.local import main as cluster
from escli.option_table import EVERY, rows_of
from escli.options import FLAG
from eslurm.api.methods import BY_NAME
from eslurm.compat.errors import OptionError
from eslurm.core.model.wording import quoted
from tests.kits.fake_api import FakeApi

Main = Callable[[Sequence[str]], int]


class _Empty(dict[str, Callable[[Any], Any]]):
    """Answers any call with an empty reply."""

    def __missing__(self, name: str) -> Callable[[Any], Any]:
        return lambda _request: BY_NAME[name].reply()


@pytest.fixture
def door(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    monkeypatch.chdir(state_dir)
    monkeypatch.setenv("ESLURM_STATE_DIR", str(state_dir / "cluster"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    for name in ("ESLURM_JOB_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    with FakeApi(state_dir / "s") as fake:
        fake.answers = _Empty()
        monkeypatch.setenv("ESLURM_SOCKET", fake.path)
        yield fake


def said_with(capsys: pytest.CaptureFixture[str], main: Main, words: Sequence[str]) -> str:
    main(words)
    out, err = capsys.readouterr()
    return out + err


def lines_of(command: str) -> list[tuple[str, ...]]:
    """Each option with an empty value, an empty word, and no word at all."""
    valued = [row for row in rows_of(command) if row.kind != FLAG]
    return [(), ("",), *((f"--{row.long}=",) for row in valued), *((f"--{row.long}=", "") for row in valued)]


@pytest.mark.parametrize("command", EVERY.split())
def test_options_and_words(command: str, door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    main: Main = importlib.import_module(MODULES[command]).main
    told = {words: said_with(capsys, main, words) for words in lines_of(command)}
    assert {words: text for words, text in told.items() if "''" in text} == {}
    assert any(told.values())


def test_actions_of_esctl(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    deeper: list[tuple[str, ...]] = [("show", subject) for subject in esctl.show.SUBJECTS]
    deeper += [(kind, action) for kind in POLICIES for action in POLICY_ACTIONS]
    deeper += [(kind, action, "x") for kind in POLICIES for action in POLICY_ACTIONS]
    deeper += [
        ("update", "17", key) for key in ("name=", "time=", "nice=", "begin=", "deadline=", "mem=", "gres=")
    ]
    deeper += [("token", action) for action in ("create", "list", "revoke")]
    deeper += [("node", action) for action in ("approve", "deny", "revoke", "list", "pending", "token")]
    deeper += [
        ("node", "token", "revoke"),
        ("satellite", "down"),
        ("satellite", "resume"),
        ("drain", "cn1", "reason="),
    ]
    told: dict[tuple[str, ...], str] = {}
    for words in [*((action,) for action in esctl.ACTIONS), *deeper]:
        told[words] = said_with(capsys, esctl.main, words)
        told[*words, ""] = said_with(capsys, esctl.main, (*words, ""))
    assert {words: text for words, text in told.items() if "''" in text} == {}


def _commands(
    group: click.Group, before: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, (*before, name))
        yield (*before, name), command


def test_commands_of_eslurm(
    door: FakeApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_args: object, **_options: object) -> Any:
        raise ClusterError("nothing is started by this test")

    monkeypatch.setattr(cluster, "bring_up", nothing)
    monkeypatch.setattr("escli.local.demo.run_demo", nothing)
    told: dict[tuple[str, ...], str] = {}
    for path, command in _commands(cluster.commands):
        if path == ("sim",):
            continue  # Without words it plays a hundred seeds.
        told[path] = said_with(capsys, cluster.main, path)
        told[*path, ""] = said_with(capsys, cluster.main, (*path, ""))
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.is_flag:
                words = (
                    *path,
                    f"{parameter.opts[0]}=" if parameter.opts[0].startswith("--") else parameter.opts[0],
                )
                told[words] = said_with(capsys, cluster.main, words)
                told[*words, "x"] = said_with(capsys, cluster.main, (*words, "x"))
    assert {words: text for words, text in told.items() if "''" in text} == {}
    assert len(told) > 100


def test_what_is_said_instead() -> None:
    assert quoted("") == "an empty value"
    assert (
        str(OptionError("--time", "", "is not a time", "use 5"))
        == "--time: an empty value is not a time: use 5"
    )
    assert str(OptionError("JOB", None, "is missing", "use 17")) == "JOB is missing: use 17"
