"""The site's navigation names pages that exist, each once, and every guide and reference page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]


def named(part: Any) -> Iterator[str]:
    """The pages below one part of the navigation."""
    match part:
        case str():
            yield part
        case list():
            for one in part:
                yield from named(one)
        case dict():
            for one in part.values():
                yield from named(one)


def test_the_navigation_names_every_page_once() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    pages = Counter(named(nav))
    assert {page for page, times in pages.items() if times > 1} == set()
    docs = ROOT / "docs"
    written = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md") if path.parent.name != "adr"}
    assert {page for page in pages if not page.startswith("repo/")} == written
    assert all((ROOT / page.removeprefix("repo/")).is_file() for page in pages if page.startswith("repo/"))
