"""Attach to a running step: its own command, which has the output of all tasks, passes on what comes from now on (ADR 47).

Invariant: nothing is shown, or believed, that is not under the secret which the controller gave.
"""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from escli import exits
from escli.failures import CommandFailed
from escli.user.step_following import merged
from escli.user.step_output import LineWriter
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.jobrefs import NO_PART, NO_TASK, parse_job_refs
from eslurm.core.model.step_attach import AttachFrame, AttachHello, AttachWelcome
from eslurm.ports.step_checks import parse_endpoint
from eslurm.security.step_stream import ATTACHED, BadStream, StreamSealer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from escli.api import Api

_CONNECT_S = 10.0
_READ_BYTES = 256 * 1024
_STEP_DIGITS_MAX = 9
_SCRIPT = "batch"

_encode = msgspec.msgpack.Encoder().encode
_decode_welcome = msgspec.msgpack.Decoder(AttachWelcome).decode
_decode_frame = msgspec.msgpack.Decoder(AttachFrame).decode


class Choice(NamedTuple):
    """The output that is shown, and whether its lines have labels."""

    hello: AttachHello
    label: bool = False


class Texts(NamedTuple):
    """The lines about tasks and the step: `failed` gets a rank and its exit code or negated signal."""

    failed: Callable[[int, int], None]
    problem: Callable[[str], None]


def find_step(api: Api, text: str, option: str = "JOB.STEP") -> tuple[int, int]:
    """(job id, number) of the step that a word names: 17.0, or 17_4.0. Raises OptionError, CommandFailed."""
    job_text, dot, step_text = text.rpartition(".")
    if not dot:
        raise OptionError(option, text, "names no step", "use JOB.STEP, e.g. 17.0")
    (job_id, task, part, cell), *more = parse_job_refs(job_text, option)
    if more or part != NO_PART or cell:
        raise OptionError(
            option, text, "does not name one step", "use e.g. 17.0 or 17_4.0, at the job's own cell"
        )
    if task != NO_TASK or step_text == _SCRIPT:
        job = _find_job(api, job_id, task)
        if step_text == _SCRIPT:
            from eslurm.compat.slurm.job_fields import files_of

            raise CommandFailed(
                exits.FAILED,
                f"the output of the script of job {job_text} is in a file: tail -f {files_of(job)[0]}",
            )
        job_id = job.job_id
    number = whole_number(step_text, _STEP_DIGITS_MAX)
    if number < 0:
        raise OptionError(option, text, "does not name a step by its number", "use e.g. 17.0")
    return job_id, number


def _find_job(api: Api, job_id: int, task: int) -> Any:
    from eslurm.v1 import controller_pb2 as pb

    ref = pb.JobRef(job_id=job_id, task=None if task == NO_TASK else task)
    jobs = api.call("Jobs", pb.JobsRequest(jobs=[ref])).jobs
    if not jobs:
        raise CommandFailed(exits.FAILED, f"job {job_id} does not exist or has ended long ago: see esacct")
    return jobs[0]


def find_attachment(api: Api, job_id: int, number: int) -> Any:
    """The controller's answer: where to attach to the step, and its layout. Raises CommandFailed."""
    from eslurm.v1 import controller_pb2 as pb

    return api.call("AttachStep", pb.AttachStepRequest(job_id=job_id, step=number))


def attach(found: Any, label: str, choice: Choice, texts: Texts) -> int:
    """Show the output until the step's end; returns its exit code. `label` names it. Raises CommandFailed."""
    writer = LineWriter(sys.stdout.buffer, sys.stderr.buffer)
    statuses: dict[int, int] = {}
    with _connect(found.endpoint, label) as connection:
        bodies = _bodies(connection, found.secret, choice.hello, label)
        welcome = _decode_welcome(next(bodies))
        if welcome.refused:
            raise CommandFailed(exits.FAILED, f"step {label}: {welcome.refused}")
        if choice.label:
            writer.label_width = len(str(welcome.tasks - 1))
        statuses.update(welcome.ended)
        end: str | None = None
        while end is None:
            frame = _decode_frame(next(bodies))
            end = frame.end
            if frame.exit_status is not None:
                statuses[frame.task] = frame.exit_status
                if frame.exit_status:
                    texts.failed(frame.task, frame.exit_status)
            elif frame.eof:
                writer.end(frame.task, frame.stream)
            else:
                writer.write(frame.task, frame.stream, frame.data)
    writer.flush()
    if end or len(statuses) < welcome.tasks:
        texts.problem(f"step {label}: {'cut off: ' + end if end else 'its command ended before its tasks'}")
        return max(exits.FAILED, merged(statuses)[0])
    return merged(statuses)[0]


def _connect(endpoint: str, label: str) -> socket.socket:
    host, port = parse_endpoint(endpoint)
    try:
        connection = socket.create_connection((host, port), _CONNECT_S)
    except OSError as error:
        raise CommandFailed(
            exits.UNREACHABLE,
            f"step {label}: its command listens at {endpoint}, which does not answer here ({error.strerror or error}): "
            "it has just ended, or run this on its host",
        ) from None
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connection


def _bodies(connection: socket.socket, secret: bytes, hello: AttachHello, label: str) -> Iterator[bytes]:
    """The messages of the step's command, for which the connection waits without end once the first one is there."""
    lost = CommandFailed(
        exits.FAILED,
        f"step {label}: the connection to its command is lost: it was killed, or ended while this one did not read",
    )
    sealer = StreamSealer(secret, purpose=ATTACHED)
    stream = sealer.back()
    try:
        connection.sendall(sealer.opening + sealer.seal(_encode(hello)))
        while data := connection.recv(_READ_BYTES):
            yield from stream.feed(data)
            if stream.is_proven:
                connection.settimeout(None)
    except TimeoutError:
        raise CommandFailed(
            exits.FAILED,
            f"step {label}: its command does not answer: it stands still, or is of a release without esattach",
        ) from None
    except (OSError, BadStream):
        raise lost from None
    if not stream.is_proven:
        raise CommandFailed(
            exits.FAILED,
            f"step {label}: its command refuses: it is another one, or of a release without esattach",
        )
    raise lost


def layout_text(found: Any, indent: str = "  ") -> str:
    """The nodes of the step and the ranks on each."""
    from eslurm.core.model.hostlist import fold

    names = list(dict.fromkeys(node.name for node in found.layout))
    tasks = sum(node.tasks for node in found.layout)
    lines = ["Job step layout:", f"{indent}{tasks} tasks, {len(names)} nodes ({fold(names)})", ""]
    ranks: dict[str, list[int]] = {name: [] for name in names}
    first = 0
    for node in found.layout:
        ranks[node.name] += range(first, first + node.tasks)
        first += node.tasks
    for at, (name, own) in enumerate(ranks.items()):
        lines.append(f"{indent}Node {at} ({name}), {len(own)} task(s): {' '.join(map(str, own))}")
    return "\n".join(lines)
