"""The people of a simulated cluster: what they ask, and what they were told.

Each request is sent again under the same id until it is answered. Invariant: what is remembered as acknowledged
was really answered; nothing is assumed of a request without an answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from eslurm.core.control.jobs.access import name_of
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model import ranges
from eslurm.core.model.job import Job, JobSpec, Principal
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import (
    CancelJobs,
    Changed,
    ChangePolicies,
    CreateStep,
    ExtendJob,
    FinishPart,
    FinishStep,
    HoldJobs,
    JobRef,
    MovePack,
    Refused,
    ReleaseJob,
    Request,
    RequeueJobs,
    StepCreated,
    SubmitJobs,
    Submitted,
    SuspendJobs,
    UpdateJob,
    UpdateNodes,
)
from eslurm.core.model.pack import PackDraft
from eslurm.core.model.parts import partition_of
from eslurm.core.model.request import Request as ResourceRequest
from eslurm.core.model.step_claim import ClaimWish
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.placement.compiled_request import compile_job
from eslurm.core.plan.placement.feasible import empty_ledger
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.state.cluster import State
from eslurm.lab.sim import wire
from eslurm.lab.sim.allocation_draws import EVERY_US as ATTENDED_EVERY_US
from eslurm.lab.sim.allocation_draws import AllocationDraws, Command
from eslurm.lab.sim.elastic_draws import EVERY_US, ElasticDraws
from eslurm.lab.sim.gateway_draws import draw_gateway_spec, gateways_of
from eslurm.lab.sim.lending_apps import BURSTS as LENDING_BURSTS
from eslurm.lab.sim.lending_apps import draw_lending, has_lenders
from eslurm.lab.sim.process import Process
from eslurm.lab.sim.step_runner import LONG_LIMIT_S
from eslurm.lab.sim.violation import require
from eslurm.lab.sim.workload_generator import (
    BASE,
    USERS,
    draw_changes,
    draw_dependencies,
    draw_pack,
    draw_spec,
    lifted,
    meeting,
    movable,
    retried,
    setting,
    spanning,
)
from eslurm.lab.sim.world_view import WorldView
from eslurm.ports.store import BlobRow, content_hash

RETRY_US = 2 * SECOND_US
REFUSED_RETRY_US = (50_000, 600_000)
"""A refused call is made again after a time between these."""
ASKED_AGAIN = 0.2
LATE_US = 60 * SECOND_US
"""So late a fixed start is missed for good."""
PART_US = 2 * SECOND_US
"""So often a running job of several parts may give one of them back."""
ASKED_AGAIN_WITHIN_US = 8 * SECOND_US
PACKS_SHARE = 0.08
"""Share of the submissions that bring a pack, too."""
GATEWAY_SUBMISSIONS = 12
"""Nodes with gateways."""
PACK_ACT_WITHIN_US = 15 * SECOND_US
CANCELLED_WITHIN_US = 8 * SECOND_US
WIDE_SHARE = 0.3
"""Of the jobs that may span cells, those that ask for more nodes than their cell has."""
RETRIES_SHARE = 0.4
"""Of seeds: the others stay what they are."""
RETRIED_SUBMISSIONS = 8
RETRIED_CANCELLED_WITHIN_US = 12 * SECOND_US
SCRIPTS = (b"#!/bin/sh\nexec solve\n", b"#!/bin/sh\nexec mesh\n")
ENVIRONMENT = b"PATH=/usr/bin\0"

Then = Callable[[BatchAnswer], None]


class _Pending(msgspec.Struct):
    message: Request
    then: Then | None
    blobs: tuple[BlobRow, ...]
    tries: int = 0
    is_retried: bool = False


class Client(Process):
    """All users and the operator in one."""

    operator = Principal("root", 0, 0)

    def __init__(self, world: WorldView, address: str = "client", first_request: int = 0) -> None:
        super().__init__(world, address)
        self._random = random.Random(f"{world.seed}/people")
        # Packs are drawn apart: the other choices of a seed stay what they are.
        self._packs_random = random.Random(f"{world.seed}/packs")
        self._failing_random = random.Random(f"{world.seed}/failing packs")
        self._moves_random = random.Random(f"{world.seed}/moves")
        self._parts_random = random.Random(f"{world.seed}/finished parts")
        self._claims_random = random.Random(f"{world.seed}/claims of steps")
        self._gateways_random = random.Random(f"{world.seed}/gateway jobs")
        self._lending_random = random.Random(f"{world.seed}/lending jobs")
        self._movable_random = random.Random(f"{world.seed}/movable jobs")
        self._spanning_random = random.Random(f"{world.seed}/spanning jobs")
        self._retries_random = random.Random(f"{world.seed}/retries")
        self._elastic = ElasticDraws(world.seed, ENVIRONMENT)
        self._allocations = AllocationDraws(world.seed)
        self._pending: dict[bytes, _Pending] = {}
        self._asked = first_request
        self._told: dict[bytes, BatchAnswer] = {}
        self._jobs: list[int] = []
        # How many tasks the arrays among them have.
        self._arrays: dict[int, int] = {}
        # How many parts the others have, the jobs of the parts' ids, and all ids by which a job can be named.
        self._parts: dict[int, int] = {}
        self._leaders: dict[int, int] = {}
        self._ids: list[int] = []

    @property
    def waits(self) -> bool:
        """Check whether some request has no answer yet."""
        return bool(self._pending)

    def start(self) -> None:
        """Spread the work over the time in which things go wrong."""
        world, rng = self.world, self._random
        last_us = world.faults.plan.calm_us - SECOND_US
        self.later(0, self._begin)
        for _ in range(world.actions):
            at_us = rng.randint(SECOND_US, last_us)
            act = rng.choices(self._acts, self._weights)[0]
            self.later(at_us, act, self)
        if world.faults.ordeals.long_jobs:
            self.later(5 * SECOND_US, self._submit_long)
        self.later(world.faults.plan.calm_us, self._care)
        for at_us in range(PART_US, world.faults.plan.calm_us, PART_US):
            self.later(at_us, self._finish_part)
        if gateways_of(world.config):
            for _ in range(GATEWAY_SUBMISSIONS):
                self.later(self._gateways_random.randint(SECOND_US, last_us), self._submit_with_gateways)

        if self._retries_random.random() < RETRIES_SHARE and not world.movable_bursts:
            for _ in range(RETRIED_SUBMISSIONS):
                self.later(self._retries_random.randint(SECOND_US, last_us), self._submit_retried)
        if has_lenders(world.seed):
            for _ in range(LENDING_BURSTS):
                self.later(self._lending_random.randint(SECOND_US, last_us), self._submit_lending)

        for at_us in self._allocations.times_us(last_us):
            self.later(at_us, self._allocate)
        for at_us in range(EVERY_US, world.faults.plan.calm_us, EVERY_US) if self._elastic.is_on else ():
            self.later(at_us, self._resize)
        for _ in range(world.movable_bursts):
            self.later(self._movable_random.randint(SECOND_US, last_us), self._submit_movable)

        for _ in range(world.spanning_bursts):
            self.later(self._spanning_random.randint(SECOND_US, last_us), self._submit_spanning)

    # ---- asking ----

    def call(self, message: Request, then: Then | None = None, blobs: tuple[BlobRow, ...] = ()) -> None:
        """Ask until there is an answer. A step comes with its environment."""
        self._asked += 1
        if isinstance(message, CreateStep):
            blobs = (BlobRow(message.environment_hash, ENVIRONMENT),)
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
        """Send to any controller: one that does not lead passes it on."""
        controller = self.world.network.find(self._random.choice(self.world.controller_addresses))
        if controller:
            self.send(controller, message)
        return bool(controller)

    def take_over(self, name: str) -> None:
        """Have another controller lead; whether it came so is seen."""
        self._send(wire.Takeover(name))

    def on_message(self, source: str, message: Any) -> None:
        """An answer; none means that the same is to be asked again."""
        if type(message) is not wire.Result:
            return
        if message.answer is None:
            self._on_refused_call(message.request_id)
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

    def _on_refused_call(self, request_id: bytes) -> None:
        """Not now: soon again, once for any number of refusals."""
        pending = self._pending.get(request_id)
        if pending is not None and not pending.is_retried:
            pending.is_retried = True
            self.later(self._random.randint(*REFUSED_RETRY_US), self._retry, request_id)

    def _retry(self, request_id: bytes) -> None:
        pending = self._pending.get(request_id)
        if pending is not None:
            pending.is_retried = False
            self._send(wire.Call(request_id, pending.message, pending.blobs, retry=True))

    def _learn(self, asked: Request, answer: BatchAnswer) -> None:
        checks = self.world.checks
        if isinstance(answer, Submitted):
            self._jobs.extend(answer.job_ids)
            assert isinstance(asked, SubmitJobs)
            for job_id, spec in zip(answer.job_ids, asked.specs, strict=True):
                if spec.array is not None:
                    self._arrays[job_id] = ranges.count(spec.array.tasks)
                if spec.parts:
                    self._parts[job_id] = len(spec.parts)
                ids = range(job_id, job_id + len(spec.components))
                self._leaders.update(dict.fromkeys(ids[1:], job_id))
                self._ids += ids
            checks.on_acknowledged(answer.job_ids)
            for pack in asked.packs:
                job_ids = answer.job_ids[pack.first : pack.first + len(pack.delays_s)]
                checks.packs.on_submitted(job_ids, pack.delays_s)
                self._care_for_pack(job_ids)
        elif isinstance(asked, CancelJobs) and isinstance(answer, Changed) and not asked.signal:
            bad = {problem.what for problem in answer.problems}
            for ref in asked.jobs:
                if ref.task >= 0 or name_of(ref) in bad:
                    continue
                checks.cancelled[self._leaders.get(ref.job_id, ref.job_id)] = None
                if ref.part < 0:
                    # By its id a pack is cancelled with all its members.
                    checks.cancelled.update(dict.fromkeys(checks.packs.members_of(ref.job_id)))
        elif isinstance(answer, StepCreated) and isinstance(asked, CreateStep):
            finish = FinishStep(asked.by, answer.job_id, answer.step, 0)
            self.later(self._random.randint(0, 3 * SECOND_US), self.call, finish)

    # ---- what they do ----

    def _submit(self) -> None:
        rng = self._random
        drawn = [self._spec() for _ in range(rng.choice((1, 1, 2, 5)))]
        specs = tuple([self._elastic.spec(spec, len(self.world.names)) for spec in drawn])
        blobs = tuple(BlobRow(content_hash(data), data) for data in (*SCRIPTS, ENVIRONMENT))
        packs = self._packs_random
        if packs.random() < PACKS_SHARE:
            drawn = [self._spec(packs) for _ in range(packs.randint(2, 3))]
            members, delays_s = draw_pack(packs, drawn)
            cancels = self._failing_random.random() < 0.3
            if packs.random() < 0.3:
                self.call(
                    SubmitJobs((*specs, *members), (PackDraft(len(specs), delays_s, cancels),)), None, blobs
                )
                return
            self.call(SubmitJobs(members, (PackDraft(0, delays_s, cancels),)), None, blobs)
        self.call(SubmitJobs(specs), None, blobs)

    def _submit_with_gateways(self) -> None:
        """A job over both modules, sometimes as the first or the second of a pack."""
        rng = self._gateways_random
        spec = draw_gateway_spec(rng, self._spec(rng), self.world.config)
        blobs = tuple(BlobRow(content_hash(data), data) for data in (*SCRIPTS, ENVIRONMENT))
        if rng.random() < 0.85:
            self.call(SubmitJobs((spec,)), None, blobs)
            return
        beside = self._spec(rng)
        members, delays_s = draw_pack(rng, (spec, beside) if rng.random() < 0.5 else (beside, spec))
        self.call(SubmitJobs(members, (PackDraft(0, delays_s),)), None, blobs)

    def _submit_lending(self) -> None:
        """A job whose application lends cores, and some that would borrow them."""
        rng = self._lending_random
        specs = draw_lending(rng, self._spec(rng), self.world.config)
        blobs = tuple(BlobRow(content_hash(data), data) for data in (*SCRIPTS, ENVIRONMENT))
        self.call(SubmitJobs(specs[:1]), None, blobs)
        self.call(SubmitJobs(specs[1:]), None, blobs)

    def _allocate(self) -> None:
        """Ask for nodes without a script."""
        spec = self._allocations.spec(self._spec(self._allocations.random))

        def accepted(answer: BatchAnswer) -> None:
            if isinstance(answer, Submitted):
                self._attend(self._allocations.command(answer.job_ids[0], self.now_us), spec)

        # Of steps in it: no other submission may have brought it yet.
        self.call(SubmitJobs((spec,)), accepted, (BlobRow(content_hash(ENVIRONMENT), ENVIRONMENT),))

    def _attend(self, command: Command, spec: JobSpec) -> None:
        """Say to every controller that the command is there, until it ends: with a release, or without a word."""
        if self.now_us >= command.until_us:
            if not (command.is_killed and spec.attended):
                self.call(ReleaseJob(spec.user, command.job_id, command.exit_code))
            return
        for address in self.world.controller_addresses:
            if controller := self.world.network.find(address):
                self.send(controller, wire.Attend(command.job_id))
        leader = self.world.controller
        if leader is not None and self.world.faults.is_calm and spec.attended:
            self._allocations.check_heard(leader.state.find_job(command.job_id), command)
        self.later(ATTENDED_EVERY_US, self._attend, command, spec)

    def _submit_movable(self) -> None:
        """More jobs at once than start at once, which any cell may take."""
        rng = self._movable_random
        specs = tuple([self._movable() for _ in range(rng.randint(4, 12))])
        blobs = tuple(BlobRow(content_hash(data), data) for data in (*SCRIPTS, ENVIRONMENT))
        self.call(SubmitJobs(specs), self._cancel_movable, blobs)

    def _movable(self) -> JobSpec:
        """A job that any cell may take, some of them with retries, which the cell that takes it has to make."""
        spec = movable(self._spec(self._movable_random))
        return retried(self._retries_random, spec) if self._retries_random.random() < 0.15 else spec

    def _cancel_movable(self, answer: BatchAnswer) -> None:
        """Now and then one is cancelled, perhaps while it is between two cells."""
        rng = self._movable_random
        if isinstance(answer, Submitted) and rng.random() < 0.6:
            cancel = CancelJobs(self.operator, (JobRef(rng.choice(answer.job_ids)),))
            self.later(rng.randint(0, CANCELLED_WITHIN_US), self.call, cancel)

    def _submit_spanning(self) -> None:
        """Jobs whose nodes may be of several cells; some that no cell has alone are cancelled in the end."""
        rng = self._spanning_random
        own = len(self.world.names)
        nodes = own + 1 if rng.random() < WIDE_SHARE else rng.randint(2, max(2, min(own, 4)))
        specs = tuple([spanning(self._spec(rng), nodes) for _ in range(rng.randint(1, 2))])
        blobs = tuple(BlobRow(content_hash(data), data) for data in (*SCRIPTS, ENVIRONMENT))
        self.call(SubmitJobs(specs), self._cancel_wide, blobs)

    def submit_meeting(self, nodes: int, within_us: int) -> None:
        """A job on whole nodes of several cells; it is cancelled after this time, unless it has ended."""

        def cancel(answer: BatchAnswer) -> None:
            if isinstance(answer, Submitted):
                jobs = tuple([JobRef(job_id) for job_id in answer.job_ids])
                self.later(within_us, self.call, CancelJobs(self.operator, jobs))

        blobs = tuple(BlobRow(content_hash(data), data) for data in (SCRIPTS[0], ENVIRONMENT))
        spec = meeting(nodes, blobs[0].hash, blobs[1].hash)
        self.call(SubmitJobs((spec,)), cancel, blobs)

    def _cancel_wide(self, answer: BatchAnswer) -> None:
        """Cancel jobs that no cell has alone: if they ever start depends on the other cells."""
        wide = (
            [job_id for job_id in answer.job_ids if self._is_wide(job_id)]
            if isinstance(answer, Submitted)
            else []
        )
        if wide:
            cancel = CancelJobs(self.operator, tuple([JobRef(job_id) for job_id in wide]))
            self.later(self._spanning_random.randint(20, 90) * SECOND_US, self.call, cancel)

    def _is_wide(self, job_id: int) -> bool:
        """Check whether a job can never run in this cell alone, by its record: nodes with rules may not count."""
        leader = self.world.controller
        job = leader.state.find_job(job_id) if leader is not None else None
        return job is None or (job.guests is not None and job.guests.is_wide)

    def _submit_retried(self) -> None:
        """Jobs of short limits that ask for retries; some of them are cancelled soon."""
        rng = self._retries_random
        specs = tuple([retried(rng, self._spec(rng)) for _ in range(rng.randint(1, 3))])
        blobs = tuple(BlobRow(content_hash(data), data) for data in (*SCRIPTS, ENVIRONMENT))
        self.call(SubmitJobs(specs), self._cancel_retried, blobs)

    def _cancel_retried(self, answer: BatchAnswer) -> None:
        """Now and then one is cancelled, perhaps while it runs into its limit or in the pause after it."""
        rng = self._retries_random
        if isinstance(answer, Submitted) and rng.random() < 0.3:
            cancel = CancelJobs(self.operator, (JobRef(rng.choice(answer.job_ids)),))
            self.later(rng.randint(0, RETRIED_CANCELLED_WITHIN_US), self.call, cancel)

    def _submit_long(self) -> None:
        """Jobs that run for minutes, where links are bad for as long."""
        rng = random.Random(f"{self.world.seed}/long")
        blobs = tuple(BlobRow(content_hash(data), data) for data in (SCRIPTS[0], ENVIRONMENT))
        specs = tuple(
            JobSpec(
                name="long",
                partition="",
                user=rng.choice(USERS),
                components=(ResourceRequest(tasks=1),),
                script_hash=content_hash(SCRIPTS[0]),
                environment_hash=content_hash(ENVIRONMENT),
                work_dir="/home",
                time_limit_s=LONG_LIMIT_S,
                requeue=rng.random() < 0.85,
            )
            for _ in range(self.world.faults.ordeals.long_jobs)
        )
        self.call(SubmitJobs(specs), None, blobs)

    def _spec(self, rng: random.Random | None = None) -> JobSpec:
        rng = rng or self._random
        script = content_hash(rng.choice(SCRIPTS))
        return draw_spec(
            rng,
            self.now_us,
            self.world.config,
            self._ids,
            self._arrays,
            script,
            content_hash(ENVIRONMENT),
        )

    def _some_jobs(self) -> tuple[JobRef, ...]:
        count = min(len(self._jobs), self._random.randint(1, 3))
        return tuple(map(self._ref, self._random.sample(self._jobs[-20:], min(count, 20))))

    def _ref(self, job_id: int) -> JobRef:
        """A job by its id, or by one of its parts."""
        if job_id not in self._parts or self._random.random() < 0.5:
            return JobRef(job_id)
        part = self._random.randrange(self._parts[job_id])
        return JobRef(job_id, part=part) if self._random.random() < 0.5 else JobRef(job_id + part)

    def _cancel(self) -> None:
        signal = 10 if self._random.random() < 0.2 else 0
        if self._jobs:
            self.call(CancelJobs(self.operator, self._some_jobs(), signal=signal))

    def _requeue(self) -> None:
        if self._jobs:
            self.call(RequeueJobs(self.operator, self._some_jobs()))

    def _care_for_pack(self, job_ids: Sequence[int]) -> None:
        """Some packs are held for a while, cancelled or requeued, by one member or by the pack's own id."""
        rng = self._packs_random
        act = rng.choice(("", "", "hold", "cancel", "requeue", "requeue"))
        jobs = (JobRef(rng.choice((job_ids[0], rng.choice(job_ids)))),)
        at_us = rng.randint(0, PACK_ACT_WITHIN_US)
        if act == "hold":
            self.later(at_us, self.call, HoldJobs(self.operator, jobs))
            self.later(at_us + 3 * SECOND_US, self.call, HoldJobs(self.operator, jobs, release=True))
        elif act == "cancel":
            self.later(at_us, self.call, CancelJobs(self.operator, jobs))
        elif act == "requeue":
            self.later(at_us, self.call, RequeueJobs(self.operator, jobs))
        self._move_pack(job_ids)

    def _move_pack(self, job_ids: Sequence[int]) -> None:
        """Now and then its user starts the others earlier, and extends a job that may run."""
        rng = self._moves_random
        for _ in range(rng.choice((0, 1, 1, 2))):
            earlier_us = rng.choice((0, 1, 3, 8)) * SECOND_US
            move = MovePack(self.operator, JobRef(rng.choice(job_ids)), earlier_us)
            self.later(rng.randint(0, PACK_ACT_WITHIN_US), self.call, move)
        if rng.random() < 0.5:
            extend = ExtendJob(
                self.operator, JobRef(rng.choice(self._jobs[-20:])), by_s=rng.choice((1, 5, 60))
            )
            self.later(rng.randint(0, PACK_ACT_WITHIN_US), self.call, extend)

    def _hold(self) -> None:
        if self._jobs:
            self.call(HoldJobs(self.operator, self._some_jobs(), release=self._random.random() < 0.4))

    def _suspend(self) -> None:
        if self._jobs:
            self.call(SuspendJobs(self.operator, self._some_jobs(), resume=self._random.random() < 0.4))

    def _extend(self) -> None:
        """The operator or, with less to give, the owner."""
        if self._jobs:
            by = self._random.choice((self.operator, *USERS))
            self.call(
                UpdateJob(by, self._some_jobs()[0], time_limit_s=self._random.choice((5, 6, 22, 66, 90)))
            )

    def _update(self) -> None:
        """The operator gives a job another priority, or other dependencies."""
        if not self._jobs:
            return
        job, rng = self._some_jobs()[0], self._random
        if rng.random() < 0.3:
            self.call(UpdateJob(self.operator, job, priority=rng.randint(0, 2000)))
            return
        dependencies = draw_dependencies(rng, self._ids[-20:], self._arrays) if rng.random() < 0.8 else ()
        self.call(UpdateJob(self.operator, job, dependencies=dependencies, dependency_any=rng.random() < 0.5))

    def _drain(self) -> None:
        name = self._random.choice(self.world.names)
        if self._random.random() < 0.5:
            self.call(UpdateNodes(self.operator, (name,), "drain", "disk"))
        else:
            self.call(UpdateNodes(self.operator, (name,), "resume"))

    def _begin(self) -> None:
        """Set up the users, as the operator."""
        self.call(ChangePolicies(self.operator, tuple(map(setting, BASE))))

    def _change_policies(self) -> None:
        changes = draw_changes(self._random, self.now_us, self.world.config)
        self.call(ChangePolicies(self.operator, changes))

    def _step(self) -> None:
        running = self._some_jobs()
        if running:
            user = self._random.choice(USERS)
            job_id = running[0].job_id
            tasks = self._random.randint(1, 4)
            environment = content_hash(ENVIRONMENT)
            step = CreateStep(user, job_id, tasks, 0, ("hostname",), environment, "/home", "login:1", b"c")
            job = self.world.controller.state.find_job(job_id) if self.world.controller is not None else None
            parts = range(len(job.spec.components) if job is not None else 1)
            if len(parts) > 1:
                chosen = self._random.sample(parts, self._random.randint(1, len(parts)))
                step = msgspec.structs.replace(step, components=tuple(sorted(chosen)))
            for _ in range(self._claims_random.choice((1, 2, 4))):
                # Several at once: some of them have to wait.
                claim = self._claims_random.choice((None, ClaimWish(), ClaimWish(), ClaimWish(whole=True)))
                self.call(msgspec.structs.replace(step, claim=claim))

    def _finish_part(self) -> None:
        """A running job gives a part back. It has a random source of its own: its draws move no other's."""
        controller, rng = self.world.controller, self._parts_random
        jobs = [
            job
            for job in (controller.state.jobs.values() if controller is not None else ())
            if job.state is JobState.RUNNING and len(job.spec.components) > 1
        ]
        if jobs and rng.random() < 0.4:
            job = rng.choice(jobs)
            ref = JobRef(job.job_id, part=rng.randrange(1, len(job.spec.components)))
            self.call(FinishPart(job.spec.user, ref, kill=rng.random() < 0.3))

    def _resize(self) -> None:
        """A running job gets nodes, or gives some back."""
        controller = self.world.controller
        if controller is not None:
            for in_us, message in self._elastic.act(controller.state, self.operator):
                self.later(in_us, self.call, message)

    def _care(self) -> None:
        """Once all is calm, the operator lets everything run that was held or forbidden, until nothing is."""
        controller = self.world.controller
        if controller is not None and not self._pending:
            held = tuple(JobRef(job.job_id) for job in controller.state.jobs.values() if job.hold)
            drained = tuple(node.name for node in controller.state.nodes.values() if node.drain)
            still = tuple(
                JobRef(job.job_id)
                for job in controller.state.jobs.values()
                if job.attempt is not None and job.attempt.suspended_us and job.attempt.stop is None
            )
            self._lift(controller.state)
            if still:
                self.call(SuspendJobs(self.operator, still, resume=True))
            if held:
                self.call(HoldJobs(self.operator, held, release=True))
            if drained:
                self.call(UpdateNodes(self.operator, drained, "resume"))
        self.later(5 * SECOND_US, self._care)

    def _lift(self, state: State) -> None:
        """No rule is left; what has missed its time for good, or has no place on an empty cluster, is cancelled."""
        missed = tuple(
            JobRef(job.job_id)
            for job in state.jobs.values()
            if _has_missed(job, self.now_us)
            or _never_fits(state, [job], is_proved=not self.world.files.has_removed)
            or _is_hopeless(state, job)
        )
        changes = lifted(state.policies)
        if missed:
            self.call(CancelJobs(self.operator, missed))
        elif changes:
            self.call(ChangePolicies(self.operator, changes))

    _acts = (_submit, _cancel, _requeue, _hold, _update, _drain, _step, _suspend, _extend, _change_policies)
    _weights = (10, 3, 3, 1, 2, 1, 3, 3, 2, 5)


