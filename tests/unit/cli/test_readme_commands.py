"""Every command of the README and of the guides can be given: its options, actions, targets and files are there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from escli.admin import esctl
from escli.local.main import commands
from escli.option_table import EVERY, rows_of
from escli.options import Parser
from eslurm.compat.errors import OptionError

ROOT = Path(__file__).parents[3]
PAGES = (ROOT / "README.md", ROOT / "docs" / "features.md", *sorted((ROOT / "docs" / "guide").glob("*.md")))
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
_INLINE = re.compile(r"`([^`\n]+)`")
_PLACEHOLDER = re.compile(r"\.\.\.|[|<>\[\]…]|^\w+$")


def given_in(page: Path) -> Iterator[str]:
    """Lines of shell blocks, and what is set as code in sentences, as far as it is a whole command."""
    text = page.read_text(encoding="utf-8")
    for kind, block in re.findall(r"^```(sh|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            shown = line.removeprefix("$ ") if line.startswith("$ ") else ("" if kind == "console" else line)
            yield from commands_of(shown)
    for code in _INLINE.findall(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        yield code.strip()


def commands_of(line: str) -> Iterator[str]:
    """The simple commands of a line of shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    words: list[str] = []
    try:
        for word in lexer:
            if set(word) <= set(";&|"):
                yield shlex.join(words)
                words = []
            else:
                words.append(word)
    except ValueError:  # A quote that goes on in the next line.
        return
    yield shlex.join(words)


FOUND = sorted(
    {
        (page.relative_to(ROOT).as_posix(), line)
        for page in PAGES
        for line in given_in(page)
        if line.split(" ")[0] in {*EVERY.split(), "eslurm", "make"} and not _PLACEHOLDER.search(line)
    }
)


@pytest.mark.parametrize(("page", "line"), FOUND)
def test_a_command_can_be_given(page: str, line: str) -> None:
    command, *words = shlex.split(line)
    if command == "make":
        assert {word for word in words if "=" not in word} <= TARGETS
    elif command == "eslurm":
        parse(commands, words)
    else:
        ends = command in ("essubmit", "esrun")
        try:
            rest = Parser(rows_of(command), options_end_at_first_word=ends).parse(words).rest
        except OptionError as error:
            # A sentence may name an option without a value.
            assert error.why == "needs a value"
            return
        if command == "esctl" and rest and not rest[0].isupper():
            assert rest[0].lower() in esctl.ACTIONS


def parse(command: click.Command, words: list[str]) -> None:
    """Walk down the commands; options have to exist, arguments may be missing in a sentence."""
    if isinstance(command, click.Group):
        if words and not words[0].startswith("-"):
            assert words[0] in command.commands, f"{words[0]} is no command"
            parse(command.commands[words[0]], words[1:])
        return
    if not command.context_settings.get("ignore_unknown_options"):
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known | {"--help"}


def test_there_are_commands_to_look_at() -> None:
    assert len(FOUND) > 150
    assert {page for page, _ in FOUND} >= {"README.md", "docs/guide/getting-started.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
