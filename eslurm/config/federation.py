"""The section about the federation that the cluster is a member of (S-01)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Meta

from eslurm.compat.errors import OptionError
from eslurm.config.values import Positive
from eslurm.core.model.federation import ID_RESERVE, CellName, FederationConfig

FINGERPRINT_DIGITS: Final = 32
"""Of a key's fingerprint, as `eslurm.security.joining` makes it."""


class PeerSection(msgspec.Struct, forbid_unknown_fields=True):
    """Another cell of the federation, pinned: calls go to and come from a cluster whose keys are these."""

    name: str
    """The cell's name."""
    key: str
    """Fingerprint of its site's oldest key, the first of `eslurm keys list` there; several are divided by commas."""


class FederationSection(msgspec.Struct, forbid_unknown_fields=True):
    """Membership in a federation: clusters (cells) that share an etcd and see each other's free nodes. Files are relative to
    the state directory, and read anew when they change.
    """

    name: str = ""
    """Name of the federation; empty: the cluster is no member of one."""
    cell: str = ""
    """The cluster's name in it; empty: the cluster's own name. No other cell may have it."""
    endpoints: list[str] = msgspec.field(default_factory=list)
    """Members of the etcd, as https://etcd1:2379; with http:// only on this host, or with `plain`."""
    plain: bool = False
    """Allow http:// to other hosts: anyone on the network then reads and changes the records that cells share."""
    ca: str = ""
    """Certificates (PEM) of the authorities of the etcd's certificate; needed for https://."""
    certificate: str = ""
    """This cell's certificate (PEM) for the etcd; empty: none."""
    key: str = ""
    """Its private key (PEM, without a password)."""
    user: str = ""
    """This cell's user at the etcd; empty: none, or the one that the certificate names."""
    password_file: str = ""
    """File with the user's password, readable by its owner only."""
    lease_s: Annotated[float, Meta(ge=2, le=60)] = 5.0
    """Seconds without a sign of life of this cell after which others count it as silent."""
    summary_min_s: Positive = 0.2
    """Seconds between two announcements of free nodes, at least."""
    trust: Literal["pinned", "store"] = "pinned"
    """Cells that calls go to and come from: those with a `[[federation.peer]]`, or also those whose keys the etcd has."""
    users: Literal["same", "named"] = "same"
    """Match a user of another cell with one of this cell: `same` by name and uid, `named` by the name alone."""
    peer: list[PeerSection] = msgspec.field(default_factory=list)
    """Cells whose keys are pinned."""
    id_reserve: Annotated[int, Meta(ge=1_000, le=5_000_000)] = ID_RESERVE
    """Job ids that the cell has in hand, at least; or a day's ids, if those are more. So many jobs are taken while etcd is
    away. Ids are leased 100,000 at a time, and no other cell ever has them.
    """
    fair_share: Literal["own", "sum"] = "own"
    """Usage that fair share counts: `own`, or `sum`: also that in trusted cells with `sum`. The cell then publishes usage by
    account and user to all cells.
    """


def federation_problems(section: FederationSection, cluster: str) -> Iterator[OptionError]:
    """The keys that do not fit each other, in a cluster of this name."""
    if not section.name:
        if section.endpoints:
            yield OptionError("federation.name", None, "is empty, and endpoints are given", "give both")
        return
    for key, name in (("name", section.name), ("cell", section.cell or cluster)):
        try:
            msgspec.convert(name, CellName)
        except msgspec.ValidationError:
            yield OptionError(
                f"federation.{key}",
                name,
                "is no name",
                "use at most 63 letters, digits, and '-', '_', '.' after the first",
            )
    yield from _endpoint_problems(section)
    if bool(section.certificate) != bool(section.key):
        yield OptionError("federation.key", None, "belongs to a certificate", "give both or none")
    if bool(section.user) != bool(section.password_file):
        yield OptionError("federation.password_file", None, "belongs to a user", "give both or none")
    yield from _pin_problems(section)


def federation_of(section: FederationSection, cluster: str) -> FederationConfig | None:
    """The core's part of a section without problems; None: no member."""
    if not section.name:
        return None
    return FederationConfig(
        *(section.name, section.cell or cluster, section.lease_s, section.summary_min_s, section.users),
        section.id_reserve,
        fair_share=section.fair_share,
    )


def pins_of(section: FederationSection) -> dict[str, frozenset[str]]:
    """Fingerprints of the pinned keys by cell, of a section without problems."""
    return {peer.name: _keys(peer) for peer in section.peer}


def _keys(peer: PeerSection) -> frozenset[str]:
    return frozenset(key.strip().lower() for key in peer.key.split(","))


def _pin_problems(section: FederationSection) -> Iterator[OptionError]:
    names = set[str]()
    for peer in section.peer:
        if peer.name in names:
            yield OptionError(
                "federation.peer.name", peer.name, "is there twice", "give it once, with all its keys"
            )
        names.add(peer.name)
        for key in sorted(_keys(peer)):
            if not re.fullmatch(rf"[0-9a-f]{{{FINGERPRINT_DIGITS}}}", key):
                yield OptionError(
                    "federation.peer.key",
                    key,
                    f"is no fingerprint of {FINGERPRINT_DIGITS} digits",
                    f"`eslurm keys list` at {peer.name} has it",
                )


def _endpoint_problems(section: FederationSection) -> Iterator[OptionError]:
    key = "federation.endpoints"
    if not section.endpoints:
        yield OptionError(key, None, "is empty, and a name is given", "name the members of the etcd")
    schemes = set[str]()
    for endpoint in section.endpoints:
        try:
            parts = split_url(endpoint)
        except ValueError:
            yield OptionError(key, endpoint, "is no endpoint", "write https://host:port")
            continue
        schemes.add(parts.scheme)
        if parts.scheme == "https" and not section.ca:
            yield OptionError(
                "federation.ca", None, f"is empty, and {endpoint} speaks TLS", "name the authorities"
            )
        if parts.scheme == "http" and not section.plain and not _is_loopback(parts.hostname or ""):
            yield OptionError(
                key,
                endpoint,
                "is on another host and speaks no TLS",
                "use https://, or set federation.plain = true",
            )
    if len(schemes) > 1:
        yield OptionError(key, ", ".join(section.endpoints), "mixes http and https", "use one of them")


def open_endpoints(section: FederationSection) -> tuple[str, ...]:
    """Those of other hosts that speak no TLS."""
    return tuple(one for one in section.endpoints if one.startswith("http:") and not _is_here(one))


def is_open_to_anybody(section: FederationSection) -> bool:
    """Check whether an etcd on other hosts is asked without a certificate and without a user."""
    is_known = section.certificate or section.user
    return not is_known and not all(_is_here(endpoint) for endpoint in section.endpoints)


def _is_here(endpoint: str) -> bool:
    return _is_loopback(split_url(endpoint).hostname or "")


def split_url(endpoint: str) -> SplitResult:
    """The parts of an endpoint of etcd, http(s)://host:port and nothing else. Raises ValueError."""
    parts = urlsplit(endpoint)
    is_whole = bool(parts.hostname and parts.port)
    if not is_whole or parts.scheme not in ("http", "https") or parts.path.strip("/") or "@" in parts.netloc:
        raise ValueError(f"etcd endpoint {endpoint!r}: give https://host:port")
    return parts


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
