"""`eslurm init`: the files of a site's hosts fit each other and the daemons, and none is replaced."""

from __future__ import annotations

import json
import shlex
import stat
from pathlib import Path

import pytest

from escli.local.eslurm import main
from escli.local.site import Answers, Site
from esctld.__main__ import build_parser as controller
from eslurm.config.file import read_config
from eslurm.security.site_keys import read_ring, read_site_keys
from esnoded.__main__ import build_parser as agent
from essatd.__main__ import build_parser as satellite

WORDS = (
    *("--cluster", "demo", "--controllers", "ctl[1-2]", "--nodes", "cn[01-16]", "--satellites", "sat1"),
    *("--login", "login1", "--cores", "64", "--memory-mib", "256000"),
    *("--store", "postgresql://eslurm:secret@db/eslurm"),
)
PARSERS = {"esctld": controller, "essatd": satellite, "esnoded": agent, "esnoded-login": agent}


def init(root: Path, *words: str) -> int:
    return main(("init", "--root", str(root), *words))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_controllers_host_gets_all_that_a_controller_reads(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(state_dir, *WORDS, "--host", "ctl1") == 0
    said = capsys.readouterr().out
    config = read_config(state_dir / "etc/eslurm/eslurm.toml", is_obeyed=True)
    assert config.cluster.name == "demo" and config.controller.store_url.endswith("secret@db/eslurm")
    assert [one.listen for one in config.satellite] == ["sat1:7401"] and config.login.nodes == "login1"
    assert mode(state_dir / "etc/eslurm/eslurm.toml") == 0o640
    keys = state_dir / "var/lib/eslurm"
    assert read_site_keys(keys).cluster == "demo" == read_ring(keys / "site.pub").cluster
    assert mode(keys / "site.key") == 0o600
    assert f"wrote {keys}/site.key" in said and "systemctl enable --now esctld" in said
    assert "esctl node token create --role agent --nodes 'cn[01-16]' --uses 16" in said


def test_other_hosts_learn_no_password(state_dir: Path) -> None:
    assert init(state_dir, *WORDS, "--host", "ctl1") == 0
    assert "secret" not in (state_dir / "etc/eslurm/site.toml").read_text()


@pytest.mark.parametrize(
    "host, unit", [("ctl2", "esctld"), ("sat1", "essatd"), ("cn03", "esnoded"), ("login1", "esnoded-login")]
)
def test_another_host_gets_its_unit(
    state_dir: Path, host: str, unit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(state_dir / "first", *WORDS, "--host", "ctl1") == 0
    answers = state_dir / "first/etc/eslurm/site.toml"
    assert init(state_dir / "other", "--answers", str(answers), "--host", host) == 0
    written = sorted(path for path in (state_dir / "other").rglob("*") if path.is_file())
    assert written == [state_dir / f"other/etc/systemd/system/{unit}.service.d/site.conf"]
    lines = written[0].read_text().splitlines()
    env, _, *words = shlex.split(next(line for line in lines if line.startswith("ExecStart=/"))[10:])
    assert env == "/usr/bin/env"
    parsed = PARSERS[unit]().parse_args(words)
    assert "ctl1:7400,ctl2:7400" in (
        getattr(parsed, "controllers", ""),
        getattr(parsed, "controller", ""),
    ) or (parsed.name == "ctl2")
    assert "systemctl enable --now " + unit in capsys.readouterr().out


def test_a_host_may_have_several_roles(state_dir: Path) -> None:
    site = Site(Answers("demo", "one", "one,two", 4, 4096))
    roles = site.roles_of("one")
    assert roles == ("controller", "agent")
    assert len({one.path for one in site.files_of(roles, "one", [0])}) == 3


def test_nothing_is_replaced_and_nothing_half_written(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = state_dir / "etc/eslurm/site.toml"
    kept.parent.mkdir(parents=True)
    kept.symlink_to("/nowhere")
    assert init(state_dir, *WORDS, "--host", "ctl1") == 2
    assert "is there already" in capsys.readouterr().err
    assert [path for path in state_dir.rglob("*") if not path.is_dir()] == [kept]


def test_what_it_writes_passes_the_check(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(state_dir, *WORDS, "--host", "ctl1") == 0
    capsys.readouterr()
    assert main(("check", str(state_dir / "etc/eslurm/eslurm.toml"))) == 0
    assert capsys.readouterr().out.endswith("eslurm.toml: no problems\n")


def test_files_are_replaced_by_force_alone_and_keys_never(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*WORDS, "--host", "ctl1", "--cores", "32")
    assert init(state_dir, *WORDS, "--host", "ctl1") == 0
    config, key = state_dir / "etc/eslurm/eslurm.toml", state_dir / "var/lib/eslurm/site.key"
    before = {path: path.read_bytes() for path in state_dir.rglob("*") if path.is_file()}
    assert init(state_dir, *words) == 2
    assert "by --force; nothing was written" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in state_dir.rglob("*") if path.is_file()} == before
    assert init(state_dir, *words, "--force") == 0
    said = capsys.readouterr().out
    assert f"wrote {config}" in said and "site.key" not in said.partition("Next:")[0]
    assert read_config(config).nodes[0].cores == 32 and key.read_bytes() == before[key]
    assert {path for path in state_dir.rglob("*") if path.is_file()} == before.keys()
    assert init(state_dir, *words, "--force", "--cluster", "other") == 2
    assert "is of cluster demo, not other, and the site's keys are there" in capsys.readouterr().err


def test_a_link_is_not_followed_by_force(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = state_dir / "other"
    other.write_text("kept")
    link = state_dir / "etc/eslurm/site.toml"
    link.parent.mkdir(parents=True)
    link.symlink_to(other)
    assert init(state_dir, *WORDS, "--host", "ctl1", "--force") == 2
    assert "is not a regular file" in capsys.readouterr().err
    assert other.read_text() == "kept" and not list(state_dir.rglob("site.key"))


def test_a_dry_run_shows_and_writes_nothing(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(state_dir, *WORDS, "--host", "ctl1", "--dry-run", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["roles"] == ["controller"] and not shown["written"]
    assert 'name = "demo"' in shown["files"][0]["text"]
    assert not list(state_dir.iterdir())


@pytest.mark.parametrize(
    "words, says",
    [
        (("--host", "elsewhere"), "none of this site's hosts"),
        (("--nodes", "cn1;reboot", "--host", "ctl1"), "no host's name"),
        (("--nodes", "cn[", "--host", "ctl1"), "nodes"),
        (("--cluster", "-x", "--host", "ctl1"), "cluster"),
        (("--store", "", "--host", "ctl1"), "share no SQLite file"),
        (("--satellites", "cn01", "--host", "ctl1"), "also a compute node"),
    ],
)
def test_answers_that_cannot_be(
    state_dir: Path, words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(state_dir, *WORDS, *words) == 2
    assert says in capsys.readouterr().err
    assert not list(state_dir.iterdir())


def test_missing_answers_name_the_options(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(state_dir, "--cluster", "demo") == 2
    assert "--memory-mib" in capsys.readouterr().err
