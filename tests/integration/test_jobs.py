"""Single jobs through all tiers: scripts, output files, ends of every kind, limits, holding, requeueing, cancelling.

Method: what happened is read from accounting and from lines that scripts append, so that a script that ran twice,
or not at all, is seen.
"""

from __future__ import annotations

import getpass
import signal

import pytest

from tests.kits.cluster import KILL_GRACE_S, LiveCluster, is_alive

FOREVER = "echo $$ >> pids; while :; do sleep 0.05; done"


def test_a_job_runs_once_and_is_accounted_once(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("echo $SLURM_JOB_ID >> ran", "-J", "first")
    run = cluster.only_run(job_id)
    assert (run.state, run.exit_code, run.exit_signal, run.attempt) == ("COMPLETED", 0, 0, 1)
    assert (run.name, run.nodes, run.cpus) == ("first", 1, 1)
    assert run.submitted_us <= run.started_us <= run.ended_us
    assert cluster.lines("ran") == [str(job_id)]


def test_the_queue_shows_a_job_right_after_its_submission(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("true", "--hold")
    ran = cluster.run("esqueue", "-h", "-o", "%i %t %r")
    assert ran.out.split() == [str(job_id), "PD", "JobHeldUser"]
    cluster.do("escancel", str(job_id))
    assert cluster.end(job_id) == "CANCELLED"


def test_options_in_the_script_lie_under_those_of_the_command_line(cluster: LiveCluster) -> None:
    script = cluster.script(
        "job.sh",
        "#!/bin/sh\n#SBATCH -J inside -c 2\n#SBATCH --time=5\n#ESLURM -o said.%x\necho $SLURM_CPUS_PER_TASK $1",
    )
    job_id = cluster.submit("-J", "outside", script, "word")
    run = cluster.only_run(job_id)
    assert (run.state, run.name, run.cpus) == ("COMPLETED", "outside", 2)
    assert cluster.lines("said.outside") == ["2 word"]
    assert cluster.job(job_id).time_limit_s == 300


def test_output_files_are_named_by_their_patterns(cluster: LiveCluster) -> None:
    command = "echo out; echo err >&2"
    job_id = cluster.wrap(command, "-J", "nm", "-w", "cn0002", "-o", "o.%j.%x.%u.%N", "-e", "e.%j")
    assert cluster.end(job_id) == "COMPLETED"
    assert cluster.lines(f"o.{job_id}.nm.{getpass.getuser()}.cn0002") == ["out"]
    assert cluster.lines(f"e.{job_id}") == ["err"]


def test_output_without_a_pattern_has_the_jobs_number_in_its_name(cluster: LiveCluster) -> None:
    before = set(cluster.work.iterdir())
    job_id = cluster.wrap("echo out; echo err >&2")
    assert cluster.end(job_id) == "COMPLETED"
    (made,) = set(cluster.work.iterdir()) - before
    assert str(job_id) in made.name
    assert made.read_text().split() == ["out", "err"]


def test_array_tasks_have_files_of_their_own(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("echo $SLURM_ARRAY_TASK_ID", "--array", "3-5", "-o", "t.%A.%a")
    assert cluster.end(job_id) == "COMPLETED"
    assert [cluster.lines(f"t.{job_id}.{task}") for task in (3, 4, 5)] == [["3"], ["4"], ["5"]]


def test_output_is_appended_unless_asked_otherwise(cluster: LiveCluster) -> None:
    seen = []
    for words in ((), (), ("--open-mode", "truncate")):
        assert cluster.end(cluster.wrap("echo x", "-o", "kept", *words)) == "COMPLETED"
        seen.append(len(cluster.lines("kept")))
    assert seen == [1, 2, 1]


def test_standard_input_comes_from_the_named_file(cluster: LiveCluster) -> None:
    (cluster.work / "in").write_text("hello\n")
    assert cluster.end(cluster.wrap("cat", "-i", "in", "-o", "out")) == "COMPLETED"
    assert cluster.lines("out") == ["hello"]


@pytest.mark.parametrize(("words", "expected"), [("exit 7", (7, 0)), ("kill -KILL $$", (0, 9))])
def test_a_job_that_fails_says_how(cluster: LiveCluster, words: str, expected: tuple[int, int]) -> None:
    run = cluster.only_run(cluster.wrap(words))
    assert (run.state, run.exit_code, run.exit_signal) == ("FAILED", *expected)


def test_waiting_gives_the_jobs_exit_code(cluster: LiveCluster) -> None:
    codes = [
        cluster.run("essubmit", "-W", "-Q", "-D", str(cluster.work), "--wrap", words).code
        for words in ("true", "exit 7", "kill -TERM $$")
    ]
    assert codes == [0, 7, 128 + signal.SIGTERM]


def test_only_exported_variables_reach_the_script(
    cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THREE", "3")
    command = 'echo "$ONE|$TWO|$THREE" > seen'
    assert cluster.end(cluster.wrap(command, "--export", "ONE=1,TWO=a b")) == "COMPLETED"
    assert cluster.lines("seen") == ["1|a b|"]


def test_a_time_limit_is_sigterm_then_sigkill(cluster: LiveCluster) -> None:
    command = "trap 'echo term >> said' TERM; while :; do sleep 0.05; done"
    run = cluster.only_run(cluster.wrap(command, "-t", "0:02"))
    assert run.state == "TIMEOUT"
    assert cluster.lines("said") == ["term"]
    assert run.ended_us - run.started_us >= 2_000_000 + KILL_GRACE_S * 1e6


def test_a_script_may_tidy_up_at_its_time_limit(cluster: LiveCluster) -> None:
    command = "trap 'echo tidy >> said; exit 0' TERM; while :; do sleep 0.05; done"
    assert cluster.only_run(cluster.wrap(command, "-t", "0:02")).state == "TIMEOUT"
    assert cluster.lines("said") == ["tidy"]


# ---- cancelling ----


def test_a_pending_job_is_cancelled_and_never_runs(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("echo x >> ran", "--begin", "now+1hour")
    cluster.do("escancel", str(job_id))
    assert cluster.end(job_id) == "CANCELLED"
    assert cluster.lines("ran") == []


def test_a_running_job_is_cancelled_with_everything_it_started(cluster: LiveCluster) -> None:
    job_id = cluster.wrap(f"( {FOREVER.replace('$$', 'x')} ) & sleep 0.01; {FOREVER}")
    cluster.wait_lines("pids", 2)
    cluster.do("escancel", str(job_id))
    run = cluster.only_run(job_id)
    assert run.state == "CANCELLED"
    pid = next(line for line in cluster.lines("pids") if line != "x")
    assert not is_alive(pid)


def test_a_signal_reaches_the_script_and_ends_nothing(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("trap 'echo usr1 > said; exit 0' USR1; echo > ready; while :; do sleep 0.05; done")
    cluster.wait_lines("ready")
    # The script may be ahead of the report of its start.
    cluster.reaches(job_id, "RUNNING")
    cluster.do("escancel", "-s", "USR1", str(job_id))
    assert cluster.only_run(job_id).state == "COMPLETED"
    assert cluster.lines("said") == ["usr1"]


def test_one_task_of_an_array_is_cancelled_and_the_others_go_on(cluster: LiveCluster) -> None:
    command = f"echo $SLURM_ARRAY_TASK_ID >> ran; test $SLURM_ARRAY_TASK_ID -ne 2 || {{ {FOREVER}; }}"
    job_id = cluster.wrap(command, "--array", "1-3")
    cluster.wait_lines("pids")
    cluster.wait_lines("ran", 3)
    cluster.do("escancel", f"{job_id}_2")
    cluster.end(job_id)
    assert [(run.array_task, run.state) for run in cluster.runs(job_id)] == [
        (1, "COMPLETED"),
        (2, "CANCELLED"),
        (3, "COMPLETED"),
    ]
    ran = cluster.run("esacct", "-j", f"{job_id}_2", "-h", "-P", "-o", "jobid,state")
    assert ran.out.split() == [f"{job_id}_2|CANCELLED"]


def test_a_waiting_task_of_an_array_is_cancelled_and_never_runs(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("echo $SLURM_ARRAY_TASK_ID >> ran", "--array", "1-3", "--hold")
    cluster.do("escancel", f"{job_id}_2")
    cluster.do("esctl", "release", str(job_id))
    cluster.end(job_id)
    assert sorted(cluster.lines("ran")) == ["1", "3"]


# ---- holding, releasing, requeueing ----


def test_a_held_job_waits_for_its_release(cluster: LiveCluster) -> None:
    held = cluster.wrap("echo held >> ran", "--hold")
    later = cluster.wrap("echo free >> ran")
    assert cluster.end(later) == "COMPLETED"
    assert cluster.job(held).state == "PENDING"
    cluster.do("esctl", "release", str(held))
    assert cluster.only_run(held).state == "COMPLETED"
    assert cluster.lines("ran") == ["free", "held"]


def test_a_pending_job_is_held_on_request(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("echo >> ran", "--begin", "now+1hour")
    cluster.do("esctl", "hold", str(job_id))
    assert cluster.job(job_id).reason == "JobHeldUser"
    cluster.do("esctl", "update", "job", str(job_id), "begin=now")
    assert cluster.job(job_id).reason == "JobHeldUser"
    cluster.do("esctl", "release", str(job_id))
    assert cluster.end(job_id) == "COMPLETED"


def test_a_requeued_job_runs_again_as_a_new_attempt(cluster: LiveCluster) -> None:
    command = f"echo >> ran; test $(wc -l < ran) -gt 1 || {{ {FOREVER}; }}"
    job_id = cluster.wrap(command)
    cluster.wait_lines("pids")
    # The script may be ahead of the report of its start.
    cluster.reaches(job_id, "RUNNING")
    cluster.do("esctl", "requeue", str(job_id))
    assert cluster.end(job_id) == "COMPLETED"
    assert len(cluster.lines("ran")) == 2
    first, second = cluster.runs(job_id)
    assert (first.attempt, second.attempt, second.state) == (1, 2, "COMPLETED")
    assert first.ended_us <= second.started_us
    assert not is_alive(cluster.lines("pids")[0])


def test_hundreds_of_array_tasks_each_run_once(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("echo $SLURM_ARRAY_TASK_ID >> ran", "--array", "0-299", "-o", "/dev/null")
    assert cluster.end(job_id) == "COMPLETED"
    assert sorted(map(int, cluster.lines("ran"))) == list(range(300))
    assert [run.array_task for run in cluster.runs(job_id)] == list(range(300))
