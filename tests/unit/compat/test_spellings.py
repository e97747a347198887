"""The meaning of each Slurm spelling, and one line for each mistake."""

from __future__ import annotations

import pytest

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
from eslurm.compat.errors import OptionError, nearest

DAY_S = 86_400
# 2026-03-04T10:30:00 UTC, a Wednesday.
NOW_S = moments.days_from_civil(2026, 3, 4) * DAY_S + 10 * 3600 + 1800


def utc(_utc_s: int) -> int:
    return 0


def plus_two_hours(_utc_s: int) -> int:
    return 7200


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 300),
        ("5:30", 330),
        ("1:30:00", 5400),
        ("2-12", 60 * 3600),
        ("2-12:30", 60 * 3600 + 1800),
        ("1-0:0:1", DAY_S + 1),
        ("0", 0),
        ("UNLIMITED", 0),
        ("infinite", 0),
        ("-1", 0),
        ("90:00", 5400),
    ],
)
def test_time_limits(text: str, seconds: int) -> None:
    assert durations.parse_time_limit(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5x", "1:2:3:4", "-", "1-", "-5", "1-1:1:1:1", "+5", " 5", "5_0", "٣", "9" * 30]
)
def test_bad_time_limits_name_the_option_and_the_way_out(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        durations.parse_time_limit(text, "-t")
    assert str(caught.value).startswith("-t: '" if text else "-t: an empty value is not")
    assert "use e.g. -t" in str(caught.value)


@pytest.mark.parametrize(
    ("seconds", "short", "long"),
    [
        (-3, "0:00", "00:00:00"),
        (7, "0:07", "00:00:07"),
        (5400, "1:30:00", "01:30:00"),
        (60 * 3600, "2-12:00:00", "2-12:00:00"),
    ],
)
def test_durations_are_shown_as_slurm_does(seconds: int, short: str, long: str) -> None:
    assert durations.format_duration(seconds) == short
    assert durations.format_elapsed(seconds) == long


def test_no_limit_is_shown_as_unlimited() -> None:
    assert durations.format_time_limit(0) == "UNLIMITED"
    assert durations.format_time_limit(60) == "1:00"


@pytest.mark.parametrize(
    ("text", "after_now_s"),
    [
        ("now", 0),
        ("now+90", 90),
        ("now+1hour", 3600),
        ("now+2hours", 7200),
        ("now + 3 days", 3 * DAY_S),
        ("now-1week", -7 * DAY_S),
        ("16:00", 5 * 3600 + 1800),
        ("4:00pm", 5 * 3600 + 1800),
        ("10:00", DAY_S - 1800),
        ("noon", 5400),
        ("midnight", 13 * 3600 + 1800),
        ("today", -(10 * 3600 + 1800)),
        ("tomorrow", 13 * 3600 + 1800),
        ("2026-03-05", 13 * 3600 + 1800),
        ("2026-03-05T10:30", DAY_S),
        ("2026-03-05 10:30:01", DAY_S + 1),
        ("03/05/26", 13 * 3600 + 1800),
        ("0305", None),
    ],
)
def test_moments(text: str, after_now_s: int | None) -> None:
    if after_now_s is None:
        with pytest.raises(OptionError):
            moments.parse_moment(text, NOW_S * 10**6, utc)
        return
    assert moments.parse_moment(text, NOW_S * 10**6, utc) == (NOW_S + after_now_s) * 10**6


def test_moments_are_local() -> None:
    # 12:30 on the wall: 16:00 is three and a half hours away.
    assert moments.parse_moment("16:00", NOW_S * 10**6, plus_two_hours) == (NOW_S + 12_600) * 10**6
    assert moments.format_moment(NOW_S * 10**6, plus_two_hours) == "2026-03-04T12:30:00"


def test_a_clock_time_in_a_query_is_todays() -> None:
    at_us = moments.parse_moment("10:00", NOW_S * 10**6, utc, "-S", past=True)
    assert at_us == (NOW_S - 1800) * 10**6


def test_summer_time_begins_between_now_and_then() -> None:
    change_s = NOW_S + 3600

    def offset_s(utc_s: int) -> int:
        return 7200 if utc_s >= change_s else 3600

    at_us = moments.parse_moment("2026-03-04T16:00", NOW_S * 10**6, offset_s)
    assert moments.format_moment(at_us, offset_s) == "2026-03-04T16:00:00"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nowish",
        "now+",
        "now*2",
        "now+1fortnight",
        "25:00",
        "12:60",
        "13:00pm",
        "2026-02-30",
        "1969-01-01",
        "soon",
    ],
)
def test_bad_moments(text: str) -> None:
    with pytest.raises(OptionError, match="--begin"):
        moments.parse_moment(text, NOW_S * 10**6, utc)


