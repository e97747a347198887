"""Reading of the configuration file, and its translation into the core's part of it.

Unknown keys are errors: a misspelt limit that silently does nothing is worse than a refusal.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import stat
import tomllib
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from eslurm.compat.errors import OptionError
from eslurm.compat.hostlist import expand
from eslurm.config import positions
from eslurm.config.conversion import converted
from eslurm.config.federation import federation_problems
from eslurm.config.health import health_problems
from eslurm.config.mail import mail_problems, sends_mail
from eslurm.config.modules import gateways_of, modules_of, with_gateways, with_modules
from eslurm.config.nodes import (
    login_of,
    nodes_of,
    resources_of,
    rules_of,
    switches_of,
)
from eslurm.config.phases import phase_problems, programs_of
from eslurm.config.policies import policy_names
from eslurm.config.problems import ConfigError, Problem, Problems, located, refusal
from eslurm.config.sections import Config, EstimatorSection, PartitionSection, PrioritySection
from eslurm.config.tokens import token_problems, token_rules
from eslurm.core.control.privacy import KINDS as PRIVATE_KINDS
from eslurm.core.model.config import ClusterConfig, Partition, PriorityWeights
from eslurm.core.model.endpoint import split_endpoint
from eslurm.core.model.timekeeping import loss_slack_s, lost_after_min_s
from eslurm.security.files import UnsafeFile, read_trusted

FILE_BYTES_MAX = 64 << 20
DIGEST_BYTES = 16
HEARTBEATS_UNCONFIRMED = 3
"""Age of a healthy node's contact in heartbeats, at most: one under way, one lost, one to confirm it."""
PREEMPT_MODES = ("off", "requeue", "cancel", "suspend")
GROUPINGS = ("balanced", "positional")
_WHY_CHARS_MAX = 120
_TOML_END = "(at end of document)"
_TOML_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)$")


class _AnyName(frozenset[str]):
    """Stands for the names of nodes where some are unreadable: any other name may be one of those."""

    def __contains__(self, name: object) -> bool:
        return True


class Checked(NamedTuple):
    """A file that was looked at: its content if nothing is wrong, else the problems in the order of the text."""

    config: Config | None
    problems: tuple[Problem, ...]
    left_out: int
    """Further problems."""


def read_config(path: Path, *, is_obeyed: bool = False) -> Config:
    """Read and check the file. Raises `ConfigError`.

    With `is_obeyed` a file that another user could change is refused: daemons act on it.
    """
    try:
        raw = read_trusted(path, FILE_BYTES_MAX) if is_obeyed else read_bounded(path)
    except UnsafeFile as error:
        raise ConfigError(str(error)) from None
    return parse_config(raw, str(path))


