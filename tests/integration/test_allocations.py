"""`esalloc` and `salloc`: nodes for a command outside of them, in whose environment steps run, until it ends; `esrun` and
`srun` outside of jobs, whose command is the step itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escli.commands import MODULES
from esnoded.procd import procfs
from esnoded.stepd.place import Place
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster, is_alive
from tests.kits.commands import BIN
from tests.kits.daemons import ROOT, path_of

PATIENCE_S = 60.0


class Called:
    """A command of its own process, called as `esalloc` is from a shell, and what it says."""

    def __init__(self, cluster: LiveCluster, *words: str, command: str = "esalloc", **environ: str) -> None:
        is_ours = command.startswith("es")
        module = MODULES[command] if is_ours else "escli.slurm.launch"
        name = "" if is_ours else f"'{command}', "
        text = f"import sys; from {module} import main; sys.exit(main({name}sys.argv[1:]))"
        called = {"ESLURM_SOCKET": str(cluster.socket), "PYTHONPATH": path_of(ROOT), **environ}
        self.process = subprocess.Popen(
            [BIN / "python", "-P", "-c", text, *words],
            cwd=cluster.work,
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **called},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ends(self) -> tuple[int, list[str], list[str]]:
        """Its exit code, and the lines that it said."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out.splitlines(), err.splitlines()


def ran(cluster: LiveCluster, *words: str, **more: Any) -> tuple[int, list[str], list[str]]:
    return Called(cluster, *words, **more).ends()


def processes_of(cluster: LiveCluster) -> list[int]:
    """The processes of steps on the cluster's nodes."""
    instances = {Place(cluster.agent_dir(f"agent{at}")).find_supervisor().instance for at in range(2)}  # type: ignore[union-attr]
    return [
        process.pid
        for process in procfs.all_processes()
        if procfs.marker_of(process.pid).partition("/")[0] in instances
    ]


def job_of(lines: list[str]) -> int:
    return int(next(line for line in lines if "Granted" in line).split()[-1])


def test_a_command_runs_outside_in_the_environment_of_the_job(cluster: LiveCluster) -> None:
    said = "echo $SLURM_JOB_ID $SLURM_NNODES $SLURM_NTASKS $ESLURM_JOB_NODELIST $SLURM_JOB_PARTITION ${SLURMD_NODENAME-none}"
    code, out, err = ran(cluster, "-N", "2", "-n", "3", "-w", "cn[0003-0004]", "sh", "-c", f"{said}; exit 7")
    job_id = job_of(err)
    assert (code, out) == (7, [f"{job_id} 2 3 cn[0003-0004] main none"])
    assert err == [
        f"esalloc: Granted job allocation {job_id}",
        f"esalloc: Relinquishing job allocation {job_id}",
    ]
    assert cluster.end(job_id) == "FAILED"
    run = cluster.only_run(job_id)
    assert (run.exit_code, run.exit_signal) == (7, 0)
    cluster.wait_idle()


def test_steps_run_on_the_nodes_of_the_allocation(cluster: LiveCluster) -> None:
    step = "esrun --label sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME'"
    code, out, err = ran(
        cluster, "-N", "3", "-n", "3", "-w", "cn[0007-0009]", "sh", "-c", f"{step} && {step}"
    )
    assert code == 0, err
    expected = [f"{at}: {at} of 3 on cn000{7 + at}" for at in range(3)]
    assert sorted(out) == sorted(expected * 2)
    assert cluster.end(job_of(err)) == "COMPLETED"


def test_no_process_is_on_the_nodes_but_steps(cluster: LiveCluster) -> None:
    code, _, err = ran(cluster, "--no-shell", "-N", "2", "-n", "2")
    job_id = job_of(err)
    assert code == 0 and cluster.job(job_id).state == "RUNNING" and not cluster.job(job_id).attended
    assert processes_of(cluster) == []
    code, out, err = ran(cluster, "--jobid", str(job_id), "-n", "2", "echo", "here", command="esrun")
    assert (code, out) == (0, ["here"] * 2), err
    cluster.do("escancel", str(job_id))
    assert cluster.end(job_id) == "CANCELLED"


