"""The commit pipeline: messages in, actions out. Goal: nothing is shown or answered before its commit, and nothing twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from eslurm.core.control import commit_pipeline as module
from eslurm.core.control.answered_ids import HELD_UP_MAX_US
from eslurm.core.control.commit_pipeline import (
    GATHER_US,
    RETRY_US,
    Commit,
    CommitPipeline,
    Give,
    InboxFull,
    NotNow,
    Show,
    Unsettled,
)
from eslurm.core.control.reactor import Batch, BatchAnswer
from eslurm.core.model.facts import NodeStateChanged
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import CancelJobs, Changed, JobRef, RefusalCode, Refused, Reports, Tick
from eslurm.core.model.node_states import NodeState

ALICE = Principal("alice", 1000, 1000)
FACT = NodeStateChanged(1, NodeState.UP, "")


class Bench:
    """A pipeline whose waiters are names; `decide` makes up the batch that a reactor would."""

    def __init__(self, inbox_max: int = 100) -> None:
        self.pipeline: CommitPipeline[str] = CommitPipeline(inbox_max, follows=False)
        self.now_us = 1_000_000
        self.revision = 1

    def ask(self, waiter: str, jobs: int = 1) -> Give[str] | None:
        """A request under the waiter's name up to a dot: `a` and `a.2` are two calls of one request."""
        refs = tuple(JobRef(number) for number in range(1, jobs + 1))
        return self.pipeline.request(CancelJobs(ALICE, refs), waiter, waiter.split(".")[0].encode())

    def knows(self, request_id: bytes) -> bool:
        """The store is not asked for a retry."""
        return not self.pipeline.must_look_up(request_id, self.now_us, retry=True)

    def decide(self, facts: int = 1, answer: BatchAnswer = None, *, owes_more: bool = False) -> Sequence[Any]:
        """Take the next batch and decide it: so many facts, and this answer to each message."""
        entries = self.pipeline.take()
        batch = Batch(self.revision, self.now_us)
        batch.facts = [FACT] * facts
        batch.answers = [answer] * len(entries)
        self.revision += facts
        return self.pipeline.decided(batch, self.now_us, owes_more=owes_more)

    def commit(self, answer: BatchAnswer = None) -> Sequence[Any]:
        """A whole round: the actions after the commit."""
        assert isinstance(self.decide(answer=answer)[0], Commit)
        return self.pipeline.committed(self.now_us)


def gives(actions: Sequence[Any]) -> list[tuple[str, Any]]:
    """Names and answers, exceptions by their class."""
    found = [action for action in actions if isinstance(action, Give)]
    return [
        (one.waiter, type(one.answer) if isinstance(one.answer, NotNow | Unsettled) else one.answer)
        for one in found
    ]


def test_a_batch_is_committed_then_shown_then_answered_in_order() -> None:
    bench = Bench()
    bench.ask("a")
    bench.pipeline.post(Tick(), "tick")
    bench.ask("b")
    [commit] = bench.decide(answer=Changed(1))
    assert isinstance(commit, Commit)
    assert commit.answers == [(b"a", Changed(1)), (b"b", Changed(1))]
    show, *rest = bench.pipeline.committed(bench.now_us)
    assert isinstance(show, Show) and show.batch is commit.batch
    assert [type(message).__name__ for message in show.messages] == ["Tick", "CancelJobs", "CancelJobs"]
    assert [waiter for waiter, _ in gives(rest)] == ["tick", "a", "b"]
    assert bench.pipeline.is_idle


def test_one_batch_is_under_way_at_a_time() -> None:
    bench = Bench()
    bench.ask("a")
    bench.decide()
    bench.ask("b")
    assert not bench.pipeline.take() and not bench.pipeline.is_idle
    bench.pipeline.committed(bench.now_us)
    assert [entry.request_id for entry in bench.pipeline.take()] == [b"b"]


def test_what_writes_nothing_is_shown_at_once_but_what_agents_forget_is_committed() -> None:
    bench = Bench()
    bench.pipeline.post(Tick(), "tick")
    assert [type(action) for action in bench.decide(facts=0)] == [Show, Give]
    bench.pipeline.post(Reports(()), "agent")
    assert [type(action) for action in bench.decide(facts=0)] == [Commit]
    bench.pipeline.committed(bench.now_us)
    bench.pipeline.post(Tick(), "log", rows=["row"], blobs=["blob"])
    [commit] = bench.decide(facts=0)
    assert isinstance(commit, Commit) and (commit.rows, commit.blobs) == (["row"], ["blob"])


def test_a_refused_request_is_not_written_and_is_remembered() -> None:
    bench = Bench()
    bench.ask("a")
    refused = Refused(RefusalCode.INVALID, "no")
    [show, give] = bench.decide(facts=0, answer=refused)
    assert isinstance(show, Show) and give.answer is refused
    again = bench.ask("a.2")
    assert again is not None and again.answer is refused
    # Another leader may have accepted it since: a retry looks into the store first.
    assert not bench.knows(b"a")


