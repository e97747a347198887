"""docs/security.md: each sentence names a test that exists, or is marked as a limit."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text()
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_each_test_exists() -> None:
    found = REFERENCE.findall(PAGE)
    assert len(found) > 30
    for path, name in found:
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), (
            f"{path}::{name}"
        )


def test_each_sentence_has_one_or_is_a_limit() -> None:
    sentences = re.findall(r"^- .*(?:\n  .*)*", PAGE, re.MULTILINE)
    assert sentences
    for sentence in sentences:
        assert REFERENCE.search(sentence) or sentence.startswith("- **Limit**: "), sentence
