"""The section [priority] and what partitions add to it."""

from __future__ import annotations

import pytest

from eslurm.config.file import cluster_config, parse_config
from eslurm.config.problems import ConfigError
from eslurm.core.model.config import PriorityWeights

SITE = """
[cluster]
name = "lab"

[[nodes]]
names = "cn[1-4]"
cores = 8
memory_mib = 1000

[[partition]]
name = "main"
priority = 7
"""


def weights(section: str) -> PriorityWeights:
    return cluster_config(parse_config((SITE + section).encode(), "site.toml")).priority


def test_without_a_section_nothing_is_weighed() -> None:
    assert weights("") == PriorityWeights()
    assert cluster_config(parse_config(SITE.encode(), "site.toml")).partitions[0].priority == 7


def test_every_key_arrives() -> None:
    found = weights(
        """
[priority]
age = 1
fairshare = 2
size = 3
partition = 4
qos = 5
age_max_s = 60
half_life_s = 0
favor_small = true
recompute_s = 5
billing = { memory_mib = 0.5, cores = 2 }
"""
    )
    assert found == PriorityWeights(1, 2, 3, 4, 5, 60, 0, True, 5.0, (("cores", 2.0), ("memory_mib", 0.5)))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("billing = { gold = 1.0 }", "priority.billing: 'gold' is no resource: use one of cores, memory_mib"),
        ("billing = { cores = -1.0 }", "priority.billing"),
        ("fairshare = -1", "priority.fairshare"),
        ("recompute_s = 0", "priority.recompute_s"),
        ("fairshar = 1", "fairshar"),
    ],
)
def test_what_cannot_be_is_refused(line: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        weights(f"[priority]\n{line}\n")
    assert told in str(error.value)
