"""Usage in other cells: when it is written, how it ages, and what does not count."""

from __future__ import annotations

import math
import random

import msgspec
import pytest

from eslurm.core.federation.actions import Failure, Problem
from eslurm.core.federation.membership import Standing
from eslurm.core.federation.own_word import REMOVE_AGAIN_US, OldWord
from eslurm.core.federation.usage import CLOCKS_US, HALF_LIVES_MAX, READ_US, WRITE_US
from eslurm.core.federation.usage_sheet import REST, read_usage, sheet_of
from eslurm.core.federation.values import VALUE_BYTES_MAX, Reader, Unreadable, encode
from eslurm.core.model.config import PriorityWeights
from eslurm.core.model.federation import FORMAT, USAGE_MAX, CellUsage
from eslurm.core.plan.slices import exhaust
from eslurm.core.state.view import View
from eslurm.lab.kv.image import KvImage
from tests.kits.core import World
from tests.kits.federation import KEYS, LEASE_S, Controller, Network, held, put
from tests.kits.shared_usage import HALF_LIFE_S, WALL_US, Sharing

ADA, BOB = ("physics", "ada"), ("physics", "bob")
KEY = f"{KEYS.usage}beta"
HOUR_US = 3_600_000_000


def network() -> Network:
    net = Network(KvImage(), random.Random(1))
    net.faults = 0.0
    return net


def pair(**options: int) -> tuple[Network, Sharing, Sharing]:
    net = network()
    alpha = Sharing(net, "alpha", {ADA: 100.0}, **options)
    beta = Sharing(net, "beta", {ADA: 1_000.0, BOB: 10.0})
    net.settle(15)
    return net, alpha, beta


def word(net: Network) -> CellUsage:
    entry = net.image.get(KEY).entry
    assert entry is not None
    read = Reader(CellUsage, KEYS.usage).read_entry(entry)
    assert isinstance(read, CellUsage), read
    return read


def forge(net: Network, usage: CellUsage) -> None:
    put(net.image, KEY, msgspec.msgpack.encode(usage))
    net.settle(0.1)


def test_each_cell_counts_the_usage_of_the_other() -> None:
    _, alpha, beta = pair()
    assert alpha.summed() == pytest.approx({ADA: 1_000.0, BOB: 10.0}, rel=1e-4)
    assert beta.summed() == pytest.approx({ADA: 100.0}, rel=1e-4)
    one = alpha.words()["beta"]
    assert one.problem == "" and one.age_us < 20_000_000


def test_a_cell_with_its_own_usage_alone_says_and_reads_nothing() -> None:
    net = network()
    one = Controller("beta")
    net.controllers.append(one)
    alpha = Sharing(net, "alpha", {ADA: 100.0})
    net.settle(15)
    assert one.membership.standing is Standing.MEMBER and one.usage is None
    assert not any(watch.action.prefix == KEYS.usage for watch in net.watches if watch.controller is one)
    assert list(held(net.image, KEYS.usage)) == [f"{KEYS.usage}alpha"]
    assert alpha.words() == {}


def test_a_cell_that_counts_its_own_usage_again_removes_what_it_has_said() -> None:
    net, alpha, beta = pair()
    assert "beta" in alpha.words()
    # A controller that no longer leads removes nothing.
    former = Controller("beta", epoch=1)
    net.controllers.remove(beta)
    later = Sharing(net, "beta", {ADA: 1_000.0}, epoch=2)
    net.settle(15)
    net.controllers.append(former)
    net.settle(15)
    assert word(net).epoch == 2
    net.stop(former)
    net.stop(later)
    net.controllers.append(Controller("beta", epoch=3))
    net.settle(15)
    assert list(held(net.image, KEYS.usage)) == [f"{KEYS.usage}alpha"]
    assert alpha.words() == {} and alpha.summed() == {}
    net.controllers.append(Controller("beta", epoch=4))
    net.settle(15)
    assert list(held(net.image, KEYS.usage)) == [f"{KEYS.usage}alpha"], "nothing to remove is no fault"


