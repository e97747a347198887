"""The calls of a step: its creation, the wait for its launch, its end."""

from __future__ import annotations

import os
import socket
import threading
import time

from escli import program
from escli.api import GIVE_UP_S, Api, is_away
from escli.failures import CommandFailed
from escli.user.exporting import exported
from eslurm.compat.cpu_binding import ASKED, VARIABLE, parse_binding, wanted_binding, without_binding
from eslurm.compat.environment import encode_environment
from eslurm.compat.errors import OptionError, escaped
from eslurm.compat.hostlist import expand
from eslurm.compat.request_checks import checked_arguments, checked_line, checked_nodes
from eslurm.compat.resource_limits import propagated
from eslurm.core.model.request_limits import NAME_CHARS_MAX, NODES_NAMED_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from escli.options import Words
    from escli.user.step_node import Source
    from escli.user.step_programs import PartProgram
    from eslurm.core.model.step_input import StepInput

COMMAND = "esrun"
_LAUNCH_POLL_S = 20
_CALL_MARGIN_S = 10.0
_JOIN_S = 2.0
_SETTLE_S = 10.0
_LOOPBACK = "127.0.0.1"


def listen_host(environ: Mapping[str, str]) -> str:
    """The numeric address at which the step's nodes can reach this process.

    ESLURM_STEP_HOST when set. Within a job loopback, when this node's name is not the machine's (its node is a virtual one,
    and so are the others). Else the address of the machine's name, or where that is loopback (on a login host it may be)
    the one from which the job's first node is reached.
    """
    chosen = environ.get("ESLURM_STEP_HOST", "")
    if chosen:
        return chosen
    machine = os.uname().nodename
    node = environ.get("ESLURM_NODENAME", "")
    if node and node.partition(".")[0] != machine.partition(".")[0]:
        return _LOOPBACK
    try:
        own = socket.gethostbyname(machine)
    except OSError:
        own = _LOOPBACK
    if node or not own.startswith("127."):
        return own
    return _towards(environ.get("ESLURM_JOB_NODELIST", "")) or own


def _towards(node_list: str) -> str:
    """This host's address on the way to the first of these nodes; empty when that is not known."""
    try:
        first = expand(node_list, "nodes")[0]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # Nothing is sent: the kernel chooses a route.
            probe.connect((first, 9))
            return str(probe.getsockname()[0])
    except (OSError, OptionError, IndexError):
        return ""


def take_binding(given: Words, environ: Mapping[str, str]) -> None:
    """Take `--cpu-bind` from the environment where it is not given, and check it. Raises OptionError."""
    if not given.has("cpu-bind") and (wanted := wanted_binding(environ)):
        given.put("cpu-bind", wanted, VARIABLE)
    parse_binding(given.text("cpu-bind"), given.spelling("cpu-bind"))


def step_request(
    given: Words,
    job_id: int,
    programs: Sequence[PartProgram],
    endpoint: str,
    cookie: bytes,
    environ: Mapping[str, str],
    step_input: StepInput | None = None,
    mpi: str = "",
    files: Any = None,
) -> Any:
    """The request for a step of these programs, whose tasks get these variables. Raises OptionError."""
    from eslurm.v1 import controller_pb2 as pb

    choice = environ.get("SLURM_EXPORT_ENV", "") or "ALL"
    variables = without_binding(exported(given.text("export", choice), environ, given.spelling("export")))
    variables |= propagated(given.text("propagate"), given.spelling("propagate"))
    if given.has("cpu-bind"):
        variables[ASKED] = given.text("cpu-bind")
    request = pb.CreateStepRequest(
        job_id=job_id,
        files=files,
        environment=encode_environment(variables),
        work_dir=os.path.join(os.getcwd(), given.text("chdir")) if given.has("chdir") else os.getcwd(),
        endpoint=endpoint,
        cookie=cookie,
        name=_name(given, programs[0]),
        mpi=mpi,
        node_names=_named_nodes(given, programs),
    )
    if step_input is not None:
        request.input.rank, request.input.path = step_input.rank, step_input.path
        if step_input.terminal is not None:
            request.input.terminal.rows, request.input.terminal.columns = step_input.terminal
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
    return request


