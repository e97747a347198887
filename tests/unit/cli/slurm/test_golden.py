"""Output of Slurm's commands for one small cluster, byte for byte."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from eslurm.v1 import controller_pb2 as pb
from tests.support.golden import Golden
from tests.unit.cli.slurm.conftest import Answers, Say

NOW_US = 1_795_866_000_000_000
MINUTE_US = 60_000_000


def job(job_id: int, state: str, **fields: Any) -> pb.JobInfo:
    info = pb.JobInfo(
        job_id=job_id, name="wrap", user="ada", uid=1000, partition="main", state=state, priority=1000 - job_id,
        submitted_us=NOW_US - 30 * MINUTE_US, nodes=1, tasks=1, cpus=1, work_dir="/home/ada", output="slurm-%j.out",
        requeue=True, request=pb.ResourceRequest(tasks=1, cpus_per_task=1), details=pb.JobDetails(gid=100),
    )  # fmt: skip
    info.MergeFrom(pb.JobInfo(**fields))
    return info


def jobs(request: pb.JobsRequest) -> pb.JobsReply:
    started = {"started_us": NOW_US - 5 * MINUTE_US, "attempts": 1}
    everything = [
        job(11, "RUNNING", name="a very long name", nodes=2, cpus=8, tasks=8, node_names="cn[1-2]", time_limit_s=3600,
            memory_mib=2048, comment="second try", account="physics", wckey="w", command="/home/ada/job.sh",
            request=pb.ResourceRequest(memory_per_node_mib=1024, exclusive=True, tasks_per_node=4), **started),
        job(12, "PENDING", array_tasks_left="3-9%4", reason="JobArrayTaskLimit", time_limit_s=93_784, tasks_running=1,
            tasks_done=1, output="slurm-%A_%a.out", request=pb.ResourceRequest(memory_per_cpu_mib=512)),
        job(13, "COMPLETED", array_job_id=12, array_task=1, ended_us=NOW_US - MINUTE_US, **started),
        job(14, "RUNNING", array_job_id=12, array_task=2, node_names="cn1", **started),
        job(15, "PENDING", reason="held_user", dependencies="afterok:11(unfulfilled)", begin_us=NOW_US + 60 * MINUTE_US,
            request=pb.ResourceRequest(include=["cn3"], exclude=["cn1", "cn2"])),
        job(16, "FAILED", exit_code=3, ended_us=NOW_US - 2 * MINUTE_US, **started),
        job(17, "CANCELLED", exit_text="cancelled by root", ended_us=NOW_US - 3 * MINUTE_US),
        job(18, "FAILED", tasks_failed=3, exit_text="cancelled by root", ended_us=NOW_US - 3 * MINUTE_US,
            details=pb.JobDetails(tasks_failed="0-2")),
        job(20, "LAUNCHING", node_names="cn4", partition="short", user="bob", uid=1001, **started),
    ]  # fmt: skip
    wanted = {ref.job_id for ref in request.jobs}
    return pb.JobsReply(
        now_us=NOW_US,
        jobs=[one for one in everything if not wanted or {one.job_id, one.array_job_id} & wanted],
    )


def nodes(_: pb.NodesRequest) -> pb.NodesReply:
    def node(name: str, used: int, state: str = "UP", **fields: Any) -> pb.NodeInfo:
        partitions = ["main", "short"] if name in ("cn4", "cn5") else ["main"]
        return pb.NodeInfo(
            name=name, state=state, cores=4, cores_used=used, memory_mib=4096, partitions=partitions, **fields
        )

    gpus = [pb.ResourceUse(name="gpu", total=2, used=1, device_type="a100")]
    return pb.NodesReply(
        now_us=NOW_US,
        nodes=[
            node("cn1", 4, memory_used_mib=1024),
            node("cn2", 4, memory_used_mib=1024),
            node("cn3", 1, flags=["DRAIN"], reason="new memory", since_us=NOW_US - MINUTE_US),
            node("cn4", 2, resources=gpus, features=["ib", "gpu:a100"]),
            node("cn5", 0),
            node("cn6", 0, "UNREACHABLE"),
            node("cn7", 0, "LOST", reason="no answer", since_us=NOW_US - MINUTE_US),
            node("login1", 0, flags=["LOGIN"]),
        ],
        partitions=[
            pb.PartitionInfo(name="main", is_default=True, up=True),
            pb.PartitionInfo(name="short", up=True, time_limit_max_s=3600, time_limit_default_s=600),
            pb.PartitionInfo(name="gateways", role="gateway"),
        ],
    )


def accounting(_: pb.AccountingRequest) -> pb.AccountingReply:
    def run(job_id: int, **fields: Any) -> pb.AttemptInfo:
        one = pb.AttemptInfo(
            job_id=job_id, attempt=1, name="wrap", user="ada", partition="main", cpus=1, nodes=1, node_names="cn1",
            submitted_us=NOW_US - 30 * MINUTE_US, started_us=NOW_US - 5 * MINUTE_US, ended_us=NOW_US - 2 * MINUTE_US,
            user_cpu_us=1_500_000, system_cpu_us=12_000, max_rss_kib=25_504,
        )  # fmt: skip
        one.MergeFrom(pb.AttemptInfo(**fields))
        return one

    return pb.AccountingReply(
        attempts=[
            run(10, state="TIMEOUT", exit_signal=15, time_limit_s=180),
            run(13, state="COMPLETED", array_job_id=12, array_task=1),
            run(16, state="NODE_FAIL", attempt=1),
            run(16, state="FAILED", exit_code=3, attempt=2),
        ]
    )


@pytest.fixture
def answers() -> Answers:
    """The cluster's answers, by calls."""
    return {
        "Jobs": jobs,
        "Nodes": nodes,
        "Accounting": accounting,
        "Ping": lambda _: pb.PingReply(cluster="alpha"),
    }


