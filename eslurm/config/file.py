"""Reading of the configuration file, and its translation into the core's part of it.

Unknown keys are errors: a misspelt limit that silently does nothing is worse than a refusal.
"""

from __future__ import annotations

import hashlib
import ipaddress
import tomllib
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from eslurm.compat.errors import OptionError, escaped, quoted
from eslurm.compat.hostlist import expand
from eslurm.config.federation import federation_of
from eslurm.config.mail import check_mail
from eslurm.config.modules import gateways_of, modules_of, with_gateways, with_modules
from eslurm.config.nodes import (
    login_of,
    nodes_of,
    resources_of,
    rules_of,
    switches_of,
)
from eslurm.config.phases import programs_of
from eslurm.config.policies import policy_names
from eslurm.config.sections import Config, EstimatorSection, PrioritySection
from eslurm.config.tokens import check_tokens, token_rules
from eslurm.core.control.privacy import KINDS as PRIVATE_KINDS
from eslurm.core.model.config import ClusterConfig, Partition, PriorityWeights
from eslurm.core.model.timekeeping import loss_slack_s, lost_after_min_s
from eslurm.security.files import UnsafeFile, read_trusted

FILE_BYTES_MAX = 64 << 20
DIGEST_BYTES = 16
HEARTBEATS_UNCONFIRMED = 3
"""Age of a healthy node's contact in heartbeats, at most: one under way, one lost, one to confirm it."""
PREEMPT_MODES = ("off", "requeue", "cancel", "suspend")
GROUPINGS = ("balanced", "positional")


class ConfigError(Exception):
    """The file is unusable. The text names the file, the key, the value and the way out, in one line."""

    def __init__(self, text: str) -> None:
        super().__init__(escaped(text))


def read_config(path: Path, *, is_obeyed: bool = False) -> Config:
    """Read and check the file. Raises `ConfigError`.

    With `is_obeyed` a file that another user could change is refused: daemons act on it.
    """
    try:
        raw = read_trusted(path, FILE_BYTES_MAX) if is_obeyed else path.read_bytes()
    except UnsafeFile as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_config(raw, str(path))


def parse_config(raw: bytes, origin: str) -> Config:
    """The same from memory; `origin` names it in errors."""
    try:
        config = msgspec.convert(tomllib.loads(raw.decode()), Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{origin}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{origin}: is not valid TOML: brackets are nested too deeply") from None
    except ValueError as error:
        # Bytes that are no text and numbers of thousands of digits besides what tomllib calls its own.
        raise ConfigError(f"{origin}: is not valid TOML: {error}") from None
    cluster_config(config, origin)
    return config


def cluster_config(config: Config, origin: str = "configuration") -> ClusterConfig:
    """The core's part of the configuration, as on a host where root runs the controller (`with_own_uid`).

    Raises `ConfigError` when the sections contradict each other.
    """
    try:
        resources = resources_of(config.resource, config.nodes)
        modules = modules_of(config.module)
        nodes = with_modules(nodes_of(config.nodes, resources), config.module)
        gateways = gateways_of(nodes, modules)
        names = [node.name for node in nodes]
        login_nodes = login_of(config.login, names)
        switches = switches_of(config.switch, names)
        rules = rules_of(config.node_rule, names, resources)
        check_tokens(config.tokens)
        phases = programs_of(config.phases)
        sends_mail = check_mail(config.mail)
        federation_of(config.federation, config.cluster.name)
        own = {node.name: node.name for node in nodes}
        partitions = _partitions(config, own, gateways, login_nodes, origin)
        partitions = with_gateways(partitions, gateways, modules)
    except OptionError as error:
        raise ConfigError(f"{origin}: {error}") from None
    policy = config.policy
    if policy.scheduler not in policy_names():
        known = ", ".join(policy_names())
        raise ConfigError(
            f"{origin}: policy.scheduler: {quoted(policy.scheduler)} is unknown: use one of {known}, or install the package"
            " that offers it"
        )
    _check_zone(policy.zone, origin)
    _check_networks(config.controller.step_networks, origin)
    _check_relay(config, {node.name for node in nodes}, origin)
    _check_private(config.privacy.private, origin)
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
        phases=phases,
        sends_mail=sends_mail,
        **numbers,
    )
    _check_billing(made, origin)
    _check_silence(made, origin)
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


def _check_billing(config: ClusterConfig, origin: str) -> None:
    known = ("cores", "memory_mib", *(resource.name for resource in config.resources))
    for name, _ in config.priority.billing:
        if name not in known:
            raise ConfigError(
                f"{origin}: priority.billing: {quoted(name)} is no resource: use one of {', '.join(known)}"
            )


