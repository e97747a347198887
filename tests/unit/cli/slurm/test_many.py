"""CPU time of Slurm's commands on large answers, in units of a plain loop on the same machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from escli.slurm.launch import main
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi

NOW_US = 1_795_866_000_000_000
HOUR_US = 3_600_000_000
RUNS = 20_000
NODES = 20_000


def loop_s() -> float:
    """CPU time of a million turns of a loop."""
    began_s = time.process_time()
    total = 0
    for number in range(1_000_000):
        total += number * number
    return time.process_time() - began_s


def accounting(request: pb.AccountingRequest) -> pb.AccountingReply:
    first = request.page
    return pb.AccountingReply(
        attempts=[
            pb.AttemptInfo(
                job_id=1000 + number, attempt=1, name=f"job{number % 500}", user="root", partition="main",
                state="FAILED" if number % 9 == 0 else "COMPLETED", cpus=1 + number % 8, nodes=1,
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
) -> Iterator[Callable[..., tuple[float, int]]]:
    """Run a command: its CPU time in loops, the least of three, and the number of its lines."""
    answers: dict[str, Any] = {
        "Jobs": lambda _: pb.JobsReply(now_us=NOW_US),
        "Nodes": nodes,
        "Accounting": accounting,
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

        def run(command: str, *words: str) -> tuple[float, int]:
            assert main(command, words, socket=api.path) == 0
            lines = len(capsys.readouterr().out.splitlines())
            costs = []
            for _ in range(3):
                loop = loop_s()
                began_s = time.process_time()
                assert main(command, words, socket=api.path) == 0
                costs.append((time.process_time() - began_s) / loop)
                capsys.readouterr()
            return min(costs), lines

        yield run


def test_a_line_of_sacct_costs_a_few_microseconds(cost: Callable[..., tuple[float, int]]) -> None:
    # 100,000 jobs are five times this, and a loop is a twelfth of a second.
    loops, lines = cost("sacct", "-a", "-S", "1970-01-02")
    assert lines == 2 + 2 * RUNS
    assert loops < 6.5, loops


def test_sinfo_of_many_nodes(cost: Callable[..., tuple[float, int]]) -> None:
    loops, lines = cost("sinfo")
    assert lines == 7
    assert loops < 2.5, loops
