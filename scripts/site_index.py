"""The list of all pages for programs that read the documentation: `llms.txt` at the site's root (llmstxt.org).

Invariant: each page of the navigation is on it once, under its own title, with the first sentence that it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_NO_PROSE = re.compile(r"^(#|!\[|\||```|<|- |\d+\. )")


def listing(name: str, purpose: str, nav: list[Any], root: Path) -> str:
    """The text of llms.txt for the navigation of mkdocs.yml; `root` is the repository."""
    lines = [f"# {name}", "", f"> {purpose}"]
    for tab in nav:
        for heading, part in tab.items():
            lines += ["", f"## {heading}", ""]
            for page in pages_of(part):
                lines.append(_line(page, source_of(page, root).read_text(encoding="utf-8")))
    return "\n".join(lines) + "\n"


def pages_of(part: Any) -> Iterator[str]:
    """The pages below one part of the navigation."""
    if isinstance(part, str):
        yield part
        return
    for one in part.values() if isinstance(part, dict) else part:
        yield from pages_of(one)


def source_of(page: str, root: Path) -> Path:
    """The file of a page of the navigation."""
    return root / page.removeprefix("repo/") if page.startswith("repo/") else root / "docs" / page


def _line(page: str, text: str) -> str:
    title = _TITLE.search(text)
    first = first_sentence(text)
    link = f"[{title[1] if title else page}]({page.removesuffix('.md')}.html)"
    return f"- {link}: {first}" if first else f"- {link}"


def first_sentence(text: str) -> str:
    """The first sentence of the first paragraph of prose, without links and marks; "" without one."""
    for paragraph in re.split(r"\n\s*\n", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        if paragraph.strip() and not _NO_PROSE.match(paragraph.strip()):
            words = " ".join(_LINK.sub(r"\1", paragraph).replace("**", "").split())
            return re.split(r"(?<=[^.\d][.:])\s", words, maxsplit=1)[0].rstrip(":")
    return ""
