"""Arbitrary input: a parser answers with a value or an OptionError, soon; shown values can be read again."""

from __future__ import annotations

import shlex
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from escli.option_table import rows_of
from escli.options import Parser, Words
from escli.user.draft import SubmitContext, draft_job
from escli.user.essubmit import with_directives
from escli.user.exporting import exported
from escli.user.job_parts import command_parts
from escli.user.queue_columns import by_format
from escli.wire import WireError, decode, encode
from escli.wire_tables import JOB_REQUEST, SUBMIT_REPLY
from eslurm.compat import (
    access,
    amounts,
    arrays,
    constraints,
    cron,
    dependencies,
    durations,
    gres,
    hetgroups,
    hostlist,
    jobrefs,
    lengths,
    licenses,
    moments,
    nodecounts,
    rset,
    signals,
    sizes,
    states,
    validity,
)
from eslurm.compat.environment import decode_environment, encode_environment
from eslurm.compat.errors import OptionError, quoted
from eslurm.compat.filenames import FileNameFields, expand_pattern
from eslurm.compat.script import check_script, read_directives, split_words
from eslurm.core.model.request_limits import PARTS_MAX
from eslurm.lab.sim.trace_format import parse_only
from eslurm.v1 import controller_pb2 as pb
from tests.kits.mutation import damaged, damaged_texts

PARSERS: dict[str, Callable[[str], Any]] = {
    "time": durations.parse_time_limit,
    "begin": lambda text: moments.parse_moment(text, 1_800_000_000_000_000, lambda _: 3600),
    "mem": sizes.parse_memory,
    "nodes": nodecounts.parse_node_count,
    "nodelist": hostlist.expand,
    "array": arrays.parse_array,
    "dependency": dependencies.parse_dependencies,
    "jobs": jobrefs.parse_job_refs,
    "parts": hetgroups.parse_het_group,
    "states": states.parse_states,
    "export": lambda text: exported(text, {"A": "1"}),
    "format": by_format,
    "only": parse_only,
    "rset": rset.parse_rset,
    "constraint": constraints.parse_constraint,
    "gres": gres.parse_gres,
    "gpus": gres.parse_gpus,
    "licenses": licenses.parse_licenses,
    "cron": cron.parse_cron,
    "validity": lambda text: validity.parse_validity(text, offset_s=lambda _: 3600),
    "amount": amounts.parse_amount,
    "memory amount": lambda text: amounts.parse_amount(text, "items", amounts.MEMORY),
    "access": access.parse_access,
    "length": lambda text: lengths.parse_length(text, "duration"),
    "signal": signals.parse_warning,
}
VALID: dict[str, list[str]] = {
    "parts": ["0", "0,2-3", "127", "3-3,0"],
    "time": ["90", "1:30:00", "2-12", "2-12:30", "2-12:30:15", "UNLIMITED", "-1", "5:30"],
    "begin": [
        "now+2hours",
        "16:00",
        "tomorrow",
        "2030-01-31T08:00:59",
        "01/31/30",
        "4:30PM",
        "noon",
        "now-1week",
    ],
    "mem": ["4G", "512M", "800", "1TiB", "2kb", "0"],
    "nodes": ["4", "2-4", "2k", "1-1m"],
    "nodelist": ["cn[0001-0004,0007],login1", "r[0-1]c[0-9]n[00-15]", "a", "x-[1-3]-y"],
    "array": ["0-15:2,20%4", "1,3,7", "0-99%10", "5-5"],
    "dependency": [
        "afterok:12:13,singleton",
        "after:10+5",
        "afterany:7,afternotok:8:9",
        "aftercorr:3",
        "afterok:3_4?7+1",
    ],
    "jobs": ["17", "17_4", "17_[4-6,9]", "2147483647"],
    "states": ["pd,R,running", "all", "CANCELED,nf"],
    "export": ["ALL", "NONE", "A,B=1,C=x y", "ALL,PATH=/bin"],
    "format": ["%i %j %.10u", "%8i|%T", "%%"],
    "only": ["job=7,node=cn0003", "node=cn[0001-0003,0007],job=12"],
    "rset": [
        "8:ncpus=2:mem=10g+1:ncpus=16:gpus=2,place=scatter:excl",
        "rset=2:big=true:gpu_type=a100,matlab=2,place=free",
    ],
    "constraint": ["ib&(rack=1|rack=2)&!old", "a,b|!(c&host=cn07)"],
    "gres": ["gpu:a100:2,fpga", "gres/gpu:4"],
    "gpus": ["2", "a100:4"],
    "licenses": ["matlab:2,ansys", "x"],
    "cron": ["* 7-10 * * mon,fri", "0 8 1-7 */2 mon#1", "*/5 0-23/2 L jan-mar *"],
    "validity": [
        "always",
        "..2026-12-31",
        "2017-08-01..2017-08-31",
        "2026-03-01T08:00..2026-03-01T18:00",
        "2018-01-01..2025-12-31 cron(* 7-10 * * mon,fri)",
        "cron(0 8 1-7 */2 mon)+10h",
    ],
    "amount": ["640", "30/45%", "12.5%", "unlimited"],
    "memory amount": ["10g", "512m/20%", "all"],
    "access": [
        "cores<4 and time<1h or group=G1,G2 or user=alice or time<=2h",
        "nobody",
        "items<=7 and qos=x",
    ],
    "length": ["4d3h", "90m", "500h", "1-12:00:00", "none", "15"],
    "signal": ["USR1", "B:TERM@120", "b:sigusr2@0", "10@65535"],
}
# Texts near the grammars find more than texts of any characters.
NEAR = st.text(alphabet="0123456789-:,+%[]_?=.KMGT afterokcnowplus'\"\\", max_size=40)
ANY = st.text(max_size=40) | NEAR


