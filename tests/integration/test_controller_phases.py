"""Prolog and epilog on the controller's host with real processes: what waits for them, what fails, what a crash leaves."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from tests.integration.conftest import made
from tests.kits.cluster import LiveCluster, daemon_of


class Site:
    """Two nodes, and the programs of their controllers. What these write is below the cluster's directory."""

    def __init__(self, cluster: LiveCluster) -> None:
        self.cluster = cluster
        self.told = cluster.directory / "told"

    def lines(self, name: str) -> list[str]:
        path = self.told / name
        return path.read_text().splitlines() if path.exists() else []

    def until(self, look: Callable[[], object], what: str) -> None:
        self.cluster.until(lambda: look() or None, what)

    def reason(self, job_id: int) -> str:
        return str(self.cluster.job(job_id).reason_text)


def _make(
    directory: Path, *, limit_s: int = 60, prolog: str = "", epilog: str = "", **options: object
) -> LiveCluster:
    told = directory / "told"
    told.mkdir()
    keys = [f"controller_limit_s = {limit_s}"]
    for name, text in (("prolog", prolog), ("epilog", epilog)):
        if text:
            path = directory / name
            path.write_text(f"#!/bin/sh\ncd {told} || exit 99\n{text}\n")
            path.chmod(0o755)
            keys.append(f'controller_{name} = "{path}"')
    sections = "\n".join(["[phases]", *keys])
    os.mkfifo(told / "gate")
    return LiveCluster(directory, nodes=2, agents=2, satellites=1, sections=sections, **options)  # type: ignore[arg-type]


@contextmanager
def site(**options: object) -> Iterator[Site]:
    running: AbstractContextManager[LiveCluster] = made(partial(_make, **options))  # type: ignore[arg-type]
    with running as cluster:
        yield Site(cluster)


RECORD = 'echo "$SLURM_JOB_ID $ESLURM_PHASE_RUN" >> {}'


def test_the_prolog_comes_before_any_node_and_the_epilog_before_the_final_state() -> None:
    prolog = f"env > env.prolog; {RECORD.format('prologs')}; read line < gate; test -e ../work/ran && touch early; true"
    epilog = f"env > env.epilog; {RECORD.format('epilogs')}; read line < gate"
    with site(prolog=prolog, epilog=epilog) as opened:
        cluster = opened.cluster
        job = cluster.wrap(
            "touch ran; exit 3", "-N2", "--comment", "$(touch /tmp/x)", "-J", "LD_PRELOAD=/tmp/x.so"
        )
        opened.until(lambda: opened.lines("prologs"), "the prolog runs")
        opened.until(lambda: "controller prolog since" in opened.reason(job), "its reason says so")
        assert cluster.job(job).state == "LAUNCHING"
        shown = cluster.run("eswhy", str(job))
        assert "controller prolog since" in shown.out, shown
        queue = cluster.run("esqueue", "-j", str(job))
        assert "CF" in queue.out and "controller prolog since" in queue.out, queue
        (opened.told / "gate").write_text("go\n")
        opened.until(lambda: opened.lines("epilogs"), "the epilog runs")
        info = cluster.reaches(job, "COMPLETING")
        assert info.exit_code == 3 and "controller epilog" in opened.reason(job)
        assert "CG" in cluster.run("esqueue", "-j", str(job)).out
        # Its nodes are free: a job that needs both is placed, and waits for its own prolog.
        other = cluster.wrap("true", "-N2", "--exclusive")
        opened.until(lambda: len(opened.lines("prologs")) == 2, "another job is placed on the same nodes")
        cluster.do("escancel", str(other))
        opened.until(
            lambda: cluster.job(other).state == "COMPLETING", "its prolog is ended, and its epilog follows"
        )
        opened.until(lambda: len(opened.lines("epilogs")) == 2, "its epilog follows")
        # What lets one of them read may end the other one's read, too.
        opened.until(
            lambda: (
                not _let_go(opened.told / "gate")
                and all(cluster.job(one).state != "COMPLETING" for one in (job, other))
            ),
            "both epilogs have ended",
        )
        assert cluster.end(job) == "FAILED" and cluster.end(other) == "CANCELLED"
        assert not opened.lines("early") and not (opened.told / "early").exists()
        for phase in ("prolog", "epilog"):
            found = dict(line.partition("=")[::2] for line in opened.lines(f"env.{phase}"))
            assert found["SLURM_SCRIPT_CONTEXT"] == f"{phase}_slurmctld" and found["ESLURM_PHASE_RUN"] == "1"
            assert "LD_PRELOAD" not in found and found["PATH"].startswith("/usr/local/sbin:")
            strange = [name for name in found if not name.startswith(("SLURM_", "ESLURM_"))]
            assert set(strange) <= {"PATH", "LC_ALL", "PWD", "OLDPWD", "SHLVL", "_"}, strange
        kept = cluster.directory / "phases"
        assert {path.name for path in kept.iterdir()} >= {f"{job}.1.prolog.1", f"{job}.1.epilog.1"}


def _let_go(gate: Path) -> bool:
    """Open the gate for one reader, if one is there."""
    try:
        fd = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    os.write(fd, b"go\n")
    os.close(fd)
    return True