def test_the_calendar_counts_back_and_forth() -> None:
    for days in (0, 59, 60, 11_016, 19_782, 47_540, 2_932_896):
        assert moments.days_from_civil(*moments.civil_from_days(days)) == days
    assert moments.civil_from_days(11_016) == (2000, 2, 29)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("4G", 4096),
        ("512", 512),
        ("512M", 512),
        ("1025K", 2),
        ("2t", 2 * 1024**2),
        ("4GiB", 4096),
        ("4GB", 4096),
        ("0", 0),
    ],
)
def test_memory(text: str, mib: int) -> None:
    assert sizes.parse_memory(text) == mib


@pytest.mark.parametrize("text", ["", "G", "4X", "-1", "1.5G", "4 G", "B", "9" * 15 + "T"])
def test_bad_memory(text: str) -> None:
    with pytest.raises(OptionError, match="--mem"):
        sizes.parse_memory(text)


def test_memory_is_shown_in_its_largest_whole_unit() -> None:
    assert [sizes.format_memory(mib) for mib in (0, 512, 4096, 1536, 1024**2)] == [
        "0M",
        "512M",
        "4G",
        "1536M",
        "1T",
    ]


@pytest.mark.parametrize(
    ("text", "counts"), [("4", (4, 4)), ("2-4", (2, 4)), ("2k", (2048, 2048)), ("1-1m", (1, 1024**2))]
)
def test_node_counts(text: str, counts: tuple[int, int]) -> None:
    assert nodecounts.parse_node_count(text) == counts


@pytest.mark.parametrize("text", ["", "0", "4-2", "a", "-4", "2-", "1-0", "k", "9999999999"])
def test_bad_node_counts(text: str) -> None:
    with pytest.raises(OptionError, match="--nodes"):
        nodecounts.parse_node_count(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cn1", ("cn1",)),
        ("cn[1-3]", ("cn1", "cn2", "cn3")),
        ("cn[08-11,7]", ("cn08", "cn09", "cn10", "cn11", "cn7")),
        ("b,a[2,1]", ("b", "a2", "a1")),
        ("r[1-2]c[01-02]n", ("r1c01n", "r1c02n", "r2c01n", "r2c02n")),
    ],
)
def test_hostlists_keep_their_order(text: str, names: tuple[str, ...]) -> None:
    assert hostlist.expand(text) == names


def test_folding_keeps_order_and_padding() -> None:
    assert hostlist.fold(["cn0001", "cn0002", "cn0003", "cn0007", "login"]) == "cn[0001-0003,0007],login"
    assert hostlist.fold(["cn2", "cn1"]) == "cn[2,1]"
    assert hostlist.fold(["a9", "a10", "a010"]) == "a[9-10,010]"
    assert hostlist.fold([]) == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "cn[",
        "cn]",
        "cn[]",
        "cn[1-]",
        "cn[2-1]",
        "cn[a]",
        "c[[1]]",
        "a b",
        "cn[1-2000000]",
        "[1-2000][1-2000]",
        "x" * 300,
    ],
)
def test_bad_hostlists(text: str) -> None:
    with pytest.raises(OptionError, match="--nodelist"):
        hostlist.expand(text)


