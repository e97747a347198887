"""The texts of a new site: its configuration, and the arguments of its units for systemd. Pure, from a few answers.

Invariant: of the same answers all hosts get files that fit each other, whatever their roles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import msgspec

from escli.errors import unusable
from eslurm.compat.errors import OptionError, quoted
from eslurm.compat.hostlist import expand, fold
from eslurm.config.file import parse_config
from eslurm.config.problems import ConfigError
from eslurm.config.values import Count, Name

CONTROLLER_PORT, SATELLITE_PORT, AGENT_PORT = 7400, 7401, 7402
CONFIG_FILE = "/etc/eslurm/eslurm.toml"
ANSWERS_FILE = "/etc/eslurm/site.toml"
STATE_DIR = "/var/lib/eslurm"
MAIN = "main"
"""Name of the controller that leads first."""
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")

_CONFIG = """\
# The configuration of cluster {cluster}, written by `eslurm init`: one file, the same on all controllers' hosts.
# `eslurm check` looks at it; `esctl reconfigure` brings changes into force, and says which keys need a restart.
# Every key: docs/reference/configuration.md.

[cluster]
name = "{cluster}"
# User ids that may change nodes, policies and other users' jobs: root, and the daemons' own user for esestd.
operators = {operators}

[controller]
# For satellites, nodes and remote clients. Commands on this host use a socket.
listen = "0.0.0.0:{port}"
# Where jobs are kept. Empty: a SQLite file in the state directory, for controllers of one host.
store_url = {store}
{satellites}{login}
# The order is the network's: neighbours are near.
[[nodes]]
names = {nodes}
cores = {cores}
memory_mib = {memory_mib}

[[partition]]
name = "main"
default = true
# Longest time limit in seconds; 0: unlimited.
time_limit_max_s = 0
"""
_DROP_IN = """\
# This site's arguments, written by `eslurm init`.
[Service]
"""


class Answers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The answers about a site, the same for all its hosts. Lists of hosts are folded.

    The first of the `controllers` leads, the others stand by. `cores`, `memory_mib`: what each node offers to jobs.
    `store`: URL of the store; it is in no file for other hosts, as it may hold a password.
    """

    cluster: Name
    controllers: str
    nodes: str
    cores: Count
    memory_mib: Count
    satellites: str = ""
    login: str = ""
    store: str = ""


class HostFile(msgspec.Struct, frozen=True):
    """A file to write. `is_shared`: readable by the daemons' group, else by all users."""

    path: str
    text: str
    is_shared: bool = False


