"""`esrun`: inside a job, start tasks on its nodes, show their output and end with their highest exit code.

Numbered steps of `_run`: 1. listen, 2. create the step, 3. show output until every node has ended or is lost, 4. report
its end to the controller.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time

from escli import exits, program
from escli.api import GIVE_UP_S, Api, is_away
from escli.errors import Interrupted
from escli.failures import CommandFailed
from escli.interrupts import Interrupts
from escli.open_api import open_api
from escli.user.step_output import LineWriter, StepOutput
from escli.user.step_programs import SYNONYMS, PartProgram, read_programs
from eslurm.compat.environment import describes_a_job, encode_environment
from eslurm.compat.errors import OptionError, escaped
from eslurm.compat.jobrefs import parse_job_id, parse_job_refs
from eslurm.compat.request_checks import checked_arguments, checked_line
from eslurm.core.model.request_limits import NAME_CHARS_MAX
from eslurm.core.model.values import COOKIE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from escli.options import Words
    from escli.user.step_output import Source

COMMAND = "esrun"
_POLL_S = 1.0
_LAUNCH_POLL_S = 20
_CALL_MARGIN_S = 10.0
_CONNECT_GRACE_S = 30.0
_JOIN_S = 2.0
_SETTLE_S = 10.0
_ENDING = (signal.SIGINT, signal.SIGTERM)
_LOOPBACK = "127.0.0.1"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return program.run(COMMAND, _run, argv, options_end_at_first_word=True, excludes=SYNONYMS)


def _run(given: Words) -> int:
    _take_part(given)
    programs = read_programs(given, os.environ)
    job_id = _job_id(given, os.environ)
    cookie = os.urandom(COOKIE_BYTES)
    writer = LineWriter(sys.stdout.buffer, sys.stderr.buffer)
    with open_api(given, COMMAND) as api:
        _check_here(api)
        output = StepOutput(listen_host(os.environ), cookie, writer)
        try:
            step = _create(api, given, job_id, programs, output.endpoint, cookie)
            sources = _tasks_by_source(step)
            if given.has("label"):
                writer.label_width = len(str(sum(sources.values()) - 1))
            output.expect(sources)
            return _follow(api, step, output, quiet=given.has("quiet"))
        finally:
            output.close()


def _check_here(api: Api) -> None:
    """Check that the step's nodes can reach this process, which receives the tasks' output."""
    if api.is_remote:
        raise CommandFailed(
            exits.USAGE,
            "works within jobs and on the cluster's own hosts, where nodes can send it what the tasks say: "
            "from another host use `essubmit --wait`",
        )


def _take_part(given: Words) -> None:
    """Read `--jobid 17+1` as `--jobid 17 --het-group 1`. Raises OptionError."""
    text, spelling = given.text("jobid"), given.spelling("jobid")
    if "+" not in text:
        return
    for long in SYNONYMS:
        if given.has(long):
            raise OptionError(spelling, text, f"names a part beside --{long}", "name it in one of them")
    job_id, _, part, cell = parse_job_refs(text, spelling)[0]
    if cell:
        raise OptionError(spelling, text, "names a cell", "run steps at the cell that runs the job")
    given.put("jobid", str(job_id), spelling)
    given.put("het-group", str(part), spelling)


def _job_id(given: Words, environ: Mapping[str, str]) -> int:
    """The job, from the option, else the surrounding one. Raises OptionError."""
    text = given.text("jobid") or environ.get("ESLURM_JOB_ID", "") or environ.get("SLURM_JOB_ID", "")
    if not text:
        raise OptionError(
            "esrun", None, "is not inside a job", "use it in a batch script, or give --jobid JOB"
        )
    return parse_job_id(text, given.spelling("jobid"))


def listen_host(environ: Mapping[str, str]) -> str:
    """The numeric address at which the step's nodes can reach this process.

    ESLURM_STEP_HOST when set. Else loopback, when this node's name is not the machine's (its node is a virtual one, and so
    are the others); else the address of the machine's name.
    """
    chosen = environ.get("ESLURM_STEP_HOST", "")
    if chosen:
        return chosen
    machine = os.uname().nodename
    node = environ.get("ESLURM_NODENAME", "")
    if node.partition(".")[0] != machine.partition(".")[0]:
        return _LOOPBACK
    try:
        return socket.gethostbyname(machine)
    except OSError:
        return _LOOPBACK


def _create(
    api: Api, given: Words, job_id: int, programs: Sequence[PartProgram], endpoint: str, cookie: bytes
) -> Any:
    from eslurm.v1 import controller_pb2 as pb

    variables = {name: value for name, value in os.environ.items() if not describes_a_job(name)}
    request = pb.CreateStepRequest(
        job_id=job_id,
        environment=encode_environment(variables),
        work_dir=os.path.join(os.getcwd(), given.text("chdir")) if given.has("chdir") else os.getcwd(),
        endpoint=endpoint,
        cookie=cookie,
        name=_name(given, programs[0]),
    )
    if len(programs) == 1 and not programs[0].component:
        (program,) = programs
        request.tasks, request.nodes = program.tasks, program.nodes
        request.tasks_open, request.nodes_open = program.tasks_open, program.nodes_open
        request.cpus_per_task = program.cpus_per_task
        request.argv.extend(checked_arguments(program.argv))
    else:
        # Without `argv` a controller that knows no parts refuses it.
        for program in programs:
            request.components.append(program.component)
            request.programs.add(
                argv=checked_arguments(program.argv),
                tasks=program.tasks,
                nodes=program.nodes,
                cpus_per_task=program.cpus_per_task,
            )
    return api.call("CreateStep", request, request_id=os.urandom(16))


def _name(given: Words, program: PartProgram) -> str:
    """The step's name: from an option, else its command's, as far as that is printable."""
    if given.has("job-name"):
        return checked_line(given.spelling("job-name"), given.text("job-name"))
    return escaped(os.path.basename(program.argv[0]))[:NAME_CHARS_MAX]


def _tasks_by_source(step: Any) -> dict[Source, int]:
    """The number of tasks by (step number, node): each part of a step has a number of its own."""
    tasks: dict[Source, int] = {}
    for number, layout in [(part.step, part.layout) for part in step.parts] or [(step.step, step.layout)]:
        for node in layout:
            source = number, node.name
            tasks[source] = tasks.get(source, 0) + node.tasks
    return tasks


class _Launch:
    """Waits in a thread of its own for the answer to the launch, which may take as long as the slowest node."""

    def __init__(self, api: Api, step: Any) -> None:
        self.heard, self._tell = socket.socketpair()
        self.failed: list[tuple[str, str]] = []
        self.state = "LAUNCHING"
        self.error = ""
        self._api = api.another()
        self._step = step
        self._thread = threading.Thread(target=self._ask, name="launch", daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """Wait for the controller's answer, which explains why a node left; it is due, or has come long ago."""
        self._thread.join(_SETTLE_S)

    def close(self) -> None:
        """Wait a moment for the thread: the step is over, so its answer is due."""
        self._thread.join(_JOIN_S)
        self.heard.close()

    def _ask(self) -> None:
        try:
            with self._api as api:
                self._ask_until_launched(api)
        except CommandFailed as failure:
            self.error = failure.text
        finally:
            self._tell.close()

    def _ask_until_launched(self, api: Api) -> None:
        from eslurm.v1 import controller_pb2 as pb

        request = pb.WaitStepRequest(job_id=self._step.job_id, step=self._step.step, timeout_s=_LAUNCH_POLL_S)
        heard_s = time.monotonic()
        while self.state == "LAUNCHING":
            try:
                reply = api.call("WaitStep", request, _LAUNCH_POLL_S + _CALL_MARGIN_S)
            except CommandFailed as failure:
                # Another controller takes over, and the launch goes on meanwhile.
                if not is_away(failure) or time.monotonic() - heard_s > GIVE_UP_S:
                    raise
                continue
            heard_s = time.monotonic()
            self.failed = [(problem.what, problem.text) for problem in reply.failed]
            self.state = reply.state


