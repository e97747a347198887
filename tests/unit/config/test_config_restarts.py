"""Keys of a file that a running controller does not take: every key is either live or named when it differs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eslurm.config.file import cluster_config, config_digest, parse_config, with_own_uid
from eslurm.config.restarts import LIVE_SECTIONS, restart_keys
from eslurm.config.sections import Config
from eslurm.core.control.config_changes import INVENTORY, LIVE, NUMBERS, change_lines, merged
from eslurm.core.model.config import ClusterConfig

SITE = """
[cluster]
name = "site"
[[nodes]]
names = "cn[1-4]"
cores = 4
memory_mib = 1000
[[partition]]
name = "main"
default = true
"""


def read(text: str = "") -> Config:
    return parse_config((SITE + text).encode(), "site.toml")


def test_the_same_file_needs_nothing() -> None:
    assert restart_keys(read(), read()) == ()


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("[policy]\nscheduler = 'fcfs'\nrequeue_delay_s = 5.0", ("policy.scheduler",)),
        ("[policy]\nrequeue_delay_s = 5.0", ()),
        ("[[satellite]]\nname = 's1'\nlisten = 'h:1'", ("satellite",)),
        ("[controller]\nlisten = 'h:2'\nlease_s = 9.0", ("controller.listen", "controller.lease_s")),
        ("[priority]\nage = 5", ("priority.age",)),
        ("[mail]\nsmtp = 'h:25'\nfrom = 'a@example.org'", ("mail.smtp", "mail.from")),
        ("[[nodes]]\nnames = 'x1'\ncores = 1\nmemory_mib = 1", ()),
        ("[login]\nnodes = 'login1'", ()),
    ],
)
def test_what_waits_for_a_restart_is_named(text: str, keys: tuple[str, ...]) -> None:
    assert restart_keys(read(), read(text)) == keys


def test_each_key_of_the_core_is_live_or_named() -> None:
    """Whatever differs in the core's part is either said to change or has a key that is named."""
    fields = set(ClusterConfig.__struct_fields__)
    assert set(LIVE) <= fields
    sections = {"login_nodes": "login", "partitions": "partition", "resources": "resource"}
    sections |= {"node_rules": "node_rule", "switches": "switch", "modules": "module"}
    assert {sections.get(name, name) for name in INVENTORY} == LIVE_SECTIONS
    policy = set(
        msgspec.structs.fields(Config)[Config.__struct_fields__.index("policy")].type.__struct_fields__
    )
    assert set(NUMBERS) <= policy


def test_only_the_live_parts_are_taken() -> None:
    running = cluster_config(read())
    other = cluster_config(
        read("[policy]\nscheduler = 'fcfs'\nfinished_jobs_max = 7\n[login]\nnodes = 'login1'\n")
    )
    now = merged(running, other)
    assert (now.policy, now.finished_jobs_max, now.login_nodes) == ("easy", 7, ("login1",))
    assert change_lines(running, now) == ("login host login1: added", "policy.finished_jobs_max: 2000 -> 7")


def test_the_digest_is_of_what_the_core_takes_whoever_runs_the_controller() -> None:
    file = read()
    config = cluster_config(file)
    assert config_digest(config) == config_digest(cluster_config(read("\n# a remark\n")))
    assert config_digest(config) != config_digest(cluster_config(read("[policy]\nzone = 'Europe/Berlin'")))
    assert with_own_uid(config, file, 977).administrators == (0, 977)
    named = read().cluster
    named.administrators = [5]
    other: Any = msgspec.structs.replace(file, cluster=named)
    assert with_own_uid(cluster_config(other), other, 977).administrators == (5,)
