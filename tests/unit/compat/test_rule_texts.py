"""Validities, amounts, access and lengths as administrators write them: both ways, and what is wrong with its column."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.compat.access import access_text, parse_access
from eslurm.compat.amounts import amount_text, parse_amount
from eslurm.compat.cron import parse_cron
from eslurm.compat.errors import OptionError
from eslurm.compat.lengths import length_text, parse_length
from eslurm.compat.validity import parse_validity, validity_text
from eslurm.core.model.accounts import UNLIMITED, Access, Amount, Validity
from eslurm.core.model.hostlist import fold, unfold
from eslurm.core.model.units import SECOND_US

AUGUST = Validity(1_501_545_600 * SECOND_US, 1_504_224_000 * SECOND_US)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("always", Validity()),
        ("2017-08-01..2017-08-31", AUGUST),
        ("..2017-08-31", Validity(0, AUGUST.until_us)),
        ("2017-08-01..", Validity(AUGUST.from_us)),
        ("2017-08-01T00:00..2017-09-01T00:00:00", AUGUST),
        ("cron(* 7-10 * * mon,fri)", Validity(cron="* 7-10 * * 1,5")),
        ("cron(0 8 1-7 */2 mon)+10h", Validity(cron="0 8 1-7 */2 1", duration_s=36_000)),
        (
            "2017-08-01..2017-08-31 cron(0 8 * * mon#1)+1d",
            Validity(AUGUST.from_us, AUGUST.until_us, "0 8 * * 1#1", 86_400),
        ),
    ],
)
def test_validities_are_read(text: str, expected: Validity) -> None:
    assert parse_validity(text) == expected
    assert parse_validity(validity_text(expected)) == expected


def test_dates_are_the_sites_days() -> None:
    def berlin_summer(utc_s: int) -> int:
        return 7200

    read = parse_validity("2017-08-01..2017-08-31", offset_s=berlin_summer)
    assert read == Validity(AUGUST.from_us - 7200 * SECOND_US, AUGUST.until_us - 7200 * SECOND_US)
    assert validity_text(read, berlin_summer) == "2017-08-01..2017-08-31"


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("", 1),
        ("  ", 3),
        ("sometimes", 1),
        ("2017-08-01", 1),
        ("2017-08-32..", 1),
        ("2017-08-31..2017-08-01", 1),
        ("2017-08-01..soon", 13),
        ("cron * * * * *", 1),
        ("cron(* * * *)", 13),
        ("cron(* * * * * *)", 16),
        ("cron(60 * * * *)", 6),
        ("cron(* 7-x * * *)", 10),
        ("cron(* 10-7 * * *)", 8),
        ("cron(*/0 * * * *)", 8),
        ("cron(* * * * mon#6)", 18),
        ("cron(0 0 31 feb *)", 10),
        ("cron(0 0 */20 * fri#2)", 10),
        ("cron(* * * * *)+soon", 17),
        ("cron(0 8 * * *)+30s", 17),
        ("cron(0 8 * * *)+367d", 17),
        ("cron(0 8 * * *)+9000000000w", 17),
        ("cron(* * * * *) cron(* * * * *)", 17),
        ("cron(* * * * *) 2017-08-01..", 17),
    ],
)
def test_a_wrong_validity_names_the_column(text: str, column: int) -> None:
    with pytest.raises(OptionError, match=rf"column {column}\b.*: write "):
        parse_validity(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("640", Amount(640)),
        ("30/45%", Amount(30, 45.0)),
        ("20%", Amount(UNLIMITED, 20.0)),
        ("12.5%", Amount(UNLIMITED, 12.5)),
        ("unlimited", Amount()),
        ("all", Amount()),
        ("0", Amount(0)),
    ],
)
def test_amounts_are_read(text: str, expected: Amount) -> None:
    assert parse_amount(text) == expected
    assert parse_amount(amount_text(expected)) == expected


def test_amounts_of_memory_carry_units() -> None:
    assert parse_amount("2G/10%", resource="memory_mib") == Amount(2048, 10.0)
    assert amount_text(Amount(2048, 10.0), "memory_mib") == "2G/10%"


@pytest.mark.parametrize(
    ("text", "column"), [("x", 1), ("20%/10", 1), ("5/x", 4), ("5/0%", 3), ("5/101%", 3), ("-3", 1), ("", 1)]
)
def test_a_wrong_amount_names_the_column(text: str, column: int) -> None:
    with pytest.raises(OptionError, match=rf"column {column}\b.*30/45%"):
        parse_amount(text)


def test_access_is_read() -> None:
    text = "cores<4 and time<1h or group=G1 or group=G2 or user=alice,bob or time<=2h"
    assert parse_access(text) == (
        Access(items_below=4, time_below_s=3600),
        Access(groups=("G1",)),
        Access(groups=("G2",)),
        Access(users=("alice", "bob")),
        Access(time_max_s=7200),
    )
    assert access_text(parse_access(text)) == text
    assert parse_access("nobody") == ()
    assert access_text(()) == "nobody"
    assert parse_access("gpu<=2", "gpu") == (Access(items_below=3),)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("", 1),
        ("cores", 1),
        ("cores<4 and", 12),
        ("or cores<4", 1),
        ("cores<4 time<1h", 9),
        ("cores<x", 7),
        ("cores<0", 7),
        ("time<0", 6),
        ("user<3", 1),
        ("user=a,,b", 1),
        ("gpu<4", 1),
        ("cores<4 and cores<5", 13),
    ],
)
def test_a_wrong_access_names_the_column(text: str, column: int) -> None:
    with pytest.raises(OptionError, match=rf"column {column}\b"):
        parse_access(text)


def test_an_unknown_word_names_the_nearest() -> None:
    with pytest.raises(OptionError, match="did you mean cores"):
        parse_access("coers<4")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4d3h", 356_400),
        ("500h", 1_800_000),
        ("90m", 5400),
        ("90", 5400),
        ("1-12:00:00", 129_600),
        ("none", 0),
    ],
)
def test_lengths_are_read(text: str, seconds: int) -> None:
    assert parse_length(text, "duration") == seconds
    assert parse_length(length_text(seconds), "duration") == seconds


@pytest.mark.parametrize("text", ["3x", "h", "3h4", "", "-5h"])
def test_a_wrong_length_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="duration"):
        parse_length(text, "duration")


def test_sunday_is_0_and_7() -> None:
    assert parse_cron("0 0 * * 7").weekdays == parse_cron("0 0 * * sun").weekdays == (6,)
    assert parse_cron("0 0 * * */2").weekdays == (1, 3, 5, 6)


@given(st.lists(st.from_regex(r"[a-z]{0,3}[0-9]{0,4}[a-z]{0,2}", fullmatch=True).filter(bool), max_size=12))
def test_the_core_unfolds_what_it_folds(hosts: list[str]) -> None:
    assert unfold(fold(hosts)) == tuple(hosts)


def test_the_core_unfolds_what_people_write() -> None:
    assert unfold("cn[0001-0003,0007]x,login1") == ("cn0001x", "cn0002x", "cn0003x", "cn0007x", "login1")


names = st.text("abcXYZ019_.-@", min_size=1, max_size=6)
name_tuples = st.lists(names, min_size=0, max_size=3).map(tuple)
ways_in = st.builds(
    Access,
    users=name_tuples,
    groups=name_tuples,
    accounts=name_tuples,
    qos=name_tuples,
    items_below=st.integers(0, 99),
    time_below_s=st.integers(0, 10**7),
    time_max_s=st.integers(0, 10**7),
).filter(lambda way: way != Access())


@given(st.lists(ways_in, max_size=4).map(tuple))
def test_access_survives_being_written(ways: tuple[Access, ...]) -> None:
    assert parse_access(access_text(ways)) == ways


@given(
    st.builds(
        Amount,
        items=st.integers(UNLIMITED, 10**9),
        percent=st.one_of(st.just(0.0), st.integers(1, 10_000).map(lambda n: n / 100)),
    )
)
def test_amounts_survive_being_written(amount: Amount) -> None:
    assert parse_amount(amount_text(amount)) == amount


@given(st.integers(0, 10**9))
def test_lengths_survive_being_written(seconds: int) -> None:
    assert parse_length(length_text(seconds), "x") == seconds


@given(
    st.integers(10**5, 4 * 10**9),
    st.integers(0, 10**9),
    st.sampled_from(["", "* 7-10 * * 1,5", "0 8 * */2 1#1", "*/5 * L * *"]),
    st.just(0) | st.integers(60, 10**6),
    st.sampled_from([0, 3600, -18_000]),
)
def test_validities_survive_being_written(
    from_s: int, length_s: int, cron: str, duration_s: int, offset: int
) -> None:
    until_s = from_s + length_s if length_s else 0
    validity = Validity(from_s * SECOND_US, until_s * SECOND_US, cron, duration_s if cron else 0)
    written = validity_text(validity, lambda _: offset)
    assert parse_validity(written, offset_s=lambda _: offset) == validity


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_validity, parse_amount, parse_access, parse_cron):
        try:
            parse(text)
        except OptionError as error:
            assert "\n" not in str(error)
