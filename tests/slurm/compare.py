"""Slurm of Debian beside Slurm's commands of ours, on loopback: the same command lines, and what differs in their answers.

    python -m tests.slurm.compare ['squeue -l' ...]

As root, on Debian with a package mirror. Nothing is installed: the packages are unpacked under build/slurm. It is a tool for
people who build these commands, no test: some differences are meant (a node's system, weights of priorities).
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.integration.test_up import Cluster
from tests.kits.slurm import Slurm

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build" / "slurm"
PACKAGES = (
    *(
        "slurm-client",
        "slurmctld",
        "slurmd",
        "slurm-wlm-basic-plugins",
        "munge",
        "libmunge2",
        "libhwloc15",
        "libjwt0",
    ),
    *("liblua5.3-0", "libfreeipmi17"),
)
CORES = os.cpu_count() or 1
TIMEOUT_S = 20
CONF = """\
ClusterName=compare
SlurmctldHost=localhost
SlurmUser=root
SlurmctldPort=26817
AuthType=auth/munge
AuthInfo=socket={run}/munge.sock
CredType=cred/munge
PluginDir={lib}/slurm-wlm
StateSaveLocation={run}/spool
SlurmdSpoolDir={run}/spool/%n
SlurmctldPidFile={run}/slurmctld.pid
SlurmdPidFile={run}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
NodeName=cn[01-02] NodeHostname=localhost Port=[26901-26902] CPUs={cores} RealMemory=1024 Weight=1 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
SUBMISSIONS = (
    "sbatch -N2 --exclusive -t 5 -J a_very_long_name --comment second --wrap 'sleep 300'",
    "sbatch -t 10 -a 3-9%4 -n 1 --wrap 'sleep 300'",
    "sbatch -H -t 1-2 -w cn01 -x cn02 -o out-%j.txt --wrap true",
    "sbatch --parsable -d afterok:1 --wrap true",
)
LINES = (
    "squeue",
    "squeue -l",
    "squeue -r",
    "squeue -h -o '%i|%P|%j|%t|%D|%C|%l|%R|%k|%h|%K|%F'",
    "squeue -O JobArrayID,StateCompact,Reason",
    "squeue -j 99",
    "squeue -j x",
    "squeue -t nosuch",
    "squeue -S -i -h -o %i",
    "squeue --nosuch",
    "sinfo",
    "sinfo -s",
    "sinfo -N",
    "sinfo -h -o '%P %a %D %t'",
    "sinfo -t nosuch",
    "sinfo -p nosuch",
    "scontrol show job 1",
    "scontrol show job 99",
    "scontrol -o show job 3",
    "scontrol show node nosuch",
    "scontrol show partition main",
    "scontrol show hostnames cn[01-03,7],x",
    "scontrol show hostlist cn1,cn2,cn4",
    "scontrol release 99",
    "scontrol nosuch",
    "scontrol update jobid=3 foo=1",
    "scontrol update jobid=99 timelimit=1",
    "sbatch -n x --wrap true",
    "sbatch -N x --wrap true",
    "sbatch -t x --wrap true",
    "sbatch --mem=x --wrap true",
    "sbatch /nosuch",
    "sbatch -p nosuch --wrap true",
    "sbatch --nosuch",
    "scancel",
    "scancel x",
    "scancel 99",
    "scancel 3",
    "scancel 1 2 4",
    "squeue",
)
VARIABLE = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"), "DATE"),
    (re.compile(r"^\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}$", re.MULTILINE), "DAY"),
    (re.compile(r" +0:0\d "), " TIME "),
    (re.compile(r"RunTime=\S+"), "RunTime=TIME"),
    (re.compile(r"Priority=\d+"), "Priority=N"),
    (re.compile(r"\S*/work\b"), "WORK"),
    (re.compile(r"\S+/root/usr/bin/"), ""),
)
"""Parts of an answer that differ from run to run."""


