"""The controller's host and the ends of its log: what is tolerable, what is bad, and what to do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.doctor.finding import ERROR, WARNING
from eslurm.core.doctor.host import Disk, Host, KeyFile, LogEnds, check_host, check_log

SECOND = 1_000_000
GIB = 1 << 30
WELL = Host(
    wall_us=1_000 * SECOND,
    state_us=999 * SECOND,
    files_open=100,
    files_max=1_000,
    disks=(Disk("/var/lib/eslurm", 50 * GIB, 100 * GIB),),
    keys=(KeyFile("/var/lib/eslurm/site.key"), KeyFile("/var/lib/eslurm/site.pub", False, 0o644)),
)
GOOD_LOG = LogEnds("c1", 7, 100, 103, "c1", 7, 102, 102)


def test_a_host_and_a_log_in_order_have_no_findings() -> None:
    assert list(check_host(WELL)) == []
    assert list(check_log(GOOD_LOG)) == []


@pytest.mark.parametrize(
    ("change", "check", "severity", "text"),
    [
        ({"files_open": 850}, "files", WARNING, "850 of 1000 files are open"),
        ({"files_open": 960}, "files", ERROR, "960 of 1000 files are open"),
        ({"disks": (Disk("/s", 2 * GIB, 100 * GIB),)}, "disk", WARNING, "2048 MiB (2.0 %) are free"),
        ({"disks": (Disk("/s", GIB // 2, 100 * GIB),)}, "disk", ERROR, "512 MiB (0.5 %) are free"),
        ({"disks": (Disk("/s", 50 << 20, 2 * GIB),)}, "disk", ERROR, "50 MiB (2.4 %) are free"),
        ({"disks": (Disk("/s", None),)}, "disk", ERROR, "does not answer"),
        (
            {"keys": [KeyFile("/k", problem="No such file or directory")]},
            "key",
            ERROR,
            "is of no use: No such file",
        ),
        ({"keys": [KeyFile("/k", mode=0o640)]}, "key", ERROR, "is open to others (mode 0640)"),
        ({"keys": [KeyFile("/k", False, 0o664)]}, "key", ERROR, "is open to others (mode 0664)"),
        ({"keys": [KeyFile("/k", is_foreign=True)]}, "key", ERROR, "belongs to another user"),
        ({"keys": [KeyFile("/k", age_s=3 * 365 * 86_400)]}, "key", WARNING, "signs since 1095 days"),
        ({"keys": [KeyFile("/k", left_s=36_000)]}, "key", WARNING, "is valid for 10 hours"),
        ({"keys": [KeyFile("/k", left_s=-1)]}, "key", ERROR, "has ended"),
        ({"state_us": 1_060 * SECOND}, "clock", ERROR, "its clock is 60.0 s behind the last commit"),
    ],
)
def test_each_trouble_of_the_host_is_told(
    change: dict[str, object], check: str, severity: str, text: str
) -> None:
    [finding] = [one for one in check_host(replace(WELL, **change)) if one is not None]
    assert (finding.check, finding.severity) == (check, severity)
    assert text in finding.text and finding.advice


@pytest.mark.parametrize(
    "disk", [Disk("/s", 6 * GIB, 1000 * GIB), Disk("/s", 200 << 20, GIB), Disk("/s", 5 * GIB, 100 * GIB)]
)
def test_a_small_share_of_a_large_disk_and_a_large_one_of_a_small_disk_are_plenty(disk: Disk) -> None:
    assert list(check_host(replace(WELL, disks=(disk,)))) == []


@pytest.mark.parametrize(
    ("change", "check", "severity", "text"),
    [
        (
            {"row_epoch": 8, "row_holder": "c2"},
            "controllers",
            ERROR,
            "the store is led by c2 under epoch 8, this is c1 under epoch 7",
        ),
        ({"row_revision": 90, "last": 90}, "log", ERROR, "its head is at revision 90, the state at 103"),
        ({"row_revision": 110, "last": 110}, "log", ERROR, "its head is at revision 110, the state at 103"),
        ({"last": 99}, "log", ERROR, "its last fact is 99, its head says 102"),
        ({"last": 0}, "log", ERROR, "its last fact is missing, its head says 102"),
        ({"gap": 55}, "log", ERROR, "revision 55 is missing"),
        ({"unreadable": 56}, "log", ERROR, "revision 56 cannot be decoded"),
        (
            {"is_whole": False},
            "log",
            WARNING,
            "its beginning is gone, and no base state says what was before",
        ),
    ],
)
def test_each_trouble_of_the_log_is_told(
    change: dict[str, object], check: str, severity: str, text: str
) -> None:
    [finding] = [one for one in check_log(replace(GOOD_LOG, **change)) if one is not None]
    assert (finding.check, finding.severity) == (check, severity)
    assert text in finding.text and finding.advice
