"""Prolog and epilog of a node run root's program: who wrote the job, or took the agent over, chooses nothing of it."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from eslurm.core.model.job import Principal
from eslurm.core.model.protocol import JobLaunch, LaunchStep, NodeGroup, Prepare, Start
from eslurm.core.model.step_key import EPILOG_STEP, PROLOG_STEP, StepKey
from eslurm.ports.step_runner import StepEndCause, StepOutcome
from eslurm.telemetry.clocks import wall_us
from eslurm.telemetry.kept_output import KEPT_BYTES
from esnoded.procd import procfs
from esnoded.procd import wire as procd_wire
from esnoded.procd.options import read_options
from esnoded.stepd import wire
from esnoded.stepd.place import Place
from tests.kits.daemons import AGENT_UID
from tests.kits.launches import launch_of
from tests.kits.stepd_credentials import KEY, launch, order, sealed
from tests.security.conftest import STRANGER
from tests.security.test_launch_credentials import Supervisor, as_uid
from tests.security.test_procd import Fallen, fallen, refused

__all__ = ["fallen"]

PROLOG = msgspec.structs.replace(KEY, step=PROLOG_STEP)
EPILOG = msgspec.structs.replace(KEY, step=EPILOG_STEP)
_PTRACE_ATTACH = 16


class Host(Supervisor):
    """A supervisor of root's that serves as the agent's user, and its programs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.outcomes: dict[StepKey, StepOutcome] = {}
        super().__init__(directory, AGENT_UID)

    def configure(self, **changes: object) -> None:
        """Root says something else, which counts from the next connection on."""
        self.place.write_options(msgspec.structs.replace(self.options, **changes))
        self.send(wire.Hello(wire.PROTOCOL_VERSION))

    def program(self, text: str, name: str = "program", mode: int = 0o755) -> str:
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(mode)
        return str(path)

    def job(self, **changes: object) -> JobLaunch:
        made = launch(user=Principal("ada", STRANGER, STRANGER), work_dir=str(self.work))
        return launch_of(made, **{"phases": ("prolog", "epilog")} | changes)

    def credential(self, expires_us: int | None = None, **changes: object) -> bytes:
        return sealed(Prepare(self.job(**changes)), expires_us=expires_us)

    def begin(self, credential: bytes, key: StepKey = PROLOG, **changes: object) -> int:
        """The pid of its process."""
        made = msgspec.structs.replace(order(credential, key=key, script=b"", environment=b""), **changes)
        answer = self.ask(lambda number: wire.Launch(number, made))
        assert isinstance(answer, wire.Launched), answer
        if isinstance(answer.state, StepOutcome):
            self.outcomes[key] = answer.state
            return 0
        return answer.state.pid

    def outcome(self, key: StepKey = PROLOG) -> StepOutcome:
        while key not in self.outcomes:
            answer = self.next()
            if isinstance(answer, wire.Ended):
                self.outcomes |= {outcome.key: outcome for outcome in answer.outcomes}
        return self.outcomes[key]

    def run(self, credential: bytes, key: StepKey = PROLOG, **changes: object) -> StepOutcome:
        self.begin(credential, key, **changes)
        return self.outcome(key)

    def kept(self, name: str) -> Path:
        return Path(self.place.served) / "phases" / name

    def next(self) -> wire.Answer:
        answer = super().next()
        if isinstance(answer, wire.Ended):
            self.outcomes |= {outcome.key: outcome for outcome in answer.outcomes}
        return answer


@pytest.fixture
def host(state_dir: Path, as_root: None, adopt_orphans: None) -> Iterator[Host]:
    made = Host(state_dir)
    try:
        yield made
    finally:
        made.close()
        os.waitpid(made.pid, 0)


def variables(path: Path) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in path.read_text().splitlines())


