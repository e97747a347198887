"""The grammar of slurm.conf, and what becomes of single keys."""

from __future__ import annotations

import tomllib

import pytest

from eslurm.compat.errors import OptionError
from eslurm.compat.slurm.conf import keys
from eslurm.compat.slurm.conf.convert import convert
from eslurm.compat.slurm.conf.draft import CHANGED, LEFT, WITHOUT, Draft
from eslurm.compat.slurm.conf.lines import DEPTH_MAX, FILES_MAX, Line, read_all, read_lines
from eslurm.compat.toml_text import toml_text
from eslurm.config.file import cluster_config, parse_config
from eslurm.config.sections import Config


def pairs(text: str) -> list[list[tuple[str, str]]]:
    return [[(pair.key, pair.value) for pair in line.pairs] for line in read_lines("f", text)]


def made(conf: str, topology: str = "", gres: str = "") -> tuple[Config, Draft]:
    """The configuration of some lines, which has to load."""
    files = (("slurm.conf", conf), ("topology.conf", topology), ("gres.conf", gres))
    draft = convert(*(list(read_lines(name, text)) for name, text in files))
    return parse_config(toml_text(draft.sections).encode(), "made"), draft


def told(draft: Draft, effect: str = LEFT) -> list[str]:
    return [f"{one.line} {one.key}: {one.text}" for one in draft.findings if one.effect == effect]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1 B=2\n\n#C=3\n", [[("A", "1"), ("B", "2")]]),
        ("A = 1  # a note", [[("A", "1")]]),
        (r"A=x\#y", [[("A", "x#y")]]),
        ("A=1,\\\n2 B=3\nC=4", [[("A", "1,2"), ("B", "3")], [("C", "4")]]),
        ('Reason="a b=c" B=1', [[("Reason", "a b=c"), ("B", "1")]]),
        ("A=b=c", [[("A", "b=c")]]),
        ("include other.conf", [[("include", "other.conf")]]),
        ("A=", [[("A", "")]]),
    ],
)
def test_lines(text: str, found: list[list[tuple[str, str]]]) -> None:
    assert pairs(text) == found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("an accident", "is not KEY=VALUE"),
        ("A=1 accident B=2", "is not KEY=VALUE"),
        ('A="x', "has quotes that are not closed"),
        ("A+=1", "has an operator behind A: write its value"),
        ("=1", "is not KEY=VALUE"),
    ],
)
def test_what_is_no_line_is_told(text: str, problem: str) -> None:
    (line,) = read_lines("f", text)
    assert line.problem == problem
    assert problem in told(convert([line], [], []))[0]


def test_a_continued_line_has_the_number_of_its_first_part() -> None:
    assert [line.number for line in read_lines("f", "A=1\nB=2,\\\n3,\\\n4\nC=5")] == [1, 2, 5]


def included(files: dict[str, str]) -> list[Line]:
    def opened(path: str, included_by: str) -> tuple[str, str]:
        if path not in files:
            raise OptionError("Include", path, "cannot be read", "correct the path")
        return path, files[path]

    return read_all("a", opened)


def test_included_lines_stand_where_they_are_included() -> None:
    lines = included({"a": "A=1\nInclude b\nC=3", "b": "B=2"})
    assert [(line.file, line.number, line.kind) for line in lines] == [
        ("a", 1, "a"),
        ("b", 1, "b"),
        ("a", 3, "c"),
    ]


def test_circles_depth_and_number_of_included_files_are_bounded() -> None:
    circle = included({"a": "Include b", "b": "Include a\nB=1"})
    assert [line.problem for line in circle] == ["includes itself: leave out the circle", ""]
    deep = included({**{chr(97 + n): f"Include {chr(98 + n)}" for n in range(20)}})
    assert len(deep) == 1 and "one file too many" in deep[0].problem and deep[0].file == chr(96 + DEPTH_MAX)
    many = included({"a": "Include b\n" * (FILES_MAX + 5), "b": "B=1"})
    assert sum(not line.problem for line in many) == FILES_MAX - 1
    assert sum("too many" in line.problem for line in many) == 6


