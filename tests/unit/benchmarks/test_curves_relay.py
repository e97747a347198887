"""The model of the curves against the product's own relays on the simulator's network.

Goal: with the same latency and no cost of computing, the time that the model gives to a broadcast is the one
that the relays need, whatever the tree, the deaths and the satellites.
"""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from benchmarks.curves.parameters import ALIVE, OURS, SILENT, Message
from benchmarks.curves.structures import Cluster, Layout, broadcast_s, draw
from eslurm.core.dispatch.satellite_pool import legs_wanted, satellite_number
from eslurm.core.relay.construct import share_out
from eslurm.core.relay.grouping import BALANCED, POSITIONAL
from eslurm.core.relay.messages import Ack, Broadcast, Leg, Reply, RunLocal, Tuning
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import OK, Status
from eslurm.lab.sim import network as sim_network
from eslurm.lab.sim.process import REFUSED_AFTER_US, Process
from eslurm.lab.sim.scheduler import Scheduler

CALLER = "caller"
CONTROLLER = -1000
LATENCY_US = REFUSED_AFTER_US // 2
TOLERANCE_S = 1e-3
"""A few hops: the model counts a suspect as known with its whole group's answer, relays tell it within `flush_us`."""
NETWORK_ONLY = msgspec.structs.replace(
    OURS,
    latency_s=LATENCY_US * 1e-6,
    send_s=0.0,
    send_node_s=0.0,
    leg_s=0.0,
    hop_s=0.0,
    merge_s=0.0,
    merge_node_s=0.0,
    construct_node_s=0.0,
)
NOTHING = Message(name="nothing", bulk_s=0.0, act_s=0.0)


class Town:
    """As much of a simulated world as a process needs."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(1_000_000)
        self.network = sim_network.Network(self.scheduler, "seed", lambda *event: None)
        self.answer: Reply | None = None

    def new_name(self, address: str) -> str:
        return address

    def address_of(self, node: int) -> str:
        return f"n{node}"


class Station(Process):
    """A process that is nothing but its relay; a local node needs no time."""

    def __init__(self, town: Town, number: int, *, root: bool, cap: int) -> None:
        super().__init__(town, town.address_of(number))  # type: ignore[arg-type]
        self.town = town
        self.relay = Relay(() if root else (number,), root=root, tuning=Tuning(max_unacknowledged=cap))
        town.network.attach(self)

    def begin(self, broadcast: Broadcast, legs: list[Leg]) -> None:
        if legs:
            self._do(self.relay.start(CALLER, broadcast, legs, self.now_us))
        else:
            self._do(self.relay.on_broadcast(CALLER, broadcast, self.now_us))

    def send(self, target: str, message: object) -> None:
        if target != CALLER:
            super().send(target, message)
        elif isinstance(message, Reply) and message.final:
            self.town.answer = message

    def on_message(self, source: str, message: Any) -> None:
        relay = self.relay
        inputs = {Broadcast: relay.on_broadcast, Ack: relay.on_ack, Reply: relay.on_reply}
        self._do(inputs[type(message)](source, message, self.now_us))

    def on_refused(self, broadcast_id: Any, heads: tuple[int, ...]) -> None:
        self._do(self.relay.on_refused(broadcast_id, heads, "connection refused", self.now_us))

    def on_timer(self) -> None:
        self._do(self.relay.on_timer(self.now_us))

    def next_timer_us(self) -> int | None:
        return self.relay.next_timer_us()

    def perform_other(self, action: Any) -> None:
        if isinstance(action, RunLocal):
            self._do(self.relay.on_local_result(action.broadcast_id, action.nodes, OK, self.now_us))

    def _do(self, actions: list[Any]) -> None:
        self.perform(actions)
        self.arm()


def relayed_s(cluster: Cluster, layout: Layout, cap: int = OURS.threads) -> float:
    """The time that the relays need, after a check that they found out the truth."""
    town = Town()
    nodes = range(cluster.nodes)
    for node in nodes:
        if cluster.states[node] == ALIVE:
            Station(town, node, root=False, cap=cap)
        elif cluster.states[node] == SILENT:
            town.network.detach(Station(town, node, root=False, cap=cap), silently=True)
    predicted = cluster.predicted if layout.structure == "fptree" else frozenset[int]()
    legs = []
    if layout.satellites:
        shares = share_out(nodes, predicted, legs_wanted(cluster.nodes, layout.width, layout.satellites))
        for index, share in enumerate(shares):
            Station(town, satellite_number(index), root=True, cap=cap)
            legs.append(Leg(satellite_number(index), tuple(share)))
    controller = Station(town, CONTROLLER, root=True, cap=cap)
    began_us = town.scheduler.at_us
    members = tuple(node for leg in legs for node in leg.nodes) or tuple(nodes)
    broadcast = Broadcast(
        1,
        members,
        layout.width,
        60_000_000,
        "test",
        b"",
        grouping=layout.grouping.name,
        root_width=layout.root_width if layout.satellites else 0,
        predicted=tuple(sorted(predicted)),
    )
    controller.begin(broadcast, legs)
    assert town.scheduler.run(began_us + 60_000_000, done=lambda: town.answer is not None)
    assert town.answer is not None
    found = town.answer.results.expand()
    reached = bytes(found[node].status is not Status.OK for node in nodes)
    assert reached == bytes(state != ALIVE for state in cluster.states)
    return (town.scheduler.at_us - began_us) * 1e-6


@pytest.fixture(autouse=True)
def even_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every message takes the same time."""
    monkeypatch.setattr(sim_network, "LATENCY_MIN_US", LATENCY_US)
    monkeypatch.setattr(sim_network, "LATENCY_SPREAD_US", 0)


