"""Site predictors on their threads: what they may do wrong costs the event loop nothing.

Method: predictors of the test wait on events, time is a variable; the thread is waited for by a condition.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import EntryPoint

import pytest

from eslurm.alerts import plugins
from eslurm.alerts.plugins import OBSERVATIONS_MAX, ThreadedPredictor, UnknownPredictor, find_plugin, plugin
from eslurm.core.prediction.health import HealthPredictor
from eslurm.core.prediction.predictor import (
    BroadcastSeen,
    FailurePredictor,
    HealthSeen,
    NodesKnown,
    Observation,
)
from eslurm.core.prediction.union import Predictors

LIMIT_S = 2.0
WAIT_S = 50.0
NODES = NodesKnown({number: f"cn{number:04}" for number in range(10)})


class Site:
    """A site's predictor: predicts `answer`; when `gate` is given, each call waits until it is set."""

    def __init__(self, answer: object = (), gate: threading.Event | None = None) -> None:
        self.answer = answer
        self.gate = gate
        self.seen: list[Observation] = []
        self.entered = threading.Event()
        self.threads: set[str] = set()

    def observe(self, observation: Observation) -> None:
        self._enter()
        self.seen.append(observation)

    def predict(self, now_us: int) -> Iterable[int]:
        self._enter()
        if isinstance(self.answer, BaseException):
            raise self.answer
        if callable(self.answer):
            self.answer = self.answer()
        return self.answer  # type: ignore[return-value]

    def _enter(self) -> None:
        self.threads.add(threading.current_thread().name)
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(WAIT_S)


class Bench:
    """Makes wrapped predictors; ends them, and whatever they wait for, after the test."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.notices: list[str] = []
        self.gate = threading.Event()
        self._made: list[ThreadedPredictor] = []

    def wrap(self, site: FailurePredictor, known: bool = True) -> ThreadedPredictor:
        return self.make(lambda: site, known)

    def make(self, make: Callable[[], FailurePredictor], known: bool = True) -> ThreadedPredictor:
        wrapped = ThreadedPredictor("thermal", make, LIMIT_S, self.notices.append, clock_s=lambda: self.now_s)
        self._made.append(wrapped)
        if known:
            wrapped.observe(NODES)
        return wrapped

    def end(self) -> None:
        self.gate.set()
        for wrapped in self._made:
            wrapped.close()
        until(lambda: all(wrapped.finished for wrapped in self._made))


@pytest.fixture
def bench() -> Iterator[Bench]:
    found = Bench()
    yield found
    found.end()


def until(condition: Callable[[], object]) -> None:
    """Returns as soon as the condition holds."""
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.002)


def predicted(wrapped: ThreadedPredictor, wanted: Iterable[int]) -> None:
    """Asks until the thread's answer is there."""
    until(lambda: wrapped.predict(0) == frozenset(wanted))


def seen(at_us: int) -> BroadcastSeen:
    return BroadcastSeen(at_us, (1, 2), (2,))


def test_a_predictor_is_told_in_order_and_answers_from_its_own_thread(bench: Bench) -> None:
    site = Site([3, 3, 7])
    wrapped = bench.wrap(site)
    for at_us in range(5):
        wrapped.observe(seen(at_us))
    predicted(wrapped, {3, 7})
    assert site.seen == [NODES, *(seen(at_us) for at_us in range(5))]
    assert site.threads == {"predictor thermal"}
    assert bench.notices == []
    assert wrapped.switched_off == ""


def test_predict_never_waits_for_the_answer(bench: Bench) -> None:
    site = Site([3], bench.gate)
    wrapped = bench.wrap(site)
    assert wrapped.predict(0) == frozenset()
    until(site.entered.is_set)
    assert wrapped.predict(0) == frozenset()
    bench.gate.set()
    predicted(wrapped, {3})


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (RuntimeError("sensor\n  lost"), "RuntimeError: sensor lost"),
        (SystemExit(3), "SystemExit: 3"),
        (RuntimeError("x" * 10_000), "x" * 200 + "..."),
    ],
)
def test_one_that_raises_is_switched_off_with_one_notice(
    bench: Bench, trouble: BaseException, words: str
) -> None:
    site = Site([3])
    wrapped = bench.wrap(site)
    predicted(wrapped, {3})
    site.answer = trouble
    until(lambda: wrapped.predict(0) == frozenset())
    until(lambda: wrapped.finished)
    wrapped.observe(seen(1))
    assert wrapped.predict(1) == frozenset()
    assert len(bench.notices) == 1
    assert bench.notices[0].startswith("failure predictor 'thermal' was switched off: it raised")
    assert bench.notices[0].endswith(words)