def test_each_row_of_the_tables_is_read() -> None:
    tables = (keys.GENERAL, keys.NODE, keys.PARTITION, keys.OTHER, keys.GRES, keys.TOPOLOGY)
    usual = parse_config(b'[cluster]\nname = "x"', "usual")
    for table in (*tables, *keys.WORDS.values()):
        for row in table.values():
            assert row.how in (keys.YES, keys.NONE, keys.NO, keys.ONLY, "to"), row.name
            assert row.note or row.how == "to", row.name
            if row.how == "to":
                section, _, key = row.detail.partition(":")[0].partition(".")
                assert hasattr(getattr(usual, section), key), row.detail
    assert set(keys.WORDS) <= {row.name for row in keys.GENERAL.values()}


def test_each_value_of_the_configuration_is_refused_where_it_makes_no_sense() -> None:
    names = [row.name for row in keys.GENERAL.values() if row.how == "to" and row.name != "ClusterName"]
    for value in ("", "-2", "x", "99999999999999999999", "'", "\x7f"):
        config, draft = made("".join(f"{name}={value}\n" for name in names))
        usual = cluster_config(parse_config(b'[cluster]\nname = "cluster"', "usual"))
        assert cluster_config(config) == usual
        assert len(told(draft)) == len(names), value


def test_the_last_of_two_settings_counts() -> None:
    config, draft = made("KillWait=10\nkillwait=20\n")
    assert config.policy.kill_grace_s == 20
    assert told(draft) == ["1 KillWait: is given again below, which counts: give it once"]


@pytest.mark.parametrize("timeout", [0, 1, 30, 60, 299, 300, 600, 100_000])
@pytest.mark.parametrize("kill", [0, 30, 500])
def test_nodes_end_their_jobs_before_they_are_given_up(timeout: int, kill: int) -> None:
    config, _ = made(f"SlurmdTimeout={timeout}\nKillWait={kill}\n")
    policy = config.policy
    assert policy.kill_grace_s == kill and policy.node_lost_after_s >= timeout


@pytest.mark.parametrize(
    ("line", "cores"),
    [
        ("CPUs=16", 16),
        ("Procs=16", 16),
        ("Sockets=2 CoresPerSocket=8", 16),
        ("CPUs=32 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", 16),
        ("Boards=2 SocketsPerBoard=2 CoresPerSocket=8", 32),
        ("CPUs=16 CoreSpecCount=2", 14),
        ("CPUs=16 CpuSpecList=0-2,5", 12),
        ("CPUs=32 CoresPerSocket=16 ThreadsPerCore=2 CpuSpecList=0-3", 14),
        ("CPUs=4 CoreSpecCount=4", 4),
        ("", 1),
    ],
)
def test_cores_of_nodes(line: str, cores: int) -> None:
    config, _ = made(f"NodeName=n1 RealMemory=100 {line}")
    assert config.nodes[0].cores == cores


def test_defaults_hold_for_the_lines_below() -> None:
    config, draft = made(
        "NodeName=DEFAULT CPUs=4 RealMemory=1000\nNodeName=a\nNodeName=DEFAULT RealMemory=2000\nNodeName=b\n"
        "PartitionName=DEFAULT Nodes=ALL MaxTime=60\nPartitionName=p,q\nPartitionName=DEFAULT MaxTime=120\nPartitionName=r\n"
    )
    assert [(node.names, node.cores, node.memory_mib) for node in config.nodes] == [
        ("a", 4, 1000),
        ("b", 4, 2000),
    ]
    assert [(one.name, one.time_limit_max_s) for one in config.partition] == [
        ("p", 3600),
        ("q", 3600),
        ("r", 7200),
    ]
    assert told(draft) == []


def test_gres_conf_gives_types_and_devices() -> None:
    config, draft = made(
        "GresTypes=gpu,fpga\nNodeName=g[1-3] CPUs=8 RealMemory=9 Gres=gpu:2,fpga:1",
        gres="NodeName=g1 Name=gpu Type=a100 File=/dev/nvidia[0-1]\n"
        "NodeName=g[2-3] Name=gpu Type=h100 File=/dev/nvidia[0-1]\n"
        "Name=fpga File=/dev/fpga0\n",
    )
    assert [(one.names, one.gres) for one in config.nodes] == [
        ("g1", ["gpu:a100:2", "fpga:1"]),
        ("g[2-3]", ["gpu:h100:2", "fpga:1"]),
    ]
    assert [(one.name, one.devices) for one in config.resource] == [("fpga", True)]
    assert told(draft) == []


