"""Hosts that boot anew, and agents that are restarted one after another, with jobs on them.

Method: a reboot is the end of every process of an agent's host, and files that speak of an earlier boot than the
kernel's. Every run of a script appends a line: accounting has to agree with these lines.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from esnoded.procd import procfs
from esnoded.spool import Spool
from esnoded.stepd import journal
from esnoded.stepd.place import Place
from tests.integration.test_crash import GATE, MARK, open_gate
from tests.integration.test_steps import door
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import agent_home
from tests.kits.stepd import end_process

EARLIER = "00000000-0000-0000-0000-00000000b007"
ONCE = f"{MARK}test $SLURM_RESTART_COUNT -gt 0 || sleep 600"


def reboot(cluster: LiveCluster, agent: str, *, forgets: bool = False) -> None:
    """End all that runs on an agent's host as its power does; with `forgets` the supervisor's last writes are lost."""
    place = Place(cluster.agent_dir(agent))
    supervisor = cluster.supervisor(agent)
    instance = place.instance()
    cluster.kill(agent)
    end_process(supervisor, signal.SIGKILL)
    # Again until none is left: some may just have been starting others.
    while left := [pid for pid in living() if procfs.marker_of(pid).startswith(f"{instance}/")]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    spool = Spool(agent_home(cluster.agent_dir(agent)) / "agent.spool")
    spool.state.boot_id = EARLIER
    owner = spool.path.stat().st_uid
    spool.compact(spool.state)
    spool.close()
    os.chown(spool.path, owner, -1)
    backdate(Path(place.journal), forgets)


def living() -> list[int]:
    """Every process that has not ended."""
    return [process.pid for process in procfs.all_processes() if process.state not in "ZX"]


def backdate(path: Path, forgets: bool) -> None:
    records = [record for _, record in journal._records(path.read_bytes()) if record is not None]
    if forgets:
        records = [record for record in records if not isinstance(record, journal.Intent | journal.Begun)]
    aged = [journal.Opened(EARLIER) if isinstance(record, journal.Opened) else record for record in records]
    path.write_bytes(b"".join(map(journal._frame, aged)))


@pytest.mark.parametrize("forgets", [False, True])
def test_a_reboot_is_recognised_and_each_job_does_as_it_was_asked(broken: LiveCluster, forgets: bool) -> None:
    again = broken.wrap(ONCE, "-w", "cn0001", "--requeue")
    never = broken.wrap(ONCE, "-w", "cn0002", "--no-requeue")
    wide = broken.wrap(ONCE, "-N", "2", "-w", "cn[0003,0012]", "--requeue")
    other = broken.wrap(f"{MARK}{GATE}", "-w", "cn0009")
    broken.wait_lines("ran", 4)
    for job_id in (again, never, wide, other):
        # The scripts may be ahead of the reports of their starts.
        broken.reaches(job_id, "RUNNING")
    reboot(broken, "agent0", forgets=forgets)
    broken.launch("agent0")
    assert broken.ended(again, never, wide) == ["COMPLETED", "NODE_FAIL", "COMPLETED"]
    open_gate(broken)
    assert broken.end(other) == "COMPLETED"
    expected = [f"{job_id}.{run}" for job_id, run in ((again, 0), (again, 1), (never, 0), (other, 0))]
    assert sorted(broken.lines("ran")) == sorted([*expected, f"{wide}.0", f"{wide}.1"])
    # What the supervisor still knows tells more than what the agent finds missing.
    assert ("restarted without it" if forgets else "rebooted") in broken.only_run(never).exit_text
    assert [run.state for run in broken.runs(again)] == ["REQUEUED", "COMPLETED"]
    broken.wait_nodes(lambda nodes: all(node.state == "UP" for node in nodes.values()))


def test_what_had_ended_before_the_reboot_keeps_its_end(broken: LiveCluster) -> None:
    """Nobody had heard of it yet: it is on the host's disk."""
    jobs = [broken.wrap(f"{MARK}{GATE}; echo >> out; exit 3", "-w", "cn0001", "--requeue") for _ in range(3)]
    broken.wait_lines("ran", 3)
    broken.kill("esctld")
    open_gate(broken)
    broken.wait_lines("out", 3)
    outcomes = Path(Place(broken.agent_dir("agent0")).journal)

    def ended() -> set[int]:
        return {key.job_id for key in journal.read_contents(outcomes.read_bytes()).outcomes}

    broken.until(lambda: ended() >= set(jobs), "all ends are on the disk")
    reboot(broken, "agent0")
    broken.start()
    assert broken.ended(*jobs) == ["FAILED"] * 3
    assert [(run.state, run.exit_code) for job_id in jobs for run in broken.runs(job_id)] == [
        ("FAILED", 3)
    ] * 3
    assert len(broken.lines("ran")) == 3


def test_agents_are_restarted_one_after_another_while_jobs_run(broken: LiveCluster) -> None:
    """No job is lost or run twice, none loses a line of its output, and new ones are taken all the time."""
    talk = f"{MARK}i=0; until test -e gate; do i=$((i+1)); echo $i; sleep 0.1; done; echo end $i"
    jobs = [
        broken.wrap(talk, "-w", name, "-o", "out.%j") for name in ("cn0001", "cn0004", "cn0010", "cn0016")
    ]
    jobs.append(broken.wrap(talk, "-N", "6", "-w", "cn[0006-0011]", "-o", "out.%j"))
    command = f"{MARK}{door(broken)}esrun sh -c 'echo $SLURM_RESTART_COUNT >> tasks; {GATE}; echo task'"
    tasks = broken.wrap(command, "-N", "2", "-n", "2", "-w", "cn[0008-0009]", "-o", "out.%j")
    broken.wait_lines("ran", 6)
    broken.wait_lines("tasks", 2)
    short = []
    for round_number in range(2):
        for agent in ("agent0", "agent1"):
            short += [broken.wrap(MARK) for _ in range(3)]
            if round_number:
                broken.kill(agent)
            else:
                broken.terminate(agent)
            short += [broken.wrap(MARK) for _ in range(3)]
            broken.launch(agent)
            broken.wait_nodes(lambda nodes: all(node.state == "UP" for node in nodes.values()))
    for job_id in (*jobs, tasks):
        broken.reaches(job_id, "RUNNING")
    open_gate(broken)
    everything = [*jobs, tasks, *short]
    assert broken.ended(*everything) == ["COMPLETED"] * len(everything)
    # A launch that its agent did not live to answer may be refused by the next one: another attempt, but the first run.
    assert sorted(int(line.partition(".")[0]) for line in broken.lines("ran")) == everything
    assert [len(broken.runs(job_id)) for job_id in (*jobs, tasks)] == [1] * (len(jobs) + 1)
    for job_id in jobs:
        *counted, end = broken.lines(f"out.{job_id}")
        assert counted == [str(number) for number in range(1, len(counted) + 1)]
        assert end == f"end {len(counted)}"
    assert broken.lines("tasks") == ["0", "0"]
    assert broken.lines(f"out.{tasks}") == ["task", "task"]