def test_a_prolog_that_fails_is_tried_again_and_the_job_runs_once() -> None:
    prolog = f"{RECORD.format('prologs')}; test $(wc -l < prologs) -ge 3 || {{ echo no licence; exit 4; }}"
    with site(prolog=prolog) as opened:
        cluster = opened.cluster
        job = cluster.wrap(f"echo ran >> {cluster.work}/ran")
        assert cluster.end(job) == "COMPLETED"
        assert opened.lines("prologs") == [f"{job} 1"] * 3
        assert cluster.lines("ran") == ["ran"]
        assert all(not node.faults and node.state == "UP" for node in cluster.nodes().values())
        log = (cluster.directory / "esctld.log").read_text()
        assert "controller prolog failed: exit code 4: no licence" in log


def test_a_job_whose_prolog_always_fails_is_held_with_the_reason() -> None:
    with site(prolog="echo no licence; exit 4", policy={"launch_failures_max": 2}) as opened:
        cluster = opened.cluster
        job = cluster.wrap("true")
        opened.until(lambda: "Held" in cluster.job(job).reason, "it is held")
        assert "its controller prolog failed: exit code 4: no licence" in opened.reason(job)
        assert "no licence" in cluster.run("eswhy", str(job)).out
        cluster.do("escancel", str(job))


def test_a_prolog_that_hangs_is_ended_at_its_limit_with_all_that_it_started() -> None:
    prolog = "sh -c 'echo $$ > child; trap \"\" TERM; read line < gate' & echo $$ > own; wait"
    with site(prolog=prolog, limit_s=1, policy={"launch_failures_max": 1}) as opened:
        cluster = opened.cluster
        job = cluster.wrap("true")
        opened.until(lambda: "Held" in cluster.job(job).reason, "it is held")
        assert "did not end within 1 s" in opened.reason(job)
        pids = [*opened.lines("own"), *opened.lines("child")]
        opened.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "both are gone")
        assert len(pids) == 2
        cluster.do("escancel", str(job))


def test_a_failing_epilog_leaves_the_job_s_end_alone() -> None:
    with site(epilog="echo cannot tidy up; exit 1") as opened:
        cluster = opened.cluster
        job = cluster.wrap("true")
        assert cluster.end(job) == "COMPLETED"
        log = (cluster.directory / "esctld.log").read_text()
        assert "controller epilog failed: exit code 1: cannot tidy up" in log


def test_a_leader_that_is_killed_in_a_prolog_leaves_it_to_the_next_one_that_runs_it_again() -> None:
    prolog = f"{RECORD.format('prologs')}; test $ESLURM_PHASE_RUN != 1 || echo $$ > pid; read line < gate"
    with site(prolog=prolog, epilog=RECORD.format("epilogs"), controllers=2) as opened:
        cluster = opened.cluster
        cluster.wait_standbys()
        job = cluster.wrap(f"echo ran >> {cluster.work}/ran")
        opened.until(lambda: opened.lines("pid"), "the prolog runs")
        cluster.kill(daemon_of(cluster.leader()))
        opened.until(lambda: len(opened.lines("prologs")) == 2, "the next leader runs it again")
        opened.until(lambda: "run 2: the leader has changed" in opened.reason(job), "and says so")
        # What a killed leader has left is not its successor's to find.
        (pid,) = opened.lines("pid")
        os.kill(int(pid), signal.SIGKILL)
        opened.until(lambda: _let_go(opened.told / "gate"), "the second run reads")
        assert cluster.end(job) == "COMPLETED"
        assert opened.lines("prologs") == [f"{job} 1", f"{job} 2"] and opened.lines("epilogs") == [f"{job} 1"]
        assert cluster.lines("ran") == ["ran"]
        cluster.start()


def test_a_leader_that_hands_over_ends_its_programs_first() -> None:
    prolog = f"{RECORD.format('prologs')}; echo $$ > pid.$ESLURM_PHASE_RUN; read line < gate"
    with site(prolog=prolog, controllers=2) as opened:
        cluster = opened.cluster
        cluster.wait_standbys()
        job = cluster.wrap("true")
        opened.until(lambda: opened.lines("pid.1"), "the prolog runs")
        cluster.do("esctl", "takeover")
        opened.until(lambda: opened.lines("pid.2"), "the next leader runs it again")
        (pid,) = opened.lines("pid.1")
        assert not Path(f"/proc/{pid}").exists()
        opened.until(lambda: _let_go(opened.told / "gate"), "the second run reads")
        assert cluster.end(job) == "COMPLETED"


def test_ten_tasks_of_an_array_do_not_run_their_programs_at_once() -> None:
    # Nodes of four cores each: eight tasks are placed together.
    prolog = "mkdir running.$SLURM_JOB_ID; ls -d running.* | wc -l >> seen; rmdir running.$SLURM_JOB_ID"
    with site(prolog=f"{prolog}\n", epilog=RECORD.format("epilogs")) as opened:
        cluster = opened.cluster
        text = (cluster.directory / "eslurm.toml").read_text()
        (cluster.directory / "eslurm.toml").write_text(
            text.replace("[phases]", "[phases]\ncontroller_running_max = 1")
        )
        cluster.terminate("esctld")
        cluster.start()
        job = cluster.wrap("true", "--array=0-9")
        assert cluster.end(job) == "COMPLETED"
        assert opened.lines("seen") == ["1"] * 10 and len(opened.lines("epilogs")) == 10