@pytest.mark.parametrize(
    ("text", "ranges", "limit"),
    [
        ("0-15", ((0, 15, 1),), 0),
        ("0-15:2%4", ((0, 14, 2),), 4),
        ("1,3,7", ((1, 1, 1), (3, 3, 1), (7, 7, 1)), 0),
        ("20,0-3", ((0, 3, 1), (20, 20, 1)), 0),
        ("0-4,2-6", ((0, 6, 1),), 0),
        ("0-8:4,2-10:4", ((0, 10, 2),), 0),
        ("5,5", ((5, 5, 1),), 0),
    ],
)
def test_arrays(text: str, ranges: arrays.TaskRanges, limit: int) -> None:
    assert arrays.parse_array(text) == (ranges, limit)


@pytest.mark.parametrize(
    "text",
    ["", "a", "3-1", "0-5:0", "1:2", "0-5%", "0-5%0", "0-5%x", "-1", "1,,2", "0-9999999", "4294967295"],
)
def test_bad_arrays(text: str) -> None:
    with pytest.raises(OptionError, match="--array"):
        arrays.parse_array(text)


def test_arrays_are_shown_as_they_are_written() -> None:
    assert arrays.format_array(((0, 14, 2), (20, 20, 1)), 4) == "0-14:2,20%4"


def test_dependencies() -> None:
    assert dependencies.parse_dependencies("afterok:12:13,after:10+5,singleton,afterok:12") == (
        (
            ("afterok", 12, 0, -1, -1),
            ("afterok", 13, 0, -1, -1),
            ("after", 10, 300, -1, -1),
            ("singleton", 0, 0, -1, -1),
        ),
        False,
    )


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("12", ("afterany", 12, 0, -1, -1)),
        ("AfterOK:12_4", ("afterok", 12, 0, 4, -1)),
        ("afterany:12_*", ("afterany", 12, 0, -1, -1)),
        ("afterok:12+2", ("afterok", 12, 0, -1, 2)),
        ("afterok:12_4+2", ("afterok", 12, 0, 4, 2)),
        ("after:12_4+2", ("after", 12, 120, 4, -1)),
    ],
)
def test_a_dependency_names_a_job_a_task_or_a_part(
    text: str, condition: tuple[str, int, int, int, int]
) -> None:
    assert dependencies.parse_dependencies(text) == ((condition,), False)
    fields = dependencies.dependency_fields(condition)
    assert fields.get("task", -1) == condition[3]
    assert fields.get("part", -1) == condition[4]


def test_any_of_several_dependencies_is_enough() -> None:
    conditions, is_any = dependencies.parse_dependencies("afterok:1?12?singleton")
    assert is_any
    assert [kind for kind, *_ in conditions] == ["afterok", "afterany", "singleton"]
    assert not dependencies.parse_dependencies("afterok:1?afterok:1")[1], "one condition is that one"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("afterok", "names no job"),
        ("afterok:", "not a job id"),
        ("afterok:0", "not a job id"),
        ("afterok:99999999999", "not a job id"),
        ("aftermath:3", "not one of"),
        ("afterok:1?afterok:2,afterok:3", "mixes ',' (all of them) with '?' (any of them)"),
        ("afterok:1?", "has an empty value which is not one of"),
        ("afterany:14_x", "not a task of an array"),
        ("afterany:14_", "not a task of an array"),
        ("afterok:3+x", "not a part of a job"),
        ("afterok:3+", "not a part of a job"),
        ("12+5x", "not a part of a job"),
        ("afterburstbuffer:3", "waits for a burst buffer, and there are none here"),
        ("burst_buffer", "waits for a burst buffer"),
        ("expand:3", "not supported"),
        ("after:3+x", "no number of minutes"),
        ("singleton:3", "names jobs"),
    ],
)
def test_bad_dependencies(text: str, why: str) -> None:
    with pytest.raises(OptionError) as caught:
        dependencies.parse_dependencies(text)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_dependencies_are_shown_as_they_are_written() -> None:
    for text in (
        "afterok:12,after:10+5,singleton",
        "afterok:12_4?afterany:13+1",
        "after:12_4+3?aftercorr:3_0+2",
    ):
        conditions, is_any = dependencies.parse_dependencies(text)
        assert ("?" if is_any else ",").join(map(dependencies.format_condition, conditions)) == text