def quietly(parse: Callable[[], Any]) -> Any:
    """The value, or None after an OptionError of one line that names the value."""
    try:
        return parse()
    except OptionError as error:
        assert str(error).isprintable()
        assert len(str(error)) < 600
        assert error.value is None or quoted(error.value) in str(error)
        assert error.option and error.why
        return None


@pytest.mark.parametrize("name", PARSERS)
@given(text=ANY)
def test_parsers_raise_nothing_else(name: str, text: str) -> None:
    quietly(lambda: PARSERS[name](text))


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data())
def test_damaged_texts_raise_nothing_else(name: str, data: st.DataObject) -> None:
    text = data.draw(damaged_texts(VALID[name]))
    quietly(lambda: PARSERS[name](text))


@pytest.mark.parametrize("name", PARSERS)
def test_the_valid_examples_are_valid(name: str) -> None:
    for text in VALID[name]:
        PARSERS[name](text)


CPU_MAX_S = 10.0
"""While allocations are traced, which takes several times as long."""
BYTES_MAX = 256 * 1024 * 1024
BOMBS: list[tuple[str, str]] = [
    ("nodelist", "cn[1-999999999]"),
    ("nodelist", "cn[0-999999999999999999999999999999]"),
    ("nodelist", "a" + "[0-9]" * 40),
    ("nodelist", "[0-1]" * 10_000),
    ("nodelist", "[" * 100_000),
    ("nodelist", ",".join(["cn[0-99999]"] * 200)),
    ("nodelist", "a" * 1_000_000),
    ("nodelist", "[" + "0" * 200_000 + "-1]"),
    ("nodelist", "n[" + ",".join(["1"] * 200_000) + "][0-9][0-9]"),
    ("array", "0-2147483646"),
    ("array", ",".join(["0-999999"] * 10_000)),
    ("array", ",".join(["0-99:2"] * 10_000)),
    ("array", ",".join(map(str, range(200_000)))),
    ("array", "0-" + "9" * 100_000),
    ("jobs", "1_[0-999999]"),
    ("jobs", "9" * 100_000),
    ("dependency", "afterok" + ":1" * 1_000_000),
    ("dependency", "after:1+" + "9" * 100_000),
    ("dependency", ",".join(f"afterok:{job}" for job in range(1, 100_000))),
    ("time", "1:" * 100_000),
    ("time", "9" * 100_000),
    ("begin", "now+" + "9" * 100_000 + "weeks"),
    ("begin", "1:" * 100_000),
    ("begin", "2030-" * 100_000),
    ("mem", "9" * 100_000 + "T"),
    ("nodes", "1-" + "9" * 100_000 + "m"),
    ("states", "r," * 200_000),
    ("export", "A=," * 100_000),
    ("format", "%" * 200_000),
    ("format", "%" + "9" * 100_000 + "i"),
    ("only", "job=" + "9" * 100_000),
    ("only", "node=cn[1-999999999]"),
    ("rset", "+".join(["1:ncpus=1"] * 20_000)),
    ("rset", ":".join(f"a{number}=1" for number in range(20_000))),
    ("rset", "1:ncpus=1," + ",".join(f"a{number}=1" for number in range(20_000))),
    ("constraint", "(" * 100_000),
    ("constraint", "!" * 1_000 + "a"),
    ("constraint", "a&" * 100_000 + "a"),
    ("gres", ",".join(f"a{number}" for number in range(20_000))),
    ("licenses", ",".join(f"a{number}:1" for number in range(20_000))),
    ("cron", "* * * * " + ",".join(["1-5/2"] * 20_000)),
    ("cron", "*/" + "9" * 100_000 + " * * * *"),
    ("validity", " " * 100_000),
    ("validity", "cron(" + "*" * 100_000 + ")"),
    ("validity", ".." * 100_000),
    ("amount", "9" * 100_000 + "/" + "9" * 100_000 + "%"),
    ("access", " or ".join(["user=a"] * 20_000)),
    ("access", "user=" + "a," * 100_000),
    ("length", "1d" * 50_000),
    ("signal", "B:" * 50_000),
]