def read_bounded(path: Path) -> bytes:
    """The content of a regular file of a bounded size. Raises `ConfigError`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ConfigError(f"{path}: is not a regular file")
            # Not earlier: of a directory no file can be made, and its descriptor would stay open.
            with open(fd, "rb", closefd=False) as file:
                raw = file.read(FILE_BYTES_MAX + 1)
        finally:
            os.close(fd)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    if len(raw) > FILE_BYTES_MAX:
        raise ConfigError(f"{path}: has more than {FILE_BYTES_MAX} bytes")
    return raw


def parse_config(raw: bytes, origin: str) -> Config:
    """The same from memory; `origin` names it in errors."""
    checked = check_config(raw)
    if checked.config is None:
        raise refusal(origin, checked.problems, checked.left_out)
    return checked.config


def check_config(raw: bytes) -> Checked:
    """Look at all of a file. Of TOML that is not valid only the first mistake is known."""
    text = ""
    try:
        text = raw.decode()
        values = tomllib.loads(text)
        problems = Problems(values)
        config = converted(values, Config, problems)
        cluster_of(config, problems)
        if not problems:
            return Checked(config, (), 0)
        return Checked(None, tuple(located(problems.found, text)), problems.left_out)
    except RecursionError:
        return _invalid("brackets are nested too deeply")
    except ValueError as error:
        # Bytes that are no text and numbers of thousands of digits besides what tomllib calls its own.
        return _invalid(str(error), text)


def _invalid(why: str, text: str = "") -> Checked:
    place = _TOML_PLACE.search(why)
    line, column = (int(place[1]), int(place[2])) if place else (0, 0)
    if why.endswith(_TOML_END):
        text = positions.normal(text)
        line, column = positions.position_of(text, len(text))
    error = OptionError("the file", None, "is not valid TOML", _TOML_PLACE.sub("", why)[:_WHY_CHARS_MAX])
    return Checked(None, (Problem((), error, line=line, column=column),), 0)


def cluster_config(config: Config, origin: str = "configuration") -> ClusterConfig:
    """The core's part of the configuration, as on a host where root runs the controller (`with_own_uid`).

    Raises `ConfigError` when the sections contradict each other.
    """
    problems = Problems()
    made = cluster_of(config, problems)
    if problems:
        raise refusal(origin, problems.found, problems.left_out)
    return made


def cluster_of(config: Config, problems: Problems) -> ClusterConfig:
    """The same, of no use when there are problems."""
    resources = resources_of(config.resource, config.nodes, problems)
    modules = modules_of(config.module, problems)
    plain_nodes = nodes_of(config.nodes, resources, problems)
    names = {node.name: node.name for node in plain_nodes}
    known = _AnyName() if problems.has("nodes", "names") else names.keys()
    nodes = with_modules(plain_nodes, known, config.module, problems)
    gateways = gateways_of(nodes, config.nodes, modules, problems)
    login_nodes = login_of(config.login, names, problems)
    switches = switches_of(config.switch, known, problems)
    rules = rules_of(config.node_rule, known, resources, problems)
    problems.take("tokens", token_problems(config.tokens))
    problems.take("phases", phase_problems(config.phases))
    for path, error in health_problems(config.agent.health_check):
        problems.add(path, error)
    problems.take("mail", mail_problems(config.mail))
    problems.take("federation", federation_problems(config.federation, config.cluster.name))
    partitions = _partitions(config, names, known, gateways, login_nodes, problems)
    partitions = with_gateways(partitions, gateways, modules, problems)
    _check_policy(config, problems)
    _check_satellites(config, names, problems)
    _check_listening(config, problems)
    _check_networks(config.controller.step_networks, problems)
    _check_private(config.privacy.private, problems)
    policy = config.policy
    administrators = config.cluster.administrators
    administrators = [0] if administrators is None else administrators
    numbers = {name: getattr(policy, name) for name in policy.__struct_fields__ if name != "scheduler"}
    made = ClusterConfig(
        cluster=config.cluster.name,
        nodes=nodes,
        partitions=partitions,
        operators=tuple(config.cluster.operators),
        policy=policy.scheduler,
        resources=resources,
        switches=switches,
        node_rules=rules,
        priority=_priority(config.priority),
        use_forecasts=config.estimator.use,
        login_nodes=login_nodes,
        administrators=tuple(dict.fromkeys(administrators)),
        private=tuple(dict.fromkeys(config.privacy.private)),
        min_uid=config.agent.min_uid,
        allow_root_jobs=config.agent.allow_root_jobs,
        tokens=token_rules(config.tokens),
        modules=modules,
        phases=programs_of(config.phases),
        sends_mail=sends_mail(config.mail),
        **numbers,
    )
    _check_billing(made, problems)
    _check_silence(made, problems)
    return made


def config_digest(config: ClusterConfig) -> bytes:
    """Digest of the core's part of a file, the same on every host and for every comment: `config` is for `own_uid` 0."""
    return hashlib.blake2b(msgspec.msgpack.encode(config), digest_size=DIGEST_BYTES).digest()


def with_own_uid(config: ClusterConfig, file: Config, own_uid: int) -> ClusterConfig:
    """The same with the controller's own user among the administrators, unless the file names them."""
    if file.cluster.administrators is not None:
        return config
    return msgspec.structs.replace(config, administrators=tuple(dict.fromkeys((0, own_uid))))


