"""Steps of one job that take what they claim: they wait for each other, and nothing that dies is waited for."""

from __future__ import annotations

import sys

import pytest

from tests.integration.test_steps import door, step
from tests.kits.cluster import LiveCluster

ALONE = "mkdir alone && sleep 0.2 && rmdir alone"


def test_steps_that_take_all_of_their_job_run_one_after_another(cluster: LiveCluster) -> None:
    command = f"for at in 1 2 3 4; do esrun -N1 sh -c '{ALONE}' || touch bad & done; wait; test ! -e bad"
    state, said = step(cluster, command, "-n", "1")
    assert state == "COMPLETED", said


def test_steps_run_beside_each_other_as_far_as_their_cores_go(cluster: LiveCluster) -> None:
    command = (
        # Two of them meet, and the third one has to wait for the end of one of them.
        "meet='touch here.$$; until test $(ls here.* | wc -l) -ge 2; do sleep 0.02; done'; "
        'esrun -n1 sh -c "$meet" & esrun -n1 sh -c "$meet" & wait; rm here.*; '
        f"esrun -n1 sh -c '{ALONE}' & esrun -n2 sh -c 'test ! -e alone || touch bad' & wait; test ! -e bad"
    )
    state, said = step(cluster, command, "-n", "2")
    assert state == "COMPLETED", said


def test_a_step_whose_command_was_killed_is_not_waited_for(cluster: LiveCluster) -> None:
    command = (
        "esrun sh -c 'touch begun; sleep 600' & until test -e begun; do sleep 0.02; done; "
        "kill -KILL $!; esrun echo next"
    )
    state, said = step(cluster, command, "-n", "1")
    assert (state, said[-1]) == ("COMPLETED", "next")


def test_a_full_job_lets_steps_in_that_share_and_refuses_those_that_do_not_wait(cluster: LiveCluster) -> None:
    command = (
        "esrun sh -c 'touch begun; until test -e gate; do sleep 0.02; done' & until test -e begun; do sleep 0.02; done; "
        "esrun --overlap echo shared; esrun --immediate true; echo code $?; "
        'esrun --overlap sh -c "ESLURM_SOCKET=$ESLURM_SOCKET esrun -n1 echo nested"; touch gate; wait'
    )
    state, said = step(cluster, command, "-n", "1")
    assert state == "COMPLETED"
    assert [said[0], *said[2:]] == ["shared", "code 1", "nested"]
    assert "would have to wait" in said[1]


def test_a_waiting_step_says_so_and_is_withdrawn_by_a_signal(cluster: LiveCluster) -> None:
    command = (
        "esrun sh -c 'touch begun; until test -e gate; do sleep 0.02; done' & until test -e begun; do sleep 0.02; done; "
        "esrun touch late 2> told & until grep -qs 'waits for its turn' told; do sleep 0.02; done; "
        "kill $!; wait $!; echo code $?; touch gate; wait; test ! -e late && esrun echo free"
    )
    state, said = step(cluster, command, "-n", "1")
    assert (state, said) == ("COMPLETED", ["code 143", "free"])


def test_a_step_ends_at_its_own_time_limit(cluster: LiveCluster) -> None:
    command = "esrun -t 0:01 sleep 600; echo code $?; esrun echo next"
    state, said = step(cluster, command, "-n", "1")
    assert state == "COMPLETED"
    assert "its time limit of 1 s has passed" in said[0]
    assert said[-2:] == ["code 143", "next"]


@pytest.mark.slow
def test_waiting_steps_outlive_the_controller_and_the_agent(broken: LiveCluster) -> None:
    command = (
        "esrun sh -c 'touch begun; until test -e gate; do sleep 0.02; done' & "
        # The others would else run before it.
        "until test -e begun; do sleep 0.02; done; "
        "for at in 1 2 3; do esrun sh -c 'echo ran >> runs' & done; wait"
    )
    job_id = broken.wrap(door(broken) + command, "-n", "1", "-o", "said")

    def waits() -> bool:
        return "waits for its turn" in "".join(broken.lines("said"))

    broken.until(waits, "a step waits")
    broken.kill("esctld", "agent0")
    broken.launch("esctld")
    broken.launch("agent0")
    (broken.work / "gate").touch()
    assert broken.end(job_id) == "COMPLETED"
    assert broken.lines("runs") == ["ran"] * 3


def test_steps_without_a_command_queue_up_and_are_waited_for(cluster: LiveCluster) -> None:
    # Other installations of this environment may have no launcher for it.
    wait = f"{sys.executable} -c 'from escli.user.eswait import main; raise SystemExit(main())'"
    command = (
        f"for at in 1 2 3 4; do esrun -n1 --async -o part-%s sh -c '{ALONE}; echo $SLURM_STEP_ID'; done; "
        f"esrun --async -o part-%s sh -c 'exit 5'; {wait}; echo code $?; {wait} 0 1; echo code $?; cat part-*"
    )
    state, said = step(cluster, command, "-n", "1")
    job_id = said[0].partition(".")[0]
    assert state == "COMPLETED"
    assert said == [
        *(f"{job_id}.{at}" for at in range(5)),
        f"eswait: step {job_id}.4: exit code 5",
        *("code 5", "code 0"),
        *map(str, range(4)),
    ]
