"""The section of login hosts."""

from __future__ import annotations

import re

import pytest

from eslurm.config.file import cluster_config, parse_config
from eslurm.config.problems import ConfigError

NODES = "[cluster]\nname='a'\n[[nodes]]\nnames='cn[1-2]'\ncores=4\nmemory_mib=1\n"
ALL = "[[partition]]\nname='main'\n"


def test_they_are_in_no_partition_and_no_nodes() -> None:
    config = cluster_config(parse_config(f"{NODES}{ALL}[login]\nnodes='login[1-2]'".encode(), "x.toml"))
    assert config.login_nodes == ("login1", "login2")
    assert [node.name for node in config.nodes] == ["cn1", "cn2"]
    assert config.partitions[0].nodes == ("cn1", "cn2")


def test_none_is_named_by_default() -> None:
    assert cluster_config(parse_config(f"{NODES}{ALL}".encode(), "x.toml")).login_nodes == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[login]\nnodes='cn[2-3]'", "login.nodes: 'cn2' is among the [[nodes]], too"),
        ("[login]\nnodes='l1,l1'", "login.nodes: 'l1' is named twice: name it once"),
        ("[login]\nnodes='l[1-'", "login.nodes: 'l[1-' has unbalanced brackets"),
        ("[login]\nhosts='l1'", "x.toml:8:1: login.hosts is no key of the configuration: use one of nodes"),
        (
            "[[partition]]\nname='p'\nnodes='cn1,l1'\n[login]\nnodes='l1'",
            "partition.nodes: 'l1' of p is a login host, where no job runs",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse_config(f"{NODES}{text}".encode(), "x.toml")
