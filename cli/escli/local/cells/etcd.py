"""The etcd of a federation on this machine: daemons of a record of their own, in DIR/etcd.

They listen on loopback with TLS, and ask for a certificate on both ports: every user of the host can reach them there. As
root they run as a user of their own, and root follows no name in their directories. Invariant: certificates are drawn before
an etcd or a cell starts for the first time, all of them at once.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Mapping

from escli import exits
from escli.errors import ClusterError, unusable
from escli.interrupts import Interrupts
from escli.local import ports
from escli.local.cells.certificates import Authority, Pair
from escli.local.cells.plan import CA, CERTIFICATE, KEY, STORE, CellsLayout, FederationPlan, MemberPlan
from escli.local.layout import Layout, locked, make
from escli.local.plan import Notify, Planned, Programs
from escli.local.record import FORMAT, ClusterRecord
from escli.local.start import start_all
from escli.local.stop import alive_daemons, take_back
from eslurm import __version__
from eslurm.security import home
from eslurm.security.account import Account
from eslurm.security.files import write_private, write_public

PROGRAM = "ESLURM_ETCD"
"""Environment variable that names the program."""
QUOTA_BYTES = 256 * 1024 * 1024
COMPACTION = "10m"
_PEER_CA, _PEER = "peer-ca.pem", "peer"
_WAY_OUT = "`sh scripts/system_packages.sh` or `apt-get install etcd-server` installs it, or name one with ESLURM_ETCD"


def with_etcd(programs: Programs, plan: FederationPlan, environ: Mapping[str, str]) -> Programs:
    """The programs and the etcd's. Raises `ClusterError` when there is none."""
    if STORE in programs:
        return programs
    words = [find_program(environ)]
    if plan.uid:
        words = [sys.executable, "-P", "-m", "escli.local.as_user", str(plan.uid), *words]
    return {**programs, STORE: words}


def find_program(environ: Mapping[str, str]) -> str:
    """The path of the program. Raises `ClusterError` with the way to get it."""
    named = environ.get(PROGRAM, "")
    found = shutil.which(os.path.abspath(named) if named else STORE, path=environ.get("PATH"))
    if found is None:
        missing = f"{PROGRAM}={named} is no program" if named else f"there is no program {STORE}"
        raise unusable(f"--cells: {missing}, which the cells share: {_WAY_OUT}")
    return os.path.abspath(found)


def furnish(layout: CellsLayout, plan: FederationPlan) -> ClusterRecord:
    """The etcds' record; with it, at first, all certificates. Cells have to be made before. Raises `ClusterError`."""
    store = layout.store
    record = store.find_record()
    if record is None:
        try:
            _draw(layout, plan)
        except OSError as error:
            raise ClusterError(f"{error.filename}: {error.strerror}") from None
        name = f"{STORE}-{secrets.token_hex(3)}"
        record = ClusterRecord(FORMAT, __version__, name, plan.owner_uid, time.time_ns() // 1000, 0)
        store.save(record)
    return record


def _draw(layout: CellsLayout, plan: FederationPlan) -> None:
    """Write the certificates of all, anew if an earlier run got no further. Raises OSError."""
    cells, members = Authority(f"{plan.name}: cells"), Authority(f"{plan.name}: etcd")
    directory = layout.store.directory
    write_public(directory / CA, cells.pem)
    write_public(directory / _PEER_CA, members.pem)
    for member in plan.members:
        _place(layout.store, member.name, cells.issue(member.name, "server"), plan.uid)
        _place(layout.store, f"{member.name}-{_PEER}", members.issue(member.name, "both"), plan.uid)
    for cell in plan.cells:
        at = layout.cell(cell.name)
        uids = cell.wishes.cell.uids if cell.wishes.cell else None
        pair = cells.issue(cell.name, "client")
        write_public(at.directory / CA, cells.pem)
        write_public(at.directory / CERTIFICATE, pair.certificate)
        _write_key(at, KEY, pair.key, uids[2] if uids else 0)


def _place(store: Layout, name: str, pair: Pair, uid: int) -> None:
    write_public(store.directory / f"{name}.pem", pair.certificate)
    _write_key(store, f"{name}.key", pair.key, uid)


def _write_key(layout: Layout, name: str, key: bytes, uid: int) -> None:
    path = layout.directory / name
    write_private(path, key)
    if uid:
        home.share(path, Account(uid, uid))


def planned_of(layout: CellsLayout, plan: FederationPlan) -> list[Planned]:
    """The etcds with their command lines."""
    return [_planned(layout.store, plan, member) for member in plan.members]


def _planned(store: Layout, plan: FederationPlan, member: MemberPlan) -> Planned:
    directory = store.directory
    peer = f"https://{member.peer}"
    options = {
        "name": member.name,
        "data-dir": directory / member.name,
        "listen-client-urls": member.endpoint,
        "advertise-client-urls": member.endpoint,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": ",".join(f"{one.name}=https://{one.peer}" for one in plan.members),
        "initial-cluster-token": plan.token,
        "initial-cluster-state": "new",
        "cert-file": directory / f"{member.name}.pem",
        "key-file": directory / f"{member.name}.key",
        "trusted-ca-file": directory / CA,
        "client-cert-auth": "true",
        "peer-cert-file": directory / f"{member.name}-{_PEER}.pem",
        "peer-key-file": directory / f"{member.name}-{_PEER}.key",
        "peer-trusted-ca-file": directory / _PEER_CA,
        "peer-client-cert-auth": "true",
        "quota-backend-bytes": QUOTA_BYTES,
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": COMPACTION,
        "enable-grpc-gateway": "false",
        "logger": "zap",
        "log-level": "warn",
    }
    return Planned(
        member.name,
        STORE,
        member.listen,
        tuple(f"--{name}={value}" for name, value in options.items()),
        notify=Notify(directory / f"{member.name}.ready", plan.uid),
    )


def start(
    layout: CellsLayout,
    plan: FederationPlan,
    programs: Programs,
    interrupts: Interrupts,
    timeout_s: float,
    told: Callable[[str, float], None],
) -> tuple[ClusterRecord, tuple[str, ...]]:
    """Start the etcds that do not run: side by side, since most of them have to be there before one is ready.

    Returns their record and the names of those that were started. Raises `ClusterError`.
    """
    store = layout.store
    make(store)
    with locked(store):
        record = furnish(layout, plan)
        alive = {daemon.name for daemon in alive_daemons(record)}
        missing = [one for one in planned_of(layout, plan) if one.name not in alive]
        listening = {member.name: (member.listen, member.peer) for member in plan.members}
        for one in missing:
            _check_ports(one.name, *listening[one.name])
            _make_data(store, one.name, plan.uid)
        names = {one.name for one in missing}
        try:
            record = start_all(store, record, missing, programs, interrupts, timeout_s, told)
        except ClusterError:
            take_back(store, store.get_record(), names)
            raise
    return record, tuple(one.name for one in missing)


def _make_data(store: Layout, name: str, uid: int) -> None:
    """The member's own directory: given to its user while it is empty, and never entered afterwards."""
    path = store.directory / name
    if path.exists():
        return
    try:
        path.mkdir(mode=0o700)
        if uid:
            os.chown(path, uid, uid)
    except OSError as error:
        raise ClusterError(f"{path}: {error.strerror}") from None


def _check_ports(name: str, *listens: str) -> None:
    for listen in listens:
        if not ports.is_free(listen):
            port = ports.port_of(listen)
            raise ClusterError(
                f"{name}: port {port} is in use by another program: end that (ss -ltnp 'sport = :{port}' names it); a "
                "federation keeps its ports",
                exits.FAILED,
            )
