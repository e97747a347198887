"""Cells of a federation: real controllers that see each other through a real etcd."""

from __future__ import annotations

import inspect
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from eslurm.v1 import controller_pb2 as pb
from tests.kits.cluster import LiveCluster
from tests.support import etcd

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
LEASE_S = 2.0


@pytest.fixture
def store() -> Iterator[etcd.Etcd]:
    with etcd.own() as store:
        yield store


def cell(directory: Path, name: str, store: etcd.Etcd, **options: Any) -> LiveCluster:
    """A cluster of four nodes that is a member, not started."""
    directory.parent.chmod(0o711)
    directory.mkdir()
    endpoints = json.dumps(store.endpoints)
    sections = f'[federation]\nname = "lab"\ncell = "{name}"\nendpoints = {endpoints}\nlease_s = {LEASE_S}\n'
    return LiveCluster(directory, nodes=4, agents=1, satellites=0, sections=sections, **options)


@pytest.fixture
def cells(state_dir: Path, store: etcd.Etcd) -> Iterator[tuple[LiveCluster, LiveCluster]]:
    with ExitStack() as stack:
        alpha = cell(state_dir / "alpha", "alpha", store, controllers=2)
        beta = cell(state_dir / "beta", "beta", store)
        for one in (alpha, beta):
            stack.callback(one.stop)
            one.start()
        yield alpha, beta


def until(condition: Callable[[], bool]) -> None:
    """Waits; the machine may be busy, and a lease has to end."""
    deadline_s = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline_s, inspect.getsource(condition)
        time.sleep(0.05)


def seen(cluster: LiveCluster) -> dict[str, Any]:
    """Cells by name, as this cluster sees them."""
    reply = cluster.call("Federation", pb.FederationRequest())
    return {one.name: one for one in reply.cells}


def states(cluster: LiveCluster) -> dict[str, str]:
    return {name: one.state for name, one in seen(cluster).items()}


def both_alive(cluster: LiveCluster) -> bool:
    return states(cluster) == {"alpha": "alive", "beta": "alive"} and all(
        one.age_ms >= 0 and one.nodes == 4 for one in seen(cluster).values()
    )


def diagnosed(cluster: LiveCluster) -> list[tuple[str, str]]:
    """The doctor's findings about the federation."""
    reply = cluster.call("Doctor", pb.DoctorRequest())
    assert {"federation", "cells", "etcd"} <= set(reply.checks)
    return [(one.what, one.text) for one in reply.findings if one.check in ("federation", "cells", "etcd")]