def _named_nodes(given: Words, programs: Sequence[PartProgram]) -> tuple[str, ...]:
    """The nodes that `--nodelist` names, in order and once each. Raises OptionError."""
    if not given.has("nodelist"):
        return ()
    spelling = given.spelling("nodelist")
    names = tuple(dict.fromkeys(expand(given.text("nodelist"), spelling, NODES_NAMED_MAX)))
    if not names:
        raise OptionError(spelling, given.text("nodelist"), "names no node", "use e.g. -w cn002")
    if (nodes := sum(program.nodes for program in programs)) > len(names):
        why = f"are more than the {len(names)} that --nodelist names"
        raise OptionError(given.spelling("nodes"), str(nodes), why, "name more, or leave it out")
    return tuple(checked_nodes(spelling, names))


def _name(given: Words, program: PartProgram) -> str:
    """The step's name: from an option, else its command's, as far as that is printable."""
    if given.has("job-name"):
        return checked_line(given.spelling("job-name"), given.text("job-name"))
    return escaped(os.path.basename(program.argv[0]))[:NAME_CHARS_MAX]


def tasks_by_source(step: Any) -> dict[Source, int]:
    """The number of tasks by (step number, node): each part of a step has a number of its own."""
    tasks: dict[Source, int] = {}
    for number, name, count in layout_of(step):
        tasks[number, name] = tasks.get((number, name), 0) + count
    return tasks


def layout_of(step: Any) -> list[tuple[int, str, int]]:
    """(step number, node, tasks) in the order of ranks."""
    parts = [(part.step, part.layout) for part in step.parts] or [(step.step, step.layout)]
    return [(number, node.name, node.tasks) for number, layout in parts for node in layout]


def await_step(api: Api, is_known: Callable[[Any], bool], **fields: Any) -> Any:
    """The first answer to a `WaitStepRequest` of these fields that `is_known` takes. Raises CommandFailed."""
    from eslurm.v1 import controller_pb2 as pb

    request = pb.WaitStepRequest(timeout_s=_LAUNCH_POLL_S, **fields)
    heard_s = time.monotonic()
    while True:
        try:
            reply = api.call("WaitStep", request, _LAUNCH_POLL_S + _CALL_MARGIN_S)
        except CommandFailed as failure:
            # Another controller takes over, and the step goes on meanwhile.
            if not is_away(failure) or time.monotonic() - heard_s > GIVE_UP_S:
                raise
            continue
        if is_known(reply):
            return reply
        heard_s = time.monotonic()


class Launch:
    """Waits in a thread of its own for the answer to the launch, which may take as long as the slowest node.

    `cell` is the other cell whose part of the step it is, `home_job_id` the job that spans the cells.
    """

    def __init__(self, api: Api, step: Any, cell: str = "", home_job_id: int = 0) -> None:
        self._heard, self._tell = socket.socketpair()
        self.heard = (self._heard,)
        self.failed: list[tuple[str, str]] = []
        self.state = "LAUNCHING"
        self.error = ""
        self._api = api.another()
        self._step = step
        self._cell = cell
        self._home_job_id = home_job_id
        self._thread = threading.Thread(target=self._ask, name="launch", daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """Wait for the controller's answer, which explains why a node left; it is due, or has come long ago."""
        self._thread.join(_SETTLE_S)

    def close(self) -> None:
        """Wait a moment for the thread: the step is over, so its answer is due."""
        self._thread.join(_JOIN_S)
        self._heard.close()

    def _ask(self) -> None:
        try:
            with self._api as api:
                self._ask_until_launched(api)
        except CommandFailed as failure:
            self.error = failure.text
        finally:
            self._tell.close()

    def _ask_until_launched(self, api: Api) -> None:
        reply = await_step(
            api,
            lambda reply: reply.state != "LAUNCHING",
            job_id=self._step.job_id,
            step=self._step.step,
            cell=self._cell,
            home_job_id=self._home_job_id,
        )
        self.failed = [(problem.what, problem.text) for problem in reply.failed]
        self.state = reply.state


def finish(api: Api, step: Any, code: int, number: int, cell: str = "", home_job_id: int = 0) -> None:
    """Tell the controller the step's end; see `Launch` for `cell`."""
    from eslurm.v1 import controller_pb2 as pb

    request = pb.FinishStepRequest(
        job_id=step.job_id,
        step=step.step,
        exit_code=code,
        signal=number,
        cell=cell,
        home_job_id=home_job_id,
    )
    try:
        api.call("FinishStep", request, request_id=os.urandom(16))
    except CommandFailed as failure:
        # The tasks have ended, and the job's end settles the record.
        program.warn(COMMAND, f"the controller was not told of the step's end: {failure.text}")
