"""Cost of Slurm's commands on large answers, as the number of calls of functions, which no other process can change."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from escli.slurm.launch import main
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi

NOW_US = 1_795_866_000_000_000
HOUR_US = 3_600_000_000
RUNS = 20_000
NODES = 20_000


def calls(work: Callable[[], object]) -> int:
    """Number of calls of functions, of Python's and of C's, that this work makes in this thread."""
    count = 0

    def note(_frame: FrameType, event: str, _what: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def accounting(request: pb.AccountingRequest) -> pb.AccountingReply:
    first = request.page
    return pb.AccountingReply(
        attempts=[
            pb.AttemptInfo(
                job_id=1000 + number, attempt=1, name=f"job{number % 500}", user="root", partition="main",
                account=f"a{number % 70}", state="FAILED" if number % 9 == 0 else "COMPLETED", cpus=1 + number % 8, nodes=1,
                node_names=f"cn{number % 2000:04}", submitted_us=NOW_US - 5 * HOUR_US,
                started_us=NOW_US - 4 * HOUR_US + number, ended_us=NOW_US - 2 * HOUR_US + number * 999,
                user_cpu_us=number * 77, system_cpu_us=12_000, max_rss_kib=25_504 + number, time_limit_s=3600,
            )
            for number in range(first, min(first + request.limit, RUNS))
        ],
        next_page=first + request.limit if first + request.limit < RUNS else 0,
    )  # fmt: skip


def nodes(_: pb.NodesRequest) -> pb.NodesReply:
    return pb.NodesReply(
        now_us=NOW_US,
        nodes=[
            pb.NodeInfo(
                name=f"cn{number:05}", state="UP", cores=64, cores_used=(0, 16, 64)[number % 3], memory_mib=262_144,
                partitions=["main", "short"] if number % 4 == 0 else ["main"],
            )
            for number in range(NODES)
        ],
        partitions=[pb.PartitionInfo(name="main", is_default=True, up=True), pb.PartitionInfo(name="short", up=True)],
    )  # fmt: skip


@pytest.fixture
def cost(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, int]]]:
    """Run a command: the number of its calls of functions, and of its lines."""
    answers: dict[str, Any] = {
        "Jobs": lambda _: pb.JobsReply(now_us=NOW_US),
        "Nodes": nodes,
        "Accounting": accounting,
        "Policies": lambda _: pb.PoliciesReply(),
        "Ping": lambda _: pb.PingReply(cluster="alpha"),
    }
    replies: dict[bytes, Any] = {}

    def once(name: str) -> Callable[[Any], Any]:
        """The answer, made once: the fake API spends its time in this process."""

        def answer(request: Any) -> Any:
            key = name.encode() + request.SerializeToString(deterministic=True)
            if key not in replies:
                replies[key] = answers[name](request)
            return replies[key]

        return answer

    monkeypatch.delenv("SINFO_FORMAT", raising=False)
    monkeypatch.delenv("SACCT_FORMAT", raising=False)
    with FakeApi(state_dir / "s", **{name: once(name) for name in answers}) as api:

        def run(command: str, *words: str) -> tuple[int, int]:
            def work() -> None:
                assert main(command, words, socket=api.path) == 0

            # The first time it imports.
            work()
            capsys.readouterr()
            count = calls(work)
            return count, len(capsys.readouterr().out.splitlines())

        yield run


def test_a_line_of_sacct_costs_few_calls(cost: Callable[..., tuple[int, int]]) -> None:
    count, lines = cost("sacct", "-a", "-S", "1970-01-02")
    assert lines == 2 + 2 * RUNS
    assert count / lines < 20, count


def test_a_node_of_sinfo_costs_few_calls(cost: Callable[..., tuple[int, int]]) -> None:
    count, lines = cost("sinfo")
    assert lines == 7
    assert count / NODES < 15, count


def test_a_run_of_sreport_costs_few_calls(
    cost: Callable[..., tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many accounts and users have lines."""
    monkeypatch.setattr("escli.clock.now_us", lambda: NOW_US)
    monkeypatch.setattr("escli.clock.local_offset_s", lambda _: 0)
    count, lines = cost(
        "sreport", "cluster", "AccountUtilizationByUser", "start=2026-11-28", "end=2026-11-29"
    )
    assert lines == 6 + 1 + 2 * 70
    assert count / RUNS < 50, count
