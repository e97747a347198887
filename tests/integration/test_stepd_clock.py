"""Warnings, suspension and moved limits with real processes: who is signalled, who is stopped, what is left behind."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from eslurm.ports.step_runner import StepEndCause, StepOutcome, StepWarning
from esnoded.procd import procfs
from esnoded.stepd.client import SupervisorClient
from tests.kits import stepd_processes as stepd_kit
from tests.kits.stepd import Outcomes, Site, eventually, key, supervised
from tests.kits.stepd_processes import USERS

LONG_US = 3_600_000_000
# Long enough that a step always ends by the first signal: without a grace the kill may overtake it.
GRACE_US = 60_000_000
SLEEPS = "while :; do sleep 0.05; done"


@pytest.fixture
def site(state_dir: Path) -> Iterator[Site]:
    with supervised(state_dir) as opened:
        opened.start()
        yield opened


play = partial(stepd_kit.play, uvloop=True)


async def ended_by(client: SupervisorClient, outcomes: Outcomes) -> StepOutcome:
    await client.terminate(key(), StepEndCause.SIGNALLED, GRACE_US)
    return await outcomes.of(key())


def states(site: Site) -> set[str]:
    """The states of all processes of the site's steps."""
    found = (procfs.find_process(pid) for pid in site.step_processes())
    return {process.state for process in found if process is not None}


def stand_still(site: Site) -> bool:
    """Check that all are stopped; a shell whose child was stopped before its exec waits for it in D."""
    return "T" in states(site) <= {"T", "D"}


# --- warnings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uid", USERS)
def test_a_batch_shell_is_warned_before_its_time_is_up(site: Site, uid: int) -> None:
    script = site.script(f"trap 'echo warned > mark; exit 5' USR1\n{SLEEPS}")
    # Early enough not to wait for long, late enough for a shell that is slow to set its trap.
    warning = StepWarning(9_000_000, signal.SIGUSR1, to_first_only=True)
    spec = site.spec(key(), script, time_limit_us=15_000_000, warning=warning, uid=uid, gid=uid)

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(spec)
        ended = await outcomes.of(key())
        assert (ended.exit_code, ended.cause) == (5, StepEndCause.EXITED)
        assert ended.ended_us - ended.started_us >= 5_990_000
        assert (site.work / "mark").read_text() == "warned\n"

    play(site, scenario)


def test_without_b_what_the_shell_started_is_warned_and_the_shell_is_not(site: Site) -> None:
    child = site.script(f"trap 'echo child > mark; exit 0' USR1\necho up > up\n{SLEEPS}", "child")
    spec = site.spec(
        key(), site.script(f"{child}\nexit 3"), time_limit_us=LONG_US, warning=StepWarning(60_000_000, 10)
    )

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(spec)
        await eventually((site.work / "up").exists)
        await client.set_limit(key(), 60_400_000)
        ended = await outcomes.of(key())
        assert (ended.exit_code, ended.signal) == (3, 0), "the shell went on when its child had ended"
        assert (site.work / "mark").read_text() == "child\n"

    play(site, scenario)


def test_with_steps_those_are_warned_and_nothing_of_the_script(site: Site) -> None:
    step = site.script(f"trap 'echo step > mark; exit 0' USR1\necho up > up\n{SLEEPS}", "step")
    spec = site.spec(key(), site.script(SLEEPS), time_limit_us=LONG_US, warning=StepWarning(60_000_000, 10))

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(spec)
        await client.launch(site.spec(key(step=0), step))
        await client.launch(site.spec(key(2, step=0), site.script(SLEEPS, "stranger")))
        await eventually((site.work / "up").exists)
        await client.set_limit(key(), 60_000_001)
        assert (await outcomes.of(key(step=0))).exit_code == 0
        assert (site.work / "mark").read_text() == "step\n"
        assert (await ended_by(client, outcomes)).signal == signal.SIGTERM, "it was not warned"
        await client.terminate(key(2, step=0), StepEndCause.SIGNALLED, GRACE_US)
        assert (await outcomes.of(key(2, step=0))).signal == signal.SIGTERM

    play(site, scenario)


