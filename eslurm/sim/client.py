"""The people of a simulated cluster: what they ask, and what they were told.

Each request is sent again under the same id until it is answered. Invariant: what is remembered as acknowledged
was really answered; nothing is assumed of a request without an answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from eslurm.core.job.model import ArraySpec, Dependency, JobSpec, Principal
from eslurm.core.job.request import Request as Resources
from eslurm.core.messages import (
    CancelJobs,
    Changed,
    CreateStep,
    FinishStep,
    HoldJobs,
    JobRef,
    Refused,
    Request,
    RequeueJobs,
    StepCreated,
    SubmitJobs,
    Submitted,
    UpdateJob,
    UpdateNodes,
)
from eslurm.core.reactor import BatchAnswer
from eslurm.ports.store import BlobRow, content_hash
from eslurm.sim import wire
from eslurm.sim.checks import require
from eslurm.sim.process import Process

if TYPE_CHECKING:
    from eslurm.sim.world import World

SECOND_US = 1_000_000
RETRY_US = 2 * SECOND_US
ASKED_AGAIN = 0.2
ASKED_AGAIN_WITHIN_US = 8 * SECOND_US
USERS = (Principal("alice", 1000, 1000), Principal("bob", 1001, 1001))
SCRIPTS = (b"#!/bin/sh\nexec solve\n", b"#!/bin/sh\nexec mesh\n")
ENVIRONMENT = b"PATH=/usr/bin\0"

Then = Callable[[BatchAnswer], None]


class _Pending(msgspec.Struct):
    message: Request
    then: Then | None
    blobs: tuple[BlobRow, ...]
    tries: int = 0


class Client(Process):
    """All users and the operator in one."""

    operator = Principal("root", 0, 0)

    def __init__(self, world: World) -> None:
        super().__init__(world, "client")
        self._random = random.Random(f"{world.seed}/people")
        self._pending: dict[bytes, _Pending] = {}
        self._asked = 0
        self._told: dict[bytes, BatchAnswer] = {}
        self._jobs: list[int] = []

    @property
    def waits(self) -> bool:
        """Whether some request has no answer yet."""
        return bool(self._pending)

    def start(self) -> None:
        """Spread the work over the time in which things go wrong."""
        world, rng = self.world, self._random
        last_us = world.faults.plan.calm_us - SECOND_US
        for _ in range(world.actions):
            at_us = rng.randint(SECOND_US, last_us)
            act = rng.choices(self._acts, self._weights)[0]
            self.later(at_us, act, self)
        self.later(world.faults.plan.calm_us, self._care)

    # ---- asking ----

    def call(self, message: Request, then: Then | None = None, blobs: tuple[BlobRow, ...] = ()) -> None:
        """Ask until there is an answer."""
        self._asked += 1
        request_id = self._asked.to_bytes(16, "big")
        self._pending[request_id] = _Pending(message, then, blobs)
        self._try(request_id)

    def _try(self, request_id: bytes) -> None:
        pending = self._pending.get(request_id)
        if pending is None:
            return
        if self._send(wire.Call(request_id, pending.message, pending.blobs, retry=pending.tries > 0)):
            pending.tries += 1
        self.later(RETRY_US, self._try, request_id)

    def _send(self, message: wire.Call | wire.Takeover) -> bool:
        """To any controller: whoever does not lead passes it on."""
        controller = self.world.network.find(self._random.choice(self.world.controller_addresses))
        if controller:
            self.send(controller, message)
        return bool(controller)

    def take_over(self, name: str) -> None:
        """Have another controller lead; whether it came so is seen."""
        self._send(wire.Takeover(name))

    def on_message(self, source: str, message: Any) -> None:
        """An answer; none means that the same is to be asked again."""
        if type(message) is not wire.Result or message.answer is None:
            return
        pending = self._pending.pop(message.request_id, None)
        if pending is None:
            first = self._told.get(message.request_id, message.answer)
            require(
                message.answer == first,
                f"request {message.request_id!r} was answered {first}, then {message.answer}",
            )
            return
        if not isinstance(message.answer, Refused):
            self._told[message.request_id] = message.answer
            if self._random.random() < ASKED_AGAIN:
                again = wire.Call(message.request_id, pending.message, pending.blobs, retry=True)
                self.later(self._random.randint(0, ASKED_AGAIN_WITHIN_US), self._send, again)
        self._learn(pending.message, message.answer)
        if pending.then is not None:
            pending.then(message.answer)

    def _learn(self, asked: Request, answer: BatchAnswer) -> None:
        checks = self.world.checks
        if isinstance(answer, Submitted):
            self._jobs.extend(answer.job_ids)
            checks.on_acknowledged(answer.job_ids)
        elif isinstance(asked, CancelJobs) and isinstance(answer, Changed) and not asked.signal:
            bad = {problem.what for problem in answer.problems}
            whole = (ref.job_id for ref in asked.jobs if ref.task < 0 and str(ref.job_id) not in bad)
            checks.cancelled.update(dict.fromkeys(whole))
        elif isinstance(answer, StepCreated) and isinstance(asked, CreateStep):
            finish = FinishStep(asked.by, answer.job_id, answer.step, 0)
            self.later(self._random.randint(0, 3 * SECOND_US), self.call, finish)

    # ---- what they do ----

    def _submit(self) -> None:
        rng = self._random
        user = rng.choice(USERS)
        specs = tuple(self._spec(user) for _ in range(rng.choice((1, 1, 2, 5))))
        blobs = tuple(BlobRow(content_hash(data), data) for data in (*SCRIPTS, ENVIRONMENT))
        self.call(SubmitJobs(specs), None, blobs)

    def _spec(self, user: Principal) -> JobSpec:
        rng = self._random
        array = None
        if rng.random() < 0.15:
            array = ArraySpec(((0, rng.randint(1, 5)),), rng.choice((0, 0, 1, 2)))
        return JobSpec(
            name=rng.choice(("a", "b", "c")),
            user=user,
            partition="",
            components=(self._resources(array is not None),),
            script_hash=content_hash(rng.choice(SCRIPTS)),
            environment_hash=content_hash(ENVIRONMENT),
            work_dir="/home",
            time_limit_s=rng.choice((5, 20, 60)),
            requeue=rng.random() < 0.7,
            held=rng.random() < 0.05,
            begin_us=self.now_us + rng.randint(0, 10 * SECOND_US) if rng.random() < 0.1 else 0,
            dependencies=self._dependencies(),
            array=array,
        )

    def _resources(self, is_small: bool) -> Resources:
        rng = self._random
        nodes = len(self.world.names)
        if is_small or rng.random() < 0.5:
            return Resources(tasks=rng.randint(1, 3), cpus_per_task=rng.choice((1, 1, 2)))
        wanted = rng.randint(2, max(2, nodes // rng.choice((1, 2, 4))))
        wanted = min(wanted, nodes)
        if rng.random() < 0.2:
            return Resources(tasks=wanted, nodes_min=wanted, nodes_max=wanted, exclusive=True)
        return Resources(tasks=wanted, nodes_min=wanted, nodes_max=wanted, tasks_per_node=1)

    def _dependencies(self) -> tuple[Dependency, ...]:
        rng = self._random
        if not self._jobs or rng.random() > 0.15:
            return ()
        kind = rng.choice(("after", "afterany", "afterok", "afternotok", "singleton"))
        return (Dependency(kind, 0 if kind == "singleton" else rng.choice(self._jobs)),)

    def _some_jobs(self) -> tuple[JobRef, ...]:
        count = min(len(self._jobs), self._random.randint(1, 3))
        return tuple(JobRef(job_id) for job_id in self._random.sample(self._jobs[-20:], min(count, 20)))

    def _cancel(self) -> None:
        signal = 10 if self._random.random() < 0.2 else 0
        if self._jobs:
            self.call(CancelJobs(self.operator, self._some_jobs(), signal=signal))

    def _requeue(self) -> None:
        if self._jobs:
            self.call(RequeueJobs(self.operator, self._some_jobs()))

    def _hold(self) -> None:
        if self._jobs:
            self.call(HoldJobs(self.operator, self._some_jobs(), release=self._random.random() < 0.4))

    def _update(self) -> None:
        if self._jobs:
            job = self._some_jobs()[0]
            self.call(UpdateJob(self.operator, job, priority=self._random.randint(0, 2000)))

    def _drain(self) -> None:
        name = self._random.choice(self.world.names)
        if self._random.random() < 0.5:
            self.call(UpdateNodes(self.operator, (name,), "drain", "disk"))
        else:
            self.call(UpdateNodes(self.operator, (name,), "resume"))

    def _step(self) -> None:
        running = self._some_jobs()
        if running:
            user = self._random.choice(USERS)
            job_id = running[0].job_id
            tasks = self._random.randint(1, 4)
            environment = content_hash(ENVIRONMENT)
            step = CreateStep(user, job_id, tasks, 0, ("hostname",), environment, "/home", "login:1", b"c")
            self.call(step)

    def _care(self) -> None:
        """Once all is calm, the operator lets everything run that was held, until nothing is."""
        controller = self.world.controller
        if controller is not None and not self._pending:
            held = tuple(JobRef(job.job_id) for job in controller.state.jobs.values() if job.hold)
            drained = tuple(node.name for node in controller.state.nodes.values() if node.drain)
            if held:
                self.call(HoldJobs(self.operator, held, release=True))
            if drained:
                self.call(UpdateNodes(self.operator, drained, "resume"))
        self.later(5 * SECOND_US, self._care)

    _acts = (_submit, _cancel, _requeue, _hold, _update, _drain, _step)
    _weights = (10, 3, 3, 1, 1, 1, 3)
