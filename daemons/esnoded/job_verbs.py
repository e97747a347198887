"""The verbs of the job's socket, each as calls to the controller in the name of the user that asks.

Invariant: a verb is nothing that the user could not do by a command. The agent vouches for the uid alone; that a job runs
here and is the user's only bounds which jobs may be named.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

from eslurm.api import methods
from eslurm.api.methods import Method
from eslurm.compat.dependencies import dependency_fields, parse_dependencies
from eslurm.compat.errors import OptionError
from eslurm.compat.hostlist import expand
from eslurm.core.model.job import Principal
from eslurm.core.model.job_states import JobState
from eslurm.core.model.request_limits import COUNT_MAX, NODES_NAMED_MAX, TIME_LIMIT_MAX_S
from eslurm.core.model.units import SECOND_US
from eslurm.ports.api import Answerer, Caller, Status
from eslurm.v1 import controller_pb2 as pb
from esnoded.job_cores import JobCores
from esnoded.job_lines import Line, LineError, number_of, value_of

PROTOCOL: Final = 1
PATIENCE_S: Final = 30.0
"""For one call, while the controller is being replaced, too."""
PLANNER_PATIENCE_S: Final = 75.0
"""For a call that waits for the planner, up to 60 s."""
AGAIN_S: Final = 0.5
LAUNCH_LOOKS: Final = 50
LAUNCH_LOOK_S: Final = 0.2
EPOCH_MAX_S: Final = 2**33
ID_MAX: Final = 2**31 - 1
_CODES: Final = {
    Status.INVALID_ARGUMENT: "INVALID",
    Status.OUT_OF_RANGE: "INVALID",
    Status.UNIMPLEMENTED: "INVALID",
    Status.PERMISSION_DENIED: "DENIED",
    Status.UNAUTHENTICATED: "DENIED",
    Status.NOT_FOUND: "NOT_FOUND",
    Status.FAILED_PRECONDITION: "CONFLICT",
    Status.ALREADY_EXISTS: "CONFLICT",
    Status.ABORTED: "CONFLICT",
    Status.RESOURCE_EXHAUSTED: "EXHAUSTED",
    Status.UNAVAILABLE: "UNAVAILABLE",
    Status.DEADLINE_EXCEEDED: "TIMEOUT",
}
_PROBLEMS: Final = {
    "invalid": "INVALID",
    "infeasible": "CONFLICT",
    "not_found": "NOT_FOUND",
    "denied": "DENIED",
    "conflict": "CONFLICT",
    "exhausted": "EXHAUSTED",
}

Pairs = list[tuple[str, object]]


class Verbs:
    """Answers requests of one user: `uid` and `gid` are the kernel's word. `jobs` are the user's jobs that run here."""

    def __init__(
        self,
        answerer: Answerer,
        uid: int,
        gid: int,
        jobs: Collection[int],
        cores: JobCores | None = None,
    ) -> None:
        self._answerer = answerer
        self._cores = cores
        self._who = Principal(str(uid), uid, gid)
        self._jobs = jobs

    async def answer(self, line: Line) -> Pairs:
        """The answer's pairs. Raises `LineError`."""
        found = _VERBS.get(line.verb)
        if found is None:
            raise LineError("INVALID", f"{line.verb} is unknown: use {', '.join(_VERBS)}")
        verb, keys, flags = found
        for word in (*line.values, *line.flags):
            if word not in (keys if word in line.values else flags):
                takes = ", ".join((*[f"{key}=" for key in keys], *flags)) or "nothing"
                raise LineError("INVALID", f"{line.verb} takes {takes}, not {word}")
        return await verb(self, line)

    # ---- verbs ----

    async def hello(self, _line: Line) -> Pairs:
        """The protocol's number and the jobs that may be named."""
        return [("protocol", PROTOCOL), ("jobs", ",".join(map(str, sorted(self._jobs))))]

    async def show(self, line: Line) -> Pairs:
        """The job as the controller knows it."""
        info = await self._info(self._job(line))
        pairs: Pairs = [
            ("job", info.job_id),
            ("name", info.name),
            ("state", info.state),
            ("started-us", info.started_us),
            ("time-limit-s", info.time_limit_s),
            ("nodes", info.nodes),
            ("node-names", info.node_names),
            ("cpus", info.cpus),
            ("memory-mib", info.memory_mib),
            ("dependency", info.dependencies),
        ]
        if info.pack_id:
            pairs += [
                ("pack", info.pack_id),
                ("pack-index", info.pack_index),
                ("pack-size", info.pack_size),
                ("delay-s", info.delay_s),
            ]
        pairs.append(("parts", max(1, len(info.parts))))
        for part in info.parts:
            pairs += [
                (f"part-{part.part}-nodes", part.nodes),
                (f"part-{part.part}-node-names", part.node_names),
                (f"part-{part.part}-cpus", part.cpus),
                (f"part-{part.part}-given-back-us", part.ended_us),
            ]
        return pairs

    async def set_dependency(self, line: Line) -> Pairs:
        """Let another job of the user wait for something else."""
        if not self._jobs:
            raise LineError("NOT_FOUND", "no job of this user runs here")
        job_id, text = number_of(line, "job", ID_MAX), value_of(line, "on")
        request = pb.UpdateJobRequest(job=pb.JobRef(job_id=job_id), dry_run="dry-run" in line.flags)
        try:
            conditions, request.dependencies.any = parse_dependencies(text, "on") if text else ((), False)
        except OptionError as error:
            raise LineError("INVALID", str(error)) from None
        request.dependencies.SetInParent()
        for condition in conditions:
            request.dependencies.all.add(**dependency_fields(condition))
        before = await self._info(job_id)
        await self._change(request)
        after = text if request.dry_run else (await self._info(job_id)).dependencies
        return [("job", job_id), ("before", before.dependencies), ("after", after)]

    async def extend(self, line: Line) -> Pairs:
        """Give the job another time limit."""
        if len(line.values.keys() & {"by", "to"}) != 1:
            raise LineError("INVALID", "extend takes by=SECONDS or to=SECONDS")
        request = pb.ExtendJobRequest(
            job=pb.JobRef(job_id=await self._begun(line)),
            by_s=number_of(line, "by", TIME_LIMIT_MAX_S) if "by" in line.values else 0,
            to_s=number_of(line, "to", TIME_LIMIT_MAX_S) if "to" in line.values else 0,
            dry_run="dry-run" in line.flags,
        )
        reply: pb.ExtendJobReply = await self._call(methods.EXTEND_JOB, request, PLANNER_PATIENCE_S)
        return [
            ("job", reply.job_id),
            ("before-s", reply.before_s),
            ("after-s", reply.after_s),
            ("until-before-us", reply.until_before_us),
            ("until-after-us", reply.until_after_us),
            *_decision(reply.text, is_open=reply.open),
        ]

    async def move_starts(self, line: Line) -> Pairs:
        """Start the other jobs of the pack earlier."""
        if len((line.values.keys() | line.flags) & {"earlier", "to", "asap"}) != 1:
            raise LineError("INVALID", "move-starts takes earlier=SECONDS, to=EPOCH or asap")
        request = pb.MovePackRequest(
            job=pb.JobRef(job_id=await self._begun(line)),
            earlier_s=number_of(line, "earlier", TIME_LIMIT_MAX_S) if "earlier" in line.values else 0,
            to_us=number_of(line, "to", EPOCH_MAX_S) * SECOND_US if "to" in line.values else 0,
            dry_run="dry-run" in line.flags,
        )
        reply: pb.MovePackReply = await self._call(methods.MOVE_PACK, request, PLANNER_PATIENCE_S)
        pairs: Pairs = [
            ("pack", reply.pack_id),
            ("earlier-us", reply.earlier_us),
            ("jobs", ",".join(str(one.job_id) for one in reply.starts)),
        ]
        for one in reply.starts:
            pairs += [
                (f"job-{one.job_id}-before-us", one.before_us),
                (f"job-{one.job_id}-after-us", one.after_us),
            ]
        return [*pairs, *_decision(reply.text, is_open=reply.open)]

    async def finish_part(self, line: Line) -> Pairs:
        """Give a part of the job back."""
        part = number_of(line, "part", ID_MAX, least=0)
        job_id = await self._begun(line)
        request = pb.FinishPartRequest(
            job=pb.JobRef(job_id=job_id, part=part),
            kill="kill" in line.flags,
            dry_run="dry-run" in line.flags,
        )
        reply: pb.FinishPartReply = await self._call(methods.FINISH_PART, request)
        steps = ",".join(map(str, reply.steps))
        return [
            ("job", reply.job_id),
            ("part", reply.part),
            *_amounts(reply),
            ("leaving", reply.leaving),
            ("busy", reply.busy),
            ("steps", steps),
        ]

    async def grow(self, line: Line) -> Pairs:
        """Ask for further nodes for the job."""
        ref = pb.JobRef(job_id=await self._begun(line))
        request = pb.ResizeJobRequest(job=ref, dry_run="dry-run" in line.flags)
        match self._one_of(line, "by", "to", "nodes"):
            case "by":
                request.by_nodes = number_of(line, "by", COUNT_MAX)
            case "to":
                request.to_nodes = number_of(line, "to", COUNT_MAX)
            case _:
                request.nodes.extend(_node_names(line, "nodes"))
        return await self._resize(request)

    async def shrink(self, line: Line) -> Pairs:
        """Give nodes of the job back."""
        ref = pb.JobRef(job_id=await self._begun(line))
        request = pb.ResizeJobRequest(job=ref, dry_run="dry-run" in line.flags)
        match self._one_of(line, "by", "to", "nodes"):
            case "by":
                request.by_nodes = -number_of(line, "by", COUNT_MAX)
            case "to":
                request.to_nodes = number_of(line, "to", COUNT_MAX)
            case _:
                request.without.extend(_node_names(line, "nodes"))
        return await self._resize(request)

    @staticmethod
    def _one_of(line: Line, *keys: str) -> str:
        given = [key for key in keys if key in line.values]
        if len(given) != 1:
            raise LineError("INVALID", f"{line.verb} takes one of {', '.join(f'{key}=' for key in keys)}")
        return given[0]

    async def _resize(self, request: pb.ResizeJobRequest) -> Pairs:
        reply: pb.ResizeJobReply = await self._call(methods.RESIZE_JOB, request)
        return [
            ("job", reply.job_id),
            *_amounts(reply),
            ("leaving", reply.leaving),
            ("steps", ",".join(map(str, reply.steps))),
            ("growth", reply.growth_id),
            ("more", reply.more),
            ("withdrawn", reply.withdrawn),
            ("growth-state", reply.state),
            ("planned-start-us", reply.planned_start_us),
            ("text", reply.reason),
        ]

    async def report(self, line: Line) -> Pairs:
        """Take a process's word for its cores: it stays on the node, and goes up when it is news."""
        if self._cores is None:
            raise LineError(
                "UNAVAILABLE", "the agent of this node takes no reports yet: try again in a moment"
            )
        return await self._cores.report(self._who.uid, self._job(line), line)

    # ---- the controller ----

    def _job(self, line: Line) -> int:
        """The job that is meant: one of the user's that runs here; the only one where none is named."""
        if "job" in line.values:
            job_id = number_of(line, "job", ID_MAX)
            if job_id not in self._jobs:
                raise LineError("NOT_FOUND", f"job {job_id} of this user does not run here")
            return job_id
        if len(self._jobs) != 1:
            few = "no job of this user runs here" if not self._jobs else "several jobs of this user run here"
            raise LineError("NOT_FOUND" if not self._jobs else "INVALID", f"{few}: say which, job=17")
        return next(iter(self._jobs))

    async def _begun(self, line: Line) -> int:
        """The job that is meant, once the controller knows that it runs: its script may be quicker with its first line."""
        job_id = self._job(line)
        for _ in range(LAUNCH_LOOKS):
            if (await self._info(job_id)).state != JobState.LAUNCHING.value:
                break
            await asyncio.sleep(LAUNCH_LOOK_S)
        return job_id

    async def _info(self, job_id: int) -> pb.JobInfo:
        request = pb.JobsRequest(jobs=[pb.JobRef(job_id=job_id)], finished_too=True)
        reply: pb.JobsReply = await self._call(methods.JOBS, request)
        for info in reply.jobs:
            if info.job_id == job_id:
                return info
        raise LineError("NOT_FOUND", f"job {job_id} does not exist")

    async def _change(self, request: pb.UpdateJobRequest) -> None:
        reply: pb.ChangeReply = await self._call(methods.UPDATE_JOB, request)
        for problem in reply.problems:
            raise LineError(_PROBLEMS.get(problem.code, "INTERNAL"), problem.text)

    async def _call(self, method: Method[Any, Any], request: Any, patience_s: float = PATIENCE_S) -> Any:
        """The reply. A call that no leader answers is repeated under its id, so that it takes effect once."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + patience_s
        payload, request_id = request.SerializeToString(), os.urandom(16) if method.mutating else b""
        is_retry = False
        while True:
            left_s = ends_s - loop.time()
            caller = Caller(self._who, request_id, is_retry, int(left_s * 1e6), "socket")
            try:
                async with asyncio.timeout(left_s):
                    answered = await self._answerer.answer(method, payload, caller)
            except TimeoutError:
                raise LineError("TIMEOUT", "the controller has not answered: it may have done it") from None
            if answered.status is Status.OK:
                return method.reply.FromString(answered.reply)
            pause_s = answered.retry_after_s or AGAIN_S
            if answered.status is not Status.UNAVAILABLE or loop.time() + pause_s > ends_s:
                raise LineError(_CODES.get(answered.status, "INTERNAL"), answered.text)
            is_retry = True
            await asyncio.sleep(pause_s)


def _decision(text: str, *, is_open: bool) -> Pairs:
    """The planner's answer; a wish that is not decided in time stays."""
    return [("decided", "no" if is_open else "yes"), ("text", text)]


