"""`esrun` in a job that spans several cells: a step in each of them, with one order of ranks, shown as one (ADR 32).

Invariant: ranks and nodes are counted through all cells, the home cell's first.
"""

from __future__ import annotations

import os
import selectors
import sys
from itertools import groupby

from escli import exits
from escli.failures import CommandFailed
from escli.job_refs import job_refs
from escli.user.step_calls import (
    COMMAND,
    Launch,
    finish,
    layout_of,
    listen_host,
    step_request,
    tasks_by_source,
)
from escli.user.step_ends import read_ends
from escli.user.step_following import follow, interrupts_of_step
from escli.user.step_input import InputPump, read_choice
from escli.user.step_mpi import StepMpi, check_alone, read_mpi
from escli.user.step_output import LineWriter, StepOutput
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.hostlist import expand
from eslurm.core.model.hostlist import fold
from eslurm.core.model.values import COOKIE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from _typeshed import HasFileno

    from escli.api import Api
    from escli.options import Words
    from escli.user.pmi.program import Failure
    from escli.user.step_ends import StepTexts, TaskEnd
    from escli.user.step_following import Where
    from escli.user.step_input import Taker
    from escli.user.step_programs import PartProgram


class Place:
    """A cell's part of the job: `cell` empty is the home cell, `job_id` the job's id there, `names` are its nodes."""

    __slots__ = ("cell", "job_id", "names", "tasks")

    def __init__(self, cell: str, job_id: int, names: Sequence[str]) -> None:
        self.cell = cell
        self.job_id = job_id
        self.names = tuple(names)
        self.tasks: list[int] = []
        """Tasks of the step on each of the nodes that it takes here."""


def run_joint(api: Api, given: Words, job_id: int, programs: Sequence[PartProgram], texts: StepTexts) -> int:
    """Run the step; returns its exit code. Raises OptionError or CommandFailed."""
    ends = read_ends(given, os.environ, texts)
    if len(programs) != 1 or programs[0].component:
        raise OptionError(COMMAND, None, "has several parts in a job that spans cells", "run one program")
    if given.has("nodelist"):
        text = given.text("nodelist")
        raise OptionError(
            given.spelling("nodelist"), text, "does not go with a job that spans cells", "use -N"
        )
    places = _places(api, job_id)
    nodes, tasks = _size(given, programs[0], places, os.environ)
    share_out(places, nodes, tasks)
    used = [place for place in places if place.tasks]
    writer = LineWriter(
        sys.stdout.buffer, sys.stderr.buffer, is_unbuffered=given.has("unbuffered") or given.has("pty")
    )
    if given.has("label"):
        writer.label_width = len(str(tasks - 1))
    output = JointOutput(writer)
    choice, word = read_choice(given, os.environ), read_mpi(given, os.environ)
    check_alone(word, given, is_alone=False)
    mpi = StepMpi(word) if word else None
    pump = InputPump(choice.open(), output)
    steps: list[tuple[Place, Any]] = []
    try:
        for place in used:
            cookie = os.urandom(COOKIE_BYTES)
            part = StepOutput(listen_host(os.environ), cookie, writer, mpi)
            output.add(place.cell, part)
            request = step_request(
                *(given, place.job_id, programs, part.endpoint, cookie, os.environ),
                choice.step,
                word,
            )
            request.nodes, request.tasks = len(place.tasks), sum(place.tasks)
            request.cell = place.cell
            _describe(request.joint, job_id, used, place)
            step = api.call("CreateStep", request, request_id=os.urandom(16))
            part.expect(tasks_by_source(step))
            steps.append((place, step))
        label = f"{job_id}.{steps[0][1].step}"
        if mpi is not None:
            layout = [(place.cell, layout_of(step)) for place, step in steps]
            mpi.begin(
                label, [(f"{cell}/{name}", count) for cell, nodes in layout for _, name, count in nodes]
            )
        with interrupts_of_step() as interrupts:
            launch = JointLaunch([Launch(api, step, place.cell, job_id) for place, step in steps])
            code, number = follow(output, launch, label, interrupts, pump, ends)
        for place, step in steps:
            finish(api, step, code, number, place.cell, job_id)
        launch.close()
        return code
    finally:
        pump.close()
        output.close()


def _places(api: Api, job_id: int) -> list[Place]:
    """The cells' parts of the job as they are now, the home cell's first."""
    from eslurm.v1 import controller_pb2 as pb

    reply = api.call("Jobs", pb.JobsRequest(jobs=job_refs([str(job_id)], "--jobid")))
    info = next((one for one in reply.jobs if one.job_id == job_id), None)
    if info is None or not info.node_names:
        text = f"job {job_id} has no nodes now: steps start inside a running job"
        raise CommandFailed(exits.FAILED, text)
    own = Place("", job_id, expand(info.node_names))
    return [own, *(Place(one.cell, one.job_id, expand(one.node_list)) for one in info.guests)]


