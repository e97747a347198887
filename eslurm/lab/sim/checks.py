"""Invariants of a simulated cluster from outside: the records, the disk, and the processes themselves.

The processes of the hosts are the truth here: the controller's state is checked against them. Each violation raises
`CheckFailed` with the observed values; the run adds its seed.
"""

from __future__ import annotations

from collections.abc import Sequence

from eslurm.core.agent import actions as act
from eslurm.core.control.log_keeping import BASES, Base
from eslurm.core.control.reactor import Batch
from eslurm.core.model import facts
from eslurm.core.model.controller_phases import PhaseKey
from eslurm.core.model.facts import decode_fact
from eslurm.core.model.job import Stop
from eslurm.core.model.job_states import FINAL, StopCause
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.protocol import JobLaunch
from eslurm.core.model.satellite_states import SatelliteState
from eslurm.core.model.step_key import BATCH_STEP, StepKey
from eslurm.core.relay.results import Status
from eslurm.core.state import invariants
from eslurm.core.state import rows as records
from eslurm.core.state.apply import apply
from eslurm.core.state.apply_accounts import records_of
from eslurm.core.state.cluster import State
from eslurm.lab.sim.controller_phase_checks import ControllerPhaseChecks
from eslurm.lab.sim.coverage import COUNTED
from eslurm.lab.sim.elastic_checks import WATCHED as OF_ELASTIC
from eslurm.lab.sim.elastic_checks import ElasticChecks
from eslurm.lab.sim.gateway_checks import WATCHED as OF_GATEWAYS
from eslurm.lab.sim.gateway_checks import GatewayChecks
from eslurm.lab.sim.health_checks import HealthFollower
from eslurm.lab.sim.host import Host
from eslurm.lab.sim.lending_apps import Applications
from eslurm.lab.sim.log_keeper import stored_bases
from eslurm.lab.sim.naive_dependencies import DependencyChecks
from eslurm.lab.sim.pack_checks import WATCHED as OF_PACKS
from eslurm.lab.sim.pack_checks import PackChecks
from eslurm.lab.sim.phase_checks import PhaseChecks
from eslurm.lab.sim.plan_checks import PlanChecks
from eslurm.lab.sim.retry_checks import OF_RETRIES, RetryChecks
from eslurm.lab.sim.script_runs import Clock, Occupancy, Run
from eslurm.lab.sim.site_view import SiteView
from eslurm.lab.sim.violation import require
from eslurm.ports import store
from eslurm.ports.step_runner import StepEndCause, StepOutcome, StepSpec
from eslurm.ports.store import AttemptRow, Head, JobRow, NodeRow, RecordRow, SettingRow, StepRow
from eslurm.replay import state_check
from eslurm.replay.base import unpack_base

AGENT_CHECK_EVERY = 16
BASE_CHECK_EVERY = 16
FULL_CHECK_WORK = 4
"""The whole state is checked after a fact once in a while, more rarely the bigger the cluster is."""

WATCHED = frozenset(
    (
        *("NodeRegistered", "NodeStateChanged", "NodesReleased", "AttemptEnded", "JobPlaced", "PartFinished"),
        *("ControllerPhaseEnded", "GrowthPlaced", "ConfigAccepted"),
    )
)
FOLLOWED_CHECK_EVERY = 16


