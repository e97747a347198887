"""The configuration file: what it says is what the core decides by; what contradicts itself is refused in one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eslurm.config.file import cluster_config, parse_config, read_config
from eslurm.config.problems import ConfigError
from eslurm.core.model.request_limits import SCRIPT_BYTES_MAX

GOOD = b"""
[cluster]
name = "demo"

[[nodes]]
names = "cn[1-3],big1"
cores = 8
memory_mib = 1024

[[partition]]
name = "main"
default = true

[[partition]]
name = "few"
nodes = "cn[1-2]"
time_limit_max_s = 3600
"""


def test_a_file_becomes_the_cores_configuration() -> None:
    config = cluster_config(parse_config(GOOD, "x.toml"))
    assert config.cluster == "demo"
    assert [node.name for node in config.nodes] == ["cn1", "cn2", "cn3", "big1"]
    assert config.nodes[0].total == (8, 1024)
    assert config.partitions[0].nodes == ("cn1", "cn2", "cn3", "big1")
    assert config.partitions[1].nodes == ("cn1", "cn2")
    assert config.partitions[1].time_limit_max_s == 3600


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[cluster", "is not valid TOML"),
        (b"\xff", "is not valid TOML"),
        (b"[cluster]\nname = 'a b'\n", "x.toml:2:8: cluster.name: 'a b' is no name"),
        (
            b"[cluster]\nname = 'a'\nnmae = 1\n",
            "x.toml:3:1: cluster.nmae is no key of the configuration: did you mean name?",
        ),
        (b"[cluster]\nname='a'\n[[nodes]]\nnames='cn[1-'\ncores=1\nmemory_mib=1\n", "nodes.names: 'cn[1-'"),
        (b"[cluster]\nname='a'\n[[nodes]]\nnames='c1,c1'\ncores=1\nmemory_mib=1\n", "'c1' is named twice"),
        (b"[cluster]\nname='a'\n[[nodes]]\nnames='c1'\ncores=0\nmemory_mib=1\n", "cores"),
        (b"[cluster]\nname='a'\n[[partition]]\nname='p'\nnodes='c9'\n", "'c9' of p is not among the nodes"),
        (
            b"[cluster]\nname='a'\n[policy]\nscheduler='lottery'\n",
            "'lottery' is unknown: use one of fcfs, easy, conservative, planned",
        ),
        (b"[cluster]\nname='a'\n[policy]\nnode_lost_after_s=10\n", "a job could run twice"),
    ],
)
def test_a_bad_file_is_one_clear_line(text: bytes, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_config(text, "x.toml")
    assert said in str(error.value)
    assert str(error.value).startswith("x.toml:")
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.toml: cannot be read"):
        read_config(tmp_path / "nothing.toml")


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("relay_width = 1", "policy.relay_width: '1' makes no tree: write 0 (automatic) or at least 2"),
        (
            "satellite_width = -3",
            "policy.satellite_width: '-3' makes no tree: write 0 (automatic) or at least 2",
        ),
        (
            "relay_grouping = 'random'",
            "policy.relay_grouping: 'random' is unknown: use balanced or positional",
        ),
    ],
)
def test_tree_settings_that_make_no_tree_are_refused(policy: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        parse_config(f"[cluster]\nname = 'c'\n[policy]\n{policy}\n".encode(), "eslurm.toml")


@pytest.mark.parametrize(
    ("satellites", "words"),
    [
        (("cn07",), "'cn07' is also a compute node"),
        (("s1", "s1"), "'s1' is used twice"),
    ],
)
def test_a_satellite_is_a_host_of_its_own(satellites: tuple[str, ...], words: str) -> None:
    text = "[cluster]\nname = 'c'\n[[nodes]]\nnames = 'cn[01-08]'\ncores = 1\nmemory_mib = 1\n"
    text += "".join(f"[[satellite]]\nname = '{name}'\nlisten = '127.0.0.1:1'\n" for name in satellites)
    with pytest.raises(ConfigError, match=re.escape(words)):
        parse_config(text.encode(), "eslurm.toml")


@pytest.mark.parametrize("percent", [0.0, 10.0, 250.0])
def test_how_far_owners_extend_their_jobs_can_be_configured(percent: float) -> None:
    said = b"" if percent == 10.0 else b"\n[policy]\nextension_percent = %g\n" % percent
    config = parse_config(b'[cluster]\nname = "test"\n' + said, "test.toml")
    assert cluster_config(config).extension_percent == percent


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("", "script_bytes_max", SCRIPT_BYTES_MAX),
        ("script_bytes_max = 65536", "script_bytes_max", 65536),
        ("", "job_id_first", 1),
        ("job_id_first = 500000", "job_id_first", 500_000),
    ],
)
def test_numbers_of_a_site(line: str, field: str, value: int) -> None:
    config = parse_config(f"[cluster]\nname = 'test'\n[policy]\n{line}\n".encode(), "test.toml")
    assert getattr(cluster_config(config), field) == value


@pytest.mark.parametrize(
    "line",
    [
        "script_bytes_max = 0",
        f"script_bytes_max = {SCRIPT_BYTES_MAX + 1}",
        "job_id_first = 0",
        "job_id_first = 2147483647",
        "plan_horizon_s = 5",
    ],
)
def test_numbers_out_of_bounds_are_named(line: str) -> None:
    with pytest.raises(ConfigError, match=line.split()[0]):
        parse_config(f"[cluster]\nname = 'test'\n[policy]\n{line}\n".encode(), "test.toml")


def test_owners_extend_their_jobs_by_no_less_than_nothing() -> None:
    with pytest.raises(ConfigError, match="extension_percent"):
        parse_config(b'[cluster]\nname = "test"\n[policy]\nextension_percent = -1\n', "test.toml")
