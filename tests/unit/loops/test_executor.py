"""The executor with real worker processes on this machine."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from eslurm import loops
from eslurm.loops import crew, executor
from eslurm.loops.progress import Progress
from tests.kits import loop_functions as functions


@pytest.fixture(autouse=True)
def _outside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("ESLURM_JOB_ID", raising=False)


def test_results_are_in_order_whichever_worker_computed_them() -> None:
    found = loops.run(functions.square, 5000, technique="GSS", workers=2)
    assert found.results == [at * at for at in range(5000)]
    assert found.record.done == 5000
    assert 1.0 <= found.record.imbalance <= 2.0


def test_workers_begin_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "TOGETHER_S", 1000.0)
    found = loops.run(functions.square, 5000, technique="STATIC", workers=3)
    assert sorted(each.stop - each.start for each in found.record.chunks) == [1666, 1667, 1667]
    assert len({each.worker for each in found.record.chunks}) >= 2


def test_a_worker_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "TOGETHER_S", 0.0)
    assert loops.run(functions.square, 50, workers=2).results == [at * at for at in range(50)]


def test_arguments_ranges_names_and_whole_chunks() -> None:
    indices = range(100, 40, -3)
    found = loops.run(functions.scaled, indices, workers=1, arguments=(7,))
    assert found.results == [at * 7 for at in indices]
    found = loops.run("tests.kits.loop_functions:squares", indices, workers=1, whole_chunks=True)
    assert found.results == [at * at for at in indices]


def test_a_stream_yields_in_order_or_as_results_come() -> None:
    with loops.stream(functions.square, 50, workers=2, technique="SS") as going:
        assert list(going) == [(at, at * at) for at in range(50)]
    with loops.stream(functions.square, 50, workers=2, technique="SS", ordered=False) as going:
        assert sorted(going) == [(at, at * at) for at in range(50)]
    assert going.record.handed_out == 50


def test_a_stream_may_be_left_early(tmp_path: Path) -> None:
    with loops.stream(functions.square, 10**6, workers=1, technique="SS") as going:
        assert next(going) == (0, 0)
    with pytest.raises(StopIteration):
        next(going)
    loops.stream(functions.square, 10, workers=1).close()  # never begun


def test_nothing_to_do() -> None:
    assert loops.run(functions.square, 0, workers=2).results == []


def test_a_failed_chunk_is_done_again(tmp_path: Path) -> None:
    found = loops.run(functions.fails_once, 20, workers=2, technique="SS", arguments=(str(tmp_path),))
    assert found.results == list(range(20))
    assert [each.start for each in found.record.chunks if each.outcome == "failed"] == [7]


def test_workers_that_are_killed_lose_and_double_nothing(tmp_path: Path) -> None:
    found = loops.run(
        functions.dies_once, 40, workers=2, technique="FSC", sigma=1.0, h=1.0, largest=5,
        retries=4, arguments=(str(tmp_path),),
    )  # fmt: skip
    assert found.results == list(range(40))
    assert sum(each.outcome == "lost" for each in found.record.chunks) == 4


@pytest.mark.parametrize(
    ("function", "options", "says"),
    [
        (functions.fails_at_seven, {}, "ValueError: seven is not to be had\nat index 7"),
        (functions.too_few, {"whole_chunks": True}, "values for the"),
        (functions.cannot_travel, {}, "pickle"),
        (functions.exits, {}, "SystemExit: 3"),
        (functions.dies, {}, "has ended within the chunk"),
        ("tests.kits.loop_functions:nothing", {}, "has no 'nothing'"),
    ],
)
def test_a_chunk_that_always_fails_ends_the_loop(
    function: object, options: dict[str, bool], says: str
) -> None:
    with pytest.raises(loops.ChunkFailed) as failed:
        loops.run(function, 10, workers=1, retries=1, **options)  # type: ignore[arg-type]
    assert says in str(failed.value)
    assert "failed 2 times" in str(failed.value)
    assert failed.value.record.done < 10


def test_workers_that_cannot_start_end_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "_WORKER", (sys.executable, "-c", "raise SystemExit(1)"))
    with pytest.raises(loops.LoopError, match="all workers have ended"):
        loops.run(functions.square, 10, workers=2)


def test_what_cannot_be_sent_is_refused_at_once() -> None:
    with pytest.raises(loops.TaskError, match="define it at the top of a module"):
        loops.run(lambda index: index, 10)
    with pytest.raises(loops.TaskError, match="is no function"):
        loops.run(3, 10)  # type: ignore[arg-type]
    with pytest.raises(loops.TechniqueError, match="workers is 0"):
        loops.run(functions.square, 10, workers=0)
    with pytest.raises(loops.CrewError, match="no launch 'moon'"):
        loops.run(functions.square, 10, launch="moon")
    with pytest.raises(loops.CrewError, match="in no job"):
        loops.run(functions.square, 10, launch="job")


def test_the_function_does_not_see_the_cookie() -> None:
    assert loops.run(functions.cookie, 2, workers=1).results == [None, None]


def test_a_function_of_the_program_itself(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json\nfrom eslurm import loops\n\n"
        "def third(index):\n    return index // 3\n\n"
        "if __name__ == '__main__':\n"
        "    print(json.dumps(loops.run(third, 9, workers=1, launch='local').results))\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_program_without_a_guard_does_not_start_loops_within_loops(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from eslurm import loops\n\ndef third(index):\n    return index // 3\n\n"
        "loops.run(third, 9, workers=1, launch='local', retries=0)\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "put what starts it behind `if __name__ == '__main__'`" in done.stderr


def test_awf_learns_over_runs() -> None:
    history = loops.History(2)
    for _ in range(2):
        loops.run(functions.square, 400, technique="AWF", workers=2, history=history)
    assert sum(history.weights()) == pytest.approx(2.0)


def test_the_progress_bar_says_how_far_it_is() -> None:
    out = io.StringIO()
    record = loops.Record("SS", 10)
    progress = Progress(True, out)
    progress.show(record, 2)
    record.done = 10
    progress.end(record, 2)
    assert "0% 0/10, 2 workers" in out.getvalue()
    assert out.getvalue().endswith("\x1b[K\n") and "100% 10/10" in out.getvalue()
    silent = io.StringIO()
    Progress(None, silent).end(record, 2)
    assert silent.getvalue() == ""


@pytest.mark.parametrize(
    ("environ", "cores"),
    [
        ({}, 0),
        ({"SLURM_JOB_ID": "1"}, 0),
        ({"SLURM_JOB_ID": "1", "SLURM_JOB_CPUS_PER_NODE": "4(x2),2"}, 10),
        ({"SLURM_JOB_ID": "1", "SLURM_JOB_CPUS_PER_NODE": "1"}, 1),
        ({"SLURM_JOB_CPUS_PER_NODE": "4"}, 0),
    ],
)
def test_the_cores_of_a_job(environ: dict[str, str], cores: int) -> None:
    assert crew.cores_of_job(environ) == cores


def test_a_job_without_its_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("ESLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", "2")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(loops.CrewError, match="esrun is not in PATH"):
        executor.run(functions.square, 10)


def test_the_address_at_which_workers_connect() -> None:
    assert crew.listen_host({"ESLURM_STEP_HOST": "10.0.0.7"}) == "10.0.0.7"
    assert crew.listen_host({"SLURMD_NODENAME": "cn0001"}) == "127.0.0.1"
