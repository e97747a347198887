"""Health checks of a host: their command line, and what is left of a run."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from eslurm.core.model.node_health import CHECKS_MAX, TEXT_CHARS_MAX, CheckTerms
from esnoded.checks import run_health_check
from esnoded.health_options import HealthCheck, health_checks
from tests.support.loops import both_loops, run
from tests.unit.esnoded.test_checks import program


def check(path: str, *arguments: str, limit_s: int = 60) -> HealthCheck:
    return HealthCheck(CheckTerms("disk", 60), (path, *arguments), limit_s)


@both_loops
def test_it_passes_by_its_exit_code_and_its_first_line_is_the_reason(state_dir: Path, uvloop: bool) -> None:
    def checked(text: str, *arguments: str) -> str | None:
        return run(run_health_check(check(program(state_dir, text), *arguments), "cn1"), uvloop=uvloop)

    assert (
        checked("echo fine; test $SLURMD_NODENAME = cn1 && test $PWD = / && test \"$1\" = 'a b'", "a b")
        is None
    )
    assert checked("echo; echo '  no disk  '; echo more; exit 3") == "no disk"
    assert checked("exit 3") == "exit code 3"
    assert checked("kill -9 $$") == "ended by signal 9"
    assert checked("printf '\\033[2Jbad\\001\\377'; exit 1") == "[2Jbad �"


def test_of_much_output_the_beginning_is_kept(state_dir: Path) -> None:
    path = program(state_dir, "echo no disk; head -c 10000000 /dev/zero | tr '\\0' x; exit 1")
    assert run(run_health_check(check(path), "cn1")) == "no disk"
    path = program(state_dir, "head -c 1000000 /dev/zero | tr '\\0' x; exit 1")
    assert run(run_health_check(check(path), "cn1")) == TEXT_CHARS_MAX * "x"


def test_one_that_hangs_is_ended_with_its_session(state_dir: Path, adopt_orphans: None) -> None:
    pids = state_dir / "pids"
    # A group of its own in the session, as a shell with job control makes one.
    own_group = "import os,time; os.setpgid(0,0); print(os.getpid(), flush=True); time.sleep(600)"
    text = f"""sleep 600 & echo $! > {pids}; python3 -c '{own_group}' >> {pids} &
        while [ $(wc -l < {pids}) -lt 2 ]; do sleep 0.01; done; trap '' TERM; echo stuck; wait"""
    begun_s = time.monotonic()
    assert run(run_health_check(check(program(state_dir, text), limit_s=3), "cn1")) == (
        "it did not end within 3 s: stuck"
    )
    assert time.monotonic() - begun_s < 30
    for pid in map(int, pids.read_text().split()):
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def test_what_one_that_ends_has_started_ends_with_it(state_dir: Path, adopt_orphans: None) -> None:
    pids = state_dir / "pids"
    path = program(state_dir, f"sleep 600 > /dev/null 2>&1 & echo $! > {pids}; exit 0")
    assert run(run_health_check(check(path), "cn1")) is None
    assert os.waitpid(int(pids.read_text()), 0)[1] == signal.SIGKILL


@pytest.mark.parametrize(
    ("mode", "says"), [(0o644, "not a file that can be executed"), (0o777, "others may write to it")]
)
def test_one_that_another_user_could_change_does_not_run(state_dir: Path, mode: int, says: str) -> None:
    ran = state_dir / "ran"
    path = program(state_dir, f"touch {ran}", mode)
    why = run(run_health_check(check(path), "cn1"))
    assert why is not None and why.startswith("it cannot be run: ") and not ran.exists()
    with pytest.raises(ValueError, match=says):
        health_checks([f"name=disk {path}"])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_one_of_another_user_or_below_a_directory_of_his_does_not_run(state_dir: Path) -> None:
    below = state_dir / "below"
    below.mkdir()
    ran = state_dir / "ran"
    path = program(below, f"touch {ran}")
    for changed in (Path(path), below):
        os.chown(changed, 65534, 65534)
        why = run(run_health_check(check(path), "cn1"))
        assert why is not None and "belongs to user id 65534" in why
        os.chown(changed, 0, 0)
    assert run(run_health_check(check(path), "cn1")) is None
    assert ran.exists()


def test_the_command_line_says_when_each_runs(state_dir: Path) -> None:
    path = program(state_dir, "true")
    found = health_checks(
        [f"name=disk interval=30 limit=5 when=idle {path} -q 'a b' name=x", f"name=net {path}"]
    )
    assert found == (
        HealthCheck(CheckTerms("disk", 30, "idle"), (path, "-q", "a b", "name=x"), 5),
        HealthCheck(CheckTerms("net", 300, "any"), (path,), 60),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name=disk", "names no program"),
        ("", "names no program"),
        ("name=disk check", "'check' in"),
        ("name=disk name=b /bin/true", "once each"),
        ("/bin/true", "name ''"),
        ("name=a/b /bin/true", "name 'a/b'"),
        ("name=disk when=down /bin/true", "when 'down'"),
        ("name=disk interval=0 /bin/true", "not within 1..86400"),
        ("name=disk interval=86401 /bin/true", "not within 1..86400"),
        ("name=disk limit=-1 /bin/true", "no number of seconds"),
        ("name=disk limit=99999999999 /bin/true", "no number of seconds"),
        ("name=disk '/bin/true", "cannot be read"),
        ("name=disk /no/such/program", "does not exist"),
    ],
)
def test_a_wrong_command_line_says_what_and_where(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"^--health-check: ") as raised:
        health_checks([text])
    assert says in str(raised.value)


def test_there_are_few_checks_of_different_names() -> None:
    with pytest.raises(ValueError, match="two of the name 'disk'"):
        health_checks(["name=disk /bin/true", "name=disk /bin/true"])
    with pytest.raises(ValueError, match="more than the 8"):
        health_checks([f"name=c{number} /bin/true" for number in range(CHECKS_MAX + 1)])
