"""getopt's rules, and errors that name the option and the way out."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from escli.commands import MODULES
from escli.help_text import COMMANDS, usage
from escli.option_table import EVERY, ROWS, rows_of
from escli.options import IGNORED, REFUSED, Option, Parser
from escli.reference import document
from eslurm.compat.errors import OptionError
from tests.support.golden import DIRECTORY, Golden

ROWS_OF_A_COMMAND = (
    Option("x", "time", "t", "TIME", example="-t 5"),
    Option("x", "test-only"),
    Option("x", "hold", "H"),
    Option("x", "exclusive", kind="optional"),
    Option("x", "mail-type", "", "T", kind=IGNORED),
    Option("x", "gres", "", "G", "leave it out", kind=REFUSED),
)


def parse(*words: str, **how: bool) -> tuple[dict[str, str], list[str]]:
    found = Parser(ROWS_OF_A_COMMAND, **how).parse(words)
    return {name: found.text(name) for name in found.names()}, found.rest


@pytest.mark.parametrize(
    "words", [("-t5",), ("-t", "5"), ("--time", "5"), ("--time=5",), ("--ti=5",), ("-t3", "-t", "5")]
)
def test_the_ways_to_give_a_value(words: tuple[str, ...]) -> None:
    assert parse(*words) == ({"time": "5"}, [])


def test_flags_may_be_joined() -> None:
    assert parse("-Ht5", "--test-only") == ({"hold": "", "time": "5", "test-only": ""}, [])


def test_optional_values_stand_in_the_same_word() -> None:
    assert parse("--exclusive", "user") == ({"exclusive": ""}, ["user"])
    assert parse("--exclusive=user") == ({"exclusive": "user"}, [])


def test_options_and_words_may_mix_unless_the_first_word_ends_them() -> None:
    assert parse("a", "-H", "b", "--", "-t") == ({"hold": ""}, ["a", "b", "-t"])
    assert parse("-H", "a", "-H", "--x", options_end_at_first_word=True) == ({"hold": ""}, ["a", "-H", "--x"])
    assert parse("-") == ({}, ["-"])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--tiem=5",), "--tiem: '--tiem=5' is not an option: did you mean --time?"),
        (("--zzzzzzz",), "--zzzzzzz: '--zzzzzzz' is not an option: see --help for the options there are"),
        (("--t=5",), "--t: '--t=5' could be several options: write --test-only or --time"),
        (("-z",), "-z: '-z' is not an option: see --help for the options there are"),
        (("-t",), "-t needs a value: use e.g. -t 5"),
        (("--hold=1",), "--hold: '1' is a value, but the option takes none: use --hold"),
        (("--gres=gpu",), "--gres: 'gpu' cannot be met: this option is not supported: leave it out"),
    ],
)
def test_errors(words: tuple[str, ...], line: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(*words)
    assert str(caught.value) == line


def test_harmless_options_are_noted() -> None:
    assert Parser(ROWS_OF_A_COMMAND).parse(["--mail-type=ALL", "-H"]).ignored == ["--mail-type"]


@pytest.mark.parametrize("command", EVERY.split())
def test_a_command_has_each_name_once(command: str) -> None:
    names = Counter(name for row in rows_of(command) for name in (row.long, row.short) if name)
    assert [name for name, count in names.items() if count > 1] == []


def test_rows_apply_to_commands_that_exist() -> None:
    assert (
        {command for row in ROWS for command in row.commands.split()} == set(COMMANDS) == set(EVERY.split())
    )


@pytest.mark.parametrize("row", [row for row in ROWS if row.example], ids=lambda row: row.long)
def test_the_examples_can_be_parsed(row: Option) -> None:
    from eslurm.compat.script import split_words

    for command in row.commands.split():
        assert Parser(rows_of(command)).parse(split_words(row.example, "example")).has(row.long)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_texts(command: str, golden: Golden) -> None:
    text = usage(command)
    assert max(map(len, text.splitlines())) <= 120
    golden(f"cli/help/{command}.txt", text + "\n")


def test_the_reference_is_up_to_date() -> None:
    page = DIRECTORY.parent.parent / "docs" / "reference" / "commands.md"
    assert page.read_text(encoding="utf-8") == document(), (
        "run: python -m escli.reference > docs/reference/commands.md"
    )


@pytest.mark.parametrize("command", ["essubmit", "esqueue", "escancel", "esinfo", "esacct"])
def test_hot_commands_start_without_heavy_imports(command: str) -> None:
    heavy = [
        "argparse",
        "asyncio",
        "click",
        "dataclasses",
        "google",
        "grpc",
        "json",
        "msgspec",
        "re",
        "typing",
    ]
    code = f"import sys, {MODULES[command]}; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
