"""Modules: features of their nodes, and gateways in a partition of their own."""

from __future__ import annotations

import pytest

from eslurm.config.file import cluster_config, parse_config
from eslurm.config.problems import ConfigError
from eslurm.core.model.config import ClusterConfig, Module, Partition

NODES = """
[cluster]
name = "demo"

[[nodes]]
names = "cn[1-2],bn[1-2],gw[1-2],an1"
cores = 4
memory_mib = 1024
features = ["ib"]
"""
MODULES = """
[[module]]
name = "cluster"
nodes = "cn[1-2]"
reaches = ["data"]

[[module]]
name = "booster"
nodes = "bn[1-2]"
kind = "booster"

[[module]]
name = "data"
nodes = "an1"
kind = "data"
"""
GATEWAYS = """
[[module]]
name = "gw"
nodes = "gw[1-2]"
kind = "gateway"
"""
MAIN = """
[[partition]]
name = "main"
default = true
"""


def read(*texts: str) -> ClusterConfig:
    return cluster_config(parse_config("".join((NODES, *texts)).encode(), "e.toml"))


def problem(*texts: str) -> str:
    with pytest.raises(ConfigError) as error:
        read(*texts)
    return str(error.value)


def test_a_module_is_a_feature_of_its_nodes() -> None:
    config = read(MODULES, MAIN)
    assert {node.name: (node.module, node.features) for node in config.nodes} == {
        "cn1": ("cluster", ("ib", "cluster")),
        "cn2": ("cluster", ("ib", "cluster")),
        "bn1": ("booster", ("ib", "booster")),
        "bn2": ("booster", ("ib", "booster")),
        "gw1": ("", ("ib",)),
        "gw2": ("", ("ib",)),
        "an1": ("data", ("ib", "data")),
    }
    assert config.modules[0] == Module("cluster", "cluster", ("data",))
    assert [partition.name for partition in config.partitions] == ["main"]


def test_gateways_are_a_partition_of_their_own() -> None:
    config = read(MODULES, GATEWAYS, MAIN)
    assert config.partitions == (
        Partition("main", ("cn1", "cn2", "bn1", "bn2", "an1"), default=True),
        Partition("gateways", ("gw1", "gw2"), role="gateway"),
    )


def test_without_modules_nothing_changes() -> None:
    config = read(MAIN)
    assert config.modules == () and len(config.partitions[0].nodes) == 7


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ((MODULES, MODULES), "module.name: 'cluster' is used twice"),
        ((MODULES, GATEWAYS.replace("gw[1-2]", "gw[1-2],cn1")), "'cn1' is in cluster and gw"),
        ((MODULES.replace("an1", "xn1"),), "'xn1' of data is not among the nodes"),
        ((MODULES.replace('["data"]', '["date"]'),), "'date' of cluster does not exist"),
        ((MODULES.replace('["data"]', '["gw"]'), GATEWAYS), "gateways reach every module"),
        (
            (MODULES.replace('"data"\nnodes', '"ib"\nnodes').replace('["data"]', "[]"),),
            "'ib' is also a feature of cn1",
        ),
        ((GATEWAYS,), "'gateway' is that of all modules"),
        (
            (MODULES, GATEWAYS, MAIN + 'nodes = "cn1,gw2"'),
            "partition.nodes: 'gw2' of main is in the gateway module gw: gateways are in no partition",
        ),
        ((MODULES, GATEWAYS, MAIN.replace("main", "gateways")), "'gateways' is the hidden partition"),
        ((MODULES.replace('kind = "data"', 'kind = "tape"'),), "tape"),
    ],
)
def test_contradictions_are_named(texts: tuple[str, ...], said: str) -> None:
    assert said in problem(*texts)


def test_gateways_keep_no_cores_for_jobs_with_devices() -> None:
    """Goal: a gateway is a whole node, which such a node refuses: the configuration says so, not each job's refusal."""
    gpus = 'gres = ["gpu:2"]\ncores_for_devices = 1\n'
    said = problem(gpus, MODULES, GATEWAYS)
    assert (
        "nodes.cores_for_devices: '1' of gw1 in the gateway module gw would refuse every --gateways job"
        in said
    )
    assert said.endswith("leave it out there")
    assert read(gpus, MODULES).nodes[0].cores_for_devices == 1
