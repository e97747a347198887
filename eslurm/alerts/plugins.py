"""Predictors that a site installs: found by entry point, each on a daemon thread of its own (E-27).

Invariants: nothing on the event loop ever waits for a site's code, not even at the end of the process; a predictor that
raises, or takes longer than its limit for one call, is switched off for good, with one notice, and predicts nothing from
then on; what it says about no known node is dropped.

A thread shares the interpreter: Python code that computes for long slows the controller down by as much, and native code
that never lets go of the interpreter's lock stops it. Such predictors belong into a process behind the webhook.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from itertools import islice
from operator import index
from typing import TypeVar

from eslurm.core.model.wording import quoted
from eslurm.core.prediction.predictor import (
    ENTRY_POINT_GROUP,
    FailurePredictor,
    NodesKnown,
    Observation,
    PredictorFactory,
)

log = logging.getLogger(__name__)

OBSERVATIONS_MAX = 256
"""Observations that may wait for a slow predictor; beyond it the oldest are left out."""
ITEMS_PER_NODE_MAX = 4
"""A prediction is read up to this many items for each known node: enough for one with doubles, not for an endless one."""

_WORDS_CHARS_MAX = 200

T = TypeVar("T")


class UnknownPredictor(ValueError):
    """No predictor, or more than one, has that name. The text names the key, the value and the way out."""


def find_plugin(name: str, built_in: Collection[str] = ()) -> EntryPoint:
    """The entry point of a site's predictor; nothing of it is imported yet. Raises `UnknownPredictor`."""
    installed = entry_points(group=ENTRY_POINT_GROUP)
    # One distribution on two entries of the path shows up twice with the same value.
    found = {point.value: point for point in installed if point.name == name}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise UnknownPredictor(
            f"failure.predictors: '{name}' is offered twice ({' and '.join(sorted(found))}): remove one package"
        )
    known = sorted({*built_in, *(point.name for point in installed)})
    raise UnknownPredictor(
        f"failure.predictors: {quoted(name)} is unknown: use {', '.join(known) or 'none'}, or install the package with it"
    )


def plugin(
    name: str,
    settings: Mapping[str, object],
    timeout_s: float,
    on_notice: Callable[[str], None] | None = None,
    on_off: Callable[[str], None] | None = None,
    built_in: Collection[str] = (),
) -> ThreadedPredictor:
    """The site's predictor `name`, imported and made on its own thread. Raises `UnknownPredictor`."""
    point = find_plugin(name, built_in)

    def make() -> FailurePredictor:
        factory: PredictorFactory = point.load()
        return factory(dict(settings))

    return ThreadedPredictor(name, make, timeout_s, on_notice, on_off)