def estimator_settings(section: EstimatorSection) -> dict[str, str | int | float | bool]:
    """The estimator's settings: the section's own keys where they are given, and its table."""
    given = {name: getattr(section, name) for name in ("target_under", "window_jobs", "retrain_every_s")}
    return {name: value for name, value in given.items() if value} | section.settings


def _priority(section: PrioritySection) -> PriorityWeights:
    names = [name for name in section.__struct_fields__ if name != "billing"]
    return PriorityWeights(
        **{name: getattr(section, name) for name in names}, billing=tuple(sorted(section.billing.items()))
    )


def _check_billing(config: ClusterConfig, problems: Problems) -> None:
    known = ("cores", "memory_mib", *(resource.name for resource in config.resources))
    for name, _ in config.priority.billing:
        if name not in known and not problems.has("resource"):
            error = OptionError("priority.billing", name, "is no resource", f"use one of {', '.join(known)}")
            problems.add(("priority", "billing", name), error)


def _check_silence(config: ClusterConfig, problems: Problems) -> None:
    """Check that a node ends its orphaned jobs before the controller gives the node up, whatever their clocks do."""
    if any(problems.has("policy", key) for key in ("orphan_timeout_s", "kill_grace_s", "heartbeat_s")):
        return
    dead_s = config.orphan_timeout_s + config.kill_grace_s
    if loss_slack_s(config) <= 0:
        with problems.at("policy"):
            raise OptionError(
                "policy.node_lost_after_s",
                f"{config.node_lost_after_s:g}",
                f"is too short for orphan_timeout_s + kill_grace_s ({dead_s:g}), or a job could run twice",
                f"set it above {lost_after_min_s(dead_s):g}",
            )
    if config.orphan_timeout_s < HEARTBEATS_UNCONFIRMED * config.heartbeat_s:
        least_s = HEARTBEATS_UNCONFIRMED * config.heartbeat_s
        with problems.at("policy"):
            raise OptionError(
                "policy.orphan_timeout_s",
                f"{config.orphan_timeout_s:g}",
                f"must be at least {HEARTBEATS_UNCONFIRMED} heartbeat_s ({least_s:g}), or jobs on healthy nodes are ended",
                "a contact is confirmed by a later heartbeat",
            )


