"""`esattach` on a live cluster: a step's output in processes beside its own command, which none of them holds up."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.integration.test_steps import door
from tests.integration.test_up import PROGRAM
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import PATIENCE_S

TICK = b"tick\n"
WAIT = "until test -e go; do echo tick; sleep 0.05; done; "
LINES = 140_000
LARGE = 60_000_000
WAY_OUT = "attach with > FILE, or filter it"
LOST = "the connection to its command is lost: it was killed, or ended while this one did not read"
NUMBERED = f"""\
import os
n = os.environ["SLURM_PROCID"]
print("\\n".join(f"{{n}} {{at:0110}}" for at in range({LINES})))
"""


@contextlib.contextmanager
def attached(cluster: LiveCluster, step: str, name: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`esattach` in a process of its own, once it shows something. Its output is the file `name`, its errors `name.err`."""
    out, err = cluster.work / name, cluster.work / f"{name}.err"
    command = [sys.executable, "-c", PROGRAM, "esattach", "--socket", str(cluster.socket), *words, step]
    with out.open("wb") as output, err.open("wb") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, cwd=cluster.work)
    try:
        cluster.until(lambda: out.stat().st_size or process.poll() is not None, "it is attached")
        assert out.stat().st_size, err.read_text()
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait(PATIENCE_S)


def begin(cluster: LiveCluster, step: str, *words: str) -> int:
    """A job whose script runs this one step, in the files `command` and `end` its command's pid and exit code."""
    (cluster.work / "program.py").write_text(NUMBERED)
    script = f"{step} & echo $! > command; wait $!; echo code $? > end"
    job_id = cluster.wrap(door(cluster) + script, "-o", "said", *words)
    cluster.wait_lines("command")
    cluster.until(lambda: not cluster.run("esattach", "--layout", f"{job_id}.0").code, "the step is there")
    return job_id


def digest(path: Path) -> tuple[int, str]:
    """The size and sum of what was written once all had begun."""
    data = path.read_bytes().replace(TICK, b"")
    return len(data), hashlib.sha256(data).hexdigest()


def test_what_is_attached_gets_the_same_bytes_as_the_steps_command(cluster: LiveCluster) -> None:
    """47 MB of three tasks, to two processes: the same in the same order, and the exit code of the step."""
    task = f"{WAIT} {sys.executable} program.py; exit $SLURM_PROCID"
    job_id = begin(cluster, f"esrun sh -c '{task}' > whole", "-N", "3", "-n", "3")
    with (
        attached(cluster, f"{job_id}.0", "all") as everything,
        attached(cluster, f"{job_id}.0", "one", "--output-filter", "1", "-l", "-Q") as one,
    ):
        (cluster.work / "go").touch()
        assert everything.wait(PATIENCE_S) == 2
        assert one.wait(PATIENCE_S) == 2
    assert cluster.wait_lines("end") == ["code 2"]
    assert digest(cluster.work / "all") == digest(cluster.work / "whole")
    assert digest(cluster.work / "all")[0] == 3 * LINES * 113
    own = [line for line in cluster.lines("one") if line != "1: tick"]
    assert own == [f"1: 1 {at:0110}" for at in range(LINES)]
    assert sorted(cluster.lines("all.err")) == [
        "esattach: task 1: exit code 1",
        "esattach: task 2: exit code 2",
    ]
    assert cluster.lines("one.err") == []


def test_those_that_stand_still_hold_nothing_up_and_are_cut_off(cluster: LiveCluster) -> None:
    step = (
        f"esrun sh -c '{WAIT} head -c {LARGE} /dev/zero; echo; until test -e on; do sleep 0.05; done' > whole"
    )
    job_id = begin(cluster, step)
    whole = cluster.work / "whole"
    with (
        attached(cluster, f"{job_id}.0", "early") as early,
        attached(cluster, f"{job_id}.0", "late") as late,
    ):
        for one in (early, late):
            one.send_signal(signal.SIGSTOP)
        (cluster.work / "go").touch()
        cluster.until(lambda: whole.stat().st_size > LARGE, "all of it has been written")
        early.send_signal(signal.SIGCONT)
        assert early.wait(PATIENCE_S) == 1
        (cluster.work / "on").touch()
        assert cluster.end(job_id) == "COMPLETED"
        assert digest(whole)[0] == LARGE + 1
        late.send_signal(signal.SIGCONT)
        assert late.wait(PATIENCE_S) == 1
    said = f"esattach: step {job_id}.0: "
    assert cluster.lines("early.err") == [
        f"{said}cut off: 16 MiB of output were waiting to be read: {WAY_OUT}"
    ]
    assert cluster.lines("late.err") == [f"{said}{LOST}"]
    for name in ("early", "late"):
        seen = (cluster.work / name).read_bytes().replace(TICK, b"")
        assert 0 < len(seen) < LARGE and set(seen) == {0}


def test_with_the_steps_command_its_attachments_end(cluster: LiveCluster) -> None:
    job_id = begin(cluster, f"esrun sh -c '{WAIT}'")
    with attached(cluster, f"{job_id}.0", "seen") as process:
        os.kill(int(cluster.lines("command")[0]), signal.SIGKILL)
        assert process.wait(PATIENCE_S) == 1
    assert cluster.lines("seen.err") == [f"esattach: step {job_id}.0: {LOST}"]
    cluster.end(job_id)
    assert cluster.run("esattach", f"{job_id}.0").code == 1


def test_ctrl_c_leaves_the_step(cluster: LiveCluster) -> None:
    job_id = begin(cluster, f"esrun sh -c '{WAIT}'")
    with attached(cluster, f"{job_id}.0", "seen") as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    (cluster.work / "go").touch()
    assert cluster.end(job_id) == "COMPLETED"
    assert cluster.wait_lines("end") == ["code 0"]


def test_the_output_of_a_script_is_in_its_file(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("until test -e go; do sleep 0.05; done", "-o", "said-%j")
    cluster.reaches(job_id, "RUNNING")
    ran = cluster.run("esattach", f"{job_id}.batch")
    assert (ran.code, ran.err) == (
        1,
        f"esattach: the output of the script of job {job_id} is in a file: tail -f {cluster.work}/said-{job_id}\n",
    )
    ran = cluster.run("esattach", f"{job_id}.0")
    assert (ran.code, ran.err) == (1, f"esattach: step {job_id}.0 does not exist (any more)\n")
    (cluster.work / "go").touch()
    assert cluster.end(job_id) == "COMPLETED"
