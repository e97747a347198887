"""`sstat`, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

from eslurm.v1 import controller_pb2 as pb
from tests.support.golden import Golden
from tests.unit.cli.slurm.conftest import Answers, Say

COMMON: dict[str, Any] = {"user": "ada", "uid": 1000, "partition": "main", "state": "RUNNING"}
STEPS = [
    pb.StepInfo(job_id=17, is_batch=True, name="batch", node_names="cn1", nodes=1, tasks=1, cpus=2, **COMMON),
    pb.StepInfo(job_id=17, step=0, name="x", node_names="cn[1-2]", nodes=2, tasks=4, cpus=4, **COMMON),
    pb.StepInfo(job_id=17, step=3, name="y", node_names="cn2", nodes=1, tasks=1, cpus=1, **COMMON),
    pb.StepInfo(job_id=18, is_batch=True, node_names="cn3", nodes=1, tasks=1, cpus=1, **COMMON),
    pb.StepInfo(
        job_id=20, array_job_id=19, array_task=2, step=0, node_names="cn3", nodes=1, tasks=1, cpus=1, **COMMON
    ),
    pb.StepInfo(job_id=30, step=0, node_names="cn4", nodes=1, tasks=1, cpus=1, **(COMMON | {"user": "bob"})),
]


def usage_of(step: int) -> pb.StepUsageInfo:
    if step == -1:
        one = pb.UsageAmount(total=2048, most=2048, most_node="cn1", least=2048, least_node="cn1")
        cpu = pb.UsageAmount(
            total=3_723_900_000, most=3_723_900_000, most_node="cn1", least=3_723_900_000, least_node="cn1"
        )
        return pb.StepUsageInfo(
            step=-1, node_names="cn1", tasks=1, cpu_us=cpu, memory_kib=one, virtual_kib=one, faults=one
        )
    cpu = pb.UsageAmount(
        total=10_500_000,
        most=9_000_000,
        most_task=3,
        most_node="cn2",
        least=200_000,
        least_task=1,
        least_node="cn1",
    )
    kib = pb.UsageAmount(total=5472, most=4000, most_task=3, most_node="cn2", least=300, least_node="cn1")
    return pb.StepUsageInfo(
        step=step,
        node_names="cn[1-2]",
        tasks=4,
        cpu_us=cpu,
        memory_kib=kib,
        virtual_kib=kib,
        faults=pb.UsageAmount(total=4, most=4, most_node="cn1", least_task=1, least_node="cn1"),
        processes=[pb.NodeProcesses(node="cn1", pids=[11, 12, 13]), pb.NodeProcesses(node="cn2", pids=[21])],
    )


@pytest.fixture
def answers() -> Answers:
    def steps(request: pb.StepsRequest) -> pb.StepsReply:
        wanted = {ref.job_id for ref in request.jobs}
        return pb.StepsReply(steps=[one for one in STEPS if {one.job_id, one.array_job_id} & wanted])

    def usage(request: pb.StepUsageRequest) -> Any:
        assert len(request.steps) <= 16
        if request.job.job_id == 30:
            return pb.StepUsageReply(silent=[pb.NodeSilence(node_names="cn4", why="no answer in time")])
        reply = pb.StepUsageReply(steps=[usage_of(step) for step in request.steps if step != 3])
        for one in reply.steps:
            if not request.processes:
                del one.processes[:]
        return reply

    return {"Steps": steps, "StepUsage": usage}


def test_texts(say: Say, golden: Golden) -> None:
    lines = (
        "sstat -j 17",
        "sstat -a -j 17 -o jobid,avecpu,mincpu,mincpunode,ntasks,maxrss,maxrssnode%5,averss,avepages",
        "sstat -n -P 17.batch,17.0 --format=JobID,AveCPU,AveRSS,MaxVMSize,AllocTRES",
        "sstat -p --delimiter=; --noconvert -j 17.0 -o jobid,maxrss,averss,TRESUsageInMax,TRESUsageInMaxT",
        "sstat -i -j 17.0",
        "sstat -n -o jobid,pids,nodelist%-12 -j 17.0",
        "sstat -n -o jobid,ntasks -j 19_2",
        "sstat -n -o jobid,ntasks -j 18,99,17.7,17.x,30,17.3",
        "sstat --helpformat",
        "sstat",
        "sstat -j 17 -o jobid,nosuch",
        "sstat -j x",
        "sstat -q -j 17",
    )
    golden("slurm/sstat.txt", "\n".join(map(say, lines)))
    assert "AllocTRES" not in say("sstat -e", release="22.05")
    assert say("sstat -j 17 -o alloctres", release="22.05").endswith(
        'Invalid field requested: "alloctres"\n[1]\n'
    )


def test_an_amount_is_whole_in_its_unit() -> None:
    from eslurm.compat.slurm.usage_fields import scaled

    assert [scaled(one) for one in (0, 5, 1024, 1536, 25504 * 1024, 1 << 30, 1 << 60)] == [
        *("0", "5", "1K", "1536", "25504K", "1G", "1024P"),
    ]