def test_a_prolog_is_root_s_program_and_the_user_chooses_only_values(host: Host) -> None:
    told = host.directory / "told"
    host.configure(prolog=host.program(f"env > {told}; id -u >> {told}; pwd >> {told}"))
    name = "$(touch /tmp/x); `id`"
    before = set(os.environ)
    outcome = host.run(
        host.credential(name=name, environment_hash=b"e" * 32),
        # What an agent adds is not looked at.
        script=b"#!/bin/sh\nid\n",
        environment=b"LD_PRELOAD=/tmp/x.so\0PATH=/tmp\0BASH_ENV=/tmp/x\0",
        door="/tmp/door",
    )
    assert (outcome.exit_code, outcome.cause, outcome.text) == (0, StepEndCause.EXITED, "")
    assert told.read_text().endswith("\n0\n/\n") and told.stat().st_uid == 0
    found = variables(told)
    assert found["SLURM_JOB_NAME"] == found["ESLURM_JOB_NAME"] == name
    assert (found["SLURM_JOB_ID"], found["SLURM_JOB_UID"], found["SLURM_JOB_USER"]) == (
        "7",
        str(STRANGER),
        "ada",
    )
    assert (found["SLURM_JOB_NODELIST"], found["SLURMD_NODENAME"]) == ("cn[3-4]", "cn3")
    assert found["SLURM_SCRIPT_CONTEXT"] == "prolog_slurmd"
    assert found["SLURM_CLUSTER_NAME"] == found["ESLURM_CLUSTER_NAME"] == "c"
    own = {variable for variable in found if not variable.startswith(("SLURM", "ESLURM"))}
    assert own <= {"PATH", "LC_ALL", "PWD", "SHLVL", "_", "OLDPWD", "0", "/"}, own
    assert not found["PATH"].startswith("/tmp") and before


def test_an_epilog_hears_how_the_script_ended_and_no_number_that_is_none(host: Host) -> None:
    told = host.directory / "told"
    host.configure(epilog=host.program(f"env > {told}"))
    assert host.run(host.credential(), EPILOG, end=(3, 0)).exit_code == 0
    found = variables(told)
    assert (found["SLURM_JOB_EXIT_CODE"], found["SLURM_JOB_EXIT_CODE2"]) == ("768", "3:0")
    assert found["ESLURM_SCRIPT_CONTEXT"] == "epilog_slurmd"
    body = msgspec.msgpack.encode(
        [19, 99, [list(msgspec.structs.astuple(EPILOG)), b"", b"", b"", "", None, [256, 0]]]
    )
    host._socket.sendall(len(body).to_bytes(4, "big") + body)
    assert isinstance(refused := host.next(), wire.Refused) and "unsupported" in refused.text


def test_no_connection_is_made_for_a_phase(fallen: Fallen) -> None:
    """A fallen supervisor asks for what only a step with a listener has; for a phase that child would be root."""
    place = Place(fallen.state)
    options = read_options(place.options)
    program = fallen.work.parent / "prolog"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    place.write_options(msgspec.structs.replace(options, prolog=str(program)))
    credential = sealed(Prepare(launch(phases=("prolog",))))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        heard = fallen.as_agent(
            lambda: fallen.ask(procd_wire.Refresh()),
            lambda: fallen.ask(procd_wire.Admit(order(credential, key=PROLOG))),
            lambda: fallen.ask(procd_wire.Connect(PROLOG), [theirs.fileno()]),
            # Its output goes into pipes, never into a file that the supervisor names.
            lambda: fallen.ask(procd_wire.Spawn(PROLOG, 0)),
            lambda: fallen.ask(procd_wire.Spawn(PROLOG, 1)),
            lambda: fallen.ask(procd_wire.Spawn(PROLOG, 0, seconds_left=1)),
        )
    assert heard[:2] == ["Refreshed", "Done"]
    refused(heard[2:], "no listener", "other files or pipes", "no task 1", "no warning")


def by_mode(host: Host) -> str:
    return host.program("exit 0", mode=0o757)


def by_owner(host: Host) -> str:
    path = host.program("exit 0")
    os.chown(path, STRANGER, STRANGER)
    return path


def by_link(host: Host) -> str:
    link = host.work / "link"
    link.symlink_to(host.program("exit 0"))
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    return str(link)


