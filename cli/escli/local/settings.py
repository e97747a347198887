"""The configuration and the site's keys of a personal cluster: written once, then the user's.

Invariant: an existing `eslurm.toml` is never rewritten but for the ports that `--port-base` asks for, and for a section
that an older release did not have; an option that contradicts it is refused.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from escli.errors import ClusterError, unusable
from escli.local import ports
from escli.local.layout import Layout
from eslurm.compat.hostlist import expand
from eslurm.config.file import parse_config, read_config
from eslurm.config.problems import ConfigError
from eslurm.config.sections import AgentSection, Config
from eslurm.security import home, site_keys
from eslurm.security.account import Account

NODES_DEFAULT = 4
SATELLITES_DEFAULT = 2
AGENTS_DEFAULT = 2
NODES_MAX = 4096
EMULATED_MAX = 65_536
PROCESSES_MAX = 64
CONTROLLERS_MAX = 9
NODES_PER_SATELLITE = 5_000
"""One satellite for every so many nodes (E-69)."""
NODES_PER_HOST = 2_560
CORES_EMULATED = 4
MEMORY_EMULATED_MIB = 4_096
_MEMORY_MIN_MIB = 64

_TEXT = """\
# The configuration of this personal cluster, written by `eslurm up`. Edit it while the cluster is down: `eslurm up`
# reads it and keeps what you write. Every key: docs/reference/configuration.md.

[cluster]
name = "{cluster}"
operators = [{uid}]

[controller]
listen = "{controller}"
{store}{satellites}{agent}
[[nodes]]
names = "{nodes}"
cores = {cores}
memory_mib = {memory_mib}

