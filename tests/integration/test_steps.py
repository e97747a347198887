"""`esrun` inside jobs: tasks on the job's nodes, their output gathered, their exit codes merged."""

from __future__ import annotations

import os
import signal

import pytest

from tests.kits.cluster import CLUSTER, LiveCluster, is_alive
from tests.kits.commands import environment

COUNT = 'echo "$SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME"'


def door(cluster: LiveCluster) -> str:
    """Prefix root's commands: root's calls pass through no node. An ordinary user's do, see test_api_servers_e2e."""
    return f"export ESLURM_SOCKET={cluster.socket}; " if os.getuid() == 0 else ""


def step(cluster: LiveCluster, command: str, *words: str) -> tuple[str, list[str]]:
    """A job with this script, its state, and the lines that it said."""
    job_id = cluster.wrap(f"{door(cluster)}{command}", "-o", "said", *words)
    state = cluster.end(job_id)
    return state, cluster.lines("said")


def test_a_script_and_its_tasks_know_their_cluster_wherever_they_were_submitted(cluster: LiveCluster) -> None:
    said = "echo $SLURM_CLUSTER_NAME $ESLURM_CLUSTER_NAME"
    with environment({"SLURM_CLUSTER_NAME": "elsewhere", "ESLURM_CLUSTER_NAME": "elsewhere"}):
        assert step(cluster, f"{said}; esrun sh -c '{said}'") == ("COMPLETED", [f"{CLUSTER} {CLUSTER}"] * 2)


def test_one_task_on_each_node_and_the_output_of_all(cluster: LiveCluster) -> None:
    state, said = step(cluster, f"esrun sh -c '{COUNT}'", "-N", "16", "-n", "16")
    assert state == "COMPLETED", said
    assert sorted(said) == sorted(f"{at} of 16 on {name}" for at, name in enumerate(cluster.node_names))


def test_fewer_tasks_and_nodes_than_the_job_has(cluster: LiveCluster) -> None:
    state, said = step(
        cluster, f"esrun -n 4 -N 2 sh -c '{COUNT}'", "-N", "4", "-n", "8", "-w", "cn[0001-0004]"
    )
    assert state == "COMPLETED", said
    assert sorted(said) == ["0 of 4 on cn0001", "1 of 4 on cn0001", "2 of 4 on cn0002", "3 of 4 on cn0002"]


def test_labels_say_whose_line_it_is(cluster: LiveCluster) -> None:
    state, said = step(
        cluster, "esrun --label sh -c 'echo out $SLURM_PROCID; echo err >&2'", "-N", "3", "-n", "3"
    )
    assert state == "COMPLETED", said
    assert sorted(said) == ["0: err", "0: out 0", "1: err", "1: out 1", "2: err", "2: out 2"]


def test_the_highest_exit_code_is_the_steps(cluster: LiveCluster) -> None:
    command = "esrun sh -c 'exit $((SLURM_PROCID * 3))'; echo code $?"
    _, said = step(cluster, command, "-N", "3", "-n", "3")
    assert said[-1] == "code 6"
    assert any("exit code 3" in line for line in said) and any("exit code 6" in line for line in said)


def test_a_task_ended_by_a_signal(cluster: LiveCluster) -> None:
    command = "esrun sh -c 'test $SLURM_PROCID -ne 1 || kill -KILL $$'; echo code $?"
    _, said = step(cluster, command, "-N", "2", "-n", "2")
    assert said[-1] == f"code {128 + signal.SIGKILL}"


def test_a_program_that_does_not_exist(cluster: LiveCluster) -> None:
    # Several times: its end and the controller's word come to esrun on two ways, in either order.
    command = "for at in 1 2 3 4 5; do esrun no-such-program; echo code $?; done"
    _, said = step(cluster, command, "-N", "2", "-n", "2")
    assert said.count("code 1") == 5
    assert sum("no-such-program: command not found" in line for line in said) == 10, said


def test_steps_follow_one_another_and_run_beside_each_other(cluster: LiveCluster) -> None:
    command = (
        "for at in 1 2 3; do esrun -n2 sh -c 'echo one >> steps' || exit 9; done; "
        "esrun -n1 sh -c 'until test -e met; do sleep 0.02; done' & esrun -n1 touch met; wait $!"
    )
    state, said = step(cluster, command, "-n", "2")
    assert state == "COMPLETED", said
    assert len(cluster.lines("steps")) == 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_step_ends_its_tasks_everywhere(cluster: LiveCluster, number: int) -> None:
    # The first Ctrl-C asks for the states.
    again = f"sleep 0.3; kill -{int(number)} $!; " if number == signal.SIGINT else ""
    command = (
        "esrun sh -c 'echo $$ >> pids; sleep 600' & until test $(wc -l < pids || echo 0) -eq 4; do sleep 0.02; done; "
        f"kill -{int(number)} $!; {again}wait $!; echo code $?; for pid in $(cat pids); do "
        "while kill -0 $pid 2>&-; do sleep 0.02; done; done; echo gone"
    )
    state, said = step(cluster, f"touch pids; {command}", "-N", "4", "-n", "4")
    assert state == "COMPLETED", said
    assert said[-2:] == [f"code {128 + number}", "gone"]


