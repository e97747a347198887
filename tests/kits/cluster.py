"""A whole cluster of real processes on loopback: controller, satellites, agents of virtual nodes, and what a user does.

Invariants: nothing of it outlives `stop` (daemons, supervisors, steps), and `stop` fails when something would have, or
when a daemon's log holds a traceback. Waiting is for ready lines and for the controller's own answers; files that
scripts write are looked at until a deadline.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pwd
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from eslurm.api.methods import BY_NAME
from eslurm.api.unix_client import Client
from eslurm.compat.hostlist import expand
from eslurm.v1 import controller_pb2 as pb
from esnoded.procd import procfs
from esnoded.stepd.place import Place
from tests.kits.commands import Ran, become_user, environment, main_of, path_with_commands, preload
from tests.kits.daemons import PATIENCE_S, ROOT, Daemon, agent_user
from tests.kits.stepd import end_process
from tests.support.ports import free_port
from tests.support.trust import Site

POLL_S = 0.02
CLUSTER = "live"
KILL_GRACE_S = 3.0
CRASHED = 70
"""Exit code of a command that raised what it does not handle."""
"""Long enough for a script to tidy up on a machine that stands still for a while."""
FINAL = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")

T = TypeVar("T")


class LiveCluster:
    """Nodes cn[0001-NODES] of `cores` cores, shared evenly by `agents` processes.

    `policy` goes into the configuration's [policy], `controller` into its [controller]; `sections` are put after it as
    they are; `tls` are options for every daemon. The first of several `controllers` is called main (its daemon
    esctld), the others c2, c3 (esctld-c2, ...); they share the store at `store_url`, or the SQLite file in the
    directory. Daemons are of the release in `source`. With `is_watched` each daemon serves its metrics at
    `watched[name]`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 16,
        cores: int = 4,
        agents: int = 2,
        satellites: int = 2,
        controllers: int = 1,
        store_url: str = "",
        policy: Mapping[str, object] | None = None,
        controller: Mapping[str, object] | None = None,
        sections: str = "",
        source: Path = ROOT,
        is_watched: bool = False,
        log_format: str = "text",
        log_level: str = "info",
        tls: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.store_url = store_url
        self._tls_words = tuple(tls)
        self._is_watched = is_watched
        self._cores = cores
        self._log_words = ("--log-format", log_format, "--log-level", log_level) if is_watched else ()
        self.watched: dict[str, str] = {}
        self._source = source
        # Agents that root starts are of another user, and so are some jobs.
        directory.chmod(0o711)
        self.work = directory / "work"
        self.work.mkdir()
        # Jobs of other users write here, too, when the cluster runs as root.
        self.work.chmod(0o777)
        self.controllers = ["main", *(f"c{number}" for number in range(2, controllers + 1))]
        self.sockets = [directory / daemon_socket(name) for name in self.controllers]
        self.socket = self.sockets[0]
        self.node_names = [f"cn{number:04d}" for number in range(1, nodes + 1)]
        self.daemons: dict[str, Daemon] = {}
        self._client = Client([str(path) for path in self.sockets], PATIENCE_S)
        self.site = Site(CLUSTER)
        self.site.write_keys(directory)
        self.endpoints = [f"127.0.0.1:{free_port()}" for _ in self.controllers]
        self.endpoint = self.endpoints[0]
        self._satellites = [f"127.0.0.1:{free_port()}" for _ in range(satellites)]
        keys = dict(controller or {}) | ({"store_url": store_url} if store_url else {})
        self._write_config(policy or {}, keys, sections)
        for name, endpoint in zip(self.controllers, self.endpoints, strict=True):
            words = ["esctld", "--config", str(directory / "eslurm.toml"), "--state-dir", str(directory)]
            if controllers > 1:
                words += ["--name", name, "--listen", endpoint]
            self.add_daemon(daemon_of(name), *words)
        for at, endpoint in enumerate(self._satellites):
            name = f"sat{at}"
            state_dir = self.site.write_member(directory / name, "satellite", name)
            words = ["--cluster", CLUSTER, "--name", name, "--state-dir", str(state_dir)]
            words += ["--listen", endpoint, "--controllers", ",".join(self.endpoints)]
            self.add_daemon(name, "essatd", *words)
        share = nodes // agents
        for at in range(agents):
            names = self.node_names[at * share : (at + 1) * share]
            self.add_agent(f"agent{at}", f"{names[0][:2]}[{names[0][2:]}-{names[-1][2:]}]")

    # ---- building ----

    def _write_config(
        self, policy: Mapping[str, object], controller: Mapping[str, object], sections: str
    ) -> None:
        first, last = self.node_names[0][2:], self.node_names[-1][2:]
        numbers: dict[str, object] = {
            # Not less: on a busy machine an answer may take half a second.
            "heartbeat_s": 1.0,
            "kill_grace_s": KILL_GRACE_S,
            "requeue_delay_s": 0.1,
            # What a test asks of a job that has ended is still there, however long the test takes.
            "finished_retention_s": 600.0,
        }
        numbers |= policy
        lines = [
            f'[cluster]\nname = "{CLUSTER}"\noperators = [{os.getuid()}]',
            f'[controller]\nlisten = "{self.endpoint}"',
            *(f"{key} = {json.dumps(value)}" for key, value in controller.items()),
            *(
                f'[[satellite]]\nname = "sat{at}"\nlisten = "{endpoint}"'
                for at, endpoint in enumerate(self._satellites)
            ),
            f'[[nodes]]\nnames = "cn[{first}-{last}]"\ncores = {self._cores}\nmemory_mib = 4000',
            '[[partition]]\nname = "main"\ndefault = true',
            '[[partition]]\nname = "brief"\nnodes = "cn0001"\ntime_limit_max_s = 60',
            "[policy]\n" + "\n".join(f"{key} = {value}" for key, value in numbers.items()),
            "[agent]\nallow_root_jobs = true",
            sections,
        ]
        (self.directory / "eslurm.toml").write_text("\n".join(lines) + "\n")

    def add_daemon(self, name: str, *words: str) -> None:
        """A daemon's command line, with what all of them have; it is not started."""
        if self._is_watched:
            self.watched[name] = f"127.0.0.1:{free_port()}"
            words = (*words, "--metrics-listen", self.watched[name], *self._log_words)
        self.daemons[name] = Daemon(
            name, (*words, *self._tls_words), self.directory / f"{name}.log", self._source
        )

    def add_agent(
        self, name: str, nodes: str, *, cluster: str = CLUSTER, site: Site | None = None, cores: int = 0
    ) -> None:
        """An agent's command line, and its membership of `site` (else the cluster's); it is not started.

        Without `cores` its nodes have as many as the configuration's.
        """
        (site or self.site).write_member(self.agent_dir(name), "agent", nodes)
        words = ["--nodes", nodes, "--satellites", ",".join(self._satellites)]
        words += ["--controller", ",".join(self.endpoints)]
        words += ["--state-dir", str(self.agent_dir(name)), "--cores", str(cores or self._cores)]
        words += ["--memory-mib", "4000"]
        words += ["--allow-root-jobs", *agent_user()]
        self.add_daemon(name, "esnoded", "--cluster", cluster, *words)

    def agent_dir(self, name: str) -> Path:
        """An agent's state directory."""
        return self.directory / name

    # ---- daemons ----

    def start(self) -> None:
        """Start what does not run and wait until every node of the configuration is up."""
        for daemon in self.daemons.values():
            if daemon.process is not None:
                # A test that failed may have left it stopped.
                daemon.send(signal.SIGCONT)
        fresh = [daemon for daemon in self.daemons.values() if daemon.process is None]
        if len(self.controllers) > 1 and fresh and fresh[0] is self.daemons["esctld"]:
            # Whoever comes first leads.
            self.launch(fresh.pop(0).name)
        for daemon in fresh:
            daemon.spawn()
        for daemon in fresh:
            assert daemon.wait_ready(), f"{daemon.name} did not start:\n{daemon.tail()}"
        self.wait_nodes(lambda nodes: all(node.state == "UP" for node in nodes.values()))

    def launch(self, name: str) -> None:
        """Start one daemon and wait until it serves."""
        daemon = self.daemons[name]
        daemon.spawn()
        assert daemon.wait_ready(), f"{name} did not start:\n{daemon.tail()}"

    def kill(self, *names: str) -> None:
        """SIGKILL, all at once, and wait until they are gone."""
        for name in names:
            self.daemons[name].send(signal.SIGKILL)
        for name in names:
            self.daemons[name].wait()

    def terminate(self, *names: str) -> None:
        """SIGTERM, all at once, and wait for a clean exit."""
        for name in names:
            self.daemons[name].send(signal.SIGTERM)
        codes = {name: self.daemons[name].wait() for name in names}
        assert not any(codes.values()), codes

    def supervisor(self, agent: str) -> int:
        """The pid of an agent's step supervisor."""
        status = Place(self.agent_dir(agent)).find_supervisor()
        assert status is not None, f"{agent} has no supervisor"
        return status.pid

    def stop(self) -> None:
        """End everything. Fails when a process would have been left, or a log tells of a crash."""
        self._client.close()
        running = [daemon for daemon in self.daemons.values() if daemon.process is not None]
        for daemon in running:
            daemon.send(signal.SIGCONT)
            daemon.send(signal.SIGTERM)
        codes = {daemon.name: daemon.wait() for daemon in running}
        instances = set()
        # Supervisors of releases before 0.2 have their files in the agent's directory itself.
        for is_old, pattern in ((False, "*/stepd/esstepd.instance"), (True, "*/esstepd.instance")):
            for found in self.directory.glob(pattern):
                instances.add(found.read_text())
                supervisor = Place(found.parents[not is_old], is_old=is_old).find_supervisor()
                if supervisor is not None:
                    end_process(supervisor.pid, signal.SIGTERM, signal.SIGTERM)
        left = [process.pid for process in procfs.all_processes() if _belongs_to(process, instances)]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not left, f"processes of steps were left: {left}"
        others = {pid: words for pid, words in _named_after(self.directory) if pid != os.getpid()}
        for pid in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not others, f"processes of this cluster were left: {others}"
        assert not any(codes.values()), f"daemons ended badly: {codes}\n{self.logs()}"
        for log in (*self.directory.glob("*.log"), *self.directory.glob("*/stepd/esstepd.log")):
            text = log.read_text(errors="replace")
            assert "Traceback" not in text, f"{log.name}:\n{text[text.index('Traceback') :]}"

    def logs(self) -> str:
        """The daemons' last words, for a failure's report."""
        return "\n".join(f"---- {daemon.name}\n{daemon.tail()}" for daemon in self.daemons.values())

    def hang_up(self) -> None:
        """Close the connection that `call` keeps."""
        self._client.close()

    # ---- what a user does ----

    def run(self, command: str, *words: str, socket: Path | None = None) -> Ran:
        """A command as its users type it, within this process."""
        main = main_of(command)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), path_with_commands():
            code = main(["--socket", str(socket or self.socket), *words])
        return Ran(code, out.getvalue(), err.getvalue())

    def run_as_user(self, command: str, *words: str, socket: Path | None = None, **environ: str) -> Ran:
        """A command of an ordinary user: in a child that gives up root's rights when the cluster runs as root.

        The child is a copy of this process, because an interpreter in root's home cannot be started by others.
        """
        if os.getuid() != 0:
            with environment(environ):
                return self.run(command, *words, socket=socket)
        preload()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            pid = os.fork()
            if not pid:
                # Whatever is raised: the child is no second test run.
                code = CRASHED
                try:
                    become_user(self.work, out, err)
                    with environment(environ):
                        code = main_of(command)(["--socket", str(socket or self.socket), *words]) & 0xFF
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            out.seek(0)
            err.seek(0)
            return Ran(code, out.read().decode(), err.read().decode())

    def user_job(self, command: str, *words: str) -> int:
        """A job of an ordinary user; its id."""
        ran = self.run_as_user("essubmit", "--parsable", "-D", str(self.work), *words, "--wrap", command)
        assert ran.code == 0, ran
        return int(ran.out)

    def submit(self, *words: str) -> int:
        """`essubmit` in the work directory; the job's id."""
        ran = self.run("essubmit", "--parsable", "-D", str(self.work), *words)
        assert ran.code == 0, ran
        return int(ran.out)

    def script(self, name: str, text: str) -> str:
        """A batch script's file; `#!/bin/sh` is put before it unless it brings its own line."""
        path = self.work / name
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        return str(path)

    def wrap(self, command: str, *words: str) -> int:
        """`essubmit --wrap`; the job's id."""
        return self.submit(*words, "--wrap", command)

    def do(self, command: str, *words: str) -> None:
        """A command that has to succeed."""
        ran = self.run(command, *words)
        assert ran.code == 0, ran

    # ---- what the controller says ----

    def leader(self) -> str:
        """The name of the controller that leads now."""
        found = [one.name for one in self.controller_infos() if one.role == "leader"]
        assert len(found) == 1, found
        return str(found[0])

    def controller_infos(self) -> list[Any]:
        """The controllers as the one that leads knows them."""
        return list(self.call("Controllers", pb.ControllersRequest()).controllers)

    def wait_standbys(self) -> None:
        """Wait until the leader is linked with every other controller."""
        names = set(self.controllers)
        self.until(
            lambda: {one.name for one in self.controller_infos()} == names, f"{sorted(names)} know each other"
        )

    def call(self, method: str, request: Any, timeout_s: float = PATIENCE_S) -> Any:
        """One call through the controller's door; tried again while it restarts."""
        return self._client.call(BY_NAME[method], request, timeout_s)

    def token(self, scope: str = "submit", user: str = "") -> str:
        """A token of a user; of who runs the tests, or of nobody when that is root, who gets none."""
        own = pwd.getpwuid(os.getuid()).pw_name if os.getuid() else "nobody"
        made: str = self.call("CreateToken", pb.CreateTokenRequest(user=user or own, scope=scope)).token
        return made

    def write_token(self, path: Path, scope: str = "submit", user: str = "") -> Path:
        """The same in a file for this user alone."""
        path.touch(0o600)
        path.write_text(self.token(scope, user) + "\n")
        return path

    def job(self, job_id: int, task: int | None = None) -> Any:
        """The job as the controller shows it now."""
        reply = self.call("Jobs", pb.JobsRequest(jobs=[job_ref(job_id, task)], finished_too=True))
        found = [info for info in reply.jobs if task is None or info.array_task == task]
        assert found, f"job {job_id} is not known"
        return found[0]

    def ended(self, *job_ids: int) -> list[str]:
        """Wait until the jobs have ended; their states."""
        refs = [pb.JobRef(job_id=job_id) for job_id in job_ids]
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            reply = self.call("WaitJobs", pb.WaitJobsRequest(jobs=refs, timeout_s=2))
            states = {info.job_id: info.state for info in reply.jobs}
            if all(states.get(job_id) in FINAL for job_id in job_ids):
                return [states[job_id] for job_id in job_ids]
            assert time.monotonic() < deadline_s, f"jobs have not ended: {reply}"

    def end(self, job_id: int) -> str:
        """Wait until one job has ended; its state."""
        return self.ended(job_id)[0]

    def reaches(self, job_id: int, state: str) -> Any:
        """Wait until a job is in a state (it has to stay there long enough to be seen)."""
        return self.until(lambda: _if_state(self.job(job_id), state), f"job {job_id} is {state}")

    def runs(self, job_id: int) -> list[Any]:
        """The attempts of a job, or of an array's tasks, that accounting has; an array's own summary is none."""
        reply = self.call("Accounting", pb.AccountingRequest(jobs=[pb.JobRef(job_id=job_id)], limit=10_000))
        found = [run for run in reply.attempts if run.attempt]
        return sorted(found, key=lambda run: (run.array_task, run.attempt))

    def only_run(self, job_id: int) -> Any:
        """The single attempt of a job that has ended."""
        self.end(job_id)
        found = self.runs(job_id)
        assert len(found) == 1, found
        return found[0]

    def nodes(self) -> dict[str, Any]:
        """All nodes by name."""
        return {node.name: node for node in self.call("Nodes", pb.NodesRequest()).nodes}

    def wait_nodes(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until the nodes are as wanted."""
        try:
            self.until(lambda: wanted(self.nodes()), "the nodes' states")
        except AssertionError as error:
            states = [f"{node.name} {node.state} {list(node.jobs)}" for node in self.nodes().values()]
            raise AssertionError(f"{error}: {', '.join(states)}") from None

    def clear(self) -> None:
        """Cancel every job that has not ended and wait until no node holds anything."""
        left = self.call("Jobs", pb.JobsRequest()).jobs
        if left:
            refs = [pb.JobRef(job_id=info.job_id) for info in left]
            self.call("Cancel", pb.CancelRequest(jobs=refs))
            self.ended(*(info.job_id for info in left))
        self.wait_idle()

    def wait_idle(self) -> None:
        """Wait until no node holds anything."""
        self.wait_nodes(lambda nodes: not any(node.cores_used or node.jobs for node in nodes.values()))

    # ---- what scripts leave behind ----

    def empty_work(self) -> None:
        """Remove what scripts have left."""
        for path in self.work.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def lines(self, name: str) -> list[str]:
        """The lines of a file in the work directory; none when it does not exist."""
        path = self.work / name
        return path.read_text().splitlines() if path.exists() else []

    def wait_lines(self, name: str, count: int = 1) -> list[str]:
        """Wait until a script has written that many lines."""
        return self.until(lambda: _if_many(self.lines(name), count), f"{count} lines in {name}")

    def until(self, look: Callable[[], T | None], what: str, patience_s: float = PATIENCE_S) -> T:
        """Look until there is something (true); its value."""
        deadline_s = time.monotonic() + patience_s
        while True:
            found = look()
            if found:
                return found
            if time.monotonic() > deadline_s:
                raise AssertionError(f"not within {patience_s:g} s: {what}")
            time.sleep(POLL_S)


def daemon_of(controller: str) -> str:
    """The name of a controller's daemon."""
    return "esctld" if controller == "main" else f"esctld-{controller}"


def daemon_socket(controller: str) -> str:
    """The name of a controller's socket."""
    return f"{daemon_of(controller)}.sock"


def job_ref(job_id: int, task: int | None = None) -> pb.JobRef:
    """A job, or one task of an array."""
    return pb.JobRef(job_id=job_id) if task is None else pb.JobRef(job_id=job_id, task=task)


def is_alive(pid: str | int) -> bool:
    """Check that a process runs (one that has ended and only waits to be reaped does not)."""
    process = procfs.find_process(int(pid))
    return process is not None and process.state not in "ZX"


def names_of(text: str) -> list[str]:
    """The nodes of a folded list."""
    return list(expand(text, "nodes"))


def _if_state(info: Any, state: str) -> Any:
    return info if info.state == state else None


def _if_many(lines: list[str], count: int) -> list[str] | None:
    return lines if len(lines) >= count else None


def _named_after(directory: Path) -> Iterator[tuple[int, str]]:
    """Living processes that have something in this directory among their words: supervisors, programs of jobs."""
    prefix = os.fsencode(directory)
    for process in procfs.all_processes():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            if process.state not in "ZX" and prefix in words:
                yield process.pid, words.replace(b"\0", b" ").decode(errors="replace").strip()


def _belongs_to(process: procfs.Process, instances: set[str]) -> bool:
    return process.state not in "ZX" and procfs.marker_of(process.pid).partition("/")[0] in instances
