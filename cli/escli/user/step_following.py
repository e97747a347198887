"""A step until its end: its output is shown, and every node ends, is lost, or never comes."""

from __future__ import annotations

import signal
import time
from typing import Protocol

from escli import exits
from escli.errors import Interrupted
from escli.interrupts import Interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set
    from typing import TypeAlias

    from _typeshed import HasFileno

    from escli.user.pmi.program import Failure
    from escli.user.step_ends import TaskEnd, TaskEnds
    from escli.user.step_input import InputPump

    Where: TypeAlias = tuple[object, str]

_POLL_S = 1.0
_AGAIN_S = 1.0
_CONNECT_GRACE_S = 30.0
_ENDING = (signal.SIGINT, signal.SIGTERM)


class Output(Protocol):
    """The output of a step, or of all parts of one. A source is a key with the name of its node behind it."""

    @property
    def statuses(self) -> Mapping[int, int]:
        """Rank -> exit code, or the negated number of the signal that ended the task."""

    def take_ends(self) -> Sequence[TaskEnd]:
        """The tasks that have ended since the last call."""

    @property
    def failure(self) -> Failure | None:
        """The reason why the tasks are to be ended, of an MPI program, once there is one."""

    @property
    def tasks(self) -> int:
        """The number of tasks."""

    @property
    def expected(self) -> Set[Where]:
        """All sources."""

    @property
    def connected(self) -> Set[Where]:
        """The sources that have proved themselves so far."""

    @property
    def is_complete(self) -> bool:
        """Check whether each source has connected, or is gone again."""

    @property
    def finished(self) -> Set[Where]:
        """The sources whose tasks have all been reported."""

    @property
    def lost(self) -> Set[Where]:
        """The sources that went before."""

    def watch(self, readable: HasFileno | int) -> None:
        """Let another descriptor interrupt `run_once`; it is not read."""

    def unwatch(self, readable: HasFileno | int) -> None:
        """Undo `watch`."""

    def run_once(self, timeout_s: float) -> None:
        """Handle what has arrived, waiting at most `timeout_s` for something."""

    def close(self) -> None:
        """Close everything; supervisors take a closed connection as the order to end their tasks."""


class Launching(Protocol):
    """The launch of a step, or of all parts of one."""

    @property
    def heard(self) -> Sequence[HasFileno]:
        """Readable when an answer has come."""

    @property
    def state(self) -> str:
        """LAUNCHING, RUNNING, FAILED or ENDED."""

    @property
    def failed(self) -> Sequence[tuple[str, str]]:
        """(node, reason) of nodes that have not started their tasks."""

    @property
    def error(self) -> str:
        """The reason why nothing is known of the launch; empty: it is."""

    def settle(self) -> None:
        """Wait for the controller's answer."""


def interrupts_of_step() -> Interrupts:
    """Enter it before the launch: from then on a signal ends the step, and its end is recorded."""
    return Interrupts(_ENDING)


def follow(
    output: Output, launch: Launching, label: str, interrupts: Interrupts, pump: InputPump, ends: TaskEnds
) -> tuple[int, int]:
    """Show output until the step has ended; returns its exit code and the signal that ended it. `label` names it."""

    def is_to_end() -> bool:
        requests.check()
        return ends.look(label, output.take_ends(), output.tasks, time.monotonic())

    def tell_states() -> bool:
        if ends.quits_on_interrupt or not output.is_complete:
            return False
        ends.interrupted(label, output.tasks)
        return True

    requests = _Requests(interrupts, tell_states)
    # Acted on where nothing is half done: an accepted connection that nothing knows of would stay open.
    for heard in launch.heard:
        output.watch(heard)
    output.watch(interrupts)
    try:
        problems = _until_ended(output, launch, pump, is_to_end)
        code, number = merged(output.statuses)
        if not problems and len(output.statuses) < output.tasks and not code:
            # No task failed, and the last ones are ended.
            code, number = 128 + signal.SIGKILL, int(signal.SIGKILL)
        if problems:
            own = output.failure.exit_code if output.failure is not None else 0
            code = max(code, exits.FAILED, own)
    except Interrupted:
        number = interrupts.last
        problems = [f"ended by {signal.Signals(number).name}; its tasks are ended too"]
        code = 128 + number
    pump.close()
    output.unwatch(interrupts)
    output.close()
    for problem in problems:
        ends.problem(label, problem)
    if not problems:
        ends.ended(output.statuses)
    return code, number


class _Requests:
    """Signals to the command. One Ctrl-C while tasks run asks for their states; two within a second end the step."""

    def __init__(self, interrupts: Interrupts, tell_states: Callable[[], bool]) -> None:
        """`tell_states` says whether it has told them, and the step goes on."""
        self._interrupts = interrupts
        self._tell_states = tell_states
        self._count = interrupts.count
        self._asked_s = -_AGAIN_S

    def check(self) -> None:
        """Raise `Interrupted` if a signal ends the step."""
        try:
            self._interrupts.check()
        except Interrupted:
            before, self._count = self._count, self._interrupts.count
            asked_s, self._asked_s = self._asked_s, time.monotonic()
            is_first = self._count == before + 1 and self._asked_s - asked_s >= _AGAIN_S
            if not is_first or self._interrupts.last != signal.SIGINT or not self._tell_states():
                raise
            self._interrupts.forget()


def _until_ended(
    output: Output, launch: Launching, pump: InputPump, is_to_end: Callable[[], bool]
) -> list[str]:
    """Show output until each node has ended, is lost, or never came; returns the problems, one text each.

    It stops without a problem when `is_to_end`: the tasks that have ended are reason enough to end the others.
    """
    sources = output.expected
    heard_s = 0.0
    while not output.finished | output.lost >= sources:
        if is_to_end():
            return []
        if output.failure is not None:
            return [output.failure.text]
        if launch.state == "FAILED":
            return _not_started(launch)
        if launch.error and not output.connected:
            return [launch.error]
        if not heard_s and (launch.state != "LAUNCHING" or launch.error):
            heard_s = time.monotonic()
            for heard in launch.heard:
                output.unwatch(heard)
        missing = sources - output.connected
        if heard_s and missing and time.monotonic() - heard_s > _CONNECT_GRACE_S:
            return [f"node {name} never connected" for name in _names(missing)] + _lost(output, launch)
        output.run_once(0 if pump.advance() else _POLL_S)
    is_to_end()
    return [output.failure.text] if output.failure is not None else _lost(output, launch)


def _names(sources: Iterable[Where]) -> list[str]:
    return sorted({name for _, name in sources})


def _not_started(launch: Launching) -> list[str]:
    failed = [f"node {what} did not start its tasks: {text}" for what, text in launch.failed]
    return failed or ["its tasks could not be started"]


def _lost(output: Output, launch: Launching) -> list[str]:
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
