"""Simulated failures of an agent process: nodes fail by name, and their reports are held back.

Invariant: a held report goes up once its node is healed, in the order of its number and once; what the agent withdrew or
replaced meanwhile is the controller's to ignore, as after any delay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from eslurm.compat.errors import OptionError
from eslurm.compat.hostlist import expand
from eslurm.core.agent.registration import NodeRegistry
from eslurm.core.model.protocol import Registration, Report
from eslurm.faults.chaos_socket import ChaosReply, ChaosRequest, TooEarly, fold_struck
from eslurm.faults.relay import FaultyRelayServer
from eslurm.faults.switches import Mode, Switch


class HeldReports:
    """Reports on their way out through the switches of `driver`. `send` takes those that may go."""

    def __init__(
        self, driver: FaultyRelayServer, number_of: Callable[[str], int], send: Callable[[Report], None]
    ) -> None:
        self._driver = driver
        self._number_of = number_of
        self._send = send
        self._held: dict[int, Report] = {}

    def __len__(self) -> int:
        return len(self._held)

    def put(self, report: Report) -> None:
        """Send it, send it late, or hold it, as its node's switch says."""
        node = self._node_of(report)
        if self._driver.switches.is_mute(node):
            self._held[report.seq] = report
            return
        delay_us = self._driver.switches.delay_us(node)
        if delay_us:
            asyncio.get_running_loop().call_later(delay_us / 1_000_000, self._send, report)
        else:
            self._send(report)

    def release(self) -> None:
        """Nodes were healed: what they had to say goes up."""
        held, self._held = self._held, {}
        for seq in sorted(held):
            self.put(held[seq])

    def _node_of(self, report: Report) -> int:
        body = report.body
        return self._number_of(body.name) if isinstance(body, Registration) else body.node


class Chaos:
    """Answers requests for failures of the nodes of one agent process."""

    def __init__(self, driver: FaultyRelayServer, registry: NodeRegistry) -> None:
        self._driver = driver
        self._registry = registry

    def answer(self, request: ChaosRequest) -> ChaosReply:
        """Do as asked. Raises `ValueError`, with nothing changed (`TooEarly`: ask again)."""
        numbers = [self._number(name) for name in self._names(request)]
        changed = 0
        if request.action == "heal":
            changed = len(self._driver.heal([number for number in numbers if number >= 0]))
        elif request.action != "show":
            self._strike(numbers, request)
            changed = len(numbers)
        return ChaosReply(changed, fold_struck(self._struck(), self._driver.now_us()))

    def _strike(self, numbers: list[int], request: ChaosRequest) -> None:
        if -1 in numbers:
            raise TooEarly("some of the nodes have not been registered yet: wait until they are up")
        mode = Mode(request.action)
        until_us = None if request.for_us is None else self._driver.now_us() + request.for_us
        self._driver.strike(numbers, Switch(mode, until_us, request.delay_us if mode is Mode.SLOW else 0))

    def _names(self, request: ChaosRequest) -> Iterable[str]:
        if not request.nodes:
            return list(self._registry.by_name)
        try:
            return expand(request.nodes, "nodes")
        except OptionError as error:
            raise ValueError(str(error)) from None

    def _number(self, name: str) -> int:
        node = self._registry.by_name.get(name)
        if node is None:
            raise ValueError(f"node {name} is not served here")
        return node.number

    def _struck(self) -> list[tuple[str, Switch]]:
        by_number = self._registry.by_number
        switches = self._driver.switches.all()
        named = [(by_number[number].offer.name, switch) for number, switch in switches.items()]
        return sorted(named, key=lambda pair: pair[0])