def test_several_types_of_a_resource_are_counted_together() -> None:
    config, draft = made("NodeName=g CPUs=8 RealMemory=9 Gres=gpu:a100:2,gpu:h100:2")
    assert config.nodes[0].gres == ["gpu:4"]
    assert "several types of gpu" in told(draft)[0]


def test_weights_that_are_too_great_become_ranks() -> None:
    config, draft = made(
        "NodeName=a CPUs=1 RealMemory=1 Weight=5\nNodeName=b CPUs=1 RealMemory=1 Weight=100000\n"
        "NodeName=c CPUs=1 RealMemory=1 Weight=70\n"
    )
    assert [one.weight for one in config.nodes] == [1, 3, 2]
    assert len(told(draft, CHANGED)) == 4  # and the name of the cluster


def test_a_tree_of_switches_has_no_circle() -> None:
    config, draft = made(
        "NodeName=n[1-4] CPUs=1 RealMemory=1",
        topology="SwitchName=a Nodes=n[1-2] Switches=b\nSwitchName=b Nodes=n[2-4] Switches=a\nSwitchName=c Switches=c,a\n",
    )
    assert [(one.name, one.nodes, one.switches) for one in config.switch] == [
        ("a", "n[1-2]", "b"),
        ("b", "n[3-4]", ""),
        ("c", "", "a"),
    ]
    assert len(told(draft)) == 3


def test_preemption_by_partition_takes_modes_and_tiers() -> None:
    lines = (
        "NodeName=n CPUs=1 RealMemory=1\nPreemptMode=SUSPEND,GANG\nPartitionName=a Nodes=n PriorityTier=5\n"
    )
    lines += "PartitionName=b Nodes=n PreemptMode=CANCEL\n"
    config, _ = made(f"PreemptType=preempt/partition_prio\n{lines}")
    assert [(one.tier, one.preempt_mode) for one in config.partition] == [(5, "suspend"), (1, "cancel")]
    config, draft = made(lines)
    assert [(one.tier, one.preempt_mode) for one in config.partition] == [(0, "off"), (0, "off")]
    assert [line.split(":")[0] for line in told(draft)] == ["3 PriorityTier", "4 PreemptMode"]


def test_billing_that_all_partitions_share() -> None:
    node = "NodeName=n CPUs=1 RealMemory=1 Gres=gpu:1\nPartitionName=DEFAULT Nodes=n "
    config, draft = made(
        f"{node}TRESBillingWeights=CPU=1.5,Mem=0.5G,GRES/gpu=4,node=1\nPartitionName=a\nPartitionName=b"
    )
    assert config.priority.billing == {"cores": 1.5, "memory_mib": 0.5 / 1024, "gpu": 4.0}
    assert "node=1 is no weight" in told(draft)[0]


def test_secrets_are_not_repeated() -> None:
    _, draft = made(
        "AccountingStoragePass=hunter2\nStoragePass hunter2\nJobCompPass=hunter2\nAccountingStoragePass=hunter2"
    )
    assert len(draft.findings) == 5
    assert not any("hunter2" in f"{one.value}{one.text}" for one in draft.findings)


def test_a_key_that_is_nearly_known_is_told() -> None:
    _, draft = made("KillWiat=30\nNodeName=n CPUs=1 RealMemory=1 Weigth=3")
    assert told(draft) == [
        "1 KillWiat: is no key that is known here: did you mean KillWait?",
        "2 Weigth: is no key that is known here: did you mean Weight?",
    ]


def test_harmless_values_are_told_apart() -> None:
    _, draft = made("MailDomain=x\nOverTimeLimit=0\nAuthType=auth/munge\n")
    assert [line.split(":")[0] for line in told(draft, WITHOUT)] == ["2 OverTimeLimit", "3 AuthType"]
    assert [line.split(":")[0] for line in told(draft)] == ["1 MailDomain"]


def test_toml_text_is_read_again() -> None:
    tables = {
        "a": {"x": 'q"\\\n\x00\x7fé', "y": [1, True, "z"], "w": 0.5, "b": {"c d": 1e-9}},
        "l": [{"n": 1}, {"n": 2}],
        "k": {"one.two": {"m": "x"}, "é": {}},
    }
    assert tomllib.loads(toml_text(tables, "a\nhead")) == tables
