"""Fair tree against its own words: an account ahead of its sibling brings its users ahead, in any order of input."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.model.accounts import Account, User
from eslurm.core.plan.cycle.fair_tree import Association, FairTree, Member

Site = tuple[list[Account], list[User], dict[Association, float]]

usages = st.one_of(st.just(0.0), st.integers(1, 5).map(float), st.floats(1e-6, 1e9))


@st.composite
def sites(draw: st.DrawFn) -> Site:
    count = draw(st.integers(1, 6))
    accounts = [
        Account(
            f"a{at}",
            parent=f"a{draw(st.integers(0, at - 1))}" if at and draw(st.booleans()) else "",
            shares=draw(st.integers(0, 4)),
        )
        for at in range(count)
    ]
    names = [one.name for one in accounts]
    users = [
        User(f"u{at}", tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))))
        for at in range(draw(st.integers(1, 8)))
    ]
    users = [User(one.name, one.accounts, draw(st.integers(0, 3))) for one in users]
    pairs = [(account, one.name) for one in users for account in one.accounts]
    return accounts, users, {pair: draw(usages) for pair in pairs if draw(st.booleans())}


def under(members: list[Member], account: str) -> list[Member]:
    """The users below an account, however deep."""
    below = {account}
    for member in members:
        if not member.user and member.parent in below:
            below.add(member.account)
    return [member for member in members if member.user and member.account in below]


@given(sites())
def test_who_is_ahead_brings_all_ahead(site: Site) -> None:
    members = FairTree(*site).members()
    for one in members:
        for other in members:
            siblings = one.parent == other.parent and one.level > other.level
            if not siblings:
                continue
            ahead = [one] if one.user else under(members, one.account)
            behind = [other] if other.user else under(members, other.account)
            assert all(a.factor > b.factor for a in ahead for b in behind)


@given(sites(), st.randoms(use_true_random=False))
def test_order_does_not_matter(site: Site, shuffler: random.Random) -> None:
    accounts, users, usage = site
    pairs = list(usage.items())
    for items in (pairs, mixed := accounts.copy(), people := users.copy()):
        shuffler.shuffle(items)
    again = FairTree(mixed, people, dict(pairs))
    assert again.factors == FairTree(accounts, users, usage).factors
    assert again.members() == FairTree(accounts, users, usage).members()


@given(sites())
def test_factors_are_ranks(site: Site) -> None:
    tree = FairTree(*site)
    factors = sorted(tree.factors.values(), reverse=True)
    for at, factor in enumerate(factors):
        # Whoever shares a rank has that of the first of them.
        assert factor == (len(factors) - factors.index(factor)) / len(factors)
        assert factor > 0.0
        assert at >= factors.index(factor)


@given(sites())
def test_shares_and_usage_of_siblings_are_parts_of_a_whole(site: Site) -> None:
    members = FairTree(*site).members()
    for parent in {member.parent for member in members}:
        # A user's parent is the account; the root's children are the accounts that name none.
        siblings = [member for member in members if member.parent == parent]
        for part in (sum(m.norm_shares for m in siblings), sum(m.norm_usage for m in siblings)):
            assert part == 0.0 or abs(part - 1.0) < 1e-9


@given(sites(), st.floats(1e-3, 1e3))
def test_only_proportions_of_usage_count(site: Site, by: float) -> None:
    accounts, users, usage = site
    # Powers of two scale exactly.
    factor = 2.0 ** round(by % 10)
    scaled = {key: one * factor for key, one in usage.items()}
    assert FairTree(accounts, users, scaled).factors == FairTree(accounts, users, usage).factors


@pytest.mark.parametrize("depth", [3000])
def test_a_deep_tree_is_no_problem(depth: int) -> None:
    accounts = [Account(f"a{at}", parent=f"a{at - 1}" if at else "") for at in range(depth)]
    tree = FairTree(accounts, [User("u", (f"a{depth - 1}",))], {})
    assert tree.factors == {(f"a{depth - 1}", "u"): 1.0}


@given(sites(), st.data())
def test_usage_elsewhere_counts_like_usage_here(site: Site, data: st.DataObject) -> None:
    accounts, users, usage = site
    others = data.draw(st.dictionaries(st.sampled_from(sorted({*usage, ("a0", "u0")})), usages))
    both = {key: usage.get(key, 0.0) + others.get(key, 0.0) for key in {*usage, *others}}
    plain = {(one.account, one.user): one for one in FairTree(accounts, users, both).members()}
    tree = FairTree(accounts, users, usage, [*both], others=others)
    for one in tree.members():
        other = plain[one.account, one.user]
        assert one.usage + one.others == pytest.approx(other.usage)
        assert one.norm_usage == pytest.approx(other.norm_usage)
        assert one.level == pytest.approx(other.level)


@given(sites(), st.data())
def test_usage_elsewhere_of_others_makes_no_rows(site: Site, data: st.DataObject) -> None:
    accounts, users, usage = site
    others = {
        (account, f"stranger{at}"): amount
        for at, (account, amount) in enumerate(
            data.draw(st.lists(st.tuples(st.sampled_from(["a0", "elsewhere", ""]), usages), max_size=5))
        )
    }
    before = FairTree(accounts, users, usage)
    tree = FairTree(accounts, users, usage, others=others)
    assert [(one.account, one.user) for one in tree.members()] == [
        (one.account, one.user) for one in before.members()
    ]
    assert not any(one.others for one in tree.members() if one.user)
    here = math.fsum(amount for (account, _), amount in others.items() if account == "a0")
    (root,) = [one for one in tree.members() if one.account == "a0" and not one.user]
    assert root.others == pytest.approx(here)