def test_job_references() -> None:
    assert jobrefs.parse_job_refs("17") == ((17, -1, -1, ""),)
    assert jobrefs.parse_job_refs("17_4") == ((17, 4, -1, ""),)
    assert jobrefs.parse_job_refs("17_[4-6,9]") == (
        (17, 4, -1, ""),
        (17, 5, -1, ""),
        (17, 6, -1, ""),
        (17, 9, -1, ""),
    )
    assert jobrefs.parse_job_refs("17+1") == ((17, -1, 1, ""),)
    assert jobrefs.parse_job_refs("17_4+0") == ((17, 4, 0, ""),)
    assert jobrefs.parse_job_refs("17_[4,9]+2") == ((17, 4, 2, ""), (17, 9, 2, ""))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "0",
        "17_",
        "17_x",
        "17_[",
        "17_[]",
        "17_[1%2]",
        "17_[0-999999]",
        "-3",
        "17+",
        "17+x",
        "17+128",
        "+1",
        "17_+1",
    ],
)
def test_bad_job_references(text: str) -> None:
    with pytest.raises(OptionError, match="job"):
        jobrefs.parse_job_refs(text)


def test_states() -> None:
    assert states.parse_states("pd,R,completing") == ("PENDING", "RUNNING", "COMPLETING")
    assert states.parse_states("CF") == ("LAUNCHING",)
    assert states.parse_states("all") == tuple(states.SHORT_CODES)
    with pytest.raises(OptionError, match="not a job state"):
        states.parse_states("R,sleeping")


def test_every_job_state_of_the_core_has_a_short_code() -> None:
    from eslurm.core.model.job_states import FINAL, JobState

    assert set(states.SHORT_CODES) == {state.value for state in JobState}
    assert set(states.FINAL_STATES) == {state.value for state in FINAL}
    assert set(states.FINAL_STATES) | set(states.LIVE_STATES) == set(states.SHORT_CODES)


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("resources", "Resources"),
        ("nodes_unavailable", "ReqNodeNotAvail"),
        ("Dependency", "Dependency"),
        ("out_of_luck", "OutOfLuck"),
    ],
)
def test_reasons(reason: str, shown: str) -> None:
    assert states.reason_name(reason) == shown


def test_node_states() -> None:
    assert states.node_state("UP", [], 0, 8) == "idle"
    assert states.node_state("UP", [], 3, 8) == "mixed"
    assert states.node_state("UP", [], 8, 8) == "allocated"
    assert states.node_state("UP", ["DRAIN"], 3, 8) == "draining"
    assert states.node_state("UP", ["drain"], 0, 8) == "drained"
    assert states.node_state("LOST", ["drain"], 0, 8) == "down"
    assert states.node_state("UNREACHABLE", [], 8, 8) == "unreachable"
    assert states.node_state("UP", ["LOGIN"], 0, 0) == "login"
    assert states.node_state("LOST", ["LOGIN"], 0, 0) == "down"


def test_an_error_is_one_line_whatever_the_value() -> None:
    error = OptionError("--time", "5\n\x1b[2J" + "x" * 500, "is not a time", "use 5")
    assert str(error).isprintable()
    assert len(str(error)) < 150


def test_the_nearest_word() -> None:
    assert nearest("tiem", ["time", "name"]) == "time"
    assert nearest("zzzzzz", ["time", "name"]) == ""
