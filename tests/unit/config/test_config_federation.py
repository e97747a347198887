"""The section [federation]: what is refused, and by which key."""

from __future__ import annotations

import subprocess
import sys

import pytest

from eslurm.config.federation import federation_of
from eslurm.config.file import parse_config
from eslurm.config.problems import ConfigError
from eslurm.core.model.federation import FederationConfig

HEAD = '[cluster]\nname = "one"\n[federation]\n'


def read(text: str) -> FederationConfig | None:
    config = parse_config((HEAD + text).encode(), "test.toml")
    return federation_of(config.federation, config.cluster.name)


def test_a_cluster_without_it_is_no_member() -> None:
    assert read("") is None


def test_the_cell_has_the_clusters_name_unless_another_is_given() -> None:
    member = 'name = "lab"\nendpoints = ["http://127.0.0.1:2379"]\n'
    assert read(member) == FederationConfig("lab", "one", 5.0, 0.2)
    assert read(member + 'cell = "alpha"\nlease_s = 3.0\n') == FederationConfig("lab", "alpha", 3.0, 0.2)
    summing = read(member + 'fair_share = "sum"\n')
    assert summing == FederationConfig("lab", "one", 5.0, 0.2, fair_share="sum")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('endpoints = ["http://127.0.0.1:1"]', "federation.name"),
        ('name = "lab"', "federation.endpoints is empty"),
        ('name = "a/b"\nendpoints = ["http://127.0.0.1:1"]', "federation.name"),
        ('name = "lab"\ncell = "ä"\nendpoints = ["http://127.0.0.1:1"]', "federation.cell"),
        ('name = "lab"\nendpoints = ["http://etcd1:2379"]', "speaks no TLS"),
        ('name = "lab"\nendpoints = ["http://127.0.0.1.evil.example:2379"]', "speaks no TLS"),
        ('name = "lab"\nendpoints = ["https://etcd1:2379"]', "federation.ca"),
        ('name = "lab"\nca = "ca"\nendpoints = ["https://a:1", "http://127.0.0.1:1"]', "mixes"),
        ('name = "lab"\nendpoints = ["127.0.0.1:2379"]', "is no endpoint"),
        ('name = "lab"\nendpoints = ["http://u@127.0.0.1:1"]', "is no endpoint"),
        ('name = "lab"\nendpoints = ["http://127.0.0.1"]', "is no endpoint"),
        ('name = "lab"\nendpoints = ["http://127.0.0.1:1"]\ncertificate = "c"', "federation.key"),
        ('name = "lab"\nendpoints = ["http://127.0.0.1:1"]\nuser = "u"', "federation.password_file"),
        ('name = "lab"\nendpoints = ["http://127.0.0.1:1"]\nlease_s = 1.0', "lease_s"),
        ('name = "lab"\nendpoints = ["http://127.0.0.1:1"]\nfair_share = "all"', "fair_share"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_key(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text)
    assert words in str(refused.value)


def test_a_plain_clusters_controller_loads_none_of_it() -> None:
    words = (
        "import sys, esctld.daemon; "
        "parts = ('eslurm.federation', 'eslurm.core.federation', 'eslurm.security.cells', 'esctld.lead.cell_links'); "
        "names = [n for n in sys.modules if n.startswith(parts) or n == 'esctld.lead.federation']; "
        "print(sorted(names))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
