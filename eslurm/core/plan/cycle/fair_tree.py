"""Fair tree: jobs of the least served user come first, accounts compared before users.

Siblings (accounts and users with one parent) are compared by their *level*: their part of the parent's shares over their
part of the siblings' usage. An account ahead of its sibling brings all its users ahead of all of the sibling's, whatever
their own usage. Accounts of one level count as one account; users of one level share a rank, and so do a user and the
first users of an account on the same level. A factor is the rank over the number of users, within (0, 1].

Usage in other clusters counts like usage here, but brings no users or accounts into the tree: that of a user who is not in
it counts for the account alone, that of an account that is not in it not at all.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping
from itertools import chain
from typing import Final, TypeAlias

import msgspec

from eslurm.core.model.accounts import Account, User
from eslurm.core.plan.slices import exhaust, parts, sorting

Association: TypeAlias = tuple[str, str]
"""(account, user)."""

UNUSED_LEVEL = math.inf
"""The level of an association with shares and without usage."""
NODES_PER_SLICE: Final = 2_000
FEW: Final = 64
"""So few siblings are no reason to pause."""


class Member(msgspec.Struct, frozen=True):
    """One row of the tree for output; `user` is empty for an account. `factor` is a user's.

    `usage` is that of this cluster, `others` that of other ones; `norm_usage` and `level` are of both together.
    """

    account: str
    user: str
    parent: str
    shares: int
    norm_shares: float
    usage: float
    norm_usage: float
    level: float
    factor: float = 0.0
    others: float = 0.0


class _Node:
    """An account or a user during construction of the tree."""

    __slots__ = (
        "account",
        "children",
        "factor",
        "level",
        "norm_shares",
        "norm_usage",
        "others",
        "shares",
        "usage",
        "user",
    )

    def __init__(self, account: str, user: str, shares: int) -> None:
        self.account = account
        self.user = user
        self.shares = shares
        self.children: list[_Node] = []
        self.usage = self.others = self.norm_shares = self.norm_usage = self.level = self.factor = 0.0

    @property
    def used(self) -> float:
        """Usage here and in other clusters."""
        return self.usage + self.others


class FairTree:
    """Ranks every association: those of the policies and those that have usage or waiting jobs without any."""

    def __init__(
        self,
        accounts: Iterable[Account],
        users: Iterable[User],
        usage: Mapping[Association, float],
        waiting: Iterable[Association] = (),
        others: Mapping[Association, float] | None = None,
    ) -> None:
        """`usage` is as of one instant, and so is that of `others`, other clusters: an empty user there stands for users
        without a name. An account without a definition hangs from the root with one share.
        """
        exhaust(self._grow(accounts, users, usage, waiting, others))

    @classmethod
    def growing(
        cls,
        accounts: Iterable[Account],
        users: Iterable[User],
        usage: Mapping[Association, float],
        waiting: Iterable[Association] = (),
        others: Mapping[Association, float] | None = None,
    ) -> Generator[None, None, FairTree]:
        """The same in slices."""
        tree = cls.__new__(cls)
        yield from tree._grow(accounts, users, usage, waiting, others)
        return tree

    def members(self) -> list[Member]:
        """Depth first, accounts by name before users by name."""
        return exhaust(self.listing())

    def listing(self) -> Generator[None, None, list[Member]]:
        """`members` in slices."""
        found: list[Member] = []
        children = yield from _by_name(self._root.children)
        stack = [(child, "") for child in children]
        while stack:
            node, parent = stack.pop()
            found.append(_member(node, parent))
            if len(found) % NODES_PER_SLICE == 0:
                yield
            if node.children:
                children = yield from _by_name(node.children)
                stack += [(child, node.account) for child in children]
        return found

    def letting_go(self) -> Generator[None, None, None]:
        """Free the nodes in slices, because freeing all at once would block the loop. `factors` and `best` stay."""
        while self._accounts:
            children = self._accounts.pop().children
            while children:
                del children[-NODES_PER_SLICE:]
                yield

    # ---- growing ----

    def _grow(
        self,
        accounts: Iterable[Account],
        users: Iterable[User],
        usage: Mapping[Association, float],
        waiting: Iterable[Association],
        others: Mapping[Association, float] | None,
    ) -> Generator[None, None, None]:
        self._root = _Node("", "", 1)
        self.factors: dict[Association, float] = {}
        self.best: dict[str, float] = {}
        """By account the highest factor in it, which new users of the account get."""
        leaves = yield from self._build(accounts, users, usage, waiting)
        beside = (yield from self._use_of_others(leaves, others)) if others else {}
        yield from self._use(leaves, usage, beside)
        yield from self._compare()
        yield from self._rank(len(leaves))
        for part in parts(leaves.items(), NODES_PER_SLICE):
            for key, leaf in part:
                self.factors[key] = leaf.factor
                self.best[key[0]] = max(leaf.factor, self.best.get(key[0], 0.0))
            yield

    def _build(
        self,
        accounts: Iterable[Account],
        users: Iterable[User],
        usage: Iterable[Association],
        waiting: Iterable[Association],
    ) -> Generator[None, None, dict[Association, _Node]]:
        known = {account.name: account for account in accounts}
        nodes = {"": self._root}
        leaves: dict[Association, _Node] = {}

        def at(name: str) -> _Node:
            node = nodes.get(name)
            if node is None:
                node = nodes[name] = _Node(name, "", known[name].shares if name in known else 1)
            return node

        def put(account: str, user: str, shares: int) -> None:
            if (account, user) not in leaves:
                leaves[account, user] = leaf = _Node(account, user, shares)
                at(account).children.append(leaf)

        shares: dict[str, int] = {}
        for people in parts(users, NODES_PER_SLICE):
            for person in people:
                shares[person.name] = person.shares
                for account in person.accounts:
                    put(account, person.name, person.shares)
            yield
        for pairs in parts(chain(usage, waiting), NODES_PER_SLICE):
            for account, user in pairs:
                put(account, user, shares.get(user, 1))
            yield
        for names in parts(known, NODES_PER_SLICE):
            for name in names:
                at(name)
            yield
        for names in parts(nodes, NODES_PER_SLICE):
            for name in names:
                if name:
                    parent = known[name].parent if name in known else ""
                    nodes.get(parent, self._root).children.append(nodes[name])
            yield
        # Parents first.
        self._accounts = [self._root]
        for node in self._accounts:
            self._accounts += [child for child in node.children if not child.user]
            if len(node.children) > FEW:
                yield
        return leaves

    def _use_of_others(
        self, leaves: Mapping[Association, _Node], others: Mapping[Association, float]
    ) -> Generator[None, None, Mapping[str, list[float]]]:
        """Give users their usage in other clusters. Returns, by account, that of users who are not in the tree."""
        beside: dict[str, list[float]] = {}
        for part in parts(others.items(), NODES_PER_SLICE):
            for key, amount in part:
                leaf = leaves.get(key)
                if leaf is not None:
                    leaf.others = amount
                else:
                    beside.setdefault(key[0], []).append(amount)
            yield
        return beside

    def _use(
        self,
        leaves: Mapping[Association, _Node],
        usage: Mapping[Association, float],
        beside: Mapping[str, list[float]],
    ) -> Generator[None, None, None]:
        """Sum the usage of each account's subtree, exactly, so that the order of addition has no effect."""
        for part in parts(leaves.items(), NODES_PER_SLICE):
            for key, leaf in part:
                leaf.usage = usage.get(key, 0.0)
            yield
        for node in reversed(self._accounts):
            node.usage = math.fsum(child.usage for child in node.children)
            others = beside.get(node.account, ())
            if others or any(child.others for child in node.children):
                node.others = math.fsum(chain((child.others for child in node.children), others))
            if len(node.children) > FEW:
                yield

    def _compare(self) -> Generator[None, None, None]:
        for node in self._accounts:
            shares, used = sum(child.shares for child in node.children), node.used
            if len(node.children) > FEW:
                yield
            for part in parts(node.children, NODES_PER_SLICE):
                for child in part:
                    child.norm_shares = child.shares / shares if shares else 0.0
                    child.norm_usage = child.used / used if used else 0.0
                    child.level = _level(child)
                if len(part) > FEW:
                    yield

    def _rank(self, users: int) -> Generator[None, None, None]:
        left = users
        stack = [(yield from _Tiers.of(self._root.children))]
        taken = 0
        while stack:
            tiers = stack[-1]
            tier = tiers.take()
            if tier is None:
                stack.pop()
                continue
            taken += len(tier)
            if taken > NODES_PER_SLICE:
                taken = 0
                yield
            people = [node for node in tier if node.user]
            below = [child for node in tier if not node.user for child in node.children]
            joined, tiers.joined = tiers.joined, None
            if people:
                joined = left / users if joined is None else joined
                left -= len(people)
                for node in people:
                    node.factor = joined
            if below:
                stack.append((yield from _Tiers.of(below, joined)))