@pytest.mark.parametrize(("name", "text"), BOMBS, ids=lambda value: value[:24])
def test_a_short_text_costs_little(name: str, text: str) -> None:
    """Goal: nobody fills the memory or stops a daemon with a line. Method: CPU time and allocated bytes of one call."""
    tracemalloc.start()
    try:
        began_s = time.process_time()
        quietly(lambda: PARSERS[name](text))
        took_s = time.process_time() - began_s
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert took_s < CPU_MAX_S
    assert peak_bytes < BYTES_MAX


SCRIPTS = [
    b"#!/bin/sh\n#SBATCH -N 2 --time=1:00\n#ESLURM --mem '4 G'\necho x\n",
    b'#!/bin/bash\n# a remark\n\n#SBATCH --job-name="a \\" b" # why\n#SBATCH --array=0-3%2\n',
    "#!/bin/sh\n#SBATCH --comment=größer\n".encode(),
]


@given(damaged(SCRIPTS))
@example(b"#!/bin/sh\n" + b"#SBATCH -n 1\n" * 20_000)
@example(b"#!/bin/sh\n#SBATCH " + b'"' * 10_001)
@example(b"#!/bin/sh\n#SBATCH " + b"\\" * 10_001)
@example(b"#!/bin/sh\r\n#SBATCH \xff\xfe\n")
def test_damaged_scripts_raise_nothing_else(script: bytes) -> None:
    quietly(lambda: check_script(script, "run.sh"))
    quietly(lambda: read_directives(script))
    quietly(lambda: with_directives([Words()], script))


@given(
    st.binary(max_size=200) | ANY.map(lambda text: f"#!/bin/sh\n#SBATCH {text}".encode("utf-8", "replace"))
)
def test_scripts_raise_nothing_else(script: bytes) -> None:
    quietly(lambda: check_script(script, "run.sh"))
    quietly(lambda: read_directives(script))
    quietly(lambda: with_directives([Words()], script))


@pytest.mark.parametrize("command", ["essubmit", "esqueue", "esctl", "esrun"])
@given(
    words=st.lists(
        ANY | st.sampled_from(["-n", "--ntasks", "--time=5", "-Hn4", "--", "--n", "-", "--exclusive=x"]),
        max_size=6,
    )
)
def test_command_lines_raise_nothing_else(command: str, words: list[str]) -> None:
    quietly(lambda: Parser(rows_of(command)).parse(words))


