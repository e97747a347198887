"""Nodes with features, devices, weights and rules; switches; resources of the cluster."""

from __future__ import annotations

import re

import pytest

from eslurm.config.file import cluster_config, parse_config
from eslurm.config.problems import ConfigError
from eslurm.core.model.config import NodeRule, Resource, Switch

FULL = b"""
[cluster]
name = "demo"

[[resource]]
name = "matlab"
total = 5

[[resource]]
name = "vmem"

[[nodes]]
names = "cn[1-2]"
cores = 8
memory_mib = 1024
features = ["ib", "rack=8"]
gres = ["vmem:2048"]

[[nodes]]
names = "gpu1"
cores = 16
memory_mib = 4096
gres = ["gpu:a100:4"]
weight = 3
cores_for_devices = 4

[[switch]]
name = "s1"
nodes = "cn[1-2]"

[[switch]]
name = "s2"
nodes = "gpu1"

[[switch]]
name = "top"
switches = "s[1-2]"

[[node_rule]]
nodes = "gpu1"
cores_min = 12
resources_min = { gpu = 1 }
time_max_s = 3600

[[partition]]
name = "main"
priority = 7
tier = 2
preempt_mode = "requeue"
"""


def test_what_nodes_have_is_what_the_core_decides_by() -> None:
    config = cluster_config(parse_config(FULL, "x.toml"))
    assert config.resources == (
        Resource("vmem"),
        Resource("gpu", devices=True),
        Resource("matlab", wide_total=5),
    )
    plain, _, gpu = config.nodes
    assert (plain.total, plain.features, plain.weight) == ((8, 1024, 2048, 0), ("ib", "rack=8"), 0)
    assert (gpu.total, gpu.features, gpu.device_type) == ((16, 4096, 0, 4), ("gpu:a100",), "a100")
    assert (gpu.weight, gpu.cores_for_devices) == (3, 4)
    assert config.switches == (
        Switch("s1", ("cn1", "cn2")),
        Switch("s2", ("gpu1",)),
        Switch("top", (), ("s1", "s2")),
    )
    assert config.node_rules == (NodeRule(("gpu1",), 12, 0, (("gpu", 1),), 3600),)
    (partition,) = config.partitions
    assert (partition.priority, partition.tier, partition.preempt_mode) == (7, 2, "requeue")


NODES = "[[nodes]]\nnames='c[1-2]'\ncores=4\nmemory_mib=1\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[resource]]\nname='ncpus'\n", "resource.name: 'ncpus' means something else already"),
        ("[[resource]]\nname='a'\n[[resource]]\nname='a'\n", "resource.name: 'a' is used twice"),
        ("[[resource]]\nname='a'\ntotal=1\ndevices=true\n", "resource.devices: 'a' belongs to no node"),
        (NODES + "gres=['disk:1']\n", "nodes.gres: 'disk' is no resource: add [[resource]]"),
        (NODES + "gres=['gup:1']\n[[resource]]\nname='gpu'\n", "did you mean gpu?"),
        (NODES + "gres=['a:1']\n[[resource]]\nname='a'\ntotal=1\n", "has a total for the whole cluster"),
        (NODES + "gres=['gpu:']\n", "nodes.gres: 'gpu:' is not understood at 'gpu:' (column 1)"),
        (NODES + "features=['a b']\n", "nodes.features: 'a b' is not a feature"),
        (NODES + "cores_for_devices=4\n", "nodes.cores_for_devices: '4' leaves none of 4 cores"),
        (NODES + "[[switch]]\nname='s'\nnodes='c9'\n", "switch.nodes: 'c9' of s does not exist"),
        (NODES + "[[switch]]\nname='s'\nswitches='t'\n", "switch.switches: 't' of s does not exist"),
        (NODES + "[[switch]]\nname='s'\n[[switch]]\nname='s'\n", "switch.name: 's' is used twice"),
        (
            NODES + "[[switch]]\nname='s'\nnodes='c1'\n[[switch]]\nname='t'\nnodes='c1'\n",
            "switch.nodes: 'c1' hangs on s and t",
        ),
        (
            NODES + "[[switch]]\nname='s'\nswitches='t'\n[[switch]]\nname='t'\nswitches='s'\n",
            "hangs on itself",
        ),
        (NODES + "[[node_rule]]\nnodes='c9'\ncores_min=1\n", "node_rule.nodes: 'c9' is not among the nodes"),
        (NODES + "[[node_rule]]\nnodes='c1'\n", "node_rule.nodes: 'c1' has no condition"),
        (
            NODES + "[[node_rule]]\nnodes='c1'\nresources_min={disk=1}\n",
            "node_rule.resources_min: 'disk' is no resource of nodes",
        ),
        (
            NODES + "[[partition]]\nname='p'\npreempt_mode='shoot'\n",
            "partition.preempt_mode: 'shoot' is unknown",
        ),
    ],
)
def test_sections_that_contradict_themselves_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as error:
        parse_config(f"[cluster]\nname='a'\n{text}".encode(), "x.toml")
    assert str(error.value).startswith("x.toml:")