def by_folder(host: Host) -> str:
    (host.work / "program").write_text("#!/bin/sh\n")
    (host.work / "program").chmod(0o755)
    return str(host.work / "program")


def by_kind(host: Host) -> str:
    return str(host.work)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (by_mode, "others may write to it"),
        (by_owner, f"belongs to user id {STRANGER}"),
        (by_link, "others may replace what is in it"),
        (by_folder, "others may replace what is in it"),
        (by_kind, "not a file that can be executed"),
        (lambda _host: "program", "not an absolute path"),
        (lambda _host: "/nowhere/program", "does not exist"),
        (lambda _host: "", "this host has no prolog"),
    ],
)
def test_a_program_that_another_user_could_change_does_not_run(
    host: Host, make: Callable[[Host], str], says: str
) -> None:
    host.configure(prolog=make(host))
    assert says in host.refusal(host.credential(), PROLOG, script=b"", environment=b"")


def test_what_no_controller_has_sealed_has_no_phase(host: Host) -> None:
    host.configure(prolog=host.program("exit 0"), epilog=host.program("exit 0"))
    good = host.credential()
    step = LaunchStep(
        7, 1, PROLOG_STEP, (NodeGroup(((3, 1),), (1,)),), ("id",), b"", "/", "127.0.0.1:9", b"c" * 32, 1,
        launch=host.job(),
    )  # fmt: skip
    for credential, key, says in (
        (b"", PROLOG, "no launch credential"),
        (good[:-1] + bytes([good[-1] ^ 1]), PROLOG, "not of this site"),
        (host.credential(phases=()), PROLOG, "has no prolog"),
        (host.credential(phases=("prolog",)), EPILOG, "has no epilog"),
        (sealed(step), PROLOG, "has no prolog"),
        (good, StepKey(8, 1, PROLOG_STEP, 3), "another step"),
        (good, StepKey(7, 2, PROLOG_STEP, 3), "another step"),
        (good, StepKey(7, 1, -4, 3), "starts nothing"),
        (good, StepKey(7, 1, PROLOG_STEP, 9), "not for node number 9"),
        (host.credential(expires_us=1), PROLOG, "ended"),
        (host.credential(node_names="other[3-4]"), EPILOG, "not of this host"),
    ):
        assert says in host.refusal(credential, key), says


def test_a_user_whose_jobs_root_refuses_has_no_process_and_makes_no_prolog_fail(host: Host) -> None:
    """The job itself is refused after it: its user is no fault of the node."""
    program = host.program("id -u")
    host.configure(prolog=program, phase_user="job")
    for uid, says in ((0, "root are refused"), (999, "below 1000")):
        credential = host.credential(user=Principal("u", uid, uid))
        assert says in host.refusal(credential, PROLOG)
        with_start = sealed(Start(7, 1, host.job(user=Principal("u", uid, uid))))
        assert says in host.refusal(with_start)
    host.configure(prolog=program)
    assert host.run(host.credential(user=Principal("u", 999, 999)), PROLOG).exit_code == 0


def test_each_phase_runs_once_also_after_a_restart_and_an_epilog_long_after_its_launch(host: Host) -> None:
    count = host.directory / "count"
    program = host.program(f"echo $SLURM_SCRIPT_CONTEXT >> {count}")
    host.configure(prolog=program, epilog=program)
    old = host.credential(expires_us=wall_us() - 86_400_000_000)
    started = sealed(Start(7, 1, host.job()))
    assert host.run(started, PROLOG).exit_code == host.run(old, EPILOG).exit_code == 0
    host.ask(lambda number: wire.Acknowledge(number, (PROLOG, EPILOG)))
    for key in (PROLOG, EPILOG):
        assert "launched before" in host.refusal(started, key)
    # The other node of this host has phases of its own.
    other = StepKey(7, 1, PROLOG_STEP, 4)
    assert host.run(host.credential(), other).exit_code == 0
    assert count.read_text().split() == ["prolog_slurmd", "epilog_slurmd", "prolog_slurmd"]


