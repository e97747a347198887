"""`examples/policies.toml` is what its remarks say: the limits of one group (C-10) and the three FreePools (C-14, C-15)."""

from __future__ import annotations

from pathlib import Path

from escli.admin.policies import read_file
from eslurm.compat.policies import Site, read_change
from eslurm.core.model.accounts import UNLIMITED, Access, Amount, FreePool, Limit, Policy

FILE = Path(__file__).parents[3] / "examples" / "policies.toml"
DAY_S, HOUR_S = 86_400, 3_600


def policies() -> dict[str, Policy]:
    site = Site(1_800_000_000_000_000, lambda _: 0, lambda name: name, lambda number: number)
    changes = [read_change("set", *found, site) for found in read_file(str(FILE))]
    return {change.name: change.policy for change in changes if change.policy is not None}


def test_the_limits_of_the_group() -> None:
    limits = [one for one in policies().values() if isinstance(one, Limit)]
    assert {(one.kind, one.consumer) for one in limits} == {("group", "1005")}
    assert {one.resource: (one.amount.items, one.duration_s, one.area_s) for one in limits} == {
        "*": (UNLIMITED, 7 * DAY_S, 0),
        "cores": (640, 4 * DAY_S + 3 * HOUR_S, 0),
        "gpu": (UNLIMITED, 0, 500 * HOUR_S),
        "arrayjobs": (1000, 0, 0),
        "jobs": (5000, 0, 0),
    }


def test_the_pools() -> None:
    pools = {name: one for name, one in policies().items() if isinstance(one, FreePool)}
    assert pools["small"].amount == Amount(10, 20.0)
    assert pools["small"].access == (Access(items_below=4, time_below_s=HOUR_S),)
    assert pools["gpus"].resource == "gpu" and pools["gpus"].amount == Amount()
    assert pools["gpus"].access == (
        Access(groups=("1005", "1006")),
        Access(users=("alice",)),
        Access(time_max_s=2 * HOUR_S),
    )
    assert (pools["maintenance"].feature, pools["maintenance"].access) == ("ib", ())
    assert pools["maintenance"].validity.duration_s == 10 * HOUR_S