def test_the_end_of_the_job_ends_its_steps(cluster: LiveCluster) -> None:
    stubborn = 'echo $$ >> pids; trap "" TERM; while :; do sleep 0.05; done'
    command = f"esrun sh -c '{stubborn}' & until test -e gate; do sleep 0.02; done"
    job_id = cluster.wrap(door(cluster) + command, "-N", "4", "-n", "4")
    pids = cluster.wait_lines("pids", 4)
    (cluster.work / "gate").touch()
    assert cluster.end(job_id) == "COMPLETED"
    cluster.wait_idle()
    cluster.until(lambda: not any(is_alive(pid) for pid in pids), "the tasks have ended")


def test_a_step_larger_than_its_job_is_refused(cluster: LiveCluster) -> None:
    _, said = step(cluster, "esrun -N 3 -n 3 true; echo code $?", "-N", "2", "-n", "2")
    assert said[-1] != "code 0" and "esrun:" in said[0]


def test_each_task_reads_the_input_of_its_command(cluster: LiveCluster) -> None:
    state, said = step(cluster, "printf 'a\\nb\\n' | esrun --label cat; echo code $?", "-N", "2", "-n", "2")
    assert state == "COMPLETED"
    assert sorted(said) == ["0: a", "0: b", "1: a", "1: b", "code 0"]


def test_input_goes_to_one_task_or_to_none(cluster: LiveCluster) -> None:
    command = (
        "echo x | esrun -i 1 --label cat; echo y | esrun --input=none --label cat; echo z | esrun -i 2 cat"
    )
    state, said = step(cluster, command, "-N", "2", "-n", "2")
    assert state == "FAILED"
    assert said[0] == "1: x"
    assert len(said) == 2 and "there is no task 2: the step has 2 (0-1)" in said[1]


def test_input_from_a_file_and_from_one_for_each_task(cluster: LiveCluster) -> None:
    command = (
        "echo all > in; echo zero > in.0; echo one > in.1; "
        "esrun -i in --label cat; esrun -i in.%t --label cat; esrun -i missing cat; echo code $?"
    )
    _, said = step(cluster, command, "-N", "2", "-n", "2")
    assert sorted(said[:4]) == ["0: all", "0: zero", "1: all", "1: one"]
    assert "cannot be opened: No such file" in said[4] and said[5] == "code 2"


def test_a_loop_of_steps_reads_lines_as_it_does_under_slurm(cluster: LiveCluster) -> None:
    """The first step takes all of the loop's input, unless it is told to take none."""
    command = "seq 3 > list; while read n; do esrun -n1 -N1 %s; done < list"
    _, said = step(cluster, command % "cat", "-N", "1", "-n", "1")
    assert said == ["2", "3"]
    _, said = step(cluster, command % "-i none echo line $n", "-N", "1", "-n", "1")
    assert said[2:] == ["line 1", "line 2", "line 3"]


def test_a_step_ends_when_its_tasks_do_whatever_comes_in(cluster: LiveCluster) -> None:
    _, said = step(cluster, "yes | esrun head -n 2; echo code $?", "-N", "2", "-n", "2")
    assert said == ["y"] * 4 + ["code 0"]


def test_a_task_that_fails_ends_the_others_where_that_is_asked_for(cluster: LiveCluster) -> None:
    command = "esrun -K sh -c 'test $SLURM_PROCID = 0 && exit 7; echo $$ > pid; exec sleep 600'; echo code $?"
    _, said = step(cluster, command, "-N", "2", "-n", "2")
    assert said[-1] == "code 7"
    assert any("a task failed: ending task 1" in line for line in said), said
    pids = cluster.lines("pid")
    assert not pids or not is_alive(int(pids[0]))


def test_all_tasks_are_ended_a_while_after_the_first(cluster: LiveCluster) -> None:
    command = "esrun -W 1 sh -c 'test $SLURM_PROCID = 0 || exec sleep 600'; echo code $?"
    _, said = step(cluster, command, "-N", "2", "-n", "2")
    assert said[-1] == f"code {128 + signal.SIGKILL}"


def test_the_variables_of_the_tasks(cluster: LiveCluster) -> None:
    said = "sh -c 'echo ${A-none} ${B-none} ${C-none} $SLURM_PROCID'"
    command = (
        f"export A=1 B=2; esrun {said}; esrun --export=A,C=3 {said}; esrun --export NONE {said}; "
        f"SLURM_EXPORT_ENV=NONE esrun {said}"
    )
    state, lines = step(cluster, command, "-N", "1", "-n", "1")
    assert (state, lines) == (
        "COMPLETED",
        ["1 2 none 0", "1 none 3 0", "none none none 0", "none none none 0"],
    )