SESSIONS = {
    "squeue": (
        "squeue", "squeue -l", "squeue -r -p main", "squeue -h -o '%i|%T|%r' -t all", "squeue --me", "squeue -j 12",
        "squeue -j 12_1 -t all -h", "squeue -j 99", "squeue -j x", "squeue -t nosuch", "squeue -S i -h -o %i",
        "squeue -O JobArrayID,StateCompact,Reason -t all -u ada", "squeue -O 'JobID:8,Name:.6,NumCPUs:|,tres-alloc:30'",
        "squeue -h -j 11 -o '%a|%A|%b|%B|%c|%C|%d|%D|%e|%E|%f|%F|%g|%G|%h|%H|%I|%j|%J|%k|%K|%l|%L|%m|%M|%n|%N|%o|%O|%p'",
        "squeue -h -j 15 -o '%n|%x|%E|%e|%S|%V|%y|%Y|%z|%Z|%q|%Q|%R|%v|%w|%W|%X'", "squeue -o '%!'", "squeue --sibling",
        "squeue -M alpha -h",
    ),
    "sinfo": (
        "sinfo", "sinfo -l", "sinfo -s", "sinfo -N", "sinfo -N -l", "sinfo -R", "sinfo -p short -h -o %P,%l,%L,%D",
        "sinfo -t idle",         "sinfo -t nosuch", "sinfo -o '%n %t %G %f' -h",
        "sinfo -O nodehost:6,statelong,cpusstate,gresused:30 -n cn3,cn4",
        "sinfo -T",
    ),
    "sacct": (
        "sacct -S 2026-11-28", "sacct -S 2026-11-28 -X -n -P -o jobidraw,state,exitcode", "sacct -j 16 -D -b",
        "sacct -j 18 -X -P",
        "sacct -j 10 -o jobid,user,totalcpu,maxrss,elapsed,cputimeraw,start,end,timelimit,alloctres%40,nodelist,planned",
        "sacct -j 11 -p -o jobid,reqmem,reqtres,account,comment,wckey,submit,group,uid --delimiter=;",
        "sacct -s F -X -S 2026-11-28",         "sacct -o nosuch", "sacct -j 12_5 -n -X", "sacct -s nosuch", "sacct -B",
        "sacct -T -X -P -S 2026-11-28T11:36 -E 2026-11-28T11:37 -o jobid,submit,start,end,elapsed,user,uid,restarts,reqcpus",
    ),
    "scontrol": (
        "scontrol show job 11", "scontrol -d show job 11", "scontrol show job 12_2", "scontrol -o show job 15",
        "scontrol show job 99",         "scontrol show node cn3", "scontrol show node zz", "scontrol show partition short",
        "scontrol show hostnames cn[01-03,7],x",
        "scontrol show hostlist cn3,cn1,cn2", "scontrol show hostlistsorted cn3,cn1,cn2",
        "scontrol notify 15 hello", "scontrol nosuch",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SESSIONS)
def test_output(name: str, say: Say, golden: Golden) -> None:
    golden(f"slurm/{name}.txt", "\n".join(say(line) for line in SESSIONS[name]))


def test_records_of_an_older_release(say: Say, golden: Golden) -> None:
    lines = ("scontrol show job 11", "scontrol show node cn3", "scontrol show partition short")
    golden("slurm/scontrol-22.05.txt", "\n".join(say(line, "22.05") for line in lines))


@pytest.mark.parametrize("release", ["25.11", "22.05"])
@pytest.mark.parametrize(
    "line",
    [
        "squeue --json",
        "sacct --json -j 16",
        "sinfo --json",
        "scontrol show node cn4 --json",
        "scontrol show partition --json",
    ],
)
def test_json(line: str, release: str, say: Say, golden: Golden) -> None:
    text = say(line, release).partition("\n")[2]
    found = json.loads(text)
    found["meta"].pop("command", None)
    name = line.replace(" --json", "").replace(" ", "-")
    golden(f"slurm/{name}-{release}.json", json.dumps(found, indent=1) + "\n")


@pytest.mark.parametrize(
    "line",
    [
        "squeue",
        "sacct -j 16",
        "sinfo",
        "scontrol show job 11",
        "scontrol show node cn4",
        "scontrol show partition",
    ],
)
def test_yaml_says_what_json_says(line: str, say: Say) -> None:
    found = [
        yaml.safe_load(say(f"{line} --{form}").partition("\n")[2])  # JSON is YAML, too.
        for form in ("yaml", "json")
    ]
    for document in found:
        document["meta"].pop("command", None)
    assert found[0] == found[1]


def test_all_columns(say: Say, golden: Golden) -> None:
    golden(
        "slurm/all-columns.txt", "\n".join(say(line) for line in ("squeue -j 11 -o %all", "sinfo -o %all"))
    )


def test_memory_in_its_own_unit(say: Say) -> None:
    plain, own = (
        say(f"squeue {option} -t all -o %m").partition("\n")[2] for option in ("-h", "-h --noconvert")
    )
    assert "1G\n" in plain and "512M\n" in plain
    assert own == re.sub(r"(\d+)G", lambda found: f"{int(found[1]) * 1024}M", plain)


def test_states_of_jobs_alone(say: Say) -> None:
    line = "squeue -h --only-job-state -o %i=%T"
    assert say(f"{line} -j 11").partition("\n")[2] == "11=RUNNING\n"
    assert say(f"{line} -j 99").partition("\n")[2] == ""
    assert say("squeue -h -j 99").endswith("Invalid job id specified\n[1]\n")
    assert say(line).partition("\n")[2] == say("squeue -h -o %i=%T").partition("\n")[2]
    assert "unrecognized option '--only-job-state'" in say(line, "22.05")


def test_numbers_are_wrapped_since_the_data_parser(say: Say) -> None:
    first = json.loads(say("squeue --json -j 11").partition("\n")[2])["jobs"][0]
    assert first["node_count"] == {"set": True, "infinite": False, "number": 2}
    assert first["job_state"] == ["RUNNING"]
    older = json.loads(say("squeue --json -j 11", "22.05").partition("\n")[2])["jobs"][0]
    assert (older["node_count"], older["job_state"]) == (2, "RUNNING")


def test_formats_of_the_environment(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "%i %S")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "%d.%m. %H:%M")
    monkeypatch.setenv("SINFO_FORMAT", "%R")
    monkeypatch.setenv("SACCT_FORMAT", "jobid%-4,state%3")
    assert say("squeue -j 11") == "$ squeue -j 11\nJOBID START_TIME\n11 28.11. 11:35\n"
    assert say("sinfo -h") == "$ sinfo -h\nmain\nshort\n"
    assert say("sacct -j 10 -X -n") == "$ sacct -j 10 -X -n\n10   TI+ \n"


def test_a_separator_that_cannot_be_typed(say: Say) -> None:
    assert say("squeue -h -j 11 -o %i\x1f%T").endswith("\n11\x1fRUNNING\n")
