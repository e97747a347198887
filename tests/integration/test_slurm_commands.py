"""Slurm's commands on a live cluster, by their launchers, and without a variable that names it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_up import Cluster
from tests.kits.slurm import PATIENCE_S, Answer, Slurm, installed


@pytest.fixture
def slurm(state_dir: Path, adopt_orphans: None) -> Iterator[Slurm]:
    with installed(state_dir) as slurm:
        yield slurm


@pytest.mark.slow
def test_a_job_is_submitted_seen_and_cancelled(slurm: Slurm, state_dir: Path) -> None:
    work = state_dir / "work"

    # A job is everywhere before sbatch has returned.
    answer = slurm("sbatch", "--hold", "-J", "held", "--comment", "a b", "--wrap", "true")
    assert answer == Answer(0, "Submitted batch job 1\n", "")
    assert slurm("squeue", "-h", "-o", "%i|%j|%T|%r").out == "1|held|PENDING|JobHeldUser\n"
    assert slurm("sacct", "-n", "-P", "-j", "1", "-o", "jobid,state").out == "1|PENDING\n"
    assert "JobState=PENDING Reason=JobHeldUser" in slurm("scontrol", "show", "job", "1").out

    assert slurm("scontrol", "release", "1").code == 0
    slurm.until(
        "1|COMPLETED|0:0\n1.batch|COMPLETED|0:0\n",
        "sacct",
        "-n",
        "-P",
        "-j",
        "1",
        "-o",
        "jobid,state,exitcode",
    )
    assert slurm("squeue", "-h").out == ""
    assert slurm("squeue", "-h", "-t", "all", "-o", "%i %t").out == "1 CD\n"

    # Its exit code is that of --wait; standard input is a script.
    answer = slurm(
        "sbatch", "-W", "--parsable", "-o", "out-%j.txt", text="#!/bin/sh\necho $SLURM_JOB_ID\nexit 7\n"
    )
    assert (answer.code, answer.out) == (7, "2\n")
    assert (work / "out-2.txt").read_text() == "2\n"

    # An array: its waiting tasks are one line, a task is cancelled, and stays known.
    answer = slurm("sbatch", "-a", "0-5%1", "--wrap", "sleep 100")
    assert answer.out == "Submitted batch job 3\n"
    slurm.until("3_0\n", "squeue", "-h", "-t", "R", "-o", "%i")
    assert slurm("squeue", "-h", "-t", "PD", "-o", "%i").out == "3_[1-5%1]\n"
    assert slurm("scancel", "3_4").code == 0
    assert (
        slurm("sacct", "-n", "-X", "-P", "-j", "3_4", "-o", "jobid,state").out
        == f"3_4|CANCELLED by {os.getuid()}\n"
    )
    assert slurm("scancel", "-n", "wrap").code == 0
    slurm.until("", "squeue", "-h")

    # Nodes, and what does not exist.
    assert slurm("sinfo", "-h", "-o", "%P %D %t").out == "main* 2 idle\n"
    assert slurm("squeue", "-j", "99") == Answer(1, "", "slurm_load_jobs error: Invalid job id specified\n")
    assert slurm("scancel", "99") == Answer(0, "", "")
    # Outside of jobs srun gets nodes for its step; an option that it has not is refused.
    assert slurm("srun", "hostname") == Answer(0, f"{os.uname().nodename}\n", "")
    assert slurm("srun", "--pty=1", "hostname").code == 1
    answer = slurm(
        "sbatch",
        "-W",
        "-n2",
        "-o",
        "steps",
        "--wrap",
        "srun -l --cpu-bind=q echo step; srun --exclusive -n1 echo alone; srun --bcast=x hostname",
    )
    assert answer.code == 1
    assert sorted((work / "steps").read_text().splitlines()) == [
        "0: step",
        "1: step",
        'Try "srun --help" for more information',
        "alone",
        "srun: unrecognized option '--bcast'",
    ]
    assert slurm("sbatch", "-V").out == "slurm 25.11.0\n"

    # What the controller has counted of all this.
    answer = slurm("sdiag")
    said = answer.out
    assert answer.code == 0, answer
    assert "\nJobs submitted: 5\n" in said
    assert re.search(r"\n\tTotal cycles: [1-9]", said)
    assert re.search(r"\n\tREQUEST_SUBMIT_BATCH_JOB +\( 4003\) count:[4-9] ", said)
    counts = json.loads(slurm("sdiag", "--json").out)["statistics"]
    assert counts["jobs_submitted"] == 5
    assert os.getuid() in [row["user_id"] for row in counts["rpcs_by_user"]]


@pytest.mark.slow
def test_signals_reach_steps_or_all(slurm: Slurm, state_dir: Path) -> None:
    """scancel sends a signal to steps, and with --full to the script, too."""
    work = state_dir / "work"
    trap = "trap 'echo script >> got; exit 0' USR1; touch ready; while :; do sleep 0.1; done"
    assert slurm("sbatch", "--wrap", trap).code == 0
    end = time.monotonic() + PATIENCE_S
    while not (work / "ready").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    assert slurm("scancel", "-s", "USR1", "1").code == 0
    assert slurm("squeue", "-h", "-o", "%t").out == "R\n"
    assert not (work / "got").exists()
    assert slurm("scancel", "--full", "-s", "USR1", "1").code == 0
    slurm.until("COMPLETED\n", "sacct", "-n", "-X", "-P", "-j", "1", "-o", "state")
    assert (work / "got").read_text() == "script\n"


@pytest.mark.slow
def test_srun_says_how_its_tasks_end_in_slurms_words(slurm: Slurm, state_dir: Path) -> None:
    answer = slurm("srun", "-n2", "sh", "-c", "exit $((SLURM_PROCID * 7))")
    assert answer.code == 7
    assert re.fullmatch(r"srun: error: \w+: task 1: Exited with exit code 7\n", answer.err), answer
    answer = slurm(
        "srun", "-n2", "-K1", "sh", "-c", "test $SLURM_PROCID = 1 && kill -SEGV $$; exec sleep 600"
    )
    assert answer.code == 128 + 11
    assert re.fullmatch(
        r"srun: error: \w+: task 1: Segmentation fault\n"
        r"srun: launch/slurm: _step_signal: Terminating StepId=\d+\.0\n",
        answer.err,
    ), answer
    # Tasks on each node, within a job.
    script = (
        "srun --ntasks-per-node=1 sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS'; "
        "srun -N1 --ntasks-per-node=2 sh -c 'echo one node $SLURM_PROCID of $SLURM_NTASKS'; "
        "srun -n 2 --ntasks-per-node=1 sh -c 'echo bound $SLURM_PROCID'; srun -N1 -n2 --ntasks-per-node=1 true"
    )
    assert slurm("sbatch", "-W", "-N2", "--ntasks-per-node=2", "-o", "each", "--wrap", script).code == 1
    said = (state_dir / "work" / "each").read_text().splitlines()
    assert sorted(said[:6]) == [
        *("0 of 2", "1 of 2", "bound 0", "bound 1", "one node 0 of 2", "one node 1 of 2")
    ]
    assert said[6] == (
        "srun: error: --ntasks-per-node=1 does not fit the numbers of nodes and tasks: use -N and -n"
    )
    # A program for each task.
    (state_dir / "work" / "programs").write_text("0 echo first\n* echo task %t\n")
    answer = slurm("srun", "-n2", "-l", "--multi-prog", "programs")
    assert (answer.code, sorted(answer.out.splitlines())) == (0, ["0: first", "1: task 1"]), answer
    answer = slurm("srun", "-n2", "--multi-prog", "missing")
    assert (answer.code, answer.err) == (
        1,
        "srun: error: Unable to open configuration file missing: No such file or directory\n",
    )
    # A look into a job that runs.
    assert slurm("sbatch", "-J", "long", "--wrap", "touch ready; sleep 600").code == 0
    job_id = slurm("squeue", "-h", "-n", "long", "-o", "%i").out.strip()
    slurm.until("R\n", "squeue", "-h", "-j", job_id, "-o", "%t")
    answer = slurm(
        "srun", f"--jobid={job_id}", "--overlap", "-m", "block", "sh", "-c", "echo in $SLURM_JOB_ID"
    )
    assert answer == Answer(0, f"in {job_id}\n", ""), answer
    assert slurm("scancel", job_id).code == 0
    answer = slurm("srun", "--wait=soon", "true")
    assert answer.code == 1 and answer.err.startswith("srun: error: "), answer


@pytest.mark.slow
def test_sbcast_brings_a_file_to_the_nodes(slurm: Slurm, state_dir: Path) -> None:
    work = state_dir / "work"
    data = os.urandom(3_000_000)
    (work / "tool").write_bytes(data)
    (work / "tool").chmod(0o750)
    (work / "there").mkdir()
    # Both nodes are of this host, so one finds the other's file.
    script = (
        "sbcast -fp tool copy && sbcast -f tool there && sbcast tool copy; echo code $?; "
        "sbcast missing x; sbcast tool /no/such/dir/x; ls -A"
    )
    answer = slurm("sbatch", "-W", "-N2", "-o", "said", "-e", "said", "--wrap", script)
    assert answer.code == 0, answer
    said = (work / "said").read_text().splitlines()
    refusals = [line for line in said if "File exists" in line]
    assert len(refusals) == 2 and all(
        re.fullmatch(r"sbcast: error: REQUEST_FILE_BCAST\(\w+\): File exists", line) for line in refusals
    ), said
    assert "code 1" in said
    assert "sbcast: error: Can't open `missing`: No such file or directory" in said
    assert sum("Can't create a file beside /no/such/dir/x" in line for line in said) == 2
    assert (work / "copy").read_bytes() == data == (work / "there" / "tool").read_bytes()
    found = (work / "copy").stat()
    assert (found.st_mode & 0o777, int(found.st_mtime)) == (0o750, int((work / "tool").stat().st_mtime))
    # Nothing is left of copies that failed.
    assert not [path.name for path in work.iterdir() if path.name.startswith("copy.")]
    for words in (
        ["tool"],
        ["-j", "99", "tool", "x"],
        ["-j", "x", "tool", "x"],
        ["tool", "x"],
        ["-j1", "/tmp", "x"],
    ):
        answer = slurm("sbcast", *words)
        assert answer.code == 1 and answer.err.startswith("sbcast: error: "), answer


@pytest.mark.slow
def test_sattach_shows_a_step_that_runs(slurm: Slurm, state_dir: Path) -> None:
    task = "until test -e go; do echo tick; sleep 0.05; done; echo last $SLURM_PROCID; exit $SLURM_PROCID"
    # The nodes are virtual ones of this host.
    answer = slurm("sbatch", "-N2", "-n2", "--parsable", "--wrap", f"srun sh -c '{task}'")
    job_id = answer.out.strip()
    nodes = slurm("sinfo", "-h", "-o", "%N").out.strip()
    stem = nodes.partition("[")[0]
    slurm.until(
        f"Job step layout:\n\t2 tasks, 2 nodes ({nodes})\n\n\tNode 0 ({stem}01), 1 task(s): 0\n"
        f"\tNode 1 ({stem}02), 1 task(s): 1\n",
        "sattach",
        "--layout",
        f"{job_id}.0",
    )
    for words, text in (
        (["7"], "Did not find a period in the step ID string"),
        (["7.x"], '"7.x" does not look like a stepid'),
        ([f"{job_id}.9"], f"Could not get job step info: step {job_id}.9 does not exist"),
        ([f"{job_id}.batch"], f"tail -f {state_dir}/work/slurm-{job_id}.out"),
        (["--pty", f"{job_id}.0"], "--pty is not supported"),
        (["--input-filter=1", f"{job_id}.0"], "--input-filter=1 is not supported"),
        (["--output-filter=x", f"{job_id}.0"], 'Invalid numeric value "x" for output-filter'),
    ):
        answer = slurm("sattach", *words)
        assert answer.code == 1 and answer.err.startswith("sattach: error: ") and text in answer.err, answer

    seen = slurm.work / "seen"
    with seen.open("w") as out, (slurm.work / "err").open("w") as err:
        attached = subprocess.Popen(
            [slurm.bin / "sattach", "-l", f"{job_id}.0"], cwd=slurm.work, stdout=out, stderr=err, env={}
        )
    end_s = time.monotonic() + PATIENCE_S
    while "1: tick" not in seen.read_text():
        assert time.monotonic() < end_s and attached.poll() is None
        time.sleep(0.05)
    (slurm.work / "go").touch()
    assert attached.wait(PATIENCE_S) == 1
    assert {"0: last 0", "1: last 1"} <= set(seen.read_text().splitlines())
    assert (slurm.work / "err").read_text() == "sattach: error: task 1 exited with exit code 1\n"


@pytest.mark.slow
def test_sstat_measures_a_step_on_two_nodes(slurm: Slurm) -> None:
    # The second task computes, the first one waits; both have a child.
    task = "echo $$ > pid-$SLURM_PROCID; until test -e go; do test $SLURM_PROCID = 0 && sleep 0.05; done"
    job_id = slurm("sbatch", "-N2", "-n2", "--parsable", "--wrap", f"srun sh -c '{task}'").out.strip()
    nodes = slurm("sinfo", "-h", "-o", "%N").out.strip()
    stem = nodes.partition("[")[0]
    end_s = time.monotonic() + PATIENCE_S
    wanted = ("-n", "-P", "-o", "jobid,ntasks,mincpunode,mincputask,maxrsstask,averss,nodelist,avecpu")
    # Until the second one has computed for some time, by the kernel's count.
    while (answer := slurm("sstat", *wanted, "-j", job_id)).out.rpartition("|")[2] in ("", "00:00.000\n"):
        assert time.monotonic() < end_s, answer
        time.sleep(0.1)
    cells = answer.out.split("|")
    assert (answer.code, cells[:4]) == (0, [f"{job_id}.0", "2", f"{stem}01", "0"]), answer
    assert cells[4] in ("0", "1") and cells[6] == f"{stem}[01-02]"
    assert int(slurm("sstat", "-n", "-P", "--noconvert", "-o", "averss", "-j", f"{job_id}.0").out) > 100_000

    pids = slurm("sstat", "-n", "-P", "-i", "-j", f"{job_id}.0").out.splitlines()
    assert [line.split("|")[:2] for line in pids] == [[f"{job_id}.0", f"{stem}0{at}"] for at in (1, 2)]
    for rank, line in enumerate(pids):
        assert (slurm.work / f"pid-{rank}").read_text().strip() in line.split("|")[2].split(",")
    second = (slurm.work / "pid-1").read_text().strip()
    listed = slurm("scontrol", "listpids", f"{job_id}.0", f"{stem}02").out.splitlines()[1:]
    assert [second, job_id, "0", "0", "1"] in [line.split() for line in listed]
    all_steps = slurm("sstat", "-a", "-n", "-P", "-o", "jobid,ntasks", "-j", job_id)
    assert all_steps == Answer(0, f"{job_id}.batch|1\n{job_id}.0|2\n", "")

    (slurm.work / "go").touch()
    slurm.until("", "squeue", "-h")
    assert slurm("sstat", "-n", "-j", job_id) == Answer(
        0, "", f"sstat: error: No steps running for job {job_id}\n"
    )


def test_a_real_slurm_is_not_hidden(tmp_path: Path, state_dir: Path) -> None:
    cluster = Cluster(state_dir)
    other = tmp_path / "other"
    other.mkdir()
    (other / "squeue").write_text("#!/bin/sh\n")
    (other / "squeue").chmod(0o755)
    cluster.environment["PATH"] = f"{other}:/usr/bin:/bin"
    words = ("eslurm", "compat", "install", "--prefix", str(tmp_path / "ours"))
    answer = cluster(*words)
    assert answer.code == 1
    assert f"{other}/squeue is a command of another system" in answer.err
    assert not (tmp_path / "ours").exists()
    assert cluster(*words, "--force", "--slurm-version", "22.05").code == 0
    assert "release='22.05'" in (tmp_path / "ours/bin/squeue").read_text()
    assert cluster(*words, "--force").code == 0
    answer = cluster(
        "eslurm", "compat", "install", "--prefix", str(other.parent / "other2"), "--slurm-version", "1"
    )
    assert answer.code == 2
    assert "use one of 25.11, 22.05" in answer.err


@pytest.mark.slow
def test_accounts_are_managed_and_their_use_is_reported(slurm: Slurm, state_dir: Path) -> None:
    """sacctmgr changes the policies that esctl shows, jobs are charged, sreport and eslurm report add up what they used."""
    import pwd

    user = pwd.getpwuid(os.getuid()).pw_name
    answer = slurm("sacctmgr", "add", "account", "physics", "GrpTRES=cpu=2", text="y")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(" Adding Account(s)\n  physics\n Settings\n")
    assert answer.out.endswith("Would you like to commit changes? (You have 30 seconds to decide)\n(N/y): \n")
    assert slurm("sacctmgr", "add", "account", "chemistry", text="n").out.endswith(" Changes Discarded\n")
    assert slurm("sacctmgr", "-i", "add", "user", user, "account=physics").code == 0
    shown = slurm("sacctmgr", "-nP", "show", "assoc", "format=account,user,share,grptres")
    assert shown == Answer(0, f"root||1|\nphysics||1|cpu=2\nphysics|{user}|1|\n", "")

    # The account is the job's default, and its limit holds.
    assert slurm("sbatch", "-W", "-n2", "--wrap", "sleep 2").code == 0
    assert slurm("sacct", "-nXP", "-j", "1", "-o", "account,alloccpus,state").out == "physics|2|COMPLETED\n"
    refused = slurm("sbatch", "-n3", "--wrap", "true")
    assert (refused.code, "physics" in refused.err) == (1, True)
    running = slurm("sbatch", "-n1", "--wrap", "exec sleep 600")
    assert running.code == 0
    slurm.until("RUNNING\n", "squeue", "-h", "-o", "%T")

    words = (
        "-nP",
        "-t",
        "seconds",
        "cluster",
        "AccountUtilizationByUser",
        "start=now-2hours",
        "end=now+1hour",
    )
    answer = slurm("sreport", *words, "format=account,login,used")
    rows = [line.split("|") for line in answer.out.splitlines()]
    assert [row[:2] for row in rows] == [["root", ""], ["physics", ""], ["physics", user]], answer
    assert len({row[2] for row in rows}) == 1
    assert int(rows[0][2]) >= 4
    answer = slurm(
        "sreport", "-nP", "job", "SizesByAccount", "start=now-2hours", "end=now+1hour", "printjobcount"
    )
    assert answer.out.split("|")[2:] == ["2", "0", "0", "0", "0", "2", "100.00%\n"]
    told = json.loads(
        slurm.cluster("eslurm", "report", "--json", "--state-dir", str(slurm.cluster.directory)).out
    )
    assert [(row["cores"], row["jobs"]) for row in told["rows"]] == [(2, 1), (1, 1)]

    # Its nodes are set aside, as scontrol shows.
    words = (
        "reservation",
        "add",
        "course",
        "nodes=1",
        "start=2030-01-31T08:00",
        "duration=4h",
        "accounts=physics",
    )
    assert slurm.cluster("esctl", *words).code == 0
    record = slurm("scontrol", "-o", "show", "reservation", "course").out
    assert record.startswith("ReservationName=course StartTime=2030-01-31T")
    assert " Duration=04:00:00 Nodes=" in record
    assert " NodeCnt=1 " in record
    assert " Accounts=physics " in record
    assert slurm.cluster("esctl", "reservation", "delete", "course").code == 0
    assert slurm("scontrol", "show", "licenses").out == "No licenses configured in Slurm.\n"

    # What jobs use stays; what nothing uses is loaded again from its file.
    path = str(state_dir / "site.cfg")
    name = slurm("sacctmgr", "-nP", "show", "cluster", "format=cluster").out.strip()
    assert slurm("sacctmgr", "dump", name, f"file={path}") == Answer(0, "", "")
    active = slurm("sacctmgr", "-i", "delete", "user", user)
    assert (active.code, active.out) == (1, "")
    assert active.err.startswith(
        " Error with request: Job(s) active, cancel job(s) before remove\n  JobID = 2 "
    )
    assert slurm("scancel", "2").code == 0
    slurm.until("", "squeue", "-h")
    assert slurm("sacctmgr", "-i", "delete", "user", user).out == f" Deleting users...\n  {user}\n"
    assert slurm("sacctmgr", "-i", "delete", "account", "physics").code == 0
    assert slurm("sacctmgr", "-i", "load", f"file={path}").code == 0
    assert slurm("sacctmgr", "-nP", "show", "assoc", "format=account,user,share,grptres") == shown