def _check_policy(config: Config, problems: Problems) -> None:
    policy = config.policy
    with problems.at("policy"):
        if policy.scheduler not in policy_names():
            known = ", ".join(policy_names())
            raise OptionError(
                "policy.scheduler",
                policy.scheduler,
                "is unknown",
                f"use one of {known}, or install the package that offers it",
            )
    with problems.at("policy"):
        try:
            ZoneInfo(policy.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise OptionError(
                "policy.zone", policy.zone, "is no time zone", "write e.g. Europe/Berlin or UTC"
            ) from None
    for key in ("relay_width", "satellite_width"):
        width = getattr(policy, key)
        with problems.at("policy"):
            if width < 0 or width == 1:
                raise OptionError(
                    f"policy.{key}", str(width), "makes no tree", "write 0 (automatic) or at least 2"
                )
    with problems.at("policy"):
        if policy.relay_grouping not in GROUPINGS:
            raise OptionError(
                "policy.relay_grouping",
                policy.relay_grouping,
                "is unknown",
                f"use {' or '.join(GROUPINGS)}",
            )


def _check_satellites(config: Config, nodes: Container[str], problems: Problems) -> None:
    seen: set[str] = set()
    for index, satellite in enumerate(config.satellite):
        with problems.at("satellite", index):
            if satellite.name in nodes:
                raise OptionError(
                    "satellite.name",
                    satellite.name,
                    "is also a compute node: satellites run no jobs",
                    "give it a host of its own",
                )
            if satellite.name in seen:
                raise OptionError("satellite.name", satellite.name, "is used twice", "give it once")
            seen.add(satellite.name)


def _check_listening(config: Config, problems: Problems) -> None:
    """Check the addresses that daemons listen at. Those that may be empty are then none."""
    optional = {
        "controller.metrics_listen": config.controller.metrics_listen,
        "estimator.metrics_listen": config.estimator.metrics_listen,
        "failure.webhook_listen": config.failure.webhook_listen,
    }
    keys: list[tuple[positions.Path, str]] = [
        (("controller", "listen"), config.controller.listen),
        *((("satellite", index, "listen"), one.listen) for index, one in enumerate(config.satellite)),
        *((tuple(key.split(".")), endpoint) for key, endpoint in optional.items() if endpoint),
    ]
    for path, endpoint in keys:
        try:
            split_endpoint(endpoint)
        except ValueError:
            key = ".".join(part for part in path if isinstance(part, str))
            problems.add(path, OptionError(key, endpoint, "is no address", "write HOST:PORT"))


def _check_networks(networks: list[str], problems: Problems) -> None:
    for network in networks:
        with problems.at("controller"):
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise OptionError(
                    "controller.step_networks",
                    network,
                    f"is no network ({str(error)[:_WHY_CHARS_MAX]})",
                    "write e.g. 10.2.0.0/16",
                ) from None


def _check_private(private: list[str], problems: Problems) -> None:
    for kind in private:
        with problems.at("privacy"):
            if kind not in PRIVATE_KINDS:
                raise OptionError(
                    "privacy.private", kind, "is unknown", f"use some of {', '.join(PRIVATE_KINDS)}"
                )


def _partitions(
    config: Config,
    names: dict[str, str],
    known: Container[str],
    gateways: dict[str, str],
    login: tuple[str, ...],
    problems: Problems,
) -> tuple[Partition, ...]:
    """The partitions. They share the nodes' own name strings: copies for twenty thousand nodes take a megabyte."""
    found: list[Partition] = []
    taken = set[str]()
    for index, section in enumerate(config.partition):
        members: tuple[str, ...] = ()
        with problems.at("partition", index):
            users = names.keys() - gateways.keys() if gateways else names.keys()
            members = (
                expand(section.nodes, "partition.nodes")
                if section.nodes
                else tuple(filter(users.__contains__, names))
            )
            _check_members(section, members, known, gateways, login)
        with problems.at("partition", index):
            if section.name in taken:
                raise OptionError("partition.name", section.name, "is used twice", "give it once")
            taken.add(section.name)
        with problems.at("partition", index):
            if section.preempt_mode not in PREEMPT_MODES:
                raise OptionError(
                    "partition.preempt_mode",
                    section.preempt_mode,
                    "is unknown",
                    f"use {', '.join(PREEMPT_MODES)}",
                )
        with problems.at("partition", index):
            if section.default and any(partition.default for partition in found):
                raise OptionError(
                    "partition.default",
                    section.name,
                    "is not the first with it",
                    "only one partition can be the default",
                )
        found.append(
            Partition(
                section.name,
                tuple([names.get(name, name) for name in members]),
                section.default,
                section.up,
                section.time_limit_default_s,
                section.time_limit_max_s,
                section.memory_per_cpu_default_mib,
                section.priority,
                section.preempt_mode,
                section.tier,
                delay_max_s=section.delay_max_s,
            )
        )
    return tuple(found)


def _check_members(
    section: PartitionSection,
    members: tuple[str, ...],
    known: Container[str],
    gateways: dict[str, str],
    login: tuple[str, ...],
) -> None:
    """Raise `OptionError` for a member that can be in no partition."""
    for name in members:
        if name in login:
            raise OptionError(
                "partition.nodes",
                name,
                f"of {section.name} is a login host, where no job runs",
                "leave it out",
            )
        if name not in known:
            raise OptionError(
                "partition.nodes", name, f"of {section.name} is not among the nodes", "correct the name"
            )
        if name in gateways:
            raise OptionError(
                "partition.nodes",
                name,
                f"of {section.name} is in the gateway module {gateways[name]}: gateways are in no partition",
                "leave it out",
            )