def unpacked() -> Path:
    """The directory of the packages' files; they are fetched the first time."""
    files = PLACE / "root"
    if not files.exists():
        PLACE.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["apt-get", "-q", "download", *PACKAGES], cwd=PLACE, check=True, stdout=subprocess.DEVNULL
        )
        for package in PLACE.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, files], check=True)
    return files


@contextmanager
def real(run: Path) -> Iterator[Mapping[str, str]]:
    """Debian's Slurm with two nodes; the environment for its commands."""
    files = unpacked()
    lib = files / "usr/lib/x86_64-linux-gnu"
    (run / "slurm.conf").write_text(CONF.format(run=run, lib=lib, cores=CORES))
    for name in ("spool", "spool/cn01", "spool/cn02"):
        (run / name).mkdir()
    (run / "key").write_bytes(os.urandom(1024))
    (run / "key").chmod(0o400)
    environment = {
        "PATH": f"{files}/usr/bin:/usr/bin:/bin",
        "LD_LIBRARY_PATH": f"{lib}:{lib}/slurm-wlm",
        "SLURM_CONF": str(run / "slurm.conf"),
    }
    daemons = files / "usr/sbin"
    munge = [
        daemons / "munged",
        "--foreground",
        "--force",
        f"--key-file={run}/key",
        f"--socket={run}/munge.sock",
    ]
    munge += [f"--pid-file={run}/munged.pid", f"--log-file={run}/munged.log", f"--seed-file={run}/seed"]
    slurmd = [daemons / "slurmd-wlm", "-D", "-d", daemons / "slurmstepd-wlm", "-N"]
    started = []
    try:
        for command in (munge, [daemons / "slurmctld-wlm", "-D"], [*slurmd, "cn01"], [*slurmd, "cn02"]):
            log = open(run / f"log{len(started)}", "wb")  # noqa: SIM115 # as long as the daemon
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            time.sleep(1.5)
        yield environment
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            process.wait()


def answer(line: str, environment: Mapping[str, str], work: Path) -> str:
    """What a command line says, without what differs from run to run."""
    words = shlex.split(line)
    try:
        done = subprocess.run(
            words, env=environment, cwd=work, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT_S} s\n"
    text = f"{done.stdout}{done.stderr}[{done.returncode}]\n"
    for pattern, name in VARIABLE:
        text = pattern.sub(name, text)
    return text


def main(lines: Sequence[str]) -> int:
    """Compare the answers to these lines, or to all; 1 when some differ."""
    differing = 0
    with tempfile.TemporaryDirectory(prefix="es-") as name:
        place = Path(name)
        run, ours_at = place / "run", place / "ours"
        run.mkdir()
        ours_at.mkdir()
        # Agents are of another user.
        place.chmod(0o711)
        cluster = Cluster(ours_at)
        cluster.up("--cores", str(CORES))
        try:
            slurm = Slurm(cluster, ours_at / "slurm", "--slurm-version", "22.05")
            # One interpreter for both: what a shell finds first.
            ours = {"PATH": f"{slurm.bin}:/usr/bin:/bin"}
            with real(run) as theirs:
                (run / "work").mkdir()
                for line in SUBMISSIONS:
                    differing += differ(line, theirs, run / "work", ours, slurm.work)
                time.sleep(3)
                for line in lines or LINES:
                    differing += differ(line, theirs, run / "work", ours, slurm.work)
        finally:
            cluster("eslurm", "down", "--purge")
    sys.stdout.write(f"{differing} of {len(SUBMISSIONS) + len(lines or LINES)} answers differ\n")
    return 1 if differing else 0


def differ(line: str, theirs: Mapping[str, str], there: Path, ours: Mapping[str, str], here: Path) -> bool:
    """Compare the answers to one line, and print what differs."""
    expected, found = answer(line, theirs, there), answer(line, ours, here)
    if expected == found:
        return False
    diff = difflib.unified_diff(expected.splitlines(), found.splitlines(), "Slurm", "ours", lineterm="", n=0)
    sys.stdout.write(f"$ {line}\n" + "".join(f"    {one}\n" for one in list(diff)[2:]))
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
