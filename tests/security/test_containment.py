"""No process of an ended step survives, whatever it does to leave it; nor does a user get out of the group of a step."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from eslurm.ports.step_runner import StepEndCause, StepOutcome
from esnoded.procd import groups, procfs
from esnoded.stepd.client import SupervisorClient
from esnoded.stepd.place import Place
from tests.kits.stepd import NOBODY, Outcomes, Site, end_process, eventually, key, supervised
from tests.kits.stepd_processes import outcome_of, play
from tests.support.groups import as_root, lacks

pytestmark = as_root
PYTHON = "#!/usr/bin/python3 -IS\n"
ZOO = (
    PYTHON
    + '''import ctypes, os, signal, sys, time

def note():
    """Say that it is there, and stay."""
    fd = os.open("pids", os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"%d\\n" % os.getpid())
    os.close(fd)

def bare(seconds="600"):
    """A program without a variable, at the other end of two forks."""
    os.execve("/bin/sleep", ["sleep", seconds], {})

def forked(*lives):
    if os.fork() == 0:
        for life in lives:
            life()
        note()
        bare()

def away():
    os.setsid()
    if os.fork():
        os._exit(0)

def deaf():
    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except OSError:
            pass

def forged():
    os.execve("/bin/sh", ["sh", "-c", "echo $$ >> pids; exec sleep 600"], {"ESLURM_STEP_KEY": sys.argv[1]})

def traced():
    # A process that another one traces hears no signal but SIGKILL before its tracer.
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).ptrace(0, 0, 0, 0)
        note()
        os.kill(os.getpid(), signal.SIGSTOP)
        bare()
    os.waitpid(child, os.WUNTRACED)

def stopped():
    note()
    os.kill(os.getpid(), signal.SIGSTOP)

def hopping():
    # It is always another process: a look at /proc finds the one before.
    note()
    os.close(1), os.close(2)
    # Where nothing contains it, it would run for ever.
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if os.fork():
            os._exit(0)
        os.setsid()

def renamed():
    ctypes.CDLL(None).prctl(15, b"kworker/0:1", 0, 0, 0)
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)

forked()
forked(away)
forked(away, deaf)
forked(away, forged)
forked(away, traced)
forked(away, stopped)
forked(away, hopping)
forked(away, renamed, away)
while sum(1 for _ in open("pids")) < 9:
    time.sleep(0.01)
'''
)


@pytest.fixture
def site(state_dir: Path) -> Iterator[Site]:
    with supervised(state_dir) as opened:
        opened.start()
        if not Place(opened.state).read_groups():
            lacks("a cgroup v2 that root may write to")
        yield opened


def group_of(site: Site, number: int) -> str:
    return groups.path_of(Place(site.state).read_groups(), key(number))


def alive(site: Site) -> list[int]:
    """The processes of the zoo that are there now."""
    pids = [int(line) for line in (site.work / "pids").read_text().split()]
    found = [procfs.find_process(pid) for pid in pids]
    return [one.pid for one in found if one is not None and one.state != "Z"]


@pytest.mark.parametrize("uid", [0, NOBODY])
def test_nothing_of_an_ended_step_survives_while_another_of_its_user_runs_on(site: Site, uid: int) -> None:
    """Attack: leave the session, the parent, the variables, put on another's mark, be traced, stopped or always another."""
    zoo = site.script(ZOO, "zoo")
    (site.work / "pids").touch(0o666)
    (site.work / "pids").chmod(0o666)
    os.mkfifo(site.work / "gate", 0o666)
    (site.work / "gate").chmod(0o666)
    shelter = site.script("read line < gate", "shelter")

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(site.spec(key(2), shelter, uid=uid, gid=uid))
        mark = f"{Place(site.state).instance()}/{key(2)}"
        await client.launch(site.spec(key(1), zoo, mark, uid=uid, gid=uid))
        outcome = await outcomes.of(key(1))
        assert outcome.exit_code == 0, outcome
        assert alive(site) == []
        assert not os.path.exists(group_of(site, 1)) and os.path.exists(group_of(site, 2))
        (site.work / "gate").write_text("go\n")
        assert (await outcomes.of(key(2))).exit_code == 0, "the neighbour was not harmed"

    play(site, scenario)
    assert os.listdir(Place(site.state).read_groups()) == [
        name for name in os.listdir(Place(site.state).read_groups()) if not name.startswith("job_")
    ]