class Site:
    """A site by its answers: hosts, roles and files. Raises `ClusterError` for answers that contradict each other."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.controllers = _hosts("controllers", answers.controllers)
        self.nodes = _hosts("nodes", answers.nodes)
        self.satellites = _hosts("satellites", answers.satellites)
        self.login = _hosts("login", answers.login)
        if not self.controllers:
            raise unusable("controllers: none is named: name the host of the controller")

    def roles_of(self, host: str) -> tuple[str, ...]:
        """The daemons of a host: controller, standby, satellite, agent, login. Raises `ClusterError` when it has none."""
        found = ["controller" if host == self.controllers[0] else "standby"] * (host in self.controllers)
        for role, hosts in (("satellite", self.satellites), ("agent", self.nodes), ("login", self.login)):
            found += [role] * (host in hosts)
        if not found:
            raise unusable(
                f"{quoted(host)} is none of this site's hosts: name it among controllers, satellites, nodes or login, or "
                "say which of them this host is (--host NAME)"
            )
        return tuple(found)

    def configuration(self, operators: list[int]) -> str:
        """The configuration file. Raises `ClusterError`."""
        answers = self.answers
        if len(self.controllers) > 1 and not answers.store.startswith("postgresql"):
            raise unusable(
                f"controllers: {answers.controllers} are several hosts, which share no SQLite file: name a PostgreSQL store "
                "(postgresql://USER@HOST/DATABASE), or one controller"
            )
        satellites = "".join(
            f'\n[[satellite]]\nname = "{name}"\nlisten = "{name}:{SATELLITE_PORT}"\n'
            for name in self.satellites
        )
        text = _CONFIG.format(
            cluster=answers.cluster,
            operators=operators,
            port=CONTROLLER_PORT,
            store=_toml(answers.store),
            satellites=satellites,
            login=f"\n[login]\nnodes = {_toml(answers.login)}\n" if self.login else "",
            nodes=_toml(fold(self.nodes)),
            cores=answers.cores,
            memory_mib=answers.memory_mib,
        )
        try:
            parse_config(text.encode(), "the answers")
        except ConfigError as error:
            raise unusable(str(error)) from None
        return text

    def files_of(self, roles: tuple[str, ...], host: str, operators: list[int]) -> tuple[HostFile, ...]:
        """All files of a host but its keys. Raises `ClusterError`."""
        files = []
        if "controller" in roles:
            files.append(HostFile(CONFIG_FILE, self.configuration(operators), is_shared=True))
            files.append(HostFile(ANSWERS_FILE, self._for_other_hosts()))
        for role in roles:
            files += [
                HostFile(f"/etc/systemd/system/{unit}.service.d/site.conf", _DROP_IN + lines)
                for unit, lines in self._drop_in(role, host)
            ]
        return tuple(files)

    @property
    def endpoints(self) -> str:
        """The controllers, as other daemons dial them."""
        return ",".join(f"{name}:{CONTROLLER_PORT}" for name in self.controllers)

    def _for_other_hosts(self) -> str:
        head = "# Answers for this site's other hosts: eslurm init --answers site.toml\n"
        known = msgspec.to_builtins(msgspec.structs.replace(self.answers, store=""))
        return head + "".join(f"{name} = {_toml(value)}\n" for name, value in known.items())

    def _drop_in(self, role: str, host: str) -> Iterator[tuple[str, str]]:
        """The unit, and what replaces its own lines; nothing where the unit fits as it is."""
        cluster = f"--cluster {self.answers.cluster}"
        controllers = self.endpoints
        if role == "standby":
            words = f"esctld --config {CONFIG_FILE} --state-dir {STATE_DIR} --name {_name(host)}"
            socket = f"/bin/ln -sfn {STATE_DIR}/esctld-{_name(host)}.sock /run/eslurm/esctld.sock"
            yield "esctld", _exec("ExecStart", f"/usr/bin/env {words}") + _exec("ExecStartPost", socket)
        elif role == "satellite":
            words = f"--name %l {cluster} --listen 0.0.0.0:{SATELLITE_PORT} --controllers {controllers}"
            yield "essatd", _exec("ExecStart", f"/usr/bin/env essatd {words} --state-dir /var/lib/essatd")
        elif role == "agent":
            satellites = ",".join(f"{name}:{SATELLITE_PORT}" for name in self.satellites)
            words = " ".join(
                (
                    *("--nodes %l", cluster, *([f"--satellites {satellites}"] if satellites else [])),
                    *(f"--controller {controllers}", f"--listen 0.0.0.0:{AGENT_PORT}"),
                    *(f"--cores {self.answers.cores}", f"--memory-mib {self.answers.memory_mib}"),
                )
            )
            yield "esnoded", _exec("ExecStart", f"/usr/bin/env esnoded {words} --state-dir /var/lib/esnoded")
        elif role == "login":
            words = f"--login --nodes %l {cluster} --controller {controllers} --listen 0.0.0.0:{AGENT_PORT}"
            places = "--state-dir /var/lib/esnoded-login --socket /run/eslurm/esctld.sock"
            yield "esnoded-login", _exec("ExecStart", f"/usr/bin/env esnoded {words} {places}")

    def next_commands(self, roles: tuple[str, ...], host: str) -> tuple[str, ...]:
        """The commands to type now, in their order; comments begin with #."""
        return tuple(line for role in roles for line in self._next(role, host))

    def _next(self, role: str, host: str) -> Iterator[str]:
        if role == "controller":
            yield "systemctl enable --now esctld"
            groups = (("satellite", self.satellites), ("agent", self.nodes), ("login", self.login))
            for kind, hosts in groups:
                if hosts:
                    yield (
                        f"esctl node token create --role {kind} --nodes '{fold(hosts)}' --uses {len(hosts)} --hours 24 "
                        f"> join-{kind}"
                    )
            yield f"# on each other host, with copies of {ANSWERS_FILE} and join-*: eslurm init --answers site.toml"
            return
        if role == "standby":
            first = self.controllers[0]
            yield f"# from {first}, with their owners and modes: {CONFIG_FILE}, {STATE_DIR}/site.key, {STATE_DIR}/site.pub"
            yield "systemctl enable --now esctld"
            return
        unit, option = {
            "satellite": ("essatd", "name"),
            "agent": ("esnoded", "nodes"),
            "login": ("esnoded-login", "nodes"),
        }[role]
        yield (
            f"eslurm join {self.endpoints} --role {role} --{option} {host} --state-dir /var/lib/{unit} "
            f"--token-file join-{role}"
        )
        yield f"systemctl enable --now {unit}"


def _exec(key: str, line: str) -> str:
    """A command in place of the unit's own."""
    return f"{key}=\n{key}={line}\n"


def _name(host: str) -> str:
    """A controller's name, from its host's."""
    return host.partition(".")[0][:32]


def _toml(value: object) -> str:
    """A text, number or list as TOML: in these it is written as in JSON."""
    return json.dumps(value)


def _hosts(option: str, text: str) -> tuple[str, ...]:
    """The hosts of a folded list: names that can stand in addresses, unit files and shells. Raises `ClusterError`."""
    try:
        names = expand(text, option) if text else ()
    except OptionError as error:
        raise unusable(str(error)) from None
    for name in names:
        if not _HOST.fullmatch(name):
            raise unusable(
                f"{option}: {quoted(name)} is no host's name: use letters, digits, '-' and '.', as cn[01-16]"
            )
    return tuple(names)