class Checks:
    """Told of every fact, spawn and end; asked at each restart and at the end."""

    def __init__(self, world: SiteView) -> None:
        self.acknowledged: dict[int, None] = {}
        self.cancelled: dict[int, None] = {}
        self.commits = 0
        self.facts = 0
        self._world = world
        self._launches: dict[tuple[int, int], JobLaunch] = {}
        self._runs: dict[tuple[int, int], Run] = {}
        self._live: dict[int, dict[StepKey, Host]] = {}
        self._occupancy = Occupancy()
        self.packs = PackChecks(world.coverage, lambda: world.faults.is_calm, world.config.phases)
        self.plans = PlanChecks(self.packs)
        self.dependencies = DependencyChecks()
        self.retries = RetryChecks(world.coverage)
        self.phases = PhaseChecks(world.phases)
        self.health = HealthFollower()
        self.gateways = GatewayChecks(
            world.config,
            world.coverage,
            lambda: world.faults.calm_since_us,
            lambda: world.scheduler.at_us,
        )
        self.controller_phases = ControllerPhaseChecks(world.config.phases, world.coverage)
        self.elastic = ElasticChecks(world.coverage)
        self.applications = Applications(
            world,
            self._on_unused,
            self._stands_still,
            lambda: world.faults.calm_since_us,
            world.coverage.count,
        )
        self._replica = State(world.owner)
        self._ended: dict[tuple[int, int], facts.AttemptEnded] = {}
        # When each attempt was placed, and when its script began, by what the log says.
        self._placed: dict[tuple[int, int], int] = {}
        # The exit codes of the commands by which allocations were released.
        self._released: dict[tuple[int, int], int] = {}
        self._started: dict[tuple[int, int], int] = {}
        self._until_full = 0
        self._agent_calls = 0
        self._followed = 0
        self._prunes = 0
        self._satellites_down: dict[str, None] = {}
        self._leaders: dict[int, str] = {}
        self._written = Head()
        self._answered: dict[bytes, store.Batch] = {}
        # The last revision that each epoch has shown.
        self._shown: dict[int, int] = {}
        # The epoch under which the store says that a node has registered.
        self._registered: dict[int, int] = {}

    # ---- while it runs ----

    @property
    def jobs_left(self) -> int:
        """Number of jobs that have not ended, as the log has it."""
        return sum(job.state not in FINAL for job in self._replica.jobs.values())

    def on_fact(self, state: State, fact: facts.Fact) -> None:
        """After each applied fact: the touched job each time, the whole state now and then."""
        self.facts += 1
        if self._world.trace is not None:
            self._world.trace(self._world.now_us, f"fact {state.revision} {fact}")
        job_id = getattr(fact, "job_id", None)
        job = state.find_job(job_id) if job_id is not None else None
        if job is not None:
            invariants.check_job(state, job)
        self.health.on_fact(state, fact)
        self.plans.on_fact(state, fact)
        self._until_full -= 1
        if self._until_full < 0:
            self._until_full = (len(state.nodes) + len(state.jobs)) // FULL_CHECK_WORK
            state_check.check(state)

    # ---- writers and views ----

    def on_lead(self, epoch: int, name: str, state: State) -> None:
        """A controller begins to lead with this state."""
        require(epoch not in self._leaders, f"epoch {epoch} is {name}'s and was {self._leaders.get(epoch)}'s")
        head = self._world.disk.head(self._world.owner)
        at_end = epoch < head.epoch or state.revision == head.revision
        require(at_end, f"{name} leads from revision {state.revision}, the log ends at {head.revision}")
        self._leaders[epoch] = name
        self._world.coverage.on_lead(state)
        self.packs.on_lead(state)
        self.gateways.on_lead()
        self._satellites_down = dict.fromkeys(state.satellites_down)

    @property
    def leaders(self) -> tuple[str, ...]:
        """The leaders in sequence."""
        return tuple(self._leaders.values())

    def on_durable(self, epoch: int, batch: store.Batch) -> None:
        """A batch has become visible in the store, whether or not its writer lives to hear of it."""
        before = self._written
        fence = self._world.disk.leader(self._world.owner).epoch
        require(epoch == fence, f"epoch {epoch} writes though epoch {fence} was claimed")
        require(epoch in self._leaders, f"epoch {epoch} writes and nobody leads under it")
        require(batch.at_us >= before.at_us, f"time goes back from {before.at_us} to {batch.at_us}")
        follows = batch.revision_first == before.revision + 1
        require(follows, f"revision {batch.revision_first} is written after {before.revision}")
        self._written = Head(epoch, batch.revision_last, batch.at_us)
        for answer in batch.answers:
            # A batch without facts may be written again when its writer does not know how the first try ended.
            first = self._answered.setdefault(answer.request_id, batch)
            require(first is batch, f"request {answer.request_id!r} takes effect a second time")
        self.commits += 1
        self._world.parts.on_durable(epoch, batch)
        self._world.coverage.on_durable(
            decode_fact(row.kind, row.version, row.blob) for row in batch.facts if row.kind in COUNTED
        )
        self.elastic.on_batch(
            (decode_fact(row.kind, row.version, row.blob) for row in batch.facts if row.kind in OF_ELASTIC),
            batch.at_us,
            self._live,
        )
        for row in batch.facts:
            if row.kind in WATCHED:
                self._on_durable_fact(decode_fact(row.kind, row.version, row.blob))
        self.packs.on_batch(
            epoch,
            (decode_fact(row.kind, row.version, row.blob) for row in batch.facts if row.kind in OF_PACKS),
            batch.at_us,
        )
        self.retries.on_durable(
            decode_fact(row.kind, row.version, row.blob) for row in batch.facts if row.kind in OF_RETRIES
        )
        if self.gateways.gateways:
            self.gateways.on_batch(
                (
                    decode_fact(row.kind, row.version, row.blob)
                    for row in batch.facts
                    if row.kind in OF_GATEWAYS
                ),
                batch.at_us,
            )

    def _on_durable_fact(self, fact: facts.Fact) -> None:
        match fact:
            case facts.ConfigAccepted():
                self._world.files.on_accepted(fact)
            case facts.NodeRegistered():
                self._registered[fact.number] = fact.epoch
            case facts.NodeStateChanged(number, NodeState.LOST):
                self._on_lost(number)
            case facts.NodesReleased():
                self.phases.on_released(fact.job_id, fact.attempt, fact.nodes)
                self._on_released(fact)
            case facts.AttemptEnded():
                self.phases.on_released(fact.job_id, fact.attempt, fact.released)
            case facts.ControllerPhaseEnded():
                key = PhaseKey(fact.job_id, fact.attempt, fact.phase, fact.run)
                self.controller_phases.on_logged(key)
            case facts.PartFinished():
                run = self._runs.get((fact.job_id, fact.attempt))
                if run is not None:
                    self._occupancy.give_part_back(run, fact.component)
            case facts.GrowthPlaced():
                run = self._runs.get((fact.job_id, fact.attempt))
                if run is not None and run.outcome is None and not run.disturbed:
                    added = {span.node: span.amounts for span in fact.spans}
                    problem = self._occupancy.add(run, added, self._world.totals)
                    require(not problem, problem)
            case facts.JobPlaced():
                cancelled = fact.job_id in self.cancelled or fact.array_job_id in self.cancelled
                require(not cancelled, f"job {fact.job_id} is placed after its cancellation was acknowledged")
            case _:
                pass

    def on_shown(self, epoch: int, batch: Batch) -> None:
        """A leader lets others see a batch: its own commit of exactly these revisions is durable."""
        if not batch.facts:
            return
        world = self._world
        last = batch.revision_first + len(batch.facts) - 1
        durable = world.disk.head(world.owner).revision
        require(last <= durable, f"revision {last} is shown, {durable} is durable")
        shown = self._shown.get(epoch, batch.revision_first - 1)
        in_order = batch.revision_first == shown + 1
        require(in_order, f"revision {batch.revision_first} is shown after revision {shown}")
        self._shown[epoch] = last
        try:
            logged = next(world.disk.load_facts(world.owner, last))
        except store.LogPruned:
            # A leader that stood still meanwhile: the log has gone on without it.
            return
        require(logged.epoch == epoch, f"epoch {epoch} shows revision {last} of epoch {logged.epoch}")
        if epoch != self._newest_epoch:
            return
        for fact in batch.facts:
            if isinstance(fact, facts.SatelliteChanged):
                self._satellites_down.pop(fact.name, None)
                if fact.state is SatelliteState.DOWN:
                    self._satellites_down[fact.name] = None

    def on_prune(self, before_revision: int) -> None:
        """Facts before this revision are about to go: a base state holds what they say."""
        self._replay()
        bases = self._bases
        held = bases[-1].revision if bases else 0
        require(
            before_revision <= held + 1,
            f"facts before {before_revision} go, the base state is of revision {held}",
        )
        self._prunes += 1
        if self._prunes % BASE_CHECK_EVERY == 0:
            # The oldest of those after which the log stays whole.
            self._check_base(next(base for base in bases if base.revision + 1 >= before_revision))

    @property
    def _newest_epoch(self) -> int:
        """Epoch of the last controller that began to lead."""
        return next(reversed(self._leaders), 0)

    def on_obeyed(self, epoch: int, numbers: Sequence[int], actions: Sequence[act.Action]) -> None:
        """An agent did this on a command: nothing, if a later leader has registered one of these nodes."""
        if not any(self._registered.get(number, 0) > epoch for number in numbers):
            return
        done = [action for action in actions if _is_obeying(action)]
        require(not done, f"nodes {list(numbers)[:4]} obey epoch {epoch}, which is over for them: {done[:1]}")

    def on_followed(self, state: State) -> None:
        """A standby has caught up: now and then its state is held against the rows."""
        self._followed += 1
        if self._followed % FOLLOWED_CHECK_EVERY == 0:
            self._compare_rows(state)

    # ---- what is heard of ----

    def on_acknowledged(self, job_ids: Sequence[int]) -> None:
        """These jobs were acknowledged to a client: they are in the store, now and for ever."""
        again = [job_id for job_id in job_ids if job_id in self.acknowledged]
        require(not again, f"job ids {again[:5]} are given a second time")
        self.acknowledged.update(dict.fromkeys(job_ids))
        self._all_acknowledged()

    def on_heard(self, revision: int, what: str) -> None:
        """Something that follows from this revision was heard of outside the controller: it is durable."""
        durable = self._world.disk.head(self._world.owner).revision
        require(revision <= durable, f"{what} of revision {revision} is out, {durable} is durable")

    def on_given(self, number: int, epoch: int) -> None:
        """The controller of that epoch gives a share of a broadcast to a satellite, or to a node."""
        if number < 0 and epoch == self._newest_epoch:
            name = self._world.satellite_names[-1 - number]
            require(name not in self._satellites_down, f"{name} is DOWN and is given work")

    def on_launch(self, launch: JobLaunch) -> None:
        """An agent is about to start this script."""
        self._launches[launch.job_id, launch.attempt] = launch
        self.retries.on_launch(launch)
        self.phases.on_launch(launch)

    def on_spawn(self, host: Host, spec: StepSpec) -> None:
        """Processes come into being: once per attempt, one attempt per job, and nowhere more than fits."""
        key = spec.key
        self._world.note(f"spawn {key} on {host.address}")
        self._world.parts.on_spawn(key)
        self.phases.on_spawn(key)
        self.gateways.on_spawn(key)
        self.controller_phases.on_spawn(key)
        if key.is_phase:
            # A job that goes elsewhere leaves its nodes to their epilogs.
            return
        live = self._live.setdefault(key.job_id, {})
        others = [other for other in live if other.attempt != key.attempt]
        require(not others, f"{key} starts while {others[:1]} of the same job still runs")
        live[key] = host
        if key.step == BATCH_STEP:
            self._world.coverage.on_spawn(key)
            self._on_script(host, key)

    def on_ready(self, key: StepKey) -> None:
        """A step of gateways serves."""
        self._world.note(f"ready {key}")
        self.gateways.on_ready(key)

    def on_signalled(self, key: StepKey, signal: int) -> None:
        """A host has sent a step a signal."""
        self.gateways.on_signalled(key, signal)

    def on_agent_started(self, numbers: Sequence[int]) -> None:
        """An agent begins anew on these nodes."""
        self.gateways.on_agent_started(numbers)

    @property
    def busy_hosts(self) -> list[Host]:
        """Hosts on which a script runs, in the order of the jobs."""
        hosts = {host.index: host for live in self._live.values() for host in live.values()}
        return list(hosts.values())

    def _on_script(self, host: Host, key: StepKey) -> None:
        attempt = (key.job_id, key.attempt)
        require(attempt not in self._runs, f"the script of attempt {attempt} runs a second time")
        self.packs.on_script(key)
        launch = self._launches[attempt]
        clock = Clock(self._world.scheduler.at_us, launch.spec.time_limit_s * 1_000_000)
        run = self._runs[attempt] = Run(host, key, launch, clock)
        self._replay()
        job = self._replica.jobs.get(key.job_id)
        if job is not None and job.attempt is not None and job.attempt.number == key.attempt:
            # A start that was under way when another node was given up: the order to end it follows.
            for number in run.usage.keys() - job.attempt.held - {key.node}:
                del run.usage[number]
        problem = self._occupancy.take(run, self._world.totals)
        require(not problem, problem)
        if run.shares_node:
            self._world.coverage.count("two parts on one node")
        if launch.spec.cooperate:
            self.applications.begin(host, key, launch)

    def _on_unused(self, key: StepKey, cores: int) -> None:
        """An application runs nothing on so many of its cores."""
        run = self._runs[key.job_id, key.attempt]
        problem = self._occupancy.leave(run, key.node, cores, self._world.totals)
        require(not problem, problem)

    def _stands_still(self, key: StepKey) -> bool:
        return self._runs[key.job_id, key.attempt].clock.is_still

    def on_step_ended(self, outcome: StepOutcome) -> None:
        """Processes are gone; said any number of times."""
        key = outcome.key
        self._world.note(f"ended {key} {outcome.exit_code} {outcome.cause.value}")
        self.phases.on_ended(outcome)
        self.gateways.on_ended(outcome)
        self.controller_phases.on_step_ended(key)
        if self._live.get(key.job_id, {}).pop(key, None) is None or key.step != BATCH_STEP:
            return
        self._world.coverage.on_ended(outcome)
        self.applications.end(key)
        run = self._runs[key.job_id, key.attempt]
        run.outcome = outcome
        if outcome.cause is StepEndCause.TIME_LIMIT:
            used_us = run.clock.used_us(self._world.scheduler.at_us)
            limit_us = run.clock.limit_us
            require(
                0 < limit_us <= used_us, f"{key} was ended by its limit of {limit_us} us after {used_us} us"
            )
        self._free(run)

    def on_still(self, key: StepKey, *, is_still: bool) -> None:
        """The runner got the order that a step stands still, or goes on."""
        run = self._runs.get((key.job_id, key.attempt))
        if run is not None and key == run.key and run.outcome is None:
            run.clock.stand_still(self._world.scheduler.at_us, is_still=is_still)
            self._world.note(f"{'still' if is_still else 'on'} {key}")
            if is_still:
                self._occupancy.lend(run)
            else:
                problem = self._occupancy.go_on(run, self._world.totals)
                require(not problem, problem)

    def on_limit(self, key: StepKey, limit_us: int) -> None:
        """The runner got another time limit."""
        run = self._runs.get((key.job_id, key.attempt))
        if run is not None and key == run.key:
            run.clock.set_limit(self._world.scheduler.at_us, limit_us)
            self._world.note(f"limit {key} {limit_us}")

    def on_reboot(self, host: Host) -> None:
        """All processes of the host are gone, and their ends may stay unknown."""
        self.phases.on_reboot(host.numbers)
        self.gateways.on_reboot(host.numbers)
        self.controller_phases.on_vacated(host.numbers)
        for live in self._live.values():
            for key in [key for key, other in live.items() if other is host]:
                del live[key]
                self.applications.end(key)
                if key.step == BATCH_STEP:
                    run = self._runs[key.job_id, key.attempt]
                    run.disturbed = True
                    self._free(run)
        for number in host.numbers:
            self._vacate(number)

    def _on_lost(self, number: int) -> None:
        """The controller gave a node up: what runs there is no longer held against it."""
        self.phases.on_lost(number)
        self.controller_phases.on_vacated((number,))
        for run in self._runs.values():
            run.disturbed = run.disturbed or run.key.node == number
        self._vacate(number)

    def _on_released(self, fact: facts.NodesReleased) -> None:
        """Other nodes than the script's may be given back before it ends, when it is being ended."""
        run = self._runs.get((fact.job_id, fact.attempt))
        if run is None:
            return
        for number in fact.nodes:
            if number != run.key.node:
                self._occupancy.give_back(run, number)

    def _vacate(self, number: int) -> None:
        for run in self._runs.values():
            if number in run.usage:
                self._occupancy.give_back(run, number)

    def _free(self, run: Run) -> None:
        for number in list(run.usage):
            self._occupancy.give_back(run, number)

    def samples_agent(self) -> bool:
        """Check whether an agent's own invariants are looked at after this call."""
        self._agent_calls += 1
        return self._agent_calls % AGENT_CHECK_EVERY == 0

    # ---- the disk ----

    def on_restart(self, state: State) -> None:
        """A controller starts from the rows: they are what the log says, and nothing acknowledged is missing."""
        self._replay()
        self._compare_rows(self._replica)
        self._compare_states(state, self._replica)
        self._all_acknowledged()
        state_check.check(state)

    def _replay(self) -> None:
        world = self._world
        for logged in world.disk.load_facts(world.owner, self._replica.revision + 1):
            fact = decode_fact(logged.kind, logged.version, logged.blob)
            apply(self._replica, fact, logged.revision, logged.at_us)
            self._account(fact, logged.at_us)
            self.plans.on_logged(self._replica, fact, logged.at_us)
            self.dependencies.on_logged(self._replica, fact, logged.at_us)
            self.elastic.on_logged(self._replica, fact)
        self._replica.take_touched()

    @property
    def _bases(self) -> list[Base]:
        """The base states in the store, oldest first."""
        return stored_bases(self._world.disk.rows(self._world.owner)[SettingRow.TABLE].get((BASES,)))

    def _check_base(self, stored: Base) -> None:
        """A base state and what is left of the log are the state, too."""
        world = self._world
        base = unpack_base(world.owner, world.disk.get_blob(world.owner, stored.hash))
        require(
            base.revision == stored.revision, f"base state {stored.revision} is of revision {base.revision}"
        )
        for logged in world.disk.load_facts(world.owner, base.revision + 1):
            fact = decode_fact(logged.kind, logged.version, logged.blob)
            apply(base, fact, logged.revision, logged.at_us)
        self._compare_states(base, self._replica)

    def _account(self, fact: facts.Fact, at_us: int) -> None:
        match fact:
            case facts.JobPlaced():
                key = (fact.job_id, fact.attempt)
                require(key not in self._placed, f"attempt {key} is placed twice")
                self._placed[key] = at_us
            case facts.AttemptReturned():
                run = self._runs.get((fact.job_id, fact.attempt))
                if run is None or run.outcome is None:
                    is_lost = fact.end.cause in ("lost", "spawn_failed")
                    require(is_lost, f"attempt {fact.job_id}.{fact.attempt} has not ended: {fact}")
                else:
                    seen = run.outcome
                    said = (fact.end.exit_code, fact.end.signal, fact.end.cause)
                    require(
                        said == (seen.exit_code, seen.signal, seen.cause.value), f"{seen} is told as {fact}"
                    )
                self._world.coverage.count("end of a lost attempt accounted")
            case facts.StopRequested(stop=Stop(cause=StopCause.RELEASE)):
                self._released[fact.job_id, fact.attempt] = fact.stop.exit_code
            case facts.AttemptStarted():
                key = (fact.job_id, fact.attempt)
                self._started[key] = fact.started_us
                self._in_order(key, fact.started_us, at_us)
            case facts.AttemptEnded():
                key = (fact.job_id, fact.attempt)
                require(key not in self._ended, f"the end of attempt {key} is accounted twice")
                require(key in self._placed, f"attempt {key} ends without having begun")
                self._ended[key] = fact
                self._judge(key, fact)
                if fact.end is not None and fact.end.ended_us:
                    began_us = self._started.get(key, fact.end.started_us)
                    self._in_order(key, began_us, fact.end.ended_us, at_us)
            case _:
                pass

    def _in_order(self, key: tuple[int, int], *times_us: int) -> None:
        """Check that accounting is consistent whatever the clocks of the nodes say."""
        order = (self._placed[key], *times_us)
        require(list(order) == sorted(order), f"placed, started, ended, known of attempt {key}: {order}")

    def _judge(self, key: tuple[int, int], fact: facts.AttemptEnded) -> None:
        """Check the accounting against the actual run."""
        run = self._runs.get(key)
        if run is None:
            never_ran = fact.end is None or fact.end.cause in ("spawn_failed", "lost")
            require(never_ran, f"attempt {key} never ran: {fact.end}")
            return
        if fact.end is None:
            require(
                run.disturbed, f"the script of attempt {key} ran, but is accounted as if it had not: {fact}"
            )
        elif run.outcome is not None and run.outcome.cause is not StepEndCause.LOST:
            seen = (run.outcome.exit_code, run.outcome.signal, run.outcome.cause.value)
            if key in self._released and run.outcome.cause is StepEndCause.SIGNALLED:
                seen = (self._released[key], 0, StepEndCause.EXITED.value)
            said = (fact.end.exit_code, fact.end.signal, fact.end.cause)
            require(seen == said or run.disturbed, f"attempt {key} ended with {seen}, accounted is {said}")

    def _compare_rows(self, replica: State) -> None:
        """Every current row is the record that applying the log gives."""
        world = self._world
        rows = world.disk.rows(world.owner)
        for number, node in replica.nodes.items():
            row = rows[NodeRow.TABLE].get((number,))
            require(isinstance(row, NodeRow) and row.blob == records.encode(node), f"row of node {node.name}")
        kept = {
            (row.kind, row.name): records.decode_record(row.kind, row.blob)
            for row in rows[RecordRow.TABLE].values()
            if isinstance(row, RecordRow)
        }
        require(kept == records_of(replica), "rows of policies and usage")
        for job_id, job in replica.jobs.items():
            row = rows[JobRow.TABLE].get((job_id,))
            require(
                isinstance(row, JobRow) and records.decode_job(row.blob) == job,
                f"row of job {job_id}: {row} is not {job}",
            )
        setting = rows[SettingRow.TABLE].get(("state",))
        if replica.revision:
            blob = records.encode(records.settings_of(replica))
            require(isinstance(setting, SettingRow) and setting.blob == blob, "row of the settings")
        steps = {
            (row.job_id, row.attempt, row.step)
            for row in rows[StepRow.TABLE].values()
            if isinstance(row, StepRow)
        }
        for step in replica.steps.values():
            require((step.job_id, step.attempt, str(step.step)) in steps, f"row of step {step}")
        attempts = {row.key for row in rows[AttemptRow.TABLE].values() if isinstance(row, AttemptRow)}
        for key in self._ended:
            require(key in attempts, f"attempt {key} has ended without a row in accounting")

    def _compare_states(self, state: State, replica: State) -> None:
        """State and replay agree on all that is not finished."""
        require(state.revision == replica.revision, f"revision {state.revision}, replayed {replica.revision}")
        require(state.nodes == replica.nodes, "nodes differ from the replay")
        require(records_of(state) == records_of(replica), "policies or usage differ from the replay")
        for job_id in state.jobs.keys() | replica.jobs.keys():
            job, twin = state.find_job(job_id), replica.find_job(job_id)
            finished = twin is not None and twin.state in FINAL and not twin.residues
            require(job == twin or (job is None and finished), f"job {job_id}: {job}, replayed {twin}")
        require(state.owed == replica.owed, "owed effects differ from the replay")
        require(records.settings_of(state) == records.settings_of(replica), "settings differ from the replay")

    def _all_acknowledged(self) -> None:
        rows = self._world.disk.rows(self._world.owner)[JobRow.TABLE]
        missing = [job_id for job_id in self.acknowledged if (job_id,) not in rows]
        require(not missing, f"acknowledged jobs {missing[:5]} are not in the store")

    # ---- the end ----

    def unsettled(self, state: State) -> str:
        """The events that are still missing at the end of the run; empty when all is quiet."""
        for job in state.jobs.values():
            if job.state not in FINAL or job.residues:
                return f"job {job.job_id} is {job.state.value} ({job.reason_text or job.hold or job.attempt or job.open})"
        for node in state.nodes.values():
            if node.state.value != "UP":
                return f"node {node.name} is {node.state.value}"
        for host in self._world.hosts:
            if host.agent is None:
                return f"{host.address} has no agent"
            if set(host.names).isdisjoint(self._world.files.names_in_force):
                # What its nodes have left no leader asks for.
                continue
            if known := host.runner.do_list():
                return f"{host.address} still knows {known[0]}"
        return self.health.unsettled(state)

    def at_end(self, state: State) -> None:
        """All jobs are final, nothing is held anywhere, and everything was accounted once."""
        self.on_restart(state)
        for newest in self._bases[-1:]:
            self._check_base(newest)
        for key in self._placed:
            require(key in self._ended, f"attempt {key} was placed and its end never accounted")
        self.plans.at_end()
        self.controller_phases.at_end(self._placed)
        for key in self._runs:
            require(key in self._placed, f"the script of {key} ran and was never placed")
        for position, number in enumerate(state.ledger.topology.numbers):
            holds = list(state.ledger.holds_on(position))
            require(not holds, f"node {number} still holds {holds}")
        for host in self._world.hosts:
            agent = host.agent
            require(agent is not None, f"{host.address} has no agent")
            assert agent is not None
            in_force = self._world.files.names_in_force
            for node in agent.agent.registry.by_name.values():
                if node.offer.name not in in_force:
                    continue
                require(not node.attempts, f"{node.offer.name} still holds {list(node.attempts)}")
        for job_id in self.acknowledged:
            row = self._world.disk.rows(self._world.owner)[JobRow.TABLE][job_id,]
            require(isinstance(row, JobRow) and row.finished, f"job {job_id} has not finished: {row}")


def _is_obeying(action: act.Action) -> bool:
    if isinstance(action, act.Answer):
        return action.outcome.status is not Status.FAILED
    return isinstance(
        action,
        act.RunBatch
        | act.RunTasks
        | act.RunPhase
        | act.SignalStep
        | act.TerminateStep
        | act.SuspendStep
        | act.LimitStep,
    )