AROUND = SubmitContext(
    cwd="/home/ada",
    host="login",
    umask=0o022,
    now_us=1_800_000_000_000_000,
    offset_s=lambda _: 0,
    environment={},
)
OPTION_WORDS = st.sampled_from(
    [
        "-n2",
        "-N",
        "4",
        "--mem=1G",
        "-p",
        "a",
        "-A",
        "-t5",
        "--hold",
        "--requeue",
        "--no-requeue",
        "-o",
        "-xcn1",
        "--wrap=a",
    ]
)
PART_LINES = st.lists(
    st.sampled_from(["#SBATCH hetjob", "#ESLURM packjob"])
    | st.tuples(st.sampled_from(["#SBATCH", "#ESLURM"]), OPTION_WORDS, OPTION_WORDS | ANY).map(" ".join),
    max_size=8,
)


@given(words=st.lists(OPTION_WORDS | st.just(":") | ANY, max_size=12), lines=PART_LINES)
@example(words=[":"] * 200, lines=[])
@example(words=[], lines=["#SBATCH hetjob"] * 10_001)
def test_parts_raise_nothing_else(words: list[str], lines: list[str]) -> None:
    parser = Parser(rows_of("essubmit"), options_end_at_first_word=True)
    script = "\n".join(["#!/bin/sh", *lines]).encode("utf-8", "surrogatepass")
    command = quietly(lambda: command_parts(parser.parse(words), parser))
    found = quietly(lambda: with_directives(command, script)) if command else None
    if found is None:
        return
    job, parts = found
    job = quietly(lambda: draft_job(job, b"#!/bin/sh\n", "run.sh", [], AROUND, parts))
    if job is not None:
        sent = pb.JobRequest.FromString(encode(job, JOB_REQUEST))
        assert len(sent.components) == (len(parts) or 1) <= PARTS_MAX


@given(st.dictionaries(st.sampled_from([row.long for row in rows_of("essubmit")]), ANY, max_size=6))
def test_drafts_can_always_be_sent(options: dict[str, str]) -> None:
    given_words = Words()
    for long, text in options.items():
        given_words.put(long, text, f"--{long}")
    job = quietly(lambda: draft_job(given_words, b"#!/bin/sh\n", "run.sh", ["x"], AROUND))
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


CONDITIONS = st.lists(
    st.tuples(
        st.sampled_from(["afterany", "afterok", "afternotok", "aftercorr"]),
        st.integers(1, 2**31 - 1),
        st.just(0),
        st.integers(-1, 2**31 - 2),
        st.integers(-1, 127),
    )
    | st.tuples(
        st.just("after"),
        st.integers(1, 2**31 - 1),
        st.integers(0, 1000).map(lambda minutes: minutes * 60),
        st.integers(-1, 100),
        st.just(-1),
    )
    | st.just(("singleton", 0, 0, -1, -1)),
    min_size=1,
    max_size=8,
    unique=True,
)


@given(CONDITIONS, st.booleans())
def test_dependencies_can_be_read_again(
    conditions: list[tuple[str, int, int, int, int]], is_any: bool
) -> None:
    shown = ("?" if is_any else ",").join(map(dependencies.format_condition, conditions))
    assert dependencies.parse_dependencies(shown) == (tuple(conditions), is_any and len(conditions) > 1)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=8))
def test_words_quoted_as_for_a_shell_can_be_read_again(words: list[str]) -> None:
    assert list(split_words(shlex.join(words), "line")) == words


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


@given(st.text(max_size=60) | damaged_texts(["out-%j.%4t", "%A_%a.%N", "%x/%u/%%j", "a\\%j", "%010n"]))
@example("%" * 10_000)
@example("%" + "9" * 10_000 + "j")
def test_file_names_never_fail(pattern: str) -> None:
    name = expand_pattern(pattern, FileNameFields(7, job_name="n/../x", user="u", node_name="h"))
    # What a name brings in opens no directory: every slash is the pattern's own.
    assert name.count("/") == pattern.count("/")


@given(st.binary(max_size=200))
def test_environments_never_fail(blob: bytes) -> None:
    variables = decode_environment(blob)
    assert decode_environment(encode_environment(variables)) == variables


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
