"""Invariants of gateways from outside (X-52, X-53): by the log, batch by batch, and by the processes of the hosts.

A gateway node is one job's at a time, and no plain job's. A script begins only when the daemons of all gateways have told
their addresses and the routes are written. A failed start puts the job back into the queue for ten minutes, once, with
nothing held. A daemon that dies while the script runs is one signal to it. No daemon and no helper is left on a node that
is given back. Nothing here is shared with the controller but facts and records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

from eslurm.core.model import facts
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.gateways import GatewayStage
from eslurm.core.model.job import JobSpec
from eslurm.core.model.job_states import JobState
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.step_key import BATCH_STEP, GATEWAY_STEP, ROUTE_STEP, StepKey
from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.coverage import Coverage
from eslurm.lab.sim.gateway_draws import gateways_of
from eslurm.lab.sim.violation import require
from eslurm.ports.step_runner import StepEndCause, StepOutcome

WATCHED: Final = frozenset(
    (
        "JobSubmitted",
        "JobPlaced",
        "NodesPrepared",
        "GatewaysStaged",
        "GatewayUp",
        "GatewayDown",
        "AttemptStarted",
        "JobSignalled",
        "AttemptEnded",
        "NodesReleased",
        "NodesLost",
        "NodeStateChanged",
    )
)
"""Kinds of facts that say something of gateways."""
DAEMONS, ROUTES, RUN, ERROR = (
    "gateway daemons start",
    "routes are written",
    "a job has gateways",
    "an error file is written",
)
"""The stages by the names of the paths that are counted."""
LIMITS_S: Final = {DAEMONS: 300, ROUTES: 60, ERROR: 10}
RETRY_US: Final = 600 * SECOND_US
LATE_US: Final = 60 * SECOND_US
"""From the calm on, what a limit or an end brings about comes so late at most: repeated commands included."""
FAILED: Final = "its gateways failed"
STOPPED: Final = ("cancel", "requeue", "preempt")

Attempted = tuple[int, int]
"""(job, attempt)."""
OnStage = Callable[[Attempted, str, tuple[int, ...]], None]
"""An attempt enters a stage; its nodes, gateways last."""


class _Attempt(msgspec.Struct):
    """An attempt of a job with gateways, by the log."""

    nodes: tuple[int, ...]
    gateways: frozenset[int]
    unprepared: set[int]
    held: set[int]
    stage: str = ""
    since_us: int = 0
    up: dict[int, tuple[str, ...]] = {}
    started_us: int = 0
    """Time of the fact in the log; 0: its script does not run yet."""
    downs: int = 0
    """Daemons that have ended since the routes were written."""
    signals: int = 0
    """Signals that the script has got for them."""
    ended_us: int = 0


class Death(msgspec.Struct, frozen=True):
    """Of an attempt whose daemon died: how long its script ran on, and what became of it."""

    ran_on_us: int
    downs: int
    signals: int
    delivered: int


class GatewayChecks:
    """Kept by the run's `Checks`. `is_calm_since` is when the last fault was, 0 before.

    How long a stage lasts is measured by the run's own time `now_us`: clocks of leaders jump, also when they are set right.
    """

    def __init__(
        self,
        config: ClusterConfig,
        coverage: Coverage,
        is_calm_since: Callable[[], int],
        now_us: Callable[[], int],
    ) -> None:
        names = frozenset(gateways_of(config))
        self.gateways = frozenset(at for at, node in enumerate(config.nodes) if node.name in names)
        self._signal = config.gateway_signal
        self._coverage = coverage
        self._is_calm_since = is_calm_since
        self._now_us = now_us
        self.on_stage: OnStage = lambda key, stage, nodes: None
        self._specs: dict[int, JobSpec] = {}
        self._attempts: dict[Attempted, _Attempt] = {}
        self._holders: dict[int, Attempted] = {}
        """By gateway node."""
        self._not_before: dict[int, int] = {}
        """By job that waits after a failure of its gateways."""
        # ---- the hosts ----
        self._live: dict[int, dict[StepKey, None]] = {}
        self._gone: set[tuple[int, Attempted]] = set()
        """Nodes that attempts have given back because nothing of them is left there."""
        self._ready: set[StepKey] = set()
        self._routed: set[Attempted] = set()
        self._signalled: dict[Attempted, int] = {}
        self._died: dict[Attempted, int] = {}
        """Time at which a daemon of an attempt first ended by itself."""
        self.seen: dict[str, int] = {}
        """Number of checks of each kind: a check that never runs finds nothing."""

    # ---- the log ----

    def on_batch(self, batch: Iterable[facts.Fact], at_us: int) -> None:
        """The watched facts of one durable commit, in order."""
        found = list(batch)
        lost = {
            fact.number
            for fact in found
            if isinstance(fact, facts.NodeStateChanged) and fact.state is NodeState.LOST
        }
        for number in lost:
            self._on_lost(number)
        for fact in found:
            if isinstance(fact, facts.JobSubmitted):
                if fact.spec.gateway is not None:
                    self._specs[fact.job_id] = fact.spec
            elif isinstance(fact, facts.JobPlaced):
                self._on_placed(fact, at_us)
            else:
                key: Attempted = (getattr(fact, "job_id", 0), getattr(fact, "attempt", 0))
                attempt = self._attempts.get(key)
                if attempt is not None:
                    self._on_fact(key, attempt, fact, at_us)
        for fact in found:
            if isinstance(fact, facts.GatewayDown | facts.AttemptStarted):
                self._check_signals((fact.job_id, fact.attempt))

    def _on_placed(self, fact: facts.JobPlaced, at_us: int) -> None:
        key = (fact.job_id, fact.attempt)
        nodes = tuple(dict.fromkeys([span.node for span in fact.spans]))
        spec = self._specs.get(fact.array_job_id or fact.job_id)
        if spec is None or spec.gateway is None:
            taken = self.gateways.intersection(nodes)
            require(
                not taken, f"job {fact.job_id} has no gateways and is placed on the gateway nodes {taken}"
            )
            return
        # A task of an array that waits again is an ordinary job.
        self._specs[fact.job_id] = spec
        self._count("placed")
        last = len(spec.components) - 1
        own = frozenset(span.node for span in fact.spans if span.component == last)
        require(
            own == self.gateways.intersection(nodes), f"job {fact.job_id} has {nodes}, its gateways are {own}"
        )
        require(
            len(own) == spec.gateway.count,
            f"job {fact.job_id} got {len(own)} gateways of {spec.gateway.count}",
        )
        for number in sorted(own):
            holder = self._holders.setdefault(number, key)
            require(holder == key, f"gateway node {number} is given to attempt {key}, it is {holder}'s")
        for other, before in self._attempts.items():
            is_left = other[0] == fact.job_id and before.held
            require(not is_left, f"job {fact.job_id} is placed while its attempt {other} holds {before.held}")
        due_us = self._not_before.pop(fact.job_id, 0)
        require(
            at_us >= due_us,
            f"job {fact.job_id} is placed {due_us - at_us} us too early after its gateways failed",
        )
        self._attempts[key] = _Attempt(nodes, own, set(nodes), set(nodes))

    def _on_fact(self, key: Attempted, attempt: _Attempt, fact: facts.Fact, at_us: int) -> None:
        match fact:
            case facts.NodesPrepared():
                attempt.unprepared.difference_update(fact.nodes)
                if not attempt.unprepared and not attempt.stage:
                    self._enter(key, attempt, DAEMONS)
            case facts.GatewayUp():
                step = StepKey(*key, GATEWAY_STEP, fact.node)
                is_known = step in self._ready and fact.node in attempt.gateways
                require(
                    is_known,
                    f"gateway {fact.node} of attempt {key} tells {fact.addresses} and does not serve",
                )
                attempt.up[fact.node] = fact.addresses
            case facts.GatewaysStaged():
                self._on_staged(key, attempt, fact)
            case facts.GatewayDown() if attempt.stage == RUN:
                attempt.downs += 1
                self._coverage.count("gateway daemon died while its job ran")
            case facts.AttemptStarted():
                require(
                    attempt.stage == RUN,
                    f"attempt {key} starts while {attempt.stage or 'its nodes are prepared'}",
                )
                attempt.started_us = self._now_us()
            case facts.JobSignalled() if fact.by == "a gateway":
                require(attempt.started_us > 0, f"attempt {key} is sent {fact.signal} and does not run")
                require(
                    fact.signal == self._signal, f"attempt {key} is sent {fact.signal}, not {self._signal}"
                )
                attempt.signals += 1
            case facts.AttemptEnded():
                self._on_ended(key, attempt, fact, at_us)
            case facts.NodesReleased():
                self._on_released(key, attempt, fact.nodes)
            case facts.NodesLost():
                self._give_back(key, attempt, fact.nodes)
            case _:
                pass

    def _enter(self, key: Attempted, attempt: _Attempt, stage: str) -> None:
        limit_s = LIMITS_S.get(attempt.stage)
        calm_us, now_us = self._is_calm_since(), self._now_us()
        if limit_s is not None and calm_us:
            most_us = max(attempt.since_us + limit_s * SECOND_US, calm_us) + LATE_US
            require(
                now_us <= most_us, f"attempt {key}: {attempt.stage} since {attempt.since_us}, until {now_us}"
            )
        attempt.stage, attempt.since_us = stage, now_us
        if stage:
            self._count(stage)
            self.on_stage(key, stage, attempt.nodes)

    def _on_staged(self, key: Attempted, attempt: _Attempt, fact: facts.GatewaysStaged) -> None:
        if fact.stage is GatewayStage.FAILED:
            require(
                attempt.stage in (DAEMONS, ROUTES),
                f"the gateways of attempt {key} fail while {attempt.stage}",
            )
            is_late = self._now_us() >= attempt.since_us + LIMITS_S[attempt.stage] * SECOND_US
            self._coverage.count(
                f"limit reached while {attempt.stage}" if is_late else f"failure while {attempt.stage}"
            )
            self._enter(key, attempt, ERROR)
            return
        missing = attempt.gateways - attempt.up.keys()
        require(
            not missing, f"attempt {key} enters {fact.stage}, its gateways {missing} have told no address"
        )
        if fact.stage is GatewayStage.READY:
            require(key in self._routed, f"the gateways of attempt {key} are ready and no routes are written")
        self._enter(key, attempt, ROUTES if fact.stage is GatewayStage.ROUTES else RUN)

    def _on_ended(self, key: Attempted, attempt: _Attempt, fact: facts.AttemptEnded, at_us: int) -> None:
        has_failed = fact.text.startswith(FAILED)
        require(
            has_failed == (attempt.stage == ERROR and not self._is_stopped(fact)),
            f"attempt {key} ends while {attempt.stage}: {fact}",
        )
        if attempt.stage and self._is_stopped(fact) and fact.text.startswith(STOPPED):
            self._coverage.count(f"job stopped while {attempt.stage}")
        if has_failed:
            self._count("failed")
            is_late = self._now_us() >= attempt.since_us + LIMITS_S[ERROR] * SECOND_US
            if is_late:
                self._coverage.count(f"limit reached while {ERROR}")
            is_right = fact.outcome is JobState.PENDING and fact.not_before_us == at_us + RETRY_US
            require(is_right, f"the gateways of attempt {key} failed at {at_us}: {fact}")
            self._not_before[key[0]] = at_us + RETRY_US
        self._enter(key, attempt, "")
        attempt.ended_us = self._now_us()
        self._on_released(key, attempt, fact.released)
        if fact.residue:
            self._give_back(key, attempt, attempt.nodes)

    def _is_stopped(self, fact: facts.AttemptEnded) -> bool:
        """Check whether an attempt whose script has not begun ends for its user, another job, or a lost node."""
        return fact.text.startswith(STOPPED) or bool(fact.released)

    def _on_released(self, key: Attempted, attempt: _Attempt, nodes: Collection[int]) -> None:
        for number in nodes:
            if number not in attempt.held:
                continue
            left = [step for step in self._live.get(number, ()) if (step.job_id, step.attempt) == key]
            require(not left, f"node {number} is given back by attempt {key}, whose {left} runs")
            self._gone.add((number, key))
        self._give_back(key, attempt, nodes)
        if not attempt.held and attempt.ended_us and 0 < self._is_calm_since() <= attempt.ended_us:
            self._count("given back")
            late_us = self._now_us() - attempt.ended_us
            require(late_us <= LATE_US, f"attempt {key} gives its nodes back {late_us} us after its end")

    def _give_back(self, key: Attempted, attempt: _Attempt, nodes: Iterable[int]) -> None:
        for number in nodes:
            attempt.held.discard(number)
            if self._holders.get(number) == key:
                del self._holders[number]

    def _on_lost(self, number: int) -> None:
        """The controller gave the node up, with all that may still run there."""
        self._live.pop(number, None)
        for key, attempt in self._attempts.items():
            if number in attempt.held:
                if attempt.stage:
                    self._coverage.count(f"node lost while {attempt.stage}")
                self._give_back(key, attempt, (number,))

    def _check_signals(self, key: Attempted) -> None:
        """Check that each daemon that dies is one signal to a script that runs; those that died before its start are one."""
        attempt = self._attempts.get(key)
        if attempt is None or not attempt.started_us or attempt.ended_us:
            return
        self._count("signals")
        fits = attempt.signals <= attempt.downs and bool(attempt.signals) == bool(
            attempt.downs and self._signal
        )
        require(
            fits, f"attempt {key} was sent {attempt.signals} signals for {attempt.downs} daemons that died"
        )

    # ---- processes ----

    def on_spawn(self, key: StepKey) -> None:
        """Processes of a step come into being."""
        own = (key.job_id, key.attempt)
        if key.node in self.gateways and not key.is_phase:
            require(key.step == GATEWAY_STEP, f"{key} runs on a gateway node and is no daemon")
            others = [one for one in self._live.get(key.node, ()) if one.job_id != key.job_id]
            require(not others, f"{key} runs on a gateway node where {others} run")
        if key.is_gateway:
            self._count("steps")
            require(
                (key.node, own) not in self._gone, f"{key} runs after its attempt has given the node back"
            )
            self._live.setdefault(key.node, {})[key] = None
        if key.step == BATCH_STEP and (attempt := self._attempts.get(own)) is not None:
            self._count("scripts")
            silent = [
                node for node in attempt.gateways if StepKey(*own, GATEWAY_STEP, node) not in self._ready
            ]
            require(not silent, f"the script of {own} runs, and its gateways {silent} have told no address")
            require(own in self._routed, f"the script of {own} runs, and its routes are not written")

    def on_ready(self, key: StepKey) -> None:
        """The daemons serve, or the helper has written the routes and stays."""
        self._ready.add(key)
        if key.step == ROUTE_STEP:
            self._routed.add((key.job_id, key.attempt))

    def on_ended(self, outcome: StepOutcome) -> None:
        """Processes of a step are gone."""
        key = outcome.key
        self._live.get(key.node, {}).pop(key, None)
        if key.step == GATEWAY_STEP and outcome.cause is StepEndCause.EXITED:
            self._died.setdefault((key.job_id, key.attempt), outcome.ended_us)
        if key.step == ROUTE_STEP and outcome.exit_code == 0 and outcome.cause is StepEndCause.EXITED:
            self._routed.add((key.job_id, key.attempt))

    def on_signalled(self, key: StepKey, signal: int) -> None:
        """A host has sent a step a signal."""
        own = (key.job_id, key.attempt)
        attempt = self._attempts.get(own)
        if attempt is None or not key.is_batch or signal != self._signal:
            return
        self._signalled[own] = self._signalled.get(own, 0) + 1
        self._count("delivered")
        got = self._signalled[own]
        require(got <= attempt.signals, f"the script of {own} gets signal {got} of {attempt.signals}")

    def deaths(self, now_us: int) -> list[Death]:
        """The attempts with a daemon that died before the end of their script."""
        found = []
        for key, died_us in self._died.items():
            one = self._attempts[key]
            if one.started_us:
                ran_on_us = (one.ended_us or now_us) - max(died_us, one.started_us)
                found.append(Death(ran_on_us, one.downs, one.signals, self._signalled.get(key, 0)))
        return found

    def on_reboot(self, numbers: Collection[int]) -> None:
        """The host of these nodes was booted: what ran there is gone."""
        for number in numbers:
            self._live.pop(number, None)

    def on_agent_started(self, numbers: Collection[int]) -> None:
        """An agent begins anew on these nodes."""
        for attempt in self._attempts.values():
            if attempt.stage and not attempt.held.isdisjoint(numbers):
                self._coverage.count(f"agent restarted while {attempt.stage}")

    def on_lead(self) -> None:
        """A controller begins to lead."""
        for stage in {attempt.stage for attempt in self._attempts.values()} - {""}:
            self._coverage.count(f"takeover while {stage}")

    def _count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1