def _follow(api: Api, step: Any, output: StepOutput, *, quiet: bool) -> int:
    # Acted on where nothing is half done: an accepted connection that nothing knows of would stay open.
    with Interrupts(_ENDING) as interrupts:
        launch = _Launch(api, step)
        sources = frozenset(_tasks_by_source(step))
        output.watch(launch.heard)
        output.watch(interrupts)
        try:
            problems = _until_ended(output, launch, interrupts, sources)
            code, number = merged(output.statuses)
            if problems:
                code = max(code, exits.FAILED)
        except Interrupted:
            number = interrupts.first
            problems = [f"ended by {signal.Signals(number).name}; its tasks are ended too"]
            code = 128 + number
        output.unwatch(interrupts)
    output.close()
    for problem in problems if not quiet else ():
        program.warn(COMMAND, f"step {step.job_id}.{step.step}: {problem}")
    if not quiet and not problems:
        _tell_failures(output.statuses)
    _finish(api, step, code, number)
    launch.close()
    return code


def _until_ended(
    output: StepOutput, launch: _Launch, interrupts: Interrupts, sources: frozenset[Source]
) -> list[str]:
    """Show output until each node has ended, is lost, or never came; returns the problems, one text each."""
    heard_s = 0.0
    while not output.finished | output.lost >= sources:
        interrupts.check()
        if launch.state == "FAILED":
            return _not_started(launch)
        if launch.error and not output.connected:
            return [launch.error]
        if not heard_s and (launch.state != "LAUNCHING" or launch.error):
            heard_s = time.monotonic()
            output.unwatch(launch.heard)
        missing = sources - output.connected
        if heard_s and missing and time.monotonic() - heard_s > _CONNECT_GRACE_S:
            return [f"node {name} never connected" for name in _names(missing)] + _lost(output, launch)
        output.run_once(_POLL_S)
    return _lost(output, launch)


