"""The time of a batch: at least that of every batch before it, with facts or without."""

from __future__ import annotations

from eslurm.core.control.reactor import Reactor
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.messages import ConfigLoaded, Tick
from eslurm.core.state.cluster import State


def test_a_batch_without_facts_moves_time_on_for_those_after_it() -> None:
    reactor = Reactor(State("ctl"))
    assert reactor.process([ConfigLoaded(ClusterConfig("c"))], 1_000).now_us == 1_000
    # Its answers are committed with its time, and a store takes no commit of an earlier one.
    assert reactor.process([Tick()], 5_000).now_us == 5_000
    back = reactor.process([ConfigLoaded(ClusterConfig("c", policy="fcfs"))], 4_000)
    assert back.facts and back.now_us == 5_000
    assert reactor.state.now_us == 5_000


def test_a_reactor_begins_where_its_state_stands() -> None:
    state = State("ctl")
    state.now_us = 9_000
    assert Reactor(state).process([Tick()], 1_000).now_us == 9_000
