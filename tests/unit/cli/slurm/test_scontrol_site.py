"""`scontrol show reservation`, `show licenses` and `show topology`, byte for byte."""

from __future__ import annotations

import json

import pytest

from eslurm.v1 import controller_pb2 as pb
from tests.support.golden import Golden
from tests.unit.cli.slurm.conftest import Answers, Say

NOW_US = 1_795_866_000_000_000
"""2026-11-28T11:40:00Z, a Saturday."""
RESERVATIONS = {
    "course": {"nodes": "cn[1-2]", "validity": "2026-11-28T08:00..2026-11-29T12:00", "users": "ada,bob"},
    "monday": {"nodes": "cn3", "validity": "cron(0 8 * * mon)+4h", "groups": "physics", "accounts": "a"},
    "old": {"nodes": "cn1", "validity": "2026-11-01..2026-11-02"},
    "upgrade": {
        "nodes": "cn[1-3]", "validity": "2030-01-01..2030-01-31", "maintenance": "yes", "flags": "ignore_running",
    },
}  # fmt: skip


@pytest.fixture
def config() -> dict[str, object]:
    return {
        "zone": "Europe/Berlin",
        "resources": [
            {"name": name, "wide_total": total} for name, total in (("gpu", 0), ("matlab", 5), ("ansys", 2))
        ],
    }


@pytest.fixture
def answers(config: dict[str, object]) -> Answers:
    def policies(request: pb.PoliciesRequest) -> pb.PoliciesReply:
        assert request.kind == "reservation"
        found = [
            pb.PolicyInfo(kind="reservation", name=name, json=json.dumps(one))
            for name, one in RESERVATIONS.items()
        ]
        return pb.PoliciesReply(policies=found, now_us=NOW_US)

    jobs = [
        pb.JobInfo(job_id=1, state="RUNNING", resources="gpu:2,licence/matlab:1"),
        pb.JobInfo(job_id=2, state="SUSPENDED", resources="licence/matlab:2"),
        pb.JobInfo(job_id=3, state="PENDING", resources="licence/matlab:2,licence/ansys:1"),
    ]
    return {
        "Policies": policies,
        "Config": lambda _: pb.ConfigReply(json=json.dumps(config)),
        "Jobs": lambda _: pb.JobsReply(jobs=jobs),
        "Nodes": lambda _: pb.NodesReply(
            nodes=[pb.NodeInfo(name=f"cn{number}", cores=4) for number in (1, 2, 3)]
        ),
        "Ping": lambda _: pb.PingReply(cluster="alpha", now_us=NOW_US),
        "Controllers": lambda _: pb.ControllersReply(
            controllers=[pb.ControllerInfo(name="c2"), pb.ControllerInfo(name="main", role="leader")]
        ),
    }


def test_records(say: Say, golden: Golden) -> None:
    lines = (
        "scontrol show reservation",
        "scontrol show res=course",
        "scontrol -o show reservations upgrade",
        "scontrol show reservation old",
        "scontrol show licenses",
        "scontrol -o show lic matlab",
        "scontrol --json show licenses",
    )
    golden("slurm/scontrol-site.txt", "\n".join(say(line) for line in lines))
    golden("slurm/scontrol-site-22.05.txt", say("scontrol show reservation monday", "22.05"))


def test_a_site_without_any(say: Say, config: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    config["resources"] = []
    assert say("scontrol show licenses").endswith("\nNo licenses configured in Slurm.\n")
    monkeypatch.setattr("tests.unit.cli.slurm.test_scontrol_site.RESERVATIONS", {})
    assert say("scontrol show reservation").endswith("\nNo reservations in the system\n")
    assert say("scontrol show reservation x").endswith("\nReservation x not found\n[1]\n")


def test_switches(config: dict[str, object], say: Say) -> None:
    config["switches"] = []
    assert say("scontrol show topology").endswith("scontrol: No topology information available\n")
    config["switches"] = [
        {"name": "top", "nodes": [], "switches": ["s1", "s2"]},
        {"name": "s1", "nodes": ["cn1", "cn2"], "switches": []},
        {"name": "s2", "nodes": ["cn3"]},
    ]
    leaves = [
        "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=cn[1-2]",
        "SwitchName=s2 Level=0 LinkSpeed=1 Nodes=cn3",
    ]
    top = "SwitchName=top Level=1 LinkSpeed=1 Nodes=cn[1-3] Switches=s[1-2]"
    assert say("scontrol show topology").splitlines()[1:] == [*leaves, top]
    assert say("scontrol show topology cn3").splitlines()[1:] == [leaves[1], top]
    assert say("scontrol show topology switch=s1").splitlines()[1:] == [leaves[0]]
    assert say("scontrol show topology cn9").endswith("scontrol: switch or node cn9 not found\n[1]\n")


def test_configuration(say: Say, config: dict[str, object], golden: Golden) -> None:
    config |= {
        "policy": "easy",
        "kill_grace_s": 30.0,
        "accounts_enforced": True,
        "priority": {"age": 1000, "fairshare": 5000, "size": 0, "half_life_s": 604800, "age_max_s": 86400},
        "switches": [{"name": "leaf"}],
    }
    golden("slurm/scontrol-config.txt", say("scontrol show config"))
    config |= {"policy": "fcfs", "switches": [], "resources": [], "priority": {}}
    text = say("scontrol show config", "22.05")
    for line in ("SchedulerType           = sched/builtin", "TopologyPlugin          = topology/none"):
        assert line in text
    assert "PriorityType            = priority/basic" in text and "Licenses                = (null)" in text
