"""Calls between cells of a federation: real controllers, a real etcd, and what a user of one cell does in another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from eslurm.security.joining import fingerprint
from tests.integration.test_federation import LEASE_S, seen, states, until
from tests.kits.cluster import LiveCluster
from tests.kits.commands import Ran
from tests.support import etcd

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def cell(directory: Path, name: str, store: etcd.Etcd, **options: object) -> LiveCluster:
    """A cluster of two nodes that is a member, not started."""
    directory.parent.chmod(0o711)
    directory.mkdir()
    sections = f'[federation]\nname = "lab"\ncell = "{name}"\nendpoints = {json.dumps(store.endpoints)}\n'
    sections += f"lease_s = {LEASE_S}\n"
    return LiveCluster(directory, nodes=2, agents=1, satellites=0, sections=sections, **options)  # type: ignore[arg-type]


def pin(cluster: LiveCluster, **others: LiveCluster) -> None:
    """Trust these cells. Before the start."""
    with (cluster.directory / "eslurm.toml").open("a") as config:
        for name, other in others.items():
            key = fingerprint(other.site.keys.signing.public)
            config.write(f'[[federation.peer]]\nname = "{name}"\nkey = "{key}"\n')


@pytest.fixture
def cells(state_dir: Path) -> Iterator[tuple[LiveCluster, LiveCluster]]:
    with ExitStack() as stack:
        store = stack.enter_context(etcd.own())
        alpha = cell(state_dir / "alpha", "alpha", store)
        beta = cell(state_dir / "beta", "beta", store, controllers=2)
        pin(alpha, beta=beta)
        pin(beta, alpha=alpha)
        for one in (alpha, beta):
            stack.callback(one.stop)
            one.start()
        until(
            lambda: all(
                set(states(one).values()) == {"alive"} and len(seen(one)) == 2 for one in (alpha, beta)
            )
        )
        yield alpha, beta


def ask(cluster: LiveCluster, command: str, *words: str) -> Ran:
    return cluster.run_as_user(command, *words)


def test_a_user_works_in_another_cell(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, beta = cells
    sent = ask(alpha, "essubmit", "--cell", "beta", "-D", str(beta.work), "--parsable", "--wrap", "sleep 600")
    assert sent.code == 0, sent
    job = int(sent.out)
    beta.reaches(job, "RUNNING")
    shown = ask(alpha, "esqueue", "--cell", "beta", "-j", str(job))
    assert shown.code == 0 and " R " in shown.out, shown
    assert ask(alpha, "esqueue", "-h").out == ""
    why = ask(alpha, "eswhy", str(job), "-M", "beta")
    assert why.code == 0 and str(job) in why.out, why
    ended = ask(alpha, "escancel", "--cell=beta", str(job))
    assert ended.code == 0, ended
    assert beta.end(job) == "CANCELLED"
    kept = ask(alpha, "esacct", "--cell", "beta", "-j", str(job), "-o", "jobid,state", "-P")
    assert f"{job}|CANCELLED" in kept.out, kept
    # --wait is told of the end, and its exit code is the job's.
    waited = ask(alpha, "essubmit", "--cell", "beta", "-W", "-D", str(beta.work), "--wrap", "exit 7")
    assert waited.code == 7, waited
    nodes = ask(alpha, "esinfo", "--cell", "beta", "-N", "-h")
    assert nodes.code == 0 and len(nodes.out.splitlines()) == 2, nodes
