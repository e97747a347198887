"""Whatever a person writes, a parser answers with a value or an OptionError, soon; what is shown can be read again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escli.draft import Surroundings, draft_job
from escli.essubmit import with_directives
from escli.exporting import exported
from escli.option_table import rows_of
from escli.options import Parser, Words
from escli.queue_columns import by_format
from escli.wire import JOB_REQUEST, SUBMIT_REPLY, WireError, decode, encode
from eslurm.compat import (
    arrays,
    dependencies,
    durations,
    hostlist,
    jobrefs,
    moments,
    nodecounts,
    sizes,
    states,
)
from eslurm.compat.environment import decode_environment, encode_environment
from eslurm.compat.errors import OptionError
from eslurm.compat.filenames import FileNameFields, expand_pattern
from eslurm.compat.script import check_script, read_directives

PARSERS: dict[str, Callable[[str], Any]] = {
    "time": durations.parse_time_limit,
    "begin": lambda text: moments.parse_moment(text, 1_800_000_000_000_000, lambda _: 3600),
    "mem": sizes.parse_memory,
    "nodes": nodecounts.parse_node_count,
    "nodelist": hostlist.expand,
    "array": arrays.parse_array,
    "dependency": dependencies.parse_dependencies,
    "jobs": jobrefs.parse_job_refs,
    "states": states.parse_states,
    "export": lambda text: exported(text, {"A": "1"}),
    "format": by_format,
}
# Texts near the grammars find more than texts of any characters.
NEAR = st.text(alphabet="0123456789-:,+%[]_?=.KMGT afterokcnowplus'\"\\", max_size=40)
ANY = st.text(max_size=40) | NEAR


def quietly(parse: Callable[[], Any]) -> Any:
    """The value, or None after an OptionError of one line."""
    try:
        return parse()
    except OptionError as error:
        assert str(error).isprintable()
        return None


@pytest.mark.parametrize("name", PARSERS)
@given(text=ANY)
def test_parsers_raise_nothing_else(name: str, text: str) -> None:
    quietly(lambda: PARSERS[name](text))


@given(
    st.binary(max_size=200) | ANY.map(lambda text: f"#!/bin/sh\n#SBATCH {text}".encode("utf-8", "replace"))
)
def test_scripts_raise_nothing_else(script: bytes) -> None:
    quietly(lambda: check_script(script, "run.sh"))
    quietly(lambda: read_directives(script))
    quietly(lambda: with_directives(Words(), script))


@pytest.mark.parametrize("command", ["essubmit", "esqueue", "esctl", "esrun"])
@given(
    words=st.lists(
        ANY | st.sampled_from(["-n", "--ntasks", "--time=5", "-Hn4", "--", "--n", "-", "--exclusive=x"]),
        max_size=6,
    )
)
def test_command_lines_raise_nothing_else(command: str, words: list[str]) -> None:
    quietly(lambda: Parser(rows_of(command)).parse(words))


@given(st.dictionaries(st.sampled_from([row.long for row in rows_of("essubmit")]), ANY, max_size=6))
def test_drafts_can_always_be_sent(options: dict[str, str]) -> None:
    given_words = Words()
    for long, text in options.items():
        given_words.put(long, text, f"--{long}")
    around = Surroundings(
        cwd="/home/ada",
        host="login",
        umask=0o022,
        now_us=1_800_000_000_000_000,
        offset_s=lambda _: 0,
        environment={},
    )
    job = quietly(lambda: draft_job(given_words, b"#!/bin/sh\n", "run.sh", ["x"], around))
    if job is not None:
        assert decode(encode(job, JOB_REQUEST), JOB_REQUEST)["work_dir"].startswith("/")


@given(st.integers(0, 2**31 - 1))
def test_durations_can_be_read_again(seconds: int) -> None:
    shown = durations.format_time_limit(seconds)
    assert durations.parse_time_limit(shown) == seconds


@given(st.integers(1, 253_402_300_799), st.integers(-50_400, 50_400))
def test_moments_can_be_read_again(at_s: int, offset_s: int) -> None:
    def offset(_utc_s: int) -> int:
        return offset_s

    shown = moments.format_moment(at_s * 10**6, offset)
    if "1970-01-01" <= shown <= "9999-12-31":
        assert moments.parse_moment(shown, 0, offset) == at_s * 10**6


@given(st.integers(0, 2**30))
def test_memory_can_be_read_again(mib: int) -> None:
    assert sizes.parse_memory(sizes.format_memory(mib)) == mib


HOST = st.from_regex(r"[a-z]{0,3}[0-9]{0,4}(-[a-z]?[0-9]{0,3})?", fullmatch=True).filter(bool)


@given(st.lists(HOST, max_size=30))
def test_hostlists_can_be_read_again(names: list[str]) -> None:
    folded = hostlist.fold(names)
    assert (list(hostlist.expand(folded)) if folded else []) == names


@given(st.sets(st.integers(0, 60), min_size=1), st.integers(0, 9))
def test_arrays_can_be_read_again(tasks: set[int], limit: int) -> None:
    ranges = arrays.fold_tasks(sorted(tasks))
    assert arrays.parse_array(arrays.format_array(ranges, limit)) == (ranges, limit)
    assert {task for low, high, step in ranges for task in range(low, high + 1, step)} == tasks


RANGE = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9))


@given(st.lists(RANGE, min_size=1, max_size=6))
def test_array_ranges_are_ascending_and_disjoint(parts: list[tuple[int, int, int]]) -> None:
    text = ",".join(f"{low}-{low + length}:{step}" for low, length, step in parts)
    ranges, _ = arrays.parse_array(text)
    tasks = [task for low, high, step in ranges for task in range(low, high + 1, step)]
    assert tasks == sorted({t for low, length, step in parts for t in range(low, low + length + 1, step)})
    assert all((high - low) % step == 0 for low, high, step in ranges)


@given(st.text(max_size=60))
def test_file_names_never_fail(pattern: str) -> None:
    expand_pattern(pattern, FileNameFields(7, job_name="n", user="u", node_name="h"))


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z_]{1,8}", fullmatch=True),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    )
)
def test_environments_can_be_read_again(variables: dict[str, str]) -> None:
    assert decode_environment(encode_environment(variables)) == variables


@given(st.binary(max_size=100))
def test_wire_decoding_raises_nothing_else(data: bytes) -> None:
    with suppress(WireError):
        decode(data, SUBMIT_REPLY)
