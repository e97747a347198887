"""Fair share as a tree: who has used least of what is due comes first, first among accounts, then within them.

Siblings (accounts and users with one parent) are compared by their *level*: the share of their parent's shares over
the share of the siblings' usage. An account ahead of its sibling brings all its users ahead of all of the sibling's,
however much single users have used. Accounts of one level are taken as one account; users of one level share a rank,
and so do a user and the first users of an account on one level with that user. A factor is the rank over the number
of users, within (0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from eslurm.core.account.model import Account, User
from eslurm.core.share.usage import Association

UNUSED_LEVEL = math.inf
"""The level of those who have shares and have used nothing."""


class Member(msgspec.Struct, frozen=True):
    """One row of the tree as people see it; `user` is empty for an account. `factor` is a user's."""

    account: str
    user: str
    parent: str
    shares: int
    norm_shares: float
    usage: float
    norm_usage: float
    level: float
    factor: float = 0.0


class _Node:
    """An account or a user while the tree is built."""

    __slots__ = (
        "account",
        "children",
        "factor",
        "level",
        "norm_shares",
        "norm_usage",
        "shares",
        "usage",
        "user",
    )

    def __init__(self, account: str, user: str, shares: int) -> None:
        self.account = account
        self.user = user
        self.shares = shares
        self.children: list[_Node] = []
        self.usage = self.norm_shares = self.norm_usage = self.level = self.factor = 0.0


class FairTree:
    """Ranks every association there is: those of the policies and those that use something or wait without any."""

    def __init__(
        self,
        accounts: Iterable[Account],
        users: Iterable[User],
        usage: Mapping[Association, float],
        waiting: Iterable[Association] = (),
    ) -> None:
        """`usage` is as of one instant. An account that nobody has defined hangs from the root with one share."""
        self._root = _Node("", "", 1)
        self._parents: dict[str, str] = {}
        leaves = self._build(accounts, users, usage, waiting)
        self._use(leaves, usage)
        self._compare()
        self._rank(len(leaves))
        self.factors: dict[Association, float] = {key: leaf.factor for key, leaf in leaves.items()}
        self.best: dict[str, float] = {}
        """By account the highest factor in it: who comes new to it has used as little as anybody there."""
        for (account, _), factor in self.factors.items():
            self.best[account] = max(factor, self.best.get(account, 0.0))

    def members(self) -> list[Member]:
        """Depth first, accounts by name before users by name."""
        found: list[Member] = []
        stack = [(child, "") for child in _by_name(self._root.children)]
        while stack:
            node, parent = stack.pop()
            found.append(
                Member(
                    node.account,
                    node.user,
                    parent,
                    node.shares,
                    node.norm_shares,
                    node.usage,
                    node.norm_usage,
                    node.level,
                    node.factor,
                )
            )
            stack += [(child, node.account) for child in _by_name(node.children)]
        return found

    # ---- building ----

    def _build(
        self,
        accounts: Iterable[Account],
        users: Iterable[User],
        usage: Iterable[Association],
        waiting: Iterable[Association],
    ) -> dict[Association, _Node]:
        known = {account.name: account for account in accounts}
        people = {user.name: user for user in users}
        pairs = dict.fromkeys((account, user.name) for user in people.values() for account in user.accounts)
        pairs |= dict.fromkeys(usage) | dict.fromkeys(waiting)
        nodes = {"": self._root}
        for name in sorted({*known, *(account for account, _ in pairs if account)}):
            nodes[name] = _Node(name, "", known[name].shares if name in known else 1)
        for name, node in nodes.items():
            if name:
                parent = known[name].parent if name in known else ""
                nodes.get(parent, self._root).children.append(node)
        leaves: dict[Association, _Node] = {}
        for account, user in sorted(pairs):
            person = people.get(user)
            leaves[account, user] = leaf = _Node(account, user, person.shares if person is not None else 1)
            nodes[account].children.append(leaf)
        return leaves

    def _use(self, leaves: Mapping[Association, _Node], usage: Mapping[Association, float]) -> None:
        """An account has used what all below it have; exact sums, so that no order of adding shows."""
        for key, leaf in leaves.items():
            leaf.usage = usage.get(key, 0.0)
        for node in reversed(list(self._accounts())):
            node.usage = math.fsum(child.usage for child in node.children)

    def _compare(self) -> None:
        for node in self._accounts():
            shares = sum(child.shares for child in node.children)
            for child in node.children:
                child.norm_shares = child.shares / shares if shares else 0.0
                child.norm_usage = child.usage / node.usage if node.usage else 0.0
                child.level = _level(child)

    def _rank(self, users: int) -> None:
        left = users
        stack = [_Tiers(self._root.children)]
        while stack:
            tiers = stack[-1]
            tier = tiers.take()
            if tier is None:
                stack.pop()
                continue
            people = [node for node in tier if node.user]
            below = [child for node in tier if not node.user for child in node.children]
            joined, tiers.joined = tiers.joined, None
            if people:
                joined = left / users if joined is None else joined
                left -= len(people)
                for node in people:
                    node.factor = joined
            if below:
                stack.append(_Tiers(below, joined))

    def _accounts(self) -> Iterator[_Node]:
        """The root and every account below it, parents first."""
        nodes = [self._root]
        for node in nodes:
            nodes += [child for child in node.children if not child.user]
        return iter(nodes)


def _level(node: _Node) -> float:
    if not node.norm_shares:
        return 0.0
    return node.norm_shares / node.norm_usage if node.norm_usage else UNUSED_LEVEL


class _Tiers:
    """Siblings, those of one level together, the highest first.

    `joined` is the rank that the first users found here share: those of a user who is on one level with the account.
    """

    __slots__ = ("_nodes", "joined")

    def __init__(self, nodes: list[_Node], joined: float | None = None) -> None:
        self._nodes = sorted(nodes, key=lambda node: node.level)
        self.joined = joined

    def take(self) -> list[_Node] | None:
        """The next tier; None when there is none left."""
        if not self._nodes:
            return None
        tier = [self._nodes.pop()]
        while self._nodes and self._nodes[-1].level == tier[0].level:
            tier.append(self._nodes.pop())
        return tier


def _by_name(nodes: Iterable[_Node]) -> list[_Node]:
    """For a stack: the one to show first comes last."""
    return sorted(nodes, key=lambda node: (bool(node.user), node.account, node.user), reverse=True)
