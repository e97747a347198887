"""A federation on this machine before anything of it runs: its cells, its etcd, and the file that says so.

DIR/federation.json is written first and then stays as it is: the next `eslurm up` makes from it what an interrupted one has
not made yet. Each cell is an ordinary cluster in DIR/NAME, each etcd has its data in DIR/etcd/NAME. Invariant: names of
nodes, ports and users of daemons differ between all cells.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import msgspec

from escli.errors import unusable
from escli.local import ports, settings
from escli.local.layout import Layout, choose, is_usable
from escli.local.record import version_key
from escli.local.settings import Cell, Wishes
from escli.local.up import ports_of
from escli.local.users import free_uids
from eslurm import __version__
from eslurm.core.model.wording import quoted

NAME = "local"
"""Of each federation that is made here; each has an etcd of its own."""
CELLS_MAX = 64
CELL_BYTES_MAX = 12
NODES_EACH = 4
ETCDS = (1, 3)
FORMAT = 1
LETTERS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")
STORE = "etcd"
"""Directory of the etcds, and kind of these daemons."""
_CELL = re.compile(rf"[A-Za-z][A-Za-z0-9-]{{0,{CELL_BYTES_MAX - 1}}}")
_RESERVED = frozenset({STORE, "log", "lock"})
_USERS_EACH = 3

CA, CERTIFICATE, KEY = "etcd-ca.pem", "etcd.pem", "etcd.key"
"""Files of a cell for its etcd."""


class MemberPlan(msgspec.Struct, frozen=True):
    """One etcd: where cells call it, and where other members do."""

    name: str
    listen: str
    peer: str

    @property
    def endpoint(self) -> str:
        """The address that cells call."""
        return f"https://{self.listen}"


class CellPlan(msgspec.Struct, frozen=True):
    """A cell, as it is made: `wishes` say everything about it."""

    name: str
    wishes: Wishes


class FederationPlan(msgspec.Struct, frozen=True):
    """The whole file. `given`: the options it was made with; `uid`: of the etcds, 0 without root."""

    format: int
    version: str
    owner_uid: int
    created_us: int
    name: str
    token: str
    cells: tuple[CellPlan, ...]
    members: tuple[MemberPlan, ...]
    given: Wishes
    uid: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the cells."""
        return tuple(cell.name for cell in self.cells)

    @property
    def nodes(self) -> int:
        """Nodes of all cells, as they were made."""
        return sum(cell.wishes.nodes or 0 for cell in self.cells)


class StoreLayout(Layout):
    """The directory of the etcds; its record is no cluster's."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.record_file = directory / "etcd.json"


class CellsLayout(Layout):
    """Paths of a federation's directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.store = StoreLayout(directory / STORE)

    def cell(self, name: str) -> Layout:
        """The cell's own directory, an ordinary cluster's. Raises `ClusterError` when the path is too long."""
        return choose(str(self.directory / name), os.environ)

    def find_plan(self) -> FederationPlan | None:
        """The federation in the directory; None when it is empty or missing. Raises `ClusterError`. Changes nothing."""
        if not is_usable(self):
            return None
        plan = _read(self.federation_file)
        if plan is not None:
            return plan
        if self.record_file.exists():
            raise unusable(
                f"--cells: {self.directory} holds a single cluster, which stays one: name another directory with "
                "--state-dir, or remove it (eslurm down --purge)"
            )
        foreign = sorted(
            set(os.listdir(self.directory)) - {self.lock_file.name, f"{self.federation_file.name}.new"}
        )
        if foreign:
            raise unusable(
                f"{self.directory}: is not empty and holds no federation ({foreign[0]} is there): name an empty or a "
                "new directory with --state-dir"
            )
        return None

    def save_plan(self, plan: FederationPlan) -> None:
        """Write the file. Only under `locked`."""
        data = msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n"
        settings.replace_file(self.federation_file, data.decode())

    def foreign_names(self, plan: FederationPlan) -> list[str]:
        """Names in the directory that no part of a federation created."""
        own = {STORE, *plan.names, self.lock_file.name, self.supervisor_lock_file.name}
        own |= {self.federation_file.name, f"{self.federation_file.name}.new"}
        return sorted(
            name
            for name in set(os.listdir(self.directory)) - own
            if not re.fullmatch(r"esctld.*\.sock", name)
        )


def _read(path: Path) -> FederationPlan | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(f"{path}: cannot be read: {error.strerror}") from None
    directory = path.parent
    try:
        plan = msgspec.json.decode(data, type=FederationPlan)
    except msgspec.MsgspecError as error:
        raise unusable(
            f"{path}: is not a record of a federation ({error}): put it back, or use another directory (--state-dir)"
        ) from None
    if plan.owner_uid != os.getuid():
        raise unusable(
            f"{directory}: is the federation of user id {plan.owner_uid}, you are {os.getuid()}: use a directory of "
            "your own (--state-dir)"
        )
    if plan.format != FORMAT or version_key(plan.version) > version_key(__version__):
        raise unusable(
            f"{directory}: was made by eslurm {plan.version}, this is {__version__}: use that version, or another "
            "directory (--state-dir)"
        )
    return plan


