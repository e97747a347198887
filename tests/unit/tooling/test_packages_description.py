"""The description of packages fits the sources: what `make packages` would only say after a minute."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
DESCRIPTION = yaml.safe_load((ROOT / "deploy/packages/nfpm.yaml").read_text())


def test_each_command_has_its_link() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    links = {one["dst"]: one["src"] for one in DESCRIPTION["contents"] if one.get("type") == "symlink"}
    assert links == {f"/usr/bin/{name}": f"/usr/lib/eslurm/bin/{name}" for name in project["scripts"]}
    assert DESCRIPTION["license"] == project["license"]


def test_all_files_of_the_sources_that_it_names_are_there() -> None:
    named = [one["src"] for one in DESCRIPTION["contents"] if not one["src"].startswith(("/", "build/"))]
    for pattern in (*named, *DESCRIPTION["scripts"].values()):
        assert list(ROOT.glob(pattern)), pattern