def _amounts(reply: pb.FinishPartReply | pb.ResizeJobReply) -> Pairs:
    """Amounts of the job before and after the change."""
    pairs: Pairs = []
    for word, one in (("before", reply.before), ("after", reply.after)):
        pairs += [
            (f"{word}-nodes", one.nodes),
            (f"{word}-node-names", one.node_names),
            (f"{word}-cpus", one.cpus),
            (f"{word}-memory-mib", one.memory_mib),
        ]
    return pairs


def _node_names(line: Line, key: str) -> Sequence[str]:
    try:
        return expand(value_of(line, key), key, NODES_NAMED_MAX)
    except OptionError as error:
        raise LineError("INVALID", str(error)) from None


_Verb = Callable[[Verbs, Line], Awaitable[Pairs]]
_VERBS: Final[dict[str, tuple[_Verb, Sequence[str], Sequence[str]]]] = {
    "hello": (Verbs.hello, (), ()),
    "show": (Verbs.show, ("job",), ()),
    "set-dependency": (Verbs.set_dependency, ("job", "on"), ("dry-run",)),
    "extend": (Verbs.extend, ("job", "by", "to"), ("dry-run",)),
    "move-starts": (Verbs.move_starts, ("job", "earlier", "to"), ("asap", "dry-run")),
    "grow": (Verbs.grow, ("job", "by", "to", "nodes"), ("dry-run",)),
    "shrink": (Verbs.shrink, ("job", "by", "to", "nodes"), ("dry-run",)),
    "report": (Verbs.report, ("job", "node", "worker", "idle", "remaining", "wait"), ("reject",)),
    "finish-part": (Verbs.finish_part, ("job", "part"), ("kill", "dry-run")),
}