def test_a_store_that_denies_the_removal_is_not_asked_all_the_time() -> None:
    net = network()
    one = Controller("beta")
    net.controllers.append(one)
    net.settle(15)
    old = OldWord(one.membership, one.alive, one.membership.own.usage_key)
    action = old.next(net.now_us, 0.5)
    assert action is not None and not action.then, "it reads first"
    old.failed(action, Failure(Problem.DENIED, "permission denied"))
    assert old.next(net.now_us + 1, 0.5) is None
    assert old.next(net.now_us + REMOVE_AGAIN_US - 1, 0.5) is None
    assert old.due_us(net.now_us + 1) == net.now_us + 1 + REMOVE_AGAIN_US
    assert old.next(net.now_us + REMOVE_AGAIN_US + 1, 0.5) is not None


def test_a_word_is_written_at_a_change_and_from_time_to_time() -> None:
    net, _, beta = pair()
    first = word(net).seq
    beta.uses = {ADA: 1_005.0, BOB: 10.0}
    net.settle(READ_US / 1e6 * 2)
    assert word(net).seq == first
    beta.uses = {ADA: 1_105.0, BOB: 10.0}
    net.settle(READ_US / 1e6 + 1)
    assert word(net).seq == first + 1
    net.settle(WRITE_US / 1e6 - 15)
    assert word(net).seq == first + 1
    net.settle(26)
    assert word(net).seq == first + 2
    for step in range(30):
        beta.uses = {ADA: 1e4 * 2**step}
        net.settle(1)
    assert word(net).seq <= first + 5


def test_a_word_without_any_usage_says_that_the_cell_has_none() -> None:
    net = network()
    alpha = Sharing(net, "alpha", {ADA: 1.0})
    Sharing(net, "beta", {})
    net.settle(15)
    assert alpha.words()["beta"].problem == ""
    assert alpha.summed() == {}


def test_usage_of_a_silent_cell_fades_and_is_dropped() -> None:
    net, alpha, beta = pair()
    net.stop(beta)
    before = alpha.summed()[ADA]
    net.settle(LEASE_S + 1)
    net.advance(HALF_LIFE_S * 1_000_000 - int((LEASE_S + 1) * 1e6))
    net.settle(3)
    assert alpha.summed()[ADA] == pytest.approx(before / 2, rel=1e-3)
    net.advance((HALF_LIVES_MAX - 1) * HALF_LIFE_S * 1_000_000)
    net.settle(3)
    assert alpha.summed() == {}
    assert "half-lives" in alpha.words()["beta"].problem


def test_usage_of_a_cell_that_has_left_does_not_count() -> None:
    net, alpha, beta = pair()
    beta.membership.change(left=True)
    net.settle(3)
    assert alpha.summed() == {} and alpha.words() == {}
    assert beta.words() == {}
    beta.membership.change(left=False)
    net.settle(3)
    assert alpha.summed()[ADA] == pytest.approx(1_000, rel=1e-3)


def test_usage_of_a_cell_without_a_record_or_without_trust_does_not_count() -> None:
    net, alpha, _ = pair()
    put(
        net.image,
        f"{KEYS.usage}gamma",
        encode(CellUsage(FORMAT, 1, 1, 0, 1, (("physics", (("ada", 9e9),)),))),
    )
    net.settle(1)
    assert set(alpha.words()) == {"beta"}
    alpha.trusted = lambda _: False
    assert alpha.summed() == {}
    assert "not trusted" in alpha.words()["beta"].problem


@pytest.mark.parametrize("skew_us", [-CLOCKS_US + 120_000_000, CLOCKS_US - 120_000_000])
def test_clocks_that_differ_by_minutes_change_no_age(skew_us: int) -> None:
    net, alpha, _ = pair(skew_us=skew_us)
    assert alpha.words()["beta"].age_us < 20_000_000
    net.settle(120)
    assert alpha.words()["beta"].age_us < WRITE_US + 15_000_000