def _size(
    given: Words, program: PartProgram, places: Sequence[Place], environ: Mapping[str, str]
) -> tuple[int, int]:
    """Nodes and tasks of the whole step, from the options, else as many as the job has. Raises OptionError."""
    most = sum(len(place.names) for place in places)
    nodes = program.nodes if given.has("nodes") else most
    if nodes > most:
        text = f"are more than the job's {most} nodes"
        raise OptionError(given.spelling("nodes"), str(nodes), text, "ask for less")
    if given.has("ntasks"):
        return min(nodes, program.tasks), program.tasks
    if given.has("nodes"):
        return nodes, nodes
    own = max(1, whole_number(environ.get("ESLURM_NNODES", "1")))
    return nodes, nodes * max(1, whole_number(environ.get("ESLURM_NTASKS", "1")) // own)


def share_out(places: Sequence[Place], nodes: int, tasks: int) -> None:
    """Lay the tasks out over the first `nodes` nodes, block-wise and as evenly as the controller does."""
    share, more = divmod(tasks, nodes)
    at = 0
    for place in places:
        count = min(len(place.names), nodes - at)
        place.tasks = [share + (at + number < more) for number in range(count)]
        at += count


def _describe(joint: Any, job_id: int, used: Sequence[Place], own: Place) -> None:
    """Say where this cell's part of the step begins, and what the whole one has."""
    before = used[: used.index(own)]
    joint.home_job_id = job_id
    joint.rank_first = sum(sum(place.tasks) for place in before)
    joint.ranks = sum(sum(place.tasks) for place in used)
    joint.node_first = sum(len(place.tasks) for place in before)
    joint.nodes = sum(len(place.tasks) for place in used)
    joint.node_list = ",".join(fold(place.names[: len(place.tasks)]) for place in used)
    tasks = [tasks for place in used for tasks in place.tasks]
    runs = [(count, len(list(run))) for count, run in groupby(tasks)]
    joint.tasks_per_node = ",".join(
        f"{count}(x{times})" if times > 1 else str(count) for count, times in runs
    )


class JointOutput:
    """The output of all parts of a step. Nodes of two cells may have one name, so each cell has a port of its own."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer
        self._selector = selectors.DefaultSelector()
        self._parts: dict[str, StepOutput] = {}
        self._is_open = True

    def add(self, cell: str, part: StepOutput) -> None:
        """Take in the output of a cell's part."""
        self._parts[cell] = part
        self._selector.register(part, selectors.EVENT_READ)

    @property
    def statuses(self) -> Mapping[int, int]:
        """Rank -> exit code, or the negated number of the signal that ended the task."""
        return {rank: status for part in self._parts.values() for rank, status in part.statuses.items()}

    def take_ends(self) -> list[TaskEnd]:
        """The tasks that have ended since the last call."""
        return [end for part in self._parts.values() for end in part.take_ends()]

    @property
    def failure(self) -> Failure | None:
        """The reason why the tasks are to be ended, of an MPI program, once there is one."""
        return next((part.failure for part in self._parts.values() if part.failure is not None), None)

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return sum(part.tasks for part in self._parts.values())

    @property
    def expected(self) -> frozenset[Where]:
        """All sources."""
        return _all({cell: part.expected for cell, part in self._parts.items()})

    @property
    def connected(self) -> frozenset[Where]:
        """The sources that have proved themselves so far."""
        return _all({cell: part.connected for cell, part in self._parts.items()})

    @property
    def finished(self) -> frozenset[Where]:
        """The sources whose tasks have all been reported."""
        return _all({cell: frozenset(part.finished) for cell, part in self._parts.items()})

    @property
    def lost(self) -> frozenset[Where]:
        """The sources that went before."""
        return _all({cell: frozenset(part.lost) for cell, part in self._parts.items()})

    @property
    def is_complete(self) -> bool:
        """Check whether each source has connected, or is gone again."""
        return all(part.is_complete for part in self._parts.values())

    @property
    def takers(self) -> list[Taker]:
        """The nodes that take input."""
        return [taker for part in self._parts.values() for taker in part.takers]

    def watch(self, readable: HasFileno | int) -> None:
        """Let another descriptor interrupt `run_once`; it is not read."""
        self._selector.register(readable, selectors.EVENT_READ)

    def unwatch(self, readable: HasFileno | int) -> None:
        """Undo `watch`."""
        self._selector.unregister(readable)

    def run_once(self, timeout_s: float) -> None:
        """Handle what has arrived, waiting at most `timeout_s` for something."""
        self._selector.select(timeout_s)
        for part in self._parts.values():
            # Also those to which nothing has come: connections that show nothing are dropped.
            part.run_once(0)

    def close(self) -> None:
        """Close everything; supervisors take a closed connection as the order to end their tasks."""
        if not self._is_open:
            return
        self._is_open = False
        self._selector.close()
        for part in self._parts.values():
            part.close()
        self._writer.flush()


def _all(found: Mapping[str, frozenset[tuple[int, str]]]) -> frozenset[Where]:
    return frozenset(((cell, step), name) for cell, sources in found.items() for step, name in sources)


class JointLaunch:
    """The launches of all parts of a step as one."""

    def __init__(self, parts: Sequence[Launch]) -> None:
        self._parts = tuple(parts)
        self.heard = tuple([readable for part in parts for readable in part.heard])

    @property
    def state(self) -> str:
        """FAILED when one is, LAUNCHING until all have started."""
        states = [part.state for part in self._parts]
        return next((state for state in ("FAILED", "LAUNCHING", "RUNNING") if state in states), states[0])

    @property
    def failed(self) -> list[tuple[str, str]]:
        """(node, reason) of nodes that have not started their tasks."""
        return [problem for part in self._parts for problem in part.failed]

    @property
    def error(self) -> str:
        """The first reason why nothing is known of a launch; empty: all are known."""
        return next((part.error for part in self._parts if part.error), "")

    def settle(self) -> None:
        """Wait for the controllers' answers."""
        for part in self._parts:
            part.settle()

    def close(self) -> None:
        """Wait a moment for the threads."""
        for part in self._parts:
            part.close()
