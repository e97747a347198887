"""Calls about jobs of other cells of the federation: by the cell that a job is named with, the one that leased its id, or
the owner that its record names.

A job of this cell comes first, whatever its id: ids of before the federation may be those of several cells. A call that came
from another cell is not passed on. In a cluster that is no member, a job that is named with a cell is refused.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from esctld.serve.arrivals import Cells
from eslurm.api.methods import Method
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.request_limits import NAME_CHARS_MAX
from eslurm.core.state.view import View
from eslurm.ports.api import Answered, ApiError, ApiService, Caller, Status
from eslurm.ports.link import CELL
from eslurm.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from eslurm.core.federation.view import FederationView

CHANGES: Final = frozenset({"Cancel", "Hold", "Requeue", "Suspend"})
"""Calls that change several jobs and tell the problem of each."""
READS: Final = {"Jobs": "jobs", "WaitJobs": "jobs", "Accounting": "attempts", "Steps": "steps"}
"""Calls that read of several jobs, and the field of their answers that has an entry for each."""
STEPS: Final = frozenset({"CreateStep", "WaitStep", "FinishStep"})
"""Calls about a step on nodes that another cell holds for a job of this one."""
ABOUT_ONE: Final = frozenset(
    {
        "UpdateJob",
        "Why",
        "FinishPart",
        "MovePack",
        "ExtendJob",
        "ResizeJob",
        "JobScript",
        "TopJob",
        "StepUsage",
    }
)
PROBLEMS_MAX: Final = 1_000
COUNT_MAX: Final = 2**32 - 1
NAMED_MAX: Final = 8
"""Cells that a text names."""

PassOn = Callable[[str, Method[Any, Any], bytes, Caller], Awaitable[Answered]]
"""Makes a call at the leader of another cell, for this caller."""
CheckEndpoint = Callable[[pb.CreateStepRequest, int, Caller], Awaitable[None]]
"""Checks that the output of a step goes to a host of the job with this id. Raises `Refused`."""


async def _no_steps(_request: pb.CreateStepRequest, _job_id: int, _caller: Caller) -> None:
    raise Refused(RefusalCode.DENIED, "steps do not pass to other cells here")


class _CallThere(NamedTuple):
    """A call about some jobs of another cell."""

    cell: str
    method: Any
    request: Any
    named: Sequence[pb.JobRef]
    caller: Caller


class JobsOfCells:
    """An `ApiService` over that of this cell. `cells` is None in a cluster that is no member of a federation.

    Without `pass_on`, jobs of other cells are refused with the place to ask.
    """

    def __init__(
        self,
        service: ApiService,
        view: Callable[[], View],
        cells: Cells | None,
        pass_on: PassOn | None = None,
        check_endpoint: CheckEndpoint | None = None,
    ) -> None:
        self._service = service
        self._view = view
        self._cells = cells
        self._pass_on = pass_on
        self._check_endpoint = check_endpoint if check_endpoint is not None else _no_steps

    async def call(self, method: Any, request: Any, caller: Caller) -> Any:
        """See `ports.api.ApiService`."""
        name = method.name
        if name in CHANGES or name in READS:
            refs: Sequence[pb.JobRef] = request.jobs
        elif name in ABOUT_ONE:
            refs = (request.job,)
        elif name in STEPS and request.cell and (self._cells is None or request.cell != self._cells.cell):
            return await self._step_there(method, request, caller)
        else:
            return await self._service.call(method, request, caller)
        if self._cells is not None:
            return await self._sorted(self._cells, method, request, refs, caller)
        for ref in refs:
            if ref.cell:
                raise Refused(
                    RefusalCode.INVALID,
                    f"job {_label(ref)}: this cluster is no member of a federation: name the job {ref.job_id}",
                )
        return await self._service.call(method, request, caller)

    async def _step_there(self, method: Any, request: Any, caller: Caller) -> bytes:
        """Pass on a call about a step of a job that spans cells. Raises `Refused` for any other job."""
        cell = request.cell
        home_id = request.joint.home_job_id if method.name == "CreateStep" else request.home_job_id
        job = self._view().jobs.get(home_id)
        guests = job.guests.guests if job is not None and job.guests is not None else ()
        is_guest = any((guest.cell, guest.job_id) == (cell, request.job_id) for guest in guests)
        is_own = job is not None and job.spec.user.uid == caller.principal.uid
        if self._pass_on is None or caller.via == CELL or job is None or not (is_guest and is_own):
            raise Refused(
                RefusalCode.DENIED,
                f"{method.name}: job {request.job_id} of cell {cell[:NAME_CHARS_MAX]} holds no nodes for a job of "
                f"{caller.principal.name} here: run steps at the cell that runs the job",
            )
        if method.name == "CreateStep":
            # The other cell cannot know the hosts of this one.
            await self._check_endpoint(request, home_id, caller)
        request.cell = ""
        answered = await self._pass_on(cell, method, request.SerializeToString(), caller)
        if answered.status is not Status.OK:
            raise ApiError(answered.status, f"cell {cell}: {answered.text}", answered.retry_after_s)
        return answered.reply

    async def _sorted(
        self, cells: Cells, method: Any, request: Any, refs: Sequence[pb.JobRef], caller: Caller
    ) -> Any:
        own: list[pb.JobRef] = []
        elsewhere: dict[str, list[pb.JobRef]] = {}
        view = cells.view() if refs else None
        for ref in refs:
            cell = self._cell_of(cells, ref, method, request, caller)
            if view is not None and cell in ("", view.cell):
                ref.cell = ""
                own.append(ref)
            else:
                elsewhere.setdefault(cell, []).append(ref)
        if view is None or not elsewhere:
            return await self._here(cells, method, request, caller)
        if method.name in ABOUT_ONE:
            ((cell, named),) = elsewhere.items()
            return await self._one_there(cells, _CallThere(cell, method, request, named, caller))
        if method.name in CHANGES:
            return await self._changed(cells, method, request, own, elsewhere, caller)
        if method.name == "Accounting":
            # The oldest jobs of this cell may have ids that another one has leased.
            own = [ref for ref in refs if ref.cell in ("", view.cell)]
        asked = [
            self._known_there(cells, _CallThere(cell, method, request, named, caller))
            for cell, named in elsewhere.items()
        ]
        if own:
            asked.append(self._encoded(self._here(cells, method, _only(request, own, ""), caller)))
        return await self._merged(method, own, asked)

    def _cell_of(self, cells: Cells, ref: pb.JobRef, method: Any, request: Any, caller: Caller) -> str:
        """The cell to ask about a job: empty, or this cell's name, for this one."""
        job = self._view().find_named(ref.job_id)
        if job is None:
            return ref.cell or cells.cell_of(ref.job_id)
        if ref.cell not in ("", cells.cell):
            return "" if ref.cell == job.home else ref.cell
        is_there = job.state is JobState.TRANSFERRED and caller.via != CELL
        if job.transfer is not None and is_there and _goes_to_owner(method.name, request):
            return job.transfer.cell
        return ref.cell

    def _is_there(self, job_id: int, cell: str) -> bool:
        """Check whether this cell's record says that another one owns the job."""
        job = self._view().find_named(job_id)
        if job is None or job.transfer is None or job.state is not JobState.TRANSFERRED:
            return False
        return job.transfer.cell == cell

    async def _here(self, cells: Cells, method: Any, request: Any, caller: Caller) -> Any:
        """This cell's answer. What it does not know may be a job of another cell, from before the federation."""
        try:
            reply = await self._service.call(method, request, caller)
        except Refused as refused:
            if refused.code is not RefusalCode.NOT_FOUND or method.name not in ABOUT_ONE:
                raise
            raise Refused(refused.code, refused.text + _older(cells, request.job.job_id)) from None
        if method.name in CHANGES:
            for problem in reply.problems:
                digits = "".join(itertools.takewhile(str.isdigit, problem.what))
                if problem.code == RefusalCode.NOT_FOUND.value and digits:
                    problem.text += _older(cells, int(digits))
        return reply

    async def _there(self, view: FederationView, call: _CallThere) -> bytes:
        """The encoded answer of another cell about these jobs. Raises `Refused` or `ApiError`."""
        cell, method, request, named, caller = call
        is_known = any(one.name == cell for one in view.cells)
        if self._pass_on is None or caller.via == CELL or not is_known:
            raise Refused(RefusalCode.NOT_FOUND, _elsewhere(view, named[0], cell))
        if method.name in ABOUT_ONE:
            request.job.cell = cell
        else:
            request = _only(request, named, cell)
        answered = await self._pass_on(cell, method, request.SerializeToString(), caller)
        if answered.status is not Status.OK:
            raise ApiError(answered.status, f"cell {cell}: {answered.text}", answered.retry_after_s)
        try:
            method.reply.FromString(answered.reply)
        except DecodeError:
            raise ApiError(
                Status.INTERNAL, f"cell {cell}: its answer to {method.name} cannot be read"
            ) from None
        return answered.reply

    async def _one_there(self, cells: Cells, call: _CallThere) -> Any:
        """Another cell's answer about one job; while the owner of a job of this cell is silent, what its record says."""
        own = type(call.request)()
        own.CopyFrom(call.request)
        try:
            return await self._there(cells.view(), call)
        except ApiError:
            if call.method.name != "Why" or not self._is_there(call.named[0].job_id, call.cell):
                raise
            own.job.cell = ""
            return await self._here(cells, call.method, own, call.caller)

    async def _known_there(self, cells: Cells, call: _CallThere) -> bytes:
        """Another cell's answer about some jobs; while it is silent, this cell's records of its own ones among them."""
        try:
            return await self._read_there(cells, call)
        except ApiError:
            own = [ref for ref in call.named if self._is_there(ref.job_id, call.cell)]
            if len(own) < len(call.named):
                raise
            part = _only(call.request, own, "")
            return await self._encoded(self._here(cells, call.method, part, call.caller))

    async def _read_there(self, cells: Cells, call: _CallThere) -> bytes:
        """The answer of another cell without entries about jobs of others: a cell speaks for its own jobs.

        Entries about jobs that this cell has given it name it as their owner.
        """
        cell, method = call.cell, call.method
        reply = method.reply.FromString(await self._there(cells.view(), call))
        entries = getattr(reply, READS[method.name])
        kept = [
            entry
            for entry in entries
            if cells.cell_of(entry.job_id) in ("", cell) or self._is_there(entry.job_id, cell)
        ]
        if len(kept) < len(entries):
            del entries[:]
            entries.extend(kept)
        if method.name == "Jobs":
            for entry in entries:
                if self._is_there(entry.job_id, cell):
                    entry.owner = cell
        return bytes(reply.SerializeToString())

    async def _changed(
        self,
        cells: Cells,
        method: Any,
        request: Any,
        own: Sequence[pb.JobRef],
        elsewhere: Mapping[str, Sequence[pb.JobRef]],
        caller: Caller,
    ) -> pb.ChangeReply:
        """Change the jobs in all cells and sum up the answers. A silent cell is a problem of each of its jobs."""
        asked = [
            self._try_change(cells.view(), _CallThere(cell, method, request, named, caller))
            for cell, named in elsewhere.items()
        ]
        there = asyncio.gather(*asked)
        try:
            reply = pb.ChangeReply(revision=self._view().revision)
            if own:
                reply = await self._here(cells, method, _only(request, own, ""), caller)
            answers = await there
        finally:
            there.cancel()
        for answer in answers:
            reply.count = min(reply.count + answer.count, COUNT_MAX)
            reply.problems.extend(answer.problems)
            reply.notes.extend(answer.notes)
        del reply.problems[PROBLEMS_MAX:]
        return reply

    async def _try_change(self, view: FederationView, call: _CallThere) -> pb.ChangeReply:
        cell = call.cell
        try:
            reply = pb.ChangeReply.FromString(await self._there(view, call))
        except (Refused, ApiError, DecodeError) as error:
            code = error.code.value if isinstance(error, Refused) else "failed"
            text = str(error) or f"cell {cell} gave no answer that can be read"
            return pb.ChangeReply(
                problems=[
                    pb.Problem(
                        what=_label(ref, cell),
                        code=code,
                        text=_elsewhere(view, ref, cell) if code == "not_found" else text,
                    )
                    for ref in call.named[:PROBLEMS_MAX]
                ]
            )
        for problem in reply.problems:
            problem.what += f"@{cell}" if problem.what else ""
        return reply

    @staticmethod
    async def _encoded(answer: Awaitable[Any]) -> bytes:
        reply = await answer
        return reply if isinstance(reply, bytes) else bytes(reply.SerializeToString())

    async def _merged(
        self, method: Any, own: Sequence[pb.JobRef], asked: Sequence[Coroutine[Any, Any, bytes]]
    ) -> bytes:
        """One reply: entries of all, and this cell's revision and time, for its encoding comes last."""
        found = await asyncio.gather(*asked, return_exceptions=True)
        answers: list[bytes] = []
        for one in found:
            if isinstance(one, BaseException):
                raise one
            answers.append(one)
        if method.name != "Accounting":
            if not own and method.name != "Steps":
                answers.append(pb.JobsReply(revision=self._view().revision).SerializeToString())
            return b"".join(answers)
        # A cell that knows nothing of these jobs has no further page either.
        answers = [answer for answer in answers if pb.AccountingReply.FromString(answer).attempts]
        if len(answers) > 1 and any(pb.AccountingReply.FromString(answer).next_page for answer in answers):
            raise Refused(
                RefusalCode.INVALID,
                "these jobs of several cells have too many runs for one answer: ask for those of one cell at a time",
            )
        return b"".join(answers)


