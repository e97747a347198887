"""A host's health: which readings are a problem, which are not, and a disk that does not answer."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from esnoded.health import Clocks, Health, HealthWatch, Limits, Sources, watch

GIB = 1 << 30
BLOCK = 4096


def disk(
    free: float = 0.5, size_bytes: int = 100 * GIB, inodes: int = 1000, inodes_free: int = 500, flags: int = 0
) -> os.statvfs_result:
    blocks = size_bytes // BLOCK
    available = int(blocks * free)
    return os.statvfs_result(
        (BLOCK, BLOCK, blocks, available, available, inodes, inodes_free, inodes_free, flags, 255)
    )


@dataclass
class Fake:
    """A host with four cores; `wall_s` is wall time minus time since boot."""

    available: float | None = 0.5
    stalled: float | None = 0.0
    load: float | None = 1.0
    core_count: int = 4
    disk_list: list[os.statvfs_result] = field(default_factory=list)
    boot_s: float = 1000.0
    wall_s: float = 1e9
    synchronised: bool | None = True

    def memory_available_share(self) -> float | None:
        return self.available

    def memory_stalled_percent(self) -> float | None:
        return self.stalled

    def load_5min(self) -> float | None:
        return self.load

    def cores(self) -> int:
        return self.core_count

    def disks(self) -> list[os.statvfs_result]:
        return self.disk_list

    def clocks(self) -> Clocks:
        return Clocks(self.wall_s + self.boot_s, self.boot_s, self.synchronised)


@pytest.mark.parametrize(
    "host",
    [
        Fake(),
        Fake(available=0.03, load=5.0, core_count=4, disk_list=[disk(), disk(free=0.03)]),
        Fake(load=1000.0, core_count=128),
        Fake(load=60.0, core_count=1),
        Fake(disk_list=[disk(free=0.015)]),
        Fake(disk_list=[disk(free=0.5, size_bytes=64 << 20)]),
        Fake(disk_list=[disk(inodes=0, inodes_free=0)]),
        Fake(available=None, stalled=None, load=None, synchronised=None),
        Fake(synchronised=False),
    ],
    ids=[
        "idle",
        "in full use",
        "eight threads a core",
        "small host with many processes",
        "two per cent of a large disk",
        "small file system",
        "file system without inode table",
        "nothing can be read",
        "never synchronised",
    ],
)
def test_a_host_in_use_is_healthy(host: Fake) -> None:
    assert Health(host).read() == ()


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        (Fake(available=0.019), "memory"),
        (Fake(stalled=20.5), "memory"),
        (Fake(available=None, stalled=90.0), "memory"),
        (Fake(load=100.0), "load"),
        (Fake(load=1025.0, core_count=128), "load"),
        (Fake(disk_list=[disk(), disk(free=0.005)]), "disk"),
        (Fake(disk_list=[disk(inodes_free=19)]), "disk"),
        (Fake(disk_list=[disk(flags=os.ST_RDONLY)]), "disk"),
    ],
)
def test_a_problem_is_one_word(host: Fake, problem: str) -> None:
    assert Health(host).read() == (problem,)


def test_several_problems_are_sorted() -> None:
    host = Fake(available=0.0, load=999.0, disk_list=[disk(free=0.0)])
    assert Health(host).read() == ("disk", "load", "memory")


@pytest.mark.parametrize("jump_s", [-3.0, 3.0, 86_400.0])
def test_a_clock_that_jumps_is_a_problem_for_a_while(jump_s: float) -> None:
    host = Fake()
    health = Health(host)
    assert health.read() == ()
    host.boot_s += 10.0
    host.wall_s += jump_s
    assert health.read() == ("clock",)
    host.boot_s += 60.0
    assert health.read() == ("clock",)
    host.boot_s += 1.0
    assert health.read() == ()


def test_a_slow_correction_and_a_pause_are_no_jumps() -> None:
    host = Fake()
    health = Health(host)
    for _ in range(100):
        host.boot_s += 3600.0
        host.wall_s += 1.5
        assert health.read() == ()


def test_a_clock_that_lost_its_synchronisation_is_a_problem() -> None:
    host = Fake()
    health = Health(host)
    health.read()
    host.synchronised = None
    assert health.read() == ()
    host.synchronised = False
    assert health.read() == ("clock",)


def test_a_problem_is_said_for_a_minute_so_that_answers_do_not_flicker() -> None:
    host = Fake(load=100.0)
    health = Health(host)
    said = []
    for _ in range(9):
        said.append(health.read())
        host.boot_s += 20.0
        host.load = 1.0
    assert said == [("load",)] * 4 + [()] * 5


# ---- the real thing ----


def test_every_host_of_ours_can_be_read(state_dir: Path) -> None:
    sources = Sources((state_dir,))
    share = sources.memory_available_share()
    assert share is not None and 0 < share <= 1
    assert sources.load_5min() is not None and sources.cores() >= 1 and len(sources.disks()) == 1
    first, second = sources.clocks(), sources.clocks()
    assert second.boot_s >= first.boot_s > 0 and first.synchronised in (True, False, None)
    assert set(Health(sources).read()) <= {"clock", "disk", "load", "memory"}


def test_files_that_are_missing_or_strange_are_no_problem(state_dir: Path) -> None:
    sources = Sources((state_dir / "nowhere",), proc=state_dir)
    health = Health(sources, Limits(memory_available_share=2.0, load_min=-1.0, load_per_core=-1.0))
    assert health.read() == ()
    (state_dir / "pressure").mkdir()
    for text in ("", "\n", "garbage", "full", "full avg60", "full avg60=x"):
        for name in ("meminfo", "loadavg", "pressure/memory"):
            (state_dir / name).write_text(text)
        assert health.read() == ()
    (state_dir / "meminfo").write_text("MemTotal: 0 kB\nMemAvailable: 0 kB\n")
    assert health.read() == ()


def test_the_files_of_a_usual_kernel_are_read(state_dir: Path) -> None:
    (state_dir / "pressure").mkdir()
    (state_dir / "meminfo").write_text(
        "MemTotal:  1000 kB\nMemFree:  1 kB\nMemAvailable:  250 kB\nHugePages_Total: 0\n"
    )
    (state_dir / "loadavg").write_text("0.10 7.25 3.00 1/107 18117\n")
    (state_dir / "pressure" / "memory").write_text(
        "some avg10=9.00 avg60=8.00 avg300=7.00 total=1\nfull avg10=6.00 avg60=5.50 avg300=4.00 total=1\n"
    )
    sources = Sources((), proc=state_dir)
    assert sources.memory_available_share() == 0.25
    assert sources.load_5min() == 7.25
    assert sources.memory_stalled_percent() == 5.5


# ---- the watch ----


class Disk:
    """A reading that waits until it is let go."""

    def __init__(self) -> None:
        self.readings = 0
        self.go = threading.Event()
        self.says: tuple[str, ...] = ("load",)

    def read(self) -> tuple[str, ...]:
        self.readings += 1
        assert self.go.wait(30)
        return self.says


def finished(health: HealthWatch) -> None:
    """Wait for the reading under way."""
    reading = health._reading
    assert reading is not None
    reading.join(30)
    assert not reading.is_alive()


def test_asking_never_waits_and_a_reading_serves_for_some_seconds() -> None:
    disk, now_s = Disk(), 100.0
    health = HealthWatch(disk.read, clock_s=lambda: now_s)
    assert health.problems() == () == health.problems(), "nothing is known yet"
    disk.go.set()
    finished(health)
    assert health.problems() == ("load",) and disk.readings == 1
    disk.go.clear()
    now_s += Limits().fresh_s
    disk.says = ()
    assert health.problems() == ("load",), "the new reading is for the next who asks"
    disk.go.set()
    finished(health)
    assert health.problems() == () and disk.readings == 2


def test_a_reading_that_hangs_is_a_problem_of_the_disk_and_no_second_one_is_begun() -> None:
    disk, now_s = Disk(), 100.0
    health = HealthWatch(disk.read, clock_s=lambda: now_s)
    health.problems()
    now_s += Limits().hang_s
    assert health.problems() == ()
    now_s += 1.0
    assert health.problems() == ("disk",) and disk.readings == 1
    disk.go.set()
    finished(health)
    health.problems()
    finished(health)
    assert health.problems() == ("load",) and disk.readings == 2


def test_the_watch_of_a_real_host_says_known_words(state_dir: Path) -> None:
    health = watch(state_dir)
    assert health.problems() == ()
    finished(health)
    assert set(health.problems()) <= {"clock", "disk", "load", "memory"}
