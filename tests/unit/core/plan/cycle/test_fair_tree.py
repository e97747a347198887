"""The tree on a small site worked out by hand: levels, ranks, ties, and users whom no policy knows."""

from __future__ import annotations

import math

from eslurm.core.model.accounts import Account, User
from eslurm.core.plan.cycle.fair_tree import FairTree

ACCOUNTS = [
    Account("physics", shares=3),
    Account("biology"),
    Account("optics", "physics"),
    Account("lasers", "physics"),
]
USERS = [
    User("ada", ("optics",)),
    User("bob", ("optics",), shares=2),
    User("eve", ("lasers",)),
    User("kim", ("biology",)),
]


def ranks(tree: FairTree) -> list[str]:
    """Users from the first to the last; those who share a rank together."""
    by_factor: dict[float, list[str]] = {}
    for (_, user), factor in tree.factors.items():
        by_factor.setdefault(factor, []).append(user)
    return ["=".join(sorted(by_factor[factor])) for factor in sorted(by_factor, reverse=True)]


def test_by_hand() -> None:
    usage = {
        ("optics", "ada"): 30.0,
        ("optics", "bob"): 30.0,
        ("lasers", "eve"): 20.0,
        ("biology", "kim"): 20.0,
    }
    tree = FairTree(ACCOUNTS, USERS, usage)
    rows = {(row.account, row.user): row for row in tree.members()}
    physics = rows["physics", ""]
    assert (physics.norm_shares, physics.usage, physics.norm_usage) == (0.75, 80.0, 0.8)
    assert physics.level == 0.75 / 0.8
    assert rows["biology", ""].level == 0.25 / 0.2
    assert rows["optics", ""].level == 0.5 / 0.75
    assert rows["lasers", ""].level == 0.5 / 0.25
    assert rows["optics", "bob"].level == (2 / 3) / 0.5
    # Biology is due more than physics, lasers more than optics, bob twice what ada is.
    assert ranks(tree) == ["kim", "eve", "bob", "ada"]
    assert tree.factors["lasers", "eve"] == 0.75


def test_members_come_depth_first_and_by_name() -> None:
    rows = FairTree(ACCOUNTS, USERS, {}).members()
    found = [row.user or row.account for row in rows]
    assert found == ["biology", "kim", "physics", "lasers", "eve", "optics", "ada", "bob"]
    assert [row.parent for row in rows if row.user == "eve"] == ["lasers"]


def test_where_nobody_has_used_anything_all_are_first() -> None:
    tree = FairTree(ACCOUNTS, USERS, {})
    assert ranks(tree) == ["ada=bob=eve=kim"]
    assert {row.level for row in tree.members()} == {math.inf}


def test_accounts_of_one_level_are_ranked_as_one() -> None:
    accounts = [Account("a"), Account("b")]
    users = [User("a1", ("a",)), User("a2", ("a",)), User("b1", ("b",)), User("b2", ("b",))]
    usage = {("a", "a1"): 30.0, ("a", "a2"): 10.0, ("b", "b1"): 20.0, ("b", "b2"): 20.0}
    # a2 has used a quarter of its account's, a1 three quarters, each of b's a half.
    assert ranks(FairTree(accounts, users, usage)) == ["a2", "b1=b2", "a1"]


def test_a_user_shares_the_rank_of_the_first_in_an_account_of_the_same_level() -> None:
    users = [User("x", ("a",)), User("y", ("a",)), User("z", ("a",))]
    usage = {("", "solo"): 5.0, ("a", "x"): 2.0, ("a", "y"): 2.0, ("a", "z"): 1.0}
    tree = FairTree([Account("a"), Account("empty", shares=7)], users, usage)
    assert ranks(tree) == ["solo=z", "x=y"]
    assert sorted(tree.factors.values()) == [0.5, 0.5, 1.0, 1.0]


def test_no_shares_come_last_even_unused() -> None:
    users = [User("guest", ("biology",), shares=0), User("kim", ("biology",))]
    tree = FairTree([Account("biology")], users, {("biology", "kim"): 1e12})
    assert ranks(tree) == ["kim", "guest"]


def test_who_is_in_no_policy_has_one_share() -> None:
    tree = FairTree(
        [Account("a")], [], {("a", "old"): 10.0, ("gone", "old"): 30.0}, [("a", "new"), ("", "root")]
    )
    rows = {(row.account, row.user): row for row in tree.members()}
    assert rows["gone", ""].parent == ""
    assert rows["a", "new"].shares == 1
    # root hangs beside both accounts and has used nothing; a has used less than gone, and nobody less than new.
    assert sorted(tree.factors.items(), key=lambda item: -item[1]) == [
        (("", "root"), 1.0),
        (("a", "new"), 0.75),
        (("a", "old"), 0.5),
        (("gone", "old"), 0.25),
    ]
    assert tree.best["a"] == tree.factors["a", "new"]


def test_an_account_whose_parent_is_not_there_hangs_from_the_root() -> None:
    tree = FairTree([Account("orphan", "nowhere")], [User("u", ("orphan",))], {})
    assert tree.factors == {("orphan", "u"): 1.0}
