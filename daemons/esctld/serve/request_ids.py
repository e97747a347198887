"""Request ids bound to their call: only the same user's same call finds an answer again.

Clients draw the ids, which are no secrets: they stand in audit lines and in clients' own logs. Invariant: the id alone
never leads to an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from eslurm.core.model.job import Job
from eslurm.core.model.messages import (
    Changed,
    CreateStep,
    ExtendJob,
    ExtensionTaken,
    FinishPart,
    Message,
    MovePack,
    MoveTaken,
    PartGivenBack,
    Resized,
    ResizeJob,
    StepCreated,
    StoredAnswer,
    SubmitJobs,
    Submitted,
)
from eslurm.ports.api import Caller
from eslurm.transport.framing import REQUEST_ID_BYTES

_ANSWERS: dict[type[Message], type[StoredAnswer]] = {
    SubmitJobs: Submitted,
    CreateStep: StepCreated,
    FinishPart: PartGivenBack,
    MovePack: MoveTaken,
    ExtendJob: ExtensionTaken,
    ResizeJob: Resized,
}
"""Messages that `Changed` does not answer."""


def bound_id(caller: Caller, what: str) -> bytes:
    """The key of the answer to this caller's call; empty without a request id. `what` names the kind of call."""
    if not caller.request_id:
        return b""
    call = f"{caller.principal.uid}:{what}:".encode()
    return blake2b(call + caller.request_id, digest_size=REQUEST_ID_BYTES).digest()


def kind_of(message: Message) -> str:
    """The kind of call that makes this message. A delivery of another cell is none that its job's user can make."""
    kind = type(message).__name__
    if isinstance(message, SubmitJobs) and message.arrival is not None:
        return f"{kind}@{message.arrival.home}"
    if isinstance(message, SubmitJobs) and message.guest_of is not None:
        return f"{kind}@guest@{message.guest_of.home}"
    return kind


def is_own(
    answer: StoredAnswer, message: Message, caller: Caller, find_job: Callable[[int], Job | None]
) -> bool:
    """Check whether an answer that an earlier build stored under the bare id is that of the caller's own call.

    Bare ids of submissions were shown as their jobs' trace: such an answer is for the jobs' owner.
    """
    expected = _ANSWERS.get(type(message), Changed)
    if not isinstance(answer, expected):
        return False
    jobs = map(find_job, answer.job_ids if isinstance(answer, Submitted) else ())
    return all(job is None or job.spec.user.uid == caller.principal.uid for job in jobs)
