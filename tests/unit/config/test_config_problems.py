"""All problems of a configuration file at once, each with its place, and none that only follows from another."""

from __future__ import annotations

import tomllib
from unittest import mock

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eslurm.compat.errors import OptionError
from eslurm.config.conversion import converted
from eslurm.config.file import check_config, parse_config
from eslurm.config.problems import PROBLEMS_MAX, ConfigError, Problems
from eslurm.config.sections import Config

BAD = """[cluster]
nmae = "demo"

[controller]
listen = "7400"
step_networks = ["10.2.0.0/16", "10.2.0.1/16"]

[[nodes]]
names = "cn[1-4]"
cores = 0
memory_mib = "4 GB"
features = ["ib", "a b"]

[[nodes]]
names = "cn4,gpu1"
cores = 4
memory_mib = 1024
gres = ["gpu:2"]
cores_for_devices = 8

[[satellite]]
name = "cn1"
listen = "sat1:74010"

[[partition]]
name = "main"
nodes = "cn[1-9]"
preempt_mode = "shoot"

[policy]
scheduler = "lottery"
orphan_timeout_s = "300"
node_lost_after_s = 10

[priority]
billing = { cores = 1.0, gold = 2.0 }
"""


def problems_of(text: str) -> list[str]:
    return [problem.text("e.toml") for problem in check_config(text.encode()).problems]


def test_all_problems_are_told_with_their_places() -> None:
    """The wrong kind of `orphan_timeout_s` is no reason to judge what depends on it, nor are the names of nodes, of which
    some are named twice, a reason to judge the partition's."""
    assert problems_of(BAD) == [
        "e.toml:2:1: cluster.nmae is no key of the configuration: did you mean name?",
        "e.toml:5:10: controller.listen: '7400' is no address: write HOST:PORT",
        "e.toml:6:33: controller.step_networks: '10.2.0.1/16' is no network (10.2.0.1/16 has host bits set): write e.g. "
        "10.2.0.0/16",
        "e.toml:10:9: nodes.cores: '0' is out of bounds: write a whole number from 1 to 2147483647",
        "e.toml:11:14: nodes.memory_mib: '4 GB' is no whole number: write a whole number from 1 to 2147483647",
        "e.toml:12:19: nodes.features: 'a b' is not a feature: use letters, digits and _.:=-+@/ only",
        "e.toml:15:9: nodes.names: 'cn4' is named twice: name it in one section",
        "e.toml:22:8: satellite.name: 'cn1' is also a compute node: satellites run no jobs: give it a host of its own",
        "e.toml:23:10: satellite.listen: 'sat1:74010' is no address: write HOST:PORT",
        "e.toml:28:16: partition.preempt_mode: 'shoot' is unknown: use off, requeue, cancel, suspend",
        "e.toml:31:13: policy.scheduler: 'lottery' is unknown: use one of fcfs, easy, conservative, planned, or install the "
        "package that offers it",
        "e.toml:32:20: policy.orphan_timeout_s: '300' is no number: write a number above 0 and at most 1000000000",
        "e.toml:36:33: priority.billing: 'gold' is no resource: use one of cores, memory_mib, gpu",
    ]


def test_a_daemon_that_is_given_it_names_the_first_and_counts_the_others() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(BAD.encode(), "e.toml")
    first = problems_of(BAD)[0]
    assert str(refused.value) == f"{first} (and 12 more: `eslurm check` lists them)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[cluster\n",
            "e.toml:1:9: the file is not valid TOML: Expected ']' at the end of a table declaration",
        ),
        ("a = ", "e.toml:1:5: the file is not valid TOML: Invalid value (at end of document)"),
        (
            "[cluster]",
            "e.toml:1:1: cluster.name is missing: use at most 63 letters, digits, and '-', '_', '.' after the first",
        ),
        ("", "e.toml: cluster is missing: write it as [cluster]"),
        ("cluster = 3", "e.toml:1:11: cluster: '3' is no table: write it as [cluster]"),
        (
            "nodes = [3]\n[cluster]\nname = 'a'",
            "e.toml:1:10: nodes: '3' is no table: write it as [nodes]",
        ),
        (
            "[cluster]\nname = 'a'\noperators = [0x" + "f" * 9000 + "]",
            "e.toml:3:14: cluster.operators: 'a number of 36000 bits' is out of bounds: write a whole number from 0 to "
            "4294967295",
        ),
        (
            "[cluster]\nname = 'a'\n\"\\u001b[2J\\n\" = 1",
            "e.toml:3:1: cluster.\\x1b[2J\\n is no key of the configuration: use one of name, key_file, operators, "
            "administrators",
        ),
    ],
)
def test_what_is_told_of_one_problem(text: str, said: str) -> None:
    assert problems_of(text) == [said]


@pytest.mark.parametrize(
    "bad", ["cores = 0\ncores_for_devices = 1", "cores = 1\ncors = 2", "features = ['a b']\ncores = 1"]
)
def test_a_large_file_of_problems_is_looked_at_in_one_pass(bad: str) -> None:
    """Goal: a thousand times as many problems take no more than that. Method: what a problem is compared with is counted."""
    counts = []
    for sections in (20, 2000):
        text = "".join(f"[[nodes]]\nnames = 'c{at}'\nmemory_mib = 1\n{bad}\n" for at in range(sections))
        with mock.patch.object(
            OptionError, "render", autospec=True, side_effect=OptionError.render
        ) as rendered:
            checked = check_config(f"[cluster]\nname = 'a'\n{text}".encode())
        assert len(checked.problems) + checked.left_out == sections
        counts.append(rendered.call_count)
    assert counts[1] <= 100 * counts[0]


def test_a_misspelt_key_is_one_problem() -> None:
    """Neither is the right one missing, nor are the nodes unknown that it would name."""
    text = "[cluster]\nname = 'a'\n[[nodes]]\nnmaes = 'cn1'\ncores = 1\nmemory_mib = 1\n"
    assert problems_of(text + "[[partition]]\nname = 'p'\nnodes = 'cn1'\n") == [
        "e.toml:4:1: nodes.nmaes is no key of the configuration: did you mean names?"
    ]


def test_a_malformed_item_of_a_list_is_one_problem() -> None:
    text = BAD.replace('["ib", "a b"]', '["ib", 3, "a b"]')
    found = [line for line in problems_of(text) if "nodes.features" in line]
    assert found == [
        "e.toml:12:19: nodes.features: '3' is no text: write a text in quotes: \"...\"",
    ]


def test_the_list_is_bounded() -> None:
    checked = check_config(b"[cluster]\nname = 'a'\n" + b"".join(b"k%d = 1\n" % at for at in range(300)))
    assert len(checked.problems) == PROBLEMS_MAX and checked.left_out == 300 - PROBLEMS_MAX
    assert all(len(problem.text("f")) < 300 for problem in checked.problems)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(st.sampled_from(("names", "cores", "settings", "peer", "x")), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    st.sampled_from([*Config.__struct_fields__, "x"]),
)
@example(2**20_000, "policy")
def test_problems_are_found_exactly_where_msgspec_refuses(value: object, section: str) -> None:
    values = tomllib.loads("[cluster]\nname = 'a'\n") | {section: value}
    try:
        msgspec.convert(values, Config)
        is_good = True
    except msgspec.ValidationError:
        is_good = False
    problems = Problems(values)
    assert isinstance(converted(values, Config, problems), Config)
    assert is_good is not bool(problems)
