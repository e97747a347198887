"""Formats of squeue, sinfo and sacct, byte for byte as Slurm documents them."""

from __future__ import annotations

import pytest

from eslurm.compat.slurm import layout, run_fields
from eslurm.compat.slurm.array_text import tasks_text
from eslurm.compat.slurm.getopt import UsageProblem
from eslurm.compat.slurm.words import job_states


def shown(text: str, *cells: str) -> str:
    return "".join(column.show(cell) for column, cell in zip(layout.letters(text), cells, strict=True))


def test_letters_pad_and_cut_as_printf_does() -> None:
    assert shown("%.5i|", "12") == "   12|"
    assert shown("%.5i %5j %t", "1234567", "abcdefgh", "PD") == "12345 abcde PD"
    assert shown("%6t.", "R") == "R     ."
    assert shown("at %i, %j!", "1", "a") == "at 1, a!"


def test_a_separator_of_one_control_character_stays() -> None:
    assert shown("%i\x1f%T", "17", "RUNNING") == "17\x1fRUNNING"


def test_names_have_twenty_characters_unless_a_width_is_given() -> None:
    columns = layout.names("JobID,Name:5,State:.8|,Reason:0;,Foo:")
    cells = [column.show("abcdefgh") for column in columns]
    assert cells == ["abcdefgh" + " " * 12, "abcde", "abcdefgh|", "abcdefgh;", "abcdefgh"]
    assert layout.names("nodelist:0")[0].show("x") == "x"


def test_a_width_beyond_all_reason_is_refused() -> None:
    with pytest.raises(UsageProblem):
        layout.letters("%99999i")


@pytest.mark.parametrize(
    ("seconds", "short", "long"),
    [
        (0, "0:00", "00:00:00"),
        (59, "0:59", "00:00:59"),
        (3600, "1:00:00", "01:00:00"),
        (93784, "1-02:03:04", "1-02:03:04"),
    ],
)
def test_times(seconds: int, short: str, long: str) -> None:
    assert (layout.clock_text(seconds), layout.padded_clock(seconds)) == (short, long)


@pytest.mark.parametrize(
    ("mib", "text"), [(0, "0"), (1, "1M"), (1024, "1G"), (1536, "1536M"), (1 << 20, "1T"), (3013, "3013M")]
)
def test_memory(mib: int, text: str) -> None:
    assert layout.memory_text(mib) == text


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("3-9%4", "3-9%4"),
        ("0,2,4,6", "0-6:2"),
        ("0,2,4,6%2", "0-6:2%2"),
        ("1,3", "1,3"),
        ("1-3,7", "1-3,7"),
        ("1,3,6", "1,3,6"),
    ],
)
def test_tasks_of_arrays(ours: str, theirs: str) -> None:
    assert tasks_text(ours) == theirs


def test_states_are_read_by_both_their_names() -> None:
    assert job_states(["pd", "RUNNING", "cf"], "") == {"PENDING", "RUNNING", "LAUNCHING"}
    assert job_states(["all"], "") is None
    assert job_states(["BF"], "") == {"BOOT_FAIL"}
    with pytest.raises(UsageProblem, match="wrong XX"):
        job_states(["XX"], "wrong {}")


def test_sacct_marks_what_it_cuts() -> None:
    run = run_fields.Run()
    run.label, run.state, run.by_uid, run.name = "17", "CANCELLED", 1000, "a_long_name"
    writer = run_fields.Writer(0, "c", str)
    table = run_fields.lines(
        run_fields.columns("jobid,jobname,state,state%-20,jobname%20"), [run], writer, has_header=True
    )
    assert table == [
        "JobID           JobName      State State                             JobName \n",
        "------------ ---------- ---------- -------------------- -------------------- \n",
        "17           a_long_na+ CANCELLED+ CANCELLED by 1000             a_long_name \n",
    ]


@pytest.mark.parametrize(
    ("ending", "is_ended", "text"),
    [("|", False, "JobID|State\n17|RUNNING\n"), (";", True, "JobID;State;\n17;RUNNING;\n")],
)
def test_sacct_for_programs(ending: str, is_ended: bool, text: str) -> None:
    run = run_fields.Run()
    run.label, run.state = "17", "RUNNING"
    found = run_fields.lines(
        run_fields.columns("jobid,state"),
        [run],
        run_fields.Writer(0, "c", str),
        has_header=True,
        ending=ending,
        is_ended=is_ended,
    )
    assert "".join(found) == text


def test_columns_of_sacct_may_be_shortened() -> None:
    assert [one.name for one in run_fields.columns("jobidr,tresusageinmaxn,STATE%3")] == [
        "JobIDRaw",
        "TRESUsageInMaxNode",
        "State",
    ]
    with pytest.raises(UsageProblem, match='Invalid field requested: "foo"'):
        run_fields.columns("foo")


@pytest.mark.parametrize(
    ("kib", "unit", "text"),
    [(25504, "", "25504K"), (1024, "", "1M"), (1024, "K", "1024K"), (25504, "G", "0.02G"), (0, "", "0")],
)
def test_units_of_sacct(kib: int, unit: str, text: str) -> None:
    assert run_fields.Writer(0, "c", str, unit).kib(kib) == text


def test_cpu_times() -> None:
    assert run_fields.cpu_text(12_000) == "00:00.012"
    assert run_fields.cpu_text(3_723_500_000) == "01:02:03"
    assert run_fields.cpu_text(-1) == ""
