"""A crash after every fact: the store's rows and the log, each of which has to give the living state again.

`Mirror` is an observer for `Reactor`: it commits each fact by itself, so a restart is tried between any two.
"""

from __future__ import annotations

from eslurm.core.control.reactor import Batch
from eslurm.core.model import facts
from eslurm.core.model.job_states import FINAL
from eslurm.core.state.apply import apply
from eslurm.core.state.cluster import State
from eslurm.lab.sim.store_image import StoreImage
from eslurm.store.rows import Restoring, to_store


class Mirror:
    """While `restarts` is false it only keeps rows and log: for tests that restart at chosen moments."""

    def __init__(self, owner: str = "main", *, restarts: bool = True) -> None:
        self.image = StoreImage()
        self.replayed = State(owner)
        self._owner = owner
        self._epoch = self.image.open(owner)
        self.restarts = restarts

    def __call__(self, state: State, fact: facts.Fact) -> None:
        """One fact has been applied to `state`."""
        batch = Batch(state.revision, state.now_us)
        batch.facts = [fact]
        batch.touched = state.touched
        self.image.commit(self._owner, self._epoch, to_store(state, batch))
        apply(self.replayed, facts.decode_fact(*facts.encode_fact(fact)), state.revision, state.now_us)
        self.replayed.take_touched()
        if self.restarts:
            self.compare(state)

    def compare(self, state: State) -> None:
        """rows == replay(log) == state."""
        seen = picture(state)
        assert picture(self.replayed) == seen, "replaying the log gives another state"
        assert unfinished(self.restored()) == unfinished(state, seen), "the rows give another state"

    def restored(self) -> State:
        """The state that a controller starting now would build."""
        restoring = Restoring(self._owner)
        for row in self.image.load_unfinished(self._owner):
            restoring.take(row)
        return restoring.state()


def picture(state: State) -> dict[str, object]:
    """Everything a state is, comparable."""
    ledger = state.ledger
    return {
        "scalars": (
            state.config,
            state.config_revision,
            state.epoch,
            state.revision,
            state.now_us,
            state.next_id,
            state.lease_end,
            state.next_number,
            state.phase_lengths,
            state.id_blocks,
            state.phases_us,
        ),
        "jobs": dict(state.jobs),
        "nodes": state.nodes,
        "steps": state.steps,
        "policies": {kind: named for kind, named in state.policies.items() if named},
        "usage": state.usage,
        "promises": state.promises,
        "tokens": state.tokens,
        "mentions": (state.mentions.counts, state.job_counts.counts),
        "job_counts": state.job_counts.counts,
        "numbers": state.numbers,
        "partitions": (state.partitions, state.partition_nodes, state.partition_views),
        "queue": [(entry.turn, entry.job) for entry in state.queue.first(len(state.queue))],
        "ledger": [
            (number, ledger.free(number), ledger.holds_on(position), ledger.usable >> position & 1)
            for position, number in enumerate(ledger.topology.numbers)
        ],
        "owed": (state.owed, state.step_owed),
        "dependents": state.dependents,
        "same_name": state.same_name,
        "tasks_of": state.tasks_of,
        "tasks_pending": state.tasks_pending,
        "jobs_on": state.jobs_on,
        "steps_of": state.steps_of,
        "counts": (state.pending_count, state.active_count),
    }


def unfinished(state: State, seen: dict[str, object] | None = None) -> dict[str, object]:
    """The same without finished jobs, which a restart leaves in the store; `seen` is the state's picture, if made."""
    found = dict(seen or picture(state))
    jobs = {
        number: job
        for number, job in state.jobs.items()
        if job.state not in FINAL or job.residues or job.owes_outcome
    }
    tasks = {array: {task for task in tasks if task in jobs} for array, tasks in state.tasks_of.items()}
    found["jobs"] = jobs
    found["tasks_of"] = {array: kept for array, kept in tasks.items() if kept}
    return found
