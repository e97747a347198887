"""A loop within a job: workers by `esrun` on all cores of all its nodes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.kits.cluster import LiveCluster

PROGRAM = """
import json, os, sys, time
from eslurm import loops

def square(index, fate):
    # No worker is so fast that others get nothing: all four meet in their first chunks.
    task = os.environ["SLURM_PROCID"]
    open("met-" + fate + task, "w").close()
    while len([name for name in os.listdir() if name.startswith("met-" + fate)]) < 4:
        time.sleep(0.01)
    if fate == "dies" and task == "3":
        os.kill(os.getpid(), 9)
    return index * index

if __name__ == "__main__":
    found = loops.run(square, 2000, technique="GSS", arguments=(sys.argv[1],), retries=4)
    assert found.results == [at * at for at in range(2000)]
    print(json.dumps({"labels": sorted(found.record.labels.values()), "lost": len(found.record.left)}))
"""


def run(cluster: LiveCluster, fate: str, *words: str) -> dict[str, object]:
    (cluster.work / "loop.py").write_text(PROGRAM)
    door = f"export ESLURM_SOCKET={cluster.socket}; " if os.getuid() == 0 else ""
    command = f"{sys.executable} loop.py {fate}"
    job = cluster.wrap(f"{door}{command}", "-o", "said", *(words or ("-N", "2", "-n", "4")))
    state = cluster.end(job)
    said = cluster.lines("said")
    assert state == "COMPLETED", said
    found: dict[str, object] = json.loads(next(line for line in said if line.startswith("{")))
    return found


def test_workers_run_on_all_cores_of_the_job(cluster: LiveCluster) -> None:
    found = run(cluster, "lives")
    labels = found["labels"]
    assert isinstance(labels, list)
    assert len(labels) == 4
    assert len({label.partition("/")[0] for label in labels}) == 2
    assert found["lost"] == 0


def test_a_job_of_one_task_with_four_cores_has_four_workers(cluster: LiveCluster) -> None:
    labels = run(cluster, "wide", "-N", "1", "-n", "1", "-c", "4")["labels"]
    assert isinstance(labels, list)
    assert len(labels) == 4


def test_the_example_runs_as_a_job(cluster: LiveCluster) -> None:
    example = Path(__file__).parents[2] / "examples" / "mandelbrot"
    door = f"export ESLURM_SOCKET={cluster.socket}; " if os.getuid() == 0 else ""
    words = "--width 40 --height 30 --iterations 100 -o loop.png --course loop.svg"
    script = (
        f"{door}export PYTHON={sys.executable} MANDELBROT_HOME={example}; sh {example}/loop.sbatch {words}"
    )
    state = cluster.end(cluster.wrap(script, "-o", "said", "-N", "2", "-n", "2"))
    said = cluster.lines("said")
    assert state == "COMPLETED", said
    assert said[-1].startswith("loop.png: 30 rows in ")
    assert (cluster.work / "loop.png").read_bytes().startswith(b"\x89PNG")


def test_a_task_that_is_killed_loses_nothing(cluster: LiveCluster) -> None:
    assert run(cluster, "dies")["lost"] == 1
