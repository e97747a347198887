"""Usage over cells: whatever the network did, when it is quiet each cell counts the plain sum of the others."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.core.federation.usage import WRITE_US
from eslurm.core.federation.usage_sheet import sheet_of
from eslurm.core.federation.values import Reader, encode
from eslurm.core.model.federation import FORMAT, CellUsage
from eslurm.core.plan.cycle.fair_tree import Association
from eslurm.core.plan.slices import exhaust
from eslurm.lab.kv.image import KvImage
from tests.kits.federation import KEYS, Network
from tests.kits.shared_usage import HALF_LIFE_S, Sharing, Usage

associations = st.tuples(st.sampled_from(["", "physics", "optics"]), st.sampled_from(["ada", "bob", "kim"]))
usages = st.dictionaries(associations, st.floats(1.0, 1e9))


def plain(cells: list[Usage]) -> dict[Association, float]:
    """The sum, one number after another."""
    summed: Counter[Association] = Counter()
    for usage in cells:
        summed.update(usage)  # type: ignore[arg-type]
    return dict(summed)


@settings(max_examples=25)
@given(st.lists(st.tuples(usages, usages), min_size=2, max_size=4), st.integers(0, 2**32))
def test_the_sum_is_the_plain_sum_when_all_is_quiet(cells: list[tuple[Usage, Usage]], seed: int) -> None:
    draws = random.Random(seed)
    net = Network(KvImage(), draws)
    members = [Sharing(net, f"cell{at}", before) for at, (before, _) in enumerate(cells)]
    for step in range(400):
        net.step()
        if step == 200:
            for one, (_, after) in zip(members, cells, strict=True):
                one.uses = after
        if step == 300:
            net.image.compact(net.image.revision)
    restarted = draws.randrange(len(members))
    net.stop(members[restarted])
    members[restarted] = Sharing(net, f"cell{restarted}", cells[restarted][1], epoch=2)
    net.settle(WRITE_US / 1e6 + 30)
    for at, one in enumerate(members):
        wanted = plain([after for other, (_, after) in enumerate(cells) if other != at])
        assert one.summed() == pytest.approx(wanted, rel=1e-3)
        assert all(word.age_us < 2 * WRITE_US for word in one.words().values())
    assert len(list(net.image.list(KEYS.usage, "", 0, 100).entries)) == len(cells)


@given(
    st.dictionaries(st.tuples(st.text(max_size=300), st.text(min_size=1, max_size=300)), st.floats(0, 1e15))
)
def test_a_sheet_can_be_read_and_says_all_usage_of_each_account_that_it_names(usage: Usage) -> None:
    sheet = exhaust(sheet_of(usage, 0, HALF_LIFE_S))
    for account, users in sheet.accounts:
        whole = sum(amount for (name, _), amount in usage.items() if name == account)
        assert sum(amount for _, amount in users) == pytest.approx(whole, rel=1e-6)
    value = encode(CellUsage(FORMAT, 1, 1, 0, HALF_LIFE_S, sheet.accounts, sheet.left_out))
    assert isinstance(Reader(CellUsage, KEYS.usage).read(f"{KEYS.usage}beta", value), CellUsage)
