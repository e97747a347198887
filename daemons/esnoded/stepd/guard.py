"""The wall between one step and the supervisor: an exception in what concerns a step ends that step.

Invariant: no callback of a step (timer, output, report, ending) raises into the loop. What concerns no step alone goes
through `survive`, which gives up that one action.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from esnoded.procd.log import complain_of
from esnoded.stepd.step import Step

P = ParamSpec("P")


class Guard:
    """`on_bug` ends the step; it must not raise."""

    def __init__(self, on_bug: Callable[[Step, str], None]) -> None:
        self._on_bug = on_bug

    def run(self, step: Step, call: Callable[P, object], *args: P.args, **more: P.kwargs) -> None:
        """Call, and end the step if that raises."""
        try:
            call(*args, **more)
        except Exception as error:
            self._on_bug(step, complain_of(f"step {step.key}", error))

    def wrap(self, step: Step, call: Callable[P, object]) -> Callable[P, None]:
        """The same, for later."""

        def guarded(*args: P.args, **more: P.kwargs) -> None:
            self.run(step, call, *args, **more)

        return guarded
