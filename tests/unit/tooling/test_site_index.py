"""The list of pages for programs: every page of the navigation, with its title and first sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from scripts import site_index

ROOT = Path(__file__).parents[3]


def test_every_page_is_listed_with_what_it_says() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    text = site_index.listing(site["site_name"], site["site_description"], site["nav"], ROOT)
    lines = text.splitlines()
    assert lines[:3] == ["# eslurm", "", f"> {site['site_description']}"]
    pages = [page for tab in site["nav"] for page in site_index.pages_of(tab)]
    listed = [line for line in lines if line.startswith("- ")]
    assert len(listed) == len(pages) > 60
    for page, line in zip(pages, listed, strict=True):
        assert f"]({page.removesuffix('.md')}.html)" in line
        assert not line.startswith("- [") or ".md]" not in line, f"{page} has no title"
    assert "- [Security](security.html): " in text


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("# A\n\nOne [link](x.md) here. Two.\n", "One link here."),
        (
            "# A\n\n![picture](x.svg)\n\n```sh\nmake\n```\n\n| a |\n|---|\n\nThen prose\nover lines. More.",
            "Then prose over lines.",
        ),
        ("# A\n\nVersion 1. 5 is one. Two.", "Version 1. 5 is one."),
        ("# A\n\nIn short: this.\n", "In short"),
        ("# A\n", ""),
    ],
)
def test_the_first_sentence_is_prose(text: str, first: str) -> None:
    assert site_index.first_sentence(text) == first
