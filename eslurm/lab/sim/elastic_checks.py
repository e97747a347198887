"""Invariants of jobs that grow and shrink, by what the log says and what the hosts do.

Invariant: the checks follow from facts and processes alone, whatever the state keeps of nodes and segments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from eslurm.core.model import facts
from eslurm.core.model.job_states import JobState
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.step_key import StepKey
from eslurm.core.state.cluster import State
from eslurm.core.state.segments import segments_of
from eslurm.lab.sim.coverage import Coverage
from eslurm.lab.sim.violation import require

Attempted = tuple[int, int]

WATCHED: Final = frozenset(
    (
        *("JobPlaced", "JobShrunk", "GrowthAsked", "GrowthPlaced", "NodesJoined", "GrowthFailed"),
        *("NodesReleased", "JobFinished", "AttemptEnded", "StopRequested", "StepCreated"),
        *("NodeStateChanged", "NodeRegistered"),
    )
)


class _Nodes(msgspec.Struct):
    """The nodes of an attempt by the log: since when and until when each was held, and what became of it."""

    since: dict[int, int]
    until: dict[int, int]
    joining: set[int]
    shrunk: set[int]
    ready: set[int]
    stopped: bool = False


class ElasticChecks:
    """Kept by the run's `Checks`; told of durable facts, of spawns and of the replay of the log."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._nodes: dict[Attempted, _Nodes] = {}
        self._growths: dict[int, tuple[Attempted, str]] = {}
        self._silent: set[int] = set()
        self.changed = 0

    # ---- what is durable ----

    def on_batch(
        self, batch: Iterable[facts.Fact], at_us: int, live: Mapping[int, Collection[StepKey]]
    ) -> None:
        """The facts of one commit, of the kinds in `WATCHED`; `live` are the processes by job."""
        for fact in batch:
            self._on_durable(fact, at_us, live)

    def _on_durable(self, fact: facts.Fact, at_us: int, live: Mapping[int, Collection[StepKey]]) -> None:
        match fact:
            case facts.NodeStateChanged(number, NodeState.LOST):
                self._silent.add(number)
            case facts.NodeRegistered():
                # What it does not name any more is over, whatever its host still shows.
                self._silent.add(fact.number)
            case facts.JobPlaced():
                nodes = {span.node for span in fact.spans}
                self._nodes[fact.job_id, fact.attempt] = _Nodes(
                    dict.fromkeys(nodes, at_us), {}, set(), set(), set()
                )
                self._silent -= nodes
            case facts.GrowthAsked():
                old = self._growths.setdefault(fact.growth_id, ((fact.job_id, fact.attempt), "waits"))
                require(old[1] == "waits", f"growth {fact.growth_id} is asked for twice")
                self._coverage.count("running job asked for nodes")
            case facts.GrowthPlaced():
                self._on_placed(fact, at_us)
            case facts.NodesJoined():
                mine = self._nodes[fact.job_id, fact.attempt]
                is_new = mine.joining.issuperset(fact.nodes) and mine.ready.isdisjoint(fact.nodes)
                require(is_new, f"{fact} of {mine.joining}, {mine.ready} are ready")
                mine.ready.update(fact.nodes)
                self._coverage.count("node joined a running job", len(fact.nodes))
            case facts.GrowthFailed():
                mine = self._nodes[fact.job_id, fact.attempt]
                self._leave(mine)
                self._growths[fact.growth_id] = (fact.job_id, fact.attempt), "waits"
                self._coverage.count("growth failed and waited again")
            case facts.JobFinished() if fact.job_id in self._growths:
                self._on_growth_finished(fact)
            case facts.JobShrunk():
                mine = self._nodes[fact.job_id, fact.attempt]
                mine.shrunk.update(fact.nodes)
                self._coverage.count("node given back by a running job", len(fact.nodes))
            case facts.StepCreated():
                self._on_step(fact)
            case facts.NodesReleased():
                self._on_released(fact, at_us, live)
            case facts.StopRequested():
                self._nodes[fact.job_id, fact.attempt].stopped = True
            case facts.AttemptEnded():
                self._nodes[fact.job_id, fact.attempt].joining.clear()
            case _:
                pass

    def _on_placed(self, fact: facts.GrowthPlaced, at_us: int) -> None:
        key = (fact.job_id, fact.attempt)
        mine = self._nodes[key]
        nodes = {span.node for span in fact.spans}
        owner, stage = self._growths[fact.growth_id]
        require((owner, stage) == (key, "waits"), f"{fact} places a growth of {owner} that {stage}")
        again = nodes & mine.since.keys()
        require(not again, f"job {fact.job_id} gets nodes {sorted(again)} again, which it has or had")
        self._growths[fact.growth_id] = key, "joins"
        mine.since.update(dict.fromkeys(nodes, at_us))
        mine.joining |= nodes
        self._silent -= nodes

    def _on_growth_finished(self, fact: facts.JobFinished) -> None:
        key, stage = self._growths[fact.job_id]
        require(stage != "over", f"growth {fact.job_id} ends twice")
        mine = self._nodes[key]
        if fact.state is JobState.COMPLETED:
            is_whole = stage == "joins" and mine.joining == mine.ready
            require(is_whole, f"growth {fact.job_id} of {mine.joining} is over with {mine.ready}")
            mine.joining.clear()
        self._leave(mine)
        self._growths[fact.job_id] = key, "over"

    @staticmethod
    def _leave(mine: _Nodes) -> None:
        """Nodes that were to join are given back, unless all of the attempt is being ended."""
        if not mine.stopped:
            mine.shrunk |= mine.joining
        mine.joining.clear()
        mine.ready.clear()

    def _on_step(self, fact: facts.StepCreated) -> None:
        mine = self._nodes.get((fact.job_id, fact.attempt))
        if mine is None:
            return
        bad = [node for node, _ in fact.layout if node in mine.joining or node in mine.shrunk]
        require(
            not bad, f"step {fact.job_id}.{fact.step} gets nodes {bad}, which its job does not have for it"
        )

    def _on_released(
        self, fact: facts.NodesReleased, at_us: int, live: Mapping[int, Collection[StepKey]]
    ) -> None:
        mine = self._nodes.get((fact.job_id, fact.attempt))
        if mine is None:
            return
        for number in fact.nodes:
            mine.until.setdefault(number, at_us)
            mine.joining.discard(number)
            if number not in mine.shrunk:
                continue
            mine_here = (fact.attempt, number)
            alive = [key for key in live.get(fact.job_id, ()) if (key.attempt, key.node) == mine_here]
            require(
                not alive or number in self._silent,
                f"node {number} is free and {alive[:1]} of job {fact.job_id}, which gave it back, still runs there",
            )

    # ---- the replay of the log ----

    def on_logged(self, replica: State, fact: facts.Fact) -> None:
        """The replay has applied this: what is accounted is what was held."""
        if not isinstance(fact, facts.AttemptEnded) or not replica.touched.ended:
            return
        job, attempt = replica.touched.ended[-1]
        mine = self._nodes.get((fact.job_id, fact.attempt))
        if attempt is None or job.job_id != fact.job_id or mine is None or not attempt.started_us:
            return
        ended_us = attempt.ended_us
        segments = segments_of(attempt, ended_us)
        if not segments:
            # Nodes that leave may be free only after its end, and its end may be known only after it got some.
            got = [
                node
                for node, since_us in mine.since.items()
                if attempt.placed_us < since_us < attempt.ended_us
            ]
            require(not got, f"attempt {fact.job_id}.{fact.attempt} got {got}, and has no segments")
            return
        self.changed += 1
        for node, since_us in mine.since.items():
            begin_us = (
                attempt.started_us if since_us == attempt.placed_us else max(since_us, attempt.started_us)
            )
            # Of an attempt that is ended, nodes are free one by one, and all of them count until its end.
            end_us = min(mine.until.get(node, ended_us), ended_us) if node in mine.shrunk else ended_us
            if node in attempt.gone:
                continue
            held_us = sum(one.until_us - one.from_us for one in segments if node in one.nodes)
            wanted_us = max(0, end_us - begin_us)
            require(
                held_us == wanted_us,
                f"node {node} was held by attempt {fact.job_id}.{fact.attempt} for {wanted_us} us, "
                f"its segments say {held_us}",
            )
