"""A controller's core and its herald, without a network and without a clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from eslurm.core.control.planning import plan_slices
from eslurm.core.control.reactor import Reactor
from eslurm.core.dispatch.broadcaster import Broadcaster, Deliver
from eslurm.core.dispatch.satellite_pool import SatellitePool, SatelliteStatus
from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.model.job import JobSpec, Principal
from eslurm.core.model.messages import ConfigLoaded, EpochStarted, Message, PlanMade, Reports, SubmitJobs
from eslurm.core.model.protocol import Command, Registration, Report
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.relay import messages as tree
from eslurm.core.relay.results import OK, from_mapping
from eslurm.core.state.cluster import State

SECOND = 1_000_000
_commands = msgspec.msgpack.Decoder(Command)


def seal(commands: Sequence[Command]) -> list[bytes]:
    """Commands as their bytes, without a signature."""
    return [msgspec.msgpack.encode(command) for command in commands]


class Lead:
    """A controller's core and herald without a network: what it sends is kept, what comes is given by hand."""

    def __init__(self, nodes: int = 3, satellites: tuple[str, ...] = (), **policy: object) -> None:
        self.now_us = 1_000 * SECOND
        self.state = State("ctl")
        self.reactor = Reactor(self.state)
        self.pings: list[tuple[int, int]] = []
        self.satellites = SatellitePool(self.state, satellites, lambda *ping: self.pings.append(ping))
        self.broadcaster = Broadcaster(self.state, self.satellites, seal, tree.Tuning())
        self.sent: list[tree.SendBroadcast] = []
        self.on_post: Callable[[tuple[Message, ...]], None] = lambda messages: None
        names = tuple(f"cn{number}" for number in range(nodes))
        config = ClusterConfig(
            "test",
            tuple(NodeConfig(name, (4, 1000)) for name in names),
            (Partition("main", names, default=True),),
            **policy,  # type: ignore[arg-type]
        )
        self.post(ConfigLoaded(config))
        self.post(EpochStarted(5))
        self.names = names

    def post(self, *messages: Message) -> list[Any]:
        self.on_post(messages)
        batch = self.reactor.process(messages, self.now_us)
        self.do(self.broadcaster.on_committed(messages, batch, self.now_us))
        return batch.facts

    def do(self, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, tree.SendBroadcast):
                self.sent.append(action)
            elif isinstance(action, Deliver):
                self.post(action.message)

    def register(self, number: int, session: str = "s") -> None:
        name = self.names[number]
        offer = Registration(name, f"uid-{name}", "boot", session, self.state.epoch, "host:1", (4, 1000))
        self.post(Reports((Report("agent", 1, offer),)))

    def link(self, *indexes: int) -> None:
        """Satellites come and answer their first ping."""
        for index in indexes:
            self.satellites.on_linked(f"sat{index}", self.now_us)
            self.do(self.broadcaster.on_satellite_status(-1 - index, SatelliteStatus(1), self.now_us))

    def pass_time(self, seconds: float) -> None:
        end_us = self.now_us + int(seconds * SECOND)
        while (due_us := self.broadcaster.next_timer_us()) is not None and due_us <= end_us:
            self.now_us = max(self.now_us, due_us)
            self.do(self.broadcaster.on_timer(self.now_us))
        self.now_us = end_us

    def until_sent(self) -> None:
        """Until something is said, and no longer: nobody's patience ends."""
        while not self.sent:
            due_us = self.broadcaster.next_timer_us()
            assert due_us is not None, "nothing will ever be said"
            self.now_us = max(self.now_us, due_us)
            self.do(self.broadcaster.on_timer(self.now_us))

    def take(self) -> list[tuple[tuple[int, ...], Command]]:
        taken = [(one.broadcast.nodes, _commands.decode(one.broadcast.command)) for one in self.sent]
        self.last, self.sent = self.sent, []
        return taken

    def answer(self, outcomes: dict[int, Any]) -> None:
        """The broadcasts of the last `take` come back."""
        for one in self.last:
            heads = one.broadcast.nodes[:1]
            mine = {node: outcomes[node] for node in one.broadcast.nodes}
            final = tree.Reply(one.broadcast.broadcast_id, heads, from_mapping(mine), True)
            self.do(self.broadcaster.on_ack("peer", tree.Ack(one.broadcast.broadcast_id, heads), self.now_us))
            self.do(self.broadcaster.on_reply("peer", final, self.now_us))

    def launch(self) -> int:
        """Submit and place a job of three nodes; its id."""
        request = Request(tasks=3, nodes_min=3, nodes_max=3)
        spec = JobSpec("job", Principal("alice", 1000, 1000), "", (request,), b"", b"", "/tmp")
        self.post(SubmitJobs((spec,)))
        slices = plan_slices(self.state, self.now_us, None, PlanLimits())
        while True:
            try:
                next(slices)
            except StopIteration as finished:
                plan = finished.value
                break
        self.post(PlanMade(plan.placements, plan.generation))
        return max(self.state.jobs)


def lead_with_nodes(nodes: int = 3, satellites: tuple[str, ...] = (), **policy: object) -> Lead:
    lead = Lead(nodes, satellites, **policy)
    lead.do(lead.broadcaster.lead(lead.now_us))
    lead.take()
    for number in range(nodes):
        lead.register(number)
    return lead


def lead_with_satellites(count: int = 2, nodes: int = 40, **policy: object) -> Lead:
    lead = lead_with_nodes(nodes, tuple(f"sat{at}" for at in range(count)), **policy)
    lead.link(*range(count))
    # The first one opens the way to the nodes: everybody is called.
    lead.until_sent()
    lead.take()
    lead.answer(dict.fromkeys(range(nodes), OK))
    return lead


def call(lead: Lead) -> list[tree.Broadcast]:
    """The next heartbeat as satellites get it; they answer their pings."""
    lead.sent.clear()
    lead.until_sent()
    for number, _ in lead.pings:
        lead.do(lead.broadcaster.on_satellite_status(number, SatelliteStatus(1), lead.now_us))
    lead.pings.clear()
    lead.take()
    return [one.broadcast for one in lead.last]