def test_a_job_s_process_can_neither_end_nor_look_into_a_prolog_of_root_s(host: Host) -> None:
    gate = host.directory / "gate"
    os.mkfifo(gate)
    host.configure(prolog=host.program(f"read line < {gate}; exit 5"))
    pid = host.begin(host.credential())
    libc = ctypes.CDLL(None, use_errno=True)
    for uid in (STRANGER, AGENT_UID):
        for signum in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
            assert as_uid(uid, lambda signum=signum: os.kill(pid, signum)) == "PermissionError"  # type: ignore[misc]
        assert as_uid(uid, lambda: libc.ptrace(_PTRACE_ATTACH, pid, 0, 0)) == "-1"
        for name in ("environ", "mem"):
            assert (
                as_uid(uid, lambda name=name: Path(f"/proc/{pid}/{name}").read_bytes()) == "PermissionError"
            )  # type: ignore[misc]
    gate.write_text("go\n")
    assert host.outcome().exit_code == 5


def test_at_its_limit_a_phase_ends_with_all_that_it_has_started(host: Host) -> None:
    pids = host.directory / "pids"
    text = (
        "trap '' TERM; echo working on it\n"
        f"setsid sh -c 'trap \"\" TERM; echo $$ >> {pids}; while :; do sleep 600; done' &\n"
        f"(setsid sleep 600 & echo $! >> {pids}) \nsleep 600 & wait\nwhile :; do sleep 600; done"
    )
    host.configure(prolog=host.program(text), phase_limit_s=0.3)
    outcome = host.run(host.credential())
    assert outcome.cause is StepEndCause.TIME_LIMIT
    assert outcome.text == "time limit of 0.3 s reached: working on it"
    assert len(pids.read_text().split()) == 2
    left = [procfs.find_process(int(pid)) for pid in pids.read_text().split()]
    for process in left:
        # The sweep for what has left the step's session follows its end.
        while process is not None and (now := procfs.find_process(process.pid)) and now.state != "Z":
            assert now.start_ticks == process.start_ticks


def test_output_is_bounded_and_lies_where_no_user_can_touch_it(host: Host) -> None:
    host.configure(
        prolog=host.program(
            "head -c 300000 /dev/zero | tr '\\0' x; printf '\\nbad \\033[31m\\ndisk\\n'; exit 9"
        )
    )
    outcome = host.run(host.credential())
    assert outcome.text.endswith("x bad [31m disk") and len(outcome.text) < 500 and outcome.exit_code == 9
    path = host.kept("7.1.3.prolog")
    status = path.stat()
    assert (status.st_uid, status.st_mode & 0o777) == (AGENT_UID, 0o600)
    text = path.read_bytes()
    assert text.endswith(b"x\nbad \033[31m\ndisk\n") and len(text) <= KEPT_BYTES + 100
    for act in (
        lambda: path.read_bytes(),
        lambda: os.rename(path, f"{path}.x"),
        lambda: os.symlink("/etc/passwd", path.parent / "7.1.3.epilog"),
        lambda: os.listdir(path.parent),
    ):
        assert as_uid(STRANGER, act) == "PermissionError"


def test_as_the_job_s_user_a_phase_has_the_rights_of_that_user_and_the_same_variables(host: Host) -> None:
    told = host.work / "told"
    program = host.program(f"id -u > {told}; id -G >> {told}; umask >> {told}; touch {host.directory}/x")
    host.configure(prolog=program, phase_user="job")
    outcome = host.run(host.credential())
    assert outcome.exit_code == 1 and "ermission denied" in outcome.text
    assert told.read_text().split() == [str(STRANGER), str(STRANGER), "0022"]
    assert told.stat().st_uid == STRANGER
    assert Place(host.state).find_supervisor() is not None


STEP = msgspec.structs.replace(KEY, step=0)