def _goes_to_owner(name: str, request: Any) -> bool:
    """Check whether a call about a job that another cell owns is for that cell.

    A demand to cancel stays in the record, from where it reaches the owner however long that takes; so does a wait for the
    end, which the owner tells.
    """
    if name == "Cancel":
        return bool(request.signal)
    return name in CHANGES or name in ABOUT_ONE or name == "Jobs"


def _only(request: Any, refs: Sequence[pb.JobRef], cell: str) -> Any:
    """The request about these jobs alone; another cell has other revisions."""
    part = type(request)()
    part.CopyFrom(request)
    del part.jobs[:]
    for ref in refs:
        one = part.jobs.add()
        one.CopyFrom(ref)
        one.cell = cell
    if cell and isinstance(part, pb.JobsRequest):
        part.after_revision = 0
    return part


def _label(ref: pb.JobRef, cell: str = "") -> str:
    task = f"_{ref.task}" if ref.HasField("task") else ""
    part = f"+{ref.part}" if ref.HasField("part") else ""
    name = ref.cell or cell
    return f"{ref.job_id}{task}{part}" + (f"@{name[:63]}" if name else "")


def _elsewhere(view: FederationView, ref: pb.JobRef, cell: str) -> str:
    """The refusal of a job of another cell that cannot be asked from here."""
    names = [one.name for one in view.cells]
    if cell not in names:
        return f"job {_label(ref, cell)}: there is no such cell: {_listed(names)}"
    there = next(one for one in view.cells if one.name == cell)
    place = f"its controller is at {there.alive.endpoint}" if there.alive is not None else "it is silent now"
    return f"job {ref.job_id} belongs to cell {cell}: ask there ({place})"


def _older(cells: Cells, job_id: int) -> str:
    """The way out for an id that no cell has leased."""
    view = cells.view()
    others = [one.name for one in view.cells if one.name != view.cell and one.state.value != "left"]
    if not others or cells.cell_of(job_id):
        return ""
    name = f"{job_id}@{others[0]}"
    return (
        f"; a job of another cell from before the federation is named with it, as {name} ({_listed(others)})"
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return "cells are " + ", ".join(names[:NAMED_MAX]) + more
