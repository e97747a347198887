"""Calls between cells of a federation: real controllers, a real etcd, and what a user of one cell does in another."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from eslurm.security.joining import fingerprint
from eslurm.v1 import controller_pb2 as pb
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
        # Each has seen the record of the other.
        until(lambda: ask(alpha, "esqueue", "--cell", "beta").code == 0)
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


def test_several_cells_in_one_table(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, beta = cells
    here = alpha.user_job("sleep 600")
    sent = ask(
        alpha,
        "essubmit",
        "--parsable",
        "-M",
        "beta",
        "-D",
        str(beta.work),
        "-J",
        "there",
        "--wrap",
        "sleep 600",
    )
    there = int(sent.out)
    alpha.reaches(here, "RUNNING")
    beta.reaches(there, "RUNNING")
    shown = ask(alpha, "esqueue", "--cells", "all")
    lines = [line.split() for line in shown.out.splitlines()]
    assert lines[0][:2] == ["CELL", "JOBID"], shown
    assert [line[:2] for line in lines[1:]] == [["alpha", str(here)], ["beta", str(there)]]
    assert ask(alpha, "esqueue", "-M", "beta,alpha", "-h", "-o", "%i").out.splitlines()[0].split() == [
        "beta",
        str(there),
    ]
    found = json.loads(ask(alpha, "esqueue", "--cells=all", "--json").out)
    assert [(one["name"], one["state"], one["error"]) for one in found["cells"]] == [
        ("alpha", "alive", None),
        ("beta", "alive", None),
    ]
    assert [(one["cell"], one["job_id"]) for one in found["jobs"]] == [("alpha", here), ("beta", there)]
    nodes = ask(alpha, "esinfo", "--cells", "all", "-N", "-h")
    assert [line.split()[0] for line in nodes.out.splitlines()] == ["alpha"] * 2 + ["beta"] * 2
    assert ask(alpha, "esinfo", "--cells", "all").out.split()[:2] == ["CELL", "PARTITION"]
    for cluster, job in ((alpha, here), (beta, there)):
        cluster.do("escancel", str(job))
        cluster.end(job)
    kept = ask(alpha, "esacct", "--cells", "all", "-o", "jobid,state", "-P", "-h")
    assert kept.out.splitlines() == [f"alpha|{here}|CANCELLED", f"beta|{there}|CANCELLED"], kept
    wrong = ask(alpha, "esqueue", "--cells", "alpha,delta")
    assert wrong.code == 1 and "--cells delta: no such cell: alive are alpha, beta" in wrong.err


def test_a_cell_s_failures_are_said_within_the_deadline(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, beta = cells
    job = int(
        ask(
            alpha, "essubmit", "--parsable", "--cell", "beta", "-D", str(beta.work), "--wrap", "sleep 600"
        ).out
    )
    beta.reaches(job, "RUNNING")
    epoch = seen(alpha)["beta"].epoch
    # Its leader is gone: the standby answers, whoever asks meanwhile waits for it.
    beta.kill("esctld")
    shown = ask(alpha, "esqueue", "--cell", "beta", "-h")
    assert shown.code == 0 and str(job) in shown.out, shown
    until(lambda: seen(alpha)["beta"].epoch > epoch)
    # A job that is awaited meanwhile is awaited further.
    assert ask(alpha, "escancel", "--cell", "beta", str(job)).code == 0
    beta.kill("esctld-c2")
    until(lambda: states(alpha)["beta"] == "silent")
    # Longer than a standby needs.
    until(lambda: seen(alpha)["beta"].silent_ms > 10_000)
    began_s = time.monotonic()
    away = ask(alpha, "esqueue", "--cell", "beta")
    assert away.code == 3 and away.err.startswith("esqueue: --cell beta: it is silent, its lease ended "), (
        away
    )
    assert "(" not in away.err.partition("ago")[0]
    some = ask(alpha, "esqueue", "--cells", "all")
    assert some.code == 0 and some.err.startswith("esqueue: cell beta: silent, lease ended "), some
    assert some.out.startswith("CELL")
    sent = ask(alpha, "essubmit", "--cell", "beta", "--wrap", "true")
    assert sent.code == 3 and "nothing was changed" in sent.err, sent
    assert time.monotonic() - began_s < 20
    beta.start()
    until(lambda: states(alpha)["beta"] == "alive")
    assert ask(alpha, "esqueue", "--cell", "beta").code == 0


def test_who_does_not_pass(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, _beta = cells
    told = ask(alpha, "esqueue", "--cell", "delta")
    assert told.code == 1
    assert told.err == "esqueue: --cell delta: no such cell: alive are alpha, beta\n"
    assert ask(alpha, "esqueue", "--cell", "alpha").code == 0
    assert ask(alpha, "esqueue", "--cell", "here").code == 0
    for wrong in ("any", "all", "a,b", "../x"):
        told = ask(alpha, "escancel", "--cell", wrong, "17")
        assert told.code == 2 and "does not name one cell" in told.err, told
    told = ask(alpha, "esctl", "--cell", "beta", "drain", "cn0001", "reason=because")
    assert told.code == 1 and "does not pass to other cells" in told.err, told
    if os.getuid() == 0:
        told = alpha.run("esqueue", "--cell", "beta")
        assert told.code == 1 and "root's commands do not pass through other cells" in told.err, told


def test_a_cell_that_is_not_pinned_gets_no_calls_and_sends_none(state_dir: Path) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(etcd.own())
        alpha = cell(state_dir / "alpha", "alpha", store)
        beta = cell(state_dir / "beta", "beta", store)
        # One side alone is not enough.
        pin(alpha, beta=beta)
        for one in (alpha, beta):
            stack.callback(one.stop)
            one.start()
        until(lambda: states(alpha) == states(beta) == {"alpha": "alive", "beta": "alive"})
        told = ask(alpha, "esqueue", "--cell", "beta")
        assert told.code == 3 and "does cell beta trust this one" in told.err, told
        told = ask(beta, "esqueue", "--cell", "alpha")
        assert told.code == 1 and "it is not pinned here: if its administrators confirm " in told.err, told


def test_the_store_may_be_believed_and_keys_be_replaced(state_dir: Path) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(etcd.own())
        alpha, beta = (cell(state_dir / name, name, store) for name in ("alpha", "beta"))
        for one in (alpha, beta):
            path = one.directory / "eslurm.toml"
            path.write_text(path.read_text().replace("[federation]", '[federation]\ntrust = "store"'))
            stack.callback(one.stop)
            one.start()
        until(lambda: states(alpha) == states(beta) == {"alpha": "alive", "beta": "alive"})
        until(lambda: ask(alpha, "esqueue", "--cell", "beta").code == 0)
        beta.site.keys = beta.site.keys.with_next(int(time.time() * 1e6))
        beta.site.write_keys(beta.directory)
        beta.site.keys = beta.site.keys.with_next_signing()
        beta.site.write_keys(beta.directory)
        beta.terminate("esctld")
        beta.launch("esctld")
        until(lambda: ask(alpha, "esqueue", "--cell", "beta").code == 0)
        # Without its store a cell is still asked where it was last.
        store.members[0].stop()
        until(lambda: alpha.call("Federation", pb.FederationRequest()).state == "away")
        assert ask(alpha, "esqueue", "--cell", "beta").code == 0


def test_a_job_is_found_by_its_number_in_any_cell(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, beta = cells
    until(lambda: all(one.call("Federation", pb.FederationRequest()).ids.left for one in cells))
    sent = [
        ask(one, "essubmit", "-D", str(one.work), "--parsable", "--wrap", "sleep 600")
        for one in (alpha, beta)
    ]
    assert all(one.code == 0 for one in sent), sent
    own, other = (int(one.out) for one in sent)
    until(lambda: seen(alpha)["beta"].ids > 0)
    shown = ask(alpha, "esqueue", "-h", "-j", f"{own},{other}")
    assert shown.code == 0 and str(own) in shown.out and str(other) in shown.out, shown
    why = ask(alpha, "eswhy", str(other))
    assert why.code == 0 and str(other) in why.out, why
    ended = ask(alpha, "escancel", str(own), f"{other}@beta")
    assert ended.code == 0, ended
    assert alpha.end(own) == beta.end(other) == "CANCELLED"
    kept = ask(alpha, "esacct", "-j", str(other), "-o", "jobid,state", "-P")
    assert f"{other}|CANCELLED" in kept.out, kept