@pytest.mark.parametrize("uid", USERS)
def test_a_script_runs_beside_the_job_as_its_user(site: Site, uid: int) -> None:
    """A job shorter than the warning gets it at once; what it prints is in the error file, its end means nothing."""
    beside = site.script('echo "$ESLURM_SECONDS_LEFT $WHO $(id -u)"; exit 9', "beside")
    script = site.script("until grep -q . err; do sleep 0.02; done; exit 4")
    spec = site.spec(
        key(),
        script,
        stdout="out",
        stderr="err",
        env={"PATH": "/usr/bin:/bin", "WHO": "me"},
        time_limit_us=30_000_000,
        warning=StepWarning(60_000_000, script=beside),
        uid=uid,
        gid=uid,
    )

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(spec)
        ended = await outcomes.of(key())
        assert (ended.exit_code, ended.text) == (4, "")
        left, who, ran_as = (site.work / "err").read_text().split()
        assert 10 <= int(left) <= 30 and (who, int(ran_as)) == ("me", uid)
        assert (site.work / "out").read_text() == ""

    play(site, scenario)


def test_a_script_beside_the_job_does_not_outlive_it(site: Site) -> None:
    beside = site.script(f"echo up > up; trap '' TERM\n{SLEEPS}", "beside")
    script = site.script("until test -e up; do sleep 0.02; done; exit 0")
    spec = site.spec(key(), script, time_limit_us=30_000_000, warning=StepWarning(60_000_000, script=beside))

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(spec)
        assert (await outcomes.of(key())).exit_code == 0
        assert site.step_processes() == []

    play(site, scenario)


@pytest.mark.parametrize("uid", USERS)
def test_a_script_that_cannot_be_run_is_told_and_harms_nothing(site: Site, uid: int) -> None:
    spec = site.spec(
        key(),
        site.script("sleep 2; exit 2"),
        time_limit_us=30_000_000,
        warning=StepWarning(60_000_000, script="/nowhere/warn"),
        uid=uid,
        gid=uid,
    )

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(spec)
        ended = await outcomes.of(key())
        assert (ended.exit_code, ended.cause) == (2, StepEndCause.EXITED)
        assert ended.text == "its warning could not be given: /nowhere/warn: no such file"

    play(site, scenario)


def test_who_is_given_more_time_is_warned_again(site: Site) -> None:
    script = site.script(f"trap 'echo warned >> marks' USR1\necho up > up\n{SLEEPS}")
    spec = site.spec(
        key(), script, time_limit_us=LONG_US, warning=StepWarning(60_000_000, 10, to_first_only=True)
    )
    marks = site.work / "marks"

    def count() -> int:
        return len(marks.read_text().splitlines()) if marks.exists() else 0

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        began_s = time.monotonic()
        await client.launch(spec)
        await eventually((site.work / "up").exists)
        await client.set_limit(key(), 59_000_000)
        await eventually(lambda: count() == 1)
        await client.set_limit(key(), 59_500_000)
        # Its warning lies ahead again, also for a supervisor that hears of it late.
        ran_us = int((time.monotonic() - began_s) * 1e6)
        await client.set_limit(key(), ran_us + 65_000_000)
        await eventually(lambda: count() == 2)
        await ended_by(client, outcomes)
        assert count() == 2

    play(site, scenario)


# --- standing still --------------------------------------------------------------------------------------


def test_all_processes_of_a_step_stand_still_and_go_on(site: Site) -> None:
    script = site.script(f"setsid sh -c 'echo > away; {SLEEPS}' &\nsleep 600 &\necho up > up\n{SLEEPS}")

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(site.spec(key(), script))
        await eventually(lambda: (site.work / "up").exists() and (site.work / "away").exists())
        assert await client.suspend(key())
        await eventually(lambda: stand_still(site))
        assert len(site.step_processes()) >= 3
        assert await client.suspend(key(), True)
        await eventually(lambda: "T" not in states(site))
        await ended_by(client, outcomes)

    play(site, scenario)


def test_a_step_that_stands_still_is_killed_when_it_does_not_end(site: Site) -> None:
    script = site.script(f"trap '' TERM\necho up > up\n{SLEEPS}")

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(site.spec(key(), script))
        await eventually((site.work / "up").exists)
        await client.suspend(key())
        await eventually(lambda: stand_still(site))
        assert await client.terminate(key(), StepEndCause.SIGNALLED, 100_000)
        assert (await outcomes.of(key())).signal == signal.SIGKILL

    play(site, scenario)


@pytest.mark.parametrize("uid", USERS)
def test_a_step_told_to_stand_still_while_it_starts_does_so(site: Site, uid: int) -> None:
    spec = site.spec(key(), site.script(SLEEPS), uid=uid, gid=uid)

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        launched = asyncio.create_task(client.launch(spec))
        await asyncio.sleep(0)
        assert await client.suspend(key())
        await launched
        await eventually(lambda: stand_still(site))
        await client.suspend(key(), True)
        await eventually(lambda: "T" not in states(site))
        await ended_by(client, outcomes)

    play(site, scenario)
