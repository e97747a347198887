"""Hosts that have asked to join without a token and wait for an administrator. Not durable: they ask again.

Invariant: a stranger at one address keeps few others waiting, and all of them together take a bounded amount of memory.
"""

from __future__ import annotations

import ipaddress
from typing import Final

import msgspec

WAITING_MAX: Final = 64
WAITING_ADDRESS_MAX: Final = 4
FORGOTTEN_US: Final = 600_000_000
"""A host that has not asked for so long waits no more; a denial is remembered as long."""
DENIED_MAX: Final = 256


class Asked(msgspec.Struct, frozen=True):
    """One host that waits. `public` is its identity key. Times are UTC microseconds."""

    role: str
    names: str
    public: bytes
    address: str
    since_us: int
    seen_us: int


class Denied(Exception):
    """An administrator has denied the request."""


class NoRoom(Exception):
    """Too many hosts wait; the text names the bound and the way out."""


def network_of(address: str) -> str:
    """The unit of bounds per address: of IPv6 the network of 64 bits, which one host may own."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return address if found.version == 4 else str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))


class WaitingHosts:
    """One per leader."""

    def __init__(self) -> None:
        self._asked: dict[bytes, Asked] = {}
        self._denied: dict[bytes, int] = {}

    def ask(self, role: str, names: str, public: bytes, address: str, now_us: int) -> Asked:
        """Record a host's request, perhaps a repeated one. Raises `Denied`, `NoRoom`."""
        self._forget(now_us)
        if public in self._denied:
            raise Denied
        known = self._asked.get(public)
        if known is None:
            here = network_of(address)
            of_address = sum(network_of(one.address) == here for one in self._asked.values())
            if of_address >= WAITING_ADDRESS_MAX:
                raise NoRoom(f"{of_address} hosts of this address wait to be let in, and no more may")
            if len(self._asked) >= WAITING_MAX:
                raise NoRoom(f"{len(self._asked)} hosts wait to be let in, and no more may")
        is_same = known is not None and (known.role, known.names) == (role, names)
        since_us = known.since_us if known is not None and is_same else now_us
        place = known.address if known is not None else address
        self._asked[public] = asked = Asked(role, names, public, place, since_us, now_us)
        return asked

    def leave(self, public: bytes) -> None:
        """Remove a host that is a member now."""
        self._asked.pop(public, None)

    def deny(self, asked: Asked, now_us: int) -> None:
        """Deny a host's requests for a while."""
        self._asked.pop(asked.public, None)
        while len(self._denied) >= DENIED_MAX:
            del self._denied[next(iter(self._denied))]
        self._denied[asked.public] = now_us

    def all(self, now_us: int) -> list[Asked]:
        """The waiting hosts, the longest waiting first."""
        self._forget(now_us)
        return sorted(self._asked.values(), key=lambda one: (one.since_us, one.public))

    def _forget(self, now_us: int) -> None:
        before_us = now_us - FORGOTTEN_US
        for public in [public for public, one in self._asked.items() if one.seen_us < before_us]:
            del self._asked[public]
        for public in [public for public, at_us in self._denied.items() if at_us < before_us]:
            del self._denied[public]