def _has_missed(job: Job, now_us: int) -> bool:
    """Check whether a waiting job cannot start any more, by what its own user asked for."""
    spec = job.spec
    is_late = (
        0 < spec.start_at_us < now_us - LATE_US
        or 0 < spec.deadline_us < now_us + spec.time_limit_s * SECOND_US
    )
    return job.state is JobState.PENDING and (is_late or bool(spec.reservation))


def _never_fits(state: State, jobs: Sequence[Job], *, is_proved: bool = True) -> bool:
    """Check for parts that have no place beside each other on empty nodes, which a submission cannot always prove. For jobs
    of one part it has proved it, unless nodes have gone since.
    """
    if any(job.state is not JobState.PENDING or job.attempt is not None for job in jobs):
        return False
    if is_proved and len(jobs) == 1 and not jobs[0].spec.parts:
        return False
    topology = state.ledger.topology
    specs = [job.spec for job in jobs]
    requests = tuple([request for spec in specs for request in spec.components])
    views = [
        state.partition_views[partition_of(spec, part)]
        for spec in specs
        for part in range(len(spec.components))
    ]
    limit_us = max(spec.time_limit_s for spec in specs) * SECOND_US
    need = compile_job(requests, views, topology, time_limit_us=limit_us)
    return choose(empty_ledger(topology), need) is None


def _is_hopeless(state: State, job: Job) -> bool:
    """Check for the first member of a pack whose members have no place beside each other, at any of their starts."""
    place = job.pack
    if place is None or place.index or place.anchor_us:
        return False
    members = [one for one in state.jobs.values() if one.pack is not None and one.pack.pack_id == job.job_id]
    stays = [
        (one, one.pack.delay_us, one.pack.delay_us + one.spec.time_limit_s * SECOND_US)
        for one in members
        if one.pack is not None
    ]
    return any(
        _never_fits(state, [one for one, from_us, until_us in stays if from_us <= at_us < until_us])
        for _, at_us, _ in stays
    )