@pytest.mark.parametrize("nodes", [1, 40, 300])
@pytest.mark.parametrize(
    ("failed_share", "refused_share"), [(0.0, 0.0), *itertools.product((0.02, 0.1, 0.3), (0.0, 0.5, 1.0))]
)
@pytest.mark.parametrize(
    "layout",
    [
        Layout(structure="tree", width=8),
        Layout(structure="tree", width=5, grouping=BALANCED),
        Layout(structure="fptree", width=8, grouping=BALANCED),
        Layout(structure="fptree", width=8, grouping=POSITIONAL, satellites=3),
        Layout(structure="tree", width=8, root_width=16, grouping=BALANCED, satellites=2),
    ],
)
def test_the_model_needs_the_time_that_relays_need(
    nodes: int, failed_share: float, refused_share: float, layout: Layout
) -> None:
    cluster = draw(nodes, failed_share, 5, recall=0.8, refused_share=refused_share)
    modelled_s = broadcast_s(cluster, layout, NETWORK_ONLY, NOTHING)
    assert modelled_s == pytest.approx(relayed_s(cluster, layout), rel=0, abs=TOLERANCE_S)


@pytest.mark.parametrize("cap", [8, 24, 40, 100])
@pytest.mark.parametrize("seed", range(2))
def test_a_root_looks_at_so_many_suspects_at_a_time(cap: int, seed: int) -> None:
    layout = Layout(structure="tree", width=8, grouping=BALANCED)
    cluster = draw(1000, 0.3, seed, refused_share=0.3)
    system = msgspec.structs.replace(NETWORK_ONLY, threads=cap, rechecks=cap)
    modelled_s, found_s = broadcast_s(cluster, layout, system, NOTHING), relayed_s(cluster, layout, cap)
    # Suspects that partial replies tell of are looked at earlier than the model has it, which others make up for.
    assert 0.9 * found_s < modelled_s < 1.3 * found_s, (modelled_s, found_s)
    assert cap > 24 or found_s > 2 * relayed_s(cluster, layout)