[[partition]]
name = "main"
default = true
{sections}"""


class Cell(msgspec.Struct, frozen=True):
    """The settings by which a new cluster differs when it is a cell of a federation on this machine.

    `prefix`: of its nodes' names, which no other cell has. `machine_nodes`: nodes of all cells, which share the machine.
    `ports`: of its daemons. `uids`: of its agents, satellites and controllers, as root. `section`: text of `[federation]`.
    """

    name: str
    prefix: str
    machine_nodes: int
    ports: tuple[int, ...]
    uids: tuple[int, int, int] | None
    section: str


class Wishes(msgspec.Struct, frozen=True):
    """The options of the command line; None leaves the choice to the configuration, or to the defaults of a new cluster.

    `emulated` nodes offer the resources of real ones, not their share of this machine, and have more satellites and
    agents.
    """

    nodes: int | None = None
    cores: int | None = None
    satellites: int | None = None
    agents: int | None = None
    port_base: int | None = None
    emulated: bool = False
    controllers: int | None = None
    store: str | None = None
    estimator: bool | None = None
    allow_root_jobs: bool = False
    prolog: str | None = None
    epilog: str | None = None
    cell: Cell | None = None

    @property
    def phases(self) -> dict[str, str]:
        """The programs around each job, by the names of their keys."""
        return {name: path for name in ("prolog", "epilog") if (path := getattr(self, name))}

    @property
    def satellites_wanted(self) -> int:
        """Number of satellites of a new cluster."""
        if self.satellites is not None:
            return self.satellites
        if not self.emulated:
            return SATELLITES_DEFAULT
        return max(SATELLITES_DEFAULT, round((self.nodes or 0) / NODES_PER_SATELLITE))

    @property
    def agents_wanted(self) -> int:
        """Number of processes for the nodes of a new cluster, at most."""
        if self.agents is not None:
            return self.agents
        return (
            max(AGENTS_DEFAULT, -(-(self.nodes or 0) // NODES_PER_HOST)) if self.emulated else AGENTS_DEFAULT
        )


def cluster_name(uid: int, cell: str = "") -> str:
    """A name that no other cluster has; it begins with the user's, or the cell's."""
    if cell:
        return f"{cell}-{secrets.token_hex(3)}"
    try:
        user = re.sub(r"[^A-Za-z0-9]", "", pwd.getpwuid(uid).pw_name)[:32]
    except KeyError:
        user = ""
    return f"{user or 'user'}-{secrets.token_hex(3)}"


def write_site_keys(directory: Path, cluster: str) -> None:
    """Generate the controllers' signing keys, unless there are any. Raises `ClusterError`, OSError.

    After a crash between both halves the public one is written now.
    """
    if not (directory / site_keys.SITE_KEY).exists():
        site_keys.write_site_keys(directory, site_keys.new_site(cluster, time.time_ns() // 1000))
        return
    try:
        keys = site_keys.read_site_keys(directory)
    except site_keys.SiteKeyError as error:
        raise ClusterError(str(error)) from None
    if keys.cluster != cluster:
        raise ClusterError(
            f"{directory / site_keys.SITE_KEY} is of cluster {keys.cluster}, not of {cluster}: move it away, or put back "
            "the configuration that belongs to it"
        )
    if not (directory / site_keys.SITE_PUB).exists():
        site_keys.write_ring(directory / site_keys.SITE_PUB, keys.ring)


def compose(cluster: str, wishes: Wishes, uid: int, chosen: Sequence[int]) -> str:
    """The configuration of a new cluster; `chosen` are the ports of the controller and the satellites."""
    nodes = wishes.nodes or NODES_DEFAULT
    cell = wishes.cell
    shared = cell.machine_nodes if cell else nodes
    cores, memory_mib = (
        (CORES_EMULATED, MEMORY_EMULATED_MIB) if wishes.emulated else _share_of_machine(shared)
    )
    sections = [
        f'\n[[satellite]]\nname = "sat{number}"\nlisten = "{ports.address(port)}"\n'
        for number, port in enumerate(chosen[1:], 1)
    ]
    return _TEXT.format(
        cluster=cluster,
        uid=uid,
        controller=ports.address(chosen[0]),
        store=f"store_url = {json.dumps(wishes.store)}\n" if wishes.store else "",
        satellites="".join(sections),
        agent=_agent_section(uid, wishes.allow_root_jobs, wishes.phases),
        nodes=node_names(nodes, cell.prefix if cell else ""),
        cores=wishes.cores or cores,
        memory_mib=memory_mib,
        sections=f"\n{cell.section}" if cell else "",
    )


def add_agent_section(layout: Layout, uid: int, *, allow_root_jobs: bool) -> None:
    """Let an older cluster run its owner's jobs as a new one would; a present section stays. Raises OSError."""
    text = layout.config_file.read_text(encoding="utf-8")
    if "agent" not in tomllib.loads(text):
        section = _agent_section(uid, allow_root_jobs)
        if section:
            replace_file(layout.config_file, text.rstrip("\n") + "\n" + section)


def _agent_section(uid: int, allow_root_jobs: bool, phases: Mapping[str, str] | None = None) -> str:
    """The section that differs from the default: a personal cluster runs its owner's jobs, root's on request."""
    lines = []
    if uid == 0 and allow_root_jobs:
        lines.append("allow_root_jobs = true\n")
    elif 0 < uid < AgentSection().min_uid:
        lines.append(f"min_uid = {uid}\n")
    lines += [f"{name} = {json.dumps(path)}\n" for name, path in (phases or {}).items()]
    return "".join(("\n[agent]\n", *lines)) if lines else ""


