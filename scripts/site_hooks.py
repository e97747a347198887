"""What mkdocs.yml asks of MkDocs beyond its own: links out of docs/ lead to copies, diagrams are drawn at the build.

Invariant: a link that works on a code host works on the site, and a page loads nothing from a network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import mmdr
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from pymdownx.slugs import slugify

from scripts import site_index

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
COPIES = PurePosixPath("repo")
"""Files from outside docs/ stand in this folder of the site, by their path in the repository."""
DEVELOPERS = (ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md")

_FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")
_FETCHED = re.compile(
    r"""<(?:script|img|link|iframe|source)\b[^>]*(?:src|href)=["']?(?:https?:)?//|url\(["']?(?:https?:)?//"""
)
_MERMAID = re.compile(r"^```mermaid\n(.*?)^```", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> None:
    """Name anchors as code hosts do; list the ADRs."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    decisions = [f"adr/{path.name}" for path in sorted((DOCS / "adr").glob("*.md"))]
    for tab in config.nav:
        for part in tab.get("Understand it", ()):
            if "Decisions" in part:
                part["Decisions"] = decisions


def on_files(files: Any, config: Any) -> None:
    """Add the files outside docs/ that a page leads to."""
    pages = [*DOCS.rglob("*.md"), *DEVELOPERS]
    seen = set(pages)
    while pages:
        for target in targets(pages.pop()):
            if target.is_file() and target not in seen:
                seen.add(target)
                if target.suffix == ".md":
                    pages.append(target)
    for path in sorted(seen):
        if not path.is_relative_to(DOCS):
            files.append(File.generated(config, str(place(path)), abs_src_path=str(path)))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to where their targets stand on the site, and draw diagrams."""
    source = Path(page.file.abs_src_path)
    here = place(source).parent
    # One page with every change would be among the first answers to each search.
    page.meta["search"] = {"exclude": source.name == "CHANGELOG.md"}

    def moved(link: re.Match[str]) -> str:
        target = (source.parent / link[1]).resolve()
        return os.path.relpath(place(target), here) if target.is_relative_to(ROOT) else link[1]

    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(moved, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    markdown = "".join([*parts, _LINK.sub(moved, markdown[end:])])
    return _MERMAID.sub(lambda found: f'<div class="diagram">{mmdr.render(found[1]).svg()}</div>', markdown)


def on_post_build(config: Any) -> None:
    """List the pages for programs; refuse a page or style that loads something from a network."""
    listed = site_index.listing(config.site_name, config.site_description, config.nav, ROOT)
    (Path(config.site_dir) / "llms.txt").write_text(listed, encoding="utf-8")
    for path in Path(config.site_dir).rglob("*"):
        if path.suffix in (".html", ".css") and (found := _FETCHED.search(path.read_text(encoding="utf-8"))):
            raise PluginError(f"{path} loads from a network: {found[0]}")


def targets(page: Path) -> Iterator[Path]:
    """The files that a page links to."""
    for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        yield (page.parent / link).resolve()


def place(path: Path) -> PurePosixPath:
    """Where a file of the repository stands, from the site's root."""
    if path.is_relative_to(DOCS):
        return PurePosixPath(path.relative_to(DOCS))
    return COPIES / path.relative_to(ROOT)
