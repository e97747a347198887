"""The simulated clock, network and disk by themselves: each must do the harm that it promises, and no other."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from eslurm.core.agent.records import Booted, EpochSeen, FloorRaised
from eslurm.lab.sim.network import CALM, Cut, Network, Weather
from eslurm.lab.sim.scheduler import Scheduler
from eslurm.lab.sim.spool import Spool, SpoolFull

SECOND = 1_000_000


class Post:
    """A process that remembers what reached it."""

    def __init__(self, name: str, address: str = "") -> None:
        self.name = name
        self.address = address or name
        self.heard: list[tuple[str, Any]] = []
        self.lost: list[str] = []
        self.takes_links = True
        self.is_paused = False

    def hear(self, source: str, message: Any) -> None:
        self.heard.append((source, message))

    def lose(self, peer: str) -> None:
        self.lost.append(peer)


class Net:
    def __init__(self, *names: str) -> None:
        self.scheduler = Scheduler(0)
        self.network = Network(self.scheduler, "seed", lambda *event: None)
        self.posts = {name: Post(name) for name in names}
        for post in self.posts.values():
            self.network.attach(post)

    def say(self, source: str, target: str, message: object) -> None:
        self.network.send(self.posts[source], target, message)

    def run(self, seconds: float = 1.0) -> None:
        self.scheduler.run(self.scheduler.at_us + int(seconds * SECOND))

    def heard(self, name: str) -> list[Any]:
        return [message for _, message in self.posts[name].heard]


def test_calls_come_in_the_order_of_time_then_of_asking() -> None:
    scheduler = Scheduler(100)
    told: list[tuple[int, str]] = []

    def tell(text: str) -> None:
        told.append((scheduler.now_us(), text))

    for due_us, text in ((300, "c"), (200, "a"), (200, "b"), (50, "at once")):
        scheduler.call_at(due_us, partial(tell, text))
    assert scheduler.run(1_000, done=lambda: told[-1][1] == "b")
    assert told == [(100, "at once"), (200, "a"), (200, "b")]
    assert not scheduler.run(1_000)
    assert told[3:] == [(300, "c")] and scheduler.now_us() == 1_000


def test_a_calm_network_delivers_once() -> None:
    net = Net("a", "b")
    for number in range(200):
        net.say("a", "b", number)
    net.run()
    assert sorted(net.heard("b")) == list(range(200))
    assert net.heard("b") != list(range(200)), "links keep no order here"


def test_bad_weather_loses_doubles_and_delays() -> None:
    net = Net("a", "b")
    net.network.weather = Weather(loss=0.3, duplication=0.3, slow=0.2, slow_max_us=5 * SECOND)
    for number in range(1_000):
        net.say("a", "b", number)
    net.run(0.01)
    early = set(net.heard("b"))
    net.run(6)
    heard = net.heard("b")
    assert 600 < len(set(heard)) < 800
    assert 200 < len(heard) - len(set(heard)) < 400
    assert 50 < len(set(heard) - early) < 250


def test_doors_have_no_weather() -> None:
    net = Net("client", "b")
    net.network.weather = Weather(loss=1.0)
    net.say("client", "b", "x")
    net.say("b", "client", "y")
    net.run()
    assert net.heard("b") == ["x"] and net.heard("client") == ["y"]


def test_a_broken_link_loses_what_was_on_the_way_and_both_ends_hear_of_it() -> None:
    net = Net("a", "b", "c")
    net.say("a", "b", "before")
    assert net.network.break_links(1.0) == 1
    net.say("b", "a", "after")
    net.run()
    assert net.heard("b") == [] and net.heard("a") == ["after"]
    assert net.posts["a"].lost == ["b"] and net.posts["b"].lost == ["a"] and net.posts["c"].lost == []


def test_nothing_said_to_the_dead_reaches_their_successors() -> None:
    net = Net("a")
    old, new = Post("b#1", "b"), Post("b#2", "b")
    net.network.attach(old)
    net.network.send(net.posts["a"], "b#1", "for the first")
    net.network.detach(old)
    net.network.attach(new)
    net.run()
    assert old.heard == new.heard == [] and net.posts["a"].lost == ["b#1"]
    assert net.network.send_to(net.posts["a"], "b", "for whoever is there")
    net.run()
    assert new.heard == [("a", "for whoever is there")]


def test_a_dead_process_is_refused_at_once_and_a_dead_host_is_silent() -> None:
    net = Net("a", "b", "c")
    for name in ("b", "c"):
        net.say("a", name, "hello")
    net.run()
    net.network.detach(net.posts["b"])
    net.network.detach(net.posts["c"], silently=True)
    assert not net.network.send_to(net.posts["a"], "b", "x")
    assert net.network.send_to(net.posts["a"], "c", "x")
    net.run()
    assert net.posts["a"].lost == ["b"]
    net.run(10)
    assert net.posts["a"].lost == ["b", "c"]


def test_an_island_is_cut_off_from_all_others_until_it_heals() -> None:
    net = Net("a", "b", "c")
    for source, target in (("a", "b"), ("a", "c"), ("b", "c")):
        net.say(source, target, "hello")
    net.run()
    net.network.isolate(["a", "b"])
    for source, target in (("a", "b"), ("a", "c"), ("c", "b")):
        net.say(source, target, "cut?")
    net.run(10)
    assert net.heard("b") == ["hello", "cut?"] and net.heard("c") == ["hello", "hello"]
    assert net.posts["c"].lost and set(net.posts["c"].lost) == {"a", "b"}
    assert net.posts["a"].lost == ["c"]
    net.network.heal()
    net.say("a", "c", "again")
    net.run()
    assert net.heard("c")[-1] == "again"


@pytest.mark.parametrize(("cut", "arrives"), [(Cut.OUT, "b to a"), (Cut.IN, "a to b"), (Cut.BOTH, "")])
def test_an_island_may_be_deaf_or_mute(cut: Cut, arrives: str) -> None:
    net = Net("a", "b")
    net.say("a", "b", "hello")
    net.run()
    net.network.isolate(["a"], cut)
    net.say("a", "b", "a to b")
    net.say("b", "a", "b to a")
    net.run()
    assert [*net.heard("a"), *net.heard("b")[1:]] == ([arrives] if arrives else [])
    net.run(10)
    assert net.posts["a"].lost == ["b"] and net.posts["b"].lost == ["a"], "keepalives need both ways"


def test_nobody_is_linked_to_a_process_that_takes_no_links() -> None:
    net = Net("a")
    assert net.network.find("a") == net.network.find_dialled("a") == "a"
    net.posts["a"].takes_links = False
    assert net.network.find("a") == "a" and net.network.find_dialled("a") == ""


def test_a_paused_process_loses_its_links_when_keepalives_run_out_and_what_was_said_waits() -> None:
    net = Net("a", "b", "c")
    for name in ("b", "c"):
        net.say("a", name, "hello")
    net.run()
    net.posts["b"].is_paused = True
    net.network.on_paused(net.posts["b"])
    net.say("a", "b", "read later")
    net.run(1)
    assert net.posts["a"].lost == [] and net.heard("b") == ["hello", "read later"]
    net.run(10)
    assert net.posts["a"].lost == ["b"] and net.posts["c"].lost == []


def test_a_short_pause_costs_no_link() -> None:
    net = Net("a", "b")
    net.say("a", "b", "hello")
    net.network.on_paused(net.posts["b"])
    net.run(20)
    assert net.posts["a"].lost == net.posts["b"].lost == []


def test_a_short_island_costs_no_link() -> None:
    net = Net("a", "b")
    net.say("a", "b", "hello")
    net.network.isolate(["a"])
    net.run(0.5)
    net.network.heal()
    net.run(20)
    assert net.posts["a"].lost == net.posts["b"].lost == []
    assert net.network.weather == CALM


def test_a_spool_keeps_what_was_synced_and_some_beginning_of_the_rest() -> None:
    kept = set()
    for seed in range(30):
        spool = Spool()
        spool.write(Booted("c", "b"), durable=False)
        spool.write(EpochSeen("ctl", 1), durable=True)
        for floor in (1, 2, 3):
            spool.write(FloorRaised("ctl", floor), durable=False)
        lost = spool.lose(random.Random(seed))
        assert len(spool.records) == 5 - lost
        assert spool.records[:2] == [Booted("c", "b"), EpochSeen("ctl", 1)]
        kept.add(len(spool.records))
    assert kept == {2, 3, 4, 5}


def test_a_full_spool_takes_nothing_and_loses_nothing() -> None:
    spool = Spool()
    spool.write(Booted("c", "b"), durable=True)
    spool.is_full = True
    with pytest.raises(SpoolFull):
        spool.write(EpochSeen("ctl", 1), durable=True)
    assert spool.records == [Booted("c", "b")]
    spool.is_full = False
    spool.write(EpochSeen("ctl", 1), durable=True)
    assert spool.lose(random.Random(1)) == 0 and len(spool.records) == 2


def test_a_process_that_stands_still_keeps_the_link_to_itself() -> None:
    net = Net("a", "b")
    net.say("a", "a", "to itself")
    net.say("a", "b", "to another")
    net.posts["a"].is_paused = True
    net.network.on_paused(net.posts["a"])  # type: ignore[arg-type]
    net.run(60)
    assert net.posts["b"].lost == ["a"] and net.posts["a"].lost == ["b"]