def _level(node: _Node) -> float:
    if not node.norm_shares:
        return 0.0
    return node.norm_shares / node.norm_usage if node.norm_usage else UNUSED_LEVEL


class _Tiers:
    """Siblings grouped by level, the highest first.

    `joined` is the rank shared by the first users found here: those of a user who is on one level with the account.
    """

    __slots__ = ("_levels", "_nodes", "joined")

    def __init__(self, nodes: dict[float, list[_Node]], levels: list[float], joined: float | None) -> None:
        self._nodes = nodes
        self._levels = levels
        self.joined = joined

    @classmethod
    def of(cls, nodes: Iterable[_Node], joined: float | None = None) -> Generator[None, None, _Tiers]:
        """The tiers of these siblings."""
        by_level: dict[float, list[_Node]] = {}
        for part in parts(nodes, NODES_PER_SLICE):
            for node in part:
                by_level.setdefault(node.level, []).append(node)
            if len(part) > FEW:
                yield
        levels = list(by_level)
        if len(levels) > FEW:
            levels = yield from sorting(levels)
        else:
            levels.sort()
        return cls(by_level, levels, joined)

    def take(self) -> list[_Node] | None:
        """The next tier; None when there is none left."""
        return self._nodes.pop(self._levels.pop()) if self._levels else None


def _member(node: _Node, parent: str) -> Member:
    return Member(
        node.account,
        node.user,
        parent,
        node.shares,
        node.norm_shares,
        node.usage,
        node.norm_usage,
        node.level,
        node.factor,
        node.others,
    )


def _by_name(nodes: Iterable[_Node]) -> Generator[None, None, list[_Node]]:
    """Sort for a stack: the first one to show comes last."""
    accounts: dict[str, _Node] = {}
    users: dict[str, _Node] = {}
    for part in parts(nodes, NODES_PER_SLICE):
        for node in part:
            (users if node.user else accounts)[node.user or node.account] = node
        if len(part) > FEW:
            yield
    names = yield from sorting(list(accounts))
    people = yield from sorting(list(users))
    order = [accounts[name] for name in names] + [users[name] for name in people]
    order.reverse()
    return order
