"""Fair share over two cells: real controllers, a real etcd, and the usage of one in the tree of the other."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_cells import pin
from tests.integration.test_federation import LEASE_S, states, until
from tests.kits.cluster import LiveCluster
from tests.support import etcd

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def cell(directory: Path, name: str, store: etcd.Etcd) -> LiveCluster:
    """A cluster of two nodes that is a member, not started."""
    directory.parent.chmod(0o711)
    directory.mkdir()
    sections = f'[federation]\nname = "lab"\ncell = "{name}"\nendpoints = {json.dumps(store.endpoints)}\n'
    sections += f'lease_s = {LEASE_S}\nfair_share = "sum"\n[priority]\nfairshare = 1000\n'
    return LiveCluster(directory, nodes=2, agents=1, satellites=0, sections=sections)


def shares(cluster: LiveCluster) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(said(cluster, "--json"))
    return told


def said(cluster: LiveCluster, *words: str) -> str:
    ran = cluster.run("esctl", *words, "shares")
    assert ran.code == 0, ran
    return ran.out


def others(cluster: LiveCluster) -> dict[tuple[str, str], float]:
    """Usage in other cells by (account, user), as far as there is any."""
    rows = shares(cluster)["shares"]
    return {(one["account"], one["user"]): one["others"] for one in rows if one["others"]}


def test_a_cell_counts_what_was_used_in_another(state_dir: Path) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(etcd.own())
        alpha = cell(state_dir / "alpha", "alpha", store)
        beta = cell(state_dir / "beta", "beta", store)
        gamma = cell(state_dir / "gamma", "gamma", store)
        pin(alpha, beta=beta)
        pin(beta, alpha=alpha)
        for one in (alpha, beta, gamma):
            stack.callback(one.stop)
            one.start()
        until(lambda: set(states(alpha).values()) == {"alive"} and len(states(alpha)) == 3)
        for one in (alpha, beta):
            one.do("esctl", "account", "add", "physics")
            one.do("esctl", "user", "add", "root", "accounts=physics")
        job = alpha.wrap("sleep 600", "-A", "physics", "--exclusive", "-t", "30")
        alpha.reaches(job, "RUNNING")
        until(lambda: others(beta).get(("physics", "root"), 0.0) > 0)
        told = shares(beta)
        assert told["sums"] is True
        name, age_ms, problem = (told["cells"][0][key] for key in ("cell", "age_ms", "problem"))
        assert (name, problem) == ("alpha", "") and 0 <= age_ms < 120_000
        text = said(beta)
        assert "OTHERS" in text and "usage in alpha (" in text
        # No cell has pinned gamma, and gamma has pinned no cell.
        assert others(alpha) == {} and others(gamma) == {}
        until(lambda: "Usage in gamma does not count: its keys are not trusted here" in said(beta))
        # A cell that is gone counts on, and so it does for a controller that has not heard it alive.
        alpha.stop()
        until(lambda: states(beta)["alpha"] == "silent")
        assert others(beta)["physics", "root"] > 0
        beta.kill("esctld")
        beta.start()
        until(lambda: others(beta).get(("physics", "root"), 0.0) > 0)