def test_an_interrupt_while_it_waits_cancels_the_job(cluster: LiveCluster) -> None:
    holder = cluster.wrap("sleep 600", "-N", "16", "--exclusive")
    cluster.reaches(holder, "RUNNING")
    waits = Called(cluster, "-N", "16", "--exclusive", "true")
    assert waits.process.stderr is not None
    pending, queued = waits.process.stderr.readline(), waits.process.stderr.readline()
    job_id = int(pending.split()[-1])
    waits.process.send_signal(signal.SIGINT)
    code, _, err = waits.ends()
    assert code == 1
    assert [pending.strip(), queued.strip(), *err] == [
        f"esalloc: Pending job allocation {job_id}",
        f"esalloc: job {job_id} queued and waiting for resources",
        f"esalloc: Job allocation {job_id} has been revoked.",
        "esalloc: Job aborted due to signal",
    ]
    assert cluster.job(job_id).state == "CANCELLED"
    code, _, err = ran(cluster, "--immediate", "-N", "16", "true")
    assert code == 1 and err[-1] == "esalloc: error: Unable to allocate resources: Requested nodes are busy"
    cluster.do("escancel", str(holder))


def test_what_waited_says_so_and_is_granted(cluster: LiveCluster) -> None:
    holder = cluster.wrap("sleep 600", "-N", "16", "--exclusive")
    cluster.reaches(holder, "RUNNING")
    waits = Called(cluster, "-N", "16", "--exclusive", "echo", "there", command="salloc")
    assert waits.process.stderr is not None
    pending, queued = waits.process.stderr.readline(), waits.process.stderr.readline()
    job_id = int(pending.split()[-1])
    cluster.do("escancel", str(holder))
    code, out, err = waits.ends()
    assert (code, out) == (0, ["there"])
    assert [pending.strip(), queued.strip(), *err] == [
        f"salloc: Pending job allocation {job_id}",
        f"salloc: job {job_id} queued and waiting for resources",
        f"salloc: job {job_id} has been allocated resources",
        f"salloc: Granted job allocation {job_id}",
        f"salloc: Relinquishing job allocation {job_id}",
    ]


@pytest.mark.parametrize(
    ("argv", "code"),
    [(("no-such-program",), 127), (("sh", "-c", "kill -TERM $$"), 143), (("/",), 126)],
)
def test_what_cannot_be_run_and_what_a_signal_ends(
    cluster: LiveCluster, argv: tuple[str, ...], code: int
) -> None:
    found, _, err = ran(cluster, *argv)
    assert found == code, err
    job_id = job_of(err)
    assert cluster.end(job_id) == "FAILED"
    assert cluster.only_run(job_id).exit_code == code


def test_a_command_is_told_when_its_allocation_is_cancelled(cluster: LiveCluster) -> None:
    waits = Called(
        cluster, "-K", "sh", "-c", "echo $$; trap 'echo told; exit 3' TERM; while :; do sleep 0.05; done"
    )
    assert waits.process.stderr is not None and waits.process.stdout is not None
    job_id = int(waits.process.stderr.readline().split()[-1])
    waits.process.stdout.readline()
    cluster.do("escancel", str(job_id))
    code, out, err = waits.ends()
    assert (code, out) == (3, ["told"])
    assert err == [f"esalloc: Job allocation {job_id} has been revoked."]


def test_salloc_takes_slurm_s_options_and_variables(cluster: LiveCluster) -> None:
    code, out, err = ran(
        cluster,
        *("-Q", "--time=5", "-J", "named", "sh", "-c", "echo $SLURM_JOB_NAME $SLURM_NNODES"),
        command="salloc",
        SALLOC_PARTITION="main",
        SLURM_JOB_NAME="outer",
    )
    assert (code, out, err) == (0, ["named 1"], [])
    code, _, err = ran(cluster, "-p", "nowhere", "true", command="salloc")
    assert code == 1 and err[0].startswith(
        "salloc: error: Job submit/allocate failed: Invalid partition name"
    )


