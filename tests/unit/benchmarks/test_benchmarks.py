"""The parts of the benchmarks that a wrong figure could come from. Method: small inputs, known answers."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import floors, jobs
from benchmarks.disk import file_system, fsync_ms
from benchmarks.figures import Figures, median, percentile, rounded
from benchmarks.load import frame
from benchmarks.processes import cpu_s, rss_mb
from eslurm.api.methods import SUBMIT
from eslurm.transport.framing import REQUEST_HEADER
from eslurm.v1 import controller_pb2 as pb

REPOSITORY = Path(__file__).parents[3]


def test_a_figure_is_one_json_line_with_the_agreed_keys() -> None:
    out = io.StringIO()
    figures = Figures(out)
    figures.add("some_ms", 12.34567, "ms", 9)
    assert out.getvalue().count("\n") == 1
    line = json.loads(out.getvalue())
    assert list(line) == ["name", "value", "unit", "n", "load1"]
    assert (line["name"], line["value"], line["unit"], line["n"]) == ("some_ms", 12.35, "ms", 9)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, 0.0), (0.123456, 0.1235), (1234.56, 1235.0), (18034.6, 18035.0)]
)
def test_a_figure_does_not_pretend_to_more_digits(value: float, shown: float) -> None:
    assert rounded(value) == shown


def test_median_and_percentile() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert percentile([float(number) for number in range(100)], 0.99) == 99.0
    assert percentile([5.0], 0.99) == 5.0


def test_every_job_has_an_environment_of_its_own_and_one_of_100_scripts() -> None:
    environments = {jobs.environment(number) for number in range(300)}
    assert len(environments) == 300
    assert {len(environment) for environment in environments} == {jobs.ENVIRONMENT_BYTES}
    assert all(environment.endswith(b"\0") for environment in environments)
    assert len({jobs.script(number) for number in range(300)}) == jobs.SCRIPTS


def test_calls_hold_all_jobs_once() -> None:
    calls = [pb.SubmitRequest.FromString(call) for call in jobs.calls(10, 25, 10, "/tmp")]
    assert [len(call.jobs) for call in calls] == [10, 10, 5]
    assert len({job.environment for call in calls for job in call.jobs}) == 25


def test_a_frame_carries_its_call_and_a_request_id_of_its_own() -> None:
    first, second = frame(SUBMIT.number, b"payload"), frame(SUBMIT.number, b"payload")
    length, _version, flags, number, stream, deadline_ms, request_id = REQUEST_HEADER.unpack_from(first)
    assert (length, flags, number, stream) == (7, 0, SUBMIT.number, 1)
    assert deadline_ms > 0 and any(request_id)
    assert request_id != REQUEST_HEADER.unpack_from(second)[-1]
    assert first.endswith(b"payload")


def test_the_file_system_of_a_path_is_known() -> None:
    assert file_system(Path("/proc/self")) == "proc"
    assert file_system(Path("/dev/shm")) in ("tmpfs", file_system(Path("/dev")))


def test_the_cost_of_a_durable_write_is_measured_where_it_is_asked(tmp_path: Path) -> None:
    assert fsync_ms(tmp_path) > 0


def test_floors_count_what_they_did(tmp_path: Path) -> None:
    committed = floors.commits(tmp_path, 16)
    assert committed.done == 16 and committed.rate > 0
    spawned = floors.spawns(tmp_path, 12)
    assert spawned.done == 12 and spawned.rate > 0
    assert not list(tmp_path.iterdir())


def test_a_process_is_measured_from_outside() -> None:
    assert cpu_s(os.getpid()) > 0
    assert 1 < rss_mb(os.getpid()) < 10_000
    assert cpu_s(2**22 + 1) == 0.0


def test_an_unknown_group_is_refused_with_those_that_exist() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "nonsense"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "nonsense" in done.stderr and "throughput" in done.stderr
    assert not done.stdout


def test_state_in_memory_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "submit"],
        cwd=REPOSITORY,
        env={**os.environ, "ESLURM_BENCH_DIR": "/proc"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "ESLURM_BENCH_DIR" in done.stderr


def test_what_descendants_leave_behind_is_ended() -> None:
    """A grandchild in a session of its own outlives its parent, and is found all the same."""
    script = (
        "import subprocess, sys\n"
        "from benchmarks.processes import adopt_orphans, descendants, end_descendants\n"
        "adopt_orphans()\n"
        "subprocess.run(['sh', '-c', 'setsid sleep 300 & echo started'], check=True, stdout=subprocess.DEVNULL)\n"
        "assert len(descendants()) == 1, descendants()\n"
        "assert end_descendants() == 1\n"
        "assert descendants() == []\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, check=True)
