"""Workload logs in and out: every line is read as it stands, or named by its place."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.lab.workloads.swf import FIELDS, LINE_BYTES_MAX, Header, Record, SwfError, SwfFile, write_swf

GOOD = "7 120 -1 60 4 55.25 -1 4 90 2048.5 1 3 2 9 1 1 -1 -1"


def read(path: Path) -> tuple[Header, list[Record]]:
    with SwfFile(path) as log:
        return log.header, list(log)


def written(directory: Path, *lines: str) -> Path:
    path = directory / "log.swf"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_line_is_read_field_by_field(tmp_path: Path) -> None:
    _, (record,) = read(written(tmp_path, GOOD))
    assert record == Record(
        job_id=7,
        submit_s=120,
        run_s=60,
        allocated=4,
        cpu_s=55.25,
        requested=4,
        requested_s=90,
        requested_kib=2048.5,
        status=1,
        user=3,
        group=2,
        program=9,
        queue=1,
        partition=1,
    )


def test_the_header_says_what_the_machine_was(tmp_path: Path) -> None:
    header, records = read(
        written(
            tmp_path,
            "; Computer: IBM SP2",
            ";MaxNodes: 338 (batch partition; 512 total)",
            "; MaxProcs:   -1",
            "; Queue:  1 DSI      ",
            "; Queue: two",
            ";  a note: of two words",
            "",
            GOOD,
            "; a comment further down: 1",
            GOOD,
        )
    )
    assert header.find("computer") == "IBM SP2"
    assert header.find("Note") is None
    assert header.find_number("MaxNodes") == 338
    assert header.find_number("MaxProcs") == -1
    assert header.find_number("Computer") is None
    assert header.names_of("Queue") == {1: "DSI"}
    assert len(records) == 2


def test_gzip_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_bytes(gzip.compress(f"; MaxProcs: 4\n{GOOD}\n".encode()))
    header, records = read(path)
    assert header.find_number("MaxProcs") == 4 and len(records) == 1


def test_unusual_numbers_are_read_carefully(tmp_path: Path) -> None:
    _, (record,) = read(written(tmp_path, GOOD.replace(" 120 ", " +1.2e2 ").replace(" 60 ", " 60. ")))
    assert (record.submit_s, record.run_s) == (120, 60)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            GOOD.replace("120", "12O"),
            "line 2, column 3: '12O' is not a number (submit_s): write -1 for what is not known",
        ),
        (GOOD.replace("120", "1_0"), "column 3: '1_0' is not a number"),
        (GOOD.replace("120", "nan"), "column 3: 'nan' is not a number"),
        (GOOD.replace("120", "٣"), "column 3: '٣' is not a number"),
        (GOOD.replace(" 60 ", " 60.5 "), "column 10: '60.5' is not a whole number (run_s)"),
        (
            GOOD.replace("120", "120000000001"),
            "column 3: '120000000001' is out of range (submit_s): the most is 1e11",
        ),
        (GOOD + " 5", f"column {len(GOOD) + 2}: 19 numbers: a job has 18"),
        ("7 120", "column 6: 2 numbers: a job has 18, -1 for what is not known"),
        ("7 \x1b[2J", "column 3: '\\x1b[2J' is not a number"),
    ],
)
def test_a_line_that_does_not_parse_is_named(tmp_path: Path, line: str, told: str) -> None:
    path = written(tmp_path, "; MaxProcs: 4", line)
    with pytest.raises(SwfError) as refused:
        read(path)
    assert told in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.swf.gz"
    whole = gzip.compress((GOOD + "\n").encode() * 2000)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SwfError, match="the compressed file is damaged"):
        read(path)


def test_a_file_that_is_no_log_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_bytes(b"1" * (LINE_BYTES_MAX + 2))
    with pytest.raises(SwfError, match="line 1: is longer than 65536 bytes"):
        read(path)


WHOLE = st.integers(-1, 10**10)
RECORDS = st.builds(
    Record,
    **dict.fromkeys(Record.__struct_fields__, WHOLE)
    | dict.fromkeys(("cpu_s", "used_kib", "requested_kib"), WHOLE.map(lambda value: value / 4)),
)


@pytest.mark.parametrize("suffix", [".swf", ".swf.gz"])
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, suffix: str) -> None:
    directory = tmp_path_factory.mktemp("written")

    @given(st.lists(RECORDS, max_size=5))
    def holds(records: list[Record]) -> None:
        path = directory / f"log{suffix}"
        write_swf(path, [" MaxProcs: 4", " a line"], records)
        first = path.read_bytes()
        header, found = read(path)
        assert header.lines == (" MaxProcs: 4", " a line")
        assert found == records
        write_swf(path, header.lines, found)
        assert path.read_bytes() == first

    holds()


def test_a_job_has_eighteen_fields() -> None:
    assert len(Record.__struct_fields__) == FIELDS