def test_a_step_outside_of_jobs_says_nothing_of_its_nodes(cluster: LiveCluster) -> None:
    said = "echo $SLURM_PROCID of $SLURM_NTASKS in $SLURM_JOB_ID on $SLURMD_NODENAME; exit $SLURM_PROCID"
    words = ("-N", "2", "-n", "3", "-w", "cn[0003-0004]", "-t", "5", "-J", "outside", "sh", "-c", said)
    code, out, err = ran(cluster, *words, command="esrun")
    job_id = int(out[0].split()[4])
    places = ("cn0003", "cn0003", "cn0004")
    assert sorted(out) == [f"{at} of 3 in {job_id} on {node}" for at, node in enumerate(places)]
    assert (code, err) == (2, ["esrun: task 1: exit code 1", "esrun: task 2: exit code 2"])
    assert cluster.end(job_id) == "FAILED"
    run = cluster.only_run(job_id)
    assert (run.exit_code, run.exit_signal) == (2, 0)
    cluster.wait_idle()


def test_a_step_outside_of_jobs_has_the_tasks_that_it_asked_for(cluster: LiveCluster, tmp_path: Path) -> None:
    said = "echo $SLURM_PROCID $SLURM_NNODES"
    code, out, err = ran(cluster, "-N", "2", "--ntasks-per-node=2", "sh", "-c", said, command="esrun")
    assert (code, sorted(out), err) == (0, ["0 2", "1 2", "2 2", "3 2"], [])
    code, out, err = ran(cluster, "-N", "2-3", "sh", "-c", said, command="esrun")
    assert (code, err) == (0, []) and out in (["0 2", "1 2"], ["1 2", "0 2"])
    pattern = tmp_path / "out-%j"
    code, out, err = ran(
        cluster, *("-n1", "-o", str(pattern), "sh", "-c", said), command="srun", SLURM_NTASKS="5"
    )
    assert (code, out, err) == (0, [], [])
    (file,) = tmp_path.glob("out-*")
    assert file.read_text() == "0 1\n"
    assert cluster.end(int(file.name.partition("-")[2])) == "COMPLETED"
    assert ran(cluster, "true", command="srun", SLURM_NTASKS="3", SLURM_PARTITION="main") == (0, [], [])
    code, _, err = ran(cluster, "-p", "nowhere", "true", command="srun")
    assert code == 1 and err[0].startswith(
        "srun: error: Unable to allocate resources: Invalid partition name specified"
    )


def test_a_step_that_waits_for_nodes_says_so_and_is_cancelled_by_an_interrupt(cluster: LiveCluster) -> None:
    holder = cluster.wrap("sleep 600", "-N", "16", "--exclusive")
    cluster.reaches(holder, "RUNNING")
    words = ("-N", "16", "--exclusive", "echo", "there")
    waits = Called(cluster, *words, command="srun")
    assert waits.process.stderr is not None
    job_id = int(waits.process.stderr.readline().split()[2])
    waits.process.send_signal(signal.SIGINT)
    code, out, err = waits.ends()
    assert (code, out) == (1, [])
    assert err == [f"srun: Job allocation {job_id} has been revoked.", "srun: Job aborted due to signal"]
    assert cluster.job(job_id).state == "CANCELLED"
    code, _, err = ran(cluster, "--immediate", *words, command="esrun")
    assert code == 1 and err[-1] == "esrun: error: Unable to allocate resources: Requested nodes are busy"
    waits = Called(cluster, *words, command="srun")
    assert waits.process.stderr is not None
    queued = waits.process.stderr.readline().strip()
    job_id = int(queued.split()[2])
    assert queued == f"srun: job {job_id} queued and waiting for resources"
    cluster.do("escancel", str(holder))
    code, out, err = waits.ends()
    assert (code, out) == (0, ["there"] * 16)
    assert err == [f"srun: job {job_id} has been allocated resources"]
    assert cluster.end(job_id) == "COMPLETED"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_ends_a_step_outside_of_jobs_and_gives_its_nodes_back(
    cluster: LiveCluster, number: int, code: int
) -> None:
    runs = Called(
        cluster, "--quit-on-interrupt", "sh", "-c", "echo $SLURM_JOB_ID $$; exec sleep 600", command="esrun"
    )
    assert runs.process.stdout is not None
    job_id, pid = runs.process.stdout.readline().split()
    runs.process.send_signal(number)
    found, _, err = runs.ends()
    assert found == code and err == [
        f"esrun: step {job_id}.0: ended by {signal.Signals(number).name}; its tasks are ended too"
    ]
    assert cluster.end(int(job_id)) == "FAILED"
    assert cluster.only_run(int(job_id)).exit_code == code
    cluster.until(lambda: not is_alive(pid), "its task is gone")