def test_a_controller_that_starts_anew_takes_an_old_word_for_old() -> None:
    net, alpha, beta = pair()
    net.stop(beta)
    net.advance(48 * HOUR_US)
    net.stop(alpha)
    net.settle(LEASE_S + 1)
    again = Sharing(net, "alpha", {ADA: 100.0}, epoch=2)
    net.settle(8)
    assert again.words()["beta"].age_us == pytest.approx(48 * HOUR_US, rel=1e-3)
    assert again.summed()[ADA] == pytest.approx(1_000 * 2 ** (-48 / 168), rel=1e-3)


def test_a_listing_makes_no_word_younger() -> None:
    net, alpha, beta = pair()
    net.stop(beta)
    net.settle(100)
    age_us = alpha.words()["beta"].age_us
    net.image.compact(net.image.revision)
    alpha._mirrors[KEYS.usage].doubt()
    net.settle(5)
    assert alpha.words()["beta"].age_us == pytest.approx(age_us + 5e6, abs=1e6)


def test_the_time_between_reading_and_writing_counts() -> None:
    net, alpha, _ = pair()
    now = word(net)
    forge(net, msgspec.structs.replace(now, seq=99, at_us=alpha.wall_us(), aged_us=50_000_000))
    assert 50_000_000 <= alpha.words()["beta"].age_us < 52_000_000


@pytest.mark.parametrize(
    "row",
    [
        ("physics", (("ada", math.nan),)),
        ("physics", (("ada", math.inf),)),
        ("physics", (("ada", -1.0),)),
        ("physics", (("ada", USAGE_MAX * 2),)),
        ("physics", (("a\x1b[2Jda", 1.0),)),
        ("p" * 300, (("ada", 1.0),)),
        ("physics", (("ada", "much"),)),
    ],
)
def test_a_forged_word_counts_nothing_and_is_written_over(row: object) -> None:
    net, alpha, _ = pair()
    forge(net, msgspec.structs.replace(word(net), accounts=(row,)))  # type: ignore[arg-type]
    one = alpha.words()["beta"]
    assert "cannot be read" in one.problem and not one.is_readable
    assert alpha.summed() == {}
    net.settle(WRITE_US / 1e6 + 15)
    assert alpha.summed()[ADA] == pytest.approx(1_000, rel=1e-3)


def test_the_most_that_a_forged_word_says_is_a_number() -> None:
    net, alpha, _ = pair()
    rows = tuple(("physics", (("ada", USAGE_MAX),)) for _ in range(500))
    forge(net, msgspec.structs.replace(word(net), half_life_s=1, accounts=rows))
    assert math.isfinite(alpha.summed()[ADA])
    put(net.image, KEY, b"\x00" * (VALUE_BYTES_MAX + 1))
    net.settle(0.1)
    assert alpha.summed() == {}


def test_half_lives_that_differ_count_constant_use_alike() -> None:
    net = network()
    alpha = Sharing(net, "alpha", {ADA: 0.0}, half_life_s=1_000_000)
    beta = Sharing(net, "beta", {ADA: 500.0}, half_life_s=500_000)
    net.settle(15)
    assert alpha.summed()[ADA] == pytest.approx(1_000, rel=1e-3)
    beta.half_life_s = 0
    net.settle(15)
    assert alpha.summed() == {}
    assert "fades" in alpha.words()["beta"].problem
    alpha.half_life_s = 0
    net.stop(beta)
    net.advance(400 * 24 * HOUR_US)
    net.settle(3)
    assert alpha.summed() == {ADA: 500.0}


