"""Allowed destinations of a step's output: the host that requests the step, or another one of its job.

Checked before a step is decided. Invariants: an address is refused unless it belongs to the host whose API socket took the
call, to a node of the job, or to a network of the configuration; a loopback address only when the step's nodes are all on
the requesting host, because each node would find another listener there, or none. The supervisors connect as the user in
any case.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence

from eslurm.core.control.jobs.access import get_seen
from eslurm.core.control.steps import not_running, programs_of
from eslurm.core.model.endpoint import split_endpoint
from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.messages import CreateStep, RefusalCode, Refused
from eslurm.core.state.allocation_amounts import spans_to_come
from eslurm.core.state.view import View
from eslurm.ports.api import Caller
from eslurm.ports.link import CELL
from eslurm.ports.step_checks import parse_endpoint
from eslurm.transport.options import is_loopback

HOSTS_COMPARED_MAX = 8
"""Hosts of a step's nodes that are looked up, to see whether they are one: nodes of one host mostly say so in one way."""
REMEMBERED_MAX = 1024
REMEMBERED_S = 30.0
LOOKUP_S = 2.0

Lookup = Callable[[str], Awaitable[frozenset[str]]]


class StepEndpoints:
    """`networks` are those of the configuration; `lookup` finds a host's addresses."""

    def __init__(self, view: View, networks: Sequence[str] = (), lookup: Lookup | None = None) -> None:
        self._view = view
        self._host_of_cell: Callable[[str], str] = lambda _: ""
        self._networks = tuple(ipaddress.ip_network(network) for network in networks)
        self._lookup = lookup if lookup is not None else HostAddresses().find

    async def check(self, message: CreateStep, caller: Caller) -> None:
        """Check the endpoint. Raises `Refused`. The core checks the rest of the step."""
        if message.files is not None:
            return
        job = get_seen(self._view, message.by, message.job_id)
        if job.spec.user.uid != message.by.uid:
            # The core refuses it: where a job runs is its user's business.
            return
        if job.attempt is None:
            # Not for the core to say: by then the job may run, on nodes that nothing was compared with.
            raise not_running(job)
        address, _ = parse_endpoint(message.endpoint)
        if caller.via == CELL:
            self._check_guest(address, job, message, caller)
            return
        if ipaddress.ip_address(address).is_loopback:
            if not await self._are_here(self._hosts(_nodes_of(job.attempt, message)), caller):
                raise Refused(
                    RefusalCode.INVALID,
                    f"endpoint: {address} is a loopback address, but the step has nodes on other hosts than "
                    f"{_origin(caller)}: set ESLURM_STEP_HOST to an address of this host",
                )
        elif not await self._is_near(address, job, caller):
            raise Refused(
                RefusalCode.INVALID,
                f"endpoint: {address} is no known address of {_origin(caller)} or of a node of job {job.job_id}: set "
                "ESLURM_STEP_HOST to one, or have its network added to step_networks of [controller]",
            )

    def attach(self, host_of_cell: Callable[[str], str]) -> None:
        """Set the way to find the host of another cell's leader."""
        self._host_of_cell = host_of_cell

    def _check_guest(self, address: str, job: Job, message: CreateStep, caller: Caller) -> None:
        """Check a step of a job that spans cells, whose home has compared the address with its own nodes.

        Raises `Refused` for jobs that hold nodes for no other cell's, and for a loopback address from another host.
        """
        if job.guest_of is None or job.guest_of.home != caller.cell or message.joint is None:
            raise Refused(
                RefusalCode.DENIED,
                f"job {job.job_id} holds no nodes for a job of cell {caller.cell}: run steps at the cell that runs it",
            )
        if not ipaddress.ip_address(address).is_loopback:
            return
        assert job.attempt is not None
        hosts = {*self._hosts(_nodes_of(job.attempt, message)), self._host_of_cell(caller.cell)}
        if not all(map(is_loopback, hosts)):
            raise Refused(
                RefusalCode.INVALID,
                f"endpoint: {address} is a loopback address, but the step has nodes on other hosts: set ESLURM_STEP_HOST "
                "to an address of the host of esrun",
            )

    def _hosts(self, nodes: Iterable[int]) -> set[str]:
        """The hosts of these nodes' agents, from their endpoints."""
        known = (self._view.nodes.get(number) for number in nodes)
        return {split_endpoint(node.endpoint)[0] for node in known if node is not None and node.endpoint}

    async def _are_here(self, hosts: set[str], caller: Caller) -> bool:
        """Check whether all these hosts are the requesting one."""
        if caller.via == "token" or len(hosts) > HOSTS_COMPARED_MAX:
            return False
        origin = await self._origin_addresses(caller)
        for host in hosts - {caller.host}:
            addresses = await self._lookup(host)
            is_shared = not origin.isdisjoint(addresses)
            if not is_shared and not (_is_this_host(caller, origin) and any(map(is_local, addresses))):
                return False
        return True

    async def _is_near(self, address: str, job: Job, caller: Caller) -> bool:
        if any(ipaddress.ip_address(address) in network for network in self._networks):
            return True
        origin = await self._origin_addresses(caller)
        if address in origin or (_is_this_host(caller, origin) and is_local(address)):
            return True
        assert job.attempt is not None
        if address in self._hosts(span.node for span in job.attempt.spans):
            return True
        (first, *_) = self._hosts((job.attempt.first,)) or {""}
        return bool(first) and address in await self._lookup(first)

    async def _origin_addresses(self, caller: Caller) -> frozenset[str]:
        return await self._lookup(caller.host) if caller.host else frozenset()