def _names(sources: Iterable[Source]) -> list[str]:
    return sorted({name for _, name in sources})


def _not_started(launch: _Launch) -> list[str]:
    failed = [f"node {what} did not start its tasks: {text}" for what, text in launch.failed]
    return failed or ["its tasks could not be started"]


def _lost(output: StepOutput, launch: _Launch) -> list[str]:
    """Reasons of nodes that left before all of their tasks had been reported: a refused start, or a lost connection."""
    if not output.lost:
        return []
    launch.settle()
    refused = dict(launch.failed)
    return [
        f"node {name} did not start its tasks: {refused[name]}"
        if name in refused
        else f"node {name}: connection lost before its tasks had ended"
        for name in _names(output.lost)
    ]


def merged(statuses: Mapping[int, int]) -> tuple[int, int]:
    """(exit code, signal) of a step: the highest code of its tasks, 128 + N for one that signal N ended."""
    code = number = 0
    for status in statuses.values():
        if status < 0 and 128 - status > code:
            code, number = 128 - status, -status
        elif status > code:
            code, number = status, 0
    return code, number


def _tell_failures(statuses: Mapping[int, int]) -> None:
    groups: dict[int, list[int]] = {}
    for task, status in sorted(statuses.items()):
        if status:
            groups.setdefault(status, []).append(task)
    for status, tasks in groups.items():
        from eslurm.compat.arrays import fold_tasks, format_array

        how = f"ended by signal {-status}" if status < 0 else f"exit code {status}"
        program.warn(COMMAND, f"task {format_array(fold_tasks(tasks))}: {how}")


def _finish(api: Api, step: Any, code: int, number: int) -> None:
    from eslurm.v1 import controller_pb2 as pb

    request = pb.FinishStepRequest(job_id=step.job_id, step=step.step, exit_code=code, signal=number)
    try:
        api.call("FinishStep", request, request_id=os.urandom(16))
    except CommandFailed as failure:
        # The tasks have ended, and the job's end settles the record.
        program.warn(COMMAND, f"the controller was not told of the step's end: {failure.text}")