class ThreadedPredictor:
    """A `FailurePredictor` around one that may never return. Called on the event loop, never waits.

    `on_notice` gets texts for the log, without it they are logged; `on_off` gets the reason why it was switched off,
    without it that is a notice too. Both are called on the loop, by the next call afterwards.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], FailurePredictor],
        timeout_s: float,
        on_notice: Callable[[str], None] | None = None,
        on_off: Callable[[str], None] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.left_out = 0
        """Observations left out because the predictor did not keep up."""
        self._timeout_s = timeout_s
        self._clock_s = clock_s
        self._on_notice = on_notice or log.warning
        self._on_off = on_off or self._notice_off
        self._off_told = False
        self._known: frozenset[int] = frozenset()
        # Below: shared with the thread, guarded by the condition, which is never held during a site's code.
        self._work = threading.Condition()
        self._waiting: deque[Observation] = deque()
        self._nodes_known: NodesKnown | None = None
        self._asked_at_us: int | None = None
        self._ahead = 0
        self._found: frozenset[int] = frozenset()
        self._call: tuple[str, float] | None = None
        self._fault = ""
        self._notices: list[str] = []
        self._strange_told = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, args=(make,), name=f"predictor {name}", daemon=True)
        self._thread.start()

    # ---- on the event loop ----

    def observe(self, observation: Observation) -> None:
        """Pass it on; the oldest waiting ones are dropped when there are too many."""
        with self._work:
            if self._off():
                return
            if isinstance(observation, NodesKnown):
                # Replaces what came before and must never be left out.
                names = dict(observation.names)
                self._known = frozenset(names)
                self._found &= self._known
                self._nodes_known = NodesKnown(names)
            else:
                self._waiting.append(observation)
                self._shorten()
            self._work.notify()
        self._tell()

    def predict(self, now_us: int) -> frozenset[int]:
        """The last prediction, among the known nodes; requests another one for the next call."""
        with self._work:
            if not self._off():
                if self._asked_at_us is None:
                    # One that cannot keep up would otherwise never come to predict.
                    self._ahead = len(self._waiting)
                self._asked_at_us = now_us
                self._work.notify()
            found = self._found
        self._tell()
        return found

    @property
    def switched_off(self) -> str:
        """The reason why it was switched off; empty while it works."""
        with self._work:
            self._off()
            return self._fault

    @property
    def finished(self) -> bool:
        """Check whether its thread has ended."""
        return not self._thread.is_alive()

    def close(self) -> None:
        """Make no more calls. A call under way is not waited for: it ends with the process at the latest."""
        with self._work:
            self._closed = True
            self._found = frozenset()
            self._waiting.clear()
            self._work.notify()

    def _off(self) -> bool:
        if self._closed or self._fault:
            return True
        if self._call is not None:
            what, began_s = self._call
            if self._clock_s() - began_s > self._timeout_s:
                self._switch_off(f"{what} takes longer than {self._timeout_s:g} s")
        return bool(self._fault)

    def _shorten(self) -> None:
        if len(self._waiting) <= OBSERVATIONS_MAX:
            return
        self._waiting.popleft()
        self._ahead -= 1
        if not self.left_out:
            self._notices.append(
                f"failure predictor '{self.name}' does not keep up: it is not told of every broadcast from now on"
            )
        self.left_out += 1

    def _tell(self) -> None:
        with self._work:
            notices, self._notices = self._notices, []
            fault = "" if self._off_told else self._fault
        for notice in notices:
            self._on_notice(notice)
        if fault:
            self._off_told = True
            self._on_off(fault)

    def _notice_off(self, why: str) -> None:
        self._on_notice(f"failure predictor '{self.name}' was switched off: {why}")

    def _switch_off(self, why: str) -> None:
        self._fault = why
        self._found = frozenset()
        self._waiting.clear()
        self._nodes_known = None
        self._work.notify()

    # ---- on the thread ----

    def _run(self, make: Callable[[], FailurePredictor]) -> None:
        try:
            predictor = self._timed("making it", make)
            while (work := self._next()) is not None:
                if isinstance(work, int):
                    self._predict(predictor, work)
                else:
                    self._timed("observe", partial(predictor.observe, work))
        except _SwitchedOff:
            pass
        except BaseException as error:
            # Also what would end a process, such as SystemExit: it is the predictor that ends.
            with self._work:
                if not self._fault:
                    self._switch_off(f"it raised {type(error).__name__}: {_words(error)}")

    def _next(self) -> Observation | int | None:
        """The next action, waited for: an observation, a time to predict for, or None: no more."""
        with self._work:
            while True:
                if self._closed or self._fault:
                    return None
                if self._nodes_known is not None:
                    known, self._nodes_known = self._nodes_known, None
                    return known
                if self._asked_at_us is not None and self._ahead <= 0:
                    asked_at_us, self._asked_at_us = self._asked_at_us, None
                    return asked_at_us
                if self._waiting:
                    self._ahead -= 1
                    return self._waiting.popleft()
                self._work.wait()

    def _predict(self, predictor: FailurePredictor, now_us: int) -> None:
        known = self._known
        found, strange = self._timed("predict", lambda: _sift(predictor.predict(now_us), known))
        with self._work:
            if self._closed or self._fault:
                return
            self._found = found
            if strange and not self._strange_told:
                self._strange_told = True
                self._notices.append(
                    f"failure predictor '{self.name}' predicts {strange}: dropped, and not told again"
                )

    def _timed(self, what: str, call: Callable[[], T]) -> T:
        with self._work:
            self._call = (what, self._clock_s())
        try:
            return call()
        finally:
            with self._work:
                late = self._off()
                self._call = None
            if late:
                raise _SwitchedOff


class _SwitchedOff(Exception):
    """Ends the thread of a predictor that returned too late."""


def _sift(predicted: Iterable[object], known: frozenset[int]) -> tuple[frozenset[int], str]:
    """The known nodes among them, and the others in words; empty when there are none."""
    items_max = ITEMS_PER_NODE_MAX * (len(known) + 1)
    found: set[int] = set()
    strange = ""
    for count, item in enumerate(islice(predicted, items_max + 1), start=1):
        number = _number(item)
        if number in known and count <= items_max:
            found.add(number)
        elif count > items_max:
            strange = f"more than {items_max} items"
        elif not strange:
            strange = f"{_cut(repr(item))}, which is no known node's number"
    return frozenset(found), strange


def _number(item: object) -> int:
    """A node number; also from numpy's integers, but not from truth values; -1, no node's number, for anything else."""
    if isinstance(item, bool):
        return -1
    try:
        return index(item)  # type: ignore[arg-type]
    except TypeError:
        return -1


def _words(error: BaseException) -> str:
    try:
        return _cut(" ".join(str(error).split()))
    except BaseException:
        return "(nothing that could be shown)"


def _cut(text: str) -> str:
    return text if len(text) <= _WORDS_CHARS_MAX else f"{text[:_WORDS_CHARS_MAX]}..."
