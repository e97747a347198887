"""The last committed state, for readers. Records are shared with the state, never copied.

While a batch is being committed, readers see the one before: nothing is visible before its commit.
"""

from __future__ import annotations

from typing import TypeVar

from eslurm.core.account.apply import find_record, records_of
from eslurm.core.cluster import State, Touched
from eslurm.core.job.model import Job
from eslurm.core.node.model import Node
from eslurm.core.step.model import Step

K = TypeVar("K")
V = TypeVar("V")


class View:
    """Advance it after each commit with what the batch touched."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.jobs: dict[int, Job] = dict(state.jobs)
        self.nodes: dict[int, Node] = dict(state.nodes)
        self.steps: dict[tuple[int, int], Step] = dict(state.steps)
        self.records = records_of(state)
        self.revision = state.revision
        self.now_us = state.now_us
        self.pending_count = state.pending_count
        self.active_count = state.active_count

    def advance(self, touched: Touched, revision: int, now_us: int) -> None:
        """The batch that ended with `revision` is durable."""
        _refresh(self.jobs, self._state.jobs, touched.jobs)
        _refresh(self.nodes, self._state.nodes, touched.nodes)
        _refresh(self.steps, self._state.steps, touched.steps)
        for kind, name in touched.records:
            record = find_record(self._state, kind, name)
            if record is None:
                self.records.pop((kind, name), None)
            else:
                self.records[kind, name] = record
        self.revision = revision
        self.now_us = now_us
        self.pending_count = self._state.pending_count
        self.active_count = self._state.active_count


def _refresh(view: dict[K, V], current: dict[K, V], keys: set[K]) -> None:
    for key in keys:
        record = current.get(key)
        if record is None:
            view.pop(key, None)
        else:
            view[key] = record
