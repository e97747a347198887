"""The view of all cells."""

from __future__ import annotations

import random

import msgspec
import pytest

from eslurm.core.federation.actions import Failure, Problem
from eslurm.core.federation.membership import Standing
from eslurm.core.federation.values import encode
from eslurm.core.federation.view import STALE_US, CellState, CellView
from eslurm.core.model.federation import CellRecord
from eslurm.lab.kv.image import KvImage
from tests.kits.federation import KEYS, LEASE_S, Controller, Network, put, remove, summary


def federation(*names: str) -> tuple[Network, list[Controller]]:
    controllers = [Controller(name) for name in names]
    for one in controllers:
        one.shows = summary(3, 5)
    net = Network(KvImage(), random.Random(1))
    net.faults = 0.0
    net.controllers += controllers
    net.settle(4)
    return net, controllers


def cell(net: Network, one: Controller, name: str) -> CellView:
    seen = one.view(net.now_us)
    return next(found for found in seen.cells if found.name == name)


def test_all_cells_are_seen_with_what_they_have() -> None:
    net, (alpha, _) = federation("alpha", "beta")
    seen = alpha.view(net.now_us)
    assert (seen.federation, seen.cell, seen.standing, seen.problem) == ("lab", "alpha", Standing.MEMBER, "")
    assert seen.age_us is not None and seen.age_us <= 1_000_000
    assert seen.revision == net.image.revision
    assert [(one.name, one.state) for one in seen.cells] == [
        ("alpha", CellState.ALIVE),
        ("beta", CellState.ALIVE),
    ]
    beta = cell(net, alpha, "beta")
    assert (beta.nodes, beta.nodes_free, beta.cores, beta.cores_free) == (5, 3, 40, 24)
    assert beta.alive is not None and beta.alive.endpoint == "host-beta:1"
    assert beta.record is not None and beta.record.number in (1, 2)
    assert beta.silent_us is None and beta.problem == ""


def test_a_cell_that_dies_is_silent_within_its_lease_and_a_second() -> None:
    net, (alpha, beta) = federation("alpha", "beta")
    net.stop(beta)
    net.settle(LEASE_S + 1)
    gone = cell(net, alpha, "beta")
    assert gone.state is CellState.SILENT
    assert gone.silent_us is not None and gone.silent_us <= 2_500_000
    assert gone.age_us is not None and gone.age_us > LEASE_S * 1e6 - 1_000_000
    assert gone.alive is None and gone.nodes == 0
    again = Controller("beta", 2)
    net.controllers.append(again)
    net.settle(2)
    assert cell(net, alpha, "beta").state is CellState.ALIVE
    assert cell(net, alpha, "beta").silent_us is None


def test_a_cell_that_left_says_so() -> None:
    net, (alpha, beta) = federation("alpha", "beta")
    beta.membership.change(left=True)
    net.settle(2)
    assert cell(net, alpha, "beta").state is CellState.LEFT


def test_nothing_is_known_of_others_while_the_store_is_away() -> None:
    net, (alpha, _) = federation("alpha", "beta")
    now_us = net.now_us + STALE_US + 1
    seen = alpha.view(now_us)
    assert {one.state for one in seen.cells} == {CellState.UNKNOWN}
    assert {one.problem for one in seen.cells} == {"the store is away"}
    assert seen.cells[1].summary is not None, "the last word is shown with its age"
    assert alpha.view(net.now_us).cells[1].state is CellState.ALIVE


def test_before_the_first_word_nothing_is_known() -> None:
    one = Controller("alpha")
    seen = one.view(5)
    assert (seen.standing, seen.age_us, seen.cells) == (Standing.AWAY, None, ())
    asked = one.cells.tick(5, 0.0)
    assert asked is not None
    one.cells.failed(asked, Failure(Problem.DENIED, "permission denied for user cell-alpha"), 5)
    one.membership.tick(6, 0.0)
    assert one.view(6).problem == "permission denied for user cell-alpha"


@pytest.mark.parametrize("which", ["cells", "alive", "summary"])
def test_values_that_cannot_be_read_are_named_and_skipped(which: str) -> None:
    net, (alpha, beta) = federation("alpha", "beta")
    net.stop(beta)
    key = f"/eslurm/lab/{which}/beta"
    lease = net.image.grant(3_600_000_000, net.now_us).lease
    put(net.image, key, b"\xc1", lease)
    net.settle(1)
    seen = alpha.view(net.now_us)
    assert [found.key for found in seen.unreadable] == [key]
    shown = cell(net, alpha, "beta")
    assert shown.problem
    assert shown.state is (CellState.ALIVE if which == "summary" else CellState.UNKNOWN)


def test_a_word_without_a_lease_says_nothing_of_the_present() -> None:
    net, (alpha, beta) = federation("alpha", "beta")
    net.stop(beta)
    entry = net.image.get(f"{KEYS.alive}beta").entry
    assert entry is not None
    put(net.image, entry.key, entry.value)
    net.settle(LEASE_S + 1)
    shown = cell(net, alpha, "beta")
    assert shown.state is CellState.UNKNOWN and "hangs on no lease" in shown.problem


def test_a_word_without_a_record_is_no_cell() -> None:
    net, (alpha, beta) = federation("alpha", "beta")
    net.stop(beta)
    remove(net.image, f"{KEYS.cells}beta")
    net.settle(1)
    shown = cell(net, alpha, "beta")
    assert (shown.state, shown.problem) == (CellState.UNKNOWN, "it has no record in the store")


def test_two_cells_of_one_number_are_named() -> None:
    net, (alpha, beta) = federation("alpha", "beta")
    forged = msgspec.structs.replace(
        CellRecord(1, 1, "gamma", "site", b"ring", 0), number=beta.membership.number
    )
    put(net.image, f"{KEYS.cells}gamma", encode(forged))
    net.settle(1)
    assert cell(net, alpha, "gamma").problem == f"its number {beta.membership.number} is that of beta, too"
    assert cell(net, alpha, "beta").problem == ""