def test_an_error_that_cannot_be_shown_switches_off_too(bench: Bench) -> None:
    class Unshowable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    wrapped = bench.wrap(Site(Unshowable()))
    wrapped.predict(0)
    until(lambda: wrapped.switched_off)
    assert "Unshowable" in wrapped.switched_off


def test_one_that_hangs_is_switched_off_and_its_last_set_dropped(bench: Bench) -> None:
    site = Site([3])
    wrapped = bench.wrap(site)
    predicted(wrapped, {3})
    site.gate = bench.gate
    site.entered.clear()
    wrapped.observe(seen(1))
    until(site.entered.is_set)
    bench.now_s += LIMIT_S
    assert wrapped.predict(0) == {3}
    bench.now_s += 0.1
    assert wrapped.predict(0) == frozenset()
    # A question asked before may still have been on its way.
    assert len(bench.notices) == 1
    assert re.search(r"was switched off: (observe|predict) takes longer than 2 s$", bench.notices[0])
    bench.gate.set()
    until(lambda: wrapped.finished)
    assert wrapped.predict(0) == frozenset()
    assert len(bench.notices) == 1


def test_one_that_comes_back_too_late_is_switched_off_though_nobody_looked(bench: Bench) -> None:
    def slowly() -> list[int]:
        bench.now_s += 10 * LIMIT_S
        return [3]

    wrapped = bench.wrap(Site(slowly))
    wrapped.predict(0)
    until(lambda: wrapped.finished)
    assert wrapped.predict(0) == frozenset()
    assert bench.notices == ["failure predictor 'thermal' was switched off: predict takes longer than 2 s"]


def test_closing_waits_for_nobody(bench: Bench) -> None:
    site = Site([3], bench.gate)
    wrapped = bench.wrap(site)
    until(site.entered.is_set)
    wrapped.close()
    assert not wrapped.finished
    bench.now_s += 10 * LIMIT_S
    assert wrapped.predict(0) == frozenset()
    bench.gate.set()
    until(lambda: wrapped.finished)
    assert bench.notices == []


def test_the_union_hears_why_it_was_switched_off_and_goes_on_with_the_others() -> None:
    notices: list[str] = []
    union = Predictors(notices.append)
    site = Site([3])
    broken = ThreadedPredictor(
        "thermal", lambda: site, WAIT_S, notices.append, lambda why: union.switch_off("thermal", why)
    )
    steady = HealthPredictor()
    union.add("thermal", broken)
    union.add("health", steady)
    union.observe(NODES)
    union.observe(HealthSeen(0, {5: ("disk",)}))
    until(lambda: union.predicted(0).all == {3, 5})
    site.answer = RuntimeError("sensor lost")
    until(lambda: union.predicted(0).all == {5})

    def told() -> bool:
        union.observe(seen(1))
        return union.states()["thermal"] != "on"

    until(told)
    assert union.states() == {"health": "on", "thermal": "it raised RuntimeError: sensor lost"}
    assert notices == ["failure predictor 'thermal' was switched off: it raised RuntimeError: sensor lost"]
    assert union.predicted(0).by_name == {"health": {5}}
    until(lambda: broken.finished)


def test_one_that_cannot_be_made_is_switched_off(bench: Bench) -> None:
    def make() -> FailurePredictor:
        raise ImportError("No module named 'thermal'")

    wrapped = bench.make(make)
    until(lambda: wrapped.switched_off)
    wrapped.predict(0)
    assert bench.notices == [
        "failure predictor 'thermal' was switched off: it raised ImportError: No module named 'thermal'"
    ]