def _check_silence(config: ClusterConfig, origin: str) -> None:
    """Check that a node ends its orphaned jobs before the controller gives the node up, whatever their clocks do."""
    dead_s = config.orphan_timeout_s + config.kill_grace_s
    if loss_slack_s(config) <= 0:
        raise ConfigError(
            f"{origin}: policy.node_lost_after_s: {config.node_lost_after_s:g} is too short for orphan_timeout_s + "
            f"kill_grace_s ({dead_s:g}), or a job could run twice: set it above {lost_after_min_s(dead_s):g}"
        )
    if config.orphan_timeout_s < HEARTBEATS_UNCONFIRMED * config.heartbeat_s:
        raise ConfigError(
            f"{origin}: policy.orphan_timeout_s: {config.orphan_timeout_s:g} must be at least {HEARTBEATS_UNCONFIRMED} "
            f"heartbeat_s ({HEARTBEATS_UNCONFIRMED * config.heartbeat_s:g}), or jobs on healthy nodes are ended: a contact "
            "is confirmed by a later heartbeat"
        )


def _check_zone(zone: str, origin: str) -> None:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"{origin}: policy.zone: {quoted(zone)} is no time zone: write e.g. Europe/Berlin or UTC"
        ) from None


def _check_networks(networks: list[str], origin: str) -> None:
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise ConfigError(
                f"{origin}: controller.step_networks: {quoted(network)} is no network ({error}): write e.g. 10.2.0.0/16"
            ) from None


def _check_private(private: list[str], origin: str) -> None:
    for kind in private:
        if kind not in PRIVATE_KINDS:
            raise ConfigError(
                f"{origin}: privacy.private: {quoted(kind)} is unknown: use some of {', '.join(PRIVATE_KINDS)}"
            )


def _check_relay(config: Config, nodes: set[str], origin: str) -> None:
    policy = config.policy
    for key in ("relay_width", "satellite_width"):
        width = getattr(policy, key)
        if width < 0 or width == 1:
            raise ConfigError(f"{origin}: policy.{key}: {width} must be 0 (automatic) or at least 2")
    if policy.relay_grouping not in GROUPINGS:
        raise ConfigError(
            f"{origin}: policy.relay_grouping: {quoted(policy.relay_grouping)} is unknown: use {' or '.join(GROUPINGS)}"
        )
    seen: set[str] = set()
    for satellite in config.satellite:
        if satellite.name in nodes:
            raise ConfigError(
                f"{origin}: satellite.name: '{satellite.name}' is also a compute node: satellites run no jobs,"
                " give it a host of its own"
            )
        if satellite.name in seen:
            raise ConfigError(f"{origin}: satellite.name: '{satellite.name}' is used twice")
        seen.add(satellite.name)


def _partitions(
    config: Config, known: dict[str, str], gateways: dict[str, str], login: tuple[str, ...], origin: str
) -> tuple[Partition, ...]:
    """The partitions. They share the nodes' own name strings: copies for twenty thousand nodes take a megabyte."""
    found: list[Partition] = []
    for section in config.partition:
        users = known.keys() - gateways.keys() if gateways else known.keys()
        names = (
            expand(section.nodes, "partition.nodes")
            if section.nodes
            else tuple(filter(users.__contains__, known))
        )
        unknown = [name for name in names if name not in known]
        if unknown and unknown[0] in login:
            raise ConfigError(
                f"{origin}: partition.nodes: '{unknown[0]}' of {section.name} is a login host, where no job runs"
            )
        if unknown:
            raise ConfigError(
                f"{origin}: partition.nodes: '{unknown[0]}' of {section.name} is not among the nodes"
            )
        hidden = next((name for name in names if name in gateways), "")
        if hidden:
            raise ConfigError(
                f"{origin}: partition.nodes: '{hidden}' of {section.name} is in the gateway module {gateways[hidden]}: "
                "gateways are in no partition, leave it out"
            )
        if any(section.name == other.name for other in found):
            raise ConfigError(f"{origin}: partition.name: '{section.name}' is used twice")
        if section.preempt_mode not in PREEMPT_MODES:
            raise ConfigError(
                f"{origin}: partition.preempt_mode: {quoted(section.preempt_mode)} is unknown: "
                f"use {', '.join(PREEMPT_MODES)}"
            )
        found.append(
            Partition(
                section.name,
                tuple(known[name] for name in names),
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
    if sum(partition.default for partition in found) > 1:
        raise ConfigError(f"{origin}: partition.default: only one partition can be the default")
    return tuple(found)
