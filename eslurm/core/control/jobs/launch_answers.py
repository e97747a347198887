"""The answers of nodes to a launch, sorted by what each node says of its preparation."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from eslurm.core.control.jobs.times import PHASE_REPORT_MARGIN_S, said_limit_s
from eslurm.core.model.messages import EffectDone
from eslurm.core.model.units import SECOND_US


class LaunchAnswers(NamedTuple):
    """The nodes that are ready, whose prolog runs, that refused, and that did not answer.

    `limit_s` is the longest prolog that a preparing node announces, `text` the last refusal's reason; "": none gave one.
    """

    ok: tuple[int, ...]
    preparing: tuple[int, ...]
    failed: tuple[int, ...]
    unreached: tuple[int, ...]
    limit_s: int
    text: str

    @property
    def bad(self) -> tuple[int, ...]:
        """The nodes that cannot take part."""
        return (*self.failed, *self.unreached)

    def report_until_us(self, now_us: int) -> int:
        """Time until which the controller waits for the reports of preparing nodes.

        The nodes keep the limit themselves: this is for reports that never come.
        """
        return now_us + (2 * self.limit_s + PHASE_REPORT_MARGIN_S) * SECOND_US


def launch_answers(message: EffectDone, waiting: Container[int], *, has_phases: bool) -> LaunchAnswers:
    """Sort the answers of the nodes that are still waited for. With phases a node that runs its prolog is not ready yet."""
    ok: list[int] = []
    preparing: list[int] = []
    failed: list[int] = []
    unreached: list[int] = []
    limit_s, text = 0, ""
    for outcome in message.outcomes:
        nodes = [number for number in outcome.nodes if number in waiting]
        if outcome.status == "ok" and has_phases and outcome.payload:
            preparing += nodes
            limit_s = max(limit_s, said_limit_s(outcome.payload))
        elif outcome.status == "ok":
            ok += nodes
        elif outcome.status == "failed":
            failed += nodes
            text = outcome.text or text
        else:
            unreached += nodes
    return LaunchAnswers(tuple(ok), tuple(preparing), tuple(failed), tuple(unreached), limit_s, text)