def test_a_step_outside_of_jobs_ends_when_its_job_is_cancelled(cluster: LiveCluster) -> None:
    runs = Called(cluster, "sh", "-c", "echo $SLURM_JOB_ID; exec sleep 600", command="esrun")
    assert runs.process.stdout is not None
    job_id = int(runs.process.stdout.readline())
    cluster.do("escancel", str(job_id))
    code, _, err = runs.ends()
    assert code == 143 and err == [
        "esrun: task 0: ended by signal 15",
        f"esrun: Job allocation {job_id} has been revoked.",
    ]
    assert cluster.end(job_id) == "CANCELLED"


@pytest.fixture(scope="module")
def short_cluster() -> Iterator[LiveCluster]:
    """A cluster that gives up commands after two seconds."""
    with running(nodes=2, agents=1, satellites=1, policy={"inactive_limit_s": 2.0}) as made:
        yield made


def test_an_allocation_ends_when_its_command_was_killed_and_not_before(short_cluster: LiveCluster) -> None:
    held = Called(short_cluster, "-N", "2", "sh", "-c", "echo $$; exec sleep 600")
    assert held.process.stdout is not None and held.process.stderr is not None
    pid = held.process.stdout.readline().strip()
    job_id = int(held.process.stderr.readline().split()[-1])
    lasting = int(ran(short_cluster, "--no-shell")[2][0].split()[-1])
    held.process.kill()
    held.process.wait()
    os.kill(int(pid), signal.SIGKILL)
    held.process.stdout.close()
    held.process.stderr.close()
    assert short_cluster.end(job_id) == "CANCELLED"
    assert "has not been heard of for 2 s" in short_cluster.only_run(job_id).exit_text
    short_cluster.until(lambda: not is_alive(pid), "its command is gone")
    assert short_cluster.job(lasting).state == "RUNNING"
    short_cluster.do("escancel", str(lasting))
    short_cluster.hang_up()


def test_nothing_stays_of_a_step_outside_of_jobs_whose_command_was_killed(short_cluster: LiveCluster) -> None:
    runs = Called(short_cluster, "sh", "-c", "echo $SLURM_JOB_ID $$; exec sleep 600", command="esrun")
    assert runs.process.stdout is not None and runs.process.stderr is not None
    job_id, pid = runs.process.stdout.readline().split()
    runs.process.kill()
    runs.process.wait()
    runs.process.stdout.close()
    runs.process.stderr.close()
    short_cluster.until(lambda: not is_alive(pid), "its task is gone")
    assert short_cluster.end(int(job_id)) == "CANCELLED"
    short_cluster.hang_up()


def test_an_allocation_outlives_its_controller_and_its_agents(
    short_cluster: LiveCluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    held = Called(
        short_cluster, "sh", "-c", f"until test -e {gate}; do sleep 0.02; done; esrun echo here; exit 5"
    )
    assert held.process.stderr is not None
    job_id = int(held.process.stderr.readline().split()[-1])
    short_cluster.kill("esctld", "agent0")
    for name in ("esctld", "agent0"):
        short_cluster.launch(name)
    short_cluster.wait_nodes(lambda nodes: all(one.state == "UP" for one in nodes.values()))
    gate.touch()
    code, out, err = held.ends()
    assert (code, out) == (5, ["here"]), err
    assert short_cluster.end(job_id) == "FAILED"
    short_cluster.hang_up()
