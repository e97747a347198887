"""Policies of the site: accounts, users, QOS, limits, FreePools, reservations, defaults.

Together they are the cluster's *policies*: small named records that are changed by facts (`PolicySet`, `PolicyRemoved`)
and kept in the store one row each. They say nothing about single jobs. Invariant: a record is complete in itself; names it
mentions (an account's parent, a user's account) exist when it is set.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

EVERYONE: Final = "*"
UNLIMITED: Final = -1


class Validity(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Time in which a policy is in force (C-09): [from_us, until_us), 0 for an open end, restricted by a cron string.

    `cron` (five fields, in the site's zone) selects single minutes; with `duration_s` each match starts an interval of
    that length. Empty: no restriction.
    """

    from_us: int = 0
    until_us: int = 0
    cron: str = ""
    duration_s: int = 0


ALWAYS: Final = Validity()


class Amount(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """`min[/max%]` (C-11): the larger of a number of items and a share of those available. (-1, 0): unlimited."""

    items: int = UNLIMITED
    percent: float = 0.0


class Limit(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False, tag="limit"):
    """Bound on one consumer's use of one resource: items at a time, duration, and items times seconds (C-11).

    `kind` is user, group, account, qos or partition; `consumer` a name, or `*` for each of that kind. `resource` is `*`
    (each), cores, memory_mib, nodes, a configured resource, `jobs` (in the system) or `arrayjobs` (tasks of one array). A
    limit for one resource overrides that for `*` (C-12), one for a name overrides that for each. `duration_s` bounds how
    long a job may hold the resource; `area_s` items times seconds, of all the consumer's jobs that run or are planned
    together. 0: no bound.
    """

    name: str
    kind: str
    consumer: str
    resource: str
    amount: Amount = Amount()
    duration_s: int = 0
    area_s: int = 0
    validity: Validity = ALWAYS


class Access(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One condition for the use of a FreePool; all its given fields must hold (0 and empty: not checked).

    `items_below` is compared with the job's request of the pool's resource, `time_below_s` and `time_max_s` with its time
    limit.
    """

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    items_below: int = 0
    time_below_s: int = 0
    time_max_s: int = 0


class FreePool(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False, tag="pool"):
    """Resources kept free for jobs that meet one of `access` (C-15); without `access`, for none.

    `nodes` (a folded list) or `feature` keep whole nodes free instead of an amount of `resource`.
    """

    name: str
    resource: str = "cores"
    amount: Amount = Amount()
    access: tuple[Access, ...] = ()
    nodes: str = ""
    feature: str = ""
    validity: Validity = ALWAYS


class Reservation(
    msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False, tag="reservation"
):
    """Nodes set aside for some users (C-41): a system of its own for jobs with `--reservation`.

    `nodes` are the chosen names. With a cron validity it recurs: each interval is one occurrence. `maintenance`: no job at
    all runs there then. `flags` beyond that: ignore_running (set up over running jobs).
    """

    name: str
    validity: Validity
    nodes: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    maintenance: bool = False
    flags: tuple[str, ...] = ()


class Account(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False, tag="account"):
    """A node of the tree that shares are given to (fair tree); "" as parent is the root.

    `coordinators` are users that manage the jobs and users of this account and of those below it.
    """

    name: str
    parent: str = ""
    shares: int = 1
    description: str = ""
    validity: Validity = ALWAYS
    coordinators: tuple[str, ...] = ()
    organization: str = ""


class User(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False, tag="user"):
    """A user's associations with accounts, the default account first; `qos`: the allowed QOS, the default first."""

    name: str
    accounts: tuple[str, ...] = ()
    shares: int = 1
    qos: tuple[str, ...] = ()
    validity: Validity = ALWAYS


class Qos(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False, tag="qos"):
    """A class of service. Its jobs may preempt running jobs of the QOS in `preempts`, by the victims' `preempt_mode`: off,
    requeue, cancel or suspend, with `preempt_grace_s` between the signal and the kill (-1: the site's).
    """

    name: str
    priority: int = 0
    preempts: tuple[str, ...] = ()
    preempt_mode: str = "requeue"
    preempt_grace_s: int = -1
    preempt_exempt_s: int = 0
    usage_factor: float = 1.0
    time_limit_max_s: int = 0
    description: str = ""


class Defaults(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False, tag="defaults"):
    """Option values that a job gets when it gives none (default) or in any case (force) (C-29).

    `kind` is system, group or user; the most specific wins, force over default. Pairs are (option, value) with the long
    names of `essubmit`: time, partition, account, qos, mem-per-cpu, constraint, nice, requeue.
    """

    name: str
    kind: str = "system"
    consumer: str = EVERYONE
    values: tuple[tuple[str, str], ...] = ()
    forced: tuple[tuple[str, str], ...] = ()


Policy: TypeAlias = Limit | FreePool | Reservation | Account | User | Qos | Defaults

KINDS: Final = {
    "limit": Limit,
    "pool": FreePool,
    "reservation": Reservation,
    "account": Account,
    "user": User,
    "qos": Qos,
    "defaults": Defaults,
}


def kind_of(policy: Policy) -> str:
    """The policy's kind as rows, facts and commands spell it."""
    tag = policy.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


class Usage(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Usage of one user through one account: weighted resource seconds, decayed by half-life to `at_us`."""

    account: str
    user: str
    raw: float
    at_us: int