@pytest.mark.parametrize(
    ("answer", "found", "notice"),
    [
        ([1, -5, 2], {1, 2}, "-5, which is no known node's number"),
        ([1, 99], {1}, "99, which is no known node's number"),
        ([1, "cn0002", None], {1}, "'cn0002', which is no known node's number"),
        ([True, 2], {2}, "True, which is no known node's number"),
        ([2, 1.0], {2}, "1.0, which is no known node's number"),
        ([2, "y" * 1000], {2}, "y" * 199 + "..., which is no known node's number"),
        (iter(lambda: 4, None), {4}, "more than 44 items"),
    ],
)
def test_what_is_no_known_node_is_dropped_and_told_once(
    bench: Bench, answer: object, found: set[int], notice: str
) -> None:
    wrapped = bench.wrap(Site(answer))
    predicted(wrapped, found)
    for _ in range(3):
        wrapped.predict(0)
    assert len(bench.notices) == 1
    assert notice in bench.notices[0]
    assert wrapped.switched_off == ""


def test_numbers_of_other_libraries_are_numbers(bench: Bench) -> None:
    class Number:
        def __index__(self) -> int:
            return 5

    wrapped = bench.wrap(Site([Number()]))
    predicted(wrapped, {5})
    assert bench.notices == []


def test_an_answer_that_is_no_set_switches_off(bench: Bench) -> None:
    wrapped = bench.wrap(Site(None))
    wrapped.predict(0)
    until(lambda: wrapped.switched_off)
    assert "TypeError" in wrapped.switched_off


def test_a_node_that_is_not_known_any_more_is_not_predicted(bench: Bench) -> None:
    wrapped = bench.wrap(Site([3, 7]))
    predicted(wrapped, {3, 7})
    wrapped.observe(NodesKnown({7: "cn0007"}))
    assert wrapped.predict(0) == {7}


def test_one_that_does_not_keep_up_misses_the_oldest_and_still_predicts(bench: Bench) -> None:
    site = Site([3], bench.gate)
    wrapped = bench.wrap(site)
    until(site.entered.is_set)
    wrapped.predict(0)
    for at_us in range(OBSERVATIONS_MAX + 50):
        wrapped.observe(seen(at_us))
    assert wrapped.left_out == 50
    assert len(bench.notices) == 1
    assert "does not keep up" in bench.notices[0]
    bench.gate.set()
    predicted(wrapped, {3})
    until(lambda: len(site.seen) == OBSERVATIONS_MAX + 1)
    assert site.seen[0] == NODES
    assert site.seen[1] == seen(50)


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, "eslurm.failure_predictors")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    found: list[EntryPoint] = []
    monkeypatch.setattr(
        plugins, "entry_points", lambda group: [each for each in found if each.group == group]
    )
    return found


def test_an_unknown_name_is_refused_with_the_known_ones(installed: list[EntryPoint]) -> None:
    installed.append(entry("thermal", "thermal_predictor:make"))
    with pytest.raises(UnknownPredictor) as caught:
        find_plugin("termal", ("history", "alerts"))
    assert str(caught.value) == (
        "failure.predictors: 'termal' is unknown: use alerts, history, thermal, or install the package with it"
    )


def test_a_name_offered_by_two_packages_is_refused(installed: list[EntryPoint]) -> None:
    installed += [entry("thermal", "one:make"), entry("thermal", "two:make")]
    with pytest.raises(UnknownPredictor, match="offered twice \\(one:make and two:make\\)"):
        find_plugin("thermal")
    installed[:] = [entry("thermal", "one:make")] * 2
    assert find_plugin("thermal").value == "one:make"


def test_a_package_that_cannot_be_imported_is_only_switched_off(installed: list[EntryPoint]) -> None:
    installed.append(entry("thermal", "no_such_module_anywhere:make"))
    notices: list[str] = []
    wrapped = plugin("thermal", {}, LIMIT_S, notices.append)
    until(lambda: wrapped.switched_off)
    assert wrapped.predict(0) == frozenset()
    assert "ModuleNotFoundError" in notices[0]
    until(lambda: wrapped.finished)