def test_a_request_id_is_decided_once_and_all_its_calls_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITERS_MAX", 3)
    bench = Bench()
    bench.ask("a")
    bench.ask("a.2")
    bench.decide(answer=Changed(1))
    bench.ask("a.3")
    with pytest.raises(InboxFull):
        bench.ask("a.4")
    assert gives(bench.pipeline.committed(0)) == [(name, Changed(1)) for name in ("a", "a.2", "a.3")]
    known = bench.ask("a.5")
    assert known is not None and (known.waiter, known.answer) == ("a.5", Changed(1))


def test_a_store_that_goes_away_leaves_what_is_decided_open_and_refuses_the_rest() -> None:
    bench = Bench()
    bench.ask("a")
    bench.decide(answer=Changed(1))
    bench.ask("b")
    bench.pipeline.request(Tick(), "own")
    bench.pipeline.post(Tick(), "tick")
    assert gives(bench.pipeline.unavailable()) == [("a", Unsettled), ("b", NotNow)]
    assert not bench.pipeline.is_available and gives(bench.pipeline.unavailable()) == []
    with pytest.raises(Unsettled):
        bench.ask("a.2")
    with pytest.raises(NotNow):
        bench.ask("b.2")
    assert bench.knows(b"a") and not bench.knows(b"b")
    # Its caller has been told; the answer is there for the retry.
    assert gives(bench.pipeline.committed(0)) == []
    known = bench.ask("a.3")
    assert known is not None and known.answer == Changed(1)
    assert gives(bench.commit()) == [("tick", None), ("own", None)]


def test_pauses_between_tries_grow_and_begin_anew() -> None:
    bench = Bench()
    for _ in range(2):
        bench.pipeline.post(Tick())
        bench.decide()
        pauses = []
        for _ in range(len(RETRY_US) + 1):
            bench.pipeline.unavailable()
            pauses.append(bench.pipeline.pause_us)
        assert pauses == [*RETRY_US, RETRY_US[-1]]
        bench.pipeline.committed(0)
        assert bench.pipeline.is_available


def test_a_first_try_is_looked_up_where_an_answer_may_have_been_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RECENT_ANSWERS_MAX", 1)
    bench = Bench()
    bench.ask("a")
    bench.commit(Changed(1))
    bench.ask("b")
    bench.commit(Changed(1))
    asked = [bench.pipeline.must_look_up(one, bench.now_us, retry=False) for one in (b"a", b"b", b"c", b"")]
    assert asked == [True, False, False, False]


def test_first_tries_are_looked_up_for_an_hour_behind_an_earlier_leader() -> None:
    pipeline: CommitPipeline[str] = CommitPipeline(100, follows=True)
    asked = [pipeline.must_look_up(b"a", 1 + at * HELD_UP_MAX_US, retry=False) for at in (0, 1, 2, 0)]
    assert asked == [True, True, False, False]


def test_requests_are_bounded_and_events_are_not() -> None:
    bench = Bench(inbox_max=2)
    bench.ask("a")
    bench.ask("b")
    with pytest.raises(InboxFull):
        bench.ask("c")
    assert not bench.knows(b"c")
    assert all(bench.pipeline.post(Tick()) for _ in range(10))
    assert bench.pipeline.depths == {"requests": 2, "events": 10}


def test_a_batch_is_bounded_by_what_it_weighs() -> None:
    bench = Bench()
    bench.ask("a", jobs=module.BATCH_WEIGHT_MAX)
    bench.ask("b")
    assert gives(bench.commit()) == [("a", None)]
    assert gives(bench.commit()) == [("b", None)]


def test_after_stop_nothing_is_taken_on_and_the_rest_is_committed() -> None:
    bench = Bench()
    bench.ask("a")
    bench.pipeline.stop()
    assert not bench.pipeline.post(Tick()) and bench.pipeline.is_ready
    with pytest.raises(NotNow):
        bench.ask("b")
    assert gives(bench.commit()) == [("a", None)]
    assert bench.pipeline.is_idle
    assert bench.ask("a.2") is not None


def test_clients_that_were_answered_together_are_waited_for_a_moment() -> None:
    bench = Bench()
    bench.ask("a")
    bench.ask("b")
    bench.commit()
    bench.ask("c")
    assert bench.pipeline.gathers_until_us(bench.now_us + 1) == bench.now_us + GATHER_US
    assert not bench.pipeline.is_ready
    assert bench.pipeline.gathers_until_us(bench.now_us + GATHER_US) == 0
    bench.pipeline.post(Tick())
    assert bench.pipeline.is_ready and bench.pipeline.gathers_until_us(bench.now_us + 1) == 0
    assert len(bench.pipeline.take()) == 2


def test_consequences_that_one_batch_does_not_hold_get_another() -> None:
    bench = Bench()
    bench.ask("a")
    bench.decide(owes_more=True)
    bench.pipeline.committed(0)
    assert [type(entry.message) for entry in bench.pipeline.take()] == [Tick]


def test_answers_kept_are_bounded_in_number_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    monkeypatch.setattr(module, "RECENT_ANSWERS_MAX", 2)
    for name in "abc":
        bench.ask(name)
        bench.commit(Changed(1))
    assert [bench.knows(name.encode()) for name in "abc"] == [False, True, True]
    monkeypatch.setattr(module, "RECENT_BYTES_MAX", 1_000)
    bench.ask("d")
    bench.commit(Changed(1, notes=("x",) * 2))
    assert [bench.knows(name.encode()) for name in "bcd"] == [False, False, False], "one alone is too large"
