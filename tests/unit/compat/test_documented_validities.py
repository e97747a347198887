"""Every validity in the guides and examples opens when the text beside it says: each is evaluated over one year."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eslurm.calendar import SiteCalendar
from eslurm.compat.validity import parse_validity

ROOT = Path(__file__).parents[3]
DOCUMENTS = (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.toml"))
SAMPLES = (*(ROOT / "eslurm" / "compat").glob("*.py"),)
_VALIDITY = re.compile(r"(?:\d{4}-\d\d-\d\d\.\.\d{4}-\d\d-\d\d )?(?<!\w)cron\([^().]+\)(?:\+\w+)?")
_HOUR_US = 3_600_000_000

FOUND = {
    match: path.relative_to(ROOT)
    for path in (*DOCUMENTS, *SAMPLES)
    for match in _VALIDITY.findall(path.read_text(encoding="utf-8"))
}
YEAR_2025 = {
    # text: (windows in 2025, hours of each, the first ones as MM-DD HH)
    "cron(* 7-10 * * mon,fri)": (104, 4, ("01-03 07", "01-06 07")),
    "2018-01-01..2025-12-31 cron(* 7-10 * * mon,fri)": (104, 4, ("01-03 07", "01-06 07")),
    "cron(0 8 * */2 mon#1)+10h": (6, 10, ("01-06 08", "03-03 08", "05-05 08")),
    "cron(0 8 * * mon)+4h": (52, 4, ("01-06 08", "01-13 08")),
    "cron(0 8 * * *)+10h": (365, 10, ("01-01 08", "01-02 08")),
}


def _us(*fields: int) -> int:
    return int(datetime(*fields, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[arg-type]


def test_each_documented_validity_has_its_windows_here() -> None:
    assert {text: str(path) for text, path in FOUND.items() if text not in YEAR_2025} == {}
    assert set(YEAR_2025) == set(FOUND)


@pytest.mark.parametrize("text", YEAR_2025)
def test_it_opens_when_the_text_says(text: str) -> None:
    count, hours, first = YEAR_2025[text]
    windows = SiteCalendar().windows(parse_validity(text), _us(2025, 1, 1), _us(2026, 1, 1))
    assert len(windows) == count
    assert {until_us - from_us for from_us, until_us in windows} == {hours * _HOUR_US}
    starts = [f"{datetime.fromtimestamp(from_us / 1e6, UTC):%m-%d %H}" for from_us, _ in windows]
    assert tuple(starts[: len(first)]) == first


def test_a_day_of_the_month_beside_a_day_of_the_week_means_either() -> None:
    """As the guide warns, the first week's Mondays are not `1-7 * mon`."""
    both = parse_validity("cron(0 8 1-7 */2 mon)+10h")
    assert len(SiteCalendar().windows(both, _us(2026, 1, 1), _us(2026, 5, 1))) == 21
