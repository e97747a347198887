"""Real work by programs that know nothing of eslurm, by Slurm's commands alone."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Client
from tests.kits.slurm import Slurm

SUBMITIT = """
import time
import submitit

def add(a, b):
    return a + b

def fail():
    raise ValueError("on purpose")

def settled(job):
    while (state := job.get_info(mode="force").get("State")) == "RUNNING":
        time.sleep(0.2)
    return state

executor = submitit.AutoExecutor(folder="log", cluster="slurm")
executor.update_parameters(timeout_min=4, slurm_array_parallelism=2, slurm_comment="a comment", slurm_use_srun=USE_SRUN)
job = executor.submit(add, 1, 2)
print(job.result(), settled(job))
jobs = executor.map_array(add, [1, 2, 3, 4], [10, 20, 30, 40])
print([one.result() for one in jobs])
bad = executor.submit(fail)
try:
    bad.result()
except submitit.core.utils.FailedJobError as error:
    print(type(error).__name__)
slow = executor.submit(time.sleep, 100)
while slow.get_info(mode="force").get("State") != "RUNNING":
    time.sleep(0.2)
slow.cancel(check=False)
print(settled(slow).split()[0])
"""
DASK = """
from dask.distributed import Client
from dask_jobqueue import SLURMCluster

shape = {"cores": 1, "processes": 1, "memory": "500MB", "walltime": "00:10:00", "log_directory": "logs"}
with SLURMCluster(**shape, interface="lo") as cluster:
    cluster.scale(jobs=3)
    with Client(cluster) as client:
        client.wait_for_workers(3, timeout=90)
        print(sum(client.gather(client.map(lambda x: x * x, range(100)))), len(client.scheduler_info()["workers"]))
"""
PARSL = """
import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import SlurmProvider

provider = SlurmProvider(partition="main", nodes_per_block=1, init_blocks=2, max_blocks=2, walltime="00:10:00")
executor = HighThroughputExecutor(label="slurm", address="127.0.0.1", max_workers_per_node=2, provider=provider)

@parsl.python_app
def square(x):
    return x * x

with parsl.load(Config(executors=[executor])):
    print(sum(one.result(timeout=90) for one in [square(x) for x in range(20)]))
    print(sorted(one.state.name for one in executor.status().values()))
"""
PSIJ = """
import pathlib
from datetime import timedelta
from psij import Job, JobAttributes, JobExecutor, JobSpec, ResourceSpecV1
from psij.executors.batch.slurm import SlurmExecutorConfig

config = SlurmExecutorConfig(queue_polling_interval=1, initial_queue_polling_delay=1)
executor = JobExecutor.get_instance("slurm", config=config)
jobs = []
for number in range(3):
    job = Job(JobSpec(
        executable="/bin/sh", arguments=["-c", f"echo here {number}; exit {number % 2}"],
        stdout_path=pathlib.Path(f"psij-{number}.out").absolute(),
        resources=ResourceSpecV1(node_count=1, processes_per_node=1, cpu_cores_per_process=1),
        attributes=JobAttributes(duration=timedelta(minutes=5), queue_name="main"),
    ))
    executor.submit(job)
    jobs.append(job)
for job in jobs:
    status = job.wait(timeout=timedelta(seconds=90))
    print(status.state.name, status.exit_code)
print(pathlib.Path("psij-1.out").read_text().strip())
"""
SNAKEFILE = """
rule all:
    input: expand("out-{n}.txt", n=range(3))
rule one:
    output: "out-{n}.txt"
    resources: runtime=5, mem_mb=100
    shell: "echo {wildcards.n} > {output}"
"""


@pytest.mark.parametrize("use_srun", [True, False])
def test_submitit(client: Client, use_srun: bool) -> None:
    out = client(SUBMITIT.replace("USE_SRUN", str(use_srun)))
    assert out.splitlines() == ["3 COMPLETED", "[11, 22, 33, 44]", "FailedJobError", "CANCELLED"]


def test_dask_jobqueue(client: Client, slurm: Slurm) -> None:
    assert client(DASK) == "328350 3\n"
    slurm.until("", "squeue", "-h")


def test_parsl(client: Client, slurm: Slurm) -> None:
    assert client(PARSL) == "2470\n['RUNNING', 'RUNNING']\n"
    slurm.until("", "squeue", "-h")


def test_psij(client: Client) -> None:
    assert client(PSIJ).splitlines() == ["COMPLETED 0", "FAILED 1", "COMPLETED 0", "here 1"]


def test_snakemake(client: Client, slurm: Slurm) -> None:
    (slurm.work / "Snakefile").write_text(SNAKEFILE)
    client(
        "snakemake --executor slurm -j 3 --default-resources slurm_partition=main "
        "--slurm-init-seconds-before-status-checks 2"
    )
    assert [(slurm.work / f"out-{n}.txt").read_text() for n in range(3)] == ["0\n", "1\n", "2\n"]
    assert slurm("sacct", "-X", "-n", "-P", "-o", "state").out == "COMPLETED\n" * 3