def test_cells_see_each_other_and_what_is_free(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, beta = cells
    until(lambda: both_alive(alpha) and both_alive(beta))
    until(lambda: seen(beta)["alpha"].nodes_free == 4)
    job = alpha.wrap("sleep 600", "-N", "3", "--exclusive", "-t", "30")
    alpha.reaches(job, "RUNNING")
    until(lambda: seen(beta)["alpha"].nodes_free == 1 and seen(beta)["alpha"].jobs_running == 1)
    until(lambda: seen(beta)["beta"].nodes_free == 4)

    shown = beta.run("esinfo", "--federation")
    assert shown.code == 0, shown
    lines = shown.out.splitlines()
    assert lines[0].split() == [
        "FEDERATION",
        "lab",
        "CELL",
        "beta",
        "STORE",
        "1",
        "of",
        "1",
        "answer",
        "STATE",
        "member",
    ]
    assert lines[2].split()[:3] == ["alpha", "alive", "1/4"]
    assert lines[3].split()[:3] == ["beta*", "alive", "4/4"]
    found = json.loads(beta.run("esinfo", "--federation", "--json").out)
    assert [one["name"] for one in found["cells"]] == ["alpha", "beta"]
    assert sum(one["nodes_free"] for one in found["cells"][0]["classes"]) == 1
    told = beta.run("esctl", "federation", "status")
    assert "leader" in told.out and "3.4" in told.out
    assert diagnosed(beta) == []
    alpha.do("escancel", str(job))


def test_a_cell_that_dies_is_silent_and_a_standby_takes_its_place(
    cells: tuple[LiveCluster, LiveCluster], store: etcd.Etcd
) -> None:
    alpha, beta = cells
    until(lambda: both_alive(beta))
    epoch = seen(beta)["alpha"].epoch
    # Its standby leads, and shows itself under the next epoch.
    alpha.kill("esctld")
    until(lambda: seen(beta)["alpha"].epoch > epoch and states(beta)["alpha"] == "alive")
    alpha.kill("esctld-c2")
    until(lambda: states(beta)["alpha"] == "silent")
    assert "lease ended" in beta.run("esinfo", "--federation").out
    ((what, text),) = diagnosed(beta)
    assert what == "cell alpha" and "its lease has ended" in text
    alpha.start()
    until(lambda: states(beta)["alpha"] == "alive")


def test_without_its_store_a_cell_goes_on_alone(
    cells: tuple[LiveCluster, LiveCluster], store: etcd.Etcd
) -> None:
    alpha, beta = cells
    until(lambda: both_alive(alpha))
    member = store.members[0]
    member.send_signal(signal.SIGSTOP)
    until(lambda: alpha.call("Federation", pb.FederationRequest()).state == "away")
    assert alpha.end(alpha.wrap("true")) == "COMPLETED"
    told = alpha.run("esinfo", "--federation")
    assert told.code == 0 and "STATE away" in told.out
    assert any(what == "cell alpha" and "away" in text for what, text in diagnosed(alpha))
    member.send_signal(signal.SIGCONT)
    until(lambda: both_alive(alpha) and both_alive(beta))
    # Leases and records outlive a crash of the store.
    member.stop()
    assert alpha.end(alpha.wrap("true")) == "COMPLETED"
    store.start(member)
    member.wait()
    until(lambda: both_alive(alpha) and both_alive(beta))


def order(cluster: LiveCluster, *words: str, socket: int = 0) -> str:
    """`esctl federation`, through the socket of one of its controllers."""
    told = cluster.run("esctl", "federation", *words, socket=cluster.sockets[socket])
    assert told.code == 0 and not told.err, told
    return told.out


def test_orders_hold_over_restarts_and_a_store_from_a_backup(
    cells: tuple[LiveCluster, LiveCluster], store: etcd.Etcd, state_dir: Path
) -> None:
    alpha, beta = cells
    until(lambda: both_alive(alpha) and both_alive(beta))
    store.ctl("snapshot", "save", str(state_dir / "backup"))
    assert "cell beta of federation lab drains" in order(beta, "drain")
    until(lambda: seen(alpha)["beta"].draining)
    # A standby passes the order on, and follows it when it leads.
    alpha.wait_standbys()
    assert "has left" in order(alpha, "leave", socket=1)
    until(lambda: states(beta)["alpha"] == "left")
    assert alpha.end(alpha.wrap("true")) == "COMPLETED"
    alpha.kill("esctld")
    until(lambda: alpha.call("Federation", pb.FederationRequest()).state == "left")
    assert states(beta)["alpha"] == "left"
    number = seen(beta)["alpha"].number

    # A backup from before: beta's controller, which saw more, does not follow it by itself.
    member = store.members[0]
    member.stop()
    store.restore(member, state_dir / "backup")
    until(lambda: "older than before" in beta.call("Federation", pb.FederationRequest()).problem)
    reply = json.loads(order(beta, "rejoin", "--json"))
    assert (reply["state"], reply["draining"], reply["done"]) == ("member", True, True)
    # The backup has alpha as a member, its log does not.
    assert json.loads(order(alpha, "leave", "--json", socket=1))["state"] == "left"
    refused = alpha.run("esctl", "federation", "drain", socket=alpha.sockets[1])
    assert refused.code != 0 and "esctl federation rejoin" in refused.err
    assert "is a member" in order(alpha, "rejoin", socket=1)
    until(lambda: states(beta)["alpha"] == "alive" and seen(beta)["alpha"].number == number)
    audited = alpha.run("esctl", "audit", socket=alpha.sockets[1])
    assert "ChangeFederation" in audited.out and "rejoin" in audited.out


def test_a_store_that_was_never_there_is_told(state_dir: Path) -> None:
    class Nowhere:
        endpoints = ("http://127.0.0.1:9",)

    alone = cell(state_dir / "alone", "alone", Nowhere())  # type: ignore[arg-type]
    try:
        alone.start()
        assert alone.end(alone.wrap("true")) == "COMPLETED"
        until(lambda: "127.0.0.1:9" in alone.run("esinfo", "--federation").out)
    finally:
        alone.stop()


def test_a_cluster_that_is_no_member_says_so(cluster: LiveCluster) -> None:
    told = cluster.run("esinfo", "--federation")
    assert told.code == 1
    assert "no member of a federation" in told.err


def test_two_sites_cannot_have_one_name(
    cells: tuple[LiveCluster, LiveCluster], store: etcd.Etcd, state_dir: Path
) -> None:
    alpha, _beta = cells
    until(lambda: both_alive(alpha))
    other = cell(state_dir / "other", "alpha", store)
    try:
        other.start()
        until(lambda: other.call("Federation", pb.FederationRequest()).state == "refused")
        assert "alpha is the name of a cell of another site" in other.run("esinfo", "--federation").out
        assert states(alpha)["alpha"] == "alive"
    finally:
        other.stop()


def ids_of(cluster: LiveCluster) -> pb.JobIdsInfo:
    return cluster.call("Federation", pb.FederationRequest()).ids


def test_ids_of_two_cells_are_never_the_same(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, beta = cells
    until(lambda: both_alive(alpha) and both_alive(beta))
    until(lambda: all(ids_of(one).left >= 200_000 and not ids_of(one).problem for one in cells))
    first, other = alpha.wrap("true"), beta.wrap("sleep 600", "-t", "30")
    assert first >= 100_000 and abs(first - other) >= 100_000
    # With the first job fewer than the reserve are in hand: each leases another block.
    until(lambda: all({one.ids for one in seen(cell).values()} == {300_000} for cell in cells))
    until(lambda: ids_of(alpha).left == 299_999)
    told = alpha.run("esctl", "federation", "status").out
    assert "IDS 299999 left in hand" in told and "LEASED alpha 300000, beta 300000" in told

    # Any cell knows whose a job is; root's calls do not pass there.
    why = alpha.run("eswhy", str(other))
    assert why.code and "cell beta" in why.err, why
    assert "no such cell" in alpha.run("eswhy", "17@omega").err
    assert "17@beta" in alpha.run("eswhy", "17").err
    assert beta.run("escancel", f"{other}@beta").code == 0

    # The next leader goes on with the same block.
    alpha.kill("esctld")
    alpha.kill("esctld-c2")
    alpha.start()
    following = alpha.wrap("true")
    assert first < following < first + 200_000
    assert alpha.end(following) == "COMPLETED"
