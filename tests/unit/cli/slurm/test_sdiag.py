"""`sdiag`: the controller's counts in Slurm's layout, byte for byte."""

from __future__ import annotations

import json

import pytest
import yaml

from eslurm.v1 import controller_pb2 as pb
from tests.support.golden import Golden
from tests.unit.cli.slurm.conftest import Answers, Say
from tests.unit.cli.slurm.test_golden import MINUTE_US, NOW_US

BUSY = pb.StatisticsReply(
    now_us=NOW_US,
    since_us=NOW_US - 90 * MINUTE_US,
    calls_open=3,
    broadcasts_waiting=1,
    broadcasts_open=2,
    jobs_pending=7,
    jobs_running=4,
    jobs_submitted=120,
    attempts_started=99,
    ended=[
        pb.StateCount(state=state, count=count)
        for state, count in (("CANCELLED", 5), ("COMPLETED", 80), ("FAILED", 6), ("NODE_FAIL", 2), ("TIMEOUT", 1))
    ],
    cycles=pb.CycleCounts(
        count=1000, is_running=True, last_at_us=NOW_US - 500_000, last_us=1_234, max_us=98_765, sum_us=2_000_500,
        depth_last=9, depth_sum=12_345, queue_last=7, queue_sum=8_900, slots_last=31, slots_sum=40_000, bounded=4,
    ),
    calls=[
        pb.CallCounts(number=8, name="Jobs", count=500, spent_us=750_000),
        pb.CallCounts(number=4, name="Hold", count=2, spent_us=900),
        pb.CallCounts(number=6, name="UpdateJob", count=3, spent_us=2_100),
        pb.CallCounts(number=24, name="Policies", count=1, spent_us=80),
        pb.CallCounts(number=2, name="Submit", count=120, spent_us=60_000_000),
    ],
    users=[
        pb.CallCounts(number=0, name="root", count=6, spent_us=3_000),
        pb.CallCounts(number=1000, name="ada", count=620, spent_us=60_750_080),
    ],
)  # fmt: skip


@pytest.fixture
def reply() -> pb.StatisticsReply:
    return pb.StatisticsReply.FromString(BUSY.SerializeToString())


@pytest.fixture
def answers(reply: pb.StatisticsReply) -> Answers:
    return {"Statistics": lambda _: reply, "Ping": lambda _: pb.PingReply(cluster="alpha")}


@pytest.mark.parametrize("release", ["25.11", "22.05"])
def test_text(release: str, say: Say, golden: Golden) -> None:
    golden(f"slurm/sdiag-{release}.txt", say("sdiag", release))


def test_a_controller_that_has_just_begun(reply: pb.StatisticsReply, say: Say, golden: Golden) -> None:
    reply.CopyFrom(pb.StatisticsReply(now_us=NOW_US, since_us=NOW_US - MINUTE_US, calls_open=1))
    golden("slurm/sdiag-first.txt", say("sdiag"))


def test_json(say: Say, golden: Golden) -> None:
    found = json.loads(say("sdiag --json").partition("\n")[2])
    found["meta"].pop("command")
    golden("slurm/sdiag-25.11.json", json.dumps(found, indent=1) + "\n")
    shown = yaml.safe_load(say("sdiag --yaml").partition("\n")[2])
    assert {**shown, "meta": {**shown["meta"], "command": None}} == {
        **found,
        "meta": {**found["meta"], "command": None},
    }


@pytest.mark.parametrize(
    ("option", "numbers"),
    [
        ("-i", ["2003", "3001", "4003", "24"]),
        ("-t", ["4003", "2003", "3001", "24"]),
        ("-T", ["4003", "2003", "3001", "24"]),
        ("-a", ["2003", "4003", "3001", "24"]),
    ],
)
def test_order_of_calls(option: str, numbers: list[str], say: Say) -> None:
    rows = say(f"sdiag {option}").partition("by message type\n")[2].partition("\n\n")[0].splitlines()
    found = [row.partition("(")[2].partition(")")[0].strip() for row in rows]
    assert found == (sorted(numbers, key=int) if option == "-i" else numbers)


def test_what_is_refused(say: Say) -> None:
    assert say("sdiag -r").endswith("-r is not supported: counts begin when a controller begins to lead, "
                                    "and are never put back\n[1]\n")  # fmt: skip
    for form in ("json", "yaml"):
        assert say(f"sdiag --{form}", "22.05").endswith(
            f"unrecognized option '--{form}'\nTry \"sdiag --help\" for more information\n[1]\n"
        )
    assert say("sdiag -M a,b").endswith("Only one cluster can be used at a time with sdiag\n[1]\n")
