"""From records to jobs: what is asked for, and what cannot be replayed is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from eslurm.config.file import cluster_config, parse_config
from eslurm.core.model.forecast import Forecast, exactly
from eslurm.lab.workloads.machine import Machine, MachineError, from_config, from_header, from_shape, uniform
from eslurm.lab.workloads.swf import Header
from eslurm.lab.workloads.workload import Choices, WorkloadError, build, read_estimates
from tests.kits.workloads import record, workload

CONFIG = b"""
[cluster]
name = "lab"
[[nodes]]
names = "a[1-2]"
cores = 4
memory_mib = 1000
[[nodes]]
names = "b1"
cores = 16
memory_mib = 4000
[[partition]]
name = "short"
nodes = "a[1-2]"
[[partition]]
name = "long"
default = true
"""


@pytest.fixture
def site() -> Machine:
    return from_config(cluster_config(parse_config(CONFIG, "test")))


def test_a_machine_from_each_source(site: Machine) -> None:
    assert from_header(Header((" MaxProcs: 100", " MaxNodes: 50"))).topology.totals == ((1, 0),) * 100
    assert from_header(Header((" MaxNodes: 50 (and more)",))).processors == 50
    assert from_shape("25x4").topology.totals == ((4, 0),) * 25
    assert site.processors == 24 and site.partition == "long"
    assert site.largest == {"short": 8, "long": 24}


@pytest.mark.parametrize("shape", ["", "25", "0x4", "4x", "1000000x1000000", "-1x4", "4x4x4"])
def test_a_shape_that_is_none_is_refused(shape: str) -> None:
    with pytest.raises(MachineError, match=r"write e\.g\. --nodes 25x4"):
        from_shape(shape)


def test_a_header_without_processors_is_no_machine() -> None:
    with pytest.raises(MachineError, match="neither MaxProcs nor MaxNodes"):
        from_header(Header((" MaxProcs: -1",)))


def test_jobs_ask_for_what_the_log_says() -> None:
    machine = uniform(8, 1)
    records = [record(5, 10, 60, 4, 90), replace(record(9, 20, 30, 3), requested=-1)]
    jobs = build(records, Header((" UnixStartTime: 1000",)), machine, Choices()).jobs
    assert [job.name for job in jobs] == ["5", "9"]
    assert [job.pending.job_id for job in jobs] == [1, 2]
    assert [job.submit_us for job in jobs] == [1_010_000_000, 1_020_000_000]
    assert [job.pending.request.tasks for job in jobs] == [4, 3]
    assert [job.pending.time_limit_us for job in jobs] == [90_000_000, 30_000_000]
    assert [job.run_us for job in jobs] == [60_000_000, 30_000_000]


def test_what_is_odd_is_told() -> None:
    found = workload(
        [
            record(1, 10, 60, 4),
            record(2, 5, 60, 4),
            record(3, 12, 0, 4),
            record(4, 12, -1, 4),
            record(5, 12, 60, 9),
            record(6, 12, 60, -1),
            record(7, 12, 60, 1, -1),
            record(8, 12, 60, 1, 50),
        ],
        uniform(8, 1),
    )
    assert [job.name for job in found.jobs] == ["2", "1", "7", "8"]
    assert set(found.notes) == {
        "2 jobs without a run time (never started, or not known): left out",
        "1 job for more processors than the machine has: left out",
        "1 job without a number of processors: left out",
        "1 job without a requested time: taken to have asked for what they ran",
        "1 job ran longer than they asked for: run on as in the log",
        "1 job submitted before the job above them: put in order of submission",
    }
    assert not found.keeps_estimates


def test_jobs_may_be_ended_at_their_limit() -> None:
    (job,) = workload([record(1, 0, 60, 1, 50)], uniform(1, 1), Choices(kill_at_limit=True)).jobs
    assert job.run_us == 50_000_000


def test_estimates_by_choice() -> None:
    records = [record(1, 0, 60, 1, 500), record(2, 0, 60, 1, 500)]
    machine = uniform(1, 1)
    perfect = workload(records, machine, Choices(estimates="perfect"))
    assert [job.pending.time_limit_us for job in perfect.jobs] == [60_000_000] * 2
    some = workload(records, machine, Choices(estimates={2: exactly(70)}))
    assert [job.pending.time_limit_us for job in some.jobs] == [500_000_000] * 2
    # In steps of a sixteenth.
    assert [job.pending.stay_us for job in some.jobs] == [500_000_000, 72_000_000]
    assert some.notes == ("1 job without an estimate: planned with the time they asked for",)


def test_an_estimate_is_no_limit() -> None:
    (job,) = workload(
        [record(1, 0, 60, 1, 50)], uniform(1, 1), Choices(estimates={1: exactly(5)}, kill_at_limit=True)
    ).jobs
    assert (job.run_us, job.pending.time_limit_us) == (50_000_000, 50_000_000)
    assert job.pending.stay_us == 5_000_000


def test_estimates_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "estimates.csv"
    path.write_text("job,model,estimate\n7,x,12.5\n8,y,60\n", encoding="utf-8")
    assert read_estimates(path) == {7: exactly(13), 8: exactly(60)}
    path.write_text("job,issued_at,p10,p50,p90,estimate\n7,100,1,2,9,8\n", encoding="utf-8")
    assert read_estimates(path) == {7: Forecast(1, 2, 9, 8)}
    (job,) = workload([record(7, 0, 60, 1, 50)], uniform(1, 1), Choices(estimates=read_estimates(path))).jobs
    assert (job.pending.stay_us, job.expected_us) == (4_000_000, 9_000_000)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b\n1,2\n", "line 1: has no columns job and estimate"),
        ("", "line 1: has no columns job and estimate"),
        ("job,estimate\n1,2\nx,2\n", "line 3: 'x' is no job number"),
        ("job,estimate\n1,0\n", "line 2: '0' is no time in seconds above 0"),
        ("job,estimate\n1,nan\n", "line 2: 'nan' is no time"),
        ("job,estimate\n1\n", "line 2: an empty value is no time"),
    ],
)
def test_estimates_that_do_not_parse_are_named(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "estimates.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WorkloadError, match=told):
        read_estimates(path)


def test_partitions_by_the_log_s_queue(site: Machine) -> None:
    header = Header((" Queue: 1 short", " Queue: 2 other"))
    records = [replace(record(job_id, 0, 60, 1), queue=queue) for job_id, queue in ((1, 1), (2, 2), (3, 3))]
    found = build(records, header, site, Choices(partition_from="queue"))
    assert [job.pending.partition for job in found.jobs] == ["short", "long", "long"]
    assert found.notes == ("2 jobs with a queue that is no partition of the machine: sent to long",)


def test_memory_is_by_processor(site: Machine) -> None:
    (job,) = workload([replace(record(1, 0, 60, 2), requested_kib=1025.0)], site, Choices(memory=True)).jobs
    assert job.pending.request.memory_per_cpu_mib == 2


def test_a_job_that_can_never_fit_is_left_out(site: Machine) -> None:
    hungry = replace(record(1, 0, 60, 2), requested_kib=5000.0 * 1024)
    found = workload([hungry, record(2, 0, 60, 1)], site, Choices(memory=True))
    assert [job.name for job in found.jobs] == ["2"]
    assert found.notes == ("1 job that no nodes of the machine can hold: left out",)


def test_a_job_too_long_for_the_nodes_that_would_fit_is_left_out() -> None:
    rule = b'[[node_rule]]\nnodes = "b1"\ntime_max_s = 100\n'
    machine = from_config(cluster_config(parse_config(CONFIG + rule, "test")))
    found = workload([record(1, 0, 60, 2), record(2, 0, 600, 20), record(3, 0, 60, 12)], machine)
    assert [job.name for job in found.jobs] == ["1", "3"]


def test_the_first_jobs_only_and_none_at_all() -> None:
    machine = uniform(1, 1)
    records = [record(job_id, job_id, 60, 1) for job_id in range(5)]
    assert len(workload(records, machine, Choices(jobs_max=2)).jobs) == 2
    with pytest.raises(WorkloadError, match="no job that can be replayed; 1 job for more processors"):
        workload([record(1, 0, 60, 2)], machine)