def _share_of_machine(nodes: int) -> tuple[int, int]:
    return max(1, (os.cpu_count() or 1) // nodes), max(_MEMORY_MIN_MIB, machine_memory_mib() // nodes)


def node_names(count: int, prefix: str = "") -> str:
    """`cn[01-16]`: numbers of equal width, so that they sort."""
    width = max(2, len(str(count)))
    return f"{prefix}cn[{1:0{width}}-{count:0{width}}]" if count > 1 else f"{prefix}cn{1:0{width}}"


def machine_memory_mib() -> int:
    """Memory of this machine in MiB."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20


def load_config(layout: Layout, cluster: str) -> Config:
    """The configuration of an existing cluster, checked to be this one's. Raises `ClusterError`."""
    try:
        config = read_config(layout.config_file)
    except ConfigError as error:
        raise unusable(str(error)) from None
    if config.cluster.name != cluster:
        raise unusable(
            f"{layout.config_file}: cluster.name: is {config.cluster.name}, but this directory is of cluster {cluster}: "
            "put the name back, or use another directory (--state-dir)"
        )
    return config


def check_agreement(layout: Layout, config: Config, agents: int, wishes: Wishes) -> None:
    """Raise `ClusterError` when an option contradicts the existing cluster."""
    nodes = count_nodes(config)
    cores = sorted({section.cores for section in config.nodes})
    for option, wanted, here in (
        ("--emulate" if wishes.emulated else "--nodes", wishes.nodes, [nodes]),
        ("--cores", wishes.cores, cores),
        ("--satellites", wishes.satellites, [len(config.satellite)]),
        ("--hosts" if wishes.emulated else "--agents", wishes.agents, [agents]),
    ):
        if wanted is not None and [wanted] != here:
            has = ", ".join(map(str, here))
            raise unusable(
                f"{option}: {wanted} is not what the cluster in {layout.directory} has ({has}): leave the option out, "
                f"{_way_to_change(option, layout)}, or begin anew elsewhere (--state-dir) or here (eslurm down --purge)"
            )
    for name, path in wishes.phases.items():
        if path != (here := getattr(config.agent, name)):
            raise unusable(
                f"--{name}: {path} is not what the cluster in {layout.directory} has ({here or 'none'}): set agent.{name} "
                f"in {layout.config_file} while the cluster is down"
            )
    if wishes.store is not None and wishes.store != config.controller.store_url:
        # Without the URLs: they may hold a password.
        raise unusable(
            f"--store: the cluster in {layout.directory} keeps its jobs in another store: leave the option out, or "
            "begin anew elsewhere (--state-dir) or here (eslurm down --purge)"
        )


def _way_to_change(option: str, layout: Layout) -> str:
    if option in ("--agents", "--hosts"):
        return "keep the agents as they are"
    return f"edit {layout.config_file} while the cluster is down"


def count_nodes(config: Config) -> int:
    """Number of nodes in the configuration."""
    return sum(len(expand(section.names, "nodes.names")) for section in config.nodes)


def move_ports(layout: Layout, config: Config, chosen: list[int]) -> Config:
    """Give the controller and the satellites other ports, leaving everything else in the file as it is."""
    text = layout.config_file.read_text(encoding="utf-8")
    before = [config.controller.listen, *(satellite.listen for satellite in config.satellite)]
    after = [ports.address(port) for port in chosen]
    moved = dict(zip(before, after, strict=True))
    lines = [_with_other_address(line, moved) for line in text.splitlines(keepends=True)]
    changed = parse_config("".join(lines).encode(), str(layout.config_file))
    got = [changed.controller.listen, *(satellite.listen for satellite in changed.satellite)]
    if got != after:
        raise ClusterError(
            f"{layout.config_file}: the ports could not be changed: set the `listen` lines by hand to "
            f"{', '.join(after)}"
        )
    replace_file(layout.config_file, "".join(lines))
    return changed


def _with_other_address(line: str, moved: dict[str, str]) -> str:
    found = re.match(r"""(\s*listen\s*=\s*)(["'])([^"']*)\2(.*)""", line, re.DOTALL)
    if found is None or found[3] not in moved:
        return line
    return f"{found[1]}{found[2]}{moved[found[3]]}{found[2]}{found[4]}"


def share(layout: Layout, uid: int) -> None:
    """Let root's controllers and estimator, which are not root, read the configuration. Raises `ClusterError`."""
    if uid:
        try:
            home.share(layout.config_file, Account(uid, uid))
        except OSError as error:
            raise ClusterError(f"{layout.config_file}: {error.strerror}") from None


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically; readable by its owner only."""
    fresh = path.with_name(f"{path.name}.new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