def names_of(text: str) -> tuple[str, ...]:
    """The cells' names from `--cells`: a number of them, or the names. Raises `ClusterError`."""
    if text.isascii() and text.isdecimal():
        count = int(text[:4])
        if not 2 <= count <= CELLS_MAX:
            raise unusable(f"--cells: {text[:20]}: a federation here has 2 to {CELLS_MAX} cells")
        return (*LETTERS[:count], *(f"c{number}" for number in range(len(LETTERS) + 1, count + 1)))
    names = tuple(text.split(","))
    for name in names:
        if not _CELL.fullmatch(name):
            raise unusable(
                f"--cells: {quoted(name[:40])} is no name of a cell: use up to {CELL_BYTES_MAX} letters, digits and '-' "
                "after the first letter"
            )
        if name.lower() in _RESERVED:
            raise unusable(f"--cells: {name} names something else in the directory: use another name")
    if len({name.lower() for name in names}) < len(names):
        raise unusable("--cells: two cells have the same name")
    if not 2 <= len(names) <= CELLS_MAX:
        raise unusable(f"--cells: names {len(names)}: a federation here has 2 to {CELLS_MAX} cells")
    return names


def split(nodes: int, cells: int) -> tuple[int, ...]:
    """The nodes of each cell: evenly, the first cells have one more. Raises `ClusterError`."""
    if nodes < cells:
        raise unusable(f"--nodes: {nodes} nodes are too few for {cells} cells: give at least {cells}")
    each, more = divmod(nodes, cells)
    return tuple(each + (number < more) for number in range(cells))


def draw_plan(names: Sequence[str], given: Wishes, etcds: int) -> FederationPlan:
    """A new federation. Ports are chosen for all at once, so that cells may start beside each other."""
    nodes = given.nodes or NODES_EACH * len(names)
    plain = [
        msgspec.structs.replace(
            given,
            nodes=count,
            satellites=given.satellites or 1,
            agents=given.agents or 1,
            estimator=bool(given.estimator),
            port_base=None,
        )
        for count in split(nodes, len(names))
    ]
    counts = [2 * etcds, *map(ports_of, plain)]
    chosen = [ports.address(port) for port in ports.choose(sum(counts), given.port_base)]
    pieces = [
        tuple(map(ports.port_of, chosen[first:last]))
        for first, last in pairwise(accumulate(counts, initial=0))
    ]
    members = tuple(
        MemberPlan(f"{STORE}{number + 1}", chosen[2 * number], chosen[2 * number + 1])
        for number in range(etcds)
    )
    uids = free_uids(1 + _USERS_EACH * len(names)) if os.getuid() == 0 else ()
    endpoints = [member.endpoint for member in members]
    cells = []
    for number, (name, wishes, own) in enumerate(zip(names, plain, pieces[1:], strict=True)):
        users = uids[1 + _USERS_EACH * number : 1 + _USERS_EACH * (number + 1)]
        cell = Cell(
            name=name,
            prefix=f"{name}-",
            machine_nodes=nodes,
            ports=own,
            uids=(users[0], users[1], users[2]) if users else None,
            section=_section(name, endpoints),
        )
        cells.append(CellPlan(name, msgspec.structs.replace(wishes, cell=cell)))
    return FederationPlan(
        FORMAT,
        __version__,
        os.getuid(),
        time.time_ns() // 1000,
        NAME,
        secrets.token_hex(8),
        tuple(cells),
        members,
        given,
        uids[0] if uids else 0,
    )


def _section(cell: str, endpoints: Sequence[str]) -> str:
    listed = ", ".join(f'"{endpoint}"' for endpoint in endpoints)
    return (
        f'[federation]\nname = "{NAME}"\ncell = "{cell}"\nendpoints = [{listed}]\n'
        f'ca = "{CA}"\ncertificate = "{CERTIFICATE}"\nkey = "{KEY}"\n'
        # Only these cells can write to it, and one user owns all of them.
        'trust = "store"\n'
    )


def check_agreement(
    layout: CellsLayout, plan: FederationPlan, cells: str | None, etcds: int | None, wishes: Wishes
) -> None:
    """Raise `ClusterError` when an option contradicts the existing federation."""
    here = ", ".join(plan.names)
    way = "leave the option out, or begin anew elsewhere (--state-dir) or here (eslurm down --purge)"
    if cells is not None and names_of(cells) != plan.names:
        raise unusable(
            f"--cells: {cells} is not what the federation in {layout.directory} has ({len(plan.names)}: {here}): {way}"
        )
    given = plan.given
    for option, wanted, has in (
        ("--etcds", etcds, len(plan.members)),
        ("--nodes", wishes.nodes, plan.nodes),
        ("--cores", wishes.cores, given.cores or "its share of the machine"),
        ("--satellites", wishes.satellites, given.satellites or 1),
        ("--agents", wishes.agents, given.agents or 1),
        ("--controllers", wishes.controllers, given.controllers or 1),
        ("--port-base", wishes.port_base, given.port_base or "ports of its own choice"),
        ("--prolog", wishes.prolog, given.prolog or "none"),
        ("--epilog", wishes.epilog, given.epilog or "none"),
    ):
        if wanted is not None and wanted != has:
            raise unusable(
                f"{option}: {wanted} is not what the federation in {layout.directory} has ({has}): {way}"
            )
