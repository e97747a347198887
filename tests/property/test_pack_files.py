"""A pack file, whatever it holds, is an answer or an OptionError, soon; what is accepted can be sent."""

from __future__ import annotations

import json
import time
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from escli.option_table import rows_of
from escli.options import Parser, Words
from escli.user.job_parts import command_parts
from escli.user.pack_file import FILE_BYTES_MAX, read_pack
from escli.user.pack_members import Member, members_of
from eslurm.compat.errors import OptionError
from eslurm.core.model.request_limits import PACK_DELAY_MAX_S, PACK_MEMBERS_MAX
from tests.kits.mutation import damaged_texts

YAML = """\
name: coupled
parts:
  - {script: ocean.sh, options: [-N4, -p, cluster, -t, 2:00:00]}
  - script: analyse.sh
    arguments: [--in, "a b", 7]
    delay: 00:30:00
    options: -N2 : -N8 -p booster
"""
LINES = "# two\n-N4 -t 2:00:00 ocean.sh\n--delay=00:30:00 -N2 : -N8 -p booster analyse.sh --in 'a b'\n"
WORDS = st.sampled_from(
    ["-N4", "-t", "60", ":", "--delay=5", "--wrap", "-", "--", "x.sh", "'", "#", "-J", "\ud800"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | WORDS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(
            st.sampled_from(["name", "parts", "script", "arguments", "delay", "options", "x"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "script": st.just("a.sh") | VALUES,
        "delay": st.sampled_from(["0", "5", "1:00:00", 7, -1]) | VALUES,
        "options": st.lists(WORDS, max_size=6) | VALUES,
        "arguments": VALUES,
    },
)


def read(data: bytes, name: str = "file") -> list[Member] | None:
    parser = Parser(rows_of("essubmit"), options_end_at_first_word=True)
    began = time.monotonic()
    try:
        members = read_pack(data, name, Words(), parser, frozenset({"pack", "delay"}))
    except OptionError as error:
        assert "\n" not in str(error)
        return None
    finally:
        assert time.monotonic() - began < 20, "a bound on reading"
    assert 1 <= len(members) <= PACK_MEMBERS_MAX
    assert members[0].delay_s == 0 and all(0 <= one.delay_s <= PACK_DELAY_MAX_S for one in members)
    for member in members:
        assert member.source is not None
        assert not any(part.has("delay") for part in member.parts)
    return members


@given(damaged_texts([YAML, LINES, json.dumps({"parts": [{"script": "a.sh", "delay": 5}]})]))
@example("parts: " + "- " * 100_000)
@example("parts: " + "{a: " * 50_000)
@example("parts:\n" + "".join(" " * depth + "-\n" for depth in range(400)))
@example("a: &a [x,x]\nb: &b [*a,*a]\nparts: [*b,*b]")
@example("? " * 100_000)
@example("parts: [{delay: " + "9" * 200_000 + "}]")
@example('{"parts": [{"delay": ' + "9" * 200_000 + "}]}")
@example(" : ".join(["-N1"] * 20_000))
@example("-N1 a.sh\n" * 20_000)
@example("'" * FILE_BYTES_MAX)
def test_a_text_is_read_or_refused(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    for name in ("file", "file.yaml", "file.json"):
        read(data, name)


@given(st.binary(max_size=200))
def test_bytes_are_read_or_refused(data: bytes) -> None:
    for name in ("file", "file.yaml", "file.json"):
        read(data, name)


@given(
    st.fixed_dictionaries({"parts": st.lists(PARTS, max_size=4) | VALUES}, optional={"name": VALUES}) | VALUES
)
def test_values_of_any_shape_are_read_or_refused_alike(content: Any) -> None:
    """JSON is YAML: both readers say the same of it, but of numbers and words without quotes."""
    read(json.dumps(content).encode(), "file.json")
    texts = json.loads(json.dumps(content), parse_int=str, parse_float=str)
    if all(
        word not in json.dumps(texts) for word in ("true", "false", "null", "NaN", "Infinity", "\\u", '\\"')
    ):
        text = json.dumps(texts)
        shapes = []
        for name in ("file.json", "file.yaml"):
            members = read(text.encode(), name)
            shapes.append([(one.delay_s, len(one.parts)) for one in members] if members else None)
        assert shapes[0] == shapes[1]


COMMAND_WORDS = st.sampled_from(
    [
        ":",
        "a.sh",
        "b.sh",
        "-N4",
        "--delay=5",
        "--delay=0",
        "--delay",
        "1:00:00",
        "--wrap",
        "x",
        "--",
        "-",
        "-t5",
    ]
)


@given(st.lists(COMMAND_WORDS | st.text(max_size=4), max_size=14))
@example([":"] * 200)
@example([*["--wrap", "x", ":"] * 127, "--wrap", "x"])
def test_parts_of_a_command_line_become_jobs(words: list[str]) -> None:
    parser = Parser(rows_of("essubmit"), options_end_at_first_word=True)
    try:
        parts = command_parts(parser.parse(words), parser)
        members = members_of(parts)
    except OptionError as error:
        assert "\n" not in str(error)
        return
    assert [part for member in members for part in member.parts] == parts, "each part once, in its order"
    assert members[0].delay_s == 0
    for member in members[1:]:
        first, *others = member.parts
        assert not any(part.has("delay") for part in others)
        assert first.has("delay") or member.source is first
