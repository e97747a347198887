"""Options as getopt_long reads them, with its words for what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.compat.slurm import (
    sacct_options,
    sbatch_options,
    scancel_options,
    scontrol_options,
    sinfo_options,
    squeue_options,
)
from eslurm.compat.slurm.getopt import Parser, UsageProblem, refusal

TABLES = {
    "sbatch": sbatch_options.ROWS,
    "squeue": squeue_options.ROWS,
    "sacct": sacct_options.ROWS,
    "scancel": scancel_options.ROWS,
    "sinfo": sinfo_options.ROWS,
    "scontrol": scontrol_options.ROWS,
}
SQUEUE = Parser(squeue_options.ROWS)


def read(*words: str) -> list[tuple[str, str]]:
    return [(row.long, value) for row, value, _ in SQUEUE.parse(words).found]


def test_all_spellings_of_an_option() -> None:
    assert read("-o", "%i", "-o%i", "--format=%i", "--format", "%i") == [("format", "%i")] * 4
    assert read("-ho%i") == [("noheader", ""), ("format", "%i")]
    assert read("--noh", "--job=1", "--cluster", "a") == [("noheader", ""), ("jobs", "1"), ("clusters", "a")]
    assert read("-j17", "-j", "--me") == [("jobs", "17"), ("jobs", ""), ("me", "")]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--nosuch"], "unrecognized option '--nosuch'"),
        (["-Y"], "invalid option -- 'Y'"),
        (["-o"], "option requires an argument -- 'o'"),
        (["--format"], "option '--format' requires an argument"),
        (["--me=1"], "option '--me' doesn't allow an argument"),
        (
            ["--s"],
            "option '--s' is ambiguous; possibilities: '--sibling' '--sort' '--start' '--states' '--steps'",
        ),
    ],
)
def test_what_is_wrong_is_said_as_getopt_says_it(words: list[str], text: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        SQUEUE.parse(words)
    assert caught.value.text == text
    assert caught.value.has_hint


def test_words_and_options_mix_unless_the_command_stops_at_a_word() -> None:
    assert SQUEUE.parse(["a", "-h", "--", "-x"]).rest == ["a", "-x"]
    stopped = Parser(sbatch_options.ROWS, stops=True).parse(["-n1", "job.sh", "-n2"])
    assert (stopped.rest, stopped.last("ntasks")) == (["job.sh", "-n2"], "1")


def test_values_that_mean_nothing_here_pass_and_others_are_refused() -> None:
    parser = Parser(sbatch_options.ROWS)
    assert [refusal(*one) for one in parser.parse(["--profile=NONE", "--hold"]).found] == ["", ""]
    assert [refusal(*one) for one in parser.parse(["--profile=task", "--overcommit"]).found] == [
        "--profile=task is not supported: tasks are not profiled",
        "--overcommit is not supported: a core has one task",
    ]


@pytest.mark.parametrize("command", TABLES)
def test_tables_name_each_option_once_and_say_what_is_refused(command: str) -> None:
    rows = TABLES[command]
    assert len({row.long for row in rows}) == len(rows)
    shorts = [row.short for row in rows if row.short]
    assert len(set(shorts)) == len(shorts)
    names = {row.long for row in rows}
    for row in rows:
        assert row.kind in "-=?", row.long
        assert row.treatment in ("yes", "no", "none") or row.treatment.startswith(("only:", "as:")), row.long
        assert row.note or row.treatment != "no", row.long
        assert not row.treatment.startswith("as:") or row.treatment[3:] in names


def test_every_variable_names_an_option_of_sbatch() -> None:
    assert set(sbatch_options.VARIABLES.values()) <= {row.long for row in sbatch_options.ROWS}


@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    for rows in TABLES.values():
        try:
            Parser(rows).parse(words)
        except UsageProblem as problem:
            assert problem.text