def _nodes_of(attempt: Attempt, message: CreateStep) -> list[int]:
    """The nodes that the step may get: in each of its parts as many as it asks for there, in the job's order."""
    found: list[int] = []
    # The core refuses what does not fit together.
    for component, program in zip(message.components, programs_of(message), strict=False):
        spans = [
            span
            for span in spans_to_come(attempt)
            if span.component == component and span.node in attempt.held
        ]
        if attempt.is_resized:
            # What its user left open may be all that there is now.
            found += [span.node for span in spans]
            continue
        found += [span.node for span in spans][: program.nodes or program.tasks or len(spans)]
    return found


def _is_this_host(caller: Caller, origin: frozenset[str]) -> bool:
    """Check whether the call comes from the controller's own host: through its socket, or from a daemon beside it."""
    if caller.host:
        return bool(origin) and all(map(is_loopback, origin))
    return caller.via == "socket"


def _origin(caller: Caller) -> str:
    if caller.host:
        return caller.host
    return (
        "the controller's host"
        if caller.via == "socket"
        else "the host that asks (a remote client's is unknown)"
    )


def is_local(address: str) -> bool:
    """Check whether the address is this host's: only then a socket can be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


class HostAddresses:
    """Resolves hosts' names in a thread, with a cache."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, tuple[float, frozenset[str]]] = OrderedDict()

    async def find(self, host: str) -> frozenset[str]:
        """The addresses of a host; a numeric one has itself. None for a name that is unknown, or not found in time."""
        try:
            return frozenset((str(ipaddress.ip_address(host)),))
        except ValueError:
            pass
        loop = asyncio.get_running_loop()
        at_s, found = self._found.get(host, (-REMEMBERED_S, frozenset[str]()))
        if loop.time() - at_s < REMEMBERED_S:
            return found
        try:
            async with asyncio.timeout(LOOKUP_S):
                answers = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, TimeoutError, UnicodeError):
            answers = []
        found = frozenset(str(answer[4][0]) for answer in answers)
        self._found[host] = (loop.time(), found)
        if len(self._found) > REMEMBERED_MAX:
            self._found.popitem(last=False)
        return found
