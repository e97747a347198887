"""The wall between one step and the supervisor: an exception in what concerns a step ends that step.

Invariant: no callback of a step (timer, output, report, ending) raises into the loop. What concerns no step alone goes
through `survive`, which gives up that one action.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import ParamSpec

from esnoded.stepd.step import Step

P = ParamSpec("P")
_TEXT_CHARS_MAX = 500
_FRAMES_MAX = 20


def complain(text: str) -> None:
    """One line in the supervisor's log, which is its stderr."""
    line = text.replace("\n", " ")
    os.write(2, f"esstepd: {line}\n".encode(errors="replace"))


def complain_of(what: str, error: BaseException) -> str:
    """An exception that is a fault of the supervisor's own: one line with where it came from. Returns its short text."""
    # By hand: nothing is imported while something is wrong, the process may be out of descriptors.
    where: list[str] = []
    trace = error.__traceback__
    while trace is not None and len(where) < _FRAMES_MAX:
        code = trace.tb_frame.f_code
        where.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    text = f"internal error: {type(error).__name__}: {error}"[:_TEXT_CHARS_MAX]
    # It becomes part of outcomes, which are valid UTF-8.
    text = text.encode(errors="replace").decode()
    complain(f"{what}: {text} ({' < '.join(reversed(where))})")
    return text


def survive(what: str, call: Callable[P, object], *args: P.args, **more: P.kwargs) -> bool:
    """Whether the call went well; one that did not is told of in the log."""
    try:
        call(*args, **more)
    except Exception as error:
        complain_of(what, error)
        return False
    return True


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
