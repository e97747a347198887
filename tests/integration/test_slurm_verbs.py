"""scontrol's verbs, scrontab and reservations by Slurm's words, on a live cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.slurm import PATIENCE_S, Answer, Slurm, installed


@pytest.fixture
def slurm(state_dir: Path, adopt_orphans: None) -> Iterator[Slurm]:
    with installed(state_dir) as slurm:
        yield slurm


def await_lines(path: Path, count: int) -> list[str]:
    """The lines of a file, once it has so many."""
    end = time.monotonic() + 3 * PATIENCE_S
    while len(lines := path.read_text().splitlines() if path.exists() else []) < count:
        assert time.monotonic() < end, lines
        time.sleep(0.1)
    return lines


@pytest.mark.slow
def test_scontrols_verbs(slurm: Slurm) -> None:
    # A job requeues itself, on hold; its script and its files are its user's.
    script = (
        "#!/bin/sh\necho run >> runs\n"
        "[ $(wc -l < runs) = 1 ] && scontrol requeuehold $SLURM_JOB_ID >> told 2>&1\nsleep 60\n"
    )
    assert slurm("sbatch", "--export=PATH", text=script, PATH=f"{slurm.bin}:/usr/bin:/bin").out == (
        "Submitted batch job 1\n"
    )
    slurm.until("1|PD|JobHeldUser\n", "squeue", "-h", "-o", "%i|%t|%r")
    assert (slurm.work / "told").read_text() == ""
    assert slurm("scontrol", "write", "batch_script", "1", "-").out == script
    assert slurm("scontrol", "write", "batch_script", "1") == Answer(
        0, "batch script for job 1 written to slurm-1.sh\n", ""
    )
    assert (slurm.work / "slurm-1.sh").read_text() == script
    assert slurm("scontrol", "update", "JobId=1", "StdOut=else", "WCKey=w", "TimeLimit=10").code == 0
    assert slurm("scontrol", "update", "JobId=1", "TimeLimit=+5").code == 0
    record = slurm("scontrol", "-o", "show", "job", "1").out
    assert " WCKey=w " in record
    assert " TimeLimit=00:15:00 " in record
    assert f" StdOut={slurm.work}/else " in record
    assert slurm("scontrol", "release", "1").code == 0
    assert await_lines(slurm.work / "runs", 2) == ["run", "run"]
    assert slurm("scancel", "1").code == 0

    # One task of an array starts anew.
    assert slurm("sbatch", "-a", "1-2", "--wrap", "echo x >> task-$SLURM_ARRAY_TASK_ID; sleep 60").out
    await_lines(slurm.work / "task-2", 1)
    assert slurm("scontrol", "requeue", "2_2").code == 0
    await_lines(slurm.work / "task-2", 2)
    assert len(await_lines(slurm.work / "task-1", 1)) == 1
    assert slurm("scontrol", "show", "step", "2_1").out.startswith("StepId=2_1.batch UserId=")
    assert slurm("squeue", "-h", "-s", "-j", "2").out.split()[0] == "2_1.batch"
    assert slurm("scancel", "2").code == 0

    # A program starts when a job has ended, as a small job of its user.
    program = slurm.work / "triggered"
    program.write_text("#!/bin/sh\necho $1 > $(dirname $0)/fired\n")
    program.chmod(0o755)
    job = slurm("sbatch", "--parsable", "--wrap", "sleep 60").out.strip()
    assert slurm("strigger", "--set", "-j", job, "--fini", "-p", str(program)) == Answer(0, "", "")
    assert slurm("strigger", "--get", "-h").out.split()[2:4] == [job, "fini"]
    assert slurm("scancel", job).code == 0
    assert await_lines(slurm.work / "fired", 1) == [job]
    slurm.until("", "squeue", "-h")

    # What a partition takes and starts; a job on top of its user's others.
    assert slurm("scontrol", "update", "PartitionName=main", "State=DOWN") == Answer(0, "", "")
    assert slurm("sinfo", "-h", "-o", "%a").out == "down\n"
    names = "abc"
    numbers = [slurm("sbatch", "--parsable", "-J", name, "--wrap", "true").out.strip() for name in names]
    assert slurm("scontrol", "top", numbers[2]) == Answer(0, "", "")
    slurm.until(
        "c PartitionDown\na Priority\nb Priority\n",
        *("squeue", "-h", "-t", "PD", "-S", "-p", "-o", "%j %r"),
    )
    assert slurm("scontrol", "update", "PartitionName=main", "State=DRAIN").code == 0
    answer = slurm("sbatch", "--wrap", "true")
    assert answer.code == 1
    assert "'main' is DRAIN and takes no jobs now" in answer.err
    slurm.until("", "squeue", "-h")
    assert slurm("scontrol", "update", "PartitionName=main", "State=UP").code == 0

    # Nodes are set aside, and given back.
    words = ("StartTime=2030-01-31T08:00:00", "Duration=120", f"Users={os.environ.get('USER', 'root')}")
    answer = slurm("scontrol", "create", "reservation", "ReservationName=r", *words, "NodeCnt=1")
    assert answer == Answer(0, "Reservation created: r\n", "")
    assert " Duration=02:00:00 " in slurm("scontrol", "-o", "show", "reservation", "r").out
    assert slurm("scontrol", "update", "ReservationName=r", "Duration=60") == Answer(
        0, "Reservation updated.\n", ""
    )
    assert " Duration=01:00:00 " in slurm("scontrol", "-o", "show", "reservation", "r").out
    assert slurm("scontrol", "delete", "ReservationName=r") == Answer(0, "", "")
    assert slurm("scontrol", "delete", "ReservationName=r").code == 1

    assert slurm("scontrol", "show", "daemons").out == "slurmctld slurmd\n"
    assert slurm("scontrol", "show", "topology").code == 0


@pytest.mark.slow
def test_a_crontab_runs_survives_and_is_disabled(slurm: Slurm) -> None:
    text = (
        "TOLD = cron\n"
        "#SCRON --job-name=often --time=5\n"
        f"* * * * * echo $TOLD $HOME >> {slurm.work}/ticks\n"
        "@yearly true\n"
    )
    assert slurm("scrontab", "-l").err.startswith("no crontab for ")
    assert slurm("scrontab", text=text + "* * * * x\n").err.splitlines()[1].startswith("line 5: ")
    assert slurm("scrontab", "-", text=text) == Answer(0, "", "")
    assert slurm("scrontab", "-l").out == text
    assert slurm("squeue", "-h", "-O", "jobid:3,name:8,cronjob:5,statecompact:3,reason").out.splitlines() == [
        "1  often   Yes  PD BeginTime           ",
        "2  true    Yes  PD BeginTime           ",
    ]
    record = slurm("scontrol", "-o", "show", "job", "1").out
    assert ' CronJob=Yes CrontabSpec="* * * * *" ' in record

    # A new leader: nothing runs twice, and nothing is forgotten.
    assert slurm.cluster("eslurm", "down").code == 0
    slurm.cluster.up()
    assert slurm("scrontab", "-l").out == text
    [line] = await_lines(slurm.work / "ticks", 1)
    assert line.startswith("cron /")
    slurm.until(
        "1|often|COMPLETED\n",
        "sacct",
        "-n",
        "-X",
        "-P",
        "-D",
        "-j",
        "1",
        "-s",
        "CD",
        "-o",
        "jobid,jobname,state",
    )
    slurm.until("1 PD\n2 PD\n", "squeue", "-h", "-o", "%i %t")

    # The line of a cancelled job is out of service, with its options.
    answer = slurm("scancel", "1")
    assert answer.code == 1
    assert answer.err.endswith("Cannot cancel scrontab jobs without --cron flag.\n")
    assert slurm("scancel", "--cron", "1").code == 0
    rows = text.splitlines(keepends=True)
    disabled = [rows[0], *(f"#DISABLED: {row}" for row in rows[1:3]), rows[3]]
    assert slurm("scrontab", "-l").out == "".join(disabled)
    assert slurm("squeue", "-h", "-o", "%i").out == "2\n"

    # An editor changes it; a line that stays keeps its job.
    editor = '/bin/sh -c \'echo "@daily date" >> "$0"\''
    assert slurm("scrontab", "-e", EDITOR=editor) == Answer(0, "", "")
    assert slurm("scrontab", "-l").out == "".join([*disabled, "@daily date\n"])
    assert slurm("squeue", "-h", "-o", "%i %j").out == "2 true\n3 date\n"
    assert slurm("scrontab", "-e", EDITOR="true").out == "no changes made to crontab\n"
    assert slurm("scrontab", "-e", EDITOR="false").code == 1
    assert slurm("scrontab", "-r") == Answer(0, "", "")
    assert slurm("scrontab", "-l").code == 1
    assert slurm("squeue", "-h").out == ""