@pytest.mark.parametrize("part", ["procd", "supervisor"])
def test_nothing_survives_a_killed_supervisor_or_procd(site: Site, part: str) -> None:
    zoo = site.script(ZOO + "time.sleep(600)\n", "zoo")
    (site.work / "pids").touch(0o666)
    (site.work / "pids").chmod(0o666)

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(site.spec(key(1), zoo, "nothing/1.1.1.1", uid=NOBODY, gid=NOBODY))
        await eventually(lambda: len((site.work / "pids").read_text().split()) >= 9)

    play(site, scenario)
    status = Place(site.state).find_supervisor()
    assert status is not None
    end_process(status.pid if part == "procd" else status.server_pid, signal.SIGKILL)
    if part == "supervisor":
        end_process(status.pid)
    site.start()
    assert alive(site) == []


def test_a_user_cannot_leave_the_group_of_a_step_nor_change_it(site: Site) -> None:
    base = Place(site.state).read_groups()
    attempts = f'''
import os
own = "{group_of(site, 1)}"
def tried(act):
    try:
        act()
        return "done"
    except OSError as error:
        return error.strerror
def put(path, text):
    with open(path, "w") as file:
        file.write(text)
acts = [
    lambda: put("{os.path.dirname(base)}/cgroup.procs", str(os.getpid())),
    lambda: put("{base}/cgroup.procs", str(os.getpid())),
    lambda: put(own + "/../cgroup.procs", str(os.getpid())),
    lambda: put(own + "/cgroup.kill", "1"),
    lambda: put(own + "/cgroup.freeze", "1"),
    lambda: os.mkdir(own + "/mine"),
    lambda: os.rmdir(own),
    lambda: put("/proc/self/oom_score_adj", "-900"),
]
print([tried(act) for act in acts])
print(open("/proc/self/cgroup").read().splitlines()[-1])
print(open("/proc/self/oom_score_adj").read())
'''
    script = site.script(PYTHON + attempts, "attempts")
    spec = site.spec(key(1), script, uid=NOBODY, gid=NOBODY, stdout=str(site.work / "said"))
    assert outcome_of(site, spec).exit_code == 0
    said = (site.work / "said").read_text().splitlines()
    assert said[0] == str(["Permission denied"] * 8)
    assert said[1].endswith(group_of(site, 1).removeprefix("/sys/fs/cgroup/unified"))
    assert int(said[2]) >= 0


def test_cpu_time_is_that_of_all_processes_also_of_those_that_nothing_collects(site: Site) -> None:
    """A daemon that works on and is killed with its step, and one that its parent does not wait for."""
    work = "x = 0\nfor _ in range(6_000_000):\n    x += 1\n"
    burn = site.script(PYTHON + work, "burn")
    script = site.script(
        f"setsid {burn} & setsid sh -c '{burn}; echo > done; sleep 600' &\nwait %1\nuntil test -e done; do sleep 0.01; done"
    )

    def used(outcome: StepOutcome) -> int:
        return outcome.user_cpu_us + outcome.system_cpu_us

    alone = used(outcome_of(site, site.spec(key(1), burn)))
    both = used(outcome_of(site, site.spec(key(2), script)))
    assert both > 1.4 * alone, (alone, both)


def test_a_group_that_cannot_be_made_fails_its_step_and_no_other(site: Site) -> None:
    base = Place(site.state).read_groups()
    path = group_of(site, 1)
    job = os.path.dirname(path)
    os.mkdir(job)
    # The supervisor is not its owner.
    os.chown(job, 0, 0)
    outcome = outcome_of(site, site.spec(key(1), "true"))
    assert outcome.cause is StepEndCause.SPAWN_FAILED
    assert "control group cannot be made" in outcome.text and base in outcome.text
    assert outcome_of(site, site.spec(key(2), "true")).exit_code == 0
    os.rmdir(job)


def test_where_root_wants_none_there_is_none(state_dir: Path) -> None:
    with supervised(state_dir) as site:
        site.options = type(site.options)(
            "cn1", "", uid=site.options.uid, gid=site.options.gid, containment="none"
        )
        site.start()
        assert Place(site.state).read_groups() == ""
        assert outcome_of(site, site.spec(key(1), "true")).exit_code == 0
