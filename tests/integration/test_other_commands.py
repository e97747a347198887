"""LSF's and PBS's commands on a live cluster: a job's life, what its script finds, arrays, dependencies and ends."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator

import pytest

from escli.lsf.launch import COMMANDS
from escli.lsf.launch import main as lsf
from escli.pbs.launch import main as pbs
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster

Say = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with running(nodes=4, cores=4, agents=1, satellites=1) as cluster:
        yield cluster


@pytest.fixture
def say(cluster: LiveCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    monkeypatch.chdir(cluster.work)

    def run(*words: str, script: str = "") -> tuple[int, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(script.encode())))
        main = lsf if words[0] in COMMANDS else pbs
        code = main(words[0], words[1:], socket=str(cluster.socket))
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def job_of(said: str) -> int:
    return int(said.partition("<")[2].partition(">")[0])


def test_a_script_finds_lsf_s_variables(cluster: LiveCluster, say: Say) -> None:
    script = "#!/bin/bash\n#BSUB -J fluid -n 6\n#BSUB -R 'span[ptile=3]'\n#BSUB -oo env.%J\nenv | grep -E '^LSB?_'\n"
    code, said = say("bsub", "-q", "main", script=script)
    job = job_of(said)
    assert (code, said) == (0, f"Job <{job}> is submitted to queue <main>.\n")
    assert cluster.end(job) == "COMPLETED"
    found = dict(line.split("=", 1) for line in (cluster.work / f"env.{job}").read_text().splitlines())
    first, second = found["LSB_MCPU_HOSTS"].split()[::2]
    assert found["LSB_MCPU_HOSTS"] == f"{first} 3 {second} 3"
    assert found["LSB_HOSTS"] == " ".join([first] * 3 + [second] * 3)
    assert found["LSB_DJOB_NUMPROC"] == "6" and found["LS_SUBCWD"] == str(cluster.work)
    names = ("LSB_JOBID", "LSB_JOBINDEX", "LSB_JOBNAME", "LSB_QUEUE", "LSB_BATCH_JID")
    assert [found[name] for name in names] == [str(job), "0", "fluid", "main", str(job)]
    code, said = say("bjobs", "-noheader", "-o", "jobid stat nreq_slot nexec_host delimiter=','", str(job))
    assert (code, said) == (0, f"{job},DONE,6,-\n")


def test_arrays_dependencies_and_ends(cluster: LiveCluster, say: Say) -> None:
    _, said = say("bsub", "-J", "sweep[1-3]", "-o", "task.%I", 'echo "$LSB_JOBID $LSB_JOBINDEX $LSB_JOBNAME"')
    assert said.endswith("is submitted to default queue <main>.\n")
    array = job_of(said)
    cluster.end(array)
    assert [(cluster.work / f"task.{n}").read_text() for n in (1, 2, 3)] == [
        f"{array} {n} sweep[{n}]\n" for n in (1, 2, 3)
    ]
    code, said = say("bsub", "-K", "-w", f"done({array})", "-oo", "out", "echo last; exit 7")
    assert code == 7 and "<<Job is finished>>" in said and (cluster.work / "out").read_text() == "last\n"
    code, said = say("bsub", "-H", "-J", "later", "true")
    held = job_of(said)
    code, said = say("bjobs", "-w", str(held))
    assert code == 0 and " PSUSP main " in said and " later " in said
    after = job_of(say("bsub", "-J", "after", "-w", "ended(later)", "true")[1])
    assert say("bkill", str(held)) == (0, f"Job <{held}> is being terminated\n")
    assert cluster.end(held) == "CANCELLED" and cluster.end(after) == "COMPLETED"
    assert say("bkill", str(held)) == (255, f"Job <{held}>: Job has already finished\n")
    _, said = say("bsub", "-H", "-J", "part[1-4]", "true")
    part = job_of(said)
    assert say("bkill", f"{part}[2]")[0] == 0
    shown = say("bjobs", "-noheader", "-o", "jobindex", str(part))[1].split()
    assert shown == ["1", "3", "4"]
    assert say("bkill", "0")[0] == 0
    cluster.wait_idle()


def test_a_file_of_nodes_for_pbs(cluster: LiveCluster, say: Say) -> None:
    script = "#PBS -l select=3:ncpus=2:mpiprocs=2 -l place=scatter\n#PBS -o nodes -j oe\ncat $PBS_NODEFILE\n"
    code, said = say("qsub", "-", script=script)
    job = int(said)
    assert code == 0 and cluster.end(job) == "COMPLETED"
    hosts = (cluster.work / "nodes").read_text().split()
    assert len(hosts) == 6 and len(set(hosts)) == 3 and all(hosts.count(host) == 2 for host in hosts)
    code, said = say("qstat", "-x", "-f", str(job))
    assert code == 0 and said.startswith(f"Job Id: {job}\n") and "    Exit_status = 0\n" in said