def step_of(job: JobLaunch, endpoint: str, *argv: str) -> bytes:
    """A step of one task on the first node, sealed."""
    groups = (NodeGroup(((3, 1),), (1,)),)
    made = LaunchStep(
        7, 1, 0, groups, argv, job.spec.environment_hash, job.spec.work_dir, endpoint, b"c" * 32, 1, launch=job
    )  # fmt: skip
    return sealed(made)


def run_step(host: Host, *argv: str) -> StepOutcome:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sealed_step = step_of(host.job(phases=()), f"127.0.0.1:{listener.getsockname()[1]}", *argv)
        made = msgspec.structs.replace(order(sealed_step, key=STEP), script=b"")
        answer = host.ask(lambda number: wire.Launch(number, made))
        assert isinstance(answer, wire.Launched), answer
        connection, _ = listener.accept()
        with connection:
            return answer.state if isinstance(answer.state, StepOutcome) else host.outcome(STEP)


def test_a_task_s_epilog_is_root_s_program_with_the_rights_of_the_task_s_user(host: Host) -> None:
    told = host.work / "told"
    text = f"id -u > {told}; id -G >> {told}; pwd >> {told}; touch {host.directory}/x"
    host.configure(task_epilog=host.program(text))
    outcome = run_step(host, "/bin/sh", "-c", "exit 3")
    assert (outcome.exit_code, outcome.cause, outcome.text) == (3, StepEndCause.EXITED, "")
    assert told.read_text().split() == [str(STRANGER), str(STRANGER), str(host.work)]
    assert told.stat().st_uid == STRANGER and not (host.directory / "x").exists()
    assert "permission denied" in Path(Place(host.state).log).read_text().lower()


@pytest.mark.parametrize("make", [by_mode, by_owner, by_link, by_folder, lambda _host: "/nowhere/program"])
def test_an_epilog_of_tasks_that_another_user_could_change_does_not_run_and_the_task_does(
    host: Host, make: Callable[[Host], str]
) -> None:
    host.configure(task_epilog=make(host))
    assert run_step(host, "/bin/sh", "-c", "exit 0").exit_code == 0
    assert "the epilog of task 0 of step 7.1.0.3: task epilog: " in Path(Place(host.state).log).read_text()


def test_a_task_s_epilog_runs_once_after_a_task_of_a_step(fallen: Fallen) -> None:
    """A fallen supervisor asks for more of them, for what never ran, and for a script."""
    place = Place(fallen.state)
    program = fallen.work.parent / "epilog"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    place.write_options(msgspec.structs.replace(read_options(place.options), task_epilog=str(program)))
    made = launch(user=Principal("ada", STRANGER, STRANGER), work_dir=str(fallen.work))
    step = msgspec.structs.replace(order(step_of(made, "127.0.0.1:9", "true"), key=STEP), script=b"")
    read_fd, write_fd = os.pipe()
    heard = fallen.as_agent(
        lambda: fallen.ask(procd_wire.Refresh()),
        lambda: fallen.ask(procd_wire.Admit(order(fallen.job()))),
        lambda: fallen.ask(procd_wire.Spawn(KEY, 0)),
        lambda: fallen.ask(procd_wire.Spawn(KEY, 0, (1, 0))),
        lambda: fallen.ask(procd_wire.Admit(step)),
        lambda: fallen.ask(procd_wire.Spawn(STEP, 0, (1, 0))),
        lambda: fallen.ask(procd_wire.Spawn(STEP, 0), [write_fd, write_fd]),
        lambda: fallen.ask(procd_wire.Spawn(STEP, 0, (1, 0))),
        lambda: fallen.ask(procd_wire.Spawn(STEP, 0, (1, 0))),
        lambda: fallen.ask(procd_wire.Spawn(STEP, 1, (1, 0))),
    )
    for fd in (read_fd, write_fd):
        os.close(fd)
    assert heard[:3] == ["Refreshed", "Done", "Spawned"] and heard[4] == "Done"
    assert heard[6:8] == ["Spawned", "Spawned"]
    refused([heard[at] for at in (3, 5, 8, 9)], *("that an epilog follows",) * 4)
