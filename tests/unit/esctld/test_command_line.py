"""Refusals of `esctld` before it touches anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from esctld.__main__ import main
from esctld.daemon import ControllerOptions
from eslurm.config.file import parse_config
from eslurm.core.model.wording import quoted
from tests.support.trust import Site

CONFIG = b"""
[cluster]
name = "test"
[controller]
listen = "127.0.0.1:6820"
lease_s = 1.5
[[nodes]]
names = "cn1"
cores = 1
memory_mib = 100
[[partition]]
name = "main"
"""


@pytest.mark.parametrize("name", ["", "../main", "a b", "x" * 33, "-c2"])
def test_a_name_that_cannot_be_part_of_a_file_name_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--config", str(tmp_path / "none.toml"), "--state-dir", str(tmp_path), f"--name={name}"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert f"--name: {quoted(name)} is no name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_configuration_with_the_key_that_nothing_uses_is_taken_and_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "eslurm.toml"
    config.write_bytes(CONFIG.replace(b'name = "test"', b'name = "test"\nkey_file = "cluster.key"'))
    with pytest.raises(SystemExit) as ended:
        main(["--config", str(config), "--state-dir", str(tmp_path)])
    assert ended.value.code == 2, "there is no site.key here"
    assert "cluster.key_file: nothing uses that key any more: remove the line" in caplog.text
    assert "site.key" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "socket"), [("main", "esctld.sock"), ("c2", "esctld-c2.sock")])
def test_each_controller_has_its_own_socket(name: str, socket: str, tmp_path: Path) -> None:
    site, member = Site("c").controller(tmp_path, name)
    options = ControllerOptions(
        parse_config(CONFIG, "test"), Path("/eslurm.toml"), Path("/site"), Path("/state"), site, member, name
    )
    assert options.socket == Path("/state") / socket
    assert options.lease_us == 1_500_000
