"""The start of steps by the step supervisor: their user, their output, the inherited things, users' mistakes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eslurm.core.model.job import Principal
from eslurm.ports.step_runner import StepEndCause
from esnoded.procd.spawn import spawn_task
from esnoded.stepd import wire
from esnoded.stepd.client import SupervisorClient
from esnoded.stepd.launcher import end_older
from esnoded.stepd.place import Place
from esnoded.task.program import Program, SpawnError
from tests.kits.stepd import NOBODY, Outcomes, Site, key, supervised
from tests.kits.stepd_processes import USERS, outcome_of, play
from tests.support.groups import as_root
from tests.support.loops import both_loops

LIBC_SIGNALS = 0b11 << 31
"""Signals 32 and 33: glibc ignores them in what it spawns, and uses them itself."""


@pytest.fixture
def site(state_dir: Path) -> Iterator[Site]:
    with supervised(state_dir) as opened:
        opened.start()
        yield opened


@both_loops
def test_two_hundred_steps_at_once(site: Site, uvloop: bool) -> None:
    script = site.script('exit "$1"')

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        numbers = range(1, 201)
        await asyncio.gather(*(client.launch(site.spec(key(n), script, str(n % 100))) for n in numbers))
        for number in numbers:
            assert (await outcomes.of(key(number))).exit_code == number % 100
        assert len(outcomes.heard) == 200
        await client.acknowledge([key(number) for number in numbers])
        assert list(await client.list_steps()) == []

    play(site, scenario, uvloop=uvloop)


@pytest.mark.parametrize("uid", USERS)
def test_launches_of_the_same_step_at_once_start_it_once(site: Site, uid: int) -> None:
    spec = site.spec(key(), site.script("echo run >> runs; sleep 600"), uid=uid, gid=uid)

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        states = await asyncio.gather(*(client.launch(spec) for _ in range(20)))
        assert len(set(states)) == 1
        await client.terminate(key(), StepEndCause.SIGNALLED, 0)
        await outcomes.of(key())
        assert len(site.step_processes()) == 0

    play(site, scenario)
    runs = site.work / "runs"
    # It may have been killed between opening the file and writing to it.
    assert not runs.exists() or runs.read_text() in ("", "run\n")


@pytest.mark.parametrize("uid", USERS)
def test_output_goes_where_the_spec_says(site: Site, uid: int) -> None:
    script = site.script("echo out; echo err >&2; cat")
    (site.work / "in").write_text("fed\n")
    who: dict[str, Any] = {"uid": uid, "gid": uid}

    outcome_of(site, site.spec(key(1), script, stdout="both", stdin="in", umask=0o027, **who))
    both = site.work / "both"
    assert both.read_text() == "out\nerr\nfed\n"
    assert both.stat().st_mode & 0o777 == 0o640
    assert both.stat().st_uid == uid
    outcome_of(site, site.spec(key(2), script, stdout="both", open_mode="append", **who))
    assert both.read_text() == "out\nerr\nfed\nout\nerr\n"
    outcome_of(site, site.spec(key(3), script, stdout="both", stderr=str(site.work / "err"), **who))
    assert both.read_text() == "out\n"
    assert (site.work / "err").read_text() == "err\n"


@pytest.mark.parametrize("uid", USERS)
@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"argv": ("/no/such/program",)}, 127, "/no/such/program: no such file"),
        ({"argv": ("no-such-command",)}, 127, "no-such-command: command not found"),
        ({"argv": ("./plain",)}, 126, "./plain: permission denied"),
        ({"argv": ("./headless",)}, 126, "not a program"),
        ({"argv": ("./orphaned",)}, 126, "its interpreter"),
        ({"argv": ("./",)}, 126, "./: permission denied"),
        (
            {"cwd": "/no/such/directory"},
            1,
            "change to directory /no/such/directory: no such file or directory",
        ),
        ({"stdout": "absent/out"}, 1, "cannot open output file absent/out: no such file or directory"),
        ({"stderr": "absent/err"}, 1, "cannot open error output file absent/err"),
        ({"stdin": "absent"}, 1, "cannot open input file absent"),
        ({"argv": ("sh", "x" * 200_000)}, 126, "argument list too long"),
    ],
)
def test_a_users_mistake_is_an_outcome(
    site: Site, uid: int, fields: dict[str, Any], code: int, text: str
) -> None:
    site.script("echo hidden", "plain", mode=0o644)
    (site.work / "headless").write_bytes(b"\1\2\3 not a script")
    (site.work / "headless").chmod(0o755)
    site.script("#!/no/such/interpreter\n", "orphaned")
    rest = {name: value for name, value in fields.items() if name != "argv"}
    spec = site.spec(key(), *fields.get("argv", ("true",)), uid=uid, gid=uid, **rest)
    ended = outcome_of(site, spec)
    assert ended.cause is StepEndCause.SPAWN_FAILED
    assert text in ended.text
    assert ended.exit_code == code


def test_without_root_nobody_elses_step_is_started(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SpawnError, match="not as root"):
        spawn_task(
            Principal("root", 0, 0), Program(lambda _local: Site(state_dir).spec(key(), "true"), "", 0)
        )


@as_root
def test_a_step_runs_as_its_user(site: Site) -> None:
    script = site.script("id -u; id -g; id -G; pwd")
    spec = site.spec(key(), script, uid=NOBODY, gid=NOBODY, groups=(12345,), stdout="out")
    assert outcome_of(site, spec).exit_code == 0
    lines = (site.work / "out").read_text().splitlines()
    assert lines[:2] == [str(NOBODY)] * 2
    assert sorted(lines[2].split()) == sorted(["12345", str(NOBODY)])
    assert lines[3:] == [str(site.work)]


@as_root
def test_what_the_user_may_not_see_is_looked_at_as_the_user(site: Site) -> None:
    secret = site.work / "secret"
    secret.mkdir(mode=0o700)
    who: dict[str, Any] = {"uid": NOBODY, "gid": NOBODY}
    assert "permission denied" in outcome_of(site, site.spec(key(1), "true", cwd=str(secret), **who)).text
    assert "permission denied" in outcome_of(site, site.spec(key(2), "true", stdout="secret/out", **who)).text
    assert not (secret / "out").exists()


@pytest.mark.parametrize("uid", USERS)
def test_a_task_inherits_nothing_but_its_three_streams(site: Site, uid: int) -> None:
    script = site.script(
        "ls /proc/$$/fd; grep -E 'Sig(Ign|Blk)' /proc/self/status; umask; ps -o sid= -p $$; echo $$"
    )
    outcome_of(site, site.spec(key(), script, uid=uid, gid=uid, stdout="out"))
    text = (site.work / "out").read_text().split()
    # The shell holds its script open as 10.
    assert [word for word in text[:4] if word != "10"][:3] == ["0", "1", "2"]
    assert int(text[text.index("SigBlk:") + 1], 16) == 0
    assert int(text[text.index("SigIgn:") + 1], 16) & ~LIBC_SIGNALS == 0
    assert "0022" in text
    assert text[-1] == text[-2]


@pytest.mark.parametrize("uid", USERS)
def test_a_task_ignores_nothing_that_whoever_started_its_supervisor_ignored(
    state_dir: Path, uid: int
) -> None:
    """As a shell has its background jobs ignore SIGINT and SIGQUIT, and `nohup` SIGHUP."""
    ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1)
    with supervised(state_dir) as site:
        before = {signum: signal.signal(signum, signal.SIG_IGN) for signum in ignored}
        try:
            site.start()
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)
        script = site.script("grep SigIgn /proc/self/status")
        outcome_of(site, site.spec(key(), script, uid=uid, gid=uid, stdout="out"))
        _, mask = (site.work / "out").read_text().split()
        assert int(mask, 16) & ~LIBC_SIGNALS == 0


@pytest.mark.parametrize("uid", USERS)
def test_tasks_know_their_rank_and_the_worst_exit_code_counts(site: Site, uid: int) -> None:
    script = site.script('echo "$ESLURM_PROCID $ESLURM_LOCALID"; exit $((ESLURM_LOCALID * 2))')
    (site.work / "out").write_text("old\n")
    (site.work / "out").chmod(0o666)
    spec = site.spec(key(), script, tasks=3, first_task=10, stdout="out", uid=uid, gid=uid)
    assert outcome_of(site, spec).exit_code == 4
    assert sorted((site.work / "out").read_text().splitlines()) == ["10 0", "11 1", "12 2"]


def test_an_outcome_says_what_the_step_used(site: Site) -> None:
    ended = outcome_of(
        site, site.spec(key(), site.script("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"))
    )
    assert ended.user_cpu_us + ended.system_cpu_us > 20_000
    assert ended.max_rss_kib > 500


def as_of_an_earlier_release(site: Site) -> None:
    """Its status file says no version, as those of releases before version 4."""
    place = Place(site.state)
    status = place.find_supervisor()
    assert status is not None and status.version == wire.PROTOCOL_VERSION
    place.write_status(msgspec.structs.replace(status, version=0))


def test_an_idle_supervisor_of_an_earlier_release_makes_room_for_one_of_this_release(site: Site) -> None:
    before = site.pid()
    end_older(site.state)
    assert site.pid() == before, "it is of this release"
    as_of_an_earlier_release(site)
    end_older(site.state)
    assert site.pid() == 0
    after = site.start()
    assert after not in (0, before)
    end_older(site.state)
    assert site.pid() == after


def test_a_supervisor_of_an_earlier_release_stays_while_it_has_steps(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_of_an_earlier_release(site)
    before = site.pid()

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        await client.launch(site.spec(key(), site.script("sleep 600")))
        assert not client.is_older
        await asyncio.to_thread(end_older, site.state)
        assert site.pid() == before and not outcomes.heard
        monkeypatch.setattr(wire, "PARTS_SINCE", wire.PROTOCOL_VERSION + 1)
        client.reconnect()
        assert len(await client.list_steps()) == 1
        assert client.is_older
        await client.terminate(key(), StepEndCause.SIGNALLED, 0)
        await outcomes.of(key())
        # Its outcome is not acknowledged: the successor has it.
        await asyncio.to_thread(end_older, site.state)
        assert site.pid() != before

    play(site, scenario)
