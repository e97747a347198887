"""The outcomes of a supervisor: durable ones that wait for acknowledgement, and those not yet durable.

Invariant: an outcome is returned (`find`, `all`, `commit`) only once the journal holds it; until then its step counts as
live. When the disk refuses, outcomes are kept and written again later: nothing is lost but time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import StepOutcome
from eslurm.telemetry.clocks import boot_us
from esnoded.procd.log import complain
from esnoded.stepd.journal import Acknowledged, Finished, Journal, live_records
from esnoded.stepd.step import Step
from esnoded.stepd.timers import Timers

_COMMIT_RETRY_US = 1_000_000
_COMPACT_RETRY_US = 60_000_000


class Ledger:
    """Keeps outcomes in the journal, which others write to as well."""

    def __init__(self, journal: Journal, timers: Timers, outcomes: Iterable[StepOutcome]) -> None:
        """`outcomes` are those that the journal already holds."""
        self._journal = journal
        self._timers = timers
        self._outcomes: dict[StepKey, StepOutcome] = {outcome.key: outcome for outcome in outcomes}
        self._uncommitted: list[tuple[Step, StepOutcome]] = []
        self._compact_not_before_us = 0

    def __len__(self) -> int:
        return len(self._outcomes)

    def find(self, key: StepKey) -> StepOutcome | None:
        """The outcome of a step that is over, unless it was acknowledged."""
        return self._outcomes.get(key)

    def all(self) -> list[StepOutcome]:
        """The unacknowledged outcomes."""
        return list(self._outcomes.values())

    def acknowledge(self, keys: Collection[StepKey]) -> None:
        """Forget outcomes."""
        known = tuple(key for key in keys if self._outcomes.pop(key, None) is not None)
        if known:
            self._journal.add(Acknowledged(known))

    def absorb(self, outcomes: Collection[StepOutcome]) -> None:
        """Take over outcomes. Raises OSError; then none of them is kept."""
        for outcome in outcomes:
            self._journal.add(Finished(outcome))
        try:
            self._journal.commit()
        except OSError:
            self._journal.drop_queued()
            raise
        self._outcomes.update((outcome.key, outcome) for outcome in outcomes)

    def add(self, step: Step) -> None:
        """The step is over: its outcome is committed with the next `commit`."""
        self._uncommitted.append((step, step.end(boot_us())))

    def commit(self) -> list[tuple[Step, StepOutcome]]:
        """Make new outcomes durable; if the disk refuses, keep them to ourselves and try again later."""
        if not self._uncommitted:
            self._flush_quietly()
            return []
        for _, outcome in self._uncommitted:
            self._journal.add(Finished(outcome))
        try:
            self._journal.commit()
        except OSError as error:
            self._journal.drop_queued()
            complain(f"journal: {error.strerror}; outcomes are held back")
            self._timers.at(boot_us() + _COMMIT_RETRY_US, lambda: None)
            return []
        committed, self._uncommitted = self._uncommitted, []
        self._outcomes.update((outcome.key, outcome) for _, outcome in committed)
        return committed

    def compact_if_wanted(self, live: Iterable[Step]) -> None:
        """Rewrite the journal when most of it is dead; `live` are the steps that are not over."""
        if not self._journal.wants_compaction or boot_us() < self._compact_not_before_us:
            return
        running = [(step.key, step.started_us) for step in live]
        try:
            self._journal.compact(live_records(self._outcomes.values(), running))
        except OSError as error:
            # The old file is still whole; only its size suffers.
            self._compact_not_before_us = boot_us() + _COMPACT_RETRY_US
            complain(f"journal cannot be rewritten: {error.strerror}")

    def _flush_quietly(self) -> None:
        try:
            self._journal.flush()
        except OSError as error:
            # Acknowledgements and pids only: repeated or found by other means. The next launch tells the agent.
            self._journal.drop_queued()
            complain(f"journal: {error.strerror}")