def test_a_former_leader_writes_no_usage() -> None:
    net, _, beta = pair()
    newer = Sharing(net, "beta", {ADA: 7.0}, epoch=2)
    net.settle(20)
    assert beta.membership.standing is Standing.SUPERSEDED
    assert word(net).epoch == 2 and newer.membership.standing is Standing.MEMBER
    beta.uses = {ADA: 1e9}
    net.settle(WRITE_US / 1e6 + 20)
    assert word(net).epoch == 2


# ---- the sheet ----


def test_a_sheet_names_all_when_there_is_room() -> None:
    uses = {(f"account{number % 20}", f"user{number:04}"): float(number) for number in range(1, 500)}
    sheet = exhaust(sheet_of(uses, 5, 60))
    assert (sheet.wall_us, sheet.half_life_s, sheet.left_out) == (5, 60, 0)
    assert sheet.named == uses
    assert {(a, u): amount for a, users in sheet.accounts for u, amount in users} == uses


def test_a_sheet_keeps_the_sums_of_accounts_when_users_are_too_many() -> None:
    uses = {(f"account{number % 20}", f"user{number:05}"): float(number) for number in range(1, 20_000)}
    sheet = exhaust(sheet_of(uses, 5, 60))
    word = CellUsage(FORMAT, 2**53, 2**53, 2**53, 2**53, sheet.accounts, 2**53, 600_000_000)
    assert VALUE_BYTES_MAX * 0.9 < len(encode(word)) <= VALUE_BYTES_MAX
    assert ("account19", "user19999") in sheet.named and ("account1", "user00001") not in sheet.named
    for account, users in sheet.accounts:
        whole = math.fsum(amount for (name, _), amount in uses.items() if name == account)
        assert math.fsum(amount for _, amount in users) == pytest.approx(whole)
        assert users[-1][0] == REST
    assert sheet.left_out == 0 and len(sheet.named) > 500


def test_a_sheet_leaves_the_smallest_accounts_out() -> None:
    uses = {("a" * 250 + f"{number:05}", "ada"): float(number) for number in range(1, 500)}
    sheet = exhaust(sheet_of(uses, 5, 60))
    assert len(encode(CellUsage(FORMAT, 1, 1, 1, 1, sheet.accounts))) <= VALUE_BYTES_MAX
    assert sheet.left_out == 499 - len(sheet.accounts) > 0
    assert sheet.accounts[0][0].endswith("00499")


def test_a_name_that_others_would_not_read_costs_its_own_usage_alone() -> None:
    uses = {ADA: 5.0, ("physics", "a\x1bda"): 2.0, ("e\x00vil", "ada"): 9.0, ("p" * 300, "ada"): 9.0}
    sheet = exhaust(sheet_of(uses, 5, 60))
    assert sheet.named == {ADA: 5.0, ("physics", REST): 2.0} and sheet.left_out == 2


def test_a_sheet_without_usage_is_empty_and_nothing_is_no_change() -> None:
    sheet = exhaust(sheet_of({ADA: 0.0}, 5, 60))
    assert sheet.accounts == () and not sheet.differs(sheet)
    assert exhaust(sheet_of({ADA: 1.0}, 5, 60)).differs(sheet)
    assert exhaust(sheet_of({ADA: 1.0}, 5, 61)).differs(exhaust(sheet_of({ADA: 1.0}, 5, 60)))


def test_the_sheet_of_a_cluster_has_what_runs() -> None:
    world = World(priority=PriorityWeights(half_life_s=0), restarts=False)
    world.submit(account="physics")
    world.start()
    world.pass_time(100)
    (row,) = exhaust(read_usage(View(world.state), world.now_us)).accounts
    assert row[0] == "physics" and row[1][0][1] == 100.0


def test_any_sheet_can_be_read() -> None:
    sheet = exhaust(sheet_of({ADA: 1e300}, WALL_US, 60))
    word = CellUsage(FORMAT, 1, 1, sheet.wall_us, 60, sheet.accounts)
    assert not isinstance(Reader(CellUsage, KEYS.usage).read(KEY, encode(word)), Unreadable)
